//! One round: an allocator of its own, threads on it, and a look at everything when they are done.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use terrane_core::compact::{Goal, Limits, Mode, Verify};
use terrane_core::device::calls::CallKind;
use terrane_core::device::wrap::{Faults, Faulty};
use terrane_core::device::{Device, DeviceError, HeapId, StreamId, StreamSpec};
use terrane_core::{Allocator, Checks, Config, Contents, Error, Growth, Limit, Request, Selection};
use terrane_tests::Random;
use terrane_trace::file::{Meta, Recorder};

use crate::worker::Item;

/// What one round does.
pub struct Epoch {
    pub seed: u64,
    pub time: Duration,
    pub threads: u64,
    pub limit: u64,
    /// One call of so many fails, in rounds in which any does.
    pub faults: u64,
}

/// What happened.
#[derive(Default)]
pub struct Tally {
    pub requests: u64,
    pub verified: u64,
    pub refused: u64,
    pub moves: u64,
    pub paused: u64,
    pub faults: u64,
    pub events: u64,
    pub dropped: u64,
    /// Rounds under checks.
    pub checked: u64,
    pub findings: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.verified += other.verified;
        self.refused += other.refused;
        self.moves += other.moves;
        self.paused += other.paused;
        self.faults += other.faults;
        self.events += other.events;
        self.dropped += other.dropped;
        self.checked += other.checked;
        self.findings.extend(other.findings);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, verified, moves, faults, events, .. } = self;
        write!(f, "{requests} requests, {verified} verified, {moves} moves, {faults} faults, ")?;
        write!(f, "{events} events, {} findings", self.findings.len())
    }
}

/// What the threads share.
pub struct Stage {
    pub device: Arc<Faulty>,
    pub alloc: Allocator,
    pub streams: Vec<StreamId>,
    /// Blocks on their way from one thread to another.
    pub shared: Mutex<Vec<Item>>,
    pub over: AtomicBool,
    /// Held while a thread is in a call; taken as a whole to look at the state between calls.
    pub calm: RwLock<()>,
    /// Whether the device fails now and then.
    faulty: bool,
    pub requests: AtomicU64,
    pub verified: AtomicU64,
    pub refused: AtomicU64,
    paused: AtomicU64,
    findings: Mutex<Vec<String>>,
}

/// What a device may fail in. Calls that give back are left out: what they do not give back stays
/// with the driver, and no allocator could know.
fn may_fail(kind: CallKind) -> bool {
    kind.gets()
        || matches!(
            kind,
            CallKind::Copy
                | CallKind::Fill
                | CallKind::Write
                | CallKind::Read
                | CallKind::WaitOnStream
                | CallKind::WaitAny
                | CallKind::Reached
                | CallKind::Gather
                | CallKind::GatherWithin
                | CallKind::FillPattern
                | CallKind::Verify
                | CallKind::Checksum
                | CallKind::HeapUse
        )
}

impl Epoch {
    pub fn run(&self, device: &Arc<dyn Device>) -> Result<Tally, String> {
        let stage = self.stage(device).map_err(|error| error.to_string())?;
        let path = std::env::temp_dir().join(format!(
            "terrane-soak-{}-{}.terrane",
            std::process::id(),
            self.seed
        ));
        let recorder = Recorder::attach(&stage.alloc, &path, Meta::default());
        let recorder = recorder.map_err(|error| format!("{}: {error}", path.display()))?;
        if stage.faulty {
            stage.device.set_faults(Faults::none().one_in(self.faults, self.seed, may_fail));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| stage.passes(self.seed));
            scope.spawn(|| stage.pauses(self.seed));
            for thread in 0..self.threads {
                let stage = &stage;
                scope.spawn(move || stage.work(thread, self.seed));
            }
            std::thread::sleep(self.time);
            stage.over.store(true, Ordering::Relaxed);
        });
        stage.device.set_faults(Faults::none());
        let mut tally = Tally { checked: u64::from(self.is_checked()), ..Tally::default() };
        stage.end(&mut tally);
        match recorder.finish() {
            Ok(summary) => {
                (tally.events, tally.dropped) = (summary.events, summary.dropped);
                stage.read_back(&path, summary.dropped);
            }
            Err(error) => stage.find(format!("the recorder: {error}")),
        }
        let _ = std::fs::remove_file(&path);
        stage.close(&mut tally);
        Ok(tally)
    }

    const fn is_checked(&self) -> bool {
        self.seed.is_multiple_of(4)
    }

    fn stage(&self, device: &Arc<dyn Device>) -> Result<Stage, Error> {
        let device = Faulty::new(Arc::clone(device), Faults::none());
        let mut config = Config::for_device(device.caps());
        config.limits = vec![Limit::Bytes(self.limit)];
        config.growth = Growth::Proportional { min_bytes: 4 << 20, max_bytes: 16 << 20 };
        config.paging = device.caps().paging.is_some() && self.seed % 2 == 1;
        config.verify_moves = Verify::OneIn(5);
        config.small_max = if self.seed.is_multiple_of(3) { 0 } else { config.small_max };
        if self.is_checked() {
            config.checks = Checks::ALL.quarantine(8 << 20);
        }
        let shared: Arc<dyn Device> = device.clone();
        let alloc = Allocator::with_config(shared, config)?;
        let streams = (0..self.threads + 2).map(|_| device.create_stream(StreamSpec::default()));
        let streams = streams.collect::<Result<_, _>>()?;
        let number = AtomicU64::default;
        Ok(Stage {
            device,
            alloc,
            streams,
            shared: Mutex::default(),
            over: AtomicBool::new(false),
            calm: RwLock::default(),
            faulty: self.faults > 0 && self.seed % 3 != 1,
            requests: number(),
            verified: number(),
            refused: number(),
            paused: number(),
            findings: Mutex::default(),
        })
    }
}

impl Stage {
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether the device fails now and then in this round.
    pub const fn is_faulty(&self) -> bool {
        self.faulty
    }

    pub fn find(&self, finding: impl Into<String>) {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).push(finding.into());
    }

    /// Takes a result; an error that has no cause here is a finding.
    pub fn expect<T>(&self, what: &str, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !self.may_happen(error) {
                    self.find(format!("{what}: {error}"));
                }
                None
            }
        }
    }

    fn may_happen(&self, error: Error) -> bool {
        match error {
            Error::Device(DeviceError::Driver { .. }) => self.faulty,
            Error::Device(error) => error.is_shortage(),
            Error::TimedOut { .. } | Error::WouldWait { .. } | Error::NoRoomToGrow => true,
            error => super::worker::is_shortage(error),
        }
    }

    /// Passes of all sorts, trims and walks over the books, one after the other.
    fn passes(&self, seed: u64) {
        let mut random = Random::new(seed ^ 0xABCD);
        while !self.is_over() {
            let goal = match random.below(3) {
                0 => Goal::Contiguous { bytes: 4096 + random.below(4 << 20), align: 256 },
                1 => Goal::Release { bytes: 4 << 20 },
                _ => Goal::Fragmentation { below: random.below(50) as f64 / 100.0 },
            };
            let mode = if random.one_in(4) { Mode::Background } else { Mode::Full };
            let limits = Limits::NONE.moves(1 + random.below(40)).mode(mode);
            if let Some(mut pass) = self.expect("a pass", self.alloc.begin_pass(goal, limits)) {
                for _ in 0..random.below(6) {
                    if self.expect("polling a pass", pass.poll()).is_none_or(|now| now.done) {
                        break;
                    }
                    std::thread::yield_now();
                }
                if random.one_in(2) {
                    self.expect("ending a pass", pass.end_pass());
                }
            }
            self.look(&mut random);
        }
    }

    fn look(&self, random: &mut Random) {
        match random.below(8) {
            0 => drop(self.expect("a trim", self.alloc.trim(random.below(64) << 20))),
            1 => drop(self.expect("maintenance", self.alloc.maintain())),
            2 => drop(self.alloc.snapshot()),
            3 => drop(self.alloc.summary()),
            4 => {
                let checked = self.alloc.check_blocks(Duration::from_secs(20));
                let found = self.expect("a look at live blocks", checked).unwrap_or_default();
                found.iter().for_each(|damage| self.find(damage.to_string()));
            }
            _ => {}
        }
        if random.one_in(4) {
            // The rules hold whenever no call is in progress.
            let calm = self.calm.write();
            self.walk();
            drop(calm);
        }
    }

    /// Looks at the books, and whether two live blocks share a byte.
    fn walk(&self) {
        if let Err(broken) = self.alloc.check() {
            self.find(broken);
        }
        for segment in self.alloc.snapshot().segments {
            let mut end = 0;
            for part in segment.parts {
                if part.offset < end {
                    self.find(format!(
                        "two parts overlap at {} of {:?}",
                        part.offset, segment.space
                    ));
                }
                end = part.offset + part.bytes;
            }
        }
    }

    /// Blocks that nobody else uses lose their memory and get it back.
    fn pauses(&self, seed: u64) {
        let stream = self.streams[self.streams.len() - 1];
        let mut random = Random::new(seed ^ 0x9A05);
        while !self.is_over() {
            let _busy = self.calm.read();
            let request = Request::new(random.size(4096, 3 << 20).next_multiple_of(4), stream);
            let Some(got) = self.expect("a request", self.alloc.alloc(&request)) else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            let painted = self.paint(stream, got.handle, seed);
            let (what, time) = (Selection::Block(got.handle), Duration::from_secs(20));
            let keep = self.expect("a pause", self.alloc.pause(what, Contents::Keep, time));
            self.paused.fetch_add(keep.map_or(0, |report| report.blocks as u64), Ordering::Relaxed);
            for _ in 0..1000 {
                if self.expect("a resume", self.alloc.resume(what)).is_some() || self.is_over() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let item = Item { handle: got.handle, stream, seed: painted.then_some(seed), align: 1 };
            let paused = self.alloc.is_paused(got.handle).unwrap_or(true);
            let ticket = if paused { None } else { self.submit_verify(stream, &item) };
            self.expect("a free", self.alloc.free(got.handle));
            ticket.into_iter().for_each(|ticket| self.take(ticket));
        }
    }

    /// Frees what the threads left, and looks whether anything stays.
    fn end(&self, tally: &mut Tally) {
        let left = std::mem::take(&mut *self.shared.lock().unwrap_or_else(PoisonError::into_inner));
        for item in left {
            self.verify_and_free(item);
        }
        if let Err(broken) = self.alloc.check() {
            self.find(broken);
        }
        self.expect("giving everything back", self.alloc.release_cached());
        self.alloc.damage().iter().for_each(|damage| self.find(damage.to_string()));
        let stats = self.alloc.stats();
        if stats.total.blocks.current > 0 || stats.moves.corrupt > 0 {
            self.find(format!(
                "{} blocks, {} corrupt moves in the end",
                stats.total.blocks.current, stats.moves.corrupt
            ));
        }
        let heaps = self.device.caps().heaps.len();
        if heaps == 1 && stats.reserved.peak > self.alloc.limit(HeapId(0)) {
            self.find(format!("{} bytes were reserved above the limit", stats.reserved.peak));
        }
        // Under faults a view or a copy may have kept a segment alive for a while: once more.
        self.expect("giving everything back", self.alloc.release_cached());
        if self.alloc.stats().reserved.current > 0 {
            self.find(format!(
                "{} bytes are reserved in the end",
                self.alloc.stats().reserved.current
            ));
        }
        tally.moves = stats.moves.moves;
        tally.faults = self.device.injected();
        for (to, from) in [
            (&mut tally.requests, &self.requests),
            (&mut tally.verified, &self.verified),
            (&mut tally.refused, &self.refused),
            (&mut tally.paused, &self.paused),
        ] {
            *to = from.load(Ordering::Relaxed);
        }
    }

    /// Reads the recording: nothing is live at its end.
    fn read_back(&self, path: &std::path::Path, dropped: u64) {
        let opened =
            terrane_trace::recording::open_recording(path, &mut |_| ControlFlow::Continue(()));
        match opened {
            Ok(recording) => {
                let live =
                    recording.history(None).map(|history| history.trace.figures().live_at_end);
                // With events dropped the end is known only from the next full state.
                if dropped == 0 && live != Some(0) {
                    self.find(format!("the recording ends with {live:?} live blocks"));
                }
            }
            Err(error) => self.find(format!("the recording can not be read: {error}")),
        }
    }

    fn close(self, tally: &mut Tally) {
        let Self { device, alloc, streams, findings, .. } = self;
        if let Err(leaks) = alloc.close() {
            findings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(format!("leaks: {leaks:?}"));
        }
        for stream in streams {
            if let Err(error) = device.retire_stream(stream) {
                let mut findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
                findings.push(format!("retiring a stream: {error}"));
            }
        }
        tally.findings.extend(findings.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
}
