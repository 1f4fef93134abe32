//! What is mapped where, as far as the device has said yes: beside the allocator's own books.

use std::collections::{BTreeMap, HashMap, HashSet};

use terrane_core::device::{ClassId, MapOp, MemoryId, SpaceId, UnmapOp};

/// A memory object for pages.
#[derive(Clone, Copy, Debug)]
struct Object {
    class: ClassId,
    bytes: u64,
    exportable: bool,
}

/// Spaces, memory objects for pages and mappings that exist now.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    spaces: HashMap<SpaceId, ClassId>,
    objects: HashMap<MemoryId, Object>,
    mappings: BTreeMap<(SpaceId, u64), MapOp>,
    twice_peak: u64,
}

impl Shadow {
    pub fn reserved(&mut self, space: SpaceId, class: ClassId) {
        self.spaces.insert(space, class);
    }

    pub fn created(&mut self, memory: MemoryId, class: ClassId, bytes: u64, exportable: bool) {
        self.objects.insert(memory, Object { class, bytes, exportable });
    }

    pub fn released(&mut self, memory: MemoryId) {
        self.objects.remove(&memory);
    }

    pub fn mapped(&mut self, ops: &[MapOp]) {
        self.mappings.extend(ops.iter().map(|op| ((op.at.space, op.at.offset), *op)));
        self.twice_peak = self.twice_peak.max(self.twice());
    }

    pub fn unmapped(&mut self, ops: &[UnmapOp]) {
        for op in ops {
            self.mappings.remove(&(op.at.space, op.at.offset));
        }
    }

    /// Other places where the memory of these mappings is mapped.
    pub fn elsewhere(&self, ops: &[MapOp]) -> Vec<UnmapOp> {
        let piece = |op: &MapOp| (op.memory, op.memory_offset);
        let new: HashSet<_> = ops.iter().map(piece).collect();
        let old = self.mappings.values().filter(|op| new.contains(&piece(op)));
        old.map(|op| UnmapOp { at: op.at, bytes: op.bytes }).collect()
    }

    /// Lets the last two pages of one length that are mapped elsewhere too appear in each other's
    /// place: who keeps no contents over a mapping does not notice.
    pub fn swap_mapped(&self, ops: &mut [MapOp]) {
        let here: HashSet<_> = self.mappings.values().map(|op| op.memory).collect();
        let mapped = |op: &&mut MapOp| here.contains(&op.memory);
        let mut pages = ops.iter_mut().rev().filter(mapped);
        let Some(last) = pages.next() else { return };
        if let Some(other) = pages.find(|op| op.bytes == last.bytes) {
            std::mem::swap(&mut last.memory, &mut other.memory);
            std::mem::swap(&mut last.memory_offset, &mut other.memory_offset);
        }
    }

    /// Mappings beyond the first of each page.
    fn twice(&self) -> u64 {
        self.more_than_once().count() as u64
    }

    fn more_than_once(&self) -> impl Iterator<Item = &MapOp> {
        let mut seen = HashSet::new();
        self.mappings.values().filter(move |op| !seen.insert((op.memory, op.memory_offset)))
    }

    pub fn mapping(&self) -> Mapping {
        let wrong = self.mappings.values().find(|op| {
            let (space, object) = (self.spaces.get(&op.at.space), self.objects.get(&op.memory));
            object.is_none_or(|o| o.exportable || space.is_none_or(|class| *class != o.class))
        });
        Mapping {
            places: self.mappings.values().copied().collect(),
            spaces: self.spaces.keys().copied().collect(),
            object_bytes: self.objects.values().map(|object| object.bytes).sum(),
            twice: self.twice(),
            twice_bytes: self.more_than_once().map(|op| op.bytes).sum(),
            twice_peak: self.twice_peak,
            wrong: wrong.copied(),
        }
    }
}

/// What is mapped at one moment.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Every mapping, by space and offset.
    pub places: Vec<MapOp>,
    /// The spaces that pages can be mapped in.
    pub spaces: HashSet<SpaceId>,
    /// Bytes of memory objects for pages, each once.
    pub object_bytes: u64,
    /// Mappings beyond the first of each page.
    pub twice: u64,
    /// Their bytes.
    pub twice_bytes: u64,
    /// The most of them that there ever were.
    pub twice_peak: u64,
    /// A mapping whose memory is of another class than its space, or exportable.
    pub wrong: Option<MapOp>,
}

impl Mapping {
    /// Bytes that are mapped within a range.
    pub fn bytes_in(&self, space: SpaceId, offset: u64, bytes: u64) -> u64 {
        let end = offset + bytes;
        let here = self.places.iter().filter(|op| op.at.space == space);
        here.map(|op| (op.at.offset + op.bytes).min(end).saturating_sub(op.at.offset.max(offset)))
            .sum()
    }
}
