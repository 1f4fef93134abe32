//! Giving segments back: the rungs between a refusal and out of memory.

use super::heap::{Class, Index, NONE, State};
use super::{Pytorch, SegmentOp};

impl Pytorch {
    /// Garbage collection runs only under a process fraction; the threshold alone does nothing.
    pub(super) fn collects_garbage(&self) -> bool {
        self.config.gc_threshold > 0.0 && self.limited().is_some()
    }

    /// Gives back unsplit large segments, those of at least average age, until the target is
    /// met; each round goes through all of them.
    pub(super) fn collect_garbage(&mut self) {
        let Some(allowed) = self.limited() else { return };
        let threshold = (self.config.gc_threshold * allowed as f64) as u64;
        let target = self.driver.reserved().saturating_sub(threshold);
        let clock = self.heap.pool(Class::Large).searches;
        let mut aged: Vec<(Index, u64)> = self
            .unsplit(Class::Large)
            .map(|index| (index, clock - self.heap.get(index).cached_at))
            .collect();
        let mut reclaimed = 0;
        while reclaimed < target && !aged.is_empty() {
            let total: u64 = aged.iter().map(|(_, age)| age).sum();
            let mean = total as f64 / aged.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) =
                aged.into_iter().partition(|(_, age)| *age as f64 >= mean);
            if old.is_empty() {
                break;
            }
            aged = young;
            for (index, _) in old {
                reclaimed += self.heap.get(index).size;
                self.release(index);
            }
        }
    }

    /// With a split limit set: releases one oversize block that would hold the request, or as
    /// many of the largest as it takes. True when that was enough.
    pub(super) fn release_available(&mut self, size: u64, stream: u32, class: Class) -> bool {
        let Some(limit) = self.config.max_split_bytes else { return false };
        let wanted = size.max(limit);
        let free = &self.heap.pool(class).free;
        if self.config.expandable_segments {
            return false;
        }
        let next = free.range((stream, wanted, 0, 0)..).next();
        let whole =
            |key: &&(u32, u64, u64, Index)| key.0 == stream && !self.heap.get(key.3).is_split();
        if let Some(&(.., index)) = next.filter(whole) {
            self.release(index);
            return true;
        }
        let oversize = free
            .range((stream, limit, 0, 0)..(stream, wanted, 0, 0))
            .rev()
            .filter(|key| !self.heap.get(key.3).is_split());
        let mut released = 0;
        let mut chosen = Vec::new();
        for &(_, size, _, index) in oversize {
            if released >= wanted {
                break;
            }
            released += size;
            chosen.push(index);
        }
        for index in chosen {
            self.release(index);
        }
        released >= wanted
    }

    /// Waits for every pending free, then gives back all that is wholly free.
    pub(super) fn release_cached(&mut self) {
        self.synchronize();
        for class in [Class::Large, Class::Small] {
            if self.config.expandable_segments {
                self.unmap_free(class);
            } else {
                let whole: Vec<Index> = self.unsplit(class).collect();
                for index in whole {
                    self.release(index);
                }
            }
        }
    }

    fn unsplit(&self, class: Class) -> impl Iterator<Item = Index> {
        let free = self.heap.pool(class).free.iter().map(|key| key.3);
        let expandable = self.config.expandable_segments;
        free.filter(move |index| !expandable && !self.heap.get(*index).is_split())
    }

    /// Frees the segment of a block that fills it.
    fn release(&mut self, index: Index) {
        let block = *self.heap.get(index);
        debug_assert!(block.state == State::Free && block.prev == NONE && block.next == NONE);
        self.heap.uncache(index);
        self.heap.drop_segment(index);
        self.driver.give_back_segment(block.address, block.size);
        self.note(SegmentOp::Free, block.address, block.size, block.stream);
    }
}
