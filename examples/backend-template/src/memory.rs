//! Memory objects: here vectors. A driver's objects take their place.

use std::collections::HashMap;

use terrane_core::device::{CopyOp, Place, SpaceId};

/// Why a call is refused.
type Refusal = &'static str;

/// All memory objects by their space.
#[derive(Default)]
pub struct Memory {
    objects: HashMap<SpaceId, Vec<u8>>,
    last: u64,
    used: u64,
}

impl Memory {
    /// Bytes of all objects.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Makes an object; `None` when the system has no memory for it.
    pub fn add(&mut self, bytes: u64) -> Option<SpaceId> {
        let len = usize::try_from(bytes).ok()?;
        let mut object = Vec::new();
        object.try_reserve_exact(len).ok()?;
        object.resize(len, 0);
        self.last += 1;
        self.used += bytes;
        self.objects.insert(SpaceId(self.last), object);
        Some(SpaceId(self.last))
    }

    /// Gives an object back.
    pub fn remove(&mut self, space: SpaceId) -> Result<(), Refusal> {
        let object = self.objects.remove(&space).ok_or("no such segment")?;
        self.used -= object.len() as u64;
        Ok(())
    }

    /// The bytes of a range.
    pub fn bytes(&self, place: Place, bytes: u64) -> Result<&[u8], Refusal> {
        let object = self.objects.get(&place.space).ok_or("no such space")?;
        object.get(range(place, bytes)?).ok_or("outside of the space")
    }

    /// The bytes of a range, to be written.
    pub fn bytes_mut(&mut self, place: Place, bytes: u64) -> Result<&mut [u8], Refusal> {
        let object = self.objects.get_mut(&place.space).ok_or("no such space")?;
        object.get_mut(range(place, bytes)?).ok_or("outside of the space")
    }

    /// Copies all of `ops`, or nothing.
    pub fn copy(&mut self, ops: &[CopyOp]) -> Result<(), Refusal> {
        for op in ops {
            self.bytes(op.from, op.bytes)?;
            self.bytes(op.to, op.bytes)?;
        }
        for op in ops {
            let data = self.bytes(op.from, op.bytes)?.to_vec();
            self.bytes_mut(op.to, op.bytes)?.copy_from_slice(&data);
        }
        Ok(())
    }
}

fn range(place: Place, bytes: u64) -> Result<std::ops::Range<usize>, Refusal> {
    let end = place.offset.checked_add(bytes).ok_or("beyond any space")?;
    let at = |offset| usize::try_from(offset).map_err(|_| "beyond any space");
    Ok(at(place.offset)?..at(end)?)
}
