//! What goes on while the window shows it, on a thread of its own: a recorded workload replayed on
//! a device, or a program that is looked on at. The window gets recordings and nothing else.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egui::Context;
use terrane_trace::live::{Client, Compact};

use super::attach::{self, Steering, Target};
use super::layout::{Coloring, Painted};
use super::model::{Facts, Recording};
use crate::source::{self, Wish};

/// A run under way, or a program that is looked on at.
pub struct Run {
    /// What runs, in words.
    pub what: String,
    /// Where its recording is among the open files, once it is there.
    pub document: Option<usize>,
    /// Whether it is a program of its own.
    pub is_attached: bool,
    latest: Latest,
    said: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    compact: Arc<Mutex<Option<Compact>>>,
    control: Arc<Mutex<String>>,
    outcome: Receiver<Result<String, String>>,
}

type Latest = Arc<Mutex<Option<Arc<Painted>>>>;

/// The way from the thread to the window.
pub(super) struct Feed {
    latest: Latest,
    said: Arc<Mutex<Vec<String>>>,
    waker: Context,
    coloring: Coloring,
}

impl Feed {
    /// Gives the window a recording and its heap at the end; one that it has not taken yet is
    /// replaced.
    pub fn hand_over(&self, recording: Recording) {
        let at = recording.end();
        let recording = Arc::new(recording);
        let painted = Arc::new(Painted::at(&recording, at, (self.coloring, None)));
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(painted);
        self.waker.request_repaint();
    }

    /// Tells the person something.
    pub fn say(&self, text: String) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        self.waker.request_repaint();
    }
}

/// What runs where.
#[derive(Clone)]
pub enum Work {
    /// The demo's workload on a device; live blocks are moved together now and then if asked to.
    Demo {
        /// As on the command line.
        device: &'static str,
        /// Whether it compacts.
        compacts: bool,
    },
    /// The requests of an open file on a device.
    Replay(Arc<Recording>, &'static str),
    /// A program of its own, and the token of those who may ask it for something.
    Attach(Target, String),
}

impl Work {
    fn what(&self) -> String {
        match self {
            Self::Demo { device, .. } => format!("running on {device}"),
            Self::Replay(of, device) => format!("replaying {} on {device}", of.name),
            Self::Attach(target, _) => format!("attached to {}", target.name()),
        }
    }

    fn run(self, steering: &Steering, feed: &Feed) -> Result<String, String> {
        let said = |error: anyhow::Error| format!("{error:#}");
        match self {
            Self::Demo { device, compacts } => {
                let trace = source::built_in().map_err(said)?;
                replay((source::BUILT_IN, &trace), (device, compacts), steering, feed).map_err(said)
            }
            Self::Replay(of, device) => {
                let history = of.facts.as_ref().and_then(Facts::history);
                let history = history.ok_or("the file has no history to replay")?;
                replay((&of.name, &history.trace), (device, false), steering, feed).map_err(said)
            }
            Self::Attach(target, _) => attach::follow(&target, steering, feed),
        }
    }
}

/// Passes of compaction in a run that compacts by itself.
const PASSES: f64 = 12.0;
/// Seconds that the demo takes: time to look.
const SECONDS: f64 = 15.0;
/// The longest pause between two looks at what is wished.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a device may take to be opened, and a pass to be made.
const OPENED_WITHIN: Duration = Duration::from_secs(60);
/// Looks at the heap in a run.
const LOOKS: usize = 1500;

impl Run {
    /// Starts the work on a thread of its own.
    pub fn start(ctx: &Context, coloring: Coloring, work: Work) -> Self {
        let (what, is_attached) = (work.what(), matches!(work, Work::Attach(..)));
        let token = if let Work::Attach(_, token) = &work { token.clone() } else { String::new() };
        let (latest, said) = (Latest::default(), Arc::default());
        let (stop, compact) = (Arc::default(), Arc::default());
        let control = Arc::new(Mutex::new(token));
        let (sender, outcome) = channel();
        let feed = Feed {
            latest: Arc::clone(&latest),
            said: Arc::clone(&said),
            waker: ctx.clone(),
            coloring,
        };
        let steering = Steering {
            stop: Arc::clone(&stop),
            compact: Arc::clone(&compact),
            control: Arc::clone(&control),
        };
        std::thread::spawn(move || {
            // The window may be gone.
            let _ = sender.send(work.run(&steering, &feed));
            feed.waker.request_repaint();
        });
        Self { what, document: None, is_attached, latest, said, stop, compact, control, outcome }
    }

    /// Whether it can be asked to compact.
    pub fn can_compact(&self) -> bool {
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_attached || !control.is_empty()
    }

    /// What its thread said since it was asked last.
    pub fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the run to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Asks for a pass of compaction now.
    pub fn compact(&self, asked: Compact) {
        *self.compact.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
    }

    /// What it recorded since it was asked last.
    pub fn latest(&self) -> Option<Arc<Painted>> {
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

/// Replays a workload on a device, in time to be looked at, on a thread of its own; what it tells
/// is taken in here, as that of a program which is looked on at.
fn replay(
    (name, trace): (&str, &terrane_trace::Trace),
    (device, compacts): (&str, bool),
    steering: &Steering,
    feed: &Feed,
) -> anyhow::Result<String> {
    let (end, own) = UnixStream::pair()?;
    std::thread::scope(|scope| {
        let run = scope.spawn(move || {
            let (start, mut passes) = (Instant::now(), 0);
            let how = source::Watching { device, looks: LOOKS, compacts };
            source::watch(trace, name, &how, end, &mut |done| {
                let due = Duration::from_secs_f64(SECONDS * done);
                std::thread::sleep(due.saturating_sub(start.elapsed()).min(PAUSE));
                let tenth = (done * PASSES) as u32;
                let is_due = compacts && tenth > passes;
                passes = passes.max(tenth);
                let compact = steering.take_asked().or(is_due.then(Compact::default));
                Wish { go_on: !steering.stop.load(Ordering::Relaxed), compact }
            })
        });
        let name = format!("{name} on {device}");
        // A device that is opened slowly has told nothing yet.
        let followed = Client::over(own, OPENED_WITHIN)
            .map_err(|error| error.to_string())
            .and_then(|client| attach::follow_own(client, &name, steering, feed));
        match run.join() {
            Ok(outcome) => {
                let report = outcome?;
                followed.map_err(anyhow::Error::msg)?;
                Ok(report)
            }
            Err(_) => Err(anyhow::anyhow!("its thread panicked")),
        }
    })
}
