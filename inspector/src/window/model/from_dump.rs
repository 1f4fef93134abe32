//! A dump of VMA or D3D12MA as a recording: one moment, no history.

use std::path::Path;

use terrane_trace::import::Dump;

use super::{Addresses, BlockRow, Hold, NEVER, Places, PoolKind, Recording, SegmentRow, Series};

/// Makes a recording. Dumps have no addresses: blocks of memory lie one behind the other.
pub fn from_dump(dump: &Dump, path: &Path) -> Recording {
    let (mut places, mut blocks, mut segments) = (Places::default(), Vec::new(), Vec::new());
    let mut address = 0_u64;
    for memory in &dump.blocks {
        segments.push(SegmentRow {
            address,
            bytes: memory.bytes,
            born: 0,
            gone: NEVER,
            stream: 0,
            pool: PoolKind::Unknown,
            object: None,
        });
        for range in memory.ranges.iter().filter(|range| !range.is_free()) {
            let name = range.name.as_deref().unwrap_or(&range.kind);
            let bytes = range.bytes.min(memory.bytes.saturating_sub(range.offset));
            blocks.push(BlockRow {
                address: address.saturating_add(range.offset),
                bytes,
                requested: bytes,
                born: 0,
                freed: NEVER,
                gone: NEVER,
                stream: 0,
                site: places.site(name),
                stack: NEVER,
                tag: 0,
                hold: Hold::Unknown,
                kind: 0,
            });
        }
        address = address.saturating_add(memory.bytes);
    }
    places.seal();
    Recording {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        kind: dump.source.describe(),
        addresses: Addresses::Modelled,
        events: Vec::new(),
        series: Series::of(&[], &blocks, &segments),
        blocks,
        segments,
        failures: Vec::new(),
        moves: Vec::new(),
        passes: Vec::new(),
        waits: Vec::new(),
        gaps: Vec::new(),
        work: Vec::new(),
        holds: Vec::new(),
        pending: Vec::new(),
        stale: Vec::new(),
        tags: Vec::new(),
        kinds: Vec::new(),
        limits: Vec::new(),
        is_live: false,
        device: 0,
        devices: Vec::new(),
        streams: vec!["no stream".to_owned()],
        places,
        notes: vec![
            "A dump is one moment without history. Its blocks of memory have no addresses; they \
             are shown one behind the other."
                .to_owned(),
        ],
        facts: None,
    }
}
