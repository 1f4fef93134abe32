#!/usr/bin/env python3
"""Makes the .ptx files beside this script from the .cu files, without a GPU or a toolkit.

The compiler is NVRTC 12.0, from PyPI:

    pip download --no-deps nvidia-cuda-nvrtc-cu12==12.0.140 -d nvrtc
    unzip -d nvrtc nvrtc/*.whl
    python3 build_ptx.py nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12

A newer NVRTC writes a newer PTX, which older drivers refuse: version 12.0 writes PTX 8.0, for
drivers from 525 on. The crate's tests assert the version and the target.
"""

import ctypes
import pathlib
import re
import sys

OPTIONS = [b"--gpu-architecture=compute_75", b"--std=c++17"]


def check(lib, code, what):
    if code != 0:
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(f"{what}: {lib.nvrtcGetErrorString(code).decode()}")


def compile_ptx(lib, source: pathlib.Path) -> bytes:
    program = ctypes.c_void_p()
    text = source.read_bytes()
    check(lib, lib.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None), "create")
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    code = lib.nvrtcCompileProgram(program, len(OPTIONS), options)
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    if len(log.value) > 0:
        print(log.value.decode(), file=sys.stderr)
    check(lib, code, source.name)
    check(lib, lib.nvrtcGetPTXSize(program, ctypes.byref(size)), "size")
    ptx = ctypes.create_string_buffer(size.value)
    check(lib, lib.nvrtcGetPTX(program, ptx), "ptx")
    # NVRTC adds unused constants of its own header to every module: about 3 KiB of noise.
    lines = ptx.value.split(b"\n")
    return b"\n".join(line for line in lines if not re.match(rb"\.global .*_INTERNAL_.*nv6target", line))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lib = ctypes.CDLL(sys.argv[1])
    for source in sorted(pathlib.Path(__file__).parent.glob("*.cu")):
        target = source.with_suffix(".ptx")
        target.write_bytes(compile_ptx(lib, source))
        print(f"{target.name}: {target.stat().st_size} bytes")


main()
