//! View objects: a `VkBuffer` of its own over a block.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk::{self, Handle};
use terrane_core::device::{DeviceError, Feature, Place, SyncPoint, View};

use crate::device::Shared;
use crate::stream::{Bind, Kept};

use super::buffers::Buffer;
use super::paging::Piece;
use super::space::{Pages, Space};

/// The views alive.
#[derive(Default)]
pub struct Views(Mutex<HashMap<View, Arc<Made>>>);

struct Made {
    buffer: Arc<Buffer>,
    // Memory outlives the buffers that are bound to it.
    _space: Arc<Space>,
    _piece: Option<Piece>,
    /// The bind that has to be done before the view is used.
    ready: Option<SyncPoint>,
}

impl Views {
    fn add(&self, made: Made) -> View {
        let view = View(made.buffer.raw.as_raw());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(view, Arc::new(made));
        view
    }

    /// Takes a view out and destroys it.
    pub fn destroy(&self, view: View) -> Result<(), DeviceError> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&view);
        made.map(drop).ok_or(DeviceError::InvalidCall("no such view"))
    }

    /// The bind that has to be done before the view is used, if any.
    pub fn ready(&self, view: View) -> Result<Option<SyncPoint>, DeviceError> {
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = views.get(&view).ok_or(DeviceError::InvalidCall("no such view"))?;
        Ok(made.ready)
    }

    /// Destroys all views.
    pub fn clear(&self) {
        let views = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(views);
    }
}

/// Makes a view of a range.
pub fn create(shared: &Shared, place: Place, bytes: u64) -> Result<View, DeviceError> {
    shared.driver.check()?;
    let space = shared.spaces.get(place.space)?;
    if bytes == 0 || !space.holds(place.offset, bytes) {
        return Err(DeviceError::InvalidCall("a view of no bytes, or outside its space"));
    }
    match space.plain().map(Arc::clone) {
        Some(object) => {
            if object.dedicated {
                return Err(DeviceError::Unsupported(Feature::Views));
            }
            let flags = vk::BufferCreateFlags::empty();
            let buffer = shared.buffers.create(bytes, flags, object.exportable)?;
            let needs = buffer.needs();
            let fits = place.offset.checked_add(needs.bytes).is_some_and(|end| end <= object.bytes);
            if needs.dedicated || needs.types & (1 << object.class.native) == 0 {
                return Err(DeviceError::Unsupported(Feature::Views));
            }
            if !fits || !place.offset.is_multiple_of(needs.align) {
                return Err(DeviceError::InvalidCall("a view's place is not aligned"));
            }
            // SAFETY: the memory suits the buffer at this offset, and `Made` keeps the space.
            unsafe { buffer.bind(object.raw, place.offset) }?;
            buffer.name("terrane view");
            let buffer = Arc::new(buffer);
            Ok(shared.views.add(Made { buffer, _space: space, _piece: None, ready: None }))
        }
        None => paged(shared, space, place.offset, bytes),
    }
}

/// A sparse-aliased buffer over the same pages. Its size is rounded up to whole pages.
fn paged(shared: &Shared, space: Arc<Space>, offset: u64, bytes: u64) -> Result<View, DeviceError> {
    let granularity = shared.caps.paging.map_or(1, |paging| paging.granularity);
    if !offset.is_multiple_of(granularity) {
        return Err(DeviceError::InvalidCall("a view's place is not aligned to a page"));
    }
    let bytes = bytes.next_multiple_of(granularity);
    let (binds, mut keep) = {
        let pages = space.pages().ok_or(DeviceError::InvalidCall("the space is not paged"))?;
        slices(&pages, offset, bytes)?
    };
    let (buffer, piece) = shared.sparse_buffer(bytes)?;
    buffer.name("terrane view");
    let bind = Bind { buffer: buffer.raw, pages: binds };
    let buffer = Arc::new(buffer);
    keep.push(Box::new(Arc::clone(&buffer)));
    let point = shared.streams.bind(&[bind], &[], keep)?;
    shared.streams.raise_floor(point);
    let made = Made { buffer, _space: space, _piece: Some(piece), ready: Some(point) };
    Ok(shared.views.add(made))
}

/// The binds that make pages from `offset` on appear from 0 on.
fn slices(
    pages: &Pages,
    offset: u64,
    bytes: u64,
) -> Result<(Vec<vk::SparseMemoryBind>, Kept), DeviceError> {
    let (mut binds, mut keep, mut at) = (Vec::new(), Kept::new(), offset);
    let end = offset + bytes;
    let first = pages.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
    for (&start, page) in pages.range(first..end) {
        let stop = (start + page.bytes).min(end);
        if start > at || stop <= at {
            break;
        }
        binds.push(
            vk::SparseMemoryBind::default()
                .resource_offset(at - offset)
                .size(stop - at)
                .memory(page.object.raw)
                .memory_offset(page.memory_offset + (at - start)),
        );
        keep.push(Box::new(Arc::clone(&page.object)));
        at = stop;
    }
    if at == end {
        Ok((binds, keep))
    } else {
        Err(DeviceError::InvalidCall("a view over a range that is not wholly mapped"))
    }
}
