//! Models of allocators against recorded peaks, limits and the rules they follow.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use terrane_trace::model::{
    Model, ModelSpec, Outcome, Pytorch, PytorchConfig, SegmentOp, SpecError, Validation, replay,
    replay_each,
};
use terrane_trace::{Limits, Op, Trace, TraceBuilder, open_csv};

const MIB: u64 = 1 << 20;

/// Peaks recorded: native, expandable, async (0: not recorded). tests/data/README.md.
const RECORDED: [(&str, [u64; 3]); 6] = [
    ("bert_large_ckpt", [9_787_408_384, 8_441_036_800, 8_623_489_024]),
    ("gpt2_varlen", [47_009_759_232, 34_871_443_456, 34_963_718_144]),
    ("llm_serving", [6_396_313_600, 5_742_002_176, 5_737_807_872]),
    ("lora_recompute_offload", [12_121_538_560, 8_302_624_768, 0]),
    ("multistream", [11_184_111_616, 9_275_703_296, 9_395_240_960]),
    ("resnet50_amp", [7_295_991_808, 0, 0]),
];

fn read(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

fn run(trace: &Trace, spec: &str, capacity: Option<u64>) -> Outcome {
    replay(trace, ModelSpec::parse(spec).unwrap().build(capacity).as_mut())
}

fn off_percent(name: &str, spec: &str, recorded: u64) -> f64 {
    let reserved = run(&read(name), spec, None).peak_reserved;
    (reserved as f64 / recorded as f64 - 1.0).abs() * 100.0
}

#[test]
fn the_native_model_gives_exactly_the_recorded_peaks() {
    for (name, [native, ..]) in RECORDED {
        assert_eq!(run(&read(name), "pytorch", None).peak_reserved, native, "{name}");
    }
}

#[test]
fn the_expandable_and_async_models_are_as_near_to_the_recorded_peaks_as_they_say() {
    for (spec, column) in [("pytorch-expandable", 1), ("cuda-async", 2)] {
        let validation = ModelSpec::parse(spec).unwrap().validation();
        let Validation::Validated { within_percent, .. } = validation else { panic!("{spec}") };
        for (name, peaks) in RECORDED.iter().filter(|row| row.1[column] > 0) {
            let off = off_percent(name, spec, peaks[column]);
            assert!(off <= within_percent, "{spec} {name}: off by {off} %");
        }
    }
}

#[test]
fn without_a_limit_every_model_serves_every_trace_and_holds_what_is_asked_for() {
    for (name, _) in RECORDED {
        let trace = read(name);
        for spec in ModelSpec::NAMES {
            let mut held = 0;
            let mut model = ModelSpec::parse(spec).unwrap().build(None);
            let events = trace.events();
            let outcome = replay_each(&trace, model.as_mut(), |step, _| {
                let (index, reserved) = (step.event, step.reserved);
                match events[index].op {
                    Op::Alloc => held += events[index].bytes,
                    Op::FreeRequested => {}
                    Op::FreeCompleted => held -= events[index].bytes,
                }
                assert!(reserved >= held, "{spec} {name}: {reserved} < {held} at {index}");
            });
            assert_eq!((outcome.failures, outcome.retries), (0, 0), "{spec} {name}");
            assert_eq!(outcome.peak_requested, trace.figures().peak_requested, "{spec} {name}");
        }
    }
}

#[test]
fn a_capacity_is_never_exceeded_and_the_peak_is_enough() {
    for name in ["bert_large_ckpt", "multistream", "resnet50_amp"] {
        let trace = read(name);
        for spec in ModelSpec::NAMES {
            let peak = run(&trace, spec, None).peak_reserved;
            assert_eq!(run(&trace, spec, Some(peak)).failures, 0, "{spec} {name}");
            // A model may wait for pending frees when it runs short.
            let short = trace.figures().peak_until_requested - MIB;
            let outcome = run(&trace, spec, Some(short));
            assert!(outcome.peak_reserved <= short, "{spec} {name}");
            assert!(outcome.failures > 0, "{spec} {name}: less than what is asked for");
            let first = outcome.first_failure.unwrap();
            assert!(first.bytes > 0 && first.reserved <= short, "{spec} {name}: {first:?}");
        }
    }
}

#[test]
fn under_pressure_the_native_model_empties_its_cache_before_it_fails() {
    let trace = read("gpt2_varlen");
    let native = run(&trace, "pytorch", None).peak_reserved;
    let outcome = run(&trace, "pytorch", Some(native * 85 / 100));
    assert_eq!(outcome.failures, 0, "{outcome:?}");
    assert!(outcome.retries > 0, "{outcome:?}");
}

/// A workload written as `+id bytes stream`, `-id` (freed at once), `~id` (requested only).
fn program(steps: &str) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut made = std::collections::HashMap::new();
    for (time, step) in steps.split(',').map(str::trim).enumerate() {
        let numbers: Vec<u64> = step[1..].split(' ').map(|n| n.parse().unwrap()).collect();
        let time = time as u64;
        if let [id, bytes, stream] = numbers[..] {
            made.insert(id, (bytes, stream as u32));
            builder.push(Op::Alloc, time, id, bytes, stream as u32).unwrap();
            continue;
        }
        let (bytes, stream) = made[&numbers[0]];
        builder.push(Op::FreeRequested, time, numbers[0], bytes, stream).unwrap();
        if step.starts_with('-') {
            builder.push(Op::FreeCompleted, time, numbers[0], bytes, stream).unwrap();
        }
    }
    builder.finish()
}

fn segments(conf: &str, steps: &str) -> Vec<(SegmentOp, u64)> {
    let config = PytorchConfig::from_conf(conf).unwrap();
    let mut model = Pytorch::new(config, Some(100 * MIB)).logging_segments();
    replay(&program(steps), &mut model);
    model.segment_events().iter().map(|event| (event.op, event.bytes / MIB)).collect()
}

#[test]
fn segment_sizes_follow_the_size_of_the_request() {
    let sizes = |steps| segments("", steps).iter().map(|s| s.1).collect::<Vec<_>>();
    assert_eq!(sizes("+1 1 0"), [2]);
    assert_eq!(sizes("+1 1048576 0"), [2]);
    assert_eq!(sizes("+1 1048577 0"), [20]);
    assert_eq!(sizes("+1 10485248 0"), [20], "512 below 10 MiB");
    assert_eq!(sizes("+1 10485249 0"), [10], "rounds up to 10 MiB");
    assert_eq!(sizes("+1 10485761 0"), [12]);
}

#[test]
fn streams_and_size_classes_share_nothing() {
    assert_eq!(segments("", "+1 512 0, -1, +2 512 1").len(), 2);
    assert_eq!(segments("", "+1 12000000 0, -1, +2 512 0").len(), 2);
    assert_eq!(segments("", "+1 512 0, -1, +2 512 0").len(), 1);
}

#[test]
fn a_large_block_is_split_only_when_more_than_a_mebibyte_is_left() {
    // 20 MiB segment: after 9 and 9 MiB there are 2 MiB left, enough for a third block.
    assert_eq!(segments("", "+1 9437184 0, +2 9437184 0, +3 2097152 0").len(), 1);
    // 12 MiB cached, 11 MiB asked: exactly 1 MiB would be left, so it stays whole.
    assert_eq!(segments("", "+1 12582912 0, -1, +2 11534336 0, +3 1048577 0").len(), 2);
}

#[test]
fn a_refusal_completes_pending_frees_and_gives_cached_segments_back() {
    let (alloc, free) = (SegmentOp::Alloc, SegmentOp::Free);
    let events = segments("", "+1 62914560 0, ~1, +2 52428800 0");
    assert_eq!(events, [(alloc, 60), (free, 60), (alloc, 50)]);
}

#[test]
fn oversize_blocks_are_kept_whole_and_released_one_by_one() {
    let (alloc, free) = (SegmentOp::Alloc, SegmentOp::Free);
    let steps = "+1 31457280 0, +2 62914560 0, -1, -2, +3 26214400 0, +4 94371840 0";
    // 25 MiB must not take the 60 MiB block, and takes the 30 MiB one whole.
    let events = segments("max_split_size_mb:20", "+1 62914560 0, -1, +2 26214400 0");
    assert_eq!(events, [(alloc, 60), (alloc, 26)]);
    let events = segments("max_split_size_mb:20", steps);
    assert_eq!(events[..2], [(alloc, 30), (alloc, 60)]);
    assert!(events[2..].contains(&(free, 60)), "{events:?}");
}

#[test]
fn garbage_collection_needs_a_fraction_and_frees_the_oldest_first() {
    let steps = "+1 20971520 0, -1, +2 31457280 0, +3 52428800 0";
    let gc = "garbage_collection_threshold:0.4";
    let frees = |conf: &str| {
        let events = segments(conf, steps);
        events.iter().filter(|event| event.0 == SegmentOp::Free).count()
    };
    let both = format!("{gc},per_process_memory_fraction:0.99");
    let early = segments(&both, "+1 20971520 0, -1, +2 31457280 0, -2, +3 41943040 0");
    assert_eq!(early[2].0, SegmentOp::Free, "{early:?}");
    assert_eq!(frees(gc), 0, "a threshold alone does nothing while memory is there");
}

#[test]
fn expandable_segments_grow_by_handles_and_reuse_the_lowest_hole() {
    let map = SegmentOp::Map;
    let conf = "expandable_segments:True";
    assert_eq!(segments(conf, "+1 512 0, +2 2097152 0"), [(map, 2), (map, 20)]);
    assert_eq!(segments(conf, "+1 26214400 0, -1, +2 41943040 0"), [(map, 40)]);
}

#[test]
fn roundup_divisions_round_as_documented() {
    let config = PytorchConfig::from_conf("roundup_power2_divisions:4").unwrap();
    let mut model = Pytorch::new(config, None).logging_segments();
    // 33 MiB with 4 divisions between 32 and 64: 40 MiB.
    replay(&program("+1 34603008 0"), &mut model);
    assert_eq!(model.segment_events()[0].bytes, 40 * MIB);
    assert_eq!(model.reserved(), 40 * MIB);
}

#[test]
fn settings_survive_a_round_trip_and_bad_ones_are_named() {
    for conf in [
        "",
        "expandable_segments:True",
        "max_split_size_mb:128,garbage_collection_threshold:0.8",
        "per_process_memory_fraction:0.5,roundup_power2_divisions:8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    ] {
        let config = PytorchConfig::from_conf(conf).unwrap();
        assert_eq!(PytorchConfig::from_conf(&config.to_conf()).unwrap(), config, "{conf}");
    }
    let key = |text: &str| match PytorchConfig::from_conf(text).unwrap_err() {
        SpecError::Key { key } | SpecError::Value { key, .. } => key,
        SpecError::Model { name } => name,
        other => other.to_string(),
    };
    assert_eq!(key("max_split_size:3"), "max_split_size");
    assert_eq!(key("max_split_size_mb:19"), "max_split_size_mb");
    assert_eq!(key("garbage_collection_threshold:1.0"), "garbage_collection_threshold");
    assert_eq!(key("roundup_power2_divisions:3"), "roundup_power2_divisions");
    assert_eq!(key("roundup_power2_divisions:[1:2"), "roundup_power2_divisions");
}

#[test]
fn model_names_and_options_are_read_and_refused_with_the_part_at_fault() {
    for text in [
        "pytorch:max_split_size_mb=128,roundup_power2_divisions=[1:2,>:4]",
        "bfc:preallocate=0.75,garbage_collection=false",
        "rmm-pool:initial_mb=512,max_mb=4096",
        "rmm-arena:arena_mb=1024",
        "vma:block_mb=64",
    ] {
        ModelSpec::parse(text).unwrap();
    }
    assert!(matches!(ModelSpec::parse("jemalloc"), Err(SpecError::Model { .. })));
    assert!(matches!(ModelSpec::parse("cuda-async:x=1"), Err(SpecError::Key { .. })));
    assert!(matches!(ModelSpec::parse("vma:block_mb=0"), Err(SpecError::Value { .. })));
    assert!(matches!(ModelSpec::parse("bfc:preallocate"), Err(SpecError::Value { .. })));
}

#[test]
fn sizes_near_the_end_of_the_number_range_are_refused_and_break_nothing() {
    let huge = i64::MAX as u64;
    let trace = program(&format!("+1 {huge} 0, +2 {} 1, -1, +3 512 0, -2", 1u64 << 60));
    for spec in ModelSpec::NAMES {
        for capacity in [None, Some(64 * MIB), Some(u64::MAX), Some(0), Some(1)] {
            let outcome = run(&trace, spec, capacity);
            assert!(outcome.peak_reserved <= capacity.unwrap_or(u64::MAX), "{spec}");
        }
    }
}

/// What a model reserves after each step of a program, in MiB; `None` where it refused the request.
fn reserved(spec: &str, capacity_mib: Option<u64>, steps: &str) -> Vec<Option<u64>> {
    let mut model = ModelSpec::parse(spec).unwrap().build(capacity_mib.map(|mib| mib * MIB));
    let mut found = Vec::new();
    replay_each(&program(steps), model.as_mut(), |step, _| {
        found.push((!step.refused).then_some(step.reserved / MIB));
    });
    found
}

#[test]
fn bfc_gives_free_regions_back_where_together_they_hold_the_request() {
    // Regions of 2 and 4 MiB; with both gone the next one has all of the 8 that there are.
    let steps = "+1 2097152 0, +2 4194304 0, -1, -2, +3 6291456 0";
    let some = [2, 6, 6, 6, 6, 6].map(Some);
    let with = reserved("bfc", Some(8), steps);
    assert_eq!((&with[..6], with[6]), (&some[..], Some(8)));
    let without = reserved("bfc:garbage_collection=false", Some(8), steps);
    assert_eq!((&without[..6], without[6]), (&some[..], None));
    // One of them alone is too small, so it stays.
    let steps = "+1 2097152 0, +2 4194304 0, -2, +3 6291456 0, +4 4194304 0";
    let found = reserved("bfc", Some(8), steps);
    assert_eq!(found[4..], [None, Some(6)]);
}

#[test]
fn bfc_takes_its_share_first_and_never_more() {
    let steps = "+1 100663296 0, +2 100663296 0, -1, +3 1048576 0";
    assert_eq!(
        reserved("bfc:preallocate=0.5", Some(256), steps),
        [Some(128), None, Some(128), Some(128), Some(128)]
    );
    // Without a capacity there is nothing to take a share of.
    assert_eq!(reserved("bfc:preallocate=0.5", None, steps)[0], Some(128));
    for bad in ["0", "1.01", "-1", "half"] {
        let error = ModelSpec::parse(&format!("bfc:preallocate={bad}")).unwrap_err();
        assert!(matches!(&error, SpecError::Value { value, .. } if value == bad), "{error}");
    }
}

#[test]
fn rmms_pool_grows_by_half_of_what_it_may_still_take() {
    let steps = "+1 104857600 0, +2 52428800 0, +3 62914560 0, +4 41943040 0, +5 1048576 0";
    // 64 first. Of 192 left the request's 100, of 92 its 60; 32 are too few for 40.
    assert_eq!(
        reserved("rmm-pool:initial_mb=64,max_mb=256", None, steps),
        [Some(164), Some(164), Some(224), None, Some(224)]
    );
    // Without a limit it doubles, and takes less where the device has less.
    let steps = "+1 10485760 0, +2 1048576 0, +3 31457280 0";
    assert_eq!(reserved("rmm-pool", None, steps), [Some(10), Some(20), Some(50)]);
    assert_eq!(reserved("rmm-pool", Some(16), steps), [Some(10), Some(15), None]);
}

#[test]
fn every_model_refuses_options_and_values_that_it_does_not_have() {
    for (text, key) in [
        ("bfc:growth=2", "growth"),
        ("bfc:garbage_collection=maybe", "garbage_collection"),
        ("rmm-pool:arena_mb=1", "arena_mb"),
        ("rmm-pool:max_mb=18446744073709551615", "max_mb"),
        ("rmm-arena:max_mb=1", "max_mb"),
        ("vma:preallocate=1", "preallocate"),
        ("pytorch:expandable_segments=yes", "expandable_segments"),
        ("pytorch:per_process_memory_fraction=0", "per_process_memory_fraction"),
        ("pytorch:backend=cudaMallocAsync", "backend"),
    ] {
        let error = ModelSpec::parse(text).unwrap_err();
        let (SpecError::Key { key: found } | SpecError::Value { key: found, .. }) = &error else {
            panic!("{text}: {error}")
        };
        assert_eq!(found, key, "{text}: {error}");
    }
    // A model with its options says what it is, and whether it may be believed.
    let spec = ModelSpec::parse("pytorch:max_split_size_mb=64,expandable_segments=false").unwrap();
    assert_eq!(spec.to_string(), "pytorch:max_split_size_mb=64");
    for name in ModelSpec::NAMES {
        let spec = ModelSpec::parse(name).unwrap();
        assert_eq!((spec.to_string(), spec.name()), (name.to_owned(), name));
        let told = spec.validation().to_string();
        assert!(told.starts_with("validated to ") || told.starts_with("not validated (assumes "));
    }
}
