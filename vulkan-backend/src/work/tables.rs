//! Tables of tiles for kernels to read, packed into upload chunks.

use std::sync::Arc;

use terrane_core::device::DeviceError;

use crate::memory::staging::{Chunk, MAX_CHUNK, Staging, Way};

use super::dispatch::Bound;

/// What the offsets of storage bindings are multiples of on every device.
const ALIGN: u64 = 256;

/// Tables in chunks.
pub struct Tables {
    staging: Arc<Staging>,
    chunks: Vec<Chunk>,
    used: u64,
    /// Bytes still to come, as far as known: what the next chunk is made for.
    coming: u64,
}

/// Where a table is.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub bound: Bound,
    /// Entries in it.
    pub count: u32,
}

impl Tables {
    /// For about `bytes` of tables.
    pub fn new(staging: &Arc<Staging>, bytes: u64) -> Self {
        Self { staging: Arc::clone(staging), chunks: Vec::new(), used: 0, coming: bytes }
    }

    /// Writes entries of `N` words into as many tables as they need.
    pub fn write<const N: usize>(
        &mut self,
        entries: &[[u32; N]],
    ) -> Result<Vec<Table>, DeviceError> {
        let size = (N * 4) as u64;
        let mut tables = Vec::new();
        let mut rest = entries;
        while !rest.is_empty() {
            let room = self.chunks.last().map_or(0, |c| c.len().saturating_sub(self.used)) / size;
            // A few entries at the end of a chunk are not worth a dispatch of their own.
            if room < (rest.len() as u64).min(64) {
                let wanted = (rest.len() as u64 * size).max(self.coming).min(MAX_CHUNK);
                self.chunks.push(self.staging.take(Way::Up, wanted)?);
                self.used = 0;
                continue;
            }
            let count = (rest.len() as u64).min(room) as usize;
            tables.push(self.put(&rest[..count], size)?);
            rest = &rest[count..];
        }
        Ok(tables)
    }

    fn put<const N: usize>(
        &mut self,
        entries: &[[u32; N]],
        size: u64,
    ) -> Result<Table, DeviceError> {
        let bytes = entries.len() as u64 * size;
        let offset = self.used;
        let chunk = self.chunks.last_mut().ok_or(DeviceError::InvalidCall("no chunk"))?;
        let target = &mut chunk.bytes_mut()[offset as usize..(offset + bytes) as usize];
        for (slot, word) in target.chunks_exact_mut(4).zip(entries.iter().flatten()) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let bound = Bound { buffer: chunk.buffer, offset, bytes };
        self.used = (offset + bytes).next_multiple_of(ALIGN);
        self.coming = self.coming.saturating_sub(bytes);
        Ok(Table { bound, count: entries.len() as u32 })
    }

    /// The chunks, to be kept while kernels read them.
    pub fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}
