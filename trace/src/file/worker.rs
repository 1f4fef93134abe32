//! The thread that takes events from a source and writes them to a file, to whoever looks on, and
//! to memory for the case that something goes wrong.

use super::flight::{self, Flight};
use super::recorder::Summary;
use super::source::Source;
use super::state::HeapState;
use super::texts::{Meta, Text, TextKind};
use super::writer::{CHUNK_EVENTS, TraceWriter};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use terrane_core::event::{Event, EventKind};

/// Written at least this often while anything happens.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Each look takes the allocator's lock from the thread that uses it: seldom while little comes,
/// and still often enough that the ring holds all that can come until the next one.
const POLL_BUSY: Duration = Duration::from_millis(5);
const POLL_OFTEN: Duration = Duration::from_millis(1);
/// Events of one look from which on the next one is soon.
const MANY_EVENTS: usize = 1 << 14;
const POLL_IDLE: Duration = Duration::from_millis(20);
/// Chunks of events between two keyframes.
const KEYFRAME_EVERY: u32 = 32;

/// How long events are looked for without pause after a request ran short.
const HURRY: Duration = Duration::from_millis(200);
/// Between two writes of the last events for requests that failed, and two looks at the device.
const TROUBLE_EVERY: Duration = Duration::from_millis(500);

/// The thread that writes.
#[derive(Debug)]
pub(super) struct Worker {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<io::Result<Summary>>>,
}

/// What others ask of the thread.
#[derive(Debug, Default)]
pub(super) struct Orders {
    inner: Mutex<Ordered>,
    changed: Condvar,
    /// The last events, if they are kept.
    pub flight: Option<Mutex<Flight>>,
}

#[derive(Debug, Default)]
struct Ordered {
    stop: bool,
    /// A request runs short: something is about to be told.
    hurry: bool,
    /// Why the last events are to be written now.
    write: Option<String>,
    /// Results of such writes so far.
    written: u64,
    failed: Option<io::ErrorKind>,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Ordered> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn hurry(&self) {
        self.lock().hurry = true;
        self.changed.notify_all();
    }

    /// Has the thread take what the allocator told last, and write. Where the thread does not come
    /// in time (the caller may hold the lock that it waits for), what it had is written here.
    pub fn write_flight(&self, reason: &str, patience: Duration) -> io::Result<()> {
        let Some(flight) = &self.flight else { return Ok(()) };
        let mut ordered = self.lock();
        let before = ordered.written;
        ordered.write = Some(reason.to_owned());
        self.changed.notify_all();
        let waiting = |ordered: &mut Ordered| ordered.written == before && !ordered.stop;
        let (mut ordered, _) = self
            .changed
            .wait_timeout_while(ordered, patience, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if ordered.written > before {
            return ordered.failed.take().map_or(Ok(()), |kind| Err(kind.into()));
        }
        ordered.write = None;
        drop(ordered);
        // Whoever holds it is writing, or is this thread.
        match flight.try_lock() {
            Ok(mut flight) => flight.write(reason),
            Err(TryLockError::Poisoned(flight)) => flight.into_inner().write(reason),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Where a worker writes to.
#[derive(Default)]
pub(super) struct Sinks {
    pub file: Option<File>,
    pub flight: Option<Flight>,
    #[cfg(feature = "live")]
    pub server: Option<crate::live::Server>,
}

impl Sinks {
    pub fn file(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Some(File::create(path)?), ..Self::default() })
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
        let flight = sinks.flight.map(|flight| Mutex::new(flight.start(&meta, &state)));
        let orders = Arc::new(Orders { flight, ..Orders::default() });
        flight::watch_panics(&orders);
        let told = Arc::clone(&orders);
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
            trouble: Trouble::new(),
        };
        let thread = std::thread::Builder::new().name("terrane-record".to_owned());
        let thread = thread.spawn(move || work.run(&told).and_then(|()| work.end(&told)))?;
        Ok(Self { orders, thread: Some(thread) })
    }

    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    pub fn finish(&mut self) -> io::Result<Summary> {
        let Some(thread) = self.thread.take() else { return Ok(Summary::default()) };
        self.orders.lock().stop = true;
        self.orders.changed.notify_all();
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
    trouble: Trouble,
}

/// What may be a reason to write the last events.
struct Trouble {
    /// Whether a request failed among the events that are not folded yet.
    unfolded: bool,
    /// Why the last request failed of those since the last events were written.
    failed: Option<String>,
    written: Option<Instant>,
    asked: Instant,
    lost: bool,
    hurry_until: Instant,
}

impl Trouble {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            unfolded: false,
            failed: None,
            written: None,
            asked: now,
            lost: false,
            hurry_until: now,
        }
    }
}

impl<S: Source> Work<S> {
    fn run(&mut self, orders: &Orders) -> io::Result<()> {
        loop {
            let before = self.events.len();
            self.pull(orders)?;
            // After a loss what was taken before it is written, and gone from here.
            let taken = self.events.len().saturating_sub(before);
            let due = self.written.elapsed() >= self.write_every() && !self.events.is_empty();
            if self.events.len() >= CHUNK_EVENTS || due {
                self.write(orders)?;
            }
            self.mind(orders, before)?;
            self.serve();
            if taken >= CHUNK_EVENTS / 2 {
                continue;
            }
            let wait = match taken {
                _ if Instant::now() < self.trouble.hurry_until => POLL_OFTEN,
                0 => POLL_IDLE,
                _ if taken < MANY_EVENTS => POLL_BUSY,
                _ => POLL_OFTEN,
            };
            let ordered = orders.lock();
            let is_idle = |now: &mut Ordered| !now.stop && !now.hurry && now.write.is_none();
            let (mut ordered, _) = orders
                .changed
                .wait_timeout_while(ordered, wait, is_idle)
                .unwrap_or_else(PoisonError::into_inner);
            if ordered.stop {
                return Ok(());
            }
            if std::mem::take(&mut ordered.hurry) {
                self.trouble.hurry_until = Instant::now() + HURRY;
            }
        }
    }

    /// Writes the last events where they are kept and something went wrong, or somebody asks.
    fn mind(&mut self, orders: &Orders, before: usize) -> io::Result<()> {
        let Some(flight) = &orders.flight else { return Ok(()) };
        let new = self.events.get(before..).unwrap_or_default();
        self.trouble.unfolded |= new.iter().any(|event| event.is(EventKind::OutOfMemory));
        let now = Instant::now();
        let is_due = |last: Instant| now.duration_since(last) >= TROUBLE_EVERY;
        let asked = orders.lock().write.take();
        let mut reason = asked.clone();
        if reason.is_none() && !self.trouble.lost && is_due(self.trouble.asked) {
            self.trouble.asked = now;
            self.trouble.lost = self.source.is_lost();
            reason = self.trouble.lost.then(|| "the device is lost".to_owned());
        }
        // Trials that fail one after the other are written once, at the last.
        let failed = self.trouble.unfolded || self.trouble.failed.is_some();
        if reason.is_none() && !(failed && self.trouble.written.is_none_or(is_due)) {
            return Ok(());
        }
        self.write(orders)?;
        let reason = reason.or_else(|| self.trouble.failed.take()).unwrap_or_default();
        let result = flight.lock().unwrap_or_else(PoisonError::into_inner).write(&reason);
        self.trouble.failed = None;
        self.trouble.written = Some(now);
        if asked.is_some() {
            let mut ordered = orders.lock();
            ordered.written += 1;
            ordered.failed = result.err().map(|error| error.kind());
            orders.changed.notify_all();
        }
        Ok(())
    }

    fn pull(&mut self, orders: &Orders) -> io::Result<()> {
        let pulled = self.source.pull(&mut self.events, &mut self.texts);
        self.dropped = pulled.dropped;
        if let Some(state) = pulled.state {
            self.write(orders)?;
            self.state = state;
            if let Some(flight) = &orders.flight {
                flight.lock().unwrap_or_else(PoisonError::into_inner).restart(&self.state);
            }
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

    fn write(&mut self, orders: &Orders) -> io::Result<()> {
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
        if let Some(flight) = &orders.flight {
            let mut flight = flight.lock().unwrap_or_else(PoisonError::into_inner);
            flight.take(&self.texts, &self.events);
        }
        for text in self.texts.drain(..) {
            self.known.insert((text.kind, text.number), text);
        }
        let is_failure = |event: &Event| event.is(EventKind::OutOfMemory);
        let last = self.events.iter().rposition(is_failure);
        for (at, event) in self.events.drain(..).enumerate() {
            self.state.apply(&event, &mut |_| {});
            if last == Some(at) && orders.flight.is_some() {
                // The state is that of the failure only now: what follows may free all of it.
                self.trouble.failed = Some(flight::shortage(&event, &self.state));
            }
        }
        self.trouble.unfolded = false;
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
        server.obey();
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

    fn end(&mut self, orders: &Orders) -> io::Result<Summary> {
        loop {
            let before = self.events.len();
            self.pull(orders)?;
            // A failure shortly before the end is written without delay.
            self.trouble.written = None;
            self.mind(orders, before)?;
            if self.events.len() <= before {
                break;
            }
        }
        self.write(orders)?;
        let dropped = self.dropped;
        let Some(writer) = &mut self.writer else {
            return Ok(Summary { events: self.state.sequence, dropped, bytes: 0 });
        };
        let events = writer.event_count();
        let bytes = writer.finish_in_place()?;
        Ok(Summary { events, dropped, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Pulled;
    use super::*;

    /// A source that can be made to wait, as for a lock that somebody holds.
    struct Held(Arc<Mutex<u64>>);

    impl Source for Held {
        fn state(&self) -> HeapState {
            HeapState::default()
        }

        fn pull(&mut self, events: &mut Vec<Event>, _: &mut Vec<Text>) -> Pulled {
            let mut told = self.0.lock().unwrap();
            if *told == 10_000 {
                // The end waits for a source that has nothing new.
                return Pulled { dropped: 0, state: None };
            }
            *told += 1;
            let mut event = Event::new(EventKind::Alloc).handle(*told).a(1000).b(1024);
            event.sequence = *told;
            events.push(event);
            Pulled { dropped: 0, state: None }
        }

        #[cfg(feature = "live")]
        fn status(&self) -> Option<super::super::texts::Status> {
            None
        }
    }

    #[test]
    fn the_last_events_are_written_even_while_the_thread_waits_for_the_allocator() {
        let path = std::env::temp_dir().join(format!("terrane-held-{}", std::process::id()));
        let lock = Arc::new(Mutex::new(0));
        let sinks = Sinks { flight: Some(Flight::new(&path, 8)), ..Sinks::default() };
        let worker = Worker::start(sinks, Meta::default(), Held(Arc::clone(&lock))).unwrap();
        let orders = worker.orders();
        orders.write_flight("asked", Duration::from_secs(20)).unwrap();
        let meta = crate::file::TraceFile::open(&path).unwrap().meta().unwrap();
        assert_eq!(meta.reason, "asked");
        let held = lock.lock().unwrap();
        orders.write_flight("held", Duration::from_millis(50)).unwrap();
        let mut file = crate::file::TraceFile::open(&path).unwrap();
        assert_eq!(file.meta().unwrap().reason, "held");
        let told: u32 = file.chunks().iter().map(|chunk| chunk.count).max().unwrap();
        assert!((1..=8).contains(&told), "{told} events");
        drop(held);
        drop(worker);
        std::fs::remove_file(&path).unwrap();
    }
}
