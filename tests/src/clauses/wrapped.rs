//! Streams of another API, wrapped: work that Terrane did not submit is covered by a mark only.

use terrane_core::point::Points;
use terrane_core::{Error, Limit, Request, Wait};

use super::memory::start;
use super::{allocator, device};
use crate::clause::{Blame, Clause, Need, Outcome, ensure, equal, fails};
use crate::rig::Rig;

use Need::Wrapped;

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "wrapped.mark",
        "A mark on a wrapped stream covers what another API submitted before it, and nothing after.",
        &[Wrapped],
        "Device::mark",
        Blame::Backend,
        mark,
    ),
    device(
        "wrapped.order",
        "Our work behind a mark of a wrapped stream waits for it, and theirs behind our point.",
        &[Wrapped],
        "Device::wait_on_stream",
        Blame::Backend,
        order,
    ),
    allocator(
        "wrapped.free",
        "A wrapped stream's block is not handed out before what another API did with it is over.",
        &[Wrapped],
        "Allocator::free, Device::is_foreign",
        free,
    ),
    allocator(
        "wrapped.retire",
        "What a wrapped stream owes is settled when it is retired, its own work included.",
        &[Wrapped],
        "Allocator::retire_stream",
        retire,
    ),
];

const MIB: u64 = 1 << 20;

fn mark(rig: &Rig) -> Outcome {
    let theirs = rig.wrapped_stream()?;
    ensure!(rig.device().is_foreign(theirs), "a wrapped stream is not told apart");
    ensure!(!rig.device().is_foreign(rig.stream()?), "a stream of our own counts as wrapped");
    let before = rig.theirs(theirs, &[])?;
    let point = rig.device().mark(theirs)?;
    // A mark may be made when somebody asks for it; a model makes it at once.
    if rig.sim().is_err() {
        ensure!(!rig.is_reached(point)?, "a mark is reached before the work that it covers");
    }
    let after = rig.theirs(theirs, &[])?;
    ensure!(!rig.is_reached(point)?, "a mark is reached before the work that it covers");
    before.finish();
    rig.wait(point)?;
    ensure!(!rig.is_reached(after.point)?, "work after the mark is done");
    after.finish();
    rig.wait(rig.device().mark(theirs)?)
}

fn order(rig: &Rig) -> Outcome {
    let (theirs, ours) = (rig.wrapped_stream()?, rig.stream()?);
    let place = start(rig.plain(4096)?);
    let busy = rig.theirs(theirs, &[])?;
    let mark = rig.device().mark(theirs)?;
    rig.device().wait_on_stream(ours, &[mark])?;
    let filled = rig.device().fill(ours, place, 4096, 7)?;
    ensure!(!rig.is_reached(filled)?, "our work did not wait for theirs");
    busy.finish();
    rig.wait(filled)?;
    // Ours is busy as long as a third stream is.
    let third = rig.wrapped_stream()?;
    let busy = rig.theirs(third, &[])?;
    rig.device().wait_on_stream(ours, &[busy.point])?;
    let filled = rig.device().fill(ours, place, 4096, 9)?;
    rig.device().wait_on_stream(theirs, &[filled])?;
    let behind = rig.theirs(theirs, &[])?;
    behind.finish();
    ensure!(!rig.is_reached(filled)?, "our work did not wait for the third stream");
    ensure!(!rig.is_reached(behind.point)?, "their work did not wait for ours");
    busy.finish();
    rig.wait(behind.point)
}

fn free(rig: &Rig) -> Outcome {
    let (theirs, ours) = (rig.wrapped_stream()?, rig.stream()?);
    let alloc = rig.alloc_with(|config| config.limits = vec![Limit::Bytes(6 * MIB)])?;
    let block = alloc.get(4 * MIB, theirs)?;
    let at = alloc.info(block)?.place;
    // Nobody tells Terrane of it.
    let busy = rig.theirs(theirs, &[(at, 4 * MIB)])?;
    alloc.free(block)?;
    let request = Request::new(4 * MIB, ours);
    let error = Error::WouldWait { asked: 4 * MIB };
    fails(&alloc.alloc(&request.wait(Wait::Never)).map(drop), &error, "memory in use")?;
    let got = alloc.alloc(&request)?;
    let waits = got.waits.iter().find(|point| point.stream == theirs);
    let Some(point) = waits else {
        return Err(crate::Stop::failed("the block came without the point of their work"));
    };
    ensure!(!rig.is_reached(point)?, "the point does not cover their work");
    let filled = alloc.write(ours, got.handle, 0, &[1; 64])?;
    ensure!(!rig.is_reached(filled)?, "our work did not wait for theirs");
    busy.finish();
    rig.wait(filled)?;
    alloc.free(got.handle)?;
    alloc.sound()
}

fn retire(rig: &Rig) -> Outcome {
    let (theirs, ours) = (rig.wrapped_stream()?, rig.stream()?);
    let alloc = rig.alloc()?;
    let block = alloc.get(MIB, theirs)?;
    let at = alloc.info(block)?.place;
    let busy = rig.theirs(theirs, &[(at, MIB)])?;
    alloc.free(block)?;
    rig.forget_stream(theirs);
    alloc.retire_stream(theirs)?;
    let stats = alloc.stats();
    let pending = stats.active.current - stats.total.allocated.current;
    ensure!(pending >= MIB, "{pending} bytes are pending while their work goes on");
    busy.finish();
    alloc.release_cached()?;
    equal!(alloc.stats().reserved.current, 0, "bytes reserved in the end");
    let got = alloc.alloc(&Request::new(MIB, ours).wait(Wait::Never))?;
    equal!(got.waits, Points::NONE, "waits behind a stream that is gone");
    alloc.free(got.handle)?;
    alloc.sound()
}
