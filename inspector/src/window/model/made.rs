//! Recordings and blocks that tests make.

use std::path::PathBuf;

use super::{Addresses, BlockRow, Hold, NEVER, Places, Recording, SegmentRow, Series};

impl BlockRow {
    /// A block that is there from the start to the end, of which nothing else is told.
    pub fn kept(address: u64, bytes: u64) -> Self {
        Self {
            address,
            bytes,
            requested: bytes,
            born: 0,
            freed: NEVER,
            gone: NEVER,
            stream: 0,
            site: 0,
            stack: NEVER,
            tag: 0,
            hold: Hold::Unknown,
            kind: 0,
        }
    }
}

impl Recording {
    /// A heap of one moment.
    pub fn for_tests(blocks: Vec<BlockRow>, segments: Vec<SegmentRow>) -> Self {
        Self {
            name: "test".to_owned(),
            path: PathBuf::new(),
            kind: "test",
            addresses: Addresses::Recorded,
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
            streams: vec!["stream 0".to_owned()],
            places: Places::of_sites(vec!["site".to_owned()]),
            notes: Vec::new(),
            facts: None,
        }
    }
}
