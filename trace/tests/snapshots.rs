//! The snapshots in tests/data: what is read, and the native model against recorded segments.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::PathBuf;
use terrane_trace::model::{Pytorch, PytorchConfig, SegmentEvent, SegmentOp, replay};
use terrane_trace::snapshot::{Action, Note, ReadOptions, Snapshot, open_snapshot};

const NAMES: [&str; 6] = [
    "gpt2_varlen.frames",
    "leak_accumulating.frames",
    "leak_exponential.frames",
    "leak_fragmenting.frames",
    "multistream.frames",
    "unet_multires.oom",
];

fn read(name: &str) -> Snapshot {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let path = data.join(format!("{name}.pickle.gz"));
    open_snapshot(&path, &ReadOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn count(snapshot: &Snapshot, action: Action) -> usize {
    snapshot.device_traces[0].iter().filter(|entry| entry.action == action).count()
}

#[test]
fn every_entry_segment_and_block_of_the_recorded_files_is_read() {
    // Counted with Python: segments, entries, allocs, requests, completions, oom.
    let counted = [
        (428, 14_969, 5_433, 4_554, 4_554, 0),
        (40, 4_247, 1_447, 1_380, 1_380, 0),
        (21, 539, 174, 172, 172, 0),
        (20, 6_092, 2_040, 2_016, 2_016, 0),
        (77, 2_887, 1_092, 888, 830, 0),
        (49, 18_104, 6_103, 5_929, 5_929, 54),
    ];
    for (name, row) in NAMES.iter().zip(counted) {
        let snapshot = read(name);
        let read = (
            snapshot.segments.len(),
            snapshot.device_traces[0].len(),
            count(&snapshot, Action::Alloc),
            count(&snapshot, Action::FreeRequested),
            count(&snapshot, Action::FreeCompleted),
            count(&snapshot, Action::OutOfMemory),
        );
        assert_eq!(read, row, "{name}");
        assert_eq!(snapshot.notes, [] as [Note; 0], "{name}");
    }
}

#[test]
fn blocks_fill_their_segments_and_sum_to_what_the_segments_say() {
    for name in NAMES {
        for segment in read(name).segments {
            let mut address = segment.address;
            for block in &segment.blocks {
                assert_eq!(block.address, address, "{name}");
                address += block.bytes;
            }
            assert_eq!(address, segment.address + segment.total_bytes, "{name}");
        }
    }
}

#[test]
fn stacks_have_the_frames_of_the_file() {
    let snapshot = read("gpt2_varlen.frames");
    let stack = snapshot.stacks.get(snapshot.device_traces[0][0].stack.unwrap());
    let frame = snapshot.stacks.frame(stack[0]).unwrap();
    assert_eq!(stack.len(), 9);
    assert_eq!(snapshot.strings.get(frame.name), "convert");
    assert_eq!(snapshot.strings.get(frame.file), "site-packages/torch/nn/modules/module.py");
    assert_eq!(frame.line, 1370);
    assert_eq!(snapshot.annotations.len(), 8);
    assert_eq!(snapshot.strings.get(snapshot.annotations[0].stage.unwrap()), "START");
    assert_eq!(snapshot.settings.conf.as_deref(), Some(""));
    assert_eq!(snapshot.settings.expandable_segments, Some(false));
}

#[test]
fn the_history_of_every_file_is_whole_and_ends_with_the_live_blocks_of_its_segments() {
    for name in NAMES {
        let snapshot = read(name);
        let history = snapshot.history(0).unwrap().unwrap();
        assert_eq!(history.gaps, Default::default(), "{name}");
        let figures = history.trace.figures();
        let live: u64 = snapshot
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .filter(|block| block.state != terrane_trace::snapshot::BlockState::Inactive)
            .map(|block| block.requested_bytes.unwrap())
            .sum();
        assert_eq!(figures.live_bytes_at_end + figures.pending_bytes_at_end, live, "{name}");
        assert_eq!(history.blocks.len() as u32, history.trace.block_count(), "{name}");
        assert_eq!(history.entries.len(), history.trace.events().len(), "{name}");
    }
}

fn replayed(
    snapshot: &Snapshot,
    config: PytorchConfig,
    capacity: Option<u64>,
) -> Vec<SegmentEvent> {
    let history = snapshot.history(0).unwrap().unwrap();
    let (trace, _) = history.with_attempts().unwrap();
    let model = Pytorch::new(config, capacity).with_addresses(history.placed());
    let mut model = model.logging_segments();
    replay(&trace, &mut model);
    model.segment_events().to_vec()
}

fn recorded(snapshot: &Snapshot) -> Vec<SegmentEvent> {
    snapshot.history(0).unwrap().unwrap().segments.iter().map(|change| change.event).collect()
}

#[test]
fn the_native_model_makes_exactly_the_recorded_segments_at_their_addresses() {
    for name in &NAMES[..5] {
        let snapshot = read(name);
        let modelled = replayed(&snapshot, PytorchConfig::default(), None);
        assert_eq!(modelled, recorded(&snapshot), "{name}");
    }
}

#[test]
fn under_its_limit_the_native_model_fails_and_frees_as_recorded() {
    let snapshot = read("unet_multires.oom");
    let capacity = Some(23_500_000_000);
    let modelled = replayed(&snapshot, PytorchConfig::default(), capacity);
    let recorded = recorded(&snapshot);
    let frees = recorded.iter().filter(|event| event.op == SegmentOp::Free).count();
    assert_eq!(frees, 20);
    assert_eq!(modelled, recorded);
}

#[test]
fn reading_can_be_cancelled() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let path = data.join("gpt2_varlen.frames.pickle.gz");
    let stopped = open_snapshot(&path, &ReadOptions::default(), &mut |_| ControlFlow::Break(()));
    let error = stopped.unwrap_err();
    assert_eq!(error.reason, terrane_trace::pickle::PickleReason::Cancelled);
}
