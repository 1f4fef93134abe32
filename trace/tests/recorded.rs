//! The recorded traces in tests/data, read whole.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{num::NonZeroU64, path::PathBuf};
use terrane_trace::{Figures, Limits, Op, Trace, open_csv};

/// Name, events and peak requested, from the table in tests/data/README.md.
const RECORDED: [(&str, u64, u64); 6] = [
    ("bert_large_ckpt", 39_933, 8_073_410_240),
    ("gpt2_varlen", 154_779, 33_300_130_880),
    ("llm_serving", 394_576, 5_120_655_360),
    ("lora_recompute_offload", 307_798, 7_500_675_336),
    ("multistream", 21_496, 6_785_810_560),
    ("resnet50_amp", 19_084, 6_057_040_912),
];

fn read(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

#[test]
fn the_six_recorded_traces_have_the_events_and_peaks_of_their_table() {
    for (name, events, peak_requested) in RECORDED {
        let figures = read(name).figures();
        assert_eq!((figures.events, figures.peak_requested), (events, peak_requested), "{name}");
    }
}

#[test]
fn multistream_ends_with_blocks_whose_free_never_completed() {
    let figures = read("multistream").figures();
    assert_eq!(figures.pending_at_end, 59);
    assert_eq!(figures.peak_until_requested, 3_049_308_288);
    assert_eq!(figures.live_at_end + figures.pending_at_end, 263);
}

#[test]
fn figures_agree_with_a_count_made_from_the_lifetimes() {
    for (name, ..) in RECORDED {
        let trace = read(name);
        let Figures { live_at_end, pending_at_end, allocated_bytes, blocks, .. } = trace.figures();
        let lifetimes = trace.lifetimes();
        let live = lifetimes.iter().filter(|l| l.requested.is_none()).count() as u64;
        let pending =
            lifetimes.iter().filter(|l| l.requested.is_some() && l.completed.is_none()).count();
        assert_eq!(lifetimes.len() as u64, blocks, "{name}");
        assert_eq!((live, pending as u64), (live_at_end, pending_at_end), "{name}");
        assert_eq!(lifetimes.iter().map(|l| l.bytes).sum::<u64>(), allocated_bytes, "{name}");
    }
}

#[test]
fn blocks_are_numbered_in_order_of_allocation() {
    let trace = read("multistream");
    let allocated: Vec<u32> = trace.iter().filter(|e| e.op == Op::Alloc).map(|e| e.block).collect();
    assert_eq!(allocated, (0..trace.block_count()).collect::<Vec<_>>());
    assert_eq!(trace.streams(), [0, 1, 2, 3]);
}

#[test]
fn a_scaled_trace_keeps_order_and_has_figures_of_its_own() {
    let trace = read("bert_large_ckpt");
    let scaled = trace.scaled(NonZeroU64::new(1000).unwrap());
    assert_eq!(scaled.events().len(), trace.events().len());
    for (small, full) in scaled.iter().zip(&trace) {
        assert_eq!(small.bytes, full.bytes.div_ceil(1000).max(256));
        assert_eq!((small.op, small.block, small.time_us), (full.op, full.block, full.time_us));
    }
    let peak = scaled.figures().peak_requested;
    assert!(peak >= trace.figures().peak_requested / 1000, "{peak}");
}

#[test]
fn the_first_tenth_is_a_tenth_of_the_recorded_time() {
    for (name, ..) in RECORDED {
        let trace = read(name);
        let figures = trace.figures();
        let boundary = figures.first_tenth_events as usize;
        assert!(trace.events()[boundary - 1].time_us <= figures.first_tenth_us, "{name}");
        assert!(trace.events()[boundary].time_us > figures.first_tenth_us, "{name}");
        let span = trace.events().last().unwrap().time_us - trace.events()[0].time_us;
        assert_eq!(figures.recorded_us, span, "{name}");
    }
}
