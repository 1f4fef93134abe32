//! Walks over the events.

mod end;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use terrane_core::device::sim::SimDevice;
use terrane_core::device::{Device, StreamSpec};
use terrane_core::point::{Points, StreamId};
use terrane_core::{Allocator, Config, Error, Handle, Limit, Prefer, Request};

use super::contents::{Contents, Filled};
use super::mapping::Meter;
use super::overlap::{Overlaps, Piece};
use super::placements::{Placed, Placements};
use super::{Options, Policy, ReplayError, Report, Target, mapping};
use crate::{Event, Figures, Op, Trace};

/// A replay under way. [`step`](Self::step) it, or [`run`](Self::run) it to its end.
pub struct Replay<'a> {
    name: String,
    trace: Cow<'a, Trace>,
    figures: Figures,
    options: Options,
    target: Target,
    meter: Meter,
    warmed: Option<super::Warmed>,
    device: Arc<dyn Device>,
    alloc: Allocator,
    /// The device's streams, in the order of [`Trace::streams`].
    streams: Vec<StreamId>,
    /// Live blocks.
    handles: Vec<Option<Handle>>,
    overlaps: Option<Overlaps>,
    placements: Option<Placements>,
    /// Per block, whether another stream used it when its free was requested.
    shared: Vec<bool>,
    hand_outs_checked: u64,
    contents: Option<Contents>,
    next: usize,
    clock: Clock,
    failures: u64,
    stall_us: u64,
    /// Per stream, until when it stands still for waits counted so far, in recorded time.
    still_until_us: Vec<u64>,
    in_allocator: Duration,
    map_ns_first_tenth: u64,
    map_ns_first_tenth_of_time: u64,
    dispatched_before: u64,
}

/// The recorded time and the model's.
struct Clock {
    first_us: u64,
    opened_ns: u64,
    now_us: u64,
}

impl<'a> Replay<'a> {
    /// Makes an allocator, streams and everything else ready; replays nothing yet.
    ///
    /// # Errors
    /// [`ReplayError::Open`], [`ReplayError::Device`], [`ReplayError::NothingToCorrupt`].
    pub fn new(
        name: &str,
        trace: &'a Trace,
        target: Target,
        options: &Options,
    ) -> Result<Self, ReplayError> {
        let trace = match options.scale.get() {
            1 => Cow::Borrowed(trace),
            _ => Cow::Owned(trace.scaled(options.scale)),
        };
        let figures = trace.figures();
        let trace_streams = trace.streams().len();
        let mut meter = Meter::new(target.clone());
        let device = meter.device();
        let has_contents = options.contents && device.compute().is_some();
        if options.corrupt > 0 && !has_contents {
            return Err(ReplayError::NothingToCorrupt);
        }
        let streams = open_streams(&*device, trace.streams().len())?;
        let config = config(&*device, options, figures.peak_requested);
        let alloc =
            Allocator::with_config(Arc::clone(&device), config).map_err(ReplayError::Open)?;
        let warmed = match options.warm {
            true => Some(super::warm(&alloc, &trace, &streams)?),
            false => None,
        };
        meter.restart();
        let overlaps = match options.policy == Policy::Wait && !has_contents {
            true => Overlaps::new(&trace, &target)?,
            false => None,
        };
        let blocks = trace.block_count();
        let contents = has_contents
            .then(|| Contents::new(Arc::clone(&device), &streams, blocks, options.corrupt));
        let first_us = trace.events().first().map_or(0, |event| event.time_us);
        Ok(Self {
            name: name.to_owned(),
            figures,
            options: options.clone(),
            dispatched_before: mapping::dispatches(&*device),
            clock: Clock { first_us, opened_ns: device.now_ns(), now_us: first_us },
            shared: if contents.is_some() { shared(&trace) } else { Vec::new() },
            trace,
            target,
            meter,
            warmed,
            device,
            alloc,
            streams,
            handles: vec![None; blocks as usize],
            overlaps,
            placements: options.placements.then(Placements::default),
            contents,
            next: 0,
            hand_outs_checked: 0,
            failures: 0,
            stall_us: 0,
            still_until_us: vec![0; trace_streams],
            in_allocator: Duration::ZERO,
            map_ns_first_tenth: 0,
            map_ns_first_tenth_of_time: 0,
        })
    }

    /// The allocator under test, to look at between steps.
    pub fn allocator(&self) -> &Allocator {
        &self.alloc
    }

    /// Peaks, totals and times of the workload as it is replayed: scaled, if it is.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Events replayed so far.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Replays to the end, with the report.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run(self) -> Result<Report, ReplayError> {
        self.run_with(&mut |_, _| {})
    }

    /// Replays to the end; tells now and then how many events of how many are done.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn run_with(
        mut self,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Report, ReplayError> {
        let events = self.trace.events().len();
        // Kernels take longer than bookkeeping: tell more often where there are some.
        let step = if self.contents.is_some() { 256 } else { 8192 };
        while self.step(step)? > 0 {
            progress(self.next, events);
        }
        self.finish()
    }

    /// Replays at most `events` more events; tells how many there were. 0 means that the end is
    /// reached.
    ///
    /// # Errors
    /// Everything but a request refused for want of memory, which is counted.
    pub fn step(&mut self, events: usize) -> Result<usize, ReplayError> {
        let from = self.next;
        let end = from.saturating_add(events).min(self.trace.events().len());
        let by_count = self.trace.events().len() / 10;
        let by_time = self.figures.first_tenth_events as usize;
        let mut stops = [by_count, by_time];
        stops.sort_unstable();
        for stop in stops {
            if (from..end).contains(&stop) {
                self.walk(stop)?;
                let spent = self.meter.mapping_ns();
                if stop == by_count {
                    self.map_ns_first_tenth = spent;
                }
                if stop == by_time {
                    self.map_ns_first_tenth_of_time = spent;
                }
            }
        }
        self.walk(end)?;
        if self.options.stop_at_failure && self.failures > 0 {
            return Ok(0);
        }
        Ok(end - from)
    }

    /// Replays up to event `end`, in stretches between two checks of the invariants.
    fn walk(&mut self, end: usize) -> Result<(), ReplayError> {
        while self.next < end {
            let to = match self.options.check_every {
                Some(every) => {
                    let every = every.get() as usize;
                    ((self.next / every).saturating_add(1).saturating_mul(every)).min(end)
                }
                None => end,
            };
            self.stretch(to)?;
            if self.options.check_every.is_some() {
                self.check()?;
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ReplayError> {
        let event = self.next.saturating_sub(1);
        self.alloc.check().map_err(|violation| ReplayError::Invariant { event, violation })
    }

    fn stretch(&mut self, end: usize) -> Result<(), ReplayError> {
        // Where nothing but the allocator runs, the whole stretch is timed: reading the clock
        // twice per event would cost a tenth of what is measured.
        let start = Instant::now();
        while self.next < end {
            let event = self.trace.events()[self.next];
            self.event(event)?;
            self.next += 1;
        }
        if self.contents.is_none() {
            self.in_allocator += start.elapsed();
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), ReplayError> {
        if event.time_us > self.clock.now_us {
            self.follow(event.time_us);
        }
        let requested_counts = self.options.policy == Policy::Wait;
        match event.op {
            Op::Alloc => self.alloc_block(event),
            Op::FreeRequested if requested_counts => self.free_block(event),
            Op::FreeRequested => Ok(()),
            Op::FreeCompleted if requested_counts => {
                if let Some(overlaps) = &mut self.overlaps {
                    overlaps.end(event.block, &self.target)?;
                }
                Ok(())
            }
            Op::FreeCompleted => self.free_block(event),
        }
    }

    /// Lets the model's clock follow the recorded time. Modelled calls may have moved it further.
    fn follow(&mut self, time_us: u64) {
        self.clock.now_us = time_us;
        if let Target::Sim(sim) = &self.target {
            let recorded_ns = (time_us - self.clock.first_us).saturating_mul(1000);
            let due_ns = self.clock.opened_ns.saturating_add(recorded_ns);
            let ahead = due_ns.saturating_sub(sim.now_ns());
            if ahead > 0 {
                sim.advance(ahead);
            }
        }
    }

    fn lane(&self, stream: u32) -> usize {
        self.trace.streams().binary_search(&stream).unwrap_or(0)
    }

    fn alloc_block(&mut self, event: Event) -> Result<(), ReplayError> {
        if let Some(contents) = &mut self.contents {
            contents.flush_frees(&self.alloc)?;
        }
        let lane = self.lane(event.stream);
        let request = Request::new(event.bytes, self.streams[lane]);
        let start = self.contents.is_some().then(Instant::now);
        let outcome = self.alloc.alloc(&request);
        self.in_allocator += start.map_or(Duration::ZERO, |start| start.elapsed());
        let allocation = match outcome {
            Ok(allocation) => allocation,
            Err(error) if is_refusal(error) => {
                self.failures += 1;
                if let Some(log) = &mut self.placements {
                    log.refused(self.next);
                }
                return Ok(());
            }
            Err(error) => return Err(self.failed(error)),
        };
        self.referee(allocation.handle, &allocation.waits)?;
        self.log_placement(lane, allocation.handle, &allocation.waits)?;
        if !allocation.waits.is_empty() {
            self.note_stall(lane, &allocation.waits);
        }
        self.handles[event.block as usize] = Some(allocation.handle);
        if let Some(contents) = &mut self.contents {
            let filled = filled(event, allocation.handle);
            contents.fill(&self.alloc, lane, filled)?;
        }
        Ok(())
    }

    /// Checks that a block is handed out behind every use of its memory that has not ended.
    fn referee(&mut self, handle: Handle, waits: &Points) -> Result<(), ReplayError> {
        let (Some(overlaps), Target::Sim(sim)) = (&self.overlaps, &self.target) else {
            return Ok(());
        };
        let backing = self.backing(sim, handle)?;
        if let Some(point) = overlaps.overtaken(&backing, waits) {
            let violation =
                format!("a block was handed out before {point:?}, which uses its memory");
            return Err(ReplayError::Invariant { event: self.next, violation });
        }
        self.hand_outs_checked += 1;
        Ok(())
    }

    /// Takes a hand-out into the log of placements, if one is kept.
    fn log_placement(
        &mut self,
        lane: usize,
        handle: Handle,
        waits: &Points,
    ) -> Result<(), ReplayError> {
        if self.placements.is_none() {
            return Ok(());
        }
        let info = self.alloc.info(handle).map_err(|error| self.failed(error))?;
        let reserved = self.alloc.stats().reserved.current;
        let lane_of = |stream| self.overlaps.as_ref()?.lane_of(stream);
        let number = |stream: StreamId| match self.streams.iter().position(|&own| own == stream) {
            Some(own) => own,
            None => lane_of(stream).map_or(usize::MAX, |lane| self.streams.len() + lane),
        };
        let waits: Vec<usize> = waits.iter().map(|point| number(point.stream)).collect();
        let placed = Placed { event: self.next, lane, info: &info, waits: &waits, reserved };
        if let Some(log) = &mut self.placements {
            log.handed_out(&placed);
        }
        Ok(())
    }

    /// The hash of all placements so far, where [`Options::placements`] asks for it.
    pub fn placements(&self) -> Option<u64> {
        self.placements.as_ref().map(Placements::hash)
    }

    /// Where a block lies in the model's memory objects.
    fn backing(&self, sim: &SimDevice, handle: Handle) -> Result<Vec<Piece>, ReplayError> {
        let info = self.alloc.info(handle).map_err(|error| self.failed(error))?;
        sim.backing(info.place, info.allocated).ok_or_else(|| ReplayError::Invariant {
            event: self.next,
            violation: "a block lies on memory that is not mapped".to_owned(),
        })
    }

    /// Counts the time that a stream stands still, each moment once.
    fn note_stall(&mut self, lane: usize, waits: &Points) {
        let Some(overlaps) = &self.overlaps else { return };
        let until = waits.iter().filter_map(|point| overlaps.until_us(point)).max().unwrap_or(0);
        let still = &mut self.still_until_us[lane];
        let from = self.clock.now_us.max(*still);
        self.stall_us += until.saturating_sub(from);
        *still = until.max(*still);
    }

    fn free_block(&mut self, event: Event) -> Result<(), ReplayError> {
        let Some(handle) = self.handles[event.block as usize].take() else { return Ok(()) };
        let lane = self.lane(event.stream);
        if let Some(contents) = &mut self.contents {
            let next = usize::from(self.shared[event.block as usize]);
            let on = (lane + next) % self.streams.len();
            return contents.verify_and_free(&self.alloc, lane, on, filled(event, handle));
        }
        let backing = match (&self.overlaps, &self.target) {
            (Some(_), Target::Sim(sim)) => self.backing(sim, handle)?,
            _ => Vec::new(),
        };
        let used = match &mut self.overlaps {
            Some(overlaps) => {
                overlaps.begin(event.block, &self.target, (&self.alloc, handle), &backing)?
            }
            None => None,
        };
        let freed = match used {
            Some(point) => self.alloc.free_after(handle, &Points::one(point)),
            None => self.alloc.free(handle),
        };
        freed.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: Error) -> ReplayError {
        ReplayError::Event { event: self.next, error }
    }
}

fn open_streams(device: &dyn Device, count: usize) -> Result<Vec<StreamId>, ReplayError> {
    let streams = (0..count).map(|_| device.create_stream(StreamSpec::default()));
    Ok(streams.collect::<Result<_, _>>()?)
}

fn config(device: &dyn Device, options: &Options, peak: u64) -> Config {
    let mut config = Config::for_device(device.caps());
    config.recorder = options.recorder;
    config.guard = options.guard;
    if let Some(paging) = options.paging {
        config.paging = paging && device.caps().paging.is_some();
    }
    if let Some(pages) = options.pages {
        config.pages = pages;
    }
    if let Some(bytes) = options.capacity.bytes(peak) {
        config = config.limit(Limit::Bytes(bytes));
        if !config.paging {
            // One segment in which moves can bring all that is free together.
            config.preallocate = 1.0;
            config.small_max = 0;
        }
    }
    if options.policy == Policy::Wait {
        config.prefer = Prefer::Waiting;
    }
    config
}

/// Whether the request was refused for want of memory: a failure to count.
fn is_refusal(error: Error) -> bool {
    error.is_transient() || matches!(error, Error::OverDeviceLimit { .. })
}

fn filled(event: Event, handle: Handle) -> Filled {
    // Blocks are rounded up to more than 4 bytes, so the last word is inside the block.
    Filled { block: event.block, handle, bytes: event.bytes.next_multiple_of(4) }
}

fn shared(trace: &Trace) -> Vec<bool> {
    let at = |index: usize| trace.events()[index].time_us;
    let is_shared = |lifetime: crate::Lifetime| match (lifetime.requested, lifetime.completed) {
        (Some(requested), Some(completed)) => at(completed) > at(requested),
        (Some(_), None) => true,
        _ => false,
    };
    trace.lifetimes().into_iter().map(is_shared).collect()
}
