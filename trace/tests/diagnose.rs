//! Diagnosis of the files in tests/data.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::PathBuf;
use terrane_core::device::sim::Sim;
use terrane_trace::Op;
use terrane_trace::diagnose::{
    Class, Explanation, Known, LeakClass, LeakOptions, Moment, Requests, SiteBy, StepSource,
    explain, leaks, peak, sites, timeline, whatif_terrane,
};
use terrane_trace::replay::{Capacity, Options, Replay, Target};
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
fn no_remedy_joins_expandable_segments_with_what_pytorch_does_not_bear_beside_them() {
    let (mut snapshot, history) = read("unet_multires.oom");
    let mut advised = 0;
    for conf in [
        "max_split_size_mb:512",
        "garbage_collection_threshold:0.8,max_split_size_mb:256",
        "expandable_segments:True",
        "roundup_power2_divisions:16",
    ] {
        snapshot.settings.conf = Some(conf.to_owned());
        let known = Known { limit: Some(23_500_000_000), device_total: None };
        for remedy in explain(&snapshot, &history, known).unwrap().unwrap().remedies {
            let has = |key: &str| remedy.conf.contains(key);
            let expandable = has("expandable_segments");
            assert!(!expandable || !has("max_split") && !has("garbage"), "{conf}: {}", remedy.conf);
            // What was set stays, but for that.
            assert!(!conf.contains("roundup") || has("roundup"), "{conf}: {}", remedy.conf);
            advised += 1;
        }
    }
    assert!(advised > 4, "{advised} remedies");
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

#[test]
fn steps_of_a_given_length_are_taken_as_they_are() {
    let (snapshot, history) = read("leak_accumulating.frames");
    let found = leaks(&snapshot, &history, LeakOptions::default());
    let events = history.trace.events().len();
    let period = events / found.verdict.steps as usize;
    let given = leaks(&snapshot, &history, LeakOptions { period: Some(period) });
    assert_eq!(given.verdict.step_source, StepSource::Given);
    assert_eq!((given.verdict.class, &given.line), (LeakClass::Accumulating, &found.line));
    let ratio = given.verdict.bytes_per_step / found.verdict.bytes_per_step;
    assert!((0.9..1.1).contains(&ratio), "{given:?} {found:?}");
    // A step as long as all of it is one, and one says nothing.
    let one = leaks(&snapshot, &history, LeakOptions { period: Some(events) });
    assert_eq!(one.verdict.class, LeakClass::Unknown, "{one:?}");
    assert!(one.verdict.steps <= 1 && one.verdict.steps_needed > Some(1), "{one:?}");
    assert_eq!(one.advice, "record more steps");
    // No step at all, and no end of the world either.
    let none = leaks(&snapshot, &history, LeakOptions { period: Some(0) });
    assert_eq!(none.verdict.step_source, StepSource::Given);
}

#[test]
fn of_our_own_allocator_every_refusal_is_counted_and_those_that_were_survived_apart() {
    let (_, history) = read("unet_multires.oom");
    let requests = Requests::all(&history).unwrap();
    let replay = |options: &Options| {
        let target = Target::Sim(Sim::cuda().open());
        Replay::new("test", requests.trace(), target, options).unwrap()
    };
    // Largest request and less: then it is refused at once, not for want of room.
    let largest = requests.trace().figures().largest_bytes;
    for capacity in [23_500_000_000, 18_000_000_000, largest - 1] {
        let mut options = Options::default();
        options.capacity = Capacity::Bytes(capacity);
        let found = whatif_terrane(&requests, "terrane", replay(&options)).unwrap();
        let (mut one_by_one, mut refused) = (replay(&options), [0, 0]);
        for (at, event) in requests.trace().iter().enumerate() {
            let served = |it: &Replay<'_>| it.allocator().stats().total.blocks.allocated;
            let before = served(&one_by_one);
            one_by_one.step(1).unwrap();
            if event.op == Op::Alloc && served(&one_by_one) == before {
                refused[usize::from(requests.survived(at))] += 1;
            }
        }
        let counted = [found.failures, found.survived_failures];
        assert_eq!(counted, refused, "{capacity}: failures, and those that were survived");
        assert_eq!((found.capacity, found.model.as_str()), (Some(capacity), "terrane"));
        assert_eq!(counted == [0, 0], capacity == 23_500_000_000, "{capacity}: {counted:?}");
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
