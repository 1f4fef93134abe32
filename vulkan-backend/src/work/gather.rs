//! Copying many ranges by one kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use terrane_core::device::{CopyOp, DeviceError, SpaceId, StreamId, SyncPoint};

use crate::device::Shared;
use crate::stream::Stamps;

use super::dispatch::{Groups, dispatch};
use super::kernels::Builtin;
use super::tables::Tables;
use super::tiles;
use super::transfer::{self, Pair};

/// Bytes of one vector.
const UNIT: u64 = 16;

/// A source and a destination window: spaces and window numbers.
type Windows = [u64; 4];

impl Shared {
    /// Copies `ops` by kernel: over device addresses where there are any, else over bindings.
    pub fn gather(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        stamps: Option<Arc<Stamps>>,
    ) -> Result<SyncPoint, DeviceError> {
        self.check_compute(stream)?;
        let pairs = transfer::pairs(&self.spaces, ops, UNIT)?;
        let total: u64 = ops.iter().fold(0, |sum, op| sum.saturating_add(op.bytes));
        let most = tiles::tile(total, self.tuning.tile_bytes);
        let point = if self.caps.addresses {
            self.gather_by_address(stream, &pairs, most, stamps)?
        } else {
            self.gather_by_binding(stream, &pairs, most, stamps)?
        };
        self.kernels.submissions.fetch_add(1, Relaxed);
        Ok(point)
    }

    fn gather_by_address(
        &self,
        stream: StreamId,
        pairs: &[Pair],
        most: u64,
        stamps: Option<Arc<Stamps>>,
    ) -> Result<SyncPoint, DeviceError> {
        let pipeline = self.kernels.builtin(Builtin::GatherByAddress)?;
        let mut entries: Vec<[u32; 8]> = Vec::new();
        for (from, to) in pairs {
            let (Some(source), Some(target)) = (from.address, to.address) else {
                return Err(DeviceError::InvalidCall("a space without an address"));
            };
            for (_, _, bytes, before) in tiles::cut(0, from.bytes, u64::MAX, most) {
                let (s, t) = (source + before, target + before);
                let vectors = (bytes / UNIT) as u32;
                entries.push([
                    s as u32,
                    (s >> 32) as u32,
                    t as u32,
                    (t >> 32) as u32,
                    vectors,
                    0,
                    0,
                    0,
                ]);
            }
        }
        let mut tables = Tables::new(&self.staging, entries.len() as u64 * 32);
        let written = tables.write(&entries)?;
        self.streams.submit_timed(stream, stamps, |recorder| {
            for table in &written {
                let address = table.address.ok_or(DeviceError::InvalidCall("no address"))?;
                let mut push = [0; 12];
                push[..8].copy_from_slice(&address.to_le_bytes());
                push[8..].copy_from_slice(&table.count.to_le_bytes());
                let groups = Groups::line(table.count, self.native_groups());
                dispatch(recorder, &pipeline, &[], &push, &[groups])?;
            }
            recorder.keep(tables.into_chunks());
            Ok(())
        })
    }

    fn gather_by_binding(
        &self,
        stream: StreamId,
        pairs: &[Pair],
        most: u64,
        stamps: Option<Arc<Stamps>>,
    ) -> Result<SyncPoint, DeviceError> {
        let pipeline = self.kernels.builtin(Builtin::Gather)?;
        let entries = self.bound_tiles(pairs, most);
        let mut tables = Tables::new(&self.staging, entries.len() as u64 * 16);
        let mut steps = Vec::new();
        for group in entries.chunk_by(|a, b| a.0 == b.0) {
            let Some((windows, _)) = group.first() else { continue };
            let list: Vec<[u32; 4]> = group.iter().map(|(_, tile)| *tile).collect();
            let source = self.window_of(SpaceId(windows[0]), windows[1])?;
            let target = self.window_of(SpaceId(windows[2]), windows[3])?;
            steps.extend(tables.write(&list)?.into_iter().map(|table| (source, target, table)));
        }
        self.streams.submit_timed(stream, stamps, |recorder| {
            for (source, target, table) in &steps {
                self.run_table(recorder, &pipeline, &[*source, *target, table.bound], table)?;
            }
            recorder.keep(tables.into_chunks());
            Ok(())
        })
    }

    /// Tiles that stay within one window on either side, sorted by their windows.
    fn bound_tiles(&self, pairs: &[Pair], most: u64) -> Vec<(Windows, [u32; 4])> {
        let window = self.window();
        let mut entries = Vec::new();
        for (from, to) in pairs {
            for (number, inside, bytes, before) in tiles::cut(from.offset, from.bytes, window, most)
            {
                let target = to.offset + before;
                for (other, at, piece, skipped) in tiles::cut(target, bytes, window, most) {
                    let windows = [from.space.0, number, to.space.0, other];
                    let words = [inside + skipped, at, piece].map(|n| (n / UNIT) as u32);
                    entries.push((windows, [words[0], words[1], words[2], 0]));
                }
            }
        }
        entries.sort_by_key(|(windows, _)| *windows);
        entries
    }
}
