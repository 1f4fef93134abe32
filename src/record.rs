//! Recording an allocator in one line.

use std::io;
use std::path::Path;

use terrane_core::Allocator;
use terrane_trace::file::{Meta, Recorder, Tap};

/// The environment variable that turns recording on where a program calls [`record_from_env`]:
/// the path of the file. `{pid}` in it becomes the process's number, for programs of several.
/// With `flight:` before the path only the last events are kept; see [`flight_recorder`].
pub const RECORD_VARIABLE: &str = "TERRANE_RECORD";

/// Records everything that an allocator does from now on into a file, until the recorder is
/// finished or dropped. `terrane FILE` reads it.
///
/// The allocating threads pay for one record of 64 bytes an event; a thread of the recorder does
/// the rest. A process that is killed loses what the last quarter of a second told.
///
/// ```
/// # let dir = std::env::temp_dir().join("terrane-doc");
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("record.terrane");
/// use terrane::{Allocator, Choice, Request, StreamSpec};
///
/// let opened = terrane::open(&Choice::Host)?;
/// let alloc = Allocator::new(opened.device.clone())?;
/// let recorder = terrane::record(&alloc, &path)?;
/// let stream = opened.device.create_stream(StreamSpec::default())?;
/// drop(alloc.buffer(&Request::new(1 << 20, stream))?);
/// assert!(recorder.finish()?.events > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The system's, when the file cannot be made.
pub fn record(alloc: &Allocator, path: impl AsRef<Path>) -> io::Result<Recorder> {
    Recorder::attach(alloc, path.as_ref(), meta(alloc))
}

/// Keeps the last [`FLIGHT_EVENTS`] events in memory, and writes them into a file when a request
/// fails, the device is lost, a thread panics or [`Recorder::write_last`] is called. Nothing is
/// written as long as nothing goes wrong. `terrane info FILE` says why it was written, `terrane
/// explain FILE` why memory ran out.
///
/// A program that ends by `std::process::exit` right after a failure calls
/// [`Recorder::write_last`] before.
///
/// # Errors
/// The system's, when no thread can be started.
pub fn flight_recorder(alloc: &Allocator, path: impl AsRef<Path>) -> io::Result<Recorder> {
    tap(alloc).flight(path.as_ref(), FLIGHT_EVENTS).start()
}

/// Events that [`flight_recorder`] keeps: 4 MiB.
pub const FLIGHT_EVENTS: usize = 1 << 16;

/// What a path in [`RECORD_VARIABLE`] begins with where only the last events are kept.
const FLIGHT: &str = "flight:";

/// Shows an allocator to whoever looks on (`terrane top`, the inspector's window) over a local
/// socket that only this user can reach, until the recorder is finished or dropped. For a file too,
/// or TCP of this machine, or to let those who look on ask for compaction, use [`tap`].
///
/// # Errors
/// The system's, when the socket cannot be made.
#[cfg(feature = "live")]
pub fn inspect(alloc: &Allocator) -> io::Result<Recorder> {
    tap(alloc).socket().start()
}

/// An allocator's events, to be sent to several places at once: a file, the last events in memory,
/// a local socket, TCP of this machine.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("terrane-tap-{}", std::process::id()));
/// use terrane::{Allocator, Choice};
///
/// let opened = terrane::open(&Choice::Host)?;
/// let alloc = Allocator::new(opened.device.clone())?;
/// let last = path.with_extension("last");
/// let recorder = terrane::tap(&alloc).file(&path).flight(&last, 1000).start()?;
/// assert_eq!(recorder.finish()?.dropped, 0);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tap(alloc: &Allocator) -> Tap<'_> {
    Tap::new(alloc, meta(alloc))
}

/// Where an allocator's events come from.
fn meta(alloc: &Allocator) -> Meta {
    let device = alloc.device();
    let info = device.info();
    let heaps = device.caps().heaps.iter();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default();
    Meta {
        program: program.to_string_lossy().into_owned(),
        allocator: format!("terrane {}", env!("CARGO_PKG_VERSION")),
        device: format!("{}: {}", info.backend, info.name),
        device_bytes: heaps.map(|heap| heap.total).max().unwrap_or(0),
        started_ns: device.now_ns(),
        ..Meta::default()
    }
}

/// Records into the file that the environment variable [`RECORD_VARIABLE`] names, if it is set:
/// what a program calls once to have recording built in and off.
///
/// # Errors
/// As [`record`].
pub fn record_from_env(alloc: &Allocator) -> io::Result<Option<Recorder>> {
    let Some(place) = std::env::var_os(RECORD_VARIABLE).filter(|place| !place.is_empty()) else {
        return Ok(None);
    };
    record_to(alloc, &place.to_string_lossy()).map(Some)
}

/// Records to a place as [`RECORD_VARIABLE`] names it: a path, or one for the last events only.
///
/// # Errors
/// As [`record`].
pub fn record_to(alloc: &Allocator, place: &str) -> io::Result<Recorder> {
    let place = place.replace("{pid}", &std::process::id().to_string());
    match place.strip_prefix(FLIGHT) {
        Some(path) => flight_recorder(alloc, path),
        None => record(alloc, place),
    }
}
