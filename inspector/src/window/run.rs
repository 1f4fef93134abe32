//! A run started inside: a recorded workload replayed on a device, on a thread of its own. The
//! window gets recordings of it and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egui::Context;

use super::model::{Recording, Watch};
use crate::source::{self, Watched, Wish};

/// A run under way.
pub struct Run {
    /// The device, in words.
    pub device: String,
    /// Where its recording is among the open files, once it is there.
    pub document: Option<usize>,
    latest: Arc<Mutex<Option<Arc<Recording>>>>,
    stop: Arc<AtomicBool>,
    compact: Arc<AtomicBool>,
    outcome: Receiver<Result<String, String>>,
}

/// How the window steers a run.
struct Control {
    stop: Arc<AtomicBool>,
    compact: Arc<AtomicBool>,
    compacts: bool,
}

/// Passes of compaction in a run that compacts by itself.
const PASSES: f64 = 12.0;
/// Seconds that the demo takes: time to look.
const SECONDS: f64 = 15.0;
/// Time between two recordings handed to the window.
const BETWEEN: Duration = Duration::from_millis(250);
/// Looks at the heap in a run.
const LOOKS: usize = 1500;

impl Run {
    /// Starts the demo's workload on a device; if it `compacts`, live blocks are moved together
    /// now and then.
    pub fn start(ctx: &Context, device: &str, compacts: bool) -> Self {
        let latest = Arc::new(Mutex::new(None));
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, outcome) = channel();
        let compact = Arc::new(AtomicBool::new(false));
        let (slot, waker) = (Arc::clone(&latest), ctx.clone());
        let control = Control { stop: Arc::clone(&stop), compact: Arc::clone(&compact), compacts };
        let name = device.to_owned();
        std::thread::spawn(move || {
            let hand_over = |recording: Recording| {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(recording));
                waker.request_repaint();
            };
            let result = replay(&name, &control, hand_over);
            // The window may be gone.
            let _ = sender.send(result.map_err(|error| format!("{error:#}")));
            waker.request_repaint();
        });
        Self { device: device.to_owned(), document: None, latest, stop, compact, outcome }
    }

    /// Asks the run to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks for a pass of compaction now.
    pub fn compact(&self) {
        self.compact.store(true, Ordering::Relaxed);
    }

    /// What it recorded since it was asked last.
    pub fn latest(&self) -> Option<Arc<Recording>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<Result<String, String>> {
        use std::sync::mpsc::TryRecvError;
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its thread ended".to_owned())),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop();
    }
}

fn replay(
    device: &str,
    control: &Control,
    hand_over: impl Fn(Recording),
) -> anyhow::Result<String> {
    let mut watch = Watch::new(&format!("{} on {device}", source::BUILT_IN));
    let start = Instant::now();
    let mut handed = Instant::now();
    let mut passes = 0;
    let report = source::watch_demo(device, LOOKS, &mut |look: Watched| {
        watch.look(&look);
        if handed.elapsed() >= BETWEEN {
            handed = Instant::now();
            hand_over(watch.recording());
        }
        let due = Duration::from_secs_f64(SECONDS * look.done);
        std::thread::sleep(due.saturating_sub(start.elapsed()).min(BETWEEN));
        let tenth = (look.done * PASSES) as u32;
        let due = control.compacts && tenth > passes && look.pass.is_none();
        passes = passes.max(tenth);
        let asked = control.compact.swap(false, Ordering::Relaxed);
        Wish { go_on: !control.stop.load(Ordering::Relaxed), compact: due || asked }
    })?;
    hand_over(watch.recording());
    Ok(report)
}
