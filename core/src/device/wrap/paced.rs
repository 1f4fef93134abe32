//! A device whose work counts as done when its caller says so.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Common, Hook, Object, Wrapped};
use crate::device::{
    Caps, Device, DeviceError, HeapUse, Plain, Points, Reserved, StreamId, StreamSpec, SyncPoint,
};

/// A device that shows [`Common`] capabilities, and whose work counts as done in an order that
/// does not depend on how fast it is: as soon as anybody asks, or, on a stream made by
/// [`create_by_hand`](Self::create_by_hand), when the caller says so; never before it really is.
///
/// The same calls get the same answers from every device wrapped so, ids and addresses apart.
pub type Paced = Wrapped<Pacing>;

/// The state of a [`Paced`] device.
pub struct Pacing {
    caps: Caps,
    state: Mutex<State>,
    /// Signalled when something completes by hand.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Streams whose work completes by hand, with the value up to which it has.
    by_hand: HashMap<StreamId, u64>,
    /// What the work of a stream waits for, in order of submission.
    gates: HashMap<StreamId, Vec<Gate>>,
    /// Memory objects that exist.
    objects: HashMap<Object, u64>,
}

/// Work of a stream after value `after` is not done before `points`.
struct Gate {
    after: u64,
    points: Points,
}

/// How long real work may take before it counts as hung.
const HUNG: Duration = Duration::from_secs(60);

impl Paced {
    /// A device around `inner`.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] or [`DeviceError::InvalidCall`], with the reason, when the
    /// device has less than these capabilities.
    pub fn new(inner: Arc<dyn Device>, common: Common) -> Result<Arc<Self>, DeviceError> {
        let caps = common.over(inner.caps())?;
        let hook = Pacing { caps, state: Mutex::default(), changed: Condvar::new() };
        Ok(Self::around(inner, hook))
    }

    /// Makes a stream whose work counts as done when [`complete`](Self::complete) says so.
    ///
    /// # Errors
    /// The device's.
    pub fn create_by_hand(&self) -> Result<StreamId, DeviceError> {
        let stream = self.inner.create_stream(StreamSpec::default())?;
        let reached = self.inner.reached(stream)?;
        self.hook.lock().by_hand.insert(stream, reached);
        Ok(stream)
    }

    /// Has work up to a point of a stream made by [`create_by_hand`](Self::create_by_hand) count
    /// as done, once it really is.
    ///
    /// # Errors
    /// The device's; [`DeviceError::UnknownStream`] for another stream.
    pub fn complete(&self, point: SyncPoint) -> Result<(), DeviceError> {
        settle(&*self.inner, point)?;
        let mut state = self.hook.lock();
        let done = state.by_hand.get_mut(&point.stream).ok_or(DeviceError::UnknownStream)?;
        *done = point.value.max(*done);
        drop(state);
        self.hook.changed.notify_all();
        Ok(())
    }

    /// Has all work submitted so far count as done, once it really is.
    ///
    /// # Errors
    /// The device's.
    pub fn complete_all(&self) -> Result<(), DeviceError> {
        let streams: Vec<StreamId> = self.hook.lock().by_hand.keys().copied().collect();
        for stream in streams {
            self.complete(self.inner.mark(stream)?)?;
        }
        Ok(())
    }
}

/// Waits for work to be really done.
fn settle(device: &dyn Device, point: SyncPoint) -> Result<(), DeviceError> {
    match point.value == 0 || device.wait_any(&[point], HUNG)? {
        true => Ok(()),
        false => Err(DeviceError::Driver { call: "wait for work to be done", code: 0 }),
    }
}

impl Pacing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The value that a stream of which `real` is reached is shown to have reached.
    fn shown(&self, stream: StreamId, real: u64, seen: &mut HashSet<StreamId>) -> u64 {
        let mut shown = self.by_hand.get(&stream).map_or(real, |&done| done.min(real));
        if !seen.insert(stream) {
            return shown;
        }
        for gate in self.gates.get(&stream).into_iter().flatten() {
            // What really is done has passed its gates: only what is kept by hand closes them.
            let open = gate.points.iter().all(|p| self.shown(p.stream, u64::MAX, seen) >= p.value);
            if !open {
                shown = shown.min(gate.after);
            }
        }
        seen.remove(&stream);
        shown
    }
}

impl Hook for Pacing {
    fn caps(&self, _: Caps) -> Caps {
        self.caps.clone()
    }

    fn made(&self, object: Object, asked: u64, _: u64) {
        self.lock().objects.insert(object, asked);
    }

    fn given_back(&self, object: Object) {
        self.lock().objects.remove(&object);
    }

    fn heap_use(&self, _: HeapUse) -> HeapUse {
        let total = self.caps.heaps.iter().map(|heap| heap.total).sum::<u64>();
        let used = self.lock().objects.values().sum();
        HeapUse { total, free: total.saturating_sub(used), process: None }
    }

    fn plain(&self, asked: u64, plain: Plain) -> Plain {
        // Devices round up as they like, and place segments where they like.
        Plain { bytes: asked, address: None, ..plain }
    }

    fn reserved(&self, reserved: Reserved) -> Reserved {
        // Aligned to the device's pages, which may be smaller than those that are shown.
        Reserved { address: None, ..reserved }
    }

    fn reached(&self, device: &dyn Device, stream: StreamId) -> Result<u64, DeviceError> {
        // A retired stream takes no mark, and its work ends by itself.
        if let Ok(point) = device.mark(stream) {
            settle(device, point)?;
        }
        let real = device.reached(stream)?;
        Ok(self.lock().shown(stream, real, &mut HashSet::new()))
    }

    fn wait_any(
        &self,
        device: &dyn Device,
        points: &[SyncPoint],
        timeout: Duration,
    ) -> Result<bool, DeviceError> {
        let mut left = timeout;
        loop {
            for point in points {
                if self.reached(device, point.stream)? >= point.value {
                    return Ok(true);
                }
            }
            if left.is_zero() {
                return Ok(false);
            }
            // Something may have completed since it was looked at: look again now and then.
            let nap = left.min(Duration::from_millis(10));
            let woken = self.changed.wait_timeout(self.lock(), nap);
            if woken.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                left -= nap;
            }
        }
    }

    fn waits(&self, device: &dyn Device, stream: StreamId, points: &[SyncPoint]) {
        let after = device.mark(stream).map_or(0, |point| point.value);
        let mut state = self.lock();
        let is_kept = |point: &SyncPoint| {
            state.shown(point.stream, u64::MAX, &mut HashSet::new()) < point.value
        };
        let points: Points = points.iter().copied().filter(is_kept).collect();
        // What completes by hand does so when it is said, whatever it waits for.
        if !points.is_empty() && !state.by_hand.contains_key(&stream) {
            state.gates.entry(stream).or_default().push(Gate { after, points });
        }
    }

    fn mapped(
        &self,
        device: &dyn Device,
        point: Option<SyncPoint>,
    ) -> Result<Option<SyncPoint>, DeviceError> {
        point.map_or(Ok(()), |point| settle(device, point))?;
        Ok(None)
    }
}
