//! Streams in a capture: seen, respected, and a graph replayed after memory has moved about.

use cudarc::driver::sys;
use serde_json::json;
use terrane_core::device::{Compute, CopyOp, Device, DeviceError, Paging, StreamId};
use terrane_cuda::CudaDevice;

use crate::support::{DEVICE, Failure, MIB, Outcome, Page, Setup, at, region};
use crate::{Check, ensure};

pub const CHECKS: [Check; 2] = [
    ("capture: an open capture is seen and nothing breaks it", respected),
    ("capture: a graph replays after other memory was remapped and released", replayed),
];

fn driver(call: &str, code: sys::CUresult) -> Result<(), Failure> {
    if code == sys::CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(format!("{call}: {code:?}").into())
    }
}

/// A captured graph, ready to run.
pub struct Graph {
    graph: sys::CUgraph,
    ready: sys::CUgraphExec,
}

/// Captures, in the strictest mode, what `work` submits to the stream. Pre: the device's context
/// is current.
pub fn capture(
    raw: sys::CUstream,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<Graph, Failure> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive and in no capture.
    driver("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
    let worked = work();
    let (mut graph, mut ready) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: ends the capture begun above, also when the work failed.
    driver("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(raw, &raw mut graph) })?;
    worked?;
    // SAFETY: the graph was just captured.
    let code = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, 0) };
    driver("cuGraphInstantiate", code)?;
    Ok(Graph { graph, ready })
}

impl Graph {
    pub fn launch(&self, raw: sys::CUstream) -> Result<(), Failure> {
        // SAFETY: the graph and the stream are alive; the memory it names is held by the check.
        driver("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.ready, raw) })
    }

    pub fn destroy(self) -> Result<(), Failure> {
        // SAFETY: no launch of it runs any more.
        driver("cuGraphExecDestroy", unsafe { sys::cuGraphExecDestroy(self.ready) })?;
        // SAFETY: as above.
        driver("cuGraphDestroy", unsafe { sys::cuGraphDestroy(self.graph) })
    }
}

/// Runs a check with the device's context current, as a program that captures has it.
pub fn with_context(device: &CudaDevice, check: impl FnOnce() -> Outcome) -> Outcome {
    let context = device.raw_context() as usize as sys::CUcontext;
    // SAFETY: the context is alive as long as the device.
    driver("push", unsafe { sys::cuCtxPushCurrent_v2(context) })?;
    let outcome = check();
    let mut popped = std::ptr::null_mut();
    // SAFETY: balances the push.
    driver("pop", unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) })?;
    outcome
}

/// The handle of a stream, which counts as foreign from now on.
pub fn raw_of_device(device: &CudaDevice, stream: StreamId) -> Result<sys::CUstream, Failure> {
    Ok(device.raw_stream(stream)? as usize as sys::CUstream)
}

fn respected(setup: &Setup) -> Outcome {
    with_context(&setup.device, || {
        let (stream, other) = (setup.stream()?, setup.stream()?);
        let raw = raw_of_device(&setup.device, stream)?;
        let segment = setup.plain(DEVICE, 4 * MIB)?;
        let place = at(segment.space, 0);
        // The kernels and a staging buffer are there before, as after a warm-up.
        setup.fill_and_check(other, &[region(segment.space, 0, MIB, 1)])?;
        ensure!(!setup.device.is_capturing(), "capturing before any capture");
        let graph = capture(raw, || {
            ensure!(setup.device.is_capturing(), "an open capture is not seen");
            ensure!(setup.device.capture_of(stream).is_some(), "nor whose it is");
            ensure!(setup.device.capture_of(other).is_none(), "a stream outside takes part");
            let op = CopyOp { from: place, to: at(segment.space, 2 * MIB), bytes: MIB };
            let point = setup.device.copy(stream, &[op])?;
            let capturing = DeviceError::Capturing;
            let refused = setup.device.write(stream, place, &[1; 64]);
            ensure!(refused == Err(capturing), "write: {refused:?}");
            let refused = setup.device.gather(stream, &[op]);
            ensure!(refused == Err(capturing), "gather: {refused:?}");
            let refused = setup.device.wait_any(&[point], std::time::Duration::ZERO);
            ensure!(refused == Err(capturing), "wait_any: {refused:?}");
            let refused = setup.device.wait_on_stream(other, &[point]);
            ensure!(refused == Err(capturing), "wait_on_stream: {refused:?}");
            // Memory calls and the other stream's work go on beside the capture.
            let more = setup.plain(DEVICE, 2 * MIB)?;
            let space = setup.device.reserve(DEVICE, 2 * MIB)?.space;
            let page = Page(Paging::create(&setup.device, DEVICE, 2 * MIB, false)?, 2 * MIB);
            setup.map_one(space, 0, page)?;
            let filled = setup.device.fill(other, at(space, 0), 2 * MIB, 5)?;
            setup.wait(filled)?;
            setup.unmap_one(space, 0, 2 * MIB, &[filled])?;
            setup.device.release(page.0)?;
            setup.device.unreserve(space)?;
            setup.device.release_plain(more.space)?;
            Ok(())
        })?;
        ensure!(!setup.device.is_capturing(), "still capturing");
        setup.device.fill(other, place, MIB, 0xAA)?;
        setup.device.wait_on_stream(stream, &[setup.device.mark(other)?])?;
        graph.launch(raw)?;
        let got = setup.contents(stream, at(segment.space, 3 * MIB - 4), 4)?;
        ensure!(got == 0xAA_u32.to_le_bytes(), "the graph copied {got:?}");
        setup.finish(stream)?;
        setup.finish(other)?;
        graph.destroy()?;
        setup.device.release_plain(segment.space)?;
        Ok(json!(null))
    })
}

fn replayed(setup: &Setup) -> Outcome {
    with_context(&setup.device, || {
        let stream = setup.stream()?;
        let raw = raw_of_device(&setup.device, stream)?;
        let bytes = 4 * MIB;
        let space = setup.device.reserve(DEVICE, 8 * bytes)?.space;
        let make = || -> Result<Page, DeviceError> {
            Ok(Page(Paging::create(&setup.device, DEVICE, bytes, false)?, bytes))
        };
        let pages = (0..4).map(|_| make()).collect::<Result<Vec<_>, _>>()?;
        for (slot, page) in (0..).zip(&pages) {
            setup.map_one(space, slot * bytes, *page)?;
        }
        // The graph copies page 0 to page 1; pages 2 and 3 are nobody's business of it.
        let op = CopyOp { from: at(space, 0), to: at(space, bytes), bytes };
        let graph = capture(raw, || {
            setup.device.copy(stream, &[op])?;
            Ok(())
        })?;
        for round in 0..20 {
            setup.device.fill_pattern(stream, &[region(space, 0, bytes, round)])?;
            let (old, new) = if round % 2 == 0 { (2, 5) } else { (5, 2) };
            setup.unmap_one(space, old * bytes, bytes, &[])?;
            setup.map_one(space, new * bytes, pages[2])?;
            graph.launch(raw)?;
            let wrong = setup.mismatches(stream, &[region(space, bytes, bytes, round)])?;
            ensure!(wrong == 0, "round {round}: {wrong} words differ");
        }
        setup.finish(stream)?;
        graph.destroy()?;
        for slot in [0, 1, 2, 3] {
            setup.unmap_one(space, slot * bytes, bytes, &[])?;
        }
        for page in pages {
            setup.device.release(page.0)?;
        }
        setup.device.unreserve(space)?;
        Ok(json!({ "rounds": 20 }))
    })
}
