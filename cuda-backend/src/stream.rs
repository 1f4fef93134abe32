//! Streams: numbering submissions, and finding out by events how far the device is.
//!
//! Events are recorded lazily: only when somebody asks about a point that no recorded event
//! covers. One event then covers every point given out before it, so a thousand frees share one.
//!
//! ```text
//! values   1 . . reached . . . recorded . . . submitted
//!                        ^ events pending     ^ the next event will stand here
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::thread::ThreadId;

use terrane_core::device::{DeviceError, StreamId, SyncPoint};

use crate::driver::{Answer, CaptureState, Driver, RawStream};
use crate::event::Event;
use crate::inner::{Inner, lock, read, write};

/// Events outstanding on a stream up to which every question records one more. Beyond, questions
/// are answered by those that are there.
const MAX_EVENTS: usize = 16;

/// Where a stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Made here and destroyed here.
    Own,
    /// The program's.
    Foreign,
    /// The default stream of one thread: under its handle the driver understands the default
    /// stream of whichever thread calls.
    PerThread(ThreadId),
}

/// An ordered lane of work.
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) raw: RawStream,
    pub(crate) origin: Origin,
    /// Whether others submit to it as well.
    shared: AtomicBool,
    /// The largest value known to be reached.
    reached: AtomicU64,
    lane: Mutex<Lane>,
}

#[derive(Default)]
struct Lane {
    /// The last value given out.
    submitted: u64,
    /// The last value that an event covers.
    recorded: u64,
    /// Recorded and not known to be done, by value.
    events: VecDeque<(u64, Arc<Event>)>,
    retired: bool,
}

impl Stream {
    fn new(id: StreamId, raw: RawStream, origin: Origin) -> Self {
        let shared = AtomicBool::new(origin != Origin::Own);
        Self { id, raw, origin, shared, reached: AtomicU64::new(0), lane: Mutex::default() }
    }

    fn point(&self, value: u64) -> SyncPoint {
        SyncPoint { stream: self.id, value }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// From now on others may submit to it. Whether that is new.
    fn share(&self) -> Result<bool, DeviceError> {
        // With the lane, so that no handle is given out that a retirement is about to destroy.
        let lane = lock(&self.lane);
        if lane.retired {
            return Err(DeviceError::UnknownStream);
        }
        Ok(!self.shared.swap(true, Ordering::Relaxed))
    }

    /// Whether the handle means this stream on the calling thread.
    fn is_here(&self) -> bool {
        match self.origin {
            Origin::PerThread(thread) => std::thread::current().id() == thread,
            Origin::Own | Origin::Foreign => true,
        }
    }

    /// What the driver says of the stream's capture. Pre: entered.
    pub(crate) fn capture_state(&self, inner: &Inner) -> Answer<CaptureState> {
        self.capture_in(inner, &lock(&self.lane))
    }

    fn capture_in(&self, inner: &Inner, lane: &Lane) -> Answer<CaptureState> {
        // A capture is begun by who has the handle, and joined by waiting for an event recorded in
        // one, which `record` refuses: so a stream that is only ours takes part in none.
        if lane.retired || !self.is_shared() || !self.is_here() {
            return Ok(CaptureState::None);
        }
        inner.driver.capture_state(self.raw)
    }

    fn open_lane(&self) -> Result<MutexGuard<'_, Lane>, DeviceError> {
        let lane = lock(&self.lane);
        if lane.retired {
            return Err(DeviceError::UnknownStream);
        }
        if !self.is_here() {
            return Err(DeviceError::InvalidCall("another thread's default stream"));
        }
        Ok(lane)
    }

    /// Makes driver calls that submit work, and gives the point that covers it. Pre: entered.
    pub(crate) fn submit(
        &self,
        work: impl FnOnce(RawStream) -> Result<(), DeviceError>,
    ) -> Result<SyncPoint, DeviceError> {
        let mut lane = self.open_lane()?;
        // Counted also when the work fails: a part of it may have been submitted.
        lane.submitted += 1;
        work(self.raw)?;
        Ok(self.point(lane.submitted))
    }

    /// Makes the stream wait for `events`. Pre: entered.
    pub(crate) fn wait_for(&self, inner: &Inner, events: &[Arc<Event>]) -> Result<(), DeviceError> {
        let _lane = self.open_lane()?;
        for event in events {
            inner.driver.stream_wait(self.raw, event.raw).map_err(|fault| inner.fail(fault))?;
        }
        Ok(())
    }

    /// A point that covers what was submitted so far.
    pub(crate) fn mark(&self) -> Result<SyncPoint, DeviceError> {
        let mut lane = lock(&self.lane);
        if lane.retired {
            return Err(DeviceError::UnknownStream);
        }
        // A value that no event covers yet covers whatever others submit until one is recorded.
        if self.is_shared() && lane.submitted == lane.recorded {
            lane.submitted += 1;
        }
        Ok(self.point(lane.submitted))
    }

    /// The largest value known to be reached, where nothing newer could be found out.
    pub(crate) fn settled(&self) -> Option<u64> {
        let lane = lock(&self.lane);
        let settled = lane.events.is_empty() && lane.submitted == lane.recorded;
        settled.then(|| self.reached.load(Ordering::Relaxed))
    }

    /// Whether `value` is known to be reached, without asking the driver.
    fn has_reached(&self, value: u64) -> bool {
        value <= self.reached.load(Ordering::Acquire)
    }

    /// The largest value known to be reached. Pre: entered.
    pub(crate) fn advance(&self, inner: &Inner) -> Result<u64, DeviceError> {
        let mut lane = lock(&self.lane);
        self.reap(inner, &mut lane)?;
        if lane.submitted > lane.recorded && lane.events.len() < MAX_EVENTS {
            match self.record(inner, &mut lane) {
                Ok(()) => self.reap(inner, &mut lane)?,
                // What was recorded before the capture could still be asked.
                Err(DeviceError::Capturing) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.reached.load(Ordering::Relaxed))
    }

    /// Whether `value` is reached; records an event for it if there is none. Pre: entered.
    pub(crate) fn is_reached(&self, inner: &Inner, value: u64) -> Result<bool, DeviceError> {
        if self.has_reached(value) {
            return Ok(true);
        }
        let mut lane = lock(&self.lane);
        self.cover(inner, &mut lane, value)?;
        self.reap(inner, &mut lane)?;
        Ok(value <= self.reached.load(Ordering::Relaxed))
    }

    /// An event that covers `value`, or `None` where it is known to be reached. Pre: entered.
    pub(crate) fn covering(
        &self,
        inner: &Inner,
        value: u64,
    ) -> Result<Option<Arc<Event>>, DeviceError> {
        if self.has_reached(value) {
            return Ok(None);
        }
        let mut lane = lock(&self.lane);
        self.cover(inner, &mut lane, value)?;
        let at = lane.events.partition_point(|(covered, _)| *covered < value);
        Ok(lane.events.get(at).map(|(_, event)| Arc::clone(event)))
    }

    fn cover(&self, inner: &Inner, lane: &mut Lane, value: u64) -> Result<(), DeviceError> {
        if value > lane.submitted {
            return Err(DeviceError::InvalidCall("a point that was never given out"));
        }
        if value > lane.recorded { self.record(inner, lane) } else { Ok(()) }
    }

    /// Drops the events that are done and notes how far the stream is.
    fn reap(&self, inner: &Inner, lane: &mut Lane) -> Result<(), DeviceError> {
        while let Some((value, event)) = lane.events.front() {
            if !inner.driver.event_query(event.raw).map_err(|fault| inner.fail(fault))? {
                break;
            }
            self.reached.store(*value, Ordering::Release);
            lane.events.pop_front();
        }
        Ok(())
    }

    fn record(&self, inner: &Inner, lane: &mut Lane) -> Result<(), DeviceError> {
        let driver = inner.driver.as_ref();
        let event = inner.events.take().map_err(|fault| inner.fail(fault))?;
        if self.is_here() {
            // An event recorded in a capture could never be asked, and would join the graph.
            let state = self.capture_in(inner, lane).map_err(|fault| inner.fail(fault))?;
            if state != CaptureState::None {
                return Err(DeviceError::Capturing);
            }
            driver.event_record(event.raw, self.raw)
        } else {
            // The handle means another stream here; an event behind all work covers this too.
            driver.event_record_all(event.raw, inner.context)
        }
        .map_err(|fault| inner.fail(fault))?;
        lane.recorded = lane.submitted;
        lane.events.push_back((lane.submitted, Arc::new(event)));
        Ok(())
    }

    /// Ends the stream. Pre: entered.
    pub(crate) fn retire(&self, inner: &Inner) -> Result<(), DeviceError> {
        let mut lane = lock(&self.lane);
        if lane.retired {
            return Err(DeviceError::UnknownStream);
        }
        if lane.submitted > lane.recorded {
            self.record(inner, &mut lane)?;
        }
        if self.origin == Origin::Own {
            inner.driver.stream_destroy(self.raw).map_err(|fault| inner.fail(fault))?;
        }
        lane.retired = true;
        Ok(())
    }

    /// Ends the stream of a lost device without a driver call.
    fn abandon(&self) -> Result<(), DeviceError> {
        let mut lane = lock(&self.lane);
        if lane.retired {
            return Err(DeviceError::UnknownStream);
        }
        lane.retired = true;
        Ok(())
    }

    fn is_retired(&self) -> bool {
        lock(&self.lane).retired
    }
}

/// All streams that ever were, by number.
#[derive(Default)]
pub(crate) struct Streams {
    all: RwLock<Vec<Arc<Stream>>>,
    /// Those in use whose handle the program has: only they can be captured.
    shared: RwLock<Vec<Arc<Stream>>>,
    /// How many those are, to be asked without the lock.
    shared_count: AtomicUsize,
}

impl Streams {
    pub(crate) fn get(&self, id: StreamId) -> Result<Arc<Stream>, DeviceError> {
        read(&self.all).get(id.0 as usize).cloned().ok_or(DeviceError::UnknownStream)
    }

    /// Adds a stream. A foreign one that is there already keeps its number.
    pub(crate) fn add(&self, raw: RawStream, origin: Origin) -> Result<StreamId, DeviceError> {
        let mut all = write(&self.all);
        let known = all
            .iter()
            .find(|stream| stream.raw == raw && stream.origin == origin && !stream.is_retired());
        if let Some(stream) = known {
            return Ok(stream.id);
        }
        let Ok(number) = u32::try_from(all.len()) else {
            return Err(DeviceError::TooManyObjects { limit: u64::from(u32::MAX) });
        };
        let stream = Arc::new(Stream::new(StreamId(number), raw, origin));
        if stream.is_shared() {
            self.list_shared(&mut write(&self.shared), &stream);
        }
        all.push(stream);
        Ok(StreamId(number))
    }

    /// The handle of a stream, for the program: the stream counts as shared from now on.
    pub(crate) fn share(&self, id: StreamId) -> Result<RawStream, DeviceError> {
        let stream = self.get(id)?;
        let mut shared = write(&self.shared);
        if stream.share()? {
            self.list_shared(&mut shared, &stream);
        }
        Ok(stream.raw)
    }

    fn list_shared(&self, shared: &mut Vec<Arc<Stream>>, stream: &Arc<Stream>) {
        shared.push(Arc::clone(stream));
        self.shared_count.store(shared.len(), Ordering::Release);
    }

    fn forget_shared(&self, id: StreamId) {
        let mut shared = write(&self.shared);
        shared.retain(|stream| stream.id != id);
        self.shared_count.store(shared.len(), Ordering::Release);
    }

    /// Whether the program has the handle of any stream in use.
    pub(crate) fn any_shared(&self) -> bool {
        self.shared_count.load(Ordering::Acquire) > 0
    }

    /// Whether any stream whose handle the program has fulfils the condition.
    pub(crate) fn any_of_shared(&self, condition: impl Fn(&Stream) -> bool) -> bool {
        read(&self.shared).iter().any(|stream| condition(stream))
    }

    /// Destroys our own streams. Pre: entered, and no work runs.
    pub(crate) fn clear(&self, driver: &dyn Driver) {
        for stream in write(&self.all).drain(..) {
            if stream.origin == Origin::Own && !stream.is_retired() {
                let _ = driver.stream_destroy(stream.raw);
            }
        }
    }
}

impl Inner {
    pub(crate) fn retire_stream(&self, id: StreamId) -> Result<(), DeviceError> {
        let stream = self.streams.get(id)?;
        match self.enter_to_release()? {
            Some(_entered) => stream.retire(self)?,
            None => stream.abandon()?,
        }
        if stream.is_shared() {
            self.streams.forget_shared(id);
        }
        Ok(())
    }

    /// Whether a point is known to be reached, without asking the driver.
    pub(crate) fn has_reached(&self, point: SyncPoint) -> Result<bool, DeviceError> {
        Ok(point.value == 0 || self.streams.get(point.stream)?.has_reached(point.value))
    }

    /// Whether a point is reached. Pre: entered.
    pub(crate) fn is_reached(&self, point: SyncPoint) -> Result<bool, DeviceError> {
        if point.value == 0 {
            return Ok(true);
        }
        self.streams.get(point.stream)?.is_reached(self, point.value)
    }

    pub(crate) fn wait_on_stream(
        &self,
        id: StreamId,
        points: &[SyncPoint],
    ) -> Result<(), DeviceError> {
        let target = self.streams.get(id)?;
        let _entered = self.enter()?;
        let mut events = Vec::new();
        for &point in points.iter().filter(|point| point.value > 0) {
            if point.stream != id {
                let source = self.streams.get(point.stream)?;
                events.extend(source.covering(self, point.value)?);
            }
        }
        target.wait_for(self, &events)
    }
}
