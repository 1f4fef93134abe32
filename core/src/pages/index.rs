//! Free ranges of one kind, by address and by length.
//!
//! By address they form a treap whose nodes know the longest range below them, so that finding
//! "the first ranges that are long enough" takes O(log n). By length they form an ordered
//! set, where that is asked for: for the shortest that fit.

use std::collections::{BTreeSet, BinaryHeap};

const NIL: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node {
    start: u64,
    len: u64,
    /// Length of the longest range in this subtree.
    longest: u64,
    range: u32,
    priority: u32,
    left: u32,
    right: u32,
}

/// A free range as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub start: u64,
    pub len: u64,
    /// Slot of the range in the table of ranges.
    pub range: u32,
}

/// Free ranges by address and, unless left out, by length. Starts are unique.
#[derive(Clone, Debug)]
pub(super) struct Index {
    nodes: Vec<Node>,
    spare: Vec<u32>,
    root: u32,
    len: usize,
    /// `None` where nobody asks for the shortest.
    by_len: Option<BTreeSet<(u64, u64, u32)>>,
}

/// Spreads addresses over priorities, always the same way, so that runs can be repeated.
fn priority(start: u64) -> u32 {
    let mixed = (start ^ (start >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as u32
}

impl Index {
    /// An empty index; `by_len` says whether the shortest will be asked for.
    pub fn new(by_len: bool) -> Self {
        let by_len = by_len.then(BTreeSet::new);
        Self { nodes: Vec::new(), spare: Vec::new(), root: NIL, len: 0, by_len }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.root == NIL
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn refresh(&mut self, at: u32) {
        let (left, right) = (self.node(at).left, self.node(at).right);
        let mut longest = self.node(at).len;
        for child in [left, right] {
            if child != NIL {
                longest = longest.max(self.node(child).longest);
            }
        }
        self.nodes[at as usize].longest = longest;
    }

    pub fn insert(&mut self, hit: Hit) {
        if let Some(by_len) = &mut self.by_len {
            by_len.insert((hit.len, hit.start, hit.range));
        }
        self.len += 1;
        let node = Node {
            start: hit.start,
            len: hit.len,
            longest: hit.len,
            range: hit.range,
            priority: priority(hit.start),
            left: NIL,
            right: NIL,
        };
        let at = match self.spare.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.root = self.attach(self.root, at);
    }

    fn attach(&mut self, root: u32, new: u32) -> u32 {
        if root == NIL {
            return new;
        }
        if self.node(new).priority > self.node(root).priority {
            let (left, right) = self.split(root, self.node(new).start);
            self.nodes[new as usize].left = left;
            self.nodes[new as usize].right = right;
            self.refresh(new);
            return new;
        }
        if self.node(new).start < self.node(root).start {
            let child = self.attach(self.node(root).left, new);
            self.nodes[root as usize].left = child;
        } else {
            let child = self.attach(self.node(root).right, new);
            self.nodes[root as usize].right = child;
        }
        self.refresh(root);
        root
    }

    /// Nodes below `start`, and the rest.
    fn split(&mut self, root: u32, start: u64) -> (u32, u32) {
        if root == NIL {
            return (NIL, NIL);
        }
        if self.node(root).start < start {
            let (left, right) = self.split(self.node(root).right, start);
            self.nodes[root as usize].right = left;
            self.refresh(root);
            (root, right)
        } else {
            let (left, right) = self.split(self.node(root).left, start);
            self.nodes[root as usize].left = right;
            self.refresh(root);
            (left, root)
        }
    }

    fn join(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL {
            return right;
        }
        if right == NIL {
            return left;
        }
        if self.node(left).priority > self.node(right).priority {
            let child = self.join(self.node(left).right, right);
            self.nodes[left as usize].right = child;
            self.refresh(left);
            left
        } else {
            let child = self.join(left, self.node(right).left);
            self.nodes[right as usize].left = child;
            self.refresh(right);
            right
        }
    }

    pub fn remove(&mut self, hit: Hit) {
        if let Some(by_len) = &mut self.by_len {
            by_len.remove(&(hit.len, hit.start, hit.range));
        }
        self.len -= 1;
        self.root = self.detach(self.root, hit.start);
    }

    /// Gives a range another start and length that leave it between its neighbours.
    pub fn update(&mut self, old: Hit, new: Hit) {
        if let Some(by_len) = &mut self.by_len {
            by_len.remove(&(old.len, old.start, old.range));
            by_len.insert((new.len, new.start, new.range));
        }
        self.update_in(self.root, old.start, new);
    }

    /// Tells whether the longest length below `at` has changed.
    fn update_in(&mut self, at: u32, start: u64, new: Hit) -> bool {
        if at == NIL {
            return false;
        }
        let node = self.node(at);
        let before = node.longest;
        if node.start == start {
            let node = &mut self.nodes[at as usize];
            (node.start, node.len, node.range) = (new.start, new.len, new.range);
        } else {
            let child = if start < node.start { node.left } else { node.right };
            if !self.update_in(child, start, new) {
                return false;
            }
        }
        self.refresh(at);
        self.node(at).longest != before
    }

    fn detach(&mut self, root: u32, start: u64) -> u32 {
        if root == NIL {
            return NIL;
        }
        let node = self.node(root);
        let (left, right) = (node.left, node.right);
        if node.start == start {
            self.spare.push(root);
            return self.join(left, right);
        }
        if start < node.start {
            let child = self.detach(left, start);
            self.nodes[root as usize].left = child;
        } else {
            let child = self.detach(right, start);
            self.nodes[root as usize].right = child;
        }
        self.refresh(root);
        root
    }

    /// Calls `look` for the ranges of at least `len` bytes in order of address until it says stop.
    pub fn scan(&self, len: u64, look: &mut impl FnMut(Hit) -> bool) {
        self.scan_in(self.root, len, look);
    }

    fn scan_in(&self, root: u32, len: u64, look: &mut impl FnMut(Hit) -> bool) -> bool {
        if root == NIL || self.node(root).longest < len {
            return false;
        }
        let node = self.node(root);
        self.scan_in(node.left, len, look)
            || (node.len >= len
                && look(Hit { start: node.start, len: node.len, range: node.range }))
            || self.scan_in(node.right, len, look)
    }

    /// The range that `at` lies in.
    pub fn containing(&self, at: u64) -> Option<Hit> {
        let (mut root, mut best) = (self.root, None);
        while root != NIL {
            let node = self.node(root);
            if node.start <= at {
                best = Some(Hit { start: node.start, len: node.len, range: node.range });
                root = node.right;
            } else {
                root = node.left;
            }
        }
        best.filter(|hit| at - hit.start < hit.len)
    }

    /// Ranges of at least `len` bytes, shortest first.
    pub fn shortest(&self, len: u64) -> impl Iterator<Item = Hit> + '_ {
        let by_len = self.by_len.iter().flat_map(move |by_len| by_len.range((len, 0, 0)..));
        by_len.map(|&(len, start, range)| Hit { start, len, range })
    }

    /// All ranges, longest first, of equally long ones the last first.
    pub fn longest(&self) -> impl Iterator<Item = Hit> + '_ {
        // Subtrees by the longest range in them; a range by itself once its subtree came up.
        let mut heap: BinaryHeap<(u64, bool, u64, u32)> = BinaryHeap::new();
        if self.root != NIL {
            heap.push((self.node(self.root).longest, true, 0, self.root));
        }
        std::iter::from_fn(move || {
            loop {
                let (len, is_tree, start, at) = heap.pop()?;
                let node = self.node(at);
                if !is_tree {
                    return Some(Hit { start, len, range: node.range });
                }
                heap.push((node.len, false, node.start, at));
                for child in [node.left, node.right].into_iter().filter(|&child| child != NIL) {
                    heap.push((self.node(child).longest, true, 0, child));
                }
            }
        })
    }

    /// Whether tree and set hold the same ranges, ordered, with true maxima (O(n)).
    pub fn is_sound(&self) -> bool {
        let mut seen = Vec::new();
        let sound = self.walk(self.root, &mut seen);
        let ordered = seen.windows(2).all(|pair| pair[0].start + pair[0].len <= pair[1].start);
        let same = self.by_len.as_ref().is_none_or(|by_len| {
            by_len.len() == seen.len()
                && seen.iter().all(|hit| by_len.contains(&(hit.len, hit.start, hit.range)))
        });
        sound && ordered && same && seen.len() == self.len
    }

    fn walk(&self, root: u32, seen: &mut Vec<Hit>) -> bool {
        if root == NIL {
            return true;
        }
        let node = self.node(root);
        let mut longest = node.len;
        let mut sound = true;
        for child in [node.left, node.right] {
            if child != NIL {
                longest = longest.max(self.node(child).longest);
                sound &= self.node(child).priority <= node.priority;
            }
        }
        sound &= longest == node.longest && self.walk(node.left, seen);
        seen.push(Hit { start: node.start, len: node.len, range: node.range });
        sound && self.walk(node.right, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_agrees_with_a_sorted_list() {
        let mut seed = 0x1234_5678_u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let mut index = Index::new(true);
        let mut model: Vec<Hit> = Vec::new();
        for step in 0..20_000 {
            let slot = next(500);
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
            let (from, len) = (next(50_000), next(110));
            let mut expected: Vec<_> = model.iter().filter(|hit| hit.len >= len).collect();
            expected.sort_unstable_by_key(|hit| hit.start);
            expected.truncate(5);
            let mut seen = Vec::new();
            index.scan(len, &mut |hit| {
                seen.push(hit);
                seen.len() == 5
            });
            assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "step {step}");
            let mut longest = model.clone();
            longest.sort_unstable_by_key(|hit| std::cmp::Reverse((hit.len, hit.start)));
            longest.truncate(5);
            assert_eq!(index.longest().take(5).collect::<Vec<_>>(), longest, "step {step}");
            let inside = model.iter().find(|hit| hit.start <= from && from < hit.start + hit.len);
            assert_eq!(index.containing(from).as_ref(), inside, "step {step}");
        }
        assert!(index.is_sound());
        assert_eq!(index.len(), model.len());
    }
}
