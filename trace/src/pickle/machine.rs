//! The stack machine: reads opcodes and pushes what they stand for.

use super::source::Source;
use super::value::{Arena, Value};
use super::{PickleError, PickleLimits, PickleReason, opcode};
use std::collections::HashMap;
use std::io::Read;
use std::ops::ControlFlow;

/// Turns dictionaries into records as soon as they are complete, so that millions of them need
/// not be held as dictionaries.
pub(crate) trait Fold {
    /// Sees the pairs of a dictionary, flat. Returns the kind and index of the record that
    /// replaces it, or `None` to keep it.
    fn dict(&mut self, arena: &Arena, pairs: &[Value]) -> Option<(u8, u32)>;

    /// Sees now and then what of the outermost dictionary has been read: keys and values, flat, of
    /// which the last value may be on its way.
    fn glance(&mut self, _arena: &Arena, _pairs: &[Value]) {}
}

/// What a pickle contained.
#[derive(Debug)]
pub(crate) struct Pickled {
    pub arena: Arena,
    pub root: Value,
}

/// Opcodes between two calls of the progress function.
const PROGRESS_EVERY: u32 = 1 << 16;
/// Longer names of modules and functions are none that is accepted.
const NAME_BYTES_MAX: usize = 64;

/// Reads one pickle up to its STOP. `progress` sees the offset now and then.
///
/// With `to_the_end`, bytes after STOP are refused.
pub(crate) fn read<R: Read>(
    reader: R,
    limits: PickleLimits,
    fold: &mut dyn Fold,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    to_the_end: bool,
) -> Result<Pickled, PickleError> {
    let mut machine = Machine {
        source: Source::new(reader),
        limits,
        fold,
        arena: Arena::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        sparse_memo: HashMap::new(),
        items: 0,
        memory: 0,
        opcode_offset: 0,
    };
    machine.start()?;
    let mut countdown = PROGRESS_EVERY;
    while machine.step()?.is_continue() {
        countdown -= 1;
        if countdown == 0 {
            countdown = PROGRESS_EVERY;
            if progress(machine.opcode_offset).is_break() {
                return Err(machine.error(PickleReason::Cancelled));
            }
            machine.show();
        }
    }
    let root = machine.pop("STOP")?;
    if to_the_end && machine.source.next()?.is_some() {
        machine.opcode_offset = machine.source.offset() - 1;
        return Err(machine.error(PickleReason::Trailing));
    }
    Ok(Pickled { arena: machine.arena, root })
}

pub(super) struct Machine<'a, R> {
    source: Source<R>,
    pub(super) limits: PickleLimits,
    pub(super) fold: &'a mut dyn Fold,
    pub(super) arena: Arena,
    pub(super) stack: Vec<Value>,
    /// Heights of the stack at open marks.
    pub(super) marks: Vec<usize>,
    pub(super) memo: Vec<Value>,
    /// Memo entries far above the dense ones, which no known writer makes.
    pub(super) sparse_memo: HashMap<u32, Value>,
    items: u64,
    memory: u64,
    pub(super) opcode_offset: u64,
}

/// What a string costs beside its bytes: its end and its place in the index.
const STRING_BYTES: usize = 72;
pub(super) const VALUE_BYTES: u64 = size_of::<Value>() as u64;

impl<R: Read> Machine<'_, R> {
    /// Shows what there is of the outermost dictionary.
    fn show(&mut self) {
        let Some(&first) = self.marks.first() else { return };
        let is_dict = first
            .checked_sub(1)
            .is_some_and(|at| matches!(self.stack.get(at), Some(Value::Dict(_))) && at == 0);
        // From the next mark on stand parts of the last value.
        let end = self.marks.get(1).copied().unwrap_or(self.stack.len());
        if is_dict && let Some(pairs) = self.stack.get(first..end) {
            self.fold.glance(&self.arena, pairs);
        }
    }

    fn start(&mut self) -> Result<(), PickleError> {
        match self.source.next()? {
            None => Err(self.error(PickleReason::Empty)),
            Some(0x80) => self.protocol(),
            Some(_) => Err(self.error(PickleReason::NotPickle)),
        }
    }

    fn protocol(&mut self) -> Result<(), PickleError> {
        match self.source.byte()? {
            2..=5 => Ok(()),
            other => Err(self.error(PickleReason::Protocol(other))),
        }
    }

    /// Carries out one opcode; breaks at STOP.
    fn step(&mut self) -> Result<ControlFlow<()>, PickleError> {
        self.opcode_offset = self.source.offset();
        let opcode = self.source.byte()?;
        match opcode {
            b'.' => return Ok(ControlFlow::Break(())),
            0x80 => self.protocol()?,
            0x95 => _ = self.source.array::<8>()?,
            b'(' => self.mark()?,
            b'h' => {
                let at = self.source.byte()?;
                self.recall(at.into())?;
            }
            b'j' => {
                let at = u32::from_le_bytes(self.source.array()?);
                self.recall(at)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            b'q' => {
                let at = self.source.byte()?;
                self.memoize(at.into())?;
            }
            b'r' => {
                let at = u32::from_le_bytes(self.source.array()?);
                self.memoize(at)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(opcode, &module, &name)?;
            }
            0x93 => self.stack_global()?,
            b'R' => self.call_identity()?,
            _ if self.scalar(opcode)? || self.text(opcode)? || self.container(opcode)? => {}
            _ => return Err(self.refused(opcode)),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Text up to a newline, as GLOBAL has it.
    fn line(&mut self) -> Result<Vec<u8>, PickleError> {
        let mut line = Vec::new();
        loop {
            match self.source.byte()? {
                b'\n' => return Ok(line),
                _ if line.len() >= NAME_BYTES_MAX => return Err(self.refused(b'c')),
                byte => line.push(byte),
            }
        }
    }

    /// Opcodes that push a number or a constant; false for others.
    fn scalar(&mut self, opcode: u8) -> Result<bool, PickleError> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(self.source.byte()?.into()),
            b'M' => Value::Int(u16::from_le_bytes(self.source.array()?).into()),
            b'J' => Value::Int(i32::from_le_bytes(self.source.array()?).into()),
            0x8a => {
                let count = self.source.byte()?;
                self.long(count.into())?
            }
            0x8b => {
                let count = u32::from_le_bytes(self.source.array()?);
                self.long(count)?
            }
            b'G' => Value::Float(f64::from_be_bytes(self.source.array()?)),
            _ => return Ok(false),
        };
        self.push(value)?;
        Ok(true)
    }

    /// A little-endian integer of `count` bytes in two's complement.
    fn long(&mut self, count: u32) -> Result<Value, PickleError> {
        if count > 9 {
            return Err(self.error(PickleReason::Integer(count)));
        }
        let bytes = self.source.slice(count as usize)?;
        let negative = bytes.last().is_some_and(|top| top & 0x80 != 0);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let number = i128::from_le_bytes(wide);
        match (i64::try_from(number), u64::try_from(number)) {
            (Ok(int), _) => Ok(Value::Int(int)),
            (_, Ok(unsigned)) => Ok(Value::Unsigned(unsigned)),
            _ => Err(self.error(PickleReason::Integer(count))),
        }
    }

    /// Opcodes that push a string; false for others. Bytes are read as strings too.
    fn text(&mut self, opcode: u8) -> Result<bool, PickleError> {
        let bytes = match opcode {
            0x8c | b'U' | b'C' => self.source.byte()?.into(),
            b'X' | b'T' | b'B' => u32::from_le_bytes(self.source.array()?).into(),
            0x8d | 0x8e => u64::from_le_bytes(self.source.array()?),
            _ => return Ok(false),
        };
        if bytes > self.limits.string_bytes {
            let limit = self.limits.string_bytes;
            return Err(self.error(PickleReason::StringLength { bytes, limit }));
        }
        let slice = self.source.slice(bytes as usize)?;
        let utf8 = std::str::from_utf8(slice);
        let text = match utf8 {
            Ok(string) => {
                let strings = &mut self.arena.strings;
                let (bytes, count) = (strings.len_bytes(), strings.len());
                let text = strings.intern(string);
                let added = strings.len_bytes() - bytes + STRING_BYTES * (strings.len() - count);
                self.charge(added as u64)?;
                text
            }
            Err(_) => return Err(self.error(PickleReason::Utf8)),
        };
        self.push(Value::Text(text))?;
        Ok(true)
    }

    pub(super) fn error(&self, reason: PickleReason) -> PickleError {
        PickleError { offset: self.opcode_offset, reason }
    }

    /// Pushes a value that was read.
    pub(super) fn push(&mut self, value: Value) -> Result<(), PickleError> {
        self.items += 1;
        if self.items > self.limits.items {
            return Err(self.error(PickleReason::Items { limit: self.limits.items }));
        }
        if self.stack.len() == self.stack.capacity() {
            self.charge(self.stack.len() as u64 * VALUE_BYTES)?;
        }
        self.stack.push(value);
        Ok(())
    }

    /// Counts memory that is about to be used.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), PickleError> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.limits.memory_bytes {
            return Err(self.error(PickleReason::Memory { limit: self.limits.memory_bytes }));
        }
        Ok(())
    }

    pub(super) fn refused(&self, byte: u8) -> PickleError {
        self.error(match opcode::name(byte) {
            Some(name) => PickleReason::Refused { byte, name },
            None => PickleReason::UnknownOpcode(byte),
        })
    }
}
