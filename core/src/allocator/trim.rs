//! Giving memory back to the device.

use std::time::Duration;

use crate::device::Plain;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::pool::Pool;
use crate::range::SegmentId;

use super::alloc::Asked;
use super::config::allowed_classes;
use super::patience::Patience;
use super::state::State;
use super::{Allocator, Inner};

/// A memory object taken out of its pool, still counted as reserved.
#[derive(Clone, Copy)]
struct Detached {
    pool: u16,
    plain: Plain,
}

impl Allocator {
    /// Gives wholly free segments and pages back until at most `keep_bytes` are reserved, segments
    /// unused for longest and large pages first, and tells how many bytes were given back. Takes
    /// in completed frees first, never waits for work. [`Config::min_reserved`](crate::Config)
    /// bytes stay.
    ///
    /// # Errors
    /// The device's. [`DeviceError::Capturing`](crate::error::DeviceError) while a graph is being
    /// captured.
    pub fn trim(&self, keep_bytes: u64) -> Result<u64, Error> {
        self.inner.refuse_in_capture()?;
        self.inner.reap()?;
        let keep = keep_bytes.max(self.inner.config.min_reserved);
        let above = |state: &State| state.counters.reserved.current.saturating_sub(keep);
        let segments = self.inner.release_idle(|state| above(state) > 0)?;
        Ok(segments + self.inner.release_pages(&above, u64::MAX, &|_| true)?)
    }

    /// Takes `bytes` of device memory from the device ahead of need and keeps them free: later
    /// requests that fit into them make no driver call. The first class of
    /// [`MemoryKind::Device`](crate::kind::MemoryKind) gives them.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc) for want of memory.
    pub fn warm(&self, bytes: u64) -> Result<(), Error> {
        self.inner.refuse_in_capture()?;
        match self.inner.caps().classes_of(crate::kind::MemoryKind::Device).next() {
            Some(class) => self.inner.warm(class, bytes),
            None => Err(Error::NoSuchKind(crate::kind::MemoryKind::Device)),
        }
    }

    /// Waits for all work that freed memory is still ordered behind, then gives every wholly free
    /// segment back: a synchronising release of the cache. Tells how many bytes were given back.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn release_cached(&self) -> Result<u64, Error> {
        self.inner.refuse_in_capture()?;
        self.inner.finish_checks(Duration::MAX)?;
        self.inner.settle(Duration::MAX)?;
        self.trim(0)
    }

    /// Does what time asks for: takes in completed frees, gives back segments above the release
    /// threshold or unused for longer than the age that [`Config`](crate::Config) allows. Tells
    /// how many bytes were given back. Call it where the program idles.
    ///
    /// # Errors
    /// As [`trim`](Self::trim).
    pub fn maintain(&self) -> Result<u64, Error> {
        let inner = &self.inner;
        inner.refuse_in_capture()?;
        inner.reap()?;
        inner.compact_when_idle()?;
        inner.lock().clock.read(&*inner.device);
        let (threshold, min) = (inner.config.release_threshold, inner.config.min_reserved);
        let spare = |state: &State| state.counters.reserved.current.saturating_sub(min);
        let above = |state: &State| state.idle_bytes().saturating_sub(threshold).min(spare(state));
        let mut released = inner.release_idle(|state| above(state) > 0)?;
        released += inner.release_pages(&above, u64::MAX, &|_| true)?;
        let Some(age) = inner.config.max_idle_ms else { return Ok(released) };
        released += inner.release_idle(|state| {
            let oldest = state.oldest_idle().map(|(_, _, since)| since);
            oldest.is_some_and(|since| state.clock.ms().saturating_sub(since) >= age)
                && spare(state) > 0
        })?;
        let before = inner.device.now_ns().saturating_sub(u64::from(age) * 1_000_000);
        released += inner.release_pages(&spare, before, &|_| true)?;
        Ok(released)
    }
}

impl Inner {
    pub(super) fn refuse_in_capture(&self) -> Result<(), Error> {
        if self.device.is_capturing() {
            return Err(crate::error::DeviceError::Capturing.into());
        }
        Ok(())
    }

    /// In guard mode: gives everything back that is free and whose work is done.
    pub(super) fn release_freed(&self) -> Result<(), Error> {
        if self.device.is_capturing() {
            return Ok(());
        }
        self.reap()?;
        self.release_idle(|_| true).map(drop)
    }

    /// Gives wholly free segments back, oldest first, while `more` says so.
    pub(super) fn release_idle(&self, more: impl Fn(&State) -> bool) -> Result<u64, Error> {
        let mut released = 0;
        loop {
            let detached = {
                let mut state = self.lock();
                if !more(&state) {
                    return Ok(released);
                }
                match state.detach_oldest() {
                    Some(detached) => detached,
                    None => return Ok(released),
                }
            };
            released += detached.plain.bytes;
            self.release(detached)?;
        }
    }

    /// Gives a detached memory object back. Its bytes are counted until the device has it.
    fn release(&self, detached: Detached) -> Result<(), Error> {
        let Detached { pool, plain } = detached;
        let outcome = self.device.release_plain(plain.space);
        let mut state = self.lock();
        state.in_flight -= 1;
        let pool = &mut state.pools[usize::from(pool)];
        pool.forget(&plain);
        let (heap, kind, class) = (pool.heap, pool.kind, pool.key.class);
        state.budget.give(heap, plain.bytes);
        state.count_released(kind, plain.bytes);
        let event = Event::new(EventKind::SegmentReleased).a(plain.space.0);
        state.event(event.b(plain.bytes).of(class.0, 0));
        self.unlock_and_tell(state);
        Ok(outcome?)
    }

    /// Gives back what can be given back so that a request's growth may succeed: wholly free
    /// segments of the same heap, until their bytes reach the request's. Tells whether any were.
    pub(super) fn trim_for(&self, asked: &Asked<'_>) -> Result<bool, Error> {
        let heaps: Vec<_> = allowed_classes(self.caps(), &self.config, asked.request)
            .filter_map(|id| self.caps().class(id))
            .map(|class| class.heap)
            .collect();
        let mut released = 0;
        while released < asked.layout.bytes {
            let detached = self.lock().detach_where(|pool| heaps.contains(&pool.heap));
            let Some(detached) = detached else { break };
            released += detached.plain.bytes;
            self.release(detached)?;
        }
        let keys: Vec<_> = allowed_classes(self.caps(), &self.config, asked.request)
            .map(|class| asked.key(class))
            .collect();
        let others = |pool: &Pool| heaps.contains(&pool.heap) && !keys.contains(&pool.key);
        let left = asked.layout.bytes.saturating_sub(released);
        released += self.release_pages(&|_| left, u64::MAX, &others)?;
        // Its own pool's free pages were looked at before. Where they are enough, what stood in
        // the way was that no more may be mapped twice, or that they are longer than the gaps.
        let own = |pool: &Pool| heaps.contains(&pool.heap) && keys.contains(&pool.key);
        let left = asked.layout.bytes.saturating_sub(released);
        if left > 0 && self.lock().could_make(left, &own) {
            released += self.release_pages(&|_| left, u64::MAX, &own)?;
        }
        Ok(released > 0)
    }

    /// Waits until everything that was freed is done, at most `time` on the device's clock.
    pub(super) fn settle(&self, time: Duration) -> Result<(), Error> {
        let mut patience = Patience::new(&*self.device, time);
        loop {
            self.reap()?;
            let points = self.lock().awaited_points();
            let second = Duration::from_secs(1);
            if points.is_empty() || patience.wait(&*self.device, &points, second)?.is_none() {
                return Ok(());
            }
        }
    }
}

impl State {
    /// Whether `bytes` could be made once a pool's wholly free pages are given back.
    fn could_make(&self, bytes: u64, of: &dyn Fn(&Pool) -> bool) -> bool {
        let pools = (0_u16..).zip(&self.pools).filter(|(_, pool)| of(pool));
        pools.map(|(number, _)| number).any(|number| self.could_make_in(number, bytes))
    }

    /// The same of one pool.
    pub(super) fn could_make_in(&self, number: u16, bytes: u64) -> bool {
        let pool = &self.pools[usize::from(number)];
        let free = pool.usage().free_pages;
        free > 0 && self.budget.left(pool.heap).saturating_add(free) >= bytes
    }

    /// Bytes of segments that are wholly free, and of wholly free pages.
    fn idle_bytes(&self) -> u64 {
        let pages: u64 = self.pools.iter().map(|pool| pool.usage().free_pages).sum();
        let segments: u64 = self
            .pools
            .iter()
            .filter(|pool| pool.idle_segments > 0)
            .flat_map(|pool| pool.idle().filter_map(|(id, _)| pool.segment(id)))
            .map(|segment| segment.plain.bytes)
            .sum();
        segments + pages
    }

    /// The segment that has been wholly free and done for longest: pool, segment, since when.
    fn oldest_idle(&self) -> Option<(u16, SegmentId, u32)> {
        self.oldest_idle_where(|_| true)
    }

    fn oldest_idle_where(&self, of: impl Fn(&Pool) -> bool) -> Option<(u16, SegmentId, u32)> {
        (0_u16..)
            .zip(&self.pools)
            .filter(|(_, pool)| pool.idle_segments > 0 && of(pool))
            .flat_map(|(number, pool)| {
                pool.idle()
                    .filter(|(id, _)| pool.is_done(*id))
                    .map(move |(id, since)| (number, id, since))
            })
            .min_by_key(|&(number, id, since)| (since, number, id))
    }

    fn detach_oldest(&mut self) -> Option<Detached> {
        let (pool, id, _) = self.oldest_idle()?;
        self.detach(pool, id)
    }

    fn detach_where(&mut self, of: impl Fn(&Pool) -> bool) -> Option<Detached> {
        let (pool, id, _) = self.oldest_idle_where(of)?;
        self.detach(pool, id)
    }

    fn detach(&mut self, number: u16, id: SegmentId) -> Option<Detached> {
        let pool = &mut self.pools[usize::from(number)];
        let plain = pool.detach(id)?;
        self.in_flight += 1;
        Some(Detached { pool: number, plain })
    }
}
