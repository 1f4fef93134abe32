//! Access to device memory: by copy and by atomics, never by reference.
//!
//! Work on different streams, bindings or mappings may touch the same bytes at the same time,
//! by mistake or on purpose. Every access is therefore a relaxed atomic: a race gives bytes of
//! one write or the other, never undefined behaviour of ours. Words of 8 bytes keep this as fast
//! as memory is.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A range of mapped memory.
#[derive(Clone, Copy)]
pub(super) struct Span {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: all access is atomic, and by the contract of `new` the memory outlives the span.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// # Safety
    /// `bytes` bytes from `base` are one allocation that is mapped readable and writable for as
    /// long as the span or a copy of it is used, and no reference to any of them is used
    /// meanwhile.
    pub(super) unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// The part of `bytes` bytes from `offset`.
    pub(super) fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: `offset` is inside the span or at its end, hence inside its allocation.
        let base = unsafe { self.base.add(offset) };
        Some(Self { base, bytes })
    }

    /// Copies the first bytes out; as many as both have.
    pub(super) fn read(&self, into: &mut [u8]) {
        let len = into.len().min(self.bytes);
        let from = self.base.as_ptr();
        // SAFETY: `len` bytes from `from` are inside the span.
        let (head, words) = unsafe { split(from, len) };
        for (at, byte) in into[..head].iter_mut().enumerate() {
            // SAFETY: `at < head <= len`.
            *byte = unsafe { AtomicU8::from_ptr(from.add(at)) }.load(Relaxed);
        }
        let (middle, tail) = into[head..len].split_at_mut(words * 8);
        for (at, word) in middle.chunks_exact_mut(8).enumerate() {
            // SAFETY: `head + 8 * words <= len`, and `from + head` is aligned to 8.
            let value = unsafe { AtomicU64::from_ptr(from.add(head + 8 * at).cast()) };
            word.copy_from_slice(&value.load(Relaxed).to_ne_bytes());
        }
        for (at, byte) in tail.iter_mut().enumerate() {
            // SAFETY: the tail ends at `len`.
            *byte = unsafe { AtomicU8::from_ptr(from.add(head + 8 * words + at)) }.load(Relaxed);
        }
    }

    /// Copies the first bytes in; as many as both have.
    pub(super) fn write(&self, data: &[u8]) {
        let len = data.len().min(self.bytes);
        let to = self.base.as_ptr();
        // SAFETY: `len` bytes from `to` are inside the span.
        let (head, words) = unsafe { split(to, len) };
        for (at, byte) in data[..head].iter().enumerate() {
            // SAFETY: `at < head <= len`.
            unsafe { AtomicU8::from_ptr(to.add(at)) }.store(*byte, Relaxed);
        }
        let (middle, tail) = data[head..len].split_at(words * 8);
        for (at, word) in middle.chunks_exact(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            // SAFETY: `head + 8 * words <= len`, and `to + head` is aligned to 8.
            let target = unsafe { AtomicU64::from_ptr(to.add(head + 8 * at).cast()) };
            target.store(u64::from_ne_bytes(bytes), Relaxed);
        }
        for (at, byte) in tail.iter().enumerate() {
            // SAFETY: the tail ends at `len`.
            unsafe { AtomicU8::from_ptr(to.add(head + 8 * words + at)) }.store(*byte, Relaxed);
        }
    }

    /// Copies to another span; as many bytes as both have.
    pub(super) fn copy_to(&self, other: &Self) {
        let len = self.bytes.min(other.bytes);
        let (from, to) = (self.base.as_ptr(), other.base.as_ptr());
        if from.align_offset(8) != 0 || to.align_offset(8) != 0 {
            self.copy_by_buffer(other, len);
            return;
        }
        let words = len / 8;
        for at in 0..words {
            // SAFETY: word `at` is inside both spans, and both bases are aligned to 8.
            let (from, to) = unsafe {
                (
                    AtomicU64::from_ptr(from.cast::<u64>().add(at)),
                    AtomicU64::from_ptr(to.cast::<u64>().add(at)),
                )
            };
            to.store(from.load(Relaxed), Relaxed);
        }
        if let (Some(from), Some(to)) =
            (self.part(words * 8, len % 8), other.part(words * 8, len % 8))
        {
            from.copy_by_buffer(&to, len % 8);
        }
    }

    fn copy_by_buffer(&self, other: &Self, len: usize) {
        let mut buffer = [0; 4096];
        let mut at = 0;
        while at < len {
            let piece = buffer.len().min(len - at);
            if let (Some(from), Some(to)) = (self.part(at, piece), other.part(at, piece)) {
                from.read(&mut buffer[..piece]);
                to.write(&buffer[..piece]);
            }
            at += piece;
        }
    }

    /// Adds to the word at a multiple of 4 and returns what it was.
    pub(super) fn add_u32(&self, offset: usize, value: u32) -> Option<u32> {
        let word = self.part(offset, 4)?.base.as_ptr();
        if word.align_offset(4) != 0 {
            return None;
        }
        // SAFETY: the 4 bytes are inside the span and aligned.
        Some(unsafe { AtomicU32::from_ptr(word.cast()) }.fetch_add(value, Relaxed))
    }
}

/// Bytes before the first word aligned to 8, and how many words follow.
///
/// # Safety
/// `len` bytes from `base` are one allocation.
unsafe fn split(base: *mut u8, len: usize) -> (usize, usize) {
    let head = base.align_offset(8).min(len);
    (head, (len - head) / 8)
}

/// A range as slices, for a host view: the one exception from the rule above.
pub(super) struct Exclusive(Span);

impl Exclusive {
    /// # Safety
    /// As [`Span::new`], and until this is dropped nothing else accesses the bytes.
    pub(super) unsafe fn new(span: Span) -> Self {
        Self(span)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are mapped and initialised by the kernel, and by the contract of
        // `new` nobody else writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_out_at_every_alignment() {
        let memory: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let base = NonNull::from(memory.as_slice()).cast();
        // SAFETY: the vector outlives the span and is accessed by nothing else.
        let span = unsafe { Span::new(base, 512) };
        let data: Vec<u8> = (0..100).map(|n| n as u8 ^ 0x5A).collect();
        for offset in 0..17 {
            for len in 0..data.len() {
                let mut back = vec![0; len];
                span.part(offset, len).unwrap().write(&data[..len]);
                let copy = span.part(201 + len % 8, len).unwrap();
                span.part(offset, len).unwrap().copy_to(&copy);
                copy.read(&mut back);
                assert_eq!(back, data[..len], "{offset} {len}");
            }
        }
        assert!(span.part(500, 13).is_none());
        assert!(span.part(usize::MAX, 2).is_none());
        assert_eq!(span.add_u32(2, 1), None);
        span.part(8, 4).unwrap().write(&7_u32.to_ne_bytes());
        assert_eq!(span.add_u32(8, 3), Some(7));
        assert_eq!(span.add_u32(8, 0), Some(10));
    }
}
