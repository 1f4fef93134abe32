//! Work that is captured into a graph, and the memory that the graph keeps.

use terrane_core::device::calls::CallKind;
use terrane_core::device::wrap::Logged;
use terrane_core::device::{DeviceError, SpaceId};
use terrane_core::{Config, Error, Limit, Request, Wait};

use super::allocator;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal};
use crate::rig::Rig;

use Need::{Busy, Capture};

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "capture.private",
        "Memory of a capture serves that graph again, and nobody else until it is released.",
        &[Capture],
        "Allocator::graph, Allocator::release_graph",
        private,
    ),
    allocator(
        "capture.no-calls",
        "A request that runs short in a capture is told so, and nothing is awaited or given back.",
        &[Capture, Busy],
        "Error::OutOfMemoryInCapture",
        no_calls,
    ),
    allocator(
        "capture.frees-later",
        "What was freed outside while a capture was open serves again when it has ended.",
        &[Capture],
        "Device::is_capturing",
        frees_later,
    ),
    allocator(
        "capture.no-passes",
        "No pass of moves begins while a capture is open.",
        &[Capture],
        "DeviceError::Capturing",
        no_passes,
    ),
];

const MIB: u64 = 1 << 20;

fn slabs(config: &mut Config) {
    config.paging = false;
    config.limits = vec![Limit::Bytes(64 * MIB)];
}

fn private(rig: &Rig) -> Outcome {
    let [captured, other] = rig.streams()?;
    let alloc = rig.alloc_with(slabs)?;
    let capture = rig.capture(captured)?;
    let first = alloc.get(8 * MIB, captured)?;
    let space = alloc.info(first)?.place.space;
    let graph = alloc.graph(captured)?.ok_or_else(|| Stop::failed("no graph"))?;
    alloc.free(first)?;
    let again = alloc.get(8 * MIB, captured)?;
    equal!(alloc.info(again)?.place.space, space, "segment of the graph's next block");
    alloc.free(again)?;
    capture.end()?;
    let outside = |what: &str| -> Result<SpaceId, Stop> {
        let block = alloc.get(8 * MIB, other)?;
        let space = alloc.info(block)?.place.space;
        alloc.free(block)?;
        alloc.check().map_err(|broken| Stop::failed(format!("{what}: {broken}")))?;
        Ok(space)
    };
    ensure!(outside("under a graph")? != space, "the graph's memory was handed out");
    alloc.release_cached()?;
    ensure!(alloc.stats().reserved.current >= 8 * MIB, "the graph's memory was given back");
    alloc.release_graph(graph)?;
    alloc.release_cached()?;
    equal!(alloc.stats().reserved.current, 0, "bytes reserved once the graph is released");
    alloc.sound()
}

fn no_calls(rig: &Rig) -> Outcome {
    let [captured, other] = rig.streams()?;
    for wait in [Wait::Never, Wait::OnStream, Wait::OnHost(rig.patience())] {
        let logged = Logged::new(rig.shared(), 0);
        let alloc = rig.alloc_on(logged.clone(), slabs)?;
        let (kept, cached) = (alloc.get(40 * MIB, captured)?, alloc.get(16 * MIB, captured)?);
        let busy = rig.busy(other, &[])?;
        alloc.record_use_until(kept, busy.point)?;
        alloc.free(cached)?;
        let capture = rig.capture(captured)?;
        alloc.free(kept)?;
        logged.clear_calls();
        let answer = alloc.alloc(&Request::new(30 * MIB, captured).wait(wait)).map(drop);
        let told = matches!(answer, Err(Error::OutOfMemoryInCapture(_)));
        ensure!(told, "in a capture, {wait:?}: {answer:?}");
        for kind in [CallKind::ReleasePlain, CallKind::WaitAny, CallKind::Reached] {
            equal!(logged.calls().of(kind).calls, 0, "calls of {} in a capture", kind.name());
        }
        capture.end()?;
        busy.finish();
        let got = alloc.alloc(&Request::new(30 * MIB, captured))?;
        alloc.free(got.handle)?;
        alloc.sound()?;
    }
    Ok(())
}

fn frees_later(rig: &Rig) -> Outcome {
    let [captured, other] = rig.streams()?;
    let alloc = rig.alloc_with(slabs)?;
    let block = alloc.get(48 * MIB, other)?;
    let capture = rig.capture(captured)?;
    alloc.free(block)?;
    capture.end()?;
    let got = alloc.alloc(&Request::new(48 * MIB, other).wait(Wait::OnHost(rig.patience())))?;
    alloc.free(got.handle)?;
    alloc.release_cached()?;
    equal!(alloc.stats().reserved.current, 0, "bytes reserved in the end");
    alloc.sound()
}

fn no_passes(rig: &Rig) -> Outcome {
    use terrane_core::compact::{Goal, Limits};
    let captured = rig.stream()?;
    let alloc = rig.alloc_with(slabs)?;
    let capture = rig.capture(captured)?;
    let answer = alloc.begin_pass(Goal::Release { bytes: MIB }, Limits::NONE).map(drop);
    let told = answer == Err(Error::Device(DeviceError::Capturing));
    ensure!(told, "a pass in a capture: {answer:?}");
    capture.end()?;
    let pass = alloc.begin_pass(Goal::Release { bytes: MIB }, Limits::NONE)?;
    pass.end_pass()?;
    alloc.sound()
}
