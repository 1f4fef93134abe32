//! A part of a history: a range of it, and only some blocks.

use crate::snapshot::{Attempt, Gaps, History, Origin, Snapshot};
use crate::{Lifetime, Op, Trace, TraceBuilder};
use std::collections::HashMap;
use std::str::FromStr;

/// A place in a history.
#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    /// So many events of the trace.
    Event(usize),
    /// Microseconds since the start of the history.
    Time(u64),
    /// The first annotation whose name contains this text.
    Marker(String),
}

/// `1200` (events), `1.5s`, `20ms`, `300us` (time since the start), `@name` (an annotation).
impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "`{text}` is no place in a recording: give a number of events (1200), a time \
                 since its start (1.5s, 20ms, 300us) or an annotation (@name)"
            )
        };
        if let Some(name) = text.strip_prefix('@') {
            return if name.is_empty() { Err(bad()) } else { Ok(Self::Marker(name.to_owned())) };
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let us = match &text[digits.len()..] {
            "" => return digits.parse().map(Self::Event).map_err(|_| bad()),
            "us" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return Err(bad()),
        };
        let number: f64 = digits.parse().map_err(|_| bad())?;
        let possible = number.is_finite() && number >= 0.0;
        if possible { Ok(Self::Time((number * us) as u64)) } else { Err(bad()) }
    }
}

impl Point {
    /// Events of the history before this place.
    ///
    /// # Errors
    /// A sentence for an annotation that is not there.
    pub fn events(&self, snapshot: &Snapshot, history: &History) -> Result<usize, String> {
        let events = history.trace.events();
        let before = |time: u64| events.partition_point(|event| event.time_us < time);
        match self {
            Self::Event(count) => Ok((*count).min(events.len())),
            Self::Time(us) => Ok(before(*us)),
            Self::Marker(name) => {
                let mut named = snapshot
                    .annotations
                    .iter()
                    .filter(|a| snapshot.strings.get(a.name).contains(name.as_str()));
                let found = named.next().ok_or_else(|| {
                    let count = snapshot.annotations.len();
                    format!("no annotation contains `{name}`; the file has {count} annotations")
                })?;
                Ok(before(found.time_us.saturating_sub(history.start_us)))
            }
        }
    }
}

/// Which part of a history is looked at. The default is all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Its first event. Blocks that are live there are allocated at its start.
    pub from: Option<Point>,
    /// The event after its last.
    pub to: Option<Point>,
    /// Only blocks of this stream.
    pub stream: Option<u32>,
    /// Only blocks of at least so many bytes.
    pub bytes_min: Option<u64>,
    /// Only blocks of at most so many bytes.
    pub bytes_max: Option<u64>,
    /// Only blocks with this text in a line of their stack.
    pub site: Option<String>,
}

impl Selection {
    /// True when nothing is left out.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// The part of a history that is selected. Segments stay as they are.
    ///
    /// # Errors
    /// A sentence: an annotation that is not there, a range that is empty, or a selection that
    /// leaves nothing.
    pub fn apply(&self, snapshot: &Snapshot, history: &History) -> Result<History, String> {
        let (from, to) = self.range(snapshot, history)?;
        let part = self.cut(snapshot, history, from, to)?;
        if part.trace.events().is_empty() {
            return Err("nothing in the recording is as the filters say".to_owned());
        }
        Ok(part)
    }

    /// Of each block of a history, whether it is as the filters say and was in memory at some
    /// moment of the range.
    ///
    /// # Errors
    /// A sentence: an annotation that is not there, or a range that is empty.
    pub fn chosen(&self, snapshot: &Snapshot, history: &History) -> Result<Vec<bool>, String> {
        let (from, to) = self.range(snapshot, history)?;
        let lifetimes = history.trace.lifetimes();
        let is_chosen = |(origin, life): (&Origin, &Lifetime)| {
            let lives = life.alloc < to && life.completed.is_none_or(|end| end >= from);
            lives && self.keeps(snapshot, origin, life.bytes, life.stream)
        };
        Ok(history.blocks.iter().zip(&lifetimes).map(is_chosen).collect())
    }

    /// Its first event and the one after its last.
    fn range(&self, snapshot: &Snapshot, history: &History) -> Result<(usize, usize), String> {
        let resolve = |point: &Option<Point>, or: usize| {
            point.as_ref().map_or(Ok(or), |point| point.events(snapshot, history))
        };
        let from = resolve(&self.from, 0)?;
        let to = resolve(&self.to, history.trace.events().len())?;
        if from >= to {
            return Err(format!("the range is empty: it begins at event {from} and ends at {to}"));
        }
        Ok((from, to))
    }

    /// Which failed request of a history is the last that is selected: one that lies in the range
    /// and is as the filters say.
    ///
    /// # Errors
    /// A sentence: an annotation that is not there, or no such request.
    pub fn last_failure(&self, snapshot: &Snapshot, history: &History) -> Result<usize, String> {
        let place = |point: &Option<Point>, or: usize| {
            point.as_ref().map_or(Ok(or), |point| point.events(snapshot, history))
        };
        let range = place(&self.from, 0)?..=place(&self.to, usize::MAX)?;
        let found = history.attempts.iter().rposition(|attempt| {
            let origin = Origin { address: 0, stack: attempt.stack, tag: 0, class: 0, hold: 0 };
            range.contains(&attempt.before_event)
                && self.keeps(snapshot, &origin, attempt.bytes, attempt.stream)
        });
        found.ok_or_else(|| {
            let count = history.attempts.len();
            format!("none of {count} failed requests is in the range and as the filters say")
        })
    }

    fn keeps(&self, snapshot: &Snapshot, origin: &Origin, bytes: u64, stream: u32) -> bool {
        let named = |text: &String| {
            let stack = origin.stack.map(|stack| snapshot.stack_lines(stack));
            stack.is_some_and(|lines| lines.iter().any(|line| line.contains(text.as_str())))
        };
        self.stream.is_none_or(|only| only == stream)
            && self.bytes_min.is_none_or(|least| bytes >= least)
            && self.bytes_max.is_none_or(|most| bytes <= most)
            && self.site.as_ref().is_none_or(named)
    }

    fn cut(
        &self,
        snapshot: &Snapshot,
        history: &History,
        from: usize,
        to: usize,
    ) -> Result<History, String> {
        let events = &history.trace.events()[..to];
        let lifetimes = history.trace.lifetimes();
        let mut part = Part::default();
        let kept: Vec<bool> = history
            .blocks
            .iter()
            .zip(&lifetimes)
            .map(|(origin, life)| self.keeps(snapshot, origin, life.bytes, life.stream))
            .collect();
        let start_us = events[from].time_us;
        for (block, life) in (0..).zip(&lifetimes).filter(|(_, life)| life.alloc < from) {
            if kept[block as usize] && life.completed.is_none_or(|end| end >= from) {
                part.push(history, Op::Alloc, start_us, block, life)?;
                if life.requested.is_some_and(|at| at < from) {
                    part.push(history, Op::FreeRequested, start_us, block, life)?;
                }
            }
        }
        let (earlier, at_start) = (part.blocks.len() as u64, part.builder.len());
        let mut new_index = vec![0; events.len() + 1];
        for (at, event) in events.iter().enumerate() {
            // What happened to segments before the part is folded into its start.
            new_index[at] = if at <= from { 0 } else { part.builder.len() };
            if at >= from && kept[event.block as usize] {
                let life = &lifetimes[event.block as usize];
                part.push(history, event.op, event.time_us, event.block, life)?;
            }
        }
        new_index[events.len()] = part.builder.len();
        let attempts = history.attempts.iter().filter(|attempt| {
            let origin = Origin { address: 0, stack: attempt.stack, tag: 0, class: 0, hold: 0 };
            (from..=to).contains(&attempt.before_event)
                && self.keeps(snapshot, &origin, attempt.bytes, attempt.stream)
        });
        part.attempts = attempts.copied().collect();
        for attempt in &mut part.attempts {
            let at = attempt.before_event;
            // What the part begins with was there when a request failed at its start.
            attempt.before_event = if at == from { at_start } else { new_index[at] };
        }
        Ok(part.finish(history, &new_index, earlier))
    }
}

#[derive(Default)]
struct Part {
    builder: TraceBuilder,
    blocks: Vec<Origin>,
    attempts: Vec<Attempt>,
    /// The part's own numbers of blocks.
    numbers: HashMap<u32, u32>,
}

impl Part {
    fn push(
        &mut self,
        history: &History,
        op: Op,
        time_us: u64,
        block: u32,
        life: &Lifetime,
    ) -> Result<(), String> {
        let number = u64::from(block);
        let pushed = self.builder.push(op, time_us, number, life.bytes, life.stream);
        pushed.map_err(|reason| reason.to_string())?;
        if op == Op::Alloc {
            self.numbers.insert(block, self.blocks.len() as u32);
            self.blocks.push(history.blocks[block as usize]);
        }
        Ok(())
    }

    fn finish(self, history: &History, new_index: &[usize], earlier: u64) -> History {
        let trace: Trace = self.builder.finish();
        // What lies beyond the part is put behind its end, where no walk over it comes.
        let index = |at: usize| new_index.get(at).copied().unwrap_or(usize::MAX);
        let mut segments = history.segments.clone();
        segments.iter_mut().for_each(|change| change.before_event = index(change.before_event));
        let mut happenings = history.happenings.clone();
        happenings.retain(|happening| happening.before_event < new_index.len());
        for it in &mut happenings {
            it.before_event = index(it.before_event);
            it.block = it.block.and_then(|block| self.numbers.get(&block).copied());
        }
        History {
            device: history.device,
            start_us: history.start_us,
            trace,
            blocks: self.blocks,
            attempts: self.attempts,
            segments,
            happenings,
            entries: Vec::new(),
            gaps: Gaps { earlier_blocks: earlier, ..history.gaps },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_events_times_or_annotations() {
        assert_eq!("1200".parse(), Ok(Point::Event(1200)));
        assert_eq!("1.5s".parse(), Ok(Point::Time(1_500_000)));
        assert_eq!("20ms".parse(), Ok(Point::Time(20_000)));
        assert_eq!("@step 3".parse(), Ok(Point::Marker("step 3".to_owned())));
        for bad in ["", "@", "-1", "3h", "ms"] {
            assert!(bad.parse::<Point>().is_err(), "{bad}");
        }
    }
}
