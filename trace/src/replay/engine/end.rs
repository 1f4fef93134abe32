//! The end of a replay: what is still live, and the figures.

use std::time::Duration;

use super::{Replay, ReplayError, Report, filled, mapping};

impl Replay<'_> {
    /// Verifies what is still live, checks the invariants once more, and counts.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`ReplayError::CorruptedTooFew`].
    pub fn finish(mut self) -> Result<Report, ReplayError> {
        if let Some(contents) = &mut self.contents {
            let lifetimes = self.trace.lifetimes();
            let streams = self.trace.streams();
            let live = self.handles.iter().enumerate().filter_map(|(block, handle)| {
                let lifetime = lifetimes.get(block)?;
                let lane = streams.binary_search(&lifetime.stream).unwrap_or(0);
                let event = self.trace.events()[lifetime.alloc];
                Some((lane, filled(event, (*handle)?)))
            });
            contents.finish(&self.alloc, live)?;
        }
        self.check()?;
        let report = self.report();
        self.target.complete_all()?;
        for handle in self.handles.iter_mut().filter_map(Option::take) {
            self.alloc.free(handle).map_err(ReplayError::Open)?;
        }
        for &stream in &self.streams {
            self.alloc.retire_stream(stream).map_err(ReplayError::Open)?;
        }
        Ok(report)
    }

    fn report(&self) -> Report {
        let stats = self.alloc.stats();
        let figures = &self.figures;
        let map_ns = self.meter.mapping_ns();
        let (peak, reserved) = (figures.peak_requested, stats.reserved.peak);
        let events = self.next as u64;
        let freeing = self.contents.as_ref().map_or(Duration::ZERO, |c| c.freeing);
        let in_allocator = self.in_allocator + freeing;
        // With no event after the first tenth nothing was noted at its end.
        let after = |first: u64, early: u64| if first < events { map_ns - early } else { 0 };
        let all = self.trace.events().len() as u64;
        let after_tenth_ns = after(all / 10, self.map_ns_first_tenth);
        let after_time_ns = after(figures.first_tenth_events, self.map_ns_first_tenth_of_time);
        Report {
            trace: self.name.clone(),
            device: self.target.name(),
            scale: self.options.scale.get(),
            capacity: self.options.capacity.bytes(peak),
            policy: self.options.policy,
            peak_requested: peak,
            peak_active: stats.active.peak,
            peak_reserved: reserved,
            ratio: reserved as f64 / peak.max(1) as f64,
            allocated_bytes: stats.total.requested.allocated,
            moved_bytes: stats.moves.bytes,
            moves: stats.moves.moves,
            memory_objects: stats.memory_objects.peak,
            pages_created: stats.pages_created,
            pages_stolen: stats.pages_stolen,
            warm_rounds: self.warmed.map_or(0, |warmed| warmed.rounds),
            memory_calls: self.meter.mapping_calls(),
            map_ms_total: map_ns as f64 / 1e6,
            map_ms_after_tenth: after_tenth_ns as f64 / 1e6,
            map_ms_after_tenth_of_time: after_time_ns as f64 / 1e6,
            recorded_ms: figures.recorded_ms(),
            waits: stats.waits,
            hand_outs_checked: self.hand_outs_checked,
            stall_ms: self.stall_us as f64 / 1e3,
            events,
            failures: self.failures,
            placements: self.placements().map(|hash| format!("{hash:016x}")),
            dispatches: mapping::dispatches(&*self.device) - self.dispatched_before,
            verified_bytes: self.contents.as_ref().map_or(0, |c| c.verified_bytes),
            mismatches: self.contents.as_ref().map_or(0, |c| c.mismatches),
            ns_per_op: in_allocator.as_nanos() as f64 / events.max(1) as f64,
        }
    }
}
