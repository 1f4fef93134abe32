//! One thread that allocates, writes, hands on, verifies and frees.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use terrane_core::device::{Device, DeviceError, Region, StreamId, SyncPoint, Ticket};
use terrane_core::{Error, Handle, MemoryKind, Request, Slice, Wait};
use terrane_tests::Random;

use crate::epoch::Stage;

/// Blocks that a thread holds at most.
const HELD: usize = 24;
/// Comparisons under way at most.
const TICKETS: usize = 24;
/// Waits of a second until work that is not done counts as stuck.
const WAITS: u32 = 120;

/// A live block, and the pattern that it holds if that is known.
#[derive(Clone, Copy)]
pub struct Item {
    pub handle: Handle,
    pub stream: StreamId,
    pub seed: Option<u64>,
    /// What its offset is a multiple of, wherever it is moved.
    pub align: u64,
}

/// Whether memory is short, which the limit makes sure of.
pub const fn is_shortage(error: Error) -> bool {
    matches!(
        error,
        Error::OutOfMemory(_) | Error::OverUserLimit { .. } | Error::TooManyObjects { .. }
    )
}

impl Stage {
    /// Fills a block with a pattern; tells whether it holds it.
    pub fn paint(&self, stream: StreamId, handle: Handle, seed: u64) -> bool {
        let mut submission = self.alloc.submit(stream);
        let Some(at) = self.expect("resolving", submission.resolve(handle)) else { return false };
        let region = Region { place: at.place, bytes: at.bytes, seed };
        let Some(compute) = self.device.compute() else { return false };
        let filled = compute.fill_pattern(stream, &[region]).map_err(Error::from);
        let Some(point) = self.expect("a fill", filled) else { return false };
        submission.close_at(point);
        true
    }

    /// Submits the comparison of a block with what it is to hold.
    pub fn submit_verify(&self, stream: StreamId, item: &Item) -> Option<Ticket> {
        let seed = item.seed?;
        let mut submission = self.alloc.submit(stream);
        let at = self.expect("resolving", submission.resolve(item.handle))?;
        if !at.place.offset.is_multiple_of(item.align) {
            self.find(format!("{at:?} is no multiple of {}", item.align));
        }
        let region = Region { place: at.place, bytes: at.bytes, seed };
        let verified = self.device.compute()?.verify(stream, &[region]).map_err(Error::from);
        let ticket = self.expect("a comparison", verified)?;
        submission.close_at(ticket.point);
        Some(ticket)
    }

    /// Waits until a point is reached. Waits are counted, not timed: of a process that was stopped
    /// for a while, no more than one runs out. A point that is not reached in all of them is a
    /// finding.
    fn reached(&self, what: &str, point: SyncPoint) -> bool {
        for _ in 0..WAITS {
            loop {
                match self.alloc.wait(point, Duration::from_secs(1)) {
                    Ok(()) => return true,
                    Err(Error::TimedOut { .. }) => break,
                    // Waiting may be what fails.
                    Err(Error::Device(DeviceError::Driver { .. })) if self.is_faulty() => {}
                    Err(error) => {
                        self.find(format!("a wait for {what}: {error}"));
                        return false;
                    }
                }
            }
        }
        self.find(format!("{what} was not done within {WAITS} waits of a second"));
        false
    }

    /// Waits for a comparison.
    pub fn take(&self, ticket: Ticket) {
        let Some(compute) = self.device.compute() else { return };
        if !self.reached("a comparison", ticket.point) {
            return;
        }
        let report = compute.take_report(ticket);
        match report.as_deref() {
            Ok([0]) => {
                self.verified.fetch_add(1, Ordering::Relaxed);
            }
            Ok(words) => self.find(format!("{words:?} words of a block differ")),
            Err(DeviceError::Driver { .. }) => {}
            Err(error) => self.find(format!("taking a report: {error}")),
        }
    }

    pub fn verify_and_free(&self, item: Item) {
        let ticket = self.submit_verify(item.stream, &item);
        self.expect("a free", self.alloc.free(item.handle));
        ticket.into_iter().for_each(|ticket| self.take(ticket));
    }

    /// Allocates, writes, moves on and frees until the round is over.
    pub fn work(&self, thread: u64, seed: u64) {
        let own = self.streams[thread as usize];
        let mut random = Random::new(seed.wrapping_mul(1000) + thread);
        let mut held: Vec<Item> = Vec::new();
        let mut tickets: VecDeque<Ticket> = VecDeque::new();
        let mut op = 0;
        while !self.is_over() {
            op += 1;
            let _busy = self.calm.read();
            let pattern = thread << 40 | op;
            match random.below(12) {
                0..4 if held.len() < HELD => held.extend(self.make(own, pattern, &mut random)),
                4 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let item = &mut held[at];
                    item.seed = self.paint(item.stream, item.handle, pattern).then_some(pattern);
                }
                5 if !held.is_empty() => {
                    let item = held[random.below(held.len() as u64) as usize];
                    drop(self.expect("a guard", self.alloc.pin(item.handle)));
                }
                6 => self.exchange(&mut held, &mut random),
                7 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    self.enlarge(&mut held[at], pattern, &mut random);
                }
                8 => self.short_lived(own, &mut random),
                _ if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let item = held.swap_remove(at);
                    let stream = self.streams[random.below(self.streams.len() as u64 - 1) as usize];
                    tickets.extend(self.submit_verify(stream, &item));
                    self.expect("a free", self.alloc.free(item.handle));
                }
                _ => {}
            }
            while tickets.len() > TICKETS {
                tickets.pop_front().into_iter().for_each(|ticket| self.take(ticket));
            }
        }
        held.into_iter().for_each(|item| self.verify_and_free(item));
        tickets.into_iter().for_each(|ticket| self.take(ticket));
    }

    /// A request, and the alignment that it asks for.
    fn request(&self, own: StreamId, random: &mut Random) -> (Request<'static>, u64) {
        let bytes = match random.below(8) {
            0..5 => random.size(4, 64 << 10),
            5..7 => random.size(4, 1 << 20),
            _ => random.size(1 << 20, 6 << 20),
        };
        let request = Request::new(bytes.next_multiple_of(4), own);
        let align = self.device.caps().plain_base_align.get().min(1 << 12);
        let chosen = random.below(10);
        let request = match chosen {
            0 => request.wait(Wait::Never),
            1 => request.wait(Wait::OnHost(Duration::from_millis(20))),
            2 => request.movable(false),
            3 => request.align(align),
            4 => request.zeroed(true),
            5 => request.kind(MemoryKind::Upload),
            _ => request,
        };
        (request, if chosen == 3 { align } else { 1 })
    }

    fn make(&self, own: StreamId, pattern: u64, random: &mut Random) -> Option<Item> {
        let (request, align) = self.request(own, random);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let got = self.alloc.alloc(&request);
        if got.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        let handle = self.expect("a request", got)?.handle;
        let painted = self.paint(own, handle, pattern);
        Some(Item { handle, stream: own, seed: painted.then_some(pattern), align })
    }

    /// Gives a block to another thread, or takes one.
    fn exchange(&self, held: &mut Vec<Item>, random: &mut Random) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() < 16 && !held.is_empty() {
            let at = random.below(held.len() as u64) as usize;
            shared.push(held.swap_remove(at));
        } else if held.len() < HELD {
            held.extend(shared.pop());
        }
    }

    fn enlarge(&self, item: &mut Item, pattern: u64, random: &mut Random) {
        let Ok(info) = self.alloc.info(item.handle) else {
            self.find("a live block is not known");
            return;
        };
        let bytes = (info.requested + random.size(4, 64 << 10)).next_multiple_of(4);
        if self.expect("growing", self.alloc.grow(item.handle, bytes)).is_some() {
            item.seed = self.paint(item.stream, item.handle, pattern).then_some(pattern);
        }
    }

    /// A buffer that is written, read and dropped.
    fn short_lived(&self, own: StreamId, random: &mut Random) {
        let (request, _) = self.request(own, random);
        self.requests.fetch_add(1, Ordering::Relaxed);
        let Some(buffer) = self.expect("a buffer", self.alloc.buffer(&request)) else { return };
        let data = random.below(u64::MAX).to_le_bytes();
        let part = data.len().min(buffer.bytes() as usize) & !3;
        let written = self.alloc.write(own, buffer.handle(), 0, &data[..part]);
        if self.expect("a write", written).is_none() {
            return;
        }
        let slice = Slice::read(buffer.handle()).part(0, part as u64);
        let Some(ticket) = self.expect("a read", self.alloc.read(own, slice)) else { return };
        drop(buffer);
        // A result that is not taken stays with the device.
        if !self.reached("a read", ticket.point) {
            return;
        }
        match self.alloc.take_read(ticket) {
            Ok(bytes) if bytes != data[..part] => {
                self.find("what was written is not what was read");
            }
            _ => {}
        }
    }
}
