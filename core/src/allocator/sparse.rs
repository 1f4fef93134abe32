//! A table by slot number for what few slots have. Growing it never copies what is in it: a hash
//! table that doubles while the lock is held makes everybody wait.

const CHUNK: usize = 64;

type Chunk<T> = Box<[Option<T>; CHUNK]>;

/// Values by slot.
pub(crate) struct Sparse<T> {
    chunks: Vec<Option<Chunk<T>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

const fn split(slot: u32) -> (usize, usize) {
    (slot as usize / CHUNK, slot as usize % CHUNK)
}

impl<T> Sparse<T> {
    /// The value of a slot.
    pub fn get(&self, slot: u32) -> Option<&T> {
        let (chunk, at) = split(slot);
        self.chunks.get(chunk)?.as_ref()?[at].as_ref()
    }

    /// Sets the value of a slot.
    pub fn insert(&mut self, slot: u32, value: T) {
        *self.entry(slot) = Some(value);
    }

    /// Takes the value of a slot out.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let (chunk, at) = split(slot);
        self.chunks.get_mut(chunk)?.as_mut()?[at].take()
    }

    /// The place of a slot's value.
    pub fn entry(&mut self, slot: u32) -> &mut Option<T> {
        let (chunk, at) = split(slot);
        if self.chunks.len() <= chunk {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let values = self.chunks[chunk].get_or_insert_with(|| Box::new([const { None }; CHUNK]));
        &mut values[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_under_their_slots_and_nowhere_else() {
        let mut table = Sparse::default();
        for slot in [0, 63, 64, 5_000] {
            table.insert(slot, slot + 1);
        }
        *table.entry(64) = Some(7);
        assert_eq!(
            [0, 63, 64, 5_000].map(|slot| table.get(slot).copied()),
            [1, 64, 7, 5_001].map(Some)
        );
        assert_eq!((table.get(1), table.get(4_999), table.get(9_999)), (None, None, None));
        assert_eq!((table.remove(63), table.remove(63), table.get(63)), (Some(64), None, None));
    }
}
