//! A device around the one under test: it counts what is alive, and breaks one thing on purpose.
//!
//! With [`Flaw::None`] it passes everything on. With another flaw it is a *mutant*: the suite's
//! own tests run it to see that the clauses notice.

mod device;
mod flaw;
mod powers;
mod shadow;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrane_core::device::{
    Caps, Device, DeviceError, DeviceInfo, Plain, Report, SpaceId, StreamId, SyncPoint, View,
};

pub use flaw::Flaw;
pub use shadow::Mapping;

use shadow::Shadow;

/// The device that clauses see.
pub struct Probe {
    inner: Arc<dyn Device>,
    info: DeviceInfo,
    caps: Caps,
    other_caps: Caps,
    pub(crate) flaw: Flaw,
    /// Calls of methods whose answer a flaw changes from call to call.
    turn: AtomicU64,
    alive: Mutex<Alive>,
    shadow: Mutex<Shadow>,
    /// What a flaw remembers.
    memory: Mutex<Memory>,
}

/// What was made and not given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alive {
    /// Plain segments.
    pub plains: i64,
    /// Memory objects for pages.
    pub objects: i64,
    /// Paged spaces.
    pub spaces: i64,
    /// Streams.
    pub streams: i64,
    /// View objects.
    pub views: i64,
    /// Kernels.
    pub kernels: i64,
}

impl Alive {
    /// Memory objects of either kind: what reserved bytes are the sum of.
    pub const fn memory_objects(&self) -> i64 {
        self.plains + self.objects
    }
}

#[derive(Default)]
struct Memory {
    plain: Option<Plain>,
    bytes: HashMap<u64, Vec<u8>>,
    reports: HashMap<u64, Report>,
    retired: Vec<StreamId>,
    reserved: Option<SpaceId>,
    /// View objects lent to a model that claims to have them.
    views: Vec<View>,
    next_view: u64,
}

impl Memory {
    fn lend_view(&mut self) -> View {
        self.next_view += 1;
        self.views.push(View(self.next_view));
        View(self.next_view)
    }

    fn take_view(&mut self, view: View) -> Result<(), DeviceError> {
        let at = self.views.iter().position(|lent| *lent == view);
        let at = at.ok_or(DeviceError::InvalidCall("no such view"))?;
        self.views.swap_remove(at);
        Ok(())
    }
}

impl Probe {
    /// Around a device.
    pub fn new(inner: Arc<dyn Device>, flaw: Flaw) -> Arc<Self> {
        let caps = flaw.caps(inner.caps().clone());
        let mut other_caps = caps.clone();
        other_caps.max_bindings += 1;
        let mut info = inner.info().clone();
        if flaw == Flaw::Nameless {
            info.name.clear();
        }
        Arc::new(Self {
            inner,
            info,
            caps,
            other_caps,
            flaw,
            turn: AtomicU64::new(0),
            alive: Mutex::default(),
            shadow: Mutex::default(),
            memory: Mutex::default(),
        })
    }

    /// What is alive now.
    pub fn alive(&self) -> Alive {
        *self.lock()
    }

    /// Counts a stream that was not made through this.
    pub(crate) fn adopt_stream(&self) {
        self.lock().streams += 1;
    }

    /// What is mapped now.
    pub fn mapping(&self) -> Mapping {
        self.shadow().mapping()
    }

    fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was made and not given back, in words.
    pub fn left(&self) -> Option<String> {
        let alive = self.alive();
        (alive != Alive::default()).then(|| format!("{alive:?}"))
    }

    fn lock(&self) -> MutexGuard<'_, Alive> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the device claims view objects that it leaves to us: models have none of their own.
    fn lends_views(&self) -> bool {
        self.inner.caps().views && self.inner.info().backend == "sim"
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts what a call made or gave back.
    fn count<T>(
        &self,
        answer: Result<T, DeviceError>,
        change: impl FnOnce(&mut Alive),
    ) -> Result<T, DeviceError> {
        if answer.is_ok() {
            change(&mut self.lock());
        }
        answer
    }

    /// A submission's point, as the flaw tells it.
    fn point(&self, point: SyncPoint) -> SyncPoint {
        if self.has(Flaw::ValuesRepeat) {
            return SyncPoint { value: point.value.div_ceil(2), ..point };
        }
        point
    }

    /// What a device answers that takes broken calls for good ones.
    fn lenient(
        &self,
        stream: StreamId,
        answer: Result<SyncPoint, DeviceError>,
    ) -> Result<SyncPoint, DeviceError> {
        match answer {
            Err(DeviceError::InvalidCall(_)) if self.has(Flaw::BrokenCallsAccepted) => {
                self.inner.mark(stream)
            }
            Err(DeviceError::StreamPoisoned) if self.has(Flaw::NeverPoisoned) => {
                self.inner.mark(stream)
            }
            Err(DeviceError::TooLarge { .. }) if self.has(Flaw::LargeBindingAccepted) => {
                self.inner.mark(stream)
            }
            Err(DeviceError::UnknownStream) if self.has(Flaw::UnknownStreamAccepted) => {
                Ok(SyncPoint { stream, value: 0 })
            }
            Err(DeviceError::AfterFork) if self.has(Flaw::ForkUnnoticed) => {
                Ok(SyncPoint { stream, value: 0 })
            }
            answer => answer.map(|point| self.point(point)),
        }
    }

    /// What a device answers that takes broken calls without a stream for good ones.
    fn forgiving<T: Default>(&self, answer: Result<T, DeviceError>) -> Result<T, DeviceError> {
        match answer {
            Err(DeviceError::InvalidCall(_)) if self.has(Flaw::UnknownIdsAccepted) => {
                Ok(T::default())
            }
            answer => answer,
        }
    }
}
