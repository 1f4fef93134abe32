//! Generational names and the table that gives them out.
//!
//! A [`Table`] hands out [`Key`]s that stay unique for ever: when a slot's generation is used up
//! the slot is retired and never given out again, so an old key can not come to name a new entry.
//! Entries live in fixed-size chunks, so growing never copies what is there and no single insert
//! costs more than one chunk.

use std::fmt;

const CHUNK_BITS: u32 = 10;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;
/// The generation of a slot that will never be used again.
const RETIRED: u32 = u32::MAX;

/// The name of a table entry: slot number and generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The slot number: small, dense, reused.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The use of the slot that this key names, from 1.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Index and generation in one number, for logs and traces.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`to_bits`](Self::to_bits) wrote.
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.index, self.generation)
    }
}

/// Why a key names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The slot was never handed out by this table.
    #[error("the key was never handed out by this table")]
    Foreign,
    /// The entry was removed and its slot is empty since.
    #[error("the entry was removed")]
    Gone,
    /// The entry was removed and its slot has been used again.
    #[error("the entry was removed and its slot used again")]
    Stale,
}

#[derive(Debug, Clone)]
struct Slot<T> {
    /// The generation of the entry here, or of the next one if there is none.
    generation: u32,
    content: Content<T>,
}

#[derive(Debug, Clone)]
enum Content<T> {
    Full(T),
    Empty { next: u32 },
}

const NO_SLOT: u32 = u32::MAX;

/// A growing table of `T` under generational keys. All operations are O(1).
#[derive(Debug, Clone)]
pub struct Table<T> {
    chunks: Vec<Vec<Slot<T>>>,
    first_empty: u32,
    len: u32,
    /// Generation that fresh slots start with: 1, or just below the end in tests of retirement.
    first_generation: u32,
}

impl<T> Slot<T> {
    /// What a key that does not name the entry here means.
    fn miss(&self, generation: u32) -> KeyError {
        let empty = matches!(self.content, Content::Empty { .. });
        if generation >= self.generation {
            KeyError::Foreign
        } else if empty && generation + 1 == self.generation {
            KeyError::Gone
        } else {
            KeyError::Stale
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Table<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self::starting_at(1)
    }

    /// An empty table whose slots start at `generation`, 1 at least, so that a test reaches the end
    /// soon.
    pub const fn starting_at(generation: u32) -> Self {
        let first_generation = if generation == 0 { 1 } else { generation };
        Self { chunks: Vec::new(), first_empty: NO_SLOT, len: 0, first_generation }
    }

    /// Number of entries.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get((index >> CHUNK_BITS) as usize)?.get(index as usize & (CHUNK_LEN - 1))
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks
            .get_mut((index >> CHUNK_BITS) as usize)?
            .get_mut(index as usize & (CHUNK_LEN - 1))
    }

    /// Adds an entry. `None` when all 2^32 - 1 slots are in use or retired.
    #[inline]
    pub fn insert(&mut self, value: T) -> Option<Key> {
        self.insert_with(|| value)
    }

    /// Adds an entry that is made in its place.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<Key> {
        let index = self.first_empty;
        if let Some(slot) = self.slot_mut(index) {
            let Content::Empty { next } = slot.content else { return None };
            let key = Key { index, generation: slot.generation };
            slot.content = Content::Full(make());
            self.first_empty = next;
            self.len += 1;
            return Some(key);
        }
        // As one number, so that it comes back in a register.
        let bits = self.push(make());
        (bits != 0).then(|| Key::from_bits(bits))
    }

    /// Adds an entry in a new slot. 0 when there is none; no key is 0, since generations begin
    /// at 1.
    #[inline(never)]
    fn push(&mut self, value: T) -> u64 {
        let generation = self.first_generation;
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_LEN) {
            self.chunks.push(Vec::with_capacity(CHUNK_LEN));
        }
        let chunks = self.chunks.len();
        let Some(chunk) = self.chunks.last_mut() else { return 0 };
        match u32::try_from((chunks - 1) * CHUNK_LEN + chunk.len()) {
            Ok(index) if index != NO_SLOT => {
                chunk.push(Slot { generation, content: Content::Full(value) });
                self.len += 1;
                Key { index, generation }.to_bits()
            }
            _ => 0,
        }
    }

    /// Gives an entry another key of the same slot; the old one names nothing any more. `None`,
    /// with nothing changed, when the key names nothing or the slot has no generation left.
    pub fn renew(&mut self, key: Key) -> Option<Key> {
        self.renew_with(key).map(|(key, _)| key)
    }

    /// [`renew`](Self::renew), with the entry to change.
    #[inline(always)]
    pub fn renew_with(&mut self, key: Key) -> Option<(Key, &mut T)> {
        let slot = self.slot_mut(key.index)?;
        if slot.generation != key.generation || slot.generation + 1 == RETIRED {
            return None;
        }
        let Content::Full(value) = &mut slot.content else { return None };
        slot.generation += 1;
        Some((Key { index: key.index, generation: slot.generation }, value))
    }

    /// Takes an entry out.
    ///
    /// # Errors
    /// [`KeyError`] when the key names nothing (any more).
    pub fn remove(&mut self, key: Key) -> Result<T, KeyError> {
        let first_empty = self.first_empty;
        let slot = self.slot_mut(key.index).ok_or(KeyError::Foreign)?;
        if slot.generation != key.generation || matches!(slot.content, Content::Empty { .. }) {
            return Err(slot.miss(key.generation));
        }
        slot.generation += 1;
        let retired = slot.generation == RETIRED;
        let next = if retired { NO_SLOT } else { first_empty };
        let content = std::mem::replace(&mut slot.content, Content::Empty { next });
        if !retired {
            self.first_empty = key.index;
        }
        self.len -= 1;
        match content {
            Content::Full(value) => Ok(value),
            Content::Empty { .. } => Err(KeyError::Gone),
        }
    }

    /// The entry under `key`.
    ///
    /// # Errors
    /// [`KeyError`] when the key names nothing (any more).
    pub fn get(&self, key: Key) -> Result<&T, KeyError> {
        let slot = self.slot(key.index).ok_or(KeyError::Foreign)?;
        match &slot.content {
            Content::Full(value) if slot.generation == key.generation => Ok(value),
            _ => Err(slot.miss(key.generation)),
        }
    }

    /// The entry under `key`, to change.
    ///
    /// # Errors
    /// [`KeyError`] when the key names nothing (any more).
    pub fn get_mut(&mut self, key: Key) -> Result<&mut T, KeyError> {
        let slot = self.slot_mut(key.index).ok_or(KeyError::Foreign)?;
        if slot.generation != key.generation {
            return Err(slot.miss(key.generation));
        }
        match &mut slot.content {
            Content::Full(value) => Ok(value),
            Content::Empty { .. } => Err(KeyError::Foreign),
        }
    }

    /// The entry in slot `index`, whatever its generation, with its key.
    pub fn at(&self, index: u32) -> Option<(Key, &T)> {
        let slot = self.slot(index)?;
        match &slot.content {
            Content::Full(value) => Some((Key { index, generation: slot.generation }, value)),
            Content::Empty { .. } => None,
        }
    }

    /// The entry in slot `index`, whatever its generation, to change.
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        match &mut self.slot_mut(index)?.content {
            Content::Full(value) => Some(value),
            Content::Empty { .. } => None,
        }
    }

    /// Slots ever handed out: every key's index is below this.
    pub fn slots(&self) -> u32 {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_LEN;
        (full + self.chunks.last().map_or(0, Vec::len)) as u32
    }

    /// All entries, by slot number.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.chunks.iter().flatten().enumerate().filter_map(|(index, slot)| match &slot.content {
            Content::Full(value) => {
                Some((Key { index: index as u32, generation: slot.generation }, value))
            }
            Content::Empty { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_outlives_its_entry_as_gone_then_stale() {
        let mut table = Table::new();
        let a = table.insert('a').unwrap();
        assert_eq!(table.remove(a), Ok('a'));
        assert_eq!(table.get(a), Err(KeyError::Gone));
        assert_eq!(table.remove(a), Err(KeyError::Gone));
        let b = table.insert('b').unwrap();
        assert_eq!(b.index(), a.index());
        assert_eq!(table.get(a), Err(KeyError::Stale));
        assert_eq!(table.remove(a), Err(KeyError::Stale));
        assert_eq!(table.get(b), Ok(&'b'));
        assert_eq!(Key::from_bits(b.to_bits()), b);
    }

    #[test]
    fn a_slot_is_retired_when_its_generations_are_used_up() {
        let mut table = Table::starting_at(RETIRED - 2);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..5 {
            let key = table.insert(()).unwrap();
            assert!(seen.insert(key), "{key:?} was handed out twice");
            table.remove(key).unwrap();
        }
        assert!(seen.iter().any(|key| key.index() > 0), "slot 0 was never retired");
    }

    #[test]
    fn a_key_of_another_table_is_foreign() {
        let mut table = Table::<u8>::new();
        assert_eq!(table.get(Key::from_bits(7)), Err(KeyError::Foreign));
        assert_eq!(table.remove(Key { index: 0, generation: 9 }), Err(KeyError::Foreign));
    }
}
