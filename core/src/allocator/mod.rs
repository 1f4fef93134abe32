//! The allocator: what programs hold.
//!
//! One lock guards all state. It is never held over a call of the device that may reach a driver:
//! a request finds, takes and, where new memory is needed, lets go of the lock, asks the device,
//! and comes back to commit or to give up what it took. While such a call is under way, others
//! that run short wait for its outcome before they report a shortage.

mod alloc;
mod buffer;
mod checks;
mod clear;
mod clock;
mod config;
mod ending;
mod frame;
mod free;
mod graph;
mod grow;
mod handle;
mod heaps;
mod hold;
mod holding;
mod hooks;
mod intern;
mod ladder;
mod lock;
mod moving;
mod paging;
mod patience;
mod raw;
mod report;
mod shelf;
mod sparse;
mod state;
mod submission;
mod trim;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use buffer::Buffer;
pub use checks::{Checks, Damage, DamageKind, Suspect};
pub use config::{Config, Keep, Prefer, Reuse, Scrub};
pub use frame::Frame;
pub use graph::Graph;
pub use handle::{Allocation, BlockInfo, Handle, Leak, Resolved};
pub use heaps::HeapReport;
pub use hold::{Mapped, Pin};
pub use moving::{Answer, Compactor, Corrupt, MoveChoice, Offer, PassReport, Progress};
pub use paging::pause::{Contents, PauseReport, Selection};
pub use paging::warm::Warming;
pub use raw::Raw;
pub use report::{BlockView, Budget, Charge, Section, SegmentInfo, Snapshot};
pub use state::SectionPeaks;
pub use submission::{Slice, Submission};

use crate::budget::{Accounts, Limit};
use crate::device::{self, Caps, Device, HeapId};
use crate::error::{DeviceError, Error};
use crate::event::Ring;
use crate::id::Table;
use crate::kind::MemoryKind;
use crate::sync::{Condvar, Lock};

use clock::Clock;
use hooks::Hooks;
use lock::Locked;
use state::{Counters, ForeignCache, State};

/// An allocator over one device: pooled, stream-ordered, observable. Cloning gives another name
/// of the same allocator.
///
/// # Dropping
/// When the last clone, [`Buffer`] and guard is gone, the allocator waits for the work that uses
/// its memory and gives everything back. Blocks that are still live then are leaks:
/// [`close`](Self::close) returns their list.
#[derive(Clone)]
pub struct Allocator {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub device: Arc<dyn Device>,
    /// Whether requests and frees take the way of [`checks`] or of guard mode.
    checked: bool,
    /// The device's, which never change: no call is needed to read them.
    caps: Caps,
    /// The classes of each kind, by bit.
    classes: [u32; 4],
    /// The classes that paging serves, by bit.
    paged: u32,
    pub config: Config,
    /// Distinguishes handles of different allocators in this process.
    pub id: u32,
    state: Lock<State>,
    /// How long the lock is held, where somebody wants to know.
    pub watch: Arc<lock::Watch>,
    /// Told when device calls end and when blocks are freed.
    pub changed: Condvar,
    pub hooks: Hooks,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Allocator {
    /// An allocator over `device` with the defaults for it.
    ///
    /// # Errors
    /// As [`with_config`](Self::with_config).
    pub fn new(device: Arc<dyn Device>) -> Result<Self, Error> {
        let config = Config::for_device(device.caps());
        Self::with_config(device, config)
    }

    /// An allocator over `device`.
    ///
    /// # Errors
    /// What the device answers when asked for the size of its heaps or for the memory that
    /// [`Config::preallocate`] wants; [`DeviceError::Contract`] for capabilities that can not be.
    /// Nothing is held then.
    pub fn with_config(device: Arc<dyn Device>, config: Config) -> Result<Self, Error> {
        device::rules::caps(device.caps()).map_err(DeviceError::Contract)?;
        config.checks.fit(device.caps())?;
        let limits = resolve_limits(&*device, &config.limits)?;
        let now_ns = device.now_ns();
        let counters =
            Counters { tags: vec![state::TagCounters::default()], ..Counters::default() };
        let state = State {
            blocks: Table::starting_at(config.first_generation),
            pools: Vec::new(),
            foreign: ForeignCache::default(),
            by_key: rustc_hash::FxHashMap::default(),
            budget: Accounts::new(&limits, device.caps().max_memory_objects),
            counters,
            moves: moving::Moves::default(),
            ring: Ring::new(config.recorder).starting_at(config.first_sequence),
            sites: intern::Sites::new(),
            names: intern::Names::default(),
            tag_numbers: rustc_hash::FxHashMap::default(),
            waits: sparse::Sparse::default(),
            checking: checks::Checking::default(),
            guests: rustc_hash::FxHashMap::default(),
            views: rustc_hash::FxHashMap::default(),
            retired_views: Vec::new(),
            deferred: Vec::new(),
            warming: 0,
            asleep: rustc_hash::FxHashMap::default(),
            reached: rustc_hash::FxHashMap::default(),
            shelf: shelf::Shelf::new(config.keep),
            sections: Table::new(),
            graphs: rustc_hash::FxHashMap::default(),
            captured: rustc_hash::FxHashMap::default(),
            guarded: rustc_hash::FxHashSet::default(),
            next_graph: 1,
            in_flight: 0,
            waiting: 0,
            told: 0,
            span: None,
            frees: 0,
            clock: Clock::starting_at(now_ns),
        };
        let caps = device.caps().clone();
        let classes = MemoryKind::ALL.map(|kind| config::classes_of(&caps, kind));
        let paged = caps.paging.filter(|_| config.paging).map_or(0, |paging| paging.classes);
        let checked = config.guard || !config.checks.is_off();
        let inner = Inner {
            device,
            checked,
            caps,
            classes,
            paged,
            config,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            #[cfg(not(loom))]
            state: Lock::new(state),
            // Orders are tried at a mutex; the other way has a model of its own.
            #[cfg(loom)]
            state: Lock::shared(state),
            watch: Arc::default(),
            changed: Condvar::new(),
            hooks: Hooks::default(),
        };
        let allocator = Self { inner: Arc::new(inner) };
        allocator.inner.preallocate()?;
        Ok(allocator)
    }

    /// The device under the allocator.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.inner.device
    }

    /// The knobs that the allocator was made with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Sets the most bytes of memory objects in a heap, from now on. Memory held above the limit
    /// stays until it is trimmed.
    pub fn set_limit(&self, heap: HeapId, bytes: u64) {
        let mut state = self.inner.lock();
        state.budget.set_limit(heap, bytes);
        let event = crate::event::Event::new(crate::event::EventKind::LimitSet);
        state.event(event.a(u64::from(heap.0)).b(bytes));
        self.inner.unlock_and_tell(state);
    }

    /// The most bytes of memory objects in a heap; `u64::MAX` for no limit.
    pub fn limit(&self, heap: HeapId) -> u64 {
        self.inner.lock().budget.limit(heap)
    }

    /// Bytes that the limit of a heap still allows.
    pub fn budget_left(&self, heap: HeapId) -> u64 {
        self.inner.lock().budget.left(heap)
    }
}

impl Inner {
    /// Lets go of the lock and tells the threads that wait for a change, if any do. Telling is a
    /// system call, which nobody on the usual way should pay for.
    #[inline]
    pub fn unlock_and_tell(&self, mut state: Locked<'_>) {
        if state.waiting > 0 {
            state.told += 1;
            drop(state);
            self.changed.notify_all();
        }
    }

    pub const fn caps(&self) -> &Caps {
        &self.caps
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({} on {})", self.inner.id, self.inner.device.info().name)
    }
}

fn resolve_limits(device: &dyn Device, limits: &[Limit]) -> Result<Vec<u64>, Error> {
    let heaps = device.caps().heaps.len().min(256);
    (0..heaps)
        .map(|at| {
            let limit = limits.get(at).copied().unwrap_or_default();
            if matches!(limit, Limit::None | Limit::Bytes(_)) {
                return Ok(limit.resolve(0, 0));
            }
            let used = device.heap_use(HeapId(at as u8))?;
            Ok(limit.resolve(used.total, used.free))
        })
        .collect()
}
