//! Wholly free pages, by size and then by slot.
//!
//! A page becomes free and used again with every block that has it to itself, so entering and
//! striking one is setting and clearing a bit. There are few sizes.

const BITS: usize = u64::BITS as usize;

/// The free pages of one size: a bit for each slot.
#[derive(Clone, Debug)]
struct Size {
    bytes: u64,
    count: usize,
    words: Vec<u64>,
}

impl Size {
    fn slots(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let words = if self.count > 0 { self.words.as_slice() } else { &[] };
        let words = words.iter().enumerate();
        words.flat_map(|(at, &word)| Bits(word).map(move |bit| at as u32 * u64::BITS + bit))
    }
}

/// The numbers of the bits that are set.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit)
    }
}

impl DoubleEndedIterator for Bits {
    fn next_back(&mut self) -> Option<u32> {
        let bit = self.0.checked_ilog2()?;
        self.0 &= !(1 << bit);
        Some(bit)
    }
}

/// The free pages.
#[derive(Clone, Debug, Default)]
pub(super) struct FreePages {
    /// In order of size.
    sizes: Vec<Size>,
    /// The size that was entered or struck last: mostly the next one too.
    recent: usize,
    len: usize,
}

impl FreePages {
    pub const fn new() -> Self {
        Self { sizes: Vec::new(), recent: 0, len: 0 }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn place(&self, bytes: u64) -> Result<usize, usize> {
        if self.sizes.get(self.recent).is_some_and(|size| size.bytes == bytes) {
            return Ok(self.recent);
        }
        self.sizes.binary_search_by_key(&bytes, |size| size.bytes)
    }

    /// Enters a page that is not listed.
    pub fn insert(&mut self, bytes: u64, slot: u32) {
        let at = self.place(bytes).unwrap_or_else(|at| {
            self.sizes.insert(at, Size { bytes, count: 0, words: Vec::new() });
            at
        });
        self.recent = at;
        let size = &mut self.sizes[at];
        let (word, bit) = (slot as usize / BITS, slot as usize % BITS);
        if size.words.len() <= word {
            size.words.resize(word + 1, 0);
        }
        size.words[word] |= 1 << bit;
        size.count += 1;
        self.len += 1;
    }

    /// Strikes a page that is listed.
    pub fn remove(&mut self, bytes: u64, slot: u32) {
        let Ok(at) = self.place(bytes) else { return };
        self.recent = at;
        let size = &mut self.sizes[at];
        if let Some(word) = size.words.get_mut(slot as usize / BITS) {
            *word &= !(1 << (slot as usize % BITS));
            size.count -= 1;
            self.len -= 1;
        }
    }

    pub fn contains(&self, bytes: u64, slot: u32) -> bool {
        self.place(bytes).is_ok_and(|at| {
            let word = self.sizes[at].words.get(slot as usize / BITS);
            word.is_some_and(|word| word >> (slot as usize % BITS) & 1 == 1)
        })
    }

    /// Bytes of the longest page.
    pub fn longest(&self) -> u64 {
        self.sizes.iter().rfind(|size| size.count > 0).map_or(0, |size| size.bytes)
    }

    /// Bytes and slots of the pages from `least` to `most` bytes, in order.
    pub fn between(
        &self,
        least: u64,
        most: u64,
    ) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        let from = self.sizes.partition_point(|size| size.bytes < least);
        let to = self.sizes.partition_point(|size| size.bytes <= most).max(from);
        let sizes = self.sizes[from..to].iter();
        sizes.flat_map(|size| size.slots().map(|slot| (size.bytes, slot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_free_pages_agree_with_an_ordered_set() {
        let mut seed = 99_u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let (mut pages, mut model) = (FreePages::new(), BTreeSet::new());
        for step in 0..4_000 {
            let (bytes, slot) = (2 * next(6), next(300) as u32);
            assert_eq!(pages.contains(bytes, slot), model.contains(&(bytes, slot)), "step {step}");
            if model.remove(&(bytes, slot)) {
                pages.remove(bytes, slot);
            } else {
                model.insert((bytes, slot));
                pages.insert(bytes, slot);
            }
            let (least, most) = (next(12), next(12));
            let expected: Vec<_> = model
                .iter()
                .copied()
                .filter(|&(bytes, _)| bytes >= least && bytes <= most)
                .collect();
            assert_eq!(pages.between(least, most).collect::<Vec<_>>(), expected, "step {step}");
            let reversed: Vec<_> = expected.into_iter().rev().collect();
            assert_eq!(pages.between(least, most).rev().collect::<Vec<_>>(), reversed);
            assert_eq!(pages.len(), model.len());
            assert_eq!(pages.longest(), model.last().map_or(0, |it| it.0), "step {step}");
        }
    }
}
