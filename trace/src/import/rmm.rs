//! The CSV that RMM's logging adaptor writes.

use crate::input::Lines;
use crate::{Field, Limits, Op, ReadError, Reason, Trace, TraceBuilder};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const HEADER: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream";

/// An RMM log.
#[derive(Debug)]
pub struct RmmLog {
    /// Allocations and frees. A free completes when it is requested: RMM orders by stream, and
    /// the log does not say when the GPU got there.
    pub trace: Trace,
    /// Requests that failed, in order: number of events before, bytes, stream.
    pub failures: Vec<(usize, u64, u32)>,
    /// Streams as the log names them, by their number in the trace; 0 is the default stream.
    pub streams: Vec<u64>,
    /// Frees of blocks that were allocated before the log begins.
    pub frees_of_earlier_blocks: u64,
}

/// Opens an RMM log, plain, gzip or zstd.
///
/// # Errors
/// [`ReadError`] with the line and the reason at the first thing that is wrong.
pub fn open_rmm(path: &Path, limits: Limits) -> Result<RmmLog, ReadError> {
    let file = File::open(path).map_err(|e| ReadError { line: 0, reason: Reason::Io(e.kind()) })?;
    read_rmm(file, limits)
}

/// Reads an RMM log, plain, gzip or zstd.
///
/// # Errors
/// [`ReadError`] with the line and the reason at the first thing that is wrong.
pub fn read_rmm(source: impl Read, limits: Limits) -> Result<RmmLog, ReadError> {
    let mut lines = Lines::new(source)?;
    match lines.next()? {
        Some(header) if header == HEADER => {}
        Some(_) => return Err(lines.error(Reason::RmmHeader)),
        None => return Err(lines.error(Reason::Empty)),
    }
    let mut log = Log::new();
    while let Some(line) = lines.next()? {
        let row = parse(line);
        let row = row.map_err(|reason| lines.error(reason))?;
        if log.builder.len() as u64 >= limits.events {
            return Err(lines.error(Reason::TooManyEvents { limit: limits.events }));
        }
        log.take(&row).map_err(|reason| lines.error(reason))?;
    }
    if log.builder.is_empty() {
        return Err(lines.error(Reason::NoEvents));
    }
    Ok(RmmLog {
        trace: log.builder.finish(),
        failures: log.failures,
        streams: log.streams,
        frees_of_earlier_blocks: log.earlier,
    })
}

struct Row {
    time_us: u64,
    action: Action,
    pointer: u64,
    bytes: u64,
    stream: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Allocate,
    Failure,
    Free,
}

struct Log {
    builder: TraceBuilder,
    /// Pointer -> bytes and stream of its allocation.
    live: HashMap<u64, (u64, u32)>,
    numbers: HashMap<u64, u32>,
    streams: Vec<u64>,
    failures: Vec<(usize, u64, u32)>,
    earlier: u64,
    day_us: u64,
    last_us: u64,
}

const DAY_US: u64 = 24 * 3600 * 1_000_000;

impl Log {
    fn new() -> Self {
        Self {
            builder: TraceBuilder::new(),
            live: HashMap::new(),
            numbers: HashMap::from([(0, 0)]),
            streams: vec![0],
            failures: Vec::new(),
            earlier: 0,
            day_us: 0,
            last_us: 0,
        }
    }

    fn take(&mut self, row: &Row) -> Result<(), Reason> {
        // The log has the time of day only: half a day back is the next day.
        if row.time_us + DAY_US / 2 < self.last_us {
            self.day_us += DAY_US;
        }
        self.last_us = row.time_us;
        let now = self.day_us + row.time_us;
        let next = self.streams.len() as u32;
        let stream = *self.numbers.entry(row.stream).or_insert_with(|| {
            self.streams.push(row.stream);
            next
        });
        match row.action {
            Action::Failure => self.failures.push((self.builder.len(), row.bytes, stream)),
            Action::Allocate => {
                self.builder.push(Op::Alloc, now, row.pointer, row.bytes, stream)?;
                self.live.insert(row.pointer, (row.bytes, stream));
            }
            // A block may be freed on another stream than it was allocated on.
            Action::Free => match self.live.remove(&row.pointer) {
                None => self.earlier += 1,
                Some((bytes, owner)) => {
                    for op in [Op::FreeRequested, Op::FreeCompleted] {
                        self.builder.push(op, now, row.pointer, bytes, owner)?;
                    }
                }
            },
        }
        Ok(())
    }
}

fn parse(line: &[u8]) -> Result<Row, Reason> {
    let line = std::str::from_utf8(line).map_err(|_| Reason::UnknownOp)?;
    let columns: Vec<&str> = line.split(',').collect();
    let [_thread, time, action, pointer, size, stream] = columns[..] else {
        return Err(Reason::RmmColumns { found: columns.len() });
    };
    let action = match action {
        "allocate" => Action::Allocate,
        "allocate failure" => Action::Failure,
        "free" => Action::Free,
        _ => return Err(Reason::UnknownOp),
    };
    Ok(Row {
        time_us: time_of_day(time).ok_or(Reason::NotANumber(Field::Time))?,
        action,
        pointer: hexadecimal(pointer).ok_or(Reason::NotANumber(Field::Block))?,
        bytes: size.trim().parse().map_err(|_| Reason::NotANumber(Field::Size))?,
        stream: hexadecimal(stream).ok_or(Reason::NotANumber(Field::Stream))?,
    })
}

/// Microseconds since midnight of `HH:MM:SS.us` (or `HH:MM:SS:us`, as older versions write).
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.trim().split([':', '.']).map(|part| part.parse::<u64>().ok());
    let mut part = || parts.next().flatten();
    let (hours, minutes, seconds, us) = (part()?, part()?, part()?, part()?);
    let fits = hours < 24 && minutes < 60 && seconds < 61 && us < 1_000_000;
    fits.then(|| ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + us)
}

/// A pointer with or without `0x`; `(nil)` and nothing are null.
fn hexadecimal(text: &str) -> Option<u64> {
    let text = text.trim();
    if matches!(text, "" | "(nil)") {
        return Some(0);
    }
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).ok()
}
