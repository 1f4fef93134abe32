//! From what each reader gives to one [`Recording`].

use super::{Format, Recording};
use crate::import::{Dump, DumpSource, RmmLog};
use crate::snapshot::{Attempt, Gaps, History, Note, Origin, Snapshot};
use crate::{Reason, Trace};
use std::collections::BTreeMap;

/// What limits of a history are multiples of.
const ROUND: usize = 1000;

pub(super) fn snapshot(format: Format, snapshot: Snapshot) -> Result<Recording, Reason> {
    let mut histories = Vec::new();
    for device in 0..snapshot.device_traces.len() {
        histories.extend(snapshot.history(device)?);
    }
    let lacks = lacks_of(&snapshot, &histories);
    let tags = BTreeMap::new();
    Ok(Recording { format, snapshot, histories, dump: None, tags, meta: None, stacks: None, lacks })
}

/// A workload without stacks, addresses and segments.
pub(super) fn workload(format: Format, trace: Trace) -> Recording {
    let lacks = vec![
        "no call stacks: sites are sizes".to_owned(),
        "no segments: what was reserved is not in the file; `whatif` computes it".to_owned(),
    ];
    let snapshot = Snapshot { streams: streams(&trace), ..Snapshot::default() };
    Recording {
        format,
        snapshot,
        histories: vec![history(trace)],
        dump: None,
        tags: BTreeMap::new(),
        meta: None,
        stacks: None,
        lacks,
    }
}

pub(super) fn rmm(log: RmmLog) -> Recording {
    let mut recording = workload(Format::RmmLog, log.trace);
    recording.snapshot.streams = log.streams;
    recording.lacks.push(
        "no completions: a free is taken to complete when it is requested, as RMM orders by stream"
            .to_owned(),
    );
    if log.frees_of_earlier_blocks > 0 {
        let count = log.frees_of_earlier_blocks;
        recording.lacks.push(format!("{count} frees of blocks from before the log begins"));
    }
    for history in &mut recording.histories {
        history.attempts = log
            .failures
            .iter()
            .map(|&(before_event, bytes, stream)| Attempt {
                before_event,
                entry: before_event,
                bytes,
                stream,
                device_free: 0,
                stack: None,
            })
            .collect();
    }
    recording
}

pub(super) fn dump(dump: Dump) -> Recording {
    let format = match dump.source {
        DumpSource::Vma => Format::VmaDump,
        DumpSource::D3d12ma => Format::D3d12maDump,
        DumpSource::GpuAllocator => Format::GpuAllocatorReport,
        DumpSource::Wgpu => Format::WgpuReport,
    };
    let mut lacks = vec!["one moment, no history".to_owned()];
    if matches!(dump.source, DumpSource::GpuAllocator | DumpSource::Wgpu) {
        lacks.push(
            "the memory type of a block, and whether an allocation is a buffer or an image"
                .to_owned(),
        );
    }
    let snapshot = Snapshot::default();
    Recording {
        format,
        snapshot,
        histories: Vec::new(),
        dump: Some(dump),
        tags: BTreeMap::new(),
        meta: None,
        stacks: None,
        lacks,
    }
}

fn streams(trace: &Trace) -> Vec<u64> {
    let most = trace.streams().last().copied().unwrap_or(0);
    (0..=u64::from(most.min(1 << 16))).collect()
}

fn history(trace: Trace) -> History {
    let blocks = vec![
        Origin { address: 0, stack: None, tag: 0, class: 0, hold: 0 };
        trace.block_count() as usize
    ];
    History {
        device: 0,
        start_us: 0,
        trace,
        blocks,
        attempts: Vec::new(),
        segments: Vec::new(),
        happenings: Vec::new(),
        entries: Vec::new(),
        gaps: Gaps::default(),
    }
}

fn lacks_of(snapshot: &Snapshot, histories: &[History]) -> Vec<String> {
    let note = |note: &Note| match note {
        Note::NoHistory => "no history was recorded: only the segments at the dump are known; \
                            `terrane howto pytorch` shows how to record one"
            .to_owned(),
        Note::OnlySegments => "a bare list of segments, as PyTorch wrote before 2.0".to_owned(),
        Note::EntriesWithoutTime(count) => format!("{count} entries have no time"),
        Note::BlocksWithoutAddress => {
            "blocks have no addresses; they were laid out in order".to_owned()
        }
        Note::AnnotationsLeftOut(count) => format!("{count} annotations lack a name or a time"),
        Note::UnknownActions(count) => format!("{count} entries have an action that is not known"),
        Note::HistoryFollows => {
            "only the segments at the dump were read so far; the history is being read".to_owned()
        }
        Note::PeakOnly { entries } => format!(
            "the moment of the peak alone, after {entries} entries of the history, which is being \
             put together"
        ),
    };
    let mut lacks: Vec<String> = snapshot.notes.iter().map(note).collect();
    for history in histories {
        let (device, gaps) = (history.device, &history.gaps);
        let entries = snapshot.device_traces.get(device).map_or(0, Vec::len);
        // PyTorch keeps at most so many entries as the program says, which is a round number.
        let begins_late = gaps.earlier_blocks > 0 || gaps.requests_missing > 0;
        if begins_late && entries > 0 && entries.is_multiple_of(ROUND) {
            lacks.push(format!(
                "device {device}: the history has {entries} entries and begins in mid-life, so its \
                 oldest entries were overwritten; record with more (max_entries)"
            ));
        }
        if gaps.earlier_blocks > 0 {
            let Gaps { earlier_blocks, earlier_bytes, .. } = gaps;
            lacks.push(format!(
                "device {device}: {earlier_blocks} blocks ({earlier_bytes} bytes) are from before \
                 the history begins"
            ));
        }
        if gaps.frees_missing > 0 {
            let count = gaps.frees_missing;
            lacks.push(format!("device {device}: the frees of {count} blocks are missing"));
        }
    }
    lacks
}
