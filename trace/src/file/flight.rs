//! The flight recorder: the last events, kept in memory and written when something goes wrong.

use super::state::HeapState;
use super::texts::{Meta, Text, TextKind};
use super::worker::Orders;
use super::writer::TraceWriter;
use crate::diagnose::Class;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;
use terrane_core::event::Event;

/// The last events and the state before the first of them.
#[derive(Debug)]
pub(super) struct Flight {
    path: PathBuf,
    events_max: usize,
    meta: Meta,
    base: HeapState,
    events: VecDeque<Event>,
    texts: BTreeMap<(TextKind, u32), Text>,
}

impl Flight {
    pub fn new(path: &Path, events_max: usize) -> Self {
        Self {
            path: path.to_owned(),
            events_max: events_max.max(1),
            meta: Meta::default(),
            base: HeapState::default(),
            events: VecDeque::new(),
            texts: BTreeMap::new(),
        }
    }

    pub fn start(mut self, meta: &Meta, state: &HeapState) -> Self {
        self.meta = meta.clone();
        self.restart(state);
        self
    }

    /// Begins anew after events were lost.
    pub fn restart(&mut self, state: &HeapState) {
        self.events.clear();
        self.base = state.clone();
    }

    pub fn take(&mut self, texts: &[Text], events: &[Event]) {
        self.texts.extend(texts.iter().map(|text| ((text.kind, text.number), text.clone())));
        self.events.extend(events);
        while self.events.len() > self.events_max {
            if let Some(oldest) = self.events.pop_front() {
                self.base.apply(&oldest, &mut |_| {});
            }
        }
    }

    /// Writes the file anew, whole or not at all.
    pub fn write(&mut self, reason: &str) -> io::Result<()> {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".part");
        let part = PathBuf::from(name);
        let meta = Meta { reason: reason.to_owned(), ..self.meta.clone() };
        let mut writer = TraceWriter::new(BufWriter::new(File::create(&part)?), &meta)?;
        let texts: Vec<Text> = self.texts.values().cloned().collect();
        writer.texts(&texts)?;
        writer.keyframe(&self.base)?;
        writer.events(self.events.make_contiguous())?;
        writer.finish()?.flush()?;
        std::fs::rename(part, &self.path)
    }
}

/// Why a request failed, in a sentence, by the state after it.
pub(super) fn shortage(failed: &Event, state: &HeapState) -> String {
    let live = state.blocks.values().filter(|block| !block.pending);
    let live = live.map(|block| block.made.a).fold(0, u64::saturating_add);
    let active = state.blocks.values().map(|block| block.made.a).fold(0, u64::saturating_add);
    let (asked, there) = (failed.a, state.reserved_bytes().saturating_add(failed.c));
    let (class, short) = Class::of_shortage(asked, live, active, there);
    let verdict = match class {
        Class::Capacity => format!("capacity: {short} bytes more are needed than there are"),
        Class::Pending => "pending: there is room once work ends that still uses it".to_owned(),
        _ => format!("fragmentation: the largest free piece has {} bytes", failed.b),
    };
    format!("out of memory: {asked} bytes asked for, {live} live; {verdict}")
}

/// How long a thread that panics waits for the recorder's.
const PATIENCE: Duration = Duration::from_secs(1);

/// Recorders of this process that keep the last events.
static FLIGHTS: Mutex<Vec<Weak<Orders>>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Has the last events written when a thread panics. What else is done at a panic is still done.
pub(super) fn watch_panics(orders: &Arc<Orders>) {
    if orders.flight.is_none() {
        return;
    }
    let mut flights = FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner);
    flights.retain(|flight| flight.strong_count() > 0);
    flights.push(Arc::downgrade(orders));
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            let flights = FLIGHTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
            for flight in flights.iter().filter_map(Weak::upgrade) {
                // A thread that panics has worse to tell than that this failed too.
                let _ = flight.write_flight(&format!("a thread panicked{place}"), PATIENCE);
            }
        }));
    });
}
