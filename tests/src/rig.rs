//! What clauses run on.

mod beside;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use terrane_core::device::host::Host;
use terrane_core::device::sim::{SimDevice, Violation};
use terrane_core::device::wrap::Logged;
use terrane_core::device::{
    Access, Binding, Caps, ClassId, Compute, Device, HostAccess, Paging, Place, Plain, PlainSpec,
    SpaceId, StreamId, StreamSpec, SyncPoint, Ticket,
};
use terrane_core::{Config, MemoryKind};

use crate::busy::{Busy, Way};
use crate::calls;
use crate::clause::{Clause, Level, Need, Outcome, Stop, fails};
use crate::clauses::kernels::Language;
use crate::native::Foreign;
use crate::plan::{Plan, Source};
use crate::probe::{Flaw, Probe};
use crate::random::Random;
use crate::subject::Subject;

/// A device under test, and the means to test it. What it made is given back by `finish`.
pub struct Rig {
    device: Arc<Probe>,
    sim: Option<SimDevice>,
    way: Way,
    plan: Plan,
    counted_heap: bool,
    language: Option<Language>,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    streams: Vec<StreamId>,
    plains: Vec<SpaceId>,
}

impl Rig {
    /// Opens a device.
    ///
    /// # Errors
    /// What the device says.
    pub fn open(plan: &Plan) -> Result<Self, Stop> {
        let (device, sim, way): (Arc<dyn Device>, _, _) = match &plan.source {
            Source::Model(model) => {
                let sim = model().bytes(true).open();
                (sim.shared(), Some(sim.clone()), Way::Model(sim))
            }
            // Busy work holds a worker each.
            Source::Host => (Host::new().workers(6).open()?, None, Way::Kernel),
            Source::Shared(device, keeper) => {
                let way = keeper.as_ref().map_or(Way::None, |k| Way::Kept(Arc::clone(k)));
                (Arc::clone(device), None, way)
            }
        };
        let counted_heap = !matches!(plan.source, Source::Shared(..));
        let language = Language::of(&*device);
        let device = match &plan.log {
            Some(log) => {
                let logged = Logged::new(device, calls::KEPT);
                log.watch(logged.clone());
                logged
            }
            None => device,
        };
        Ok(Self {
            device: Probe::new(device, plan.flaw),
            sim,
            way,
            plan: plan.clone(),
            counted_heap,
            language,
            made: Mutex::default(),
        })
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// The device, to be shared with allocators and threads.
    pub fn shared(&self) -> Arc<dyn Device> {
        Arc::<Probe>::clone(&self.device)
    }

    /// What the suite sees of calls to the device.
    pub fn probe(&self) -> &Probe {
        &self.device
    }

    /// The model behind the device.
    ///
    /// # Errors
    /// Skips where the device is no model.
    pub fn sim(&self) -> Result<&SimDevice, Stop> {
        self.sim.as_ref().ok_or_else(|| lacking(Need::Losable))
    }

    /// What the device can do.
    pub fn caps(&self) -> &Caps {
        self.device.caps()
    }

    /// A sequence of random numbers of the plan's seed.
    pub const fn random(&self) -> Random {
        Random::new(self.plan.seed)
    }

    /// The longest time that submitted work may take.
    pub const fn patience(&self) -> Duration {
        self.plan.patience
    }

    /// The language of user kernels.
    ///
    /// # Errors
    /// Skips where there is none.
    pub fn language(&self) -> Result<Language, Stop> {
        self.language.ok_or_else(|| lacking(Need::UserKernels))
    }

    /// The first need of a clause that the device does not meet.
    pub fn lacks(&self, clause: &Clause) -> Option<Need> {
        clause.needs.iter().copied().find(|need| !self.offers(*need))
    }

    fn offers(&self, need: Need) -> bool {
        let caps = self.caps();
        let paged = |ordered| caps.paging.is_some_and(|paging| paging.stream_ordered == ordered);
        match need {
            Need::Compute => caps.compute,
            Need::UserKernels => self.language.is_some(),
            Need::CheckedKernels => self.language.is_some_and(Language::is_checked),
            Need::HostKernels => self.language == Some(Language::Closure),
            Need::Paging => caps.paging.is_some(),
            Need::PagingAtOnce => paged(false),
            Need::PagingInOrder => paged(true),
            Need::HostVisible => caps.classes.iter().any(|class| class.host_visible),
            Need::HostInvisible => caps.classes.iter().any(|class| !class.host_visible),
            Need::Views => caps.views,
            Need::Addresses => caps.addresses,
            Need::Busy => self.way.can_hold(),
            Need::CountedHeap => self.counted_heap,
            Need::Capture => caps.capture && (self.sim.is_some() || self.way.captures()),
            Need::Wrapped => self.sim.is_some() || self.way.foreign().is_some(),
            Need::Losable => self.sim.is_some(),
            Need::Export => caps.export,
            Need::Import => caps.export && (self.sim.is_some() || self.way.imports().is_some()),
            Need::Several => !matches!(self.plan.source, Source::Shared(..)),
            Need::Fork => cfg!(unix) && self.sim.is_none(),
        }
    }

    /// The power to run kernels.
    ///
    /// # Errors
    /// Skips where the device has none.
    pub fn compute(&self) -> Result<&dyn Compute, Stop> {
        self.device.compute().ok_or_else(|| lacking(Need::Compute))
    }

    /// The power to map pages.
    ///
    /// # Errors
    /// Skips where the device has none.
    pub fn paging(&self) -> Result<&dyn Paging, Stop> {
        self.device.paging().ok_or_else(|| lacking(Need::Paging))
    }

    /// Host access.
    ///
    /// # Errors
    /// Skips where the device has none.
    pub fn host(&self) -> Result<&dyn HostAccess, Stop> {
        self.device.host_access().ok_or_else(|| lacking(Need::HostVisible))
    }

    /// The preferred class of a kind.
    ///
    /// # Errors
    /// Skips where the kind has none.
    pub fn class(&self, kind: MemoryKind) -> Result<ClassId, Stop> {
        let class = self.caps().classes_of(kind).next();
        class.ok_or_else(|| Stop::Skipped(format!("the device has no {kind} memory")))
    }

    /// A class that the host can map, or one that it can not.
    ///
    /// # Errors
    /// Skips where there is none.
    pub fn class_visible(&self, visible: bool) -> Result<ClassId, Stop> {
        let found = self.caps().classes.iter().position(|class| class.host_visible == visible);
        let need = if visible { Need::HostVisible } else { Need::HostInvisible };
        found.and_then(|at| u8::try_from(at).ok()).map(ClassId).ok_or_else(|| lacking(need))
    }

    /// A stream, retired at the end.
    ///
    /// # Errors
    /// What the device says.
    pub fn stream(&self) -> Result<StreamId, Stop> {
        self.stream_like(StreamSpec::default())
    }

    /// As [`stream`](Self::stream), of a certain sort.
    ///
    /// # Errors
    /// What the device says.
    pub fn stream_like(&self, spec: StreamSpec) -> Result<StreamId, Stop> {
        let stream = self.device.create_stream(spec)?;
        self.made().streams.push(stream);
        Ok(stream)
    }

    /// Several streams.
    ///
    /// # Errors
    /// What the device says.
    pub fn streams<const N: usize>(&self) -> Result<[StreamId; N], Stop> {
        let mut streams = [StreamId(0); N];
        for stream in &mut streams {
            *stream = self.stream()?;
        }
        Ok(streams)
    }

    /// A second device of the same sort, with the same flaw.
    ///
    /// # Errors
    /// Skips where the suite has one only.
    pub fn another(&self) -> Result<Arc<dyn Device>, Stop> {
        if self.plan.flaw == Flaw::DevicesShared {
            return Ok(self.shared());
        }
        let device = match &self.plan.source {
            Source::Model(model) => model().bytes(true).open().shared(),
            Source::Host => Host::new().workers(2).open()?,
            Source::Shared(..) => return Err(lacking(Need::Several)),
        };
        Ok(Probe::new(device, self.plan.flaw))
    }

    /// Device memory of at least `bytes`, given back at the end.
    ///
    /// # Errors
    /// What the device says.
    pub fn plain(&self, bytes: u64) -> Result<Plain, Stop> {
        self.plain_of(self.class(MemoryKind::Device)?, bytes)
    }

    /// As [`plain`](Self::plain), of a certain class.
    ///
    /// # Errors
    /// What the device says.
    pub fn plain_of(&self, class: ClassId, bytes: u64) -> Result<Plain, Stop> {
        let plain = self.device.create_plain(&self.spec(class, bytes))?;
        self.made().plains.push(plain.space);
        Ok(plain)
    }

    /// What to ask a device for to get at least `bytes`.
    pub fn spec(&self, class: ClassId, bytes: u64) -> PlainSpec<'static> {
        let granularity = self.caps().plain_granularity.max(1);
        let bytes = bytes.next_multiple_of(granularity);
        PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "conformance" }
    }

    /// Gives device memory back before the end.
    ///
    /// # Errors
    /// What the device says.
    pub fn release(&self, space: SpaceId) -> Outcome {
        self.made().plains.retain(|held| *held != space);
        Ok(self.device.release_plain(space)?)
    }

    /// Says that a stream was retired by the clause.
    pub fn forget_stream(&self, stream: StreamId) {
        self.made().streams.retain(|held| *held != stream);
    }

    /// Waits until work is done.
    ///
    /// # Errors
    /// Fails when that takes longer than the plan's patience.
    pub fn wait(&self, point: SyncPoint) -> Outcome {
        let end = Instant::now() + self.patience();
        let program = self.way.foreign();
        let slice = Duration::from_millis(if program.is_some() { 5 } else { 200 });
        while self.device.reached(point.stream)? < point.value {
            program.into_iter().for_each(Foreign::go_on);
            if !self.device.wait_any(&[point], slice)? && Instant::now() > end {
                return Err(Stop::failed(format!("{point:?} was not reached in time")));
            }
        }
        Ok(())
    }

    /// Whether work is done now.
    ///
    /// # Errors
    /// What the device says.
    pub fn is_reached(&self, point: SyncPoint) -> Result<bool, Stop> {
        Ok(self.device.reached(point.stream)? >= point.value)
    }

    /// The bytes of a range, read in stream order.
    ///
    /// # Errors
    /// What the device says.
    pub fn fetch(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Vec<u8>, Stop> {
        let ticket = self.device.read(stream, place, bytes)?;
        self.take(ticket)
    }

    /// The bytes of a read that was submitted.
    ///
    /// # Errors
    /// What the device says.
    pub fn take(&self, ticket: Ticket) -> Result<Vec<u8>, Stop> {
        self.wait(ticket.point)?;
        Ok(self.device.take_read(ticket)?)
    }

    /// The words of a range, read in stream order.
    ///
    /// # Errors
    /// What the device says.
    pub fn words(&self, stream: StreamId, place: Place, words: u64) -> Result<Vec<u32>, Stop> {
        let bytes = self.fetch(stream, place, words * 4)?;
        let word = |w: &[u8]| u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
        Ok(bytes.chunks_exact(4).map(word).collect())
    }

    /// Work that uses `ranges` and is done when the test says so.
    ///
    /// # Errors
    /// Skips where the device can not be kept busy at will.
    pub fn busy(&self, stream: StreamId, ranges: &[(Place, u64)]) -> Result<Busy, Stop> {
        let bind = |&(place, bytes): &_| Binding { place, bytes, access: Access::Write };
        let bindings: Vec<Binding> = ranges.iter().map(bind).collect();
        self.way.submit(&*self.device, stream, &bindings)
    }

    /// An allocator with the defaults.
    ///
    /// # Errors
    /// What it answers.
    pub fn alloc(&self) -> Result<Subject, Stop> {
        self.alloc_with(|_| {})
    }

    /// An allocator with some knobs turned.
    ///
    /// # Errors
    /// What it answers.
    pub fn alloc_with(&self, turn: impl FnOnce(&mut Config)) -> Result<Subject, Stop> {
        self.alloc_on(self.shared(), turn)
    }

    /// The same on a device around the one under test.
    ///
    /// # Errors
    /// What it answers.
    pub fn alloc_on(
        &self,
        device: Arc<dyn Device>,
        turn: impl FnOnce(&mut Config),
    ) -> Result<Subject, Stop> {
        let mut config = Config::for_device(device.caps());
        if let Some(paging) = self.plan.paging {
            config.paging = paging && self.caps().paging.is_some();
        }
        if self.plan.near_ends {
            (config.first_generation, config.first_sequence) = (u32::MAX - 2, u64::MAX - 10);
        }
        turn(&mut config);
        Ok(Subject::open(device, Arc::clone(&self.device), config, self.plan.flaw)?)
    }

    /// Gives everything back and looks whether anything is left, and whether the model saw a
    /// rule broken.
    ///
    /// # Errors
    /// Fails when it is so.
    pub fn finish(&self, level: Level) -> Outcome {
        let made = std::mem::take(&mut *self.made());
        for &stream in &made.streams {
            self.wait(self.device.mark(stream)?)?;
        }
        for &space in &made.plains {
            self.device.release_plain(space)?;
        }
        for &stream in &made.streams {
            self.device.retire_stream(stream)?;
        }
        if let Some(left) = self.device.left() {
            return Err(Stop::failed(format!("not given back: {left}")));
        }
        match self.violation(level) {
            Some(violation) => Err(Stop::failed(format!("the model objects: {violation:?}"))),
            None => Ok(()),
        }
    }

    /// What the model objects to. Clauses about the device make invalid calls on purpose, the
    /// allocator never may.
    fn violation(&self, level: Level) -> Option<Violation> {
        let violations = self.sim.as_ref()?.violations();
        let on_purpose = |violation: &Violation| {
            level == Level::Device && matches!(violation, Violation::InvalidCall { .. })
        };
        violations.into_iter().find(|violation| !on_purpose(violation))
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call on a stream that was retired, or never was, has to say so.
    pub(crate) fn unknown<T>(
        answer: &Result<T, terrane_core::device::DeviceError>,
        what: &str,
    ) -> Outcome {
        fails(answer, &terrane_core::device::DeviceError::UnknownStream, what)
    }
}

fn lacking(need: Need) -> Stop {
    Stop::Skipped(need.lacking().to_owned())
}

/// A place some bytes further.
pub(crate) const fn at(space: SpaceId, offset: u64) -> Place {
    Place { space, offset }
}
