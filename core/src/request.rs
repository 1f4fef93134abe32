//! What a caller asks for.

use std::time::Duration;

use crate::error::Error;
use crate::kind::MemoryKind;
use crate::point::StreamId;
use crate::units::Align;

/// How a request may wait when memory is there only after submitted work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// The stream waits, the caller does not: the allocation comes at once, with the sync points
    /// that work using it has to wait for. Waits are put in by whatever uses the block through
    /// Terrane; who launches work by other means puts in [`Allocation::waits`] himself.
    ///
    /// Where memory is short the caller may wait all the same, for as long as the allocator's own
    /// moves take to make room, this request's or another thread's.
    ///
    /// [`Allocation::waits`]: crate::Allocation::waits
    #[default]
    OnStream,
    /// The caller waits, at most this long, for work to complete or for others to free.
    OnHost(Duration),
    /// Nobody waits: memory that is ready now, or an error at once.
    Never,
}

/// A label for memory with a common purpose, with statistics and a limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub(crate) u16);

impl Tag {
    /// Memory without a label.
    pub const NONE: Self = Self(0);

    /// The tag's number, as in events.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// A request for one block. Build it with the methods; every field has a default but the size
/// and the stream.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) align: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) classes: u32,
    pub(crate) wait: Wait,
    pub(crate) name: &'a str,
    pub(crate) tag: Tag,
    pub(crate) zeroed: bool,
    pub(crate) movable: bool,
    pub(crate) dedicated: bool,
    pub(crate) exportable: bool,
    pub(crate) usage: u64,
    pub(crate) raw_handle: bool,
}

impl<'a> Request<'a> {
    /// `bytes` of device memory whose use is ordered on `stream`: movable, at the device's usual
    /// alignment, waiting on the stream.
    pub const fn new(bytes: u64, stream: StreamId) -> Self {
        Self {
            bytes,
            stream,
            align: 1,
            kind: MemoryKind::Device,
            classes: u32::MAX,
            wait: Wait::OnStream,
            name: "",
            tag: Tag::NONE,
            zeroed: false,
            movable: true,
            dedicated: false,
            exportable: false,
            usage: 0,
            raw_handle: false,
        }
    }

    /// The alignment in bytes, a power of two. 1 means what the device's kernels need
    /// ([`Caps::binding_align`](crate::device::Caps)).
    #[must_use]
    pub const fn align(self, bytes: u64) -> Self {
        Self { align: bytes, ..self }
    }

    /// The memory kind; [`MemoryKind::Device`] unless said.
    #[must_use]
    pub const fn kind(self, kind: MemoryKind) -> Self {
        Self { kind, ..self }
    }

    /// The classes allowed, bit `i` for [`ClassId`](crate::device::ClassId) `i`; all unless said.
    #[must_use]
    pub const fn classes(self, mask: u32) -> Self {
        Self { classes: mask, ..self }
    }

    /// How the request may wait; [`Wait::OnStream`] unless said.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// A name for statistics, leak lists and the inspector.
    #[must_use]
    pub const fn name(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// The label whose statistics and limit the block counts in.
    #[must_use]
    pub const fn tag(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }

    /// Whether every byte is to be zero, by a fill on the request's stream.
    #[must_use]
    pub const fn zeroed(self, zeroed: bool) -> Self {
        Self { zeroed, ..self }
    }

    /// Whether compaction may move the block between its uses; true unless said.
    #[must_use]
    pub const fn movable(self, movable: bool) -> Self {
        Self { movable, ..self }
    }

    /// Whether the block wants a memory object of its own.
    #[must_use]
    pub const fn dedicated(self, dedicated: bool) -> Self {
        Self { dedicated, ..self }
    }

    /// Whether the program keeps the block's address or API object beyond guards and submissions.
    /// Compaction then leaves the block alone, unless a pass offers the move to the program and
    /// it agrees: see [`Compactor::offers`](crate::Compactor::offers).
    #[must_use]
    pub const fn raw_handle(self, kept: bool) -> Self {
        Self { raw_handle: kept, ..self }
    }

    /// Whether other processes or APIs may import the block's memory; it is then never moved.
    #[must_use]
    pub const fn exportable(self, exportable: bool) -> Self {
        Self { exportable, ..self }
    }

    /// What the block will be used for, in the device's own words: on Vulkan the bits of
    /// `VkBufferUsageFlags`. A use that the device's segments do not have
    /// ([`Caps::usages`](crate::device::Caps)) is refused rather than found out at the first
    /// binding. 0, the default, asks for nothing in particular.
    #[must_use]
    pub const fn usage(self, bits: u64) -> Self {
        Self { usage: bits, ..self }
    }

    /// Size and alignment checked and rounded.
    ///
    /// # Errors
    /// [`Error::ZeroSize`], [`Error::BadAlign`], [`Error::OverDeviceLimit`].
    pub(crate) fn layout(&self, binding_align: Align, limit: u64) -> Result<Layout, Error> {
        if self.bytes == 0 {
            return Err(Error::ZeroSize);
        }
        let align = Align::new(self.align).ok_or(Error::BadAlign { align: self.align })?;
        let over = Error::OverDeviceLimit { asked: self.bytes, limit };
        let bytes = crate::size_class::allocated(self.bytes).ok_or(over)?;
        if bytes > limit || align.get() > limit {
            return Err(over);
        }
        Ok(Layout { bytes, align: align.max(binding_align) })
    }
}

/// A request's size and alignment after rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes that the block will have.
    pub bytes: u64,
    /// What its offset is a multiple of.
    pub align: Align,
}
