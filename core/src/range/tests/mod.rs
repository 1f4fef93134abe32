//! Tests of the index.

mod behaviour;
mod exhaustive;
mod faults;
mod model;
mod pair;
mod props;
mod random;
mod swarm;

use crate::point::{Points, StreamId, SyncPoint};

fn point(stream: u32, value: u64) -> SyncPoint {
    SyncPoint { stream: StreamId(stream), value }
}

fn points<const N: usize>(list: [(u32, u64); N]) -> Points {
    list.into_iter().map(|(stream, value)| point(stream, value)).collect()
}
