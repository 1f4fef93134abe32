//! Opcodes that make and fill containers, store and recall them, and name functions.
//!
//! One concession to files that PyTorch writes from C++: they wrap containers in calls of
//! functions of `torch.jit._pickle` that only name a type. Those few names, and no others, are
//! accepted and stand for [`Value::Identity`]; a call of it yields its first argument.

use super::machine::{Machine, VALUE_BYTES};
use super::value::{Dict, Value};
use super::{PickleError, PickleReason};
use std::io::Read;

/// A vector and what the memory allocator adds to it.
const CONTAINER_BYTES: u64 = 40;

/// A record that the fold made of a dictionary.
const RECORD_BYTES: u64 = 64;

/// Functions that only say of what type their first argument is.
const IDENTITIES: [&str; 5] =
    ["restore_type_tag", "build_intlist", "build_doublelist", "build_boollist", "build_tensorlist"];

impl<R: Read> Machine<'_, R> {
    /// Carries out a container opcode; false for others.
    pub(super) fn container(&mut self, opcode: u8) -> Result<bool, PickleError> {
        match opcode {
            b']' => self.push_sequence(self.stack.len(), Value::List)?,
            b')' => self.push_sequence(self.stack.len(), Value::Tuple)?,
            0x85..=0x87 => {
                let name = ["TUPLE1", "TUPLE2", "TUPLE3"][usize::from(opcode - 0x85)];
                let start = self.top(name, usize::from(opcode - 0x84))?;
                self.push_sequence(start, Value::Tuple)?;
            }
            b't' => {
                let start = self.unmark("TUPLE")?;
                self.push_sequence(start, Value::Tuple)?;
            }
            b'l' => {
                let start = self.unmark("LIST")?;
                self.push_sequence(start, Value::List)?;
            }
            b'a' => {
                let start = self.top("APPEND", 1)?;
                self.append("APPEND", start)?;
            }
            b'e' => {
                let start = self.unmark("APPENDS")?;
                self.append("APPENDS", start)?;
            }
            b'}' => self.push_dict(self.stack.len())?,
            b'd' => {
                let start = self.unmark("DICT")?;
                self.push_dict(start)?;
                self.set_items("DICT", start + 1)?;
            }
            b's' => {
                let start = self.top("SETITEM", 2)?;
                self.set_items("SETITEM", start)?;
            }
            b'u' => {
                let start = self.unmark("SETITEMS")?;
                self.set_items("SETITEMS", start)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn mark(&mut self) -> Result<(), PickleError> {
        if self.marks.len() >= self.limits.depth as usize {
            return Err(self.error(PickleReason::Depth { limit: self.limits.depth }));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Takes the top value.
    pub(super) fn pop(&mut self, opcode: &'static str) -> Result<Value, PickleError> {
        self.top(opcode, 1)?;
        self.stack.pop().ok_or_else(|| self.error(PickleReason::Underflow(opcode)))
    }

    /// Stores the top value under a number.
    pub(super) fn memoize(&mut self, at: u32) -> Result<(), PickleError> {
        self.top("PUT", 1)?;
        let Some(&value) = self.stack.last() else { return Ok(()) };
        self.charge(VALUE_BYTES)?;
        let slot = at as usize;
        if slot < self.memo.len() {
            self.memo[slot] = value;
        } else if slot == self.memo.len() {
            self.memo.push(value);
        } else {
            self.charge(CONTAINER_BYTES)?;
            self.sparse_memo.insert(at, value);
        }
        Ok(())
    }

    /// Pushes a stored value.
    pub(super) fn recall(&mut self, at: u32) -> Result<(), PickleError> {
        let stored = self.memo.get(at as usize).or_else(|| self.sparse_memo.get(&at)).copied();
        let value = stored.ok_or_else(|| self.error(PickleReason::Memo(at)))?;
        self.push(value)
    }

    /// Height of the stack below its `count` top values, which belong to the open mark.
    fn top(&self, opcode: &'static str, count: usize) -> Result<usize, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= floor);
        start.ok_or_else(|| self.error(PickleReason::Underflow(opcode)))
    }

    /// Closes the open mark and returns its height.
    fn unmark(&mut self, opcode: &'static str) -> Result<usize, PickleError> {
        self.marks.pop().ok_or_else(|| self.error(PickleReason::Underflow(opcode)))
    }

    fn push_sequence(&mut self, start: usize, wrap: fn(u32) -> Value) -> Result<(), PickleError> {
        let count = self.stack.len() - start;
        self.charge(CONTAINER_BYTES + VALUE_BYTES * count as u64)?;
        let at = self.index(self.arena.sequences.len())?;
        self.arena.sequences.push(self.stack.split_off(start));
        self.push(wrap(at))
    }

    /// Moves the values above `start` into the list below them.
    fn append(&mut self, opcode: &'static str, start: usize) -> Result<(), PickleError> {
        self.charge(VALUE_BYTES * (self.stack.len() - start) as u64)?;
        let list = match self.below(opcode, start)? {
            Value::List(at) => at as usize,
            other => return Err(self.wrong_type(opcode, other)),
        };
        self.arena.sequences[list].extend(self.stack.drain(start..));
        Ok(())
    }

    /// Puts an empty dictionary at height `start`.
    fn push_dict(&mut self, start: usize) -> Result<(), PickleError> {
        self.charge(size_of::<Dict>() as u64)?;
        let at = self.index(self.arena.dicts.len())?;
        self.arena.dicts.push(Dict::Empty);
        self.push(Value::Dict(at))?;
        self.stack[start..].rotate_right(1);
        Ok(())
    }

    /// Moves the pairs above `start` into the dictionary below them, which becomes a record if
    /// the reader of records knows it.
    fn set_items(&mut self, opcode: &'static str, start: usize) -> Result<(), PickleError> {
        let dict = match self.below(opcode, start)? {
            Value::Dict(at) => at as usize,
            other => return Err(self.wrong_type(opcode, other)),
        };
        let pairs = &self.stack[start..];
        if pairs.len() % 2 == 1 {
            return Err(self.error(PickleReason::Underflow(opcode)));
        }
        let bytes = VALUE_BYTES * pairs.len() as u64;
        match self.arena.dicts[dict] {
            Dict::Record(..) => return Err(self.error(PickleReason::Changed)),
            Dict::Pairs(at) => {
                self.charge(bytes)?;
                self.arena.pairs[at as usize].extend(self.stack.drain(start..));
            }
            Dict::Empty => {
                if let Some((kind, record)) = self.fold.dict(&self.arena, pairs) {
                    self.charge(RECORD_BYTES)?;
                    self.arena.dicts[dict] = Dict::Record(kind, record);
                    self.stack.truncate(start);
                } else {
                    self.charge(CONTAINER_BYTES + bytes)?;
                    let at = self.index(self.arena.pairs.len())?;
                    self.arena.pairs.push(self.stack.split_off(start));
                    self.arena.pair_offsets.push(self.opcode_offset);
                    self.arena.dicts[dict] = Dict::Pairs(at);
                }
            }
        }
        Ok(())
    }

    /// The value that the values above `start` go into. It must not be below the open mark.
    fn below(&self, opcode: &'static str, start: usize) -> Result<Value, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let at = start.checked_sub(1).filter(|at| *at >= floor);
        let value = at.and_then(|at| self.stack.get(at)).copied();
        value.ok_or_else(|| self.error(PickleReason::Underflow(opcode)))
    }

    fn index(&self, length: usize) -> Result<u32, PickleError> {
        let limit = u32::MAX.into();
        u32::try_from(length).map_err(|_| self.error(PickleReason::Items { limit }))
    }

    fn wrong_type(&self, opcode: &'static str, found: Value) -> PickleError {
        self.error(PickleReason::WrongType { opcode, found: found.kind() })
    }

    /// STACK_GLOBAL: module and name are on the stack.
    pub(super) fn stack_global(&mut self) -> Result<(), PickleError> {
        let (name, module) = (self.pop("STACK_GLOBAL")?, self.pop("STACK_GLOBAL")?);
        let (Value::Text(name), Value::Text(module)) = (name, module) else {
            return Err(self.refused(0x93));
        };
        let bytes = |text| self.arena.strings.get(text).as_bytes().to_vec();
        let (module, name) = (bytes(module), bytes(name));
        self.global(0x93, &module, &name)
    }

    /// Pushes the function of that name, if it is one that does nothing.
    pub(super) fn global(
        &mut self,
        opcode: u8,
        module: &[u8],
        name: &[u8],
    ) -> Result<(), PickleError> {
        let known = IDENTITIES.iter().any(|identity| identity.as_bytes() == name);
        if module != b"torch.jit._pickle" || !known {
            return Err(self.refused(opcode));
        }
        self.push(Value::Identity)
    }

    /// REDUCE: a call, of which only the first argument is kept.
    pub(super) fn call_identity(&mut self) -> Result<(), PickleError> {
        let (arguments, function) = (self.pop("REDUCE")?, self.pop("REDUCE")?);
        let first = self.arena.elements(arguments).and_then(|all| all.first().copied());
        match (function, first) {
            (Value::Identity, Some(first)) => self.push(first),
            (Value::Identity, None) => Err(self.wrong_type("REDUCE", arguments)),
            _ => Err(self.refused(b'R')),
        }
    }
}
