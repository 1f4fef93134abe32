//! Filling with patterns, verifying and adding up checksums.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ash::vk;
use terrane_core::device::{
    DeviceError, Feature, Place, Region, Report, SpaceId, StreamId, SyncPoint, Ticket,
};

use crate::device::Shared;
use crate::memory::staging::{Chunk, MAX_CHUNK, Way};
use crate::stream::{Recorder, Stamps};

use super::dispatch::{Bound, Groups, dispatch};
use super::kernels::Builtin;
use super::tables::{Table, Tables};
use super::tiles::{self, Plan, Window};

/// Results of a pattern kernel on their way.
pub struct PendingReport {
    chunks: Vec<Chunk>,
    /// The region of each slot.
    slots: Vec<u32>,
    regions: usize,
    words: u64,
}

/// A window's tiles, written to a table.
type Step = (Window, Bound, Table);

impl Shared {
    /// Refuses streams on which no kernel can run.
    pub fn check_compute(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.driver.check()?;
        self.streams.live(stream)?;
        if self.streams.can_compute(stream) {
            Ok(())
        } else {
            Err(DeviceError::Unsupported(Feature::Compute))
        }
    }

    /// Writes patterns.
    pub fn fill_pattern(
        &self,
        stream: StreamId,
        regions: &[Region],
        stamps: Option<Arc<Stamps>>,
    ) -> Result<SyncPoint, DeviceError> {
        self.check_compute(stream)?;
        let pipeline = self.kernels.builtin(Builtin::Fill)?;
        let plan =
            tiles::plan(&self.spaces, regions, self.window(), u64::MAX, self.tuning.tile_bytes)?;
        let (steps, tables) = self.steps(&plan)?;
        let point = self.streams.submit_timed(stream, stamps, |recorder| {
            for (_, data, table) in &steps {
                // The kernel has no results; its third binding only has to be some buffer.
                let bound = [*data, table.bound, table.bound];
                self.run_table(recorder, &pipeline, &bound, table)?;
            }
            recorder.keep(tables);
            Ok(())
        })?;
        self.kernels.submissions.fetch_add(1, Relaxed);
        Ok(point)
    }

    /// Compares with patterns, or adds up checksums.
    pub fn report(
        &self,
        stream: StreamId,
        regions: &[Region],
        which: Builtin,
        stamps: Option<Arc<Stamps>>,
    ) -> Result<Ticket, DeviceError> {
        self.check_compute(stream)?;
        let pipeline = self.kernels.builtin(which)?;
        let words = if which == Builtin::Checksum { 2 } else { 1 };
        let per_chunk = MAX_CHUNK / (4 * words);
        let plan =
            tiles::plan(&self.spaces, regions, self.window(), per_chunk, self.tuning.tile_bytes)?;
        let (steps, tables) = self.steps(&plan)?;
        let (local, down) = self.result_chunks(plan.slots.len() as u64, words)?;
        let point = self.streams.submit_timed(stream, stamps, |recorder| {
            zero(recorder, &local);
            for (window, data, table) in &steps {
                let results = local.get(window.results as usize);
                let results = results.ok_or(DeviceError::InvalidCall("no chunk for results"))?;
                let results = Bound { buffer: results.buffer, offset: 0, bytes: results.len() };
                self.run_table(recorder, &pipeline, &[*data, table.bound, results], table)?;
            }
            bring(recorder, &local, &down);
            recorder.keep((tables, local));
            Ok(())
        })?;
        self.kernels.submissions.fetch_add(1, Relaxed);
        let pending =
            PendingReport { chunks: down, slots: plan.slots, regions: regions.len(), words };
        Ok(self.reports.add(point, pending))
    }

    /// Bytes that one binding of a built-in kernel reaches.
    pub fn window(&self) -> u64 {
        tiles::window(self.caps.max_binding_bytes)
    }

    fn steps(&self, plan: &Plan) -> Result<(Vec<Step>, Vec<Chunk>), DeviceError> {
        let mut tables = Tables::new(&self.staging, plan.tiles.len() as u64 * 32);
        let mut steps = Vec::new();
        for group in plan.tiles.chunk_by(|a, b| a.0 == b.0) {
            let Some((window, _)) = group.first() else { continue };
            let entries: Vec<[u32; 8]> = group.iter().map(|(_, tile)| tile.0).collect();
            let data = self.window_of(SpaceId(window.space), window.number)?;
            let written = tables.write(&entries)?;
            steps.extend(written.into_iter().map(|table| (*window, data, table)));
        }
        Ok((steps, tables.into_chunks()))
    }

    /// The binding for a window of a space.
    pub fn window_of(&self, space: SpaceId, number: u64) -> Result<Bound, DeviceError> {
        let offset = number * self.window();
        let whole = self.spaces.get(space)?.bytes;
        let bytes = whole.saturating_sub(offset).min(self.window());
        let range = self.spaces.range(Place { space, offset }, bytes)?;
        Ok(Bound { buffer: range.buffer, offset, bytes })
    }

    /// Records one run of a kernel whose push data is the number of tiles.
    pub fn run_table(
        &self,
        recorder: &mut Recorder<'_>,
        pipeline: &Arc<super::pipeline::Pipeline>,
        bound: &[Bound],
        table: &Table,
    ) -> Result<(), DeviceError> {
        let groups = Groups::line(table.count, self.native_groups());
        dispatch(recorder, pipeline, bound, &table.count.to_le_bytes(), &[groups])
    }

    /// Chunks for results: on the device, where kernels add them up, and on the host.
    fn result_chunks(
        &self,
        slots: u64,
        words: u64,
    ) -> Result<(Vec<Chunk>, Vec<Chunk>), DeviceError> {
        let bytes = slots * words * 4;
        let sizes =
            || (0..bytes.div_ceil(MAX_CHUNK)).map(|i| (bytes - i * MAX_CHUNK).min(MAX_CHUNK));
        let take = |way| sizes().map(|size| self.staging.take(way, size)).collect();
        let local: Result<Vec<_>, _> = take(Way::Local);
        let down: Result<Vec<_>, _> = take(Way::Down);
        Ok((local?, down?))
    }

    /// The numbers of a finished report.
    pub fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        let pending = self.reports.take(ticket, |point| self.is_reached(point))?;
        let mut report = vec![0_u64; pending.regions];
        let per_chunk = (MAX_CHUNK / (4 * pending.words)) as usize;
        let width = 4 * pending.words as usize;
        for (chunk, regions) in pending.chunks.iter().zip(pending.slots.chunks(per_chunk)) {
            for (bytes, region) in chunk.bytes().chunks_exact(width).zip(regions) {
                let total = &mut report[*region as usize];
                *total = add(*total, bytes);
            }
        }
        Ok(report)
    }
}

/// Adds a slot to a region's number: a count, or the two sums of a checksum.
fn add(total: u64, slot: &[u8]) -> u64 {
    let word = |w: &[u8]| u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
    match slot.len() {
        4 => total + u64::from(word(slot)),
        _ => {
            let low = (total as u32).wrapping_add(word(&slot[..4]));
            let high = ((total >> 32) as u32).wrapping_add(word(&slot[4..]));
            u64::from(high) << 32 | u64::from(low)
        }
    }
}

fn zero(recorder: &Recorder<'_>, chunks: &[Chunk]) {
    for chunk in chunks {
        // SAFETY: the chunk is kept until the submission is done; its size is a multiple of 4.
        unsafe {
            recorder.device.cmd_fill_buffer(recorder.commands, chunk.buffer, 0, vk::WHOLE_SIZE, 0);
        }
    }
    recorder.barrier();
}

fn bring(recorder: &Recorder<'_>, from: &[Chunk], to: &[Chunk]) {
    recorder.barrier();
    for (from, to) in from.iter().zip(to) {
        let region = [vk::BufferCopy::default().size(from.len().min(to.len()))];
        let (source, target) = (from.buffer, to.buffer);
        // SAFETY: both chunks live until the submission is done.
        unsafe { recorder.device.cmd_copy_buffer(recorder.commands, source, target, &region) };
    }
}
