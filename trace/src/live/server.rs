//! The side of the allocator.

use super::conn::{Came, Lines, Stream, Token};
use super::{Compact, folder};
use crate::file::{HeapState, Meta, Status, Text, TraceWriter};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrane_core::event::Event;

/// How a program lets others look on.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// On a local socket of this user.
    pub local: bool,
    /// On loopback TCP, for those who know the token.
    pub tcp: Option<(SocketAddr, Token)>,
    /// To the other ends of these.
    pub pairs: Vec<UnixStream>,
    /// What those who know another token may ask for.
    pub control: Option<Control>,
}

/// Something that a peer asks the program to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Move live blocks together now, for this goal and within these limits.
    Compact(Compact),
}

impl Command {
    const COMPACT: &'static str = "compact";

    /// The line that asks for it, but for the token at its end.
    pub(super) fn line(self) -> String {
        let Self::Compact(asked) = self;
        format!("{} {}", Self::COMPACT, asked.words())
    }

    /// What a line asks for, but for the token at its end.
    fn of_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            // As those of before ask, who set no limits.
            [Self::COMPACT] => Some(Self::Compact(Compact::default())),
            [Self::COMPACT, rest @ ..] => Compact::of_words(rest).map(Self::Compact),
            _ => None,
        }
    }
}

/// Who may ask for something, and what is done then.
pub(crate) struct Control {
    pub token: Token,
    pub act: Arc<dyn Fn(Command) + Send + Sync>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Control(..)")
    }
}

/// Sockets and those who look on.
#[derive(Debug)]
pub(crate) struct Server {
    local: Option<(UnixListener, PathBuf)>,
    tcp: Option<(TcpListener, Token)>,
    control: Option<Control>,
    /// Connections over TCP that have not said the token yet, and until when they may.
    strangers: Vec<(Lines, Instant)>,
    /// Connections that were made otherwise and wait for the full state.
    pairs: Vec<UnixStream>,
    clients: Vec<Peer>,
    told: Instant,
    running: Arc<Mutex<Running>>,
}

/// The command that is under way, and the one that came meanwhile.
#[derive(Debug, Default)]
struct Running {
    is: bool,
    next: Option<Command>,
}

#[derive(Debug)]
struct Peer {
    writer: TraceWriter<Stream>,
    lines: Lines,
}

/// Who does not take what is sent within this time is let go.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a connection over TCP may take to say the token.
const TOKEN_WITHIN: Duration = Duration::from_secs(2);
const STATUS_EVERY: Duration = Duration::from_millis(500);
const CLIENTS_MAX: usize = 16;
/// Allocators of this process so far.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Server {
    /// Opens what is offered; `None` for nothing.
    pub(crate) fn open(offer: Offer) -> io::Result<Option<Self>> {
        let local = offer.local.then(open_local).transpose()?;
        let tcp = offer.tcp.map(|(at, token)| Ok::<_, io::Error>((open_tcp(at)?, token)));
        let tcp = tcp.transpose()?;
        if local.is_none() && tcp.is_none() && offer.pairs.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            local,
            tcp,
            control: offer.control,
            strangers: Vec::new(),
            pairs: offer.pairs,
            clients: Vec::new(),
            told: Instant::now(),
            running: Arc::default(),
        }))
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.local.as_ref().map(|(_, path)| path.as_path())
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref()?.0.local_addr().ok()
    }

    pub(crate) fn is_watched(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Lets those in who wait, each with the full state first.
    pub(crate) fn accept(&mut self, meta: &Meta, texts: impl Fn() -> Vec<Text>, state: &HeapState) {
        let mut new = Vec::new();
        if let Some((listener, _)) = &self.local {
            while let Ok((stream, _)) = listener.accept() {
                new.push(Lines::of(Stream::Local(stream)));
            }
        }
        new.extend(self.pairs.drain(..).map(|stream| Lines::of(Stream::Local(stream))));
        new.extend(self.known());
        for lines in new {
            if self.clients.len() >= CLIENTS_MAX {
                continue;
            }
            let begin = || -> io::Result<Peer> {
                lines.stream().set_nonblocking(false)?;
                lines.stream().set_write_timeout(PATIENCE)?;
                let mut writer = TraceWriter::new(lines.stream().again()?, meta)?;
                writer.texts(&texts())?;
                writer.keyframe(state)?;
                Ok(Peer { writer, lines })
            };
            // Who is gone already is no concern of the allocator's.
            self.clients.extend(begin().ok());
            self.told = Instant::now().checked_sub(STATUS_EVERY).unwrap_or_else(Instant::now);
        }
    }

    /// Connections over TCP that have said the token.
    fn known(&mut self) -> Vec<Lines> {
        let Some((listener, token)) = &self.tcp else { return Vec::new() };
        while let Ok((stream, _)) = listener.accept() {
            if self.strangers.len() < CLIENTS_MAX {
                let lines = Lines::of(Stream::Tcp(stream));
                self.strangers.push((lines, Instant::now() + TOKEN_WITHIN));
            }
        }
        let mut known = Vec::new();
        for (mut lines, until) in std::mem::take(&mut self.strangers) {
            match lines.next() {
                Came::Line(line) if token.is(&line) => known.push(lines),
                Came::Nothing if Instant::now() < until => self.strangers.push((lines, until)),
                Came::Line(_) | Came::Nothing | Came::Gone => lines.stream().close(),
            }
        }
        known
    }

    /// Does what those ask for who may.
    pub(crate) fn obey(&mut self) {
        let (control, running) = (&self.control, &self.running);
        self.clients.retain_mut(|client| {
            loop {
                match client.lines.next() {
                    Came::Line(line) => {
                        control.iter().for_each(|control| control.take(&line, running));
                    }
                    Came::Nothing => return true,
                    Came::Gone => return false,
                }
            }
        });
    }

    pub(crate) fn events(&mut self, texts: &[Text], events: &[Event]) {
        self.clients.retain_mut(|client| {
            client.writer.texts(texts).is_ok() && client.writer.events(events).is_ok()
        });
    }

    pub(crate) fn keyframe(&mut self, state: &HeapState) {
        self.clients.retain_mut(|client| client.writer.keyframe(state).is_ok());
    }

    pub(crate) fn is_status_due(&self) -> bool {
        self.is_watched() && self.told.elapsed() >= STATUS_EVERY
    }

    pub(crate) fn status(&mut self, status: Option<Status>) {
        self.told = Instant::now();
        if let Some(status) = status {
            self.clients.retain_mut(|client| client.writer.status(&status).is_ok());
        }
    }
}

impl Control {
    /// Does what a line asks for, on a thread of its own: the caller's has events to take. One at
    /// a time; of what comes meanwhile the last is done after it.
    fn take(&self, line: &str, running: &Arc<Mutex<Running>>) {
        let Some((asked, token)) = line.rsplit_once(' ') else { return };
        if !self.token.is(token) {
            return;
        }
        let Some(command) = Command::of_line(asked) else { return };
        let mut now = running.lock().unwrap_or_else(PoisonError::into_inner);
        now.next = Some(command);
        if std::mem::replace(&mut now.is, true) {
            return;
        }
        drop(now);
        let (act, shared) = (Arc::clone(&self.act), Arc::clone(running));
        let thread = std::thread::Builder::new().name("terrane-control".to_owned());
        let spawned = thread.spawn(move || {
            while let Some(command) = next(&shared) {
                // A program that panics there has said so; the next command is taken all the same.
                let _ = catch_unwind(AssertUnwindSafe(|| act(command)));
            }
        });
        if spawned.is_err() {
            *running.lock().unwrap_or_else(PoisonError::into_inner) = Running::default();
        }
    }
}

/// What is to be done next; nothing is under way any more where there is nothing.
fn next(running: &Mutex<Running>) -> Option<Command> {
    let mut now = running.lock().unwrap_or_else(PoisonError::into_inner);
    let next = now.next.take();
    now.is = next.is_some();
    next
}

fn open_local() -> io::Result<(UnixListener, PathBuf)> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder::make()?.join(format!("{}-{number}.sock", std::process::id()));
    // One of an earlier process with this number.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    Ok((listener, path))
}

/// Listens where only this machine reaches it.
fn open_tcp(at: SocketAddr) -> io::Result<TcpListener> {
    if !at.ip().is_loopback() {
        let text = format!("{at} can be reached from other machines; use 127.0.0.1 and a tunnel");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.local {
            // Nobody is left to be told of a failure.
            let _ = std::fs::remove_file(path);
        }
    }
}
