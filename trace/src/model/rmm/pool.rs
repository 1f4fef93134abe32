//! RMM's stream-ordered pool: a free list per stream, blocks of other streams behind a wait.

use super::{ALIGNMENT, mebibytes};
use crate::model::driver::Driver;
use crate::model::extents::{Extent, Extents, Ranges};
use crate::model::table::Table;
use crate::model::{Model, Request, SpecError, Validation};
use std::collections::BTreeMap;

/// Options of RMM's pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolConfig {
    /// Bytes taken at the start; 0: none.
    pub initial_bytes: u64,
    /// Most bytes the pool may hold; `None`: no limit, and the pool doubles when it grows.
    pub max_bytes: Option<u64>,
}

impl PoolConfig {
    pub(in crate::model) const VALIDATION: Validation = Validation::NotValidated {
        assumes: "a pool that starts empty, and frees at the moment recorded as completed",
    };

    pub(in crate::model) fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "initial_mb" => self.initial_bytes = mebibytes(key, value)?,
            "max_mb" => self.max_bytes = Some(mebibytes(key, value)?),
            _ => return Err(SpecError::key(key)),
        }
        Ok(())
    }
}

/// A replayed RMM pool.
#[derive(Debug)]
pub(in crate::model) struct Pool {
    config: PoolConfig,
    driver: Driver,
    ranges: Ranges,
    free: BTreeMap<u32, Extents>,
    places: Table<(u32, Extent)>,
    waits: u64,
}

impl Pool {
    pub(in crate::model) fn new(config: PoolConfig, capacity: Option<u64>) -> Self {
        let mut pool = Self {
            driver: Driver::new(capacity),
            ranges: Ranges::default(),
            free: BTreeMap::new(),
            places: Table::default(),
            waits: 0,
            config,
        };
        if let Some(extent) = pool.upstream(pool.config.initial_bytes) {
            pool.free.entry(0).or_default().insert(extent);
        }
        pool
    }

    /// The steps in RMM's order: own list, other lists behind a wait, other lists merged into
    /// the own one, growth.
    fn obtain(&mut self, bytes: u64, stream: u32) -> Option<Extent> {
        if let Some(found) = take_from(self.free.entry(stream).or_default(), bytes) {
            return Some(found);
        }
        let others: Vec<u32> = self.free.keys().copied().filter(|other| *other != stream).collect();
        for other in &others {
            let found = self.free.get_mut(other).and_then(|list| take_from(list, bytes));
            if found.is_some() {
                self.waits += 1;
                return found;
            }
        }
        for other in others {
            let Some(list) = self.free.remove(&other) else { continue };
            self.waits += u64::from(list.bytes() > 0);
            let own = self.free.entry(stream).or_default();
            for extent in list.iter() {
                own.insert(extent);
            }
            if let Some(found) = take_from(own, bytes) {
                return Some(found);
            }
        }
        let grown = self.grow(bytes)?;
        let own = self.free.entry(stream).or_default();
        own.insert(grown);
        take_from(own, bytes)
    }

    /// As much again as the pool has, or half of what it may still take; halved on refusal.
    fn grow(&mut self, bytes: u64) -> Option<Extent> {
        let held = self.driver.reserved();
        let mut wanted = match self.config.max_bytes {
            None => held.max(bytes),
            Some(max) => {
                let remaining = max.saturating_sub(held) / ALIGNMENT * ALIGNMENT;
                if bytes > remaining {
                    return None;
                }
                bytes.max(remaining / 2)
            }
        };
        loop {
            let grown = self.upstream(wanted);
            if grown.is_some() || wanted == bytes {
                return grown;
            }
            wanted = bytes.max(wanted / 2 / ALIGNMENT * ALIGNMENT);
        }
    }

    fn upstream(&mut self, bytes: u64) -> Option<Extent> {
        let range = self.ranges.new_range(bytes)?;
        (bytes > 0 && self.driver.take(bytes)).then_some(range)
    }
}

fn take_from(list: &mut Extents, bytes: u64) -> Option<Extent> {
    let found = list.best_fit(bytes)?;
    Some(list.take(found, bytes))
}

impl Model for Pool {
    fn alloc(&mut self, request: Request) -> bool {
        let Some(bytes) = request.bytes.checked_next_multiple_of(ALIGNMENT) else { return false };
        let found = self.obtain(bytes, request.stream);
        found.map(|extent| self.places.set(request.block, (request.stream, extent))).is_some()
    }

    fn free_requested(&mut self, _block: u32) {}

    fn free_completed(&mut self, block: u32) {
        if let Some((stream, extent)) = self.places.take(block) {
            self.free.entry(stream).or_default().insert(extent);
        }
    }

    fn reserved(&self) -> u64 {
        self.driver.reserved()
    }

    fn waits(&self) -> u64 {
        self.waits
    }
}
