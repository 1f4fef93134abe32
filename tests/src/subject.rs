//! The allocator that clauses see.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrane_core::device::{Device, DeviceError, HeapId, StreamId, SyncPoint};
use terrane_core::event::{Drained, Event};
use terrane_core::point::Points;
use terrane_core::stats::Stats;
use terrane_core::{
    Allocation, Allocator, Buffer, Charge, Checks, Config, Contents, Damage, Error, Graph, Growth,
    Handle, Leak, MemoryKind, PauseReport, Pin, Request, Reuse, Scrub, Section, Selection,
    Shortage, Snapshot, Tag, Wait,
};

use crate::clause::{Outcome, Stop};
use crate::probe::{Flaw, Probe};

/// An allocator under test: an [`Allocator`], of which a [`Flaw`] may break one thing. Methods
/// that no flaw breaks are the allocator's own; the others do and answer what it does.
#[derive(Clone)]
pub struct Subject {
    alloc: Allocator,
    flaw: Flaw,
    probe: Arc<Probe>,
    /// Graphs that were asked for: what a flaw forgets.
    graphs: Arc<Mutex<Vec<Graph>>>,
}

impl Deref for Subject {
    type Target = Allocator;

    fn deref(&self) -> &Allocator {
        &self.alloc
    }
}

#[allow(missing_docs, clippy::missing_errors_doc)] // as the methods of `Allocator`
impl Subject {
    /// On a device that is the probe, or around it.
    pub(crate) fn open(
        device: Arc<dyn Device>,
        probe: Arc<Probe>,
        mut config: Config,
        flaw: Flaw,
    ) -> Result<Self, Error> {
        match flaw {
            Flaw::StaleUncapped => config.pages.stale_max = usize::MAX,
            Flaw::LimitsIgnored => config.limits.clear(),
            Flaw::PreallocationIgnored => config.preallocate = 0.0,
            Flaw::ScrubIgnored => config.scrub = Scrub::Never,
            Flaw::ReuseEager => config.reuse = Reuse::AsSoonAsDone,
            Flaw::GrowthIgnored => config.growth = Growth::Fine,
            Flaw::TrimTakesAll => config.min_reserved = 0,
            Flaw::ChecksIgnored => config.checks = Checks::NONE,
            Flaw::PoisonIgnored => config.checks.poison = false,
            Flaw::QuarantineIgnored => config.checks.quarantine = 0,
            Flaw::GuardIgnored => config.guard = false,
            _ => {}
        }
        Ok(Self {
            alloc: Allocator::with_config(device, config)?,
            flaw,
            probe,
            graphs: Arc::default(),
        })
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn request<'a>(&self, request: &Request<'a>) -> Request<'a> {
        match self.flaw {
            Flaw::AlignIgnored => request.align(1),
            Flaw::KindIgnored => request.kind(MemoryKind::Device),
            Flaw::ClassesIgnored => request.classes(u32::MAX),
            Flaw::DedicatedIgnored => request.dedicated(false),
            Flaw::ExportIgnored => request.exportable(false),
            Flaw::NotZeroed => request.zeroed(false),
            Flaw::NamesLost => request.name(""),
            Flaw::WaitModeIgnored => request.wait(Wait::OnStream),
            Flaw::TagIgnored => request.tag(Tag::NONE),
            _ => *request,
        }
    }

    fn error(&self, error: Error) -> Error {
        if self.has(Flaw::ErrorsMixedUp) { Error::TableFull } else { error }
    }

    #[track_caller]
    pub fn alloc(&self, request: &Request<'_>) -> Result<Allocation, Error> {
        let mut got = self.alloc.alloc(&self.request(request)).map_err(|e| self.error(e))?;
        match self.flaw {
            Flaw::BlockTooSmall => got.bytes /= 2,
            Flaw::WaitsDropped => got.waits = Points::NONE,
            Flaw::WaitsLoseOne => got.waits = got.waits.iter().skip(1).collect(),
            _ => {}
        }
        Ok(got)
    }

    #[track_caller]
    pub fn buffer(&self, request: &Request<'_>) -> Result<Buffer, Error> {
        if self.has(Flaw::BuffersLeak) {
            self.alloc.buffer(request)?.into_handle();
        }
        self.alloc.buffer(&self.request(request)).map_err(|e| self.error(e))
    }

    #[track_caller]
    pub fn free(&self, handle: Handle) -> Result<(), Error> {
        if self.has(Flaw::FreeIgnored) {
            return Ok(());
        }
        if self.has(Flaw::GraphsForgotten) {
            let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
            graphs.drain(..).try_for_each(|graph| self.alloc.release_graph(graph))?;
        }
        match self.alloc.free(handle) {
            Err(Error::DoubleFree | Error::StaleHandle) if self.has(Flaw::FreeTwiceAccepted) => {
                Ok(())
            }
            answer => answer.map_err(|e| self.error(e)),
        }
    }

    pub fn free_on(&self, handle: Handle, stream: StreamId) -> Result<(), Error> {
        if self.has(Flaw::FreePointsIgnored) {
            return self.alloc.free(handle);
        }
        self.alloc.free_on(handle, stream)
    }

    pub fn free_after(&self, handle: Handle, points: &Points) -> Result<(), Error> {
        if self.has(Flaw::FreePointsIgnored) {
            return self.alloc.free(handle);
        }
        self.alloc.free_after(handle, points)
    }

    pub fn record_use(&self, handle: Handle, stream: StreamId) -> Result<(), Error> {
        if self.has(Flaw::UsesForgotten) { Ok(()) } else { self.alloc.record_use(handle, stream) }
    }

    pub fn record_use_until(&self, handle: Handle, point: SyncPoint) -> Result<(), Error> {
        if self.has(Flaw::UsesForgotten) {
            return Ok(());
        }
        self.alloc.record_use_until(handle, point)
    }

    pub fn grow(&self, handle: Handle, bytes: u64) -> Result<Points, Error> {
        if self.has(Flaw::GrowLies) {
            return Ok(Points::NONE);
        }
        self.alloc.grow(handle, bytes).map_err(|e| self.error(e))
    }

    pub fn pin(&self, handle: Handle) -> Result<Pin, Error> {
        if self.has(Flaw::PinsIgnored) {
            let stream = self.alloc.info(handle)?.stream;
            let other = Request::new(1, stream).kind(MemoryKind::Upload);
            let other = self.alloc.alloc(&other)?.handle;
            let pin = self.alloc.pin(other);
            self.alloc.free(other)?;
            return pin;
        }
        self.alloc.pin(handle)
    }

    pub fn graph(&self, stream: StreamId) -> Result<Option<Graph>, Error> {
        let graph = self.alloc.graph(stream)?;
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner).extend(graph);
        Ok(graph)
    }

    pub fn pause(
        &self,
        what: Selection,
        contents: Contents,
        time: Duration,
    ) -> Result<PauseReport, Error> {
        if self.has(Flaw::PauseClaimed) {
            return Ok(PauseReport { blocks: 1, bytes: 0, refused: 0 });
        }
        self.alloc.pause(what, contents, time)
    }

    pub fn trim(&self, keep_bytes: u64) -> Result<u64, Error> {
        match self.flaw {
            Flaw::TrimIgnored => Ok(0),
            Flaw::TrimTakesAll => self.alloc.trim(0),
            _ => self.alloc.trim(keep_bytes),
        }
    }

    pub fn release_cached(&self) -> Result<u64, Error> {
        if self.has(Flaw::ReleaseCachedIsTrim) {
            return self.alloc.trim(0);
        }
        self.alloc.release_cached()
    }

    pub fn maintain(&self) -> Result<u64, Error> {
        if self.has(Flaw::MaintainIgnored) { Ok(0) } else { self.alloc.maintain() }
    }

    pub fn set_limit(&self, heap: HeapId, bytes: u64) {
        if !self.has(Flaw::LimitsIgnored) {
            self.alloc.set_limit(heap, bytes);
        }
    }

    pub fn set_tag_limit(&self, tag: Tag, bytes: Option<u64>) -> Result<(), Error> {
        if self.has(Flaw::LimitsIgnored) { Ok(()) } else { self.alloc.set_tag_limit(tag, bytes) }
    }

    pub fn charge(&self, heap: HeapId, bytes: u64) -> Result<Charge, Error> {
        let bytes = if self.has(Flaw::ChargesIgnored) { 0 } else { bytes };
        self.alloc.charge(heap, bytes)
    }

    pub fn on_pressure(
        &self,
        hook: impl Fn(&Allocator, &Shortage) -> bool + Send + Sync + 'static,
    ) {
        match self.flaw {
            Flaw::HooksIgnored => {}
            Flaw::HookPanicsPass => self.alloc.on_pressure(move |alloc, shortage| {
                let hook = std::panic::AssertUnwindSafe(|| hook(alloc, shortage));
                std::panic::catch_unwind(hook).unwrap_or(false)
            }),
            _ => self.alloc.on_pressure(hook),
        }
    }

    pub fn stats(&self) -> Stats {
        let mut stats = self.alloc.stats();
        match self.flaw {
            Flaw::StatsOff => stats.reserved.current += 1,
            Flaw::StaleCounted => stats.reserved.current += self.probe.mapping().twice_bytes,
            Flaw::KindStatsOff => stats.kinds[0].usage.allocated.current += 256,
            Flaw::SizeClassesOff => stats.size_classes[3].blocks.current += 1,
            Flaw::PeaksLost => stats.total.allocated.peak = stats.total.allocated.current,
            _ => {}
        }
        stats
    }

    pub fn reset_peaks(&self) {
        if !self.has(Flaw::PeaksNotReset) {
            self.alloc.reset_peaks();
        }
    }

    pub fn section(&self) -> Result<Section, Error> {
        if self.has(Flaw::SectionsSeeNothing) {
            return Allocator::new(Arc::clone(self.alloc.device()))?.section();
        }
        self.alloc.section()
    }

    pub fn drain_events(&self, into: &mut Vec<Event>, most: usize) -> Drained {
        let drained = self.alloc.drain_events(into, most);
        match self.flaw {
            Flaw::EventsLost => drop(into.pop()),
            Flaw::EventsRepeat => into.extend(into.last().copied()),
            _ => {}
        }
        drained
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.alloc.snapshot();
        if self.has(Flaw::SnapshotMissesBlock) {
            let parts = snapshot.segments.iter_mut().flat_map(|segment| &mut segment.parts);
            if let Some(part) = parts.into_iter().find(|part| part.block.is_some()) {
                part.block = None;
            }
        }
        snapshot
    }

    pub fn damage(&self) -> Vec<Damage> {
        let found = self.alloc.damage();
        if self.has(Flaw::DamageForgotten) { Vec::new() } else { found }
    }

    pub fn close(self) -> Result<(), Vec<Leak>> {
        let hidden = self.has(Flaw::LeaksHidden);
        let closed = self.alloc.close();
        if hidden { Ok(()) } else { closed }
    }

    /// Fails unless the books are right.
    pub fn sound(&self) -> Outcome {
        self.alloc.check().map_err(Stop::Failed)
    }

    /// The handle of a new block of device memory that waits for nobody.
    #[track_caller]
    pub fn get(&self, bytes: u64, stream: StreamId) -> Result<Handle, Stop> {
        Ok(self.alloc(&Request::new(bytes, stream))?.handle)
    }

    /// Waits until all freed memory can be used by anybody.
    pub fn settle(&self) -> Result<(), DeviceError> {
        for stream in self.streams_awaited() {
            let point = self.alloc.device().mark(stream)?;
            self.alloc.device().wait_any(&[point], Duration::from_secs(30))?;
        }
        Ok(())
    }

    fn streams_awaited(&self) -> Vec<StreamId> {
        let mut streams: Vec<StreamId> = self
            .alloc
            .snapshot()
            .segments
            .iter()
            .flat_map(|segment| &segment.parts)
            .flat_map(|part| part.pending.iter().map(|point| point.stream).collect::<Vec<_>>())
            .collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }
}
