//! The rules for arguments that a backend can check without asking its driver, each answering the
//! reason of a broken rule, to be wrapped in [`DeviceError::InvalidCall`]; and those for what a
//! device answers, which the allocator checks before it believes it.

use super::{Binding, Caps, CopyOp, DeviceError, Plain, PlainSpec, Region};

/// Offsets and bytes of copies are multiples of `unit`; no source overlaps its destination.
///
/// # Errors
/// The reason.
pub fn copies(ops: &[CopyOp], unit: u64) -> Result<(), &'static str> {
    for CopyOp { from, to, bytes } in ops {
        if [from.offset, to.offset, *bytes].iter().any(|n| !n.is_multiple_of(unit)) {
            return Err("offsets or bytes of a copy are not aligned");
        }
        if from.space == to.space && from.offset.abs_diff(to.offset) < *bytes {
            return Err("source and destination of a copy overlap");
        }
    }
    Ok(())
}

/// Offset and bytes of a fill are multiples of 4.
///
/// # Errors
/// The reason.
pub fn fill(offset: u64, bytes: u64) -> Result<(), &'static str> {
    let aligned = offset.is_multiple_of(4) && bytes.is_multiple_of(4);
    aligned.then_some(()).ok_or("offset or bytes are no multiple of 4")
}

/// Offsets and bytes of regions are multiples of 4.
///
/// # Errors
/// The reason.
pub fn regions(regions: &[Region]) -> Result<(), &'static str> {
    regions.iter().try_for_each(|region| fill(region.place.offset, region.bytes))
}

/// Bindings, push data and groups are within the device's limits.
///
/// # Errors
/// [`DeviceError::TooLarge`] for a binding, [`DeviceError::InvalidCall`] for the rest.
pub fn dispatch(
    caps: &Caps,
    bindings: &[Binding],
    push: &[u8],
    groups: [u32; 3],
) -> Result<(), DeviceError> {
    let limit = caps.max_binding_bytes;
    if let Some(large) = bindings.iter().find(|binding| binding.bytes > limit) {
        return Err(DeviceError::TooLarge { bytes: large.bytes, limit });
    }
    if !bindings.iter().all(|binding| caps.binding_align.divides(binding.place.offset)) {
        return Err(DeviceError::InvalidCall("a binding is not aligned"));
    }
    if bindings.len() as u64 > u64::from(caps.max_bindings) {
        return Err(DeviceError::InvalidCall("too many bindings"));
    }
    if push.len() as u64 > u64::from(caps.max_push_bytes) {
        return Err(DeviceError::InvalidCall("too many bytes of push data"));
    }
    if groups.iter().zip(caps.max_groups).any(|(groups, max)| *groups > max) {
        return Err(DeviceError::InvalidCall("too many groups"));
    }
    Ok(())
}

/// The whole range `offset..offset + bytes` lies below `limit`.
pub fn inside(offset: u64, bytes: u64, limit: u64) -> bool {
    offset.checked_add(bytes).is_some_and(|end| end <= limit)
}

/// Capabilities that an allocator can work with.
///
/// # Errors
/// The reason.
pub(crate) fn caps(caps: &Caps) -> Result<(), &'static str> {
    let all = caps.classes.iter();
    if !all.clone().all(|class| usize::from(class.heap.0) < caps.heaps.len()) {
        return Err("a memory class is of a heap that there is not");
    }
    if !caps.plain_granularity.is_power_of_two() {
        return Err("the granularity of segments is no power of two");
    }
    if caps.max_plain_bytes < caps.plain_granularity {
        return Err("no segment can be made");
    }
    let Some(paging) = caps.paging else { return Ok(()) };
    if !paging.granularity.is_power_of_two() {
        return Err("the granularity of pages is no power of two");
    }
    let pageable =
        (0_u32..).zip(all).fold(0, |bits, (id, _)| bits | 1_u32.checked_shl(id).unwrap_or(0));
    if paging.classes & !pageable != 0 {
        return Err("a memory class that there is not can be paged");
    }
    Ok(())
}

/// A new segment is as large as was asked, and lies where the capabilities say.
///
/// # Errors
/// The reason.
pub(crate) fn plain(caps: &Caps, spec: &PlainSpec<'_>, plain: &Plain) -> Result<(), &'static str> {
    if plain.bytes < spec.bytes {
        return Err("a segment is smaller than was asked for");
    }
    let is_aligned = |address| caps.plain_base_align.divides(address);
    plain.address.is_none_or(is_aligned).then_some(()).ok_or("a segment is not aligned")
}
