//! The side of the allocator.

use super::folder;
use crate::file::{HeapState, Meta, Status, Text, TraceWriter};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use terrane_core::event::Event;

/// A socket and those who look on.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    clients: Vec<TraceWriter<UnixStream>>,
    told: Instant,
}

/// Who does not take what is sent within this time is let go.
const PATIENCE: Duration = Duration::from_millis(100);
const STATUS_EVERY: Duration = Duration::from_millis(500);
const CLIENTS_MAX: usize = 16;
/// Allocators of this process so far.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Server {
    /// Opens a socket of this process.
    pub(crate) fn open() -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder::make()?.join(format!("{}-{number}.sock", std::process::id()));
        // One of an earlier process with this number.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path, clients: Vec::new(), told: Instant::now() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_watched(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Lets those in who wait, each with the full state first.
    pub(crate) fn accept(&mut self, meta: &Meta, texts: impl Fn() -> Vec<Text>, state: &HeapState) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() >= CLIENTS_MAX {
                continue;
            }
            let begin = || -> io::Result<TraceWriter<UnixStream>> {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                let mut writer = TraceWriter::new(stream, meta)?;
                writer.texts(&texts())?;
                writer.keyframe(state)?;
                Ok(writer)
            };
            // Who is gone already is no concern of the allocator's.
            self.clients.extend(begin().ok());
            self.told = Instant::now().checked_sub(STATUS_EVERY).unwrap_or_else(Instant::now);
        }
    }

    pub(crate) fn events(&mut self, texts: &[Text], events: &[Event]) {
        self.clients
            .retain_mut(|client| client.texts(texts).is_ok() && client.events(events).is_ok());
    }

    pub(crate) fn keyframe(&mut self, state: &HeapState) {
        self.clients.retain_mut(|client| client.keyframe(state).is_ok());
    }

    pub(crate) fn is_status_due(&self) -> bool {
        self.is_watched() && self.told.elapsed() >= STATUS_EVERY
    }

    pub(crate) fn status(&mut self, status: Option<Status>) {
        self.told = Instant::now();
        if let Some(status) = status {
            self.clients.retain_mut(|client| client.status(&status).is_ok());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody is left to be told of a failure.
        let _ = std::fs::remove_file(&self.path);
    }
}
