//! The host's sight of host-visible plain segments.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use terrane_core::device::{DeviceError, Feature, HostView, Place};

use crate::calls::Call;
use crate::driver::Driver;

use super::object::Object;
use super::space::Spaces;

/// The mapped range of a place, and what is needed to flush it.
pub struct Seen {
    driver: Arc<Driver>,
    object: Arc<Object>,
    pointer: NonNull<u8>,
    offset: u64,
    bytes: u64,
    atom: u64,
}

// SAFETY: a view is the only access to its range, by the contract of `HostAccess`.
unsafe impl Send for Seen {}

impl Seen {
    /// The range as the host sees it.
    pub fn new(
        driver: &Arc<Driver>,
        spaces: &Spaces,
        atom: u64,
        place: Place,
        bytes: u64,
    ) -> Result<Self, DeviceError> {
        driver.check()?;
        let space = spaces.get(place.space)?;
        let object = space.plain().ok_or(DeviceError::Unsupported(Feature::HostMapping))?;
        if !space.holds(place.offset, bytes) {
            return Err(DeviceError::InvalidCall("a range outside its space"));
        }
        let base = object.pointer()?;
        let offset = usize::try_from(place.offset)
            .map_err(|_| DeviceError::Unsupported(Feature::HostMapping))?;
        // SAFETY: the whole object is mapped and the offset lies inside.
        let pointer = unsafe { base.add(offset) };
        let (driver, object) = (Arc::clone(driver), Arc::clone(object));
        Ok(Self { driver, object, pointer, offset: place.offset, bytes, atom: atom.max(1) })
    }

    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    fn length(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(0)
    }

    /// The range widened to whole atoms, as non-coherent memory wants it.
    fn atoms(&self) -> vk::MappedMemoryRange<'static> {
        let (start, size) = atoms(self.offset, self.bytes, self.object.bytes, self.atom);
        vk::MappedMemoryRange::default().memory(self.object.raw).offset(start).size(size)
    }

    pub fn flush(&self) -> Result<(), DeviceError> {
        if self.object.class.coherent || self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the memory is mapped and the range lies inside it.
        self.driver.run(Call::FlushMemory, self.bytes, |d| unsafe {
            d.flush_mapped_memory_ranges(&[self.atoms()])
        })
    }

    pub fn invalidate(&self) -> Result<(), DeviceError> {
        if self.object.class.coherent || self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        self.driver.run(Call::InvalidateMemory, self.bytes, |d| unsafe {
            d.invalidate_mapped_memory_ranges(&[self.atoms()])
        })
    }
}

/// Offset and size of the whole atoms around a range of an object; the end of the object stands
/// for a last atom that is cut off.
pub fn atoms(offset: u64, bytes: u64, object: u64, atom: u64) -> (u64, u64) {
    let start = offset / atom * atom;
    let end = (offset + bytes).div_ceil(atom).saturating_mul(atom);
    (start, if end >= object { vk::WHOLE_SIZE } else { end - start })
}

/// A [`Seen`] that was made visible to the host, and is flushed when dropped.
pub struct View(pub Seen);

impl HostView for View {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped while the object lives; no work and no other view uses it,
        // by the contract.
        unsafe { std::slice::from_raw_parts(self.0.pointer.as_ptr(), self.0.length()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer.as_ptr(), self.0.length()) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Err(error) = self.0.flush() {
            tracing::error!(%error, "host writes may not be visible to the device");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushed_ranges_cover_whole_atoms_and_end_with_the_object() {
        assert_eq!(atoms(0, 1, 4096, 64), (0, 64));
        assert_eq!(atoms(100, 100, 4096, 64), (64, 192));
        assert_eq!(atoms(4000, 96, 4096, 64), (3968, vk::WHOLE_SIZE));
        assert_eq!(atoms(4000, 90, 4090, 64), (3968, vk::WHOLE_SIZE));
        assert_eq!(atoms(7, 9, 4096, 1), (7, 9));
    }
}
