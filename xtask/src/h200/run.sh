#!/usr/bin/env bash
# Runs everything in this bundle on the NVIDIA GPU of this machine, in one call.
#
#     run.sh OUT [STEP...]
#
# Each step leaves NAME.out (standard output), NAME.log (standard error) and NAME.meta (exit code,
# seconds, command) in OUT; with names given, only steps whose name begins with one of them are
# run. All of it is packed into OUT.tar.gz, which `cargo xtask h200 --record` reads.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?where to put what comes out}
shift
wanted=("$@")
mkdir -p "$out"
cp "$here/manifest.json" "$out/"
traces=$here/traces
terrane=$here/terrane

is_wanted() {
    [ ${#wanted[@]} -eq 0 ] && return 0
    for begin in "${wanted[@]}"; do [[ $1 == "$begin"* ]] && return 0; done
    return 1
}

# step NAME SECONDS COMMAND...
step() {
    local name=$1 limit=$2 start rc
    shift 2
    is_wanted "$name" || return 0
    start=$EPOCHREALTIME
    timeout -k 5 "$limit" "$@" >"$out/$name.out" 2>"$out/$name.log"
    rc=$?
    awk -v rc=$rc -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%d\n%.3f\n", rc, b - a }' \
        >"$out/$name.meta"
    echo "${*//$here\//}" >>"$out/$name.meta"
    printf '%-28s exit %3d  %s s\n' "$name" "$rc" "$(sed -n 2p "$out/$name.meta")"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem --format=csv \
    >"$out/gpu.csv" 2>"$out/gpu.log"
uname -sr >"$out/system.txt"
nproc >>"$out/system.txt"
date -u +%Y-%m-%d >"$out/date.txt"

step devices 120 "$terrane" devices --check --calibrate --json
step conformance-cuda 200 "$here/conformance" --device cuda --json
step conformance-vulkan 200 "$here/conformance" --device vulkan --json
for workload in multistream gpt2_varlen lora_recompute_offload; do
    for device in cuda vulkan; do
        step "replay-$workload-$device" 120 \
            "$terrane" replay "$traces/$workload.native.csv.gz" --device "$device" --quiet --json
    done
done
step replay-corrupt-cuda 60 "$terrane" replay "$traces/multistream.native.csv.gz" \
    --device cuda --quiet --json --corrupt 7
# The clocks are up by now.
step selftest 200 "$here/cuda_selftest"
step spike 120 "$here/spike"
for tests in "$here"/vulkan-tests-*; do
    [ -x "$tests" ] || continue
    name=$(basename "$tests")
    step "$name" 120 env TERRANE_VULKAN=NVIDIA TERRANE_REQUIRE_VULKAN=1 "$tests" --test-threads 1 --show-output
done
if command -v compute-sanitizer >/dev/null; then
    # Calls that are refused on purpose are no errors; accesses are what is looked at.
    check=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9
        --target-processes application-only)
    step sanitizer-selftest 200 "${check[@]}" "$here/cuda_selftest" --quick --no-bench --no-faults
    step sanitizer-guard 200 "${check[@]}" "$terrane" replay "$traces/multistream.native.csv.gz" \
        --device cuda --quiet --json --scale 256 --guard
fi
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$(basename "$out")"
