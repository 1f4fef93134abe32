//! No call that may reach a driver is made while a lock of the allocator is held.

#![allow(clippy::unwrap_used, clippy::panic)] // a failed test panics

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::Sim;
use terrane_core::device::wrap::{Ask, Watched};
use terrane_core::device::{Device, HeapId, StreamSpec};
use terrane_core::{Allocator, Config, Limit, Request, Slice, Wait};

const MIB: u64 = 1 << 20;

/// How often each call was made, and with a lock held.
type Seen = Arc<Mutex<BTreeMap<CallKind, (u32, u32)>>>;

/// Whether another thread can take the allocator's lock now.
fn is_open(alloc: &Allocator) -> bool {
    let (tell, told) = mpsc::channel();
    let alloc = alloc.clone();
    std::thread::spawn(move || {
        let left = alloc.budget_left(HeapId(0));
        // Nobody listens any more when the lock was held.
        let _ = tell.send(left);
    });
    told.recv_timeout(Duration::from_millis(500)).is_ok()
}

fn watched(sim: Sim, limit: u64) -> (Allocator, Arc<Watched>, Seen) {
    let seen = Seen::default();
    let alloc: Arc<OnceLock<Allocator>> = Arc::default();
    let (notes, theirs) = (Arc::clone(&seen), Arc::clone(&alloc));
    let device = Watched::new(sim.open().shared(), move |ask: &Ask| {
        // A mark makes no driver call, by contract, so it may be asked for under the lock.
        let Some(alloc) = theirs.get().filter(|_| ask.kind != CallKind::Mark) else { return };
        let held = !is_open(alloc);
        let mut notes = notes.lock().unwrap();
        let entry = notes.entry(ask.kind).or_default();
        *entry = (entry.0 + 1, entry.1 + u32::from(held));
    });
    let config = Config::for_device(device.caps()).limit(Limit::Bytes(limit));
    let made = Allocator::with_config(device.clone(), config).unwrap();
    alloc.set(made.clone()).unwrap();
    (made, device, seen)
}

#[test]
fn no_call_to_the_device_is_made_under_a_lock_of_the_allocator() {
    for model in [Sim::cuda, Sim::vulkan, Sim::slabs] {
        let (alloc, device, seen) = watched(model().bytes(true), 64 * MIB);
        let streams = [(); 2].map(|()| device.create_stream(StreamSpec::default()).unwrap());
        let [s0, s1] = streams;
        // Growth, hits, contents, copies, views, waits of both sorts, shortage and trimming.
        let zeroed = alloc.buffer(&Request::new(MIB, s0).zeroed(true)).unwrap();
        let other = alloc.buffer(&Request::new(MIB, s1)).unwrap();
        alloc.write(s0, zeroed.handle(), 0, &[7; 64]).unwrap();
        let (from, to) = (Slice::read(zeroed.handle()), Slice::write(other.handle()));
        alloc.copy(s1, from, to).unwrap();
        let ticket = alloc.read(s1, Slice::read(other.handle()).part(0, 64)).unwrap();
        alloc.wait(ticket.point, Duration::from_secs(5)).unwrap();
        assert_eq!(alloc.take_read(ticket).unwrap(), [7; 64]);
        if device.caps().views {
            alloc.view(other.handle()).unwrap();
        }
        alloc.record_use(zeroed.handle(), s1).unwrap();
        drop((zeroed, other));
        let large = alloc.buffer(&Request::new(40 * MIB, s0)).unwrap();
        let wait = Wait::OnHost(Duration::from_millis(1));
        alloc.buffer(&Request::new(40 * MIB, s1).wait(wait)).unwrap_err();
        drop(large);
        drop(alloc.buffer(&Request::new(40 * MIB, s1).wait(wait)).unwrap());
        alloc.maintain().unwrap();
        alloc.trim(0).unwrap();
        alloc.retire_stream(s0).unwrap();
        let seen = seen.lock().unwrap().clone();
        let calls: u32 = seen.values().map(|(calls, _)| calls).sum();
        assert!(seen.len() >= 8 && calls >= 12, "too little was tried: {seen:?}");
        let under: Vec<_> = seen.iter().filter(|(_, (_, held))| *held > 0).collect();
        assert!(under.is_empty(), "made with the lock held: {under:?}");
    }
}
