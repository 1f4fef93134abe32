//! The thread that takes events from a source and writes them to a file and to whoever looks on.

use super::recorder::Summary;
use super::source::Source;
use super::state::HeapState;
use super::texts::{Meta, Text, TextKind};
use super::writer::{CHUNK_EVENTS, TraceWriter};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use terrane_core::event::Event;

/// Written at least this often while anything happens.
const WRITE_EVERY: Duration = Duration::from_millis(250);
const POLL_BUSY: Duration = Duration::from_millis(1);
const POLL_IDLE: Duration = Duration::from_millis(20);
/// Chunks of events between two keyframes.
const KEYFRAME_EVERY: u32 = 32;

/// The thread that writes.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<io::Result<Summary>>>,
}

/// Where a worker writes to.
pub(super) struct Sinks {
    pub file: Option<File>,
    #[cfg(feature = "live")]
    pub server: Option<crate::live::Server>,
}

impl Sinks {
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: Some(File::create(path)?),
            #[cfg(feature = "live")]
            server: None,
        })
    }
}

impl Worker {
    pub fn start(sinks: Sinks, mut meta: Meta, source: impl Source) -> io::Result<Self> {
        meta.process = std::process::id();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        meta.started_us = u64::try_from(since.as_micros()).unwrap_or(0);
        let state = source.state();
        let mut writer = sinks.file.map(|file| TraceWriter::new(file, &meta)).transpose()?;
        if let Some(writer) = &mut writer {
            writer.keyframe(&state)?;
        }
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let mut work = Work {
            source,
            writer,
            #[cfg(feature = "live")]
            server: sinks.server,
            #[cfg(feature = "live")]
            meta,
            state,
            events: Vec::new(),
            texts: Vec::new(),
            known: BTreeMap::new(),
            seen: HashSet::new(),
            dropped: 0,
            chunks: 0,
            written: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("terrane-record".to_owned());
        let thread = thread.spawn(move || work.run(&told).and_then(|()| work.end()))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    pub fn finish(&mut self) -> io::Result<Summary> {
        let Some(thread) = self.thread.take() else { return Ok(Summary::default()) };
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the recorder's thread ended")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Whoever wants to know calls `finish`.
        let _ = self.finish();
    }
}

struct Work<S> {
    source: S,
    writer: Option<TraceWriter<File>>,
    #[cfg(feature = "live")]
    server: Option<crate::live::Server>,
    #[cfg(feature = "live")]
    meta: Meta,
    state: HeapState,
    events: Vec<Event>,
    texts: Vec<Text>,
    /// All names so far, for those who come later.
    known: BTreeMap<(TextKind, u32), Text>,
    seen: HashSet<(TextKind, u32)>,
    dropped: u64,
    chunks: u32,
    written: Instant,
}

impl<S: Source> Work<S> {
    fn run(&mut self, stop: &(Mutex<bool>, Condvar)) -> io::Result<()> {
        loop {
            let before = self.events.len();
            self.pull()?;
            let taken = self.events.len() - before;
            let due = self.written.elapsed() >= self.write_every() && !self.events.is_empty();
            if self.events.len() >= CHUNK_EVENTS || due {
                self.write()?;
            }
            self.serve();
            if taken >= CHUNK_EVENTS / 2 {
                continue;
            }
            let wait = if taken > 0 { POLL_BUSY } else { POLL_IDLE };
            let stopped = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (stopped, _) =
                stop.1.wait_timeout(stopped, wait).unwrap_or_else(PoisonError::into_inner);
            if *stopped {
                return Ok(());
            }
        }
    }

    fn pull(&mut self) -> io::Result<()> {
        let pulled = self.source.pull(&mut self.events, &mut self.texts);
        self.dropped = pulled.dropped;
        if let Some(state) = pulled.state {
            self.write()?;
            self.state = state;
            self.keyframe()?;
        }
        Ok(())
    }

    fn keyframe(&mut self) -> io::Result<()> {
        self.chunks = 0;
        #[cfg(feature = "live")]
        if let Some(server) = &mut self.server {
            server.keyframe(&self.state);
        }
        self.writer.as_mut().map_or(Ok(()), |writer| writer.keyframe(&self.state))
    }

    fn write(&mut self) -> io::Result<()> {
        let seen = &mut self.seen;
        self.texts.retain(|text| seen.insert((text.kind, text.number)));
        // After a gap the new state holds what these events tell.
        let at = self.state.sequence;
        self.events.retain(|event| event.sequence > at);
        if let Some(writer) = &mut self.writer {
            writer.texts(&self.texts)?;
            writer.events(&self.events)?;
        }
        #[cfg(feature = "live")]
        if let Some(server) = &mut self.server {
            server.events(&self.texts, &self.events);
        }
        for text in self.texts.drain(..) {
            self.known.insert((text.kind, text.number), text);
        }
        for event in self.events.drain(..) {
            self.state.apply(&event, &mut |_| {});
        }
        self.chunks += 1;
        if self.chunks >= KEYFRAME_EVERY {
            self.chunks = 0;
            // Those who look on have folded all of it themselves.
            self.writer.as_mut().map_or(Ok(()), |writer| writer.keyframe(&self.state))?;
        }
        self.written = Instant::now();
        Ok(())
    }

    #[cfg(not(feature = "live"))]
    fn serve(&mut self) {}

    /// Lets those in who came, with everything that they need first, and tells all the figures.
    #[cfg(feature = "live")]
    fn serve(&mut self) {
        let Some(server) = &mut self.server else { return };
        let texts = || self.known.values().cloned().collect::<Vec<_>>();
        server.accept(&self.meta, texts, &self.state);
        if server.is_status_due() {
            server.status(self.source.status());
        }
    }

    #[cfg(not(feature = "live"))]
    fn write_every(&self) -> Duration {
        WRITE_EVERY
    }

    /// Someone who looks on sees what happens as it happens.
    #[cfg(feature = "live")]
    fn write_every(&self) -> Duration {
        let watched = self.server.as_ref().is_some_and(crate::live::Server::is_watched);
        if watched { POLL_IDLE } else { WRITE_EVERY }
    }

    fn end(&mut self) -> io::Result<Summary> {
        loop {
            let before = self.events.len();
            self.pull()?;
            if self.events.len() == before {
                break;
            }
        }
        self.write()?;
        let dropped = self.dropped;
        let Some(writer) = &mut self.writer else {
            return Ok(Summary { events: self.state.sequence, dropped, bytes: 0 });
        };
        let events = writer.event_count();
        let bytes = writer.finish_in_place()?;
        Ok(Summary { events, dropped, bytes })
    }
}
