//! Opens files on a thread of their own, with progress and a way to stop.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use terrane_trace::recording::{open_end, open_recording_early};

use super::document::first_look;
use super::layout::{Coloring, Painted};
use super::model::{Recording, build};

/// What a load is doing.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the file read so far.
    pub bytes: AtomicU64,
    /// Bytes of the file.
    pub total: AtomicU64,
    stage: AtomicU8,
    stop: AtomicBool,
}

const READING: u8 = 0;
const PLACING: u8 = 1;

impl Progress {
    /// In a word.
    pub fn stage(&self) -> &'static str {
        if self.stage.load(Ordering::Relaxed) == READING { "reading" } else { "placing blocks" }
    }

    /// Asks the thread to stop.
    pub fn cancel(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Why a file was not opened: what, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, where in the file, and what to do.
    pub reason: String,
    /// Whether the person stopped it.
    pub cancelled: bool,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for OpenError {}

/// A file on its way.
pub struct Load {
    /// The file.
    pub path: PathBuf,
    /// How far it is.
    pub progress: Arc<Progress>,
    result: Receiver<Came>,
    /// Where its first picture is among the open files, once it is there.
    pub document: Option<usize>,
}

/// What comes of a file that is opened.
pub enum Came {
    /// One moment of it, to look at while the history is read: the end, then the peak.
    First(Arc<Painted>),
    /// All of it.
    Whole(Result<Arc<Painted>, OpenError>),
}

/// Files smaller than this are there at once.
const FIRST_FROM_BYTES: u64 = 4 << 20;

impl Load {
    /// Starts to open a file; `done` is called from the thread when something came. Heaps are
    /// worked out there too, in the colours that are wanted.
    pub fn start(
        (path, device): (PathBuf, Option<usize>),
        coloring: Coloring,
        done: impl Fn() + Send + 'static,
    ) -> Self {
        let progress = Arc::new(Progress::default());
        let (sender, result) = channel();
        let (seen, file) = (Arc::clone(&progress), path.clone());
        std::thread::spawn(move || {
            // Nobody may be waiting any more.
            let tell = |came| {
                let _ = sender.send(came);
                done();
            };
            let ready = |recording| first_look(&Arc::new(recording), coloring);
            if let Some(first) = first(&file, device) {
                tell(Came::First(ready(first)));
            }
            let mut early = |early| tell(Came::First(ready(early)));
            let all = open_early((&file, device), &seen, &mut early);
            tell(Came::Whole(all.map(ready)));
        });
        Self { path, progress, result, document: None }
    }

    /// What came of it since it was asked last.
    pub fn poll(&self) -> Option<Came> {
        match self.result.try_recv() {
            Ok(came) => Some(came),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Came::Whole(Err(OpenError {
                path: self.path.clone(),
                reason: "the thread that read it ended; please report this file".to_owned(),
                cancelled: false,
            }))),
        }
    }
}

/// The end of a large file that can be had before its history. What is wrong with a file is said
/// by whoever reads all of it.
fn first(path: &Path, device: Option<usize>) -> Option<Recording> {
    let is_large = std::fs::metadata(path).is_ok_and(|meta| meta.len() >= FIRST_FROM_BYTES);
    let read = if is_large { open_end(path).ok()?? } else { return None };
    let mut recording = build(read, path, device, |_| {});
    recording.notes.insert(0, "Only the end is shown; the history is being read.".to_owned());
    Some(recording)
}

/// Opens any file that is known, told apart by content.
///
/// # Errors
/// [`OpenError`] with what is wrong, where, and what to do.
#[cfg(test)]
pub fn open(path: &Path, progress: &Progress) -> Result<Recording, OpenError> {
    open_early((path, None), progress, &mut |_| {})
}

/// [`open`] that shows the device named, of files that tell of several.
///
/// # Errors
/// As [`open`]; a device that the file does not tell of.
pub fn open_device(path: &Path, device: Option<usize>) -> Result<Recording, OpenError> {
    let recording = open_early((path, device), &Progress::default(), &mut |_| {})?;
    match device {
        Some(named) if named != recording.device || recording.devices.is_empty() => {
            let has: Vec<String> = recording.devices.iter().map(usize::to_string).collect();
            let reason = match has.is_empty() {
                true => format!("the file names no devices, so none is device {named}"),
                false => format!("there is no device {named} in it, but {}", has.join(", ")),
            };
            Err(OpenError { path: path.to_owned(), reason, cancelled: false })
        }
        _ => Ok(recording),
    }
}

/// [`open`] that tells of what can be looked at before all is there.
fn open_early(
    (path, device): (&Path, Option<usize>),
    progress: &Progress,
    tell: &mut dyn FnMut(Recording),
) -> Result<Recording, OpenError> {
    read_any((path, device), progress, tell).map_err(|reason| OpenError {
        path: path.to_owned(),
        cancelled: progress.stopped(),
        reason: if progress.stopped() { "stopped".to_owned() } else { reason },
    })
}

fn read_any(
    (path, device): (&Path, Option<usize>),
    progress: &Progress,
    tell: &mut dyn FnMut(Recording),
) -> Result<Recording, String> {
    let meta = std::fs::metadata(path)
        .map_err(|error| format!("{error}; check the path and its permissions"))?;
    if meta.is_dir() {
        return Err("This is a folder; open a file in it.".to_owned());
    }
    progress.total.store(meta.len(), Ordering::Relaxed);
    let mut seen = |bytes| {
        progress.bytes.store(bytes, Ordering::Relaxed);
        if progress.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut early = |read| tell(build(read, path, device, |_| {}));
    let read = open_recording_early(path, &mut seen, &mut early);
    let read = read.map_err(|error| error.to_string())?;
    progress.stage.store(PLACING, Ordering::Relaxed);
    if progress.stopped() {
        return Err("stopped".to_owned());
    }
    let events = read.history(device).map_or(0, |history| history.trace.events().len());
    progress.total.store(events as u64, Ordering::Relaxed);
    Ok(build(read, path, device, |done| progress.bytes.store(done, Ordering::Relaxed)))
}
