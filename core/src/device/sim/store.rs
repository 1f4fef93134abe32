//! The bytes of one modelled memory object.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const CHUNK: u64 = 16 << 10;

/// What memory holds before anything is written to it: neither zero nor a likely pattern, so
/// that nobody comes to rely on it.
pub(super) const UNWRITTEN: u8 = 0xC7;

/// Bytes kept where they were written, or kept whole where the host can point at them.
pub(super) enum Store {
    Sparse(HashMap<u64, Box<[u8]>>),
    /// Atomics, since the host may read and write through a pointer at any time.
    Whole(Arc<[AtomicU8]>),
}

impl Store {
    pub(super) fn sparse() -> Self {
        Self::Sparse(HashMap::new())
    }

    pub(super) fn whole(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        Some(Self::Whole((0..bytes).map(|_| AtomicU8::new(UNWRITTEN)).collect()))
    }

    /// The address of byte `offset`, for a whole store.
    pub(super) fn pointer(&self, offset: u64) -> Option<NonNull<u8>> {
        match self {
            Self::Sparse(_) => None,
            Self::Whole(bytes) => {
                // From the whole slice, so that the pointer may reach every byte of it.
                let base = NonNull::from(&**bytes).cast::<u8>();
                let offset = usize::try_from(offset).ok().filter(|at| *at < bytes.len())?;
                NonNull::new(base.as_ptr().wrapping_add(offset))
            }
        }
    }

    /// Copies from `offset`; the range is inside the object.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        match self {
            Self::Sparse(chunks) => {
                walk(offset, into.len(), |chunk, at, from, len| {
                    let target = &mut into[from..from + len];
                    match chunks.get(&chunk) {
                        Some(bytes) => target.copy_from_slice(&bytes[at..at + len]),
                        None => target.fill(UNWRITTEN),
                    }
                });
            }
            Self::Whole(bytes) => {
                for (target, source) in into.iter_mut().zip(bytes.iter().skip(offset as usize)) {
                    *target = source.load(Ordering::Relaxed);
                }
            }
        }
    }

    /// Copies to `offset`; the range is inside the object.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        match self {
            Self::Sparse(chunks) => walk(offset, data.len(), |chunk, at, from, len| {
                let bytes = chunks
                    .entry(chunk)
                    .or_insert_with(|| vec![UNWRITTEN; CHUNK as usize].into_boxed_slice());
                bytes[at..at + len].copy_from_slice(&data[from..from + len]);
            }),
            Self::Whole(bytes) => {
                for (source, target) in data.iter().zip(bytes.iter().skip(offset as usize)) {
                    target.store(*source, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Calls `each(chunk, offset in the chunk, offset in the data, bytes)` for every piece.
fn walk(offset: u64, bytes: usize, mut each: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < bytes {
        let at = offset + done as u64;
        let within = (at % CHUNK) as usize;
        let len = (CHUNK as usize - within).min(bytes - done);
        each(at / CHUNK, within, done, len);
        done += len;
    }
}
