//! A process that forked: its child has no device.

use super::device;
use crate::clause::{Blame, Clause, Need};

pub(super) const CLAUSES: &[Clause] = &[device(
    "fork.child",
    "In a forked child every use is told, no call hangs, and the parent's device goes on.",
    &[Need::Fork],
    "DeviceError::AfterFork",
    Blame::Backend,
    child,
)];

#[cfg(not(unix))]
fn child(_: &crate::Rig) -> crate::Outcome {
    Err(crate::Stop::Skipped(Need::Fork.lacking().to_owned()))
}

#[cfg(unix)]
use unix::child;

#[cfg(unix)]
#[allow(unsafe_code, reason = "nothing safe forks")]
mod unix {
    use std::time::{Duration, Instant};

    use terrane_core::device::{CopyOp, DeviceError, HeapId, StreamSpec};
    use terrane_core::{Allocator, Error, Request};

    use super::super::memory::start;
    use crate::clause::{Outcome, Stop, ensure, equal};
    use crate::rig::{Rig, at};

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn kill(process: i32, signal: i32) -> i32;
        fn _exit(code: i32) -> !;
    }

    /// `waitpid` returns at once.
    const WNOHANG: i32 = 1;
    const SIGKILL: i32 = 9;
    const FORKED: DeviceError = DeviceError::AfterFork;

    pub(super) fn child(rig: &Rig) -> Outcome {
        let (stream, plain) = (rig.stream()?, rig.plain(4096)?);
        rig.wait(rig.device().fill(stream, start(plain), 4096, 7)?)?;
        let alloc = Allocator::new(rig.shared())?;
        let block = alloc.alloc(&Request::new(4096, stream))?.handle;
        // SAFETY: the child takes no lock that another thread may have held, calls what is under
        // test, and ends.
        let child = unsafe { fork() };
        if child == 0 {
            let (device, place) = (rig.device(), start(plain));
            let spec = rig.spec(terrane_core::device::ClassId(0), 4096);
            let op = CopyOp { from: place, to: at(plain.space, 64), bytes: 64 };
            let told = [
                device.fill(stream, place, 4096, 9).err() == Some(FORKED),
                device.copy(stream, &[op]).err() == Some(FORKED),
                device.write(stream, place, &[1; 4]).err() == Some(FORKED),
                device.read(stream, place, 4).err() == Some(FORKED),
                device.mark(stream).err() == Some(FORKED),
                device.reached(stream).err() == Some(FORKED),
                device.wait_any(&[], Duration::ZERO).err() == Some(FORKED),
                device.create_plain(&spec).err() == Some(FORKED),
                device.create_stream(StreamSpec::default()).err() == Some(FORKED),
                device.heap_use(HeapId(0)).err() == Some(FORKED),
                alloc.write(stream, block, 0, &[1; 4]).err() == Some(Error::Device(FORKED)),
            ];
            let wrong = told.iter().position(|told| !told).map_or(0, |at| at as i32 + 1);
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { _exit(wrong) };
        }
        ensure!(child > 0, "the system does not fork");
        equal!(ending(child, rig.patience())?, 0, "number of the call that was answered wrongly");
        equal!(rig.words(stream, start(plain), 1024)?, vec![7; 1024], "words in the parent");
        alloc.free(block)?;
        Ok(())
    }

    /// The exit code of a child; one that does not end in time is killed.
    fn ending(child: i32, patience: Duration) -> Result<i32, Stop> {
        let (mut status, end) = (0, Instant::now() + patience);
        loop {
            // SAFETY: our own child, not waited for yet; the status outlives the call.
            match unsafe { waitpid(child, &raw mut status, WNOHANG) } {
                0 if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                0 => {
                    // SAFETY: our own child, not waited for yet; the status outlives the call.
                    unsafe {
                        kill(child, SIGKILL);
                        waitpid(child, &raw mut status, 0);
                    }
                    return Err(Stop::failed("a call hangs in the child"));
                }
                reaped if reaped == child && status & 0x7f == 0 => return Ok(status >> 8),
                _ => return Err(Stop::failed(format!("the child was killed: {status:#x}"))),
            }
        }
    }
}
