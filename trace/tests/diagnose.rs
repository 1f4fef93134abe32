//! Diagnosis of the files in tests/data.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::PathBuf;
use terrane_trace::diagnose::{
    Class, Explanation, Known, LeakClass, LeakOptions, Moment, SiteBy, explain, leaks, peak, sites,
    timeline,
};
use terrane_trace::snapshot::{History, ReadOptions, Snapshot, open_snapshot, read_json_snapshot};

fn read(name: &str) -> (Snapshot, History) {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let path = data.join(format!("{name}.pickle.gz"));
    let options = ReadOptions::default();
    let snapshot = open_snapshot(&path, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    let history = snapshot.history(0).unwrap().unwrap();
    (snapshot, history)
}

fn explained(limit: Option<u64>) -> Explanation {
    let (snapshot, history) = read("unet_multires.oom");
    let known = Known { limit, device_total: None };
    explain(&snapshot, &history, known).unwrap().unwrap()
}

fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}

#[test]
fn the_recorded_failure_is_fragmentation_with_the_numbers_of_its_message() {
    let explanation = explained(None);
    if std::env::var_os("SHOW").is_some() {
        println!("{}", serde_json::to_string_pretty(&explanation).unwrap());
    }
    assert_eq!(explanation.class, Class::Fragmentation);
    assert_eq!((explanation.failures, explanation.survived.count), (54, 53));
    assert!(explanation.fault.fatal && explanation.exact);
    assert!(explanation.fault.top.as_deref().unwrap().ends_with(" group_norm"));
    let chain = explanation.chain;
    assert_eq!(chain.segment_bytes >> 20, 698);
    assert_eq!((gib(chain.allocated), gib(chain.free)), ("17.84".into(), "3.61".into()));
    // 23.5e9 bytes were allowed, which the file does not say.
    assert!(explanation.limit.at_least <= 23_500_000_000);
    assert!(explanation.limit.at_most.unwrap() >= 23_500_000_000);
    assert_eq!(explanation.short_bytes, 0);
}

#[test]
fn the_remedy_is_replayed_and_serves_the_request() {
    for limit in [None, Some(23_500_000_000)] {
        let remedies = explained(limit).remedies;
        let best = &remedies[0];
        assert_eq!(best.conf, "expandable_segments:True");
        assert!(best.peak_reserved <= best.capacity);
    }
}

#[test]
fn live_bytes_and_request_over_the_limit_are_capacity_and_no_setting_is_advised() {
    let explanation = explained(Some(18_000_000_000));
    assert_eq!(explanation.class, Class::Capacity);
    assert_eq!(
        explanation.short_bytes,
        explanation.chain.allocated + explanation.chain.rounded - 18_000_000_000
    );
    assert!(explanation.remedies.is_empty());
    assert!(explanation.exact, "the state is that of the run, whatever limit is asked about");
    assert_eq!(explained(Some(500_000_000)).class, Class::UserLimit);
}

#[test]
fn where_nothing_failed_nothing_is_explained() {
    let (snapshot, history) = read("gpt2_varlen.frames");
    assert_eq!(explain(&snapshot, &history, Known::default()).unwrap(), None);
}

#[test]
fn sites_sum_to_what_is_live_and_name_the_programs_own_lines() {
    let (snapshot, history) = read("leak_accumulating.frames");
    for by in [SiteBy::Top, SiteBy::User, SiteBy::Module, SiteBy::Stack] {
        for moment in [Moment::Peak, Moment::End, Moment::After(1000)] {
            let sites = sites(&snapshot, &history, moment, by);
            let rows: u64 = sites.rows.iter().map(|row| row.bytes).sum();
            assert_eq!(rows + sites.bytes_without_frames + sites.bytes_from_earlier, sites.bytes);
            assert!(sites.rows.is_sorted_by(|a, b| a.bytes >= b.bytes));
        }
    }
    let at_end = sites(&snapshot, &history, Moment::End, SiteBy::User);
    assert!(at_end.rows[0].site.starts_with("workloads.py:"), "{}", at_end.rows[0].site);
    assert_eq!(at_end.bytes, 605_044_736);
    assert!(peak(&snapshot, &history).bytes >= at_end.bytes);
}

#[test]
fn the_timeline_keeps_its_peaks_and_ends_with_what_is_reserved() {
    for name in ["gpt2_varlen.frames", "multistream.frames", "unet_multires.oom"] {
        let (snapshot, history) = read(name);
        let whole = timeline(&snapshot, &history, usize::MAX);
        assert_eq!(whole.points.len(), history.trace.events().len());
        assert_eq!(whole.reserved_at_start, 0, "{name}");
        assert_eq!(whole.points.last().unwrap().reserved, snapshot.reserved_bytes(0), "{name}");
        let coarse = timeline(&snapshot, &history, 50);
        assert!(coarse.points.len() <= 51, "{name}");
        assert!(coarse.points.contains(&whole.peak), "{name}");
        assert_eq!(whole.peak.active, history.trace.figures().peak_requested, "{name}");
        assert!(whole.points.iter().all(|p| p.requested <= p.active && p.active <= p.reserved));
    }
}

#[test]
fn the_three_classic_leaks_are_told_apart() {
    for (name, class, line) in [
        ("leak_accumulating.frames", LeakClass::Accumulating, Some("workloads.py:147 step")),
        ("leak_exponential.frames", LeakClass::Exponential, Some("workloads.py:153 step")),
        ("leak_fragmenting.frames", LeakClass::Fragmenting, Some("workloads.py:160 step")),
    ] {
        let (snapshot, history) = read(name);
        let leaks = leaks(&snapshot, &history, LeakOptions::default());
        assert_eq!(leaks.verdict.class, class, "{name}: {leaks:?}");
        assert_eq!(leaks.line.as_deref(), line, "{name}: {leaks:?}");
        assert!(leaks.verdict.confidence > 0.6, "{name}: {leaks:?}");
    }
}

#[test]
fn two_or_three_steps_are_too_few_to_call_a_leak() {
    for name in ["gpt2_varlen.frames", "multistream.frames"] {
        let (snapshot, history) = read(name);
        let verdict = leaks(&snapshot, &history, LeakOptions::default()).verdict;
        let healthy =
            matches!(verdict.class, LeakClass::Unknown | LeakClass::None | LeakClass::Plateau);
        assert!(healthy, "{name}: {verdict:?}");
    }
}

/// A history of stream 0 and 7, in events of PyTorch's: action, address, bytes, stream, time.
fn history_of(events: &[(&str, u64, u64, u64, u64)]) -> Explanation {
    let entries: Vec<_> = events
        .iter()
        .map(|&(action, addr, size, stream, time_us)| {
            // The only address of a failure is how much the driver had.
            let place = if action == "oom" { "device_free" } else { "addr" };
            serde_json::json!({ "action": action, place: addr, "size": size, "stream": stream,
                "time_us": time_us, "frames": [] })
        })
        .collect();
    let file = serde_json::json!({ "segments": [], "device_traces": [entries] });
    let text = serde_json::to_vec(&file).unwrap();
    let mut source = &text[..];
    let options = ReadOptions::default();
    let snapshot =
        read_json_snapshot(&mut source, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    let history = snapshot.history(0).unwrap().unwrap();
    explain(&snapshot, &history, Known { limit: Some(64 << 20), device_total: None })
        .unwrap()
        .unwrap()
}

const MIB: u64 = 1 << 20;

#[test]
fn a_failure_behind_other_streams_says_until_when() {
    let (a, b) = (0x7f00_0000_0000, 0x7f40_0000_0000);
    let events = [
        ("segment_alloc", a, 32 * MIB, 0, 10),
        ("alloc", a, 32 * MIB, 0, 10),
        ("segment_alloc", b, 32 * MIB, 7, 20),
        ("alloc", b, 32 * MIB, 7, 20),
        ("free_requested", a, 32 * MIB, 0, 30),
        ("free_requested", b, 32 * MIB, 7, 40),
        ("free_completed", b, 32 * MIB, 7, 40),
        // Counted from the event before the failure.
        ("oom", 0, 24 * MIB, 0, 50),
        ("free_completed", a, 32 * MIB, 0, 2_050),
    ];
    let chain = history_of(&events).chain;
    assert_eq!((chain.pending, chain.pending_until_us), (32 * MIB, Some(2_010)));
    assert_eq!((chain.best_hole_other_stream, chain.best_hole_stream), (32 * MIB, Some(1)));
    // The recording ends before the use does.
    let chain = history_of(&events[..8]).chain;
    assert_eq!((chain.pending, chain.pending_until_us), (32 * MIB, None));
}
