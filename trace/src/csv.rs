//! The recorded CSV: `t_us,op,block,size,stream`, one event a line.
//!
//! Read by hand rather than by a CSV crate: the columns are five plain integers, no quoting
//! exists in this format, and a line must be bounded before it is held in memory.

use crate::input::Lines;
use crate::{Field, Limits, Op, ReadError, Reason, Trace, TraceBuilder};
use std::{fs::File, io::Read, path::Path};

const HEADER: &[u8] = b"t_us,op,block,size,stream";

/// Reads a recorded CSV trace, plain or gzipped (told apart by content, not by name).
///
/// # Errors
/// [`ReadError`] with the line and the reason at the first thing that is wrong.
pub fn open_csv(path: &Path, limits: Limits) -> Result<Trace, ReadError> {
    let file = File::open(path).map_err(|e| ReadError { line: 0, reason: Reason::Io(e.kind()) })?;
    read_csv(file, limits)
}

/// Reads a recorded CSV trace from any source of bytes, as [`open_csv`] does.
///
/// # Errors
/// [`ReadError`] with the line and the reason at the first thing that is wrong.
pub fn read_csv(source: impl Read, limits: Limits) -> Result<Trace, ReadError> {
    let mut lines = Lines::new(source)?;
    check_header(&mut lines)?;
    let mut builder = TraceBuilder::new();
    while let Some(line) = lines.next()? {
        let parsed = parse(line);
        let row = parsed.map_err(|reason| lines.error(reason))?;
        if builder.len() as u64 >= limits.events {
            return Err(lines.error(Reason::TooManyEvents { limit: limits.events }));
        }
        let pushed = builder.push(row.op, row.time_us, row.block, row.bytes, row.stream);
        pushed.map_err(|reason| lines.error(reason))?;
    }
    if builder.is_empty() {
        return Err(lines.error(Reason::NoEvents));
    }
    Ok(builder.finish())
}

fn check_header(lines: &mut Lines<'_>) -> Result<(), ReadError> {
    match lines.next() {
        Ok(Some(line)) if line == HEADER => Ok(()),
        Ok(Some(_)) => Err(lines.error(Reason::Header)),
        Ok(None) => Err(lines.error(Reason::Empty)),
        Err(e) => Err(match e.reason {
            Reason::LineTooLong { .. } => lines.error(Reason::Header),
            Reason::TruncatedLine if !HEADER.starts_with(lines.line()) => {
                lines.error(Reason::Header)
            }
            _ => e,
        }),
    }
}

struct Row {
    op: Op,
    time_us: u64,
    block: u64,
    bytes: u64,
    stream: u32,
}

fn parse(line: &[u8]) -> Result<Row, Reason> {
    let mut columns = line.split(|byte| *byte == b',');
    let mut cell = || columns.next();
    let (Some(time), Some(op), Some(block), Some(size), Some(stream), None) =
        (cell(), cell(), cell(), cell(), cell(), cell())
    else {
        return Err(Reason::Columns { found: line.split(|byte| *byte == b',').count() });
    };
    let op = match op {
        b"a" => Op::Alloc,
        b"r" => Op::FreeRequested,
        b"f" => Op::FreeCompleted,
        _ => return Err(Reason::UnknownOp),
    };
    Ok(Row {
        op,
        time_us: number(time, Field::Time, u64::MAX)?,
        block: number(block, Field::Block, u64::MAX)?,
        bytes: number(size, Field::Size, i64::MAX as u64)?,
        stream: number(stream, Field::Stream, u32::MAX.into())? as u32,
    })
}

/// Digits only: no sign, no blank, no separator.
fn number(cell: &[u8], field: Field, max: u64) -> Result<u64, Reason> {
    if cell.is_empty() || !cell.iter().all(u8::is_ascii_digit) {
        return Err(Reason::NotANumber(field));
    }
    cell.iter()
        .try_fold(0u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .filter(|n| *n <= max)
        .ok_or(Reason::OutOfRange(field))
}
