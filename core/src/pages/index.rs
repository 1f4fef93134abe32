//! Free ranges of one kind, by address and by length.
//!
//! By address they stand in leaves of up to [`LEAF`] ranges, whose columns are searched without
//! following a pointer; above them the first address and the longest range of each leaf, and the
//! longest of each [`GROUP`] of leaves. So a range is found in O(log n), and the search for "the
//! first ranges that are long enough" passes over whole leaves and groups that have none. By
//! length they form an ordered set, where that is asked for: for the shortest that fit.

use std::collections::BTreeSet;

/// Ranges in a leaf at most.
const LEAF: usize = 64;
/// Leaves in a group.
const GROUP: usize = 32;

/// A free range as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub start: u64,
    pub len: u64,
    /// Slot of the range in the table of ranges.
    pub range: u32,
}

/// Neighbouring ranges, by column.
#[derive(Clone, Debug)]
struct Leaf {
    count: usize,
    starts: [u64; LEAF],
    lens: [u64; LEAF],
    ranges: [u32; LEAF],
}

impl Leaf {
    const EMPTY: Self = Self { count: 0, starts: [0; LEAF], lens: [0; LEAF], ranges: [0; LEAF] };

    fn hit(&self, at: usize) -> Hit {
        Hit { start: self.starts[at], len: self.lens[at], range: self.ranges[at] }
    }

    fn hits(&self) -> impl Iterator<Item = Hit> + '_ {
        (0..self.count.min(LEAF)).map(|at| self.hit(at))
    }

    /// How many ranges begin below `start`.
    #[inline]
    fn below(&self, start: u64) -> usize {
        self.starts[..self.count.min(LEAF)].partition_point(|&other| other < start)
    }

    #[inline]
    fn set(&mut self, at: usize, hit: Hit) {
        (self.starts[at], self.lens[at], self.ranges[at]) = (hit.start, hit.len, hit.range);
    }

    fn insert(&mut self, at: usize, hit: Hit) {
        let end = self.count;
        self.starts.copy_within(at..end, at + 1);
        self.lens.copy_within(at..end, at + 1);
        self.ranges.copy_within(at..end, at + 1);
        self.set(at, hit);
        self.count += 1;
    }

    fn remove(&mut self, at: usize) {
        let end = self.count;
        self.starts.copy_within(at + 1..end, at);
        self.lens.copy_within(at + 1..end, at);
        self.ranges.copy_within(at + 1..end, at);
        self.count -= 1;
    }

    fn longest(&self) -> u64 {
        self.lens[..self.count.min(LEAF)].iter().fold(0, |most, &len| most.max(len))
    }

    /// Moves the ranges from `at` on to the end of another leaf.
    fn move_tail(&mut self, at: usize, to: &mut Self) {
        let (count, end) = (self.count - at, to.count);
        to.starts[end..end + count].copy_from_slice(&self.starts[at..at + count]);
        to.lens[end..end + count].copy_from_slice(&self.lens[at..at + count]);
        to.ranges[end..end + count].copy_from_slice(&self.ranges[at..at + count]);
        to.count += count;
        self.count = at;
    }
}

/// Free ranges by address and, unless left out, by length. Starts are unique.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// In order of address; none is empty.
    // Boxed, so that making room for one moves 8 bytes a leaf.
    #[allow(clippy::vec_box)]
    leaves: Vec<Box<Leaf>>,
    /// Where the first range of each leaf begins.
    firsts: Vec<u64>,
    /// Length of the longest range of each leaf.
    longest: Vec<u64>,
    /// The same of each group of leaves.
    groups: Vec<u64>,
    /// A leaf that became empty, for the next one.
    spare: Option<Box<Leaf>>,
    len: usize,
    /// `None` where nobody asks for the shortest.
    by_len: Option<BTreeSet<(u64, u64, u32)>>,
}

impl Index {
    /// An empty index; `by_len` says whether the shortest will be asked for.
    pub fn new(by_len: bool) -> Self {
        Self {
            leaves: Vec::new(),
            firsts: Vec::new(),
            longest: Vec::new(),
            groups: Vec::new(),
            spare: None,
            len: 0,
            by_len: by_len.then(BTreeSet::new),
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The leaf that a range beginning at `start` is in or belongs into.
    #[inline]
    fn leaf_of(&self, start: u64) -> usize {
        self.firsts.partition_point(|&first| first <= start).saturating_sub(1)
    }

    pub fn insert(&mut self, hit: Hit) {
        if let Some(by_len) = &mut self.by_len {
            by_len.insert((hit.len, hit.start, hit.range));
        }
        self.len += 1;
        let mut leaf = self.leaf_of(hit.start);
        match self.leaves.get(leaf).map(|leaf| leaf.count) {
            None => self.add_leaf(0, 0),
            Some(LEAF) => {
                self.split(leaf);
                leaf = self.leaf_of(hit.start);
            }
            Some(_) => {}
        }
        let entries = &mut self.leaves[leaf];
        let at = entries.below(hit.start);
        entries.insert(at, hit);
        self.firsts[leaf] = entries.starts[0];
        self.lift(leaf, hit.len);
    }

    pub fn remove(&mut self, hit: Hit) {
        if let Some(by_len) = &mut self.by_len {
            by_len.remove(&(hit.len, hit.start, hit.range));
        }
        let leaf = self.leaf_of(hit.start);
        let Some(entries) = self.leaves.get_mut(leaf) else { return };
        let at = entries.below(hit.start);
        if at >= entries.count {
            return;
        }
        self.len -= 1;
        entries.remove(at);
        if entries.count == 0 {
            self.drop_leaf(leaf);
            return;
        }
        self.firsts[leaf] = entries.starts[0];
        let count = entries.count;
        self.lower(leaf, hit.len);
        if count < LEAF / 4 {
            self.merge(leaf);
        }
    }

    /// Gives a range another start and length that leave it between its neighbours.
    pub fn update(&mut self, old: Hit, new: Hit) {
        if let Some(by_len) = &mut self.by_len {
            by_len.remove(&(old.len, old.start, old.range));
            by_len.insert((new.len, new.start, new.range));
        }
        let leaf = self.leaf_of(old.start);
        let Some(entries) = self.leaves.get_mut(leaf) else { return };
        let at = entries.below(old.start);
        if at >= entries.count {
            return;
        }
        entries.set(at, new);
        self.firsts[leaf] = entries.starts[0];
        if new.len < old.len {
            self.lower(leaf, old.len);
        } else {
            self.lift(leaf, new.len);
        }
    }

    /// A range of a leaf has become `len` bytes long.
    #[inline]
    fn lift(&mut self, leaf: usize, len: u64) {
        if len > self.longest[leaf] {
            self.longest[leaf] = len;
            let group = &mut self.groups[leaf / GROUP];
            *group = (*group).max(len);
        }
    }

    /// A range of a leaf was `len` bytes long and is so no more.
    #[inline]
    fn lower(&mut self, leaf: usize, len: u64) {
        if len < self.longest[leaf] {
            return;
        }
        self.longest[leaf] = self.leaves[leaf].longest();
        if len == self.groups[leaf / GROUP] {
            self.refresh_group(leaf / GROUP);
        }
    }

    fn refresh_group(&mut self, group: usize) {
        let end = ((group + 1) * GROUP).min(self.longest.len());
        let leaves = &self.longest[group * GROUP..end];
        self.groups[group] = leaves.iter().fold(0, |most, &len| most.max(len));
    }

    /// Puts an empty leaf at a place.
    fn add_leaf(&mut self, at: usize, first: u64) {
        let leaf = self.spare.take().unwrap_or_else(|| Box::new(Leaf::EMPTY));
        self.leaves.insert(at, leaf);
        self.firsts.insert(at, first);
        self.longest.insert(at, 0);
        self.regroup(at);
    }

    fn drop_leaf(&mut self, at: usize) {
        self.spare = Some(self.leaves.remove(at));
        self.firsts.remove(at);
        self.longest.remove(at);
        self.regroup(at);
    }

    /// Leaves from `at` on have changed their places.
    fn regroup(&mut self, at: usize) {
        self.groups.resize(self.leaves.len().div_ceil(GROUP), 0);
        for group in at / GROUP..self.groups.len() {
            self.refresh_group(group);
        }
    }

    /// Moves the upper half of a full leaf to a new one.
    fn split(&mut self, at: usize) {
        self.add_leaf(at + 1, 0);
        if let [lower, upper] = &mut self.leaves[at..at + 2] {
            lower.move_tail(LEAF / 2, upper);
        }
        self.measure(at);
        self.measure(at + 1);
    }

    /// Joins a leaf with few ranges with a neighbour, where one leaf holds both with room to spare.
    fn merge(&mut self, at: usize) {
        let count = |leaf: usize| self.leaves.get(leaf).map_or(LEAF, |leaf| leaf.count);
        let few = |pair: usize| count(pair) + count(pair + 1) <= LEAF / 4 * 3;
        let pair = if few(at) { at } else { at.wrapping_sub(1) };
        if pair != at && (at == 0 || !few(pair)) {
            return;
        }
        if let [lower, upper] = &mut self.leaves[pair..pair + 2] {
            upper.move_tail(0, lower);
        }
        self.drop_leaf(pair + 1);
        self.measure(pair);
    }

    /// Works out first and longest of a leaf anew.
    fn measure(&mut self, leaf: usize) {
        self.firsts[leaf] = self.leaves[leaf].starts[0];
        self.longest[leaf] = self.leaves[leaf].longest();
        self.refresh_group(leaf / GROUP);
    }

    /// The leaves, in order, that have a range of at least `len` bytes.
    #[inline]
    fn leaves_with(&self, len: u64) -> impl Iterator<Item = &Leaf> {
        let groups = self.groups.iter().enumerate().filter(move |(_, longest)| **longest >= len);
        let leaves = groups
            .flat_map(|(group, _)| group * GROUP..((group + 1) * GROUP).min(self.leaves.len()));
        leaves.filter(move |&leaf| self.longest[leaf] >= len).map(|leaf| &*self.leaves[leaf])
    }

    /// Looks at the first `most` ranges of at least `len` bytes, in order of address, for one that
    /// `suits`, told its start and length. Gives the first one that suits, or else the first that
    /// `serves`.
    #[inline]
    pub fn first(
        &self,
        len: u64,
        most: usize,
        suits: impl Fn(u64, u64) -> bool,
        serves: impl Fn(u64, u64) -> bool,
    ) -> (Option<Hit>, Option<Hit>) {
        let (mut left, mut first) = (most, None);
        for leaf in self.leaves_with(len) {
            let count = leaf.count.min(LEAF);
            for (at, (&start, &bytes)) in
                leaf.starts[..count].iter().zip(&leaf.lens[..count]).enumerate()
            {
                if bytes < len {
                    continue;
                }
                if suits(start, bytes) {
                    return (Some(leaf.hit(at)), first);
                }
                if first.is_none() && serves(start, bytes) {
                    first = Some(leaf.hit(at));
                }
                left -= 1;
                if left == 0 {
                    return (None, first);
                }
            }
        }
        (None, first)
    }

    /// The range that `at` lies in.
    pub fn containing(&self, at: u64) -> Option<Hit> {
        let leaf = self.leaves.get(self.leaf_of(at))?;
        let hit = leaf.hit(leaf.below(at.checked_add(1)?).checked_sub(1)?);
        (at - hit.start < hit.len).then_some(hit)
    }

    /// Ranges of at least `len` bytes, shortest first.
    pub fn shortest(&self, len: u64) -> impl Iterator<Item = Hit> + '_ {
        let by_len = self.by_len.iter().flat_map(move |by_len| by_len.range((len, 0, 0)..));
        by_len.map(|&(len, start, range)| Hit { start, len, range })
    }

    /// Length of the longest range; 0 if there is none.
    pub fn longest_len(&self) -> u64 {
        self.groups.iter().fold(0, |most, &len| most.max(len))
    }

    /// The longest ranges, at most `most` of them, longest first, of equally long ones the last
    /// first.
    pub fn longest(&self, most: usize) -> Vec<Hit> {
        if let Some(by_len) = &self.by_len {
            let hits = by_len.iter().rev().take(most);
            return hits.map(|&(len, start, range)| Hit { start, len, range }).collect();
        }
        let mut order: Vec<(u64, usize)> =
            self.longest.iter().copied().enumerate().map(|(leaf, len)| (len, leaf)).collect();
        if self.len > most {
            order.sort_unstable_by(|a, b| b.cmp(a));
        }
        let rank = |hit: &Hit| std::cmp::Reverse((hit.len, hit.start));
        let (mut best, mut least): (Vec<Hit>, u64) = (Vec::with_capacity(2 * most + LEAF), 0);
        for (longest, leaf) in order {
            if longest < least {
                break;
            }
            best.extend(self.leaves[leaf].hits().filter(|hit| hit.len >= least));
            if best.len() > 2 * most {
                let (_, last, _) = best.select_nth_unstable_by_key(most - 1, rank);
                least = last.len;
                best.truncate(most);
            }
        }
        best.sort_unstable_by_key(rank);
        best.truncate(most);
        best
    }

    /// Whether leaves and set hold the same ranges, ordered, with true lengths (O(n)).
    pub fn is_sound(&self) -> bool {
        let seen: Vec<Hit> = self.leaves.iter().flat_map(|leaf| leaf.hits()).collect();
        let ordered = seen.windows(2).all(|pair| pair[0].start + pair[0].len <= pair[1].start);
        let same = self.by_len.as_ref().is_none_or(|by_len| {
            by_len.len() == seen.len()
                && seen.iter().all(|hit| by_len.contains(&(hit.len, hit.start, hit.range)))
        });
        let tops = (self.firsts.len(), self.longest.len(), self.groups.len());
        let sized =
            tops == (self.leaves.len(), self.leaves.len(), self.leaves.len().div_ceil(GROUP));
        let told = self.leaves.iter().zip(&self.firsts).zip(&self.longest);
        let true_tops = told.into_iter().all(|((leaf, first), longest)| {
            leaf.count > 0 && leaf.starts[0] == *first && leaf.longest() == *longest
        });
        let groups = self.longest.chunks(GROUP).zip(&self.groups);
        let true_groups =
            groups.into_iter().all(|(leaves, most)| leaves.iter().max() == Some(most));
        ordered && same && sized && true_tops && true_groups && seen.len() == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_agrees_with_a_sorted_list() {
        agrees(500, 10_000, 1);
    }

    #[test]
    fn the_index_agrees_with_a_sorted_list_of_several_groups() {
        agrees(9_000, 60_000, 601);
    }

    /// Random changes of up to `slots` ranges, compared with a list at every `every`th step.
    fn agrees(slots: u64, steps: u64, every: u64) {
        let mut seed = 0x1234_5678_u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let mut index = Index::new(true);
        let mut model: Vec<Hit> = Vec::new();
        for step in 0..steps {
            let slot = next(slots);
            match model.iter().position(|hit| hit.range == slot as u32) {
                Some(at) if next(3) == 0 => {
                    let hit = model[at];
                    let start = slot * 100 + next(20);
                    let changed = Hit { start, len: 1 + next(slot * 100 + 100 - start), ..hit };
                    index.update(hit, changed);
                    model[at] = changed;
                }
                Some(at) => index.remove(model.swap_remove(at)),
                None => {
                    let hit = Hit { start: slot * 100, len: 1 + next(100), range: slot as u32 };
                    index.insert(hit);
                    model.push(hit);
                }
            }
            let (from, len) = (next(100 * slots), next(110));
            if step % every != 0 {
                continue;
            }
            let mut expected: Vec<_> = model.iter().filter(|hit| hit.len >= len).collect();
            expected.sort_unstable_by_key(|hit| hit.start);
            expected.truncate(5);
            let (suits, serves) = (|start, _| start % 7 == 0, |start, _| start % 2 == 0);
            let suited = expected.iter().position(|hit| suits(hit.start, hit.len));
            let before = &expected[..suited.unwrap_or(expected.len())];
            let served = before.iter().find(|hit| serves(hit.start, hit.len)).map(|hit| **hit);
            let suited = suited.map(|at| *expected[at]);
            assert_eq!(index.first(len, 5, suits, serves), (suited, served), "step {step}");
            let mut longest = model.clone();
            longest.sort_unstable_by_key(|hit| std::cmp::Reverse((hit.len, hit.start)));
            longest.truncate(5);
            assert_eq!(index.longest(5), longest, "step {step}");
            let inside = model.iter().find(|hit| hit.start <= from && from < hit.start + hit.len);
            assert_eq!(index.containing(from).as_ref(), inside, "step {step}");
        }
        assert!(index.is_sound());
        assert_eq!(index.len(), model.len());
    }
}
