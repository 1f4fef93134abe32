//! The range index against the naive model that its own tests have, driven by bytes.

#[path = "../../core/src/range/tests/model.rs"]
mod model;
#[path = "../../core/src/range/tests/pair.rs"]
mod pair;
#[path = "../../core/src/range/tests/swarm.rs"]
mod swarm;

pub use swarm::Draw;

use terrane_core::point::{StreamId, SyncPoint};

/// Bytes that are looked at: longer inputs say nothing new.
const BYTES_MAX: usize = 4096;

/// Whatever operations the bytes say, on the index and on the model.
pub fn range(bytes: &[u8]) {
    swarm::driven(&bytes[..bytes.len().min(BYTES_MAX)]);
}

fn point(stream: u32, value: u64) -> SyncPoint {
    SyncPoint { stream: StreamId(stream), value }
}
