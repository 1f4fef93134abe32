//! A trace for ui.perfetto.dev, in the JSON form of Chrome's trace events.

use super::json::Json;
use super::tree::Tree;
use crate::diagnose::timeline_each;
use crate::snapshot::{Happened, History, Snapshot};
use std::io::{self, Write};
use terrane_core::event::MoveKind;

/// Writes counters of bytes, a lane for each stream with a bar for each block, flows from a
/// request to free to a completion that came later (another stream used the block meanwhile) and
/// from a stream to one that waits for it, and instants for requests that failed, for moves and
/// for the program's annotations.
///
/// # Errors
/// The sink's.
pub fn perfetto(snapshot: &Snapshot, histories: &[&History], sink: impl Write) -> io::Result<()> {
    let mut json = Json::new(sink);
    json.begin_dict()?;
    json.entry_text("displayTimeUnit", "ms")?;
    json.key("traceEvents")?;
    json.begin_list()?;
    for history in histories {
        let mut lanes = Lanes { json: &mut json, snapshot, history };
        lanes.titles()?;
        lanes.counters()?;
        lanes.blocks()?;
        lanes.failures()?;
        lanes.happenings()?;
    }
    json.end_list()?;
    json.end_dict()?;
    json.finish()
}

struct Lanes<'a, W> {
    json: &'a mut Json<W>,
    snapshot: &'a Snapshot,
    history: &'a History,
}

impl<W: Write> Lanes<'_, W> {
    /// What every event has; its dictionary stays open.
    fn begin(&mut self, phase: &str, name: &str, time_us: u64, lane: u64) -> io::Result<()> {
        self.json.begin_dict()?;
        self.json.entry_text("ph", phase)?;
        self.json.entry_text("name", name)?;
        self.json.entry("ts", time_us)?;
        // 0 is no process.
        self.json.entry("pid", self.history.device as u64 + 1)?;
        self.json.entry("tid", lane)
    }

    fn titles(&mut self) -> io::Result<()> {
        let device = format!("device {}", self.history.device);
        self.title("process_name", &device, 0)?;
        for &stream in self.history.trace.streams() {
            self.title("thread_name", &format!("stream {stream}"), u64::from(stream) + 1)?;
        }
        Ok(())
    }

    fn title(&mut self, what: &str, text: &str, lane: u64) -> io::Result<()> {
        self.begin("M", what, 0, lane)?;
        self.json.key("args")?;
        self.json.begin_dict()?;
        self.json.entry_text("name", text)?;
        self.json.end_dict()?;
        self.json.end_dict()
    }

    fn counters(&mut self) -> io::Result<()> {
        let points: Vec<_> = timeline_each(self.snapshot, self.history).collect();
        for (at, point) in points.iter().enumerate() {
            // Of one microsecond the last.
            if points.get(at + 1).is_some_and(|next| next.time_us == point.time_us) {
                continue;
            }
            self.begin("C", "memory", point.time_us, 0)?;
            self.json.key("args")?;
            self.json.begin_dict()?;
            self.json.entry("live", point.requested)?;
            self.json.entry("in use", point.active)?;
            self.json.entry("reserved", point.reserved)?;
            self.json.end_dict()?;
            self.json.end_dict()?;
        }
        Ok(())
    }

    fn blocks(&mut self) -> io::Result<()> {
        let events = self.history.trace.events();
        let end = events.last().map_or(0, |event| event.time_us);
        for (number, life) in self.history.trace.lifetimes().into_iter().enumerate() {
            let time = |event: Option<usize>| event.map_or(end, |at| events[at].time_us);
            let (start, freed, done) =
                (time(Some(life.alloc)), time(life.requested), time(life.completed));
            let lane = u64::from(life.stream) + 1;
            let name = self.name(number, life.bytes);
            for (phase, at) in [("b", start), ("e", done)] {
                self.begin(phase, &name, at, lane)?;
                self.json.entry_text("cat", "block")?;
                self.json.entry("id", number as u64)?;
                self.json.key("args")?;
                self.json.begin_dict()?;
                self.json.entry("bytes", life.bytes)?;
                self.json.end_dict()?;
                self.json.end_dict()?;
            }
            if life.requested.is_some() && done > freed {
                self.wait(number as u64, lane, freed, done)?;
            }
        }
        Ok(())
    }

    /// A flow from a free to its completion.
    fn wait(&mut self, id: u64, lane: u64, freed: u64, done: u64) -> io::Result<()> {
        let ends = [("freed", freed, lane), ("reusable", done, lane)];
        self.flow(id, "waits for other streams", ends)
    }

    /// A flow between two short bars, which it needs to end at: name, time and lane of each.
    fn flow(&mut self, id: u64, name: &str, ends: [(&str, u64, u64); 2]) -> io::Result<()> {
        for (phase, (end, at, lane)) in ["s", "f"].into_iter().zip(ends) {
            self.begin("X", end, at, lane)?;
            self.json.entry("dur", 1)?;
            self.json.end_dict()?;
            self.begin(phase, name, at, lane)?;
            self.json.entry_text("cat", "wait")?;
            self.json.entry("id", id)?;
            self.json.end_dict()?;
        }
        Ok(())
    }

    /// Moves and waits of our own allocator.
    fn happenings(&mut self) -> io::Result<()> {
        // Ids of the flows above are blocks.
        let first_id = u64::from(self.history.trace.block_count());
        for (id, it) in (first_id..).zip(&self.history.happenings) {
            let (at, lane) = (it.time_us, u64::from(it.stream) + 1);
            let name = match it.what {
                Happened::MoveSubmitted(by) => moves_by(by),
                Happened::MoveCommitted => "moved",
                Happened::MoveCancelled => "move cancelled",
                Happened::MoveDropped => "freed while it moved",
                Happened::MoveCorrupt => "move: the copy differs",
                Happened::MoveRefused { .. } => "not moved",
                Happened::PassEnd(_) => "pass of moves ends",
                Happened::LimitSet => "limit set",
                // Mappings are no business of any lane.
                Happened::MappingStale | Happened::MappingGone => continue,
                Happened::Damage => "damage: written where nobody may",
                Happened::Lost(_) => "events were lost",
                Happened::Submitted(_) => "work submitted",
                // The flow from a free to its completion shows them.
                Happened::Reached(_) | Happened::FreeWaits { .. } | Happened::Hold(_) => continue,
                Happened::PassGoal { .. } => "pass of moves begins",
                Happened::PassLimits { .. } => continue,
                Happened::WaitFor(behind) | Happened::WorkWaitsFor(behind) => {
                    let behind = u64::from(behind) + 1;
                    let ends = [("awaited", at, behind), ("waits", at, lane)];
                    self.flow(id, "waits for a stream", ends)?;
                    continue;
                }
            };
            self.instant(name, at, lane, it.bytes)?;
        }
        Ok(())
    }

    fn name(&self, block: usize, bytes: u64) -> String {
        let stack = self.history.blocks.get(block).and_then(|origin| origin.stack);
        let frame = stack.and_then(|stack| {
            let first = *self.snapshot.stacks.get(stack).first()?;
            self.snapshot.stacks.frame(first)
        });
        match frame {
            Some(frame) => {
                let strings = &self.snapshot.strings;
                let (file, name) = (strings.get(frame.file), strings.get(frame.name));
                format!("{file}:{} {name}", frame.line)
            }
            None => format!("{bytes} bytes"),
        }
    }

    fn failures(&mut self) -> io::Result<()> {
        let events = self.history.trace.events();
        for attempt in &self.history.attempts {
            let at = attempt.before_event.min(events.len().saturating_sub(1));
            let time = events.get(at).map_or(0, |event| event.time_us);
            self.instant("out of memory", time, u64::from(attempt.stream) + 1, attempt.bytes)?;
        }
        for annotation in &self.snapshot.annotations {
            let time = annotation.time_us.saturating_sub(self.history.start_us);
            let name = self.snapshot.strings.get(annotation.name);
            self.instant(name, time, 0, 0)?;
        }
        Ok(())
    }

    fn instant(&mut self, name: &str, time_us: u64, lane: u64, bytes: u64) -> io::Result<()> {
        self.begin("i", name, time_us, lane)?;
        self.json.entry_text("s", "g")?;
        self.json.key("args")?;
        self.json.begin_dict()?;
        self.json.entry("bytes", bytes)?;
        self.json.end_dict()?;
        self.json.end_dict()
    }
}

/// The name of a move in a lane.
const fn moves_by(kind: MoveKind) -> &'static str {
    match kind {
        MoveKind::Copy => "moves by copy",
        MoveKind::Slide => "moves by sliding",
        MoveKind::Remap => "moves by remapping",
        MoveKind::Rebind => "stays, on other memory",
        _ => "moves",
    }
}
