//! Where the program's data comes from: devices and files. The only part that knows how devices
//! are opened; everything beyond sees recorded facts.

mod check;
mod snapshot;
#[cfg(feature = "gui")]
mod watch;

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result};
use terrane_core::Allocator;
use terrane_core::device::HeapId;
use terrane_core::device::wrap::{Common, Paced};
use terrane_trace::file::Recorder;
use terrane_trace::recording::{Recording, open_recording};
use terrane_trace::replay::{Options, Replay, ReplayError, Target};
use terrane_trace::{Limits, Trace, open_csv, read_csv};

use crate::exit::BadInput;
use crate::{progress, units};

pub use check::{Check, checks};
pub use snapshot::segments;
pub use terrane::{Choice, Opened, survey};
#[cfg(feature = "gui")]
pub use watch::{Watching, Wish, watch};

/// Opens a device.
///
/// # Errors
/// Why it can not be opened; a name that nothing answers to is bad input.
pub fn open(choice: &Choice) -> Result<Opened> {
    open_with(choice, false)
}

/// As [`open`], in guard mode where the device has one.
///
/// # Errors
/// As [`open`].
pub fn open_with(choice: &Choice, guard: bool) -> Result<Opened> {
    let mut options = terrane::OpenOptions::default();
    options.guard = guard;
    terrane::open_with(choice, options).map_err(|error| match error {
        terrane::OpenError::Named { .. } => BadInput(error.to_string()).into(),
        error => anyhow::Error::new(error).context("see `terrane devices`"),
    })
}

/// A device, as a replay takes it.
pub fn target(opened: &Opened) -> Target {
    match &opened.sim {
        Some(sim) => Target::Sim(sim.clone()),
        None => Target::Real(opened.device.clone()),
    }
}

/// A replay on a device. What the device takes for itself counts against the replay's limits.
///
/// # Errors
/// Options that ask for what can not be are bad input; the device's and the allocator's.
pub fn replay<'a>(
    opened: &Opened,
    name: &str,
    trace: &'a Trace,
    options: &Options,
) -> Result<Replay<'a>> {
    let replay = Replay::new(name, trace, target(opened), options).map_err(as_input)?;
    opened.charge(replay.allocator()).context("memory that the device holds for itself")?;
    Ok(replay)
}

/// A replay that places everything alike on every device. What the device takes for itself differs,
/// so it does not count.
///
/// # Errors
/// As [`replay`]; a device that has less than all others have in common is bad input.
pub fn replay_common<'a>(
    opened: &Opened,
    name: &str,
    trace: &'a Trace,
    options: &mut Options,
    common: Common,
) -> Result<Replay<'a>> {
    let name_of_it = common.name();
    let less =
        |error| BadInput(format!("{} can not be shown as {name_of_it}: {error}", opened.choice));
    let paced = Paced::new(opened.device.clone(), common).map_err(less)?;
    options.paging = Some(common == Common::Pages);
    Replay::new(name, trace, Target::Paced(paced), options).map_err(as_input)
}

/// Bytes that are filled and verified on a device without a GPU: some twenty seconds of work.
const BYTES_ON_CPU: u64 = 12 << 30;

/// The smallest divisor with which the workload fits into 60 % of what is free, at twice its peak;
/// and, where a CPU does the computing, into the time that somebody waits for a demonstration.
///
/// # Errors
/// The device's.
pub fn fitting_scale(opened: &Opened, trace: &Trace) -> Result<NonZeroU64> {
    let figures = trace.figures();
    let free = opened.device.heap_use(HeapId(0))?.free;
    let room = (free / 5 * 3).max(1);
    let by_room = figures.peak_requested.saturating_mul(2).div_ceil(room);
    let is_slow = opened.device.info().is_cpu && opened.sim.is_none();
    let by_time = if is_slow { figures.allocated_bytes.div_ceil(BYTES_ON_CPU) } else { 1 };
    Ok(NonZeroU64::new(by_room.max(by_time)).unwrap_or(NonZeroU64::MIN))
}

/// Records an allocator into `path`, or into the file that TERRANE_RECORD names, if one is given.
///
/// # Errors
/// The file can not be made.
pub fn record(alloc: &Allocator, path: Option<&Path>) -> Result<Option<Recorder>> {
    let recorder = match path {
        Some(path) => terrane::record_to(alloc, &path.to_string_lossy()).map(Some),
        None => terrane::record_from_env(alloc),
    };
    let name =
        path.map_or_else(|| terrane::RECORD_VARIABLE.to_owned(), |p| p.display().to_string());
    Ok(recorder.map_err(|error| BadInput(format!("{name}: {error}")))?)
}

/// Ends a recording and says where it is.
///
/// # Errors
/// The system's, from any write.
pub fn recorded(recorder: Option<Recorder>, quiet: bool) -> Result<()> {
    let Some(recorder) = recorder else { return Ok(()) };
    let path = recorder.path().map_or_else(String::new, |path| path.display().to_string());
    let summary = recorder.finish().with_context(|| format!("writing {path}"))?;
    let (events, bytes) = (units::count(summary.events), units::bytes(summary.bytes));
    if !path.is_empty() {
        progress::note(quiet, &format!("recorded: {path} ({events} events, {bytes})"));
    }
    if summary.dropped > 0 {
        let dropped = units::count(summary.dropped);
        progress::note(quiet, &format!("{dropped} events were lost: writing did not keep up"));
    }
    Ok(())
}

/// A replay's error; [`BadInput`] where other options would help.
pub fn as_input(error: ReplayError) -> anyhow::Error {
    match error {
        ReplayError::NothingToCorrupt | ReplayError::CorruptedTooFew { .. } => {
            BadInput(error.to_string()).into()
        }
        error => error.into(),
    }
}

/// Reads a recorded workload.
///
/// # Errors
/// [`BadInput`] with the line and the reason.
pub fn trace(path: &Path) -> Result<Trace> {
    let bad = |error| BadInput(format!("{}: {error}", path.display()));
    Ok(open_csv(path, Limits::default()).map_err(bad)?)
}

/// Opens any file that tells of GPU memory.
///
/// # Errors
/// [`BadInput`] with the place and the reason.
pub fn recording(path: &Path, quiet: bool) -> Result<Recording> {
    let bar = progress::bytes(quiet, "reading");
    let mut progress = |bytes| {
        bar.set_position(bytes);
        ControlFlow::Continue(())
    };
    let opened = open_recording(path, &mut progress);
    bar.finish_and_clear();
    Ok(opened.map_err(|error| BadInput(format!("{}: {error}", path.display())))?)
}

/// The workload that is built in: two steps of training a small language model on sequences of
/// varying length.
pub const BUILT_IN: &str = "gpt2_varlen";

/// Reads the workload that is built in.
///
/// # Errors
/// None in a sound build.
pub fn built_in() -> Result<Trace> {
    let bytes = include_bytes!("../../../tests/data/traces/gpt2_varlen.native.csv.gz");
    read_csv(&bytes[..], Limits::default()).context("the workload that is built in")
}

/// The name of a workload's file without its endings.
pub fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
