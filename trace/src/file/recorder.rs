//! Recorders: a thread that writes what allocators tell.

use super::state::HeapState;
use super::texts::{Meta, Text, TextKind};
use super::writer::{CHUNK_EVENTS, TraceWriter};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use terrane_core::Allocator;
use terrane_core::event::{Event, EventKind, RecorderMode};

/// What a recorder wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events in the file.
    pub events: u64,
    /// Events that were lost because writing did not keep up; the file has the whole state after
    /// each gap.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Records an allocator until it is finished or dropped.
///
/// The allocating threads write into the allocator's ring and do nothing else; a thread of the
/// recorder empties it. What was not written yet is lost when the process is killed: events of
/// the last quarter of a second.
#[derive(Debug)]
pub struct Recorder {
    worker: Worker,
    path: PathBuf,
}

/// Records events of an allocator that is not ours: call it where that allocator works.
///
/// ```
/// # let dir = std::env::temp_dir().join("terrane-doc");
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("foreign.terrane");
/// use terrane_trace::file::{ForeignRecorder, Meta};
/// let recorder = ForeignRecorder::create(&path, Meta::default())?;
/// recorder.alloc(1, 1000, 1024, 0, "main.c:12");
/// recorder.freed(1);
/// assert_eq!(recorder.finish()?.events, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ForeignRecorder {
    worker: Worker,
    feed: Arc<Feed>,
}

/// Events kept in the allocator's ring until they are written: 16 MiB.
const RING_EVENTS: u32 = 1 << 18;
/// Written at least this often while anything happens.
const WRITE_EVERY: Duration = Duration::from_millis(250);
const POLL_BUSY: Duration = Duration::from_millis(1);
const POLL_IDLE: Duration = Duration::from_millis(20);
/// Chunks of events between two keyframes.
const KEYFRAME_EVERY: u32 = 32;
/// Events that a foreign feed holds until they are written.
const FEED_EVENTS_MAX: usize = 1 << 20;

impl Recorder {
    /// Begins to record. The state at this moment is the file's first keyframe.
    ///
    /// # Errors
    /// The system's, when the file cannot be made.
    pub fn attach(alloc: &Allocator, path: &Path, meta: Meta) -> io::Result<Self> {
        alloc.set_recorder(RecorderMode::Stream { capacity: RING_EVENTS });
        let alloc = alloc.clone();
        let mut early = EarlySites::default();
        let state = full_state(&alloc, &mut early);
        let source = RingSource { state, alloc, early, dropped: 0 };
        let worker = Worker::start(path, meta, source)?;
        Ok(Self { worker, path: path.to_owned() })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the recording and the file. Dropping does the same and keeps quiet about errors.
    ///
    /// # Errors
    /// The system's, from any write since the beginning.
    pub fn finish(mut self) -> io::Result<Summary> {
        self.worker.finish()
    }
}

impl ForeignRecorder {
    /// Begins a file.
    ///
    /// # Errors
    /// The system's, when the file cannot be made.
    pub fn create(path: &Path, meta: Meta) -> io::Result<Self> {
        let feed = Arc::new(Feed::new());
        let worker = Worker::start(path, meta, FeedSource { feed: Arc::clone(&feed) })?;
        Ok(Self { worker, feed })
    }

    /// A block was handed out. `id` is any number but 0 that no live block has (an address);
    /// `allocated` are the bytes after rounding; `site` is a line of the program, or empty.
    pub fn alloc(&self, id: u64, requested: u64, allocated: u64, stream: u32, site: &str) {
        let mut inner = self.feed.lock();
        let site = inner.site(site);
        let event = Event::new(EventKind::Alloc).handle(id).a(requested).b(allocated).c(id);
        inner.push(event.on(stream, site));
    }

    /// The program freed a block; work may still use it.
    pub fn free_requested(&self, id: u64) {
        self.feed.lock().push(Event::new(EventKind::FreeRequested).handle(id));
    }

    /// The last use of a freed block is over.
    pub fn free_completed(&self, id: u64) {
        self.feed.lock().push(Event::new(EventKind::FreeCompleted).handle(id));
    }

    /// A block was freed, and nothing uses it any more.
    pub fn freed(&self, id: u64) {
        self.free_requested(id);
        self.free_completed(id);
    }

    /// Memory was obtained from the driver: any number that no other segment has, and bytes.
    pub fn segment_made(&self, number: u64, bytes: u64) {
        self.feed.lock().push(Event::new(EventKind::SegmentEnd).a(number).b(bytes));
    }

    /// That memory was given back.
    pub fn segment_released(&self, number: u64) {
        self.feed.lock().push(Event::new(EventKind::SegmentReleased).a(number));
    }

    /// A request failed: bytes asked for, the largest free piece, and what the driver or the
    /// limit would still have given.
    pub fn out_of_memory(&self, asked: u64, largest_free: u64, left: u64, stream: u32) {
        let event = Event::new(EventKind::OutOfMemory).a(asked).b(largest_free).c(left);
        self.feed.lock().push(event.on(stream, 0));
    }

    /// Ends the recording and the file. Dropping does the same and keeps quiet about errors.
    ///
    /// # Errors
    /// The system's, from any write since the beginning.
    pub fn finish(mut self) -> io::Result<Summary> {
        self.worker.finish()
    }
}

/// Where a worker gets events.
trait Source: Send + 'static {
    /// The state before the first event.
    fn state(&self) -> HeapState;
    /// Appends new events and names. Gives the events lost so far and, when some were lost since
    /// the last call, the whole state.
    fn pull(&mut self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> Pulled;
}

struct Pulled {
    dropped: u64,
    state: Option<HeapState>,
}

struct RingSource {
    alloc: Allocator,
    state: HeapState,
    early: EarlySites,
    dropped: u64,
}

/// Sites of blocks that were there when a full state was taken: the allocator tells their texts,
/// not their numbers.
#[derive(Default)]
struct EarlySites {
    numbers: HashMap<String, u32>,
    new: Vec<Text>,
}

impl EarlySites {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = EARLY_SITES + self.numbers.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.new.push(Text { kind: TextKind::Site, number, text: text.to_owned() });
        number
    }
}

impl Source for RingSource {
    fn state(&self) -> HeapState {
        self.state.clone()
    }

    fn pull(&mut self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> Pulled {
        let before = events.len();
        let drained = self.alloc.drain_events(events, CHUNK_EVENTS);
        // What the first state already holds was also recorded between two locks.
        let known = self.state.sequence;
        let stale = events[before..].iter().take_while(|event| event.sequence <= known).count();
        events.drain(before..before + stale);
        let sites: HashSet<u32> = events[before..].iter().map(Event::site).collect();
        for number in sites.into_iter().filter(|number| *number != 0) {
            texts.push(Text { kind: TextKind::Site, number, text: self.alloc.site_text(number) });
        }
        let lost = drained.dropped > std::mem::replace(&mut self.dropped, drained.dropped);
        let state = lost.then(|| {
            self.state = full_state(&self.alloc, &mut self.early);
            self.state.clone()
        });
        texts.append(&mut self.early.new);
        Pulled { dropped: drained.dropped, state }
    }
}

/// The allocator's blocks and segments as a state.
fn full_state(alloc: &Allocator, early: &mut EarlySites) -> HeapState {
    let snapshot = alloc.snapshot();
    let mut state = HeapState::default();
    for segment in &snapshot.segments {
        let class = segment.class.0;
        let event = Event::new(EventKind::SegmentEnd).a(segment.space.0).b(segment.bytes);
        state.apply(&event.of(class, 0), &mut |_| {});
        for part in &segment.parts {
            let Some(block) = &part.block else { continue };
            let site = early.number(&block.site);
            let event = Event::new(EventKind::Alloc).handle(block.handle.number());
            let event = event.a(block.requested).b(part.bytes).c(part.offset);
            let event = event.within(segment.space.0).of(class, block.tag.number());
            state.apply(&event.on(block.stream.0, site), &mut |_| {});
        }
    }
    state.sequence = snapshot.sequence;
    state
}

/// Numbers for sites of blocks that were there before recording began; the allocator's own
/// numbers never come near.
const EARLY_SITES: u32 = 1 << 31;

#[derive(Debug)]
struct Feed {
    inner: Mutex<FeedInner>,
    start: Instant,
}

#[derive(Debug, Default)]
struct FeedInner {
    events: Vec<Event>,
    texts: Vec<Text>,
    sites: HashMap<String, u32>,
    sequence: u64,
    dropped: u64,
    now_ns: u64,
}

impl Feed {
    fn new() -> Self {
        Self { inner: Mutex::default(), start: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, FeedInner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.now_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        inner
    }
}

impl FeedInner {
    fn site(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.sites.get(text) {
            return *number;
        }
        let number = self.sites.len() as u32 + 1;
        self.sites.insert(text.to_owned(), number);
        self.texts.push(Text { kind: TextKind::Site, number, text: text.to_owned() });
        number
    }

    fn push(&mut self, mut event: Event) {
        self.sequence += 1;
        if self.events.len() >= FEED_EVENTS_MAX {
            self.dropped += 1;
            return;
        }
        (event.sequence, event.time_ns) = (self.sequence, self.now_ns);
        self.events.push(event);
    }
}

struct FeedSource {
    feed: Arc<Feed>,
}

impl Source for FeedSource {
    fn state(&self) -> HeapState {
        HeapState::default()
    }

    fn pull(&mut self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> Pulled {
        let mut inner = self.feed.lock();
        events.append(&mut inner.events);
        texts.append(&mut inner.texts);
        // Nobody can be asked for the state of an allocator that is not ours.
        Pulled { dropped: inner.dropped, state: None }
    }
}

/// The thread that writes.
#[derive(Debug)]
struct Worker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<io::Result<Summary>>>,
}

impl Worker {
    fn start(path: &Path, mut meta: Meta, source: impl Source) -> io::Result<Self> {
        meta.process = std::process::id();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        meta.started_us = u64::try_from(since.as_micros()).unwrap_or(0);
        let mut writer = TraceWriter::new(File::create(path)?, &meta)?;
        let state = source.state();
        writer.keyframe(&state)?;
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let mut work = Work {
            source,
            writer,
            state,
            events: Vec::new(),
            texts: Vec::new(),
            known: HashSet::new(),
            dropped: 0,
            chunks: 0,
            written: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("terrane-record".to_owned());
        let thread = thread.spawn(move || work.run(&told).and_then(|()| work.end()))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    fn finish(&mut self) -> io::Result<Summary> {
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
    writer: TraceWriter<File>,
    state: HeapState,
    events: Vec<Event>,
    texts: Vec<Text>,
    known: HashSet<(TextKind, u32)>,
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
            let due = self.written.elapsed() >= WRITE_EVERY && !self.events.is_empty();
            if self.events.len() >= CHUNK_EVENTS || due {
                self.write()?;
            }
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
            self.writer.keyframe(&self.state)?;
            self.chunks = 0;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let known = &mut self.known;
        self.texts.retain(|text| known.insert((text.kind, text.number)));
        self.writer.texts(&self.texts)?;
        self.texts.clear();
        // After a gap the new state holds what these events tell.
        let at = self.state.sequence;
        self.events.retain(|event| event.sequence > at);
        self.writer.events(&self.events)?;
        for event in self.events.drain(..) {
            self.state.apply(&event, &mut |_| {});
        }
        self.chunks += 1;
        if self.chunks >= KEYFRAME_EVERY {
            self.writer.keyframe(&self.state)?;
            self.chunks = 0;
        }
        self.written = Instant::now();
        Ok(())
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
        let (events, dropped) = (self.writer.event_count(), self.dropped);
        let bytes = self.writer.finish_in_place()?;
        Ok(Summary { events, dropped, bytes })
    }
}
