//! RMM's arenas: superblocks handed from one global arena to an arena per stream.

use super::{ALIGNMENT, mebibytes};
use crate::model::extents::{Extent, Extents};
use crate::model::table::Table;
use crate::model::{Model, Request, SpecError, Validation};
use std::collections::BTreeMap;

const SUPERBLOCK_BYTES_MIN: u64 = 1 << 20;
/// Size of an arena on a device without limit: more than any trace asks for.
const UNLIMITED: u64 = 1 << 63;
/// Owner of the superblocks that no stream holds.
const GLOBAL: u64 = u64::MAX;

/// Options of RMM's arena resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArenaConfig {
    /// Size of the global arena; `None`: the whole capacity.
    pub arena_bytes: Option<u64>,
}

impl ArenaConfig {
    pub(in crate::model) const VALIDATION: Validation = Validation::NotValidated {
        assumes: "one arena per stream, no size classes; reserved is the smallest arena that \
                  would have served the run so far, where RMM takes its arena whole at the start",
    };

    pub(in crate::model) fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "arena_mb" => self.arena_bytes = Some(mebibytes(key, value)?),
            _ => return Err(SpecError::key(key)),
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Superblock {
    bytes: u64,
    free: Extents,
}

impl Superblock {
    fn empty(extent: Extent) -> Self {
        Self { bytes: extent.bytes, free: Extents::with(extent) }
    }

    fn is_empty(&self) -> bool {
        self.free.bytes() == self.bytes
    }
}

/// Superblocks of one owner, by address.
type Superblocks = BTreeMap<u64, Superblock>;

/// A replayed RMM arena.
#[derive(Debug)]
pub(in crate::model) struct Arena {
    owners: BTreeMap<u64, Superblocks>,
    places: Table<Extent>,
    high_water: u64,
    retries: u64,
}

impl Arena {
    pub(in crate::model) fn new(config: &ArenaConfig, capacity: Option<u64>) -> Self {
        let most = capacity.unwrap_or(UNLIMITED);
        let bytes = config.arena_bytes.unwrap_or(most).min(most) / ALIGNMENT * ALIGNMENT;
        let whole = Superblock::empty(Extent { address: 0, bytes });
        let global = (bytes >= SUPERBLOCK_BYTES_MIN).then(|| Superblocks::from([(0, whole)]));
        Self {
            owners: BTreeMap::from([(GLOBAL, global.unwrap_or_default())]),
            places: Table::default(),
            high_water: 0,
            retries: 0,
        }
    }

    fn obtain(&mut self, bytes: u64, stream: u32) -> Option<Extent> {
        // Beyond the smallest superblock a request is served by the global arena itself.
        let owner = if bytes > SUPERBLOCK_BYTES_MIN { GLOBAL } else { u64::from(stream) };
        if owner != GLOBAL {
            let own = self.owners.entry(owner).or_default();
            if let Some(superblock) = own.values_mut().find(|s| s.free.fits(bytes)) {
                return take_first(superblock, bytes);
            }
        }
        let (address, mut superblock) = self.acquire(bytes)?;
        let found = take_first(&mut superblock, bytes);
        self.high_water = self.high_water.max(address + superblock.bytes);
        self.owners.entry(owner).or_default().insert(address, superblock);
        found
    }

    /// Takes the lowest superblock that fits out of the global arena, cut to size.
    fn acquire(&mut self, bytes: u64) -> Option<(u64, Superblock)> {
        let global = self.owners.get_mut(&GLOBAL)?;
        let address = *global.iter().find(|(_, s)| s.free.fits(bytes))?.0;
        let superblock = global.remove(&address)?;
        let head = bytes.max(SUPERBLOCK_BYTES_MIN);
        if !superblock.is_empty() || superblock.bytes < head + SUPERBLOCK_BYTES_MIN {
            return Some((address, superblock));
        }
        let tail = Extent { address: address + head, bytes: superblock.bytes - head };
        global.insert(tail.address, Superblock::empty(tail));
        Some((address, Superblock::empty(Extent { address, bytes: head })))
    }

    /// Puts an empty superblock into the global arena, merged with empty neighbours.
    fn release(&mut self, mut address: u64, mut bytes: u64) {
        let global = self.owners.entry(GLOBAL).or_default();
        if let Some((&before, superblock)) = global.range(..address).next_back()
            && superblock.is_empty()
            && before + superblock.bytes == address
        {
            (address, bytes) = (before, superblock.bytes + bytes);
            global.remove(&before);
        }
        let end = address + bytes;
        if global.get(&end).is_some_and(Superblock::is_empty)
            && let Some(after) = global.remove(&end)
        {
            bytes += after.bytes;
        }
        global.insert(address, Superblock::empty(Extent { address, bytes }));
    }

    /// Returns every empty superblock of the streams to the global arena.
    fn defragment(&mut self) {
        let mut empty = Vec::new();
        for (_, superblocks) in self.owners.iter_mut().filter(|(owner, _)| **owner != GLOBAL) {
            superblocks.retain(|address, superblock| {
                let keep = !superblock.is_empty();
                if !keep {
                    empty.push((*address, superblock.bytes));
                }
                keep
            });
        }
        for (address, bytes) in empty {
            self.release(address, bytes);
        }
    }

    fn free(&mut self, extent: Extent) {
        for (owner, superblocks) in &mut self.owners {
            let Some((&address, superblock)) = superblocks.range_mut(..=extent.address).next_back()
            else {
                continue;
            };
            if address + superblock.bytes < extent.end() {
                continue;
            }
            superblock.free.insert(extent);
            if *owner == GLOBAL && superblock.is_empty() {
                let bytes = superblock.bytes;
                superblocks.remove(&address);
                self.release(address, bytes);
            }
            return;
        }
    }
}

fn take_first(superblock: &mut Superblock, bytes: u64) -> Option<Extent> {
    let found = superblock.free.first_fit(bytes)?;
    Some(superblock.free.take(found, bytes))
}

impl Model for Arena {
    fn alloc(&mut self, request: Request) -> bool {
        let Some(bytes) = request.bytes.checked_next_multiple_of(ALIGNMENT) else { return false };
        let mut found = self.obtain(bytes, request.stream);
        if found.is_none() {
            self.retries += 1;
            self.defragment();
            found = self.obtain(bytes, request.stream);
        }
        found.map(|extent| self.places.set(request.block, extent)).is_some()
    }

    fn free_requested(&mut self, _block: u32) {}

    fn free_completed(&mut self, block: u32) {
        if let Some(extent) = self.places.take(block) {
            self.free(extent);
        }
    }

    fn reserved(&self) -> u64 {
        self.high_water
    }

    fn retries(&self) -> u64 {
        self.retries
    }
}
