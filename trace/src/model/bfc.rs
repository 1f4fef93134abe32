//! TensorFlow's and JAX's BFC allocator: best fit with coalescing in growing regions.

use super::driver::Driver;
use super::extents::{Extent, Extents, Ranges};
use super::pending::Pending;
use super::table::Table;
use super::{Model, Request, SpecError, Validation};
use std::collections::BTreeMap;

const UNIT: u64 = 256;
const FIRST_REGION_BYTES: u64 = 2 << 20;

/// Options of the BFC allocator.
#[derive(Clone, Debug, PartialEq)]
pub struct BfcConfig {
    /// Share of the capacity taken at the start as one region, as JAX does with 0.75; `None`
    /// grows on demand. Without effect where there is no capacity.
    pub preallocate: Option<f64>,
    /// A chunk is split when this many bytes would be wasted, or more than half of it.
    pub max_internal_fragmentation_bytes: u64,
    /// Gives wholly free regions back before giving up.
    pub garbage_collection: bool,
}

impl Default for BfcConfig {
    fn default() -> Self {
        Self {
            preallocate: None,
            max_internal_fragmentation_bytes: 128 << 20,
            garbage_collection: true,
        }
    }
}

impl BfcConfig {
    pub(super) const VALIDATION: Validation = Validation::NotValidated {
        assumes: "one compute stream: memory is reused by any stream once its free completed",
    };

    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "preallocate" => {
                let share = value.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
                let refuse = || SpecError::value(key, value, "a number above 0, up to 1");
                self.preallocate = Some(share.ok_or_else(refuse)?);
            }
            "garbage_collection" => {
                let refuse = |_| SpecError::value(key, value, "true or false");
                self.garbage_collection = value.parse().map_err(refuse)?;
            }
            _ => return Err(SpecError::key(key)),
        }
        Ok(())
    }
}

/// A replayed BFC allocator.
#[derive(Debug)]
pub(super) struct Bfc {
    config: BfcConfig,
    driver: Driver,
    ranges: Ranges,
    /// address -> bytes
    regions: BTreeMap<u64, u64>,
    next_region_bytes: u64,
    free: Extents,
    places: Table<Extent>,
    pending: Pending,
    retries: u64,
}

impl Bfc {
    pub(super) fn new(config: BfcConfig, capacity: Option<u64>) -> Self {
        let mut bfc = Self {
            driver: Driver::new(capacity),
            ranges: Ranges::default(),
            regions: BTreeMap::new(),
            next_region_bytes: FIRST_REGION_BYTES,
            free: Extents::default(),
            places: Table::default(),
            pending: Pending::default(),
            retries: 0,
            config,
        };
        if let (Some(share), Some(capacity)) = (bfc.config.preallocate, capacity) {
            let bytes = (capacity as f64 * share) as u64 / UNIT * UNIT;
            bfc.driver = Driver::new(Some(bytes));
            bfc.add_region(bytes);
        }
        bfc
    }

    fn find(&mut self, bytes: u64) -> Option<Extent> {
        let found = self.free.best_fit(bytes)?;
        let waste = found.bytes - bytes;
        let split = waste >= bytes || waste >= self.config.max_internal_fragmentation_bytes;
        Some(self.free.take(found, if split { bytes } else { found.bytes }))
    }

    /// A new region for a request: the next size in turn, or what the device has left.
    fn extend(&mut self, bytes: u64) -> bool {
        let available = (self.driver.capacity() - self.driver.reserved()) / UNIT * UNIT;
        if bytes > available {
            return false;
        }
        let mut increased = false;
        while self.next_region_bytes < bytes {
            self.next_region_bytes = self.next_region_bytes.saturating_mul(2);
            increased = true;
        }
        let added = self.add_region(self.next_region_bytes.min(available));
        if added && !increased {
            self.next_region_bytes = self.next_region_bytes.saturating_mul(2);
        }
        added
    }

    fn add_region(&mut self, bytes: u64) -> bool {
        let Some(region) = self.ranges.new_range(bytes) else { return false };
        if bytes == 0 || !self.driver.take(bytes) {
            return false;
        }
        self.regions.insert(region.address, region.bytes);
        self.free.insert(region);
        true
    }

    /// Gives all wholly free regions back, if together they could hold the request.
    fn collect_garbage(&mut self, bytes: u64) -> bool {
        let whole = |extent: &Extent| self.regions.get(&extent.address) == Some(&extent.bytes);
        let regions: Vec<Extent> = self.free.iter().filter(whole).collect();
        if regions.iter().map(|region| region.bytes).sum::<u64>() < bytes {
            return false;
        }
        for region in regions {
            self.free.take(region, region.bytes);
            self.regions.remove(&region.address);
            self.driver.give_back(region.bytes);
        }
        true
    }

    fn obtain(&mut self, bytes: u64) -> Option<Extent> {
        if let Some(found) = self.find(bytes) {
            return Some(found);
        }
        let collects = self.config.garbage_collection;
        if self.extend(bytes) || (collects && self.collect_garbage(bytes) && self.extend(bytes)) {
            return self.find(bytes);
        }
        None
    }

    fn free(&mut self, block: u32) {
        if let Some(extent) = self.places.take(block) {
            self.free.insert(extent);
        }
    }
}

impl Model for Bfc {
    fn alloc(&mut self, request: Request) -> bool {
        let Some(bytes) = request.bytes.checked_next_multiple_of(UNIT) else { return false };
        let mut found = self.obtain(bytes);
        if found.is_none() {
            // The allocator waits some seconds for a free before it gives up.
            self.retries += 1;
            for block in self.pending.complete_all() {
                self.free(block);
            }
            found = self.obtain(bytes);
        }
        found.map(|extent| self.places.set(request.block, extent)).is_some()
    }

    fn free_requested(&mut self, block: u32) {
        self.pending.request(block);
    }

    fn free_completed(&mut self, block: u32) {
        if self.pending.complete(block) {
            self.free(block);
        }
    }

    fn reserved(&self) -> u64 {
        self.driver.reserved()
    }

    fn retries(&self) -> u64 {
        self.retries
    }
}
