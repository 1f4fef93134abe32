//! The allocator over this device: hits without driver calls, blocks named by address and used by
//! a program's own streams, graphs that replay while other memory comes and goes.

use std::sync::Arc;

use cudarc::driver::sys;
use serde_json::json;
use terrane_core::compact::{Goal, Limits};
use terrane_core::device::{Compute, CopyOp, Device, StreamId};
use terrane_core::{Allocator, Config, Limit, Raw, Request, Wait};
use terrane_cuda::{CudaDevice, Options};

use crate::capture::{capture, raw_of_device, with_context};
use crate::streams::{driver, foreign_stream};
use crate::support::{Failure, GIB, MIB, Outcome, Setup, wait_on};
use crate::{Check, ensure};

pub const CHECKS: [Check; 4] = [
    ("allocator: a hit and its free make no driver call", hits),
    ("allocator: two devices of one process keep apart", apart),
    ("allocator: addresses serve a program's own streams by PyTorch's rules", addresses),
    ("allocator: a graph replays after other memory was moved, trimmed and made anew", graph),
];

/// A device of its own, to be shared with allocators.
pub fn shared(setup: &Setup) -> Result<Arc<CudaDevice>, Failure> {
    Ok(Arc::new(CudaDevice::open(&setup.selector, Options::default())?))
}

/// All calls of the driver so far, but those that time alone causes.
pub fn driver_calls() -> u64 {
    terrane_cuda::calls().iter().map(|stat| stat.count).sum()
}

fn hits(setup: &Setup) -> Outcome {
    let device = shared(setup)?;
    let alloc = Allocator::new(device.clone())?;
    let stream = device.create_stream(Default::default())?;
    let sizes = [512, 4096, 100_000, MIB, 3 * MIB, 20 * MIB];
    let round = |rounds: u32| -> Result<(), Failure> {
        for _ in 0..rounds {
            let held = sizes.map(|bytes| alloc.alloc(&Request::new(bytes, stream)));
            for allocation in held {
                alloc.free(allocation?.handle)?;
            }
        }
        Ok(())
    };
    round(2)?;
    let before = driver_calls();
    round(10_000)?;
    let made = driver_calls() - before;
    ensure!(made == 0, "{made} driver calls in 60,000 hits and frees");
    Ok(json!({ "pairs": 60_000, "driver_calls": made }))
}

fn apart(setup: &Setup) -> Outcome {
    let devices = [shared(setup)?, shared(setup)?];
    let made = devices.each_ref().map(|device| -> Result<_, Failure> {
        let alloc = Allocator::new(device.clone())?;
        let stream = device.create_stream(Default::default())?;
        Ok((alloc, stream))
    });
    let [first, second] = made;
    let ((one, s1), (two, s2)) = (first?, second?);
    let a = one.buffer(&Request::new(8 * MIB, s1))?;
    let b = two.buffer(&Request::new(8 * MIB, s2))?;
    ensure!(two.pin(a.handle()).is_err(), "a handle of the other allocator was taken");
    one.write(s1, a.handle(), 0, &[1; 64])?;
    two.write(s2, b.handle(), 0, &[2; 64])?;
    let read = |alloc: &Allocator, stream, handle| -> Result<Vec<u8>, Failure> {
        let ticket = alloc.read(stream, terrane_core::Slice::read(handle).part(0, 64))?;
        alloc.wait(ticket.point, crate::support::LONG)?;
        Ok(alloc.take_read(ticket)?)
    };
    ensure!(read(&one, s1, a.handle())? == [1; 64], "the first device's bytes");
    ensure!(read(&two, s2, b.handle())? == [2; 64], "the second device's bytes");
    Ok(json!(null))
}

/// An allocator by address that holds `most` bytes.
fn small(device: &Arc<CudaDevice>, most: u64) -> Result<Raw, Failure> {
    let config = Config::for_device(device.caps()).limit(Limit::Bytes(most));
    Ok(Allocator::with_config(device.clone(), config)?.raw()?)
}

fn addresses(setup: &Setup) -> Outcome {
    let device = shared(setup)?;
    let theirs = foreign_stream(setup)?;
    // SAFETY: the stream is alive until it is retired below.
    let guest = unsafe { device.wrap_stream(theirs as u64) }?;
    let own = device.create_stream(Default::default())?;
    let bytes = setup.size(GIB, 32 * MIB);
    let raw = small(&device, bytes + 64 * MIB)?;
    let mut waited = 0;
    for round in 1..=20_u32 {
        let address = raw.alloc(bytes, own)?;
        ensure!(address != 0, "null");
        for word in [0, 1, 2, round] {
            // SAFETY: the block is live, and its free is told of this stream.
            let code = unsafe { sys::cuMemsetD32Async(address, word, bytes as usize / 4, theirs) };
            driver("cuMemsetD32Async", code)?;
        }
        raw.record_stream(address, guest)?;
        raw.free(address)?;
        let early = raw.alloc_as(&Request::new(bytes, own).wait(Wait::Never));
        waited += u32::from(early.is_err());
        if let Ok(address) = early {
            raw.free(address)?;
        }
        // Handed out again with a wait in the stream: what we write must come last.
        let again = raw.alloc(bytes, own)?;
        let place = raw.allocator().pin(raw.handle(again)?)?.at().place;
        wait_on(&device, device.fill(own, place, bytes, 0xABCD)?)?;
        let ticket = device.read(own, place, 4)?;
        wait_on(&device, ticket.point)?;
        let got = device.take_read(ticket)?;
        ensure!(got == 0xABCD_u32.to_le_bytes(), "round {round}: the guest wrote after its time");
        raw.free(again)?;
    }
    ensure!(setup.quick || waited > 0, "the guest's work was never seen to run");
    wait_on(&device, device.mark(guest)?)?;
    raw.allocator().retire_stream(guest)?;
    // SAFETY: retired, so nobody uses it any more.
    driver("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(theirs) })?;
    raw.allocator().check()?;
    Ok(json!({ "rounds": 20, "rounds_in_which_the_memory_was_still_in_use": waited }))
}

/// A block's place.
fn place(
    alloc: &Allocator,
    handle: terrane_core::Handle,
) -> Result<terrane_core::device::Place, Failure> {
    Ok(alloc.pin(handle)?.at().place)
}

/// Words that differ from a region's pattern.
fn wrong(
    device: &CudaDevice,
    stream: StreamId,
    region: terrane_core::device::Region,
) -> Result<Vec<u64>, Failure> {
    let ticket = device.verify(stream, &[region])?;
    wait_on(device, ticket.point)?;
    Ok(device.take_report(ticket)?)
}

fn graph(setup: &Setup) -> Outcome {
    let device = shared(setup)?;
    with_context(&device, || {
        // Blocks of plain segments are what moves; with pages there is nothing to move.
        let mut config = Config::for_device(device.caps());
        config.paging = false;
        let alloc = Allocator::with_config(device.clone(), config)?;
        let stream: StreamId = device.create_stream(Default::default())?;
        let raw = raw_of_device(&device, stream)?;
        let bytes = 8 * MIB;
        let source = alloc.buffer(&Request::new(bytes, stream).movable(false))?;
        let target = alloc.buffer(&Request::new(bytes, stream).movable(false))?;
        let (from, to) = (place(&alloc, source.handle())?, place(&alloc, target.handle())?);
        let mut owner = None;
        let captured = capture(raw, || {
            // Within the capture: a block of the graph's own, freed before its end.
            let middle = alloc.alloc(&Request::new(bytes, stream))?.handle;
            let at = place(&alloc, middle)?;
            device.copy(stream, &[CopyOp { from, to: at, bytes }])?;
            device.copy(stream, &[CopyOp { from: at, to, bytes }])?;
            alloc.free(middle)?;
            owner = alloc.graph(stream)?;
            Ok(())
        })?;
        let owner = owner.ok_or("the capture has no graph")?;
        let region = |place, seed| terrane_core::device::Region { place, bytes, seed };
        let mut moved = 0;
        for round in 0..12 {
            // Other memory comes, is used, moves, goes and is given back to the driver.
            let mut others = (1..16)
                .map(|_| alloc.buffer(&Request::new(bytes, stream)))
                .collect::<Result<Vec<_>, _>>()?;
            for (seed, other) in (100..).zip(&others) {
                device.fill_pattern(stream, &[region(place(&alloc, other.handle())?, seed)])?;
            }
            device.fill_pattern(stream, &[region(from, round)])?;
            wait_on(&device, device.mark(stream)?)?;
            let mut seed = 99;
            let mut kept = Vec::new();
            others.retain(|_| {
                seed += 1;
                kept.push(seed);
                seed % 3 == 0
            });
            kept.retain(|seed| seed % 3 == 0);
            moved += alloc.compact(Goal::Release { bytes: u64::MAX }, Limits::NONE)?.bytes;
            for (&seed, other) in kept.iter().zip(&others) {
                let at = region(place(&alloc, other.handle())?, seed);
                ensure!(wrong(&device, stream, at)? == [0], "round {round}: block {seed} differs");
            }
            drop(others);
            alloc.trim(0)?;
            captured.launch(raw)?;
            let wrong = wrong(&device, stream, region(to, round))?;
            ensure!(wrong == [0], "round {round}: {wrong:?} words differ");
        }
        wait_on(&device, device.mark(stream)?)?;
        captured.destroy()?;
        alloc.release_graph(owner)?;
        drop((source, target));
        alloc.check()?;
        alloc.trim(0)?;
        let left = alloc.stats().reserved.current;
        ensure!(left == 0, "{left} bytes stayed after the graph was released");
        Ok(json!({ "rounds": 12, "moved_bytes": moved }))
    })
}
