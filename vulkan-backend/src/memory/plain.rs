//! Plain segments: one memory object with one buffer over all of it.

use std::sync::Arc;

use ash::vk;
use terrane_core::device::{Caps, DeviceError, Feature, Plain, PlainSpec, SpaceId};

use super::buffers::{Buffer, Buffers, Needs};
use super::object::{Object, Objects, Wish};
use super::space::{Backing, Spaces};

/// Makes a plain segment.
pub fn create(
    caps: &Caps,
    buffers: &Buffers,
    objects: &Arc<Objects>,
    spaces: &Spaces,
    spec: &PlainSpec<'_>,
) -> Result<Plain, DeviceError> {
    let class = *caps.class(spec.class).ok_or(DeviceError::InvalidCall("no such memory class"))?;
    if spec.bytes == 0 || !spec.bytes.is_multiple_of(caps.plain_granularity) {
        return Err(DeviceError::InvalidCall("bytes are no multiple of the granularity"));
    }
    if spec.exportable && !caps.export {
        return Err(DeviceError::Unsupported(Feature::Export));
    }
    let heap = caps.heaps.get(usize::from(class.heap.0)).map_or(0, |heap| heap.total);
    let limit = caps.max_plain_bytes.min(heap);
    if spec.bytes > limit {
        return Err(DeviceError::TooLarge { bytes: spec.bytes, limit });
    }
    let (buffer, bytes, needs) = fitting(buffers, spec)?;
    if needs.types & (1 << class.native) == 0 {
        return Err(DeviceError::Unsupported(Feature::MemoryKind));
    }
    let wish = Wish {
        class,
        bytes: needs.bytes,
        exportable: spec.exportable,
        priority: spec.priority,
        dedicated: needs.dedicated.then_some(buffer.raw),
    };
    let object = objects.allocate(&wish, spec.name)?;
    // SAFETY: the memory was made for this buffer's needs; the space drops the buffer first.
    unsafe { buffer.bind(object.raw, 0) }?;
    buffer.name(spec.name);
    let object: Arc<Object> = Arc::new(object);
    let space = spaces.add(buffer, bytes, Backing::Plain(object));
    Ok(Plain { space: space.id, bytes, address: space.address })
}

/// A buffer that uses all of the memory it needs, so that reserved bytes are usable bytes.
fn fitting(buffers: &Buffers, spec: &PlainSpec<'_>) -> Result<(Buffer, u64, Needs), DeviceError> {
    let flags = vk::BufferCreateFlags::empty();
    let buffer = buffers.create(spec.bytes, flags, spec.exportable)?;
    let needs = buffer.needs();
    if needs.bytes == spec.bytes {
        return Ok((buffer, spec.bytes, needs));
    }
    let whole = buffers.create(needs.bytes, flags, spec.exportable)?;
    let again = whole.needs();
    if again.bytes == needs.bytes {
        return Ok((whole, needs.bytes, again));
    }
    Ok((buffer, spec.bytes, needs))
}

/// Gives a plain segment back.
pub fn release(spaces: &Spaces, id: SpaceId) -> Result<(), DeviceError> {
    let not_plain = DeviceError::InvalidCall("the space is no plain segment");
    let space = spaces.remove(id, |space| space.plain().map(|_| ()).ok_or(not_plain))?;
    drop(space);
    Ok(())
}
