//! What the allocator's lock guards for the checks.

use std::collections::VecDeque;
use std::panic::Location;

use rustc_hash::FxHashMap;

use crate::device::{Place, Region, StreamId, SyncPoint, Ticket};
use crate::error::Error;
use crate::id::Key;

use super::super::handle::{Handle, Resolved};
use super::super::state::{Block, State};
use super::{Checks, Damage, DamageKind, Suspect};

/// The most findings that are kept for who asks.
const KEPT_FINDINGS: usize = 1024;

/// Mixed into a block's name for the pattern of its freed bytes.
const FREED_SEED: u64 = 0x5EED_00F0_F4EE_D000;

/// What is checked about a block, by its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded {
    /// Bytes before what the user sees.
    pub front: u64,
    /// Bytes that the user sees.
    pub bytes: u64,
    /// Bytes of the margin behind that.
    pub back: u64,
    /// Whether the margins hold their pattern: not before they are filled.
    pub armed: bool,
    /// Who freed it.
    pub freed: Option<&'static Location<'static>>,
    /// The nearest blocks below and above when it was freed.
    pub beside: [Option<Bystander>; 2],
}

impl Guarded {
    /// How a request for `bytes` is laid out: `front` and `back` are 0 without margins.
    pub fn around(bytes: u64, align: u64, checks: &Checks) -> Self {
        // The kernels compare words.
        let whole = |bytes: u64| bytes.checked_next_multiple_of(4).unwrap_or(u64::MAX);
        let front = checks.margin.checked_next_multiple_of(align).unwrap_or(u64::MAX);
        Self {
            front,
            bytes: whole(bytes),
            back: whole(checks.margin),
            armed: false,
            freed: None,
            beside: [None; 2],
        }
    }

    /// Bytes of all of it; more than any device has where that is no number.
    pub const fn total(&self) -> u64 {
        self.front.saturating_add(self.bytes).saturating_add(self.back)
    }

    /// The margins of a block whose user sees what begins at `at`, if they hold their pattern.
    pub fn armed_margins(&self, key: Key, at: Place) -> Vec<(DamageKind, Region)> {
        if self.armed { self.margins(key, at) } else { Vec::new() }
    }

    /// Where the margins of a block are.
    pub fn margins(&self, key: Key, at: Place) -> Vec<(DamageKind, Region)> {
        if self.back == 0 {
            return Vec::new();
        }
        let region = |offset, bytes| {
            let place = Place { space: at.space, offset };
            Region { place, bytes, seed: key.to_bits() }
        };
        vec![
            (DamageKind::BeforeStart, region(at.offset - self.front, self.front)),
            (DamageKind::PastEnd, region(at.offset + self.bytes, self.back)),
        ]
    }

    /// All that the user saw, with the pattern of freed bytes.
    pub fn inside(&self, key: Key, at: Place) -> Region {
        Region { place: at, bytes: self.bytes, seed: key.to_bits() ^ FREED_SEED }
    }
}

/// A neighbour, by numbers: it may be gone when its name is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bystander {
    key: Key,
    name: u32,
    site: u32,
    requested: u64,
}

/// Why a block is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Somebody asked; it stays live.
    Alive,
    /// It was freed.
    Freed,
    /// It leaves the quarantine.
    Leaving,
}

/// Work of the checks on one block, submitted.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub key: Key,
    pub stage: Stage,
    /// What is compared; the report has a number for each.
    pub regions: Vec<(DamageKind, Region)>,
    pub ticket: Option<Ticket>,
    /// When all of it is done.
    pub point: SyncPoint,
}

/// The checks' part of the state. Empty while they are off.
#[derive(Debug, Default)]
pub(crate) struct Checking {
    pub guarded: FxHashMap<u32, Guarded>,
    /// In the order of their points, which are all of one stream.
    pub visits: VecDeque<Visit>,
    /// The quarantine, oldest first, with bytes.
    pub kept: VecDeque<(Key, u64)>,
    pub kept_bytes: u64,
    pub stream: Option<StreamId>,
    pub found: Vec<Damage>,
}

impl Checking {
    /// What a user of the block sees of where it is.
    #[inline]
    pub fn shown(&self, key: Key, at: Resolved) -> Resolved {
        if self.guarded.is_empty() { at } else { self.within(key, at) }
    }

    #[cold]
    fn within(&self, key: Key, at: Resolved) -> Resolved {
        let Some(guarded) = self.guarded.get(&key.index()) else { return at };
        let place = Place { offset: at.place.offset + guarded.front, ..at.place };
        let address = at.address.map(|address| address + guarded.front);
        Resolved { place, address, bytes: guarded.bytes, ..at }
    }

    /// Refuses to enlarge a block over its margin.
    pub fn refuse_growth(&self, key: Key, bytes: u64) -> Result<(), Error> {
        match self.guarded.get(&key.index()) {
            Some(guarded) if bytes > guarded.bytes => Err(Error::NoRoomToGrow),
            _ => Ok(()),
        }
    }

    /// Says that the margins of a block hold their pattern.
    pub fn arm(&mut self, key: Key) {
        if let Some(guarded) = self.guarded.get_mut(&key.index()) {
            guarded.armed = guarded.back > 0;
        }
    }

    /// Says that the margins of a block were lost, by no fault of the program's.
    pub fn disarm(&mut self, key: Key) {
        if let Some(guarded) = self.guarded.get_mut(&key.index()) {
            guarded.armed = false;
        }
    }

    /// Forgets a block that is released.
    #[inline]
    pub fn forget(&mut self, key: Key) {
        if !self.guarded.is_empty() {
            self.guarded.remove(&key.index());
        }
    }

    pub fn keep(&mut self, damage: Damage) {
        if self.found.len() < KEPT_FINDINGS {
            self.found.push(damage);
        }
    }
}

impl State {
    /// Holds a freed block whose last hold has ended, if it is to be checked first.
    #[inline]
    pub fn hold_for_check(&mut self, key: Key) -> bool {
        if self.checking.guarded.is_empty() || !self.checking.guarded.contains_key(&key.index()) {
            return false;
        }
        // Freed for its user already, so `hold` would refuse.
        let Ok(block) = self.blocks.get_mut(key) else { return false };
        block.holds = 1;
        true
    }

    fn bystander(&self, key: Key, block: &Block) -> Bystander {
        let requested = self.requested(block);
        Bystander { key, name: block.name, site: block.site, requested }
    }

    /// The nearest blocks below and above one.
    pub(super) fn beside(&self, block: &Block) -> [Option<Bystander>; 2] {
        let near = self.pool(block).beside(block.spot);
        near.map(|slot| {
            let (key, block) = self.blocks.at(slot?)?;
            Some(self.bystander(key, block))
        })
    }

    fn suspect(&self, allocator: u32, by: Bystander) -> Suspect {
        Suspect {
            handle: Handle { key: by.key, allocator },
            name: self.names.text(by.name).to_owned(),
            requested: by.requested,
            site: self.sites.text(by.site),
        }
    }

    /// A finding about a block that is still in the table.
    pub(super) fn damage(
        &self,
        allocator: u32,
        key: Key,
        found: (DamageKind, Region),
        words: u64,
    ) -> Option<Damage> {
        let (kind, region) = found;
        let guarded = self.checking.guarded.get(&key.index())?;
        let block = self.blocks.get(key).ok()?;
        let [below, above] = match guarded.freed {
            Some(_) => guarded.beside,
            None => self.beside(block),
        };
        let neighbour = match kind {
            DamageKind::BeforeStart => below,
            DamageKind::PastEnd => above,
            DamageKind::AfterFree => below.or(above),
        };
        let freed = guarded.freed.map(|site| format!("{}:{}", site.file(), site.line()));
        Some(Damage {
            kind,
            block: self.suspect(allocator, self.bystander(key, block)),
            freed,
            neighbour: neighbour.map(|by| self.suspect(allocator, by)),
            place: region.place,
            bytes: region.bytes,
            words,
        })
    }
}
