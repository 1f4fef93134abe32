//! A snapshot as JSON, read piece by piece into the same arena as a pickle.
//!
//! JSON has no shared objects, so every entry repeats its frames; equal frames and equal lists
//! of frames are stored once all the same.

use super::Snapshot;
use super::convert::{ReadOptions, convert};
use super::fold::Records;
use crate::input::unpack;
use crate::pickle::{Arena, Dict, Fold, PickleError, PickleLimits, PickleReason, Pickled, Value};
use crate::pickle::{reason_of, reason_of_json};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::{fs::File, path::Path};

/// Opens a JSON snapshot, plain, gzip or zstd. `progress` sees the offset in the decompressed
/// text now and then, and may stop the reading.
///
/// # Errors
/// [`PickleError`] with the offset and the reason at the first thing that is wrong.
pub fn open_json_snapshot(
    path: &Path,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Snapshot, PickleError> {
    let error = |e: io::Error| PickleError { offset: 0, reason: PickleReason::Io(e.kind()) };
    read_json_snapshot(File::open(path).map_err(error)?, options, progress)
}

/// Reads a JSON snapshot from any source of bytes, as [`open_json_snapshot`] does.
///
/// # Errors
/// [`PickleError`] with the offset and the reason at the first thing that is wrong.
pub fn read_json_snapshot(
    source: impl Read,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Snapshot, PickleError> {
    let error = |e: io::Error| PickleError { offset: 0, reason: reason_of(&e) };
    let unpacked = unpack(source).map_err(error)?.source;
    let offset = Cell::new(0);
    let mut records = Records::default();
    let limits = options.limits;
    let mut builder = Builder {
        arena: Arena::default(),
        fold: &mut records,
        limits,
        offset: &offset,
        progress,
        items: 0,
        memory: 0,
        failed: None,
        known_records: HashMap::new(),
        known_lists: HashMap::new(),
    };
    let counted = Counted { source: unpacked, offset: &offset };
    let mut json = serde_json::Deserializer::from_reader(counted);
    let root = Seed(&mut builder).deserialize(&mut json);
    let (arena, failed) = (builder.arena, builder.failed);
    let at = |reason| PickleError { offset: offset.get(), reason };
    let root = root.map_err(|e| at(failed.unwrap_or_else(|| reason_of_json(&e))))?;
    json.end().map_err(|_| at(PickleReason::Trailing))?;
    convert(Pickled { arena, root }, records, limits)
}

/// Counts the bytes that went through.
struct Counted<'a, R> {
    source: R,
    offset: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.offset.set(self.offset.get() + count as u64);
        Ok(count)
    }
}

struct Builder<'a> {
    arena: Arena,
    fold: &'a mut Records,
    limits: PickleLimits,
    offset: &'a Cell<u64>,
    progress: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
    items: u64,
    memory: u64,
    /// Why reading was stopped from here; serde's errors hold texts only.
    failed: Option<PickleReason>,
    /// Kind and number of a record -> the dictionary that stands for it.
    known_records: HashMap<(u8, u32), u32>,
    /// Dictionaries of a short list -> the list.
    known_lists: HashMap<Box<[u32]>, u32>,
}

/// Values between two calls of the progress function.
const PROGRESS_EVERY: u64 = 1 << 16;
/// Lists up to this length are stored once: stacks are shorter.
const SHARED_LENGTH_MAX: usize = 512;
const CONTAINER_BYTES: u64 = 40;
const RECORD_BYTES: u64 = 64;
const STRING_BYTES: u64 = 72;
const VALUE_BYTES: u64 = size_of::<Value>() as u64;

impl Builder<'_> {
    fn stop<E: Error>(&mut self, reason: PickleReason) -> E {
        self.failed = Some(reason);
        E::custom("stopped")
    }

    fn item<E: Error>(&mut self) -> Result<(), E> {
        self.items += 1;
        if self.items > self.limits.items {
            return Err(self.stop(PickleReason::Items { limit: self.limits.items }));
        }
        let due = self.items.is_multiple_of(PROGRESS_EVERY);
        if due && (self.progress)(self.offset.get()).is_break() {
            return Err(self.stop(PickleReason::Cancelled));
        }
        Ok(())
    }

    fn charge<E: Error>(&mut self, bytes: u64) -> Result<(), E> {
        self.memory += bytes;
        if self.memory > self.limits.memory_bytes {
            return Err(self.stop(PickleReason::Memory { limit: self.limits.memory_bytes }));
        }
        Ok(())
    }

    fn index<E: Error>(&mut self, length: usize) -> Result<u32, E> {
        let limit = u32::MAX.into();
        u32::try_from(length).map_err(|_| self.stop(PickleReason::Items { limit }))
    }

    fn text<E: Error>(&mut self, text: &str) -> Result<Value, E> {
        let (bytes, limit) = (text.len() as u64, self.limits.string_bytes);
        if bytes > limit {
            return Err(self.stop(PickleReason::StringLength { bytes, limit }));
        }
        let before = (self.arena.strings.len(), self.arena.strings.len_bytes());
        let text = self.arena.strings.intern(text);
        let made = (self.arena.strings.len() - before.0) as u64;
        let grown = (self.arena.strings.len_bytes() - before.1) as u64;
        self.charge(made * STRING_BYTES + grown)?;
        Ok(Value::Text(text))
    }

    fn list<E: Error>(&mut self, values: Vec<Value>) -> Result<Value, E> {
        let dict = |value: &Value| match value {
            Value::Dict(at) => Some(*at),
            _ => None,
        };
        let short = !values.is_empty() && values.len() <= SHARED_LENGTH_MAX;
        let key: Option<Box<[u32]>> = if short { values.iter().map(dict).collect() } else { None };
        if let Some(known) = key.as_ref().and_then(|key| self.known_lists.get(key)) {
            return Ok(Value::List(*known));
        }
        self.charge(CONTAINER_BYTES + VALUE_BYTES * values.len() as u64)?;
        let at = self.index(self.arena.sequences.len())?;
        self.arena.sequences.push(values);
        if let Some(key) = key {
            self.charge(CONTAINER_BYTES + 4 * key.len() as u64)?;
            self.known_lists.insert(key, at);
        }
        Ok(Value::List(at))
    }

    fn dict<E: Error>(&mut self, pairs: Vec<Value>) -> Result<Value, E> {
        let record = self.fold.dict(&self.arena, &pairs);
        if let Some(&known) = record.and_then(|record| self.known_records.get(&record)) {
            return Ok(Value::Dict(known));
        }
        let at = self.index(self.arena.dicts.len())?;
        if let Some((kind, number)) = record {
            self.charge(RECORD_BYTES)?;
            self.arena.dicts.push(Dict::Record(kind, number));
            if kind == super::fold::FRAME {
                self.known_records.insert((kind, number), at);
            }
        } else if pairs.is_empty() {
            self.arena.dicts.push(Dict::Empty);
        } else {
            self.charge(CONTAINER_BYTES + VALUE_BYTES * pairs.len() as u64)?;
            let stored = self.index(self.arena.pairs.len())?;
            self.arena.pairs.push(pairs);
            self.arena.pair_offsets.push(self.offset.get());
            self.arena.dicts.push(Dict::Pairs(stored));
        }
        Ok(Value::Dict(at))
    }
}

/// Reads one value into the builder.
struct Seed<'a, 'b>(&'a mut Builder<'b>);

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.0.item()?;
        Ok(Value::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.0.item()?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.0.item()?;
        Ok(Value::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.0.item()?;
        Ok(i64::try_from(value).map_or(Value::Unsigned(value), Value::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.item()?;
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.0.item()?;
        self.0.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        self.0.item()?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Seed(self.0))? {
            values.push(value);
        }
        self.0.list(values)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.0.item()?;
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(Seed(self.0))? {
            pairs.push(key);
            pairs.push(map.next_value_seed(Seed(self.0))?);
        }
        self.0.dict(pairs)
    }
}
