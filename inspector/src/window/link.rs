//! A connection to a program, read on a thread of its own: the program lets go of whoever does not
//! take what it tells within a tenth of a second, and making a recording takes longer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use terrane_trace::live::{Client, Command, Message};

use super::attach::{Steering, Target};

/// What came.
pub(super) enum Heard {
    /// Nothing in a while.
    Nothing,
    /// What the program told.
    Message(Message),
    /// Why the program could not be asked for something.
    NotAsked(String),
    /// No more will come; why, if the program did not simply end.
    End(Option<String>),
}

/// A connection.
pub(super) struct Link {
    heard: Receiver<Heard>,
    /// Events that were read and not taken.
    waiting: Arc<AtomicUsize>,
    /// Whether whoever took them is gone.
    gone: Arc<AtomicBool>,
    /// Whether the full state came.
    is_begun: bool,
}

/// Events that are read ahead at most (128 MiB): then the program is left to let go of us, and the
/// full state is taken anew.
/// Tests do with fewer.
const AHEAD: usize = if cfg!(test) { 50_000 } else { 2_000_000 };
/// Time between two looks at what else is to be done.
const LOOK: Duration = Duration::from_millis(250);

impl Link {
    /// Connects, and begins to read.
    pub fn open(target: &Target, steering: &Steering) -> Result<Self, String> {
        Ok(Self::over(target.connect()?, steering))
    }

    /// Begins to read what comes over a connection.
    pub fn over(client: Client, steering: &Steering) -> Self {
        let (sender, heard) = channel();
        let (waiting, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let reader = Reader {
            client,
            sender,
            waiting: Arc::clone(&waiting),
            gone: Arc::clone(&gone),
            steering: steering.clone(),
        };
        std::thread::spawn(move || reader.read());
        Self { heard, waiting, gone, is_begun: false }
    }

    /// What comes next; waits a little for it.
    pub fn next(&mut self) -> Heard {
        let heard = match self.heard.recv_timeout(LOOK) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End(None),
        };
        match &heard {
            Heard::Message(Message::State(_)) => self.is_begun = true,
            Heard::Message(Message::Events(events)) => {
                self.waiting.fetch_sub(events.len(), Ordering::Relaxed);
            }
            _ => {}
        }
        heard
    }

    /// Connects once more after an end: the program may have let go of us because we fell behind.
    /// `None` when nobody is there, or has told nothing since the last time.
    pub fn again(&self, target: &Target, steering: &Steering) -> Option<Self> {
        if self.is_begun { Self::open(target, steering).ok() } else { None }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

struct Reader {
    client: Client,
    sender: Sender<Heard>,
    waiting: Arc<AtomicUsize>,
    gone: Arc<AtomicBool>,
    steering: Steering,
}

impl Reader {
    fn read(mut self) {
        while !self.gone.load(Ordering::Relaxed) {
            self.ask();
            if self.waiting.load(Ordering::Relaxed) > AHEAD {
                std::thread::sleep(LOOK / 20);
                continue;
            }
            let heard = match self.client.receive() {
                Ok(Some(message)) => Heard::Message(message),
                Ok(None) => Heard::End(None),
                Err(error) => Heard::End(Some(error.to_string())),
            };
            if let Heard::Message(Message::Events(events)) = &heard {
                self.waiting.fetch_add(events.len(), Ordering::Relaxed);
            }
            let is_end = matches!(heard, Heard::End(_));
            if self.sender.send(heard).is_err() || is_end {
                return;
            }
        }
    }

    /// Asks the program for what the person wants.
    fn ask(&mut self) {
        if let Some(asked) = self.steering.take_asked() {
            let control = &self.steering.control;
            let token = control.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Err(error) = self.client.ask(Command::Compact(asked), &token) {
                // Whoever took it is gone otherwise.
                let _ = self.sender.send(Heard::NotAsked(error.to_string()));
            }
        }
    }
}
