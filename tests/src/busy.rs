//! Work that is done when the test says so.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use terrane_core::device::host::HostKernel;
use terrane_core::device::sim::{Completion, SimDevice};
use terrane_core::device::{Binding, Device, DeviceError, KernelSource, StreamId, SyncPoint};

use crate::clause::{Need, Stop};
use crate::native::{Captures, Foreign, Imports};

/// How a device is kept busy.
#[derive(Clone)]
pub(crate) enum Way {
    /// The model completes it by hand.
    Model(SimDevice),
    /// A kernel waits for the gate.
    Kernel,
    /// Somebody who knows the device does it.
    Kept(Arc<dyn Keeper>),
    /// Nothing does.
    None,
}

/// Does what the suite can not do by the contract alone: keeps one stream of a device busy at will,
/// and no other, and uses the device's own API as a program beside Terrane does.
pub trait Keeper: Send + Sync {
    /// Submits work to a stream that is done after [`Held::let_go`].
    ///
    /// # Errors
    /// What the device says.
    fn hold(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError>;

    /// Whether [`hold`](Self::hold) can be used: it holds up one stream and no other.
    fn can_hold(&self) -> bool {
        true
    }

    /// Streams of the program's own, where it can wrap any.
    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    /// Exported memory, where the program can open it.
    fn imports(&self) -> Option<&dyn Imports> {
        None
    }

    /// Captures of streams, where the program can make any.
    fn captures(&self) -> Option<&dyn Captures> {
        None
    }
}

/// Work that a [`Keeper`] holds up.
pub trait Held: Send {
    /// The point that is reached when it is done.
    fn point(&self) -> SyncPoint;

    /// Lets it be done; a second time does nothing.
    fn let_go(&self);
}

/// Work that is not done until it is finished; finished when dropped at the latest.
pub struct Busy {
    /// The point that is reached when it is done.
    pub point: SyncPoint,
    end: End,
}

enum End {
    Model(SimDevice),
    Gate(Arc<Gate>),
    Held(Box<dyn Held>),
}

/// Open or not yet.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until the gate is open; a minute bounds a test that forgot it.
    pub fn pass(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = Duration::from_secs(60);
        let waited = self.changed.wait_timeout_while(open, minute, |open| !*open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Busy {
    /// Lets the work be done.
    pub fn finish(&self) {
        match &self.end {
            End::Model(sim) => sim.complete(self.point),
            End::Gate(gate) => gate.open(),
            End::Held(held) => held.let_go(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Way {
    /// Submits work that uses `ranges` and is done when the test says so.
    pub fn submit(
        &self,
        device: &dyn Device,
        stream: StreamId,
        ranges: &[Binding],
    ) -> Result<Busy, Stop> {
        match self {
            Self::Model(sim) => {
                sim.set_completion(stream, Completion::ByHand)?;
                let point = sim.submit_using(stream, 1, ranges)?;
                sim.set_completion(stream, Completion::Immediate)?;
                Ok(Busy { point, end: End::Model(sim.clone()) })
            }
            Self::Kernel => {
                let lacking = || Stop::Skipped(Need::Busy.lacking().to_owned());
                let compute = device.compute().ok_or_else(lacking)?;
                let gate = Arc::new(Gate::default());
                let inner = Arc::clone(&gate);
                let kernel = HostKernel(Arc::new(move |_| inner.pass()));
                let kernel = compute.load(&KernelSource::Host(kernel))?;
                let point = compute.dispatch(stream, kernel, ranges, &[], [1, 1, 1])?;
                compute.unload(kernel)?;
                Ok(Busy { point, end: End::Gate(gate) })
            }
            Self::Kept(keeper) => {
                let held = keeper.hold(stream)?;
                Ok(Busy { point: held.point(), end: End::Held(held) })
            }
            Self::None => Err(Stop::Skipped(Need::Busy.lacking().to_owned())),
        }
    }

    /// Whether [`submit`](Self::submit) can be used.
    pub fn can_hold(&self) -> bool {
        match self {
            Self::Model(_) | Self::Kernel => true,
            Self::Kept(keeper) => keeper.can_hold(),
            Self::None => false,
        }
    }

    /// Streams of a program of its own.
    pub fn foreign(&self) -> Option<&dyn Foreign> {
        if let Self::Kept(keeper) = self { keeper.foreign() } else { None }
    }

    /// Exported memory, opened by a program of its own.
    pub fn imports(&self) -> Option<&dyn Imports> {
        if let Self::Kept(keeper) = self { keeper.imports() } else { None }
    }

    /// Whether a program of its own captures streams.
    pub fn captures(&self) -> bool {
        matches!(self, Self::Kept(keeper) if keeper.captures().is_some())
    }

    /// Work of a program of its own on a stream that it made.
    pub fn submit_theirs(
        &self,
        device: &dyn Device,
        stream: StreamId,
        ranges: &[Binding],
    ) -> Result<Busy, Stop> {
        let Self::Kept(keeper) = self else { return self.submit(device, stream, ranges) };
        let lacking = || Stop::Skipped(Need::Wrapped.lacking().to_owned());
        let held = keeper.foreign().ok_or_else(lacking)?.submit(stream)?;
        Ok(Busy { point: held.point(), end: End::Held(held) })
    }
}
