//! The table of streams. Ids are never reused; a stream whose work is done leaves a number behind.

use std::sync::{Arc, PoisonError, RwLock};

use terrane_core::device::{DeviceError, StreamId};

use super::lane::Lane;

/// A stream as the table knows it.
#[derive(Clone)]
pub enum Entry {
    /// It takes work.
    Live(Arc<Lane>),
    /// It takes no more work; some of it may still run.
    Retired(Arc<Lane>),
    /// All its work is done, up to this value.
    Done(u64),
}

/// The table.
#[derive(Default)]
pub struct Lanes(RwLock<Vec<Entry>>);

impl Lanes {
    /// Adds the stream that `make` returns for its id.
    pub fn add(&self, make: impl FnOnce(StreamId) -> Lane) -> Result<Arc<Lane>, DeviceError> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = u32::try_from(table.len())
            .map_err(|_| DeviceError::TooManyObjects { limit: u64::from(u32::MAX) })?;
        let lane = Arc::new(make(StreamId(id)));
        table.push(Entry::Live(Arc::clone(&lane)));
        Ok(lane)
    }

    /// The stream, retired or not.
    pub fn get(&self, id: StreamId) -> Result<Entry, DeviceError> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(id.0 as usize).cloned().ok_or(DeviceError::UnknownStream)
    }

    /// Puts a new state in place.
    pub fn set(&self, id: StreamId, entry: Entry) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = table.get_mut(id.0 as usize) {
            *slot = entry;
        }
    }

    /// All streams that may have work.
    pub fn all(&self) -> Vec<Arc<Lane>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let lane = |entry: &Entry| match entry {
            Entry::Live(lane) | Entry::Retired(lane) => Some(Arc::clone(lane)),
            Entry::Done(_) => None,
        };
        table.iter().filter_map(lane).collect()
    }
}
