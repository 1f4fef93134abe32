//! Recorders: what a program holds while its allocator is recorded.

use super::flight::Flight;
use super::source::{FeedSource, RingSource};
use super::texts::{Meta, Text, TextKind};
use super::worker::{Sinks, Worker};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use terrane_core::Allocator;
use terrane_core::event::{Event, EventKind};

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

/// Records an allocator, or shows it to whoever looks on, until it is finished or dropped.
///
/// The allocating threads write into the allocator's ring and do nothing else; a thread of the
/// recorder empties it. What was not written yet is lost when the process is killed: events of
/// the last quarter of a second. An allocator has one ring, so one recorder: a [`Tap`] with a file
/// and a socket serves both.
#[derive(Debug)]
pub struct Recorder {
    worker: Worker,
    path: Option<PathBuf>,
    socket: Option<PathBuf>,
    address: Option<SocketAddr>,
}

/// What to do with an allocator's events.
#[derive(Debug)]
#[must_use = "nothing is recorded before `start`"]
pub struct Tap<'a> {
    alloc: &'a Allocator,
    meta: Meta,
    path: Option<PathBuf>,
    flight: Option<Flight>,
    #[cfg(feature = "stacks")]
    stacks_every: u32,
    #[cfg(feature = "live")]
    offer: crate::live::Offer,
}

impl<'a> Tap<'a> {
    /// Nothing yet.
    pub fn new(alloc: &'a Allocator, meta: Meta) -> Self {
        Self {
            alloc,
            meta,
            path: None,
            flight: None,
            #[cfg(feature = "stacks")]
            stacks_every: 0,
            #[cfg(feature = "live")]
            offer: crate::live::Offer::default(),
        }
    }

    /// Records into a file.
    pub fn file(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Keeps the last `events` in memory (64 bytes each), and writes them with the state before
    /// them into a file when a request fails, when the device is lost, when a thread panics, and
    /// when [`Recorder::write_last`] asks for it. The file says why it was written; each time it
    /// is written anew. Of requests that fail one after the other the last within half a second
    /// is written.
    ///
    /// A panic is seen by a hook that is put before the one that is there; a program that sets
    /// its own does so before.
    pub fn flight(mut self, path: &Path, events: usize) -> Self {
        self.flight = Some(Flight::new(path, events));
        self
    }

    /// Takes the call stack of every `every`-th request, on the thread that makes it: some
    /// microseconds each. `terrane info` shows how many were taken and what they cost, and
    /// commands that tell who holds memory show them. The program needs debug information (lines
    /// suffice) for names; without it frames are told apart and have none.
    #[cfg(feature = "stacks")]
    pub fn stacks(mut self, every: u32) -> Self {
        self.stacks_every = every;
        self
    }

    /// Offers the events on a local socket of this user; see [`crate::live`].
    #[cfg(feature = "live")]
    pub fn socket(mut self) -> Self {
        self.offer.local = true;
        self
    }

    /// Tells the events to the other end of a pair of sockets, to which
    /// [`Client::over`](crate::live::Client::over) listens: for those in the program itself.
    #[cfg(feature = "live")]
    pub fn pair(mut self, end: std::os::unix::net::UnixStream) -> Self {
        self.offer.pairs.push(end);
        self
    }

    /// Offers the events over TCP to those on this machine who know the token, such as the end of
    /// a tunnel. Port 0 is any free one; [`Recorder::address`] tells which.
    ///
    /// # Errors
    /// For a token that has not 16 to 128 visible ASCII characters. That the address is not this
    /// machine's is said by [`start`](Self::start).
    #[cfg(feature = "live")]
    pub fn tcp(mut self, at: SocketAddr, token: &str) -> io::Result<Self> {
        self.offer.tcp = Some((at, crate::live::Token::new(token)?));
        Ok(self)
    }

    /// Lets those who look on ask for something, if they know this token: `act` is called on a
    /// thread of its own, for one command at a time; of what comes meanwhile the last is kept.
    /// Without it nobody can change anything.
    ///
    /// # Errors
    /// As [`tcp`](Self::tcp).
    #[cfg(feature = "live")]
    pub fn control(
        mut self,
        token: &str,
        act: impl Fn(crate::live::Command) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let token = crate::live::Token::new(token)?;
        self.offer.control = Some(crate::live::Control { token, act: Arc::new(act) });
        Ok(self)
    }

    /// Begins. The state at this moment is the first thing that is written.
    ///
    /// # Errors
    /// The system's, when the file or the socket cannot be made.
    pub fn start(self) -> io::Result<Recorder> {
        let file = self.path.as_deref().map(File::create).transpose()?;
        #[cfg(feature = "live")]
        let server = crate::live::Server::open(self.offer)?;
        #[cfg(feature = "live")]
        let (socket, address) = server
            .as_ref()
            .map_or((None, None), |server| (server.path().map(Path::to_owned), server.address()));
        #[cfg(not(feature = "live"))]
        let (socket, address) = (None, None);
        let watches = self.flight.is_some();
        let sinks = Sinks {
            file,
            flight: self.flight,
            #[cfg(feature = "live")]
            server,
        };
        let source = RingSource::new(self.alloc);
        #[cfg(feature = "stacks")]
        let source =
            if self.stacks_every > 0 { source.with_stacks(self.stacks_every) } else { source };
        let mut meta = self.meta;
        if meta.kinds.is_empty() {
            let classes = self.alloc.device().caps().classes.iter();
            meta.kinds = classes.map(|class| class.kind.name().to_owned()).collect();
        }
        let worker = Worker::start(sinks, meta, source)?;
        if watches {
            let orders = Arc::downgrade(worker.orders());
            self.alloc.on_pressure(move |_, _| {
                if let Some(orders) = orders.upgrade() {
                    orders.hurry();
                }
                false
            });
        }
        Ok(Recorder { worker, path: self.path, socket, address })
    }
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

/// How long the recorder's thread may take to come and write.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// Events that a foreign feed holds until they are written.
const FEED_EVENTS_MAX: usize = 1 << 20;

impl Recorder {
    /// Begins to record into a file.
    ///
    /// # Errors
    /// The system's, when the file cannot be made.
    pub fn attach(alloc: &Allocator, path: &Path, meta: Meta) -> io::Result<Self> {
        Tap::new(alloc, meta).file(path).start()
    }

    /// Writes the last events that are kept, for a reason that the file will tell. Does nothing
    /// for a recorder that keeps none.
    ///
    /// # Errors
    /// The system's, when the file cannot be written.
    pub fn write_last(&self, reason: &str) -> io::Result<()> {
        self.worker.orders().write_flight(reason, WRITE_PATIENCE)
    }

    /// The file, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The socket, if there is one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// The address at which it is offered over TCP, if it is.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
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
        let source = FeedSource { feed: Arc::clone(&feed) };
        let worker = Worker::start(Sinks::file(path)?, meta, source)?;
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

#[derive(Debug)]
pub(super) struct Feed {
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

    /// Moves what came in to the caller; gives the events lost so far.
    pub(super) fn take(&self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> u64 {
        let mut inner = self.lock();
        events.append(&mut inner.events);
        texts.append(&mut inner.texts);
        inner.dropped
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
