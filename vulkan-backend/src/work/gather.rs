//! Copying many ranges by one kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ash::vk;
use terrane_core::device::{CopyOp, DeviceError, SpaceId, StreamId, SyncPoint};

use crate::device::Shared;
use crate::memory::staging::Way;
use crate::stream::Stamps;

use super::by_address;
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
        let tile = ((most / UNIT) as u32).to_le_bytes();
        let mut steps = Vec::new();
        for part in by_address::parts(pairs, most)? {
            let (bytes, signs) = part.bytes();
            let mut up = self.staging.take(Way::Up, bytes.len() as u64)?;
            up.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
            // Each workgroup looks into the table, so it has to be near.
            let local = self.staging.take(Way::Local, bytes.len() as u64)?;
            let at = local.address.ok_or(DeviceError::InvalidCall("no address"))?;
            let mut push = [0; 24];
            push[..8].copy_from_slice(&at.to_le_bytes());
            push[8..16].copy_from_slice(&(at + signs).to_le_bytes());
            push[16..20].copy_from_slice(&part.tiles.to_le_bytes());
            push[20..].copy_from_slice(&tile);
            let groups = Groups::line(part.tiles, self.native_groups());
            steps.push((up, local, bytes.len() as u64, push, groups));
        }
        self.streams.submit_timed(stream, stamps, |recorder| {
            for (up, local, bytes, ..) in &steps {
                let region = [vk::BufferCopy::default().size(*bytes)];
                let (from, to) = (up.buffer, local.buffer);
                // SAFETY: both chunks are kept until the submission is done; the host has written
                // the bytes, and both are at least as long.
                unsafe { recorder.device.cmd_copy_buffer(recorder.commands, from, to, &region) };
            }
            recorder.barrier();
            for (.., push, groups) in &steps {
                dispatch(recorder, &pipeline, &[], push, &[*groups])?;
            }
            recorder.keep(steps.into_iter().map(|(up, local, ..)| [up, local]).collect::<Vec<_>>());
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
