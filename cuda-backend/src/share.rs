//! Memory shared beyond this device: peers, other processes, and managed memory's placement.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use terrane_core::device::{
    ClassId, DeviceError, Feature, MemoryId, MemoryKind, Place, SpaceId, StreamId, SyncPoint,
};

use crate::CudaDevice;
use crate::driver::{Dev, Fault, RawMemory, code};
use crate::inner::{Inner, read, write};

/// The host, where the driver wants a device.
const HOST: Dev = Dev(-1);

/// How a range of managed memory will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Mostly read: host and device may each keep a copy.
    ReadMostly,
    /// No longer mostly read.
    NotReadMostly,
    /// Best kept on this device.
    PreferDevice,
    /// Best kept on the host.
    PreferHost,
    /// No preference any more.
    NoPreference,
    /// Keep it mapped for this device wherever it lies.
    AccessedByDevice,
}

impl Advice {
    fn number(self) -> u32 {
        match self {
            Self::ReadMostly => 1,
            Self::NotReadMostly => 2,
            Self::PreferDevice | Self::PreferHost => 3,
            Self::NoPreference => 4,
            Self::AccessedByDevice => 5,
        }
    }
}

impl Inner {
    fn managed_address(&self, place: Place, bytes: u64) -> Result<u64, DeviceError> {
        self.spaces.with(place.space, |space| {
            let kind = self.caps.class(space.class).map(|class| class.kind);
            if kind != Some(MemoryKind::Shared) {
                return Err(DeviceError::Unsupported(Feature::Advice));
            }
            space.address(place.offset, bytes)
        })
    }

    fn export(&self, memory: RawMemory) -> Result<OwnedFd, DeviceError> {
        let descriptor = self.driver.export(memory).map_err(|fault| self.fail(fault))?;
        if descriptor < 0 {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        // SAFETY: the driver made this descriptor for the caller, who now owns it alone.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn import(&self, descriptor: RawFd) -> Result<RawMemory, DeviceError> {
        self.driver.import(descriptor).map_err(|fault| self.fail(fault))
    }
}

impl CudaDevice {
    /// Starts to bring a range of managed memory to this device, or to the host, in stream order.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for memory of another kind, [`DeviceError::UnknownStream`].
    pub fn prefetch(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        to_host: bool,
    ) -> Result<SyncPoint, DeviceError> {
        let inner = &self.inner;
        let address = inner.managed_address(place, bytes)?;
        let stream = inner.streams.get(stream)?;
        let device = if to_host { HOST } else { inner.device };
        let _entered = inner.enter()?;
        stream.submit(|raw| {
            let started = inner.driver.prefetch(address, bytes, device, raw);
            started.map_err(|fault| inner.fail(fault))
        })
    }

    /// Tells the driver how a range of managed memory will be used.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for memory of another kind.
    pub fn advise(&self, place: Place, bytes: u64, advice: Advice) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let address = inner.managed_address(place, bytes)?;
        let device = if advice == Advice::PreferHost { HOST } else { inner.device };
        let _entered = inner.enter()?;
        inner
            .driver
            .advise(address, bytes, advice.number(), device)
            .map_err(|fault| inner.fail(fault))
    }

    /// Whether kernels of `peer` could reach this device's memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn can_be_accessed_by(&self, peer: &Self) -> Result<bool, DeviceError> {
        let inner = &self.inner;
        inner.usable()?;
        let asked = inner.driver.can_access_peer(peer.inner.device, inner.device);
        asked.map_err(|fault| inner.fail(fault))
    }

    /// Lets kernels and copies of `peer` reach this device's memory, what is there and what comes.
    /// Calling it again does nothing.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] where [`can_be_accessed_by`](Self::can_be_accessed_by) is
    /// false.
    pub fn allow_peer(&self, peer: &Self) -> Result<(), DeviceError> {
        if !self.can_be_accessed_by(peer)? {
            return Err(DeviceError::InvalidCall("the devices can not reach each other's memory"));
        }
        let inner = &self.inner;
        {
            let _entered = peer.inner.enter()?;
            match peer.inner.driver.enable_peer(inner.context) {
                Ok(()) | Err(Fault { code: code::PEER_ACCESS_ALREADY_ENABLED, .. }) => {}
                Err(fault) => return Err(peer.inner.fail(fault)),
            }
        }
        let known = read(&inner.accessible).contains(&peer.inner.device);
        if !known {
            write(&inner.accessible).push(peer.inner.device);
        }
        let _entered = inner.enter()?;
        inner.spaces.pages.grant(inner)
    }

    /// A file descriptor of a memory object that was made exportable: another process, or an
    /// API that imports posix descriptors, can map the same memory.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where it was not made exportable.
    pub fn export_memory(&self, memory: MemoryId) -> Result<OwnedFd, DeviceError> {
        let raw = self.inner.spaces.pages.exportable(memory)?;
        let _entered = self.inner.enter()?;
        self.inner.export(raw)
    }

    /// As [`export_memory`](Self::export_memory), for an exportable plain segment.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where it was not made exportable.
    pub fn export_plain(&self, space: SpaceId) -> Result<OwnedFd, DeviceError> {
        let raw = self.inner.exported_plain(space)?;
        let _entered = self.inner.enter()?;
        self.inner.export(raw)
    }

    /// Takes memory in that another process exported from the same device. It can then be mapped
    /// as any other memory object; `bytes` is its whole size. The descriptor stays the caller's,
    /// and may be closed once this has returned.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] without paging, and the driver's for a descriptor of
    /// something else.
    pub fn import_memory(
        &self,
        descriptor: BorrowedFd<'_>,
        bytes: u64,
    ) -> Result<MemoryId, DeviceError> {
        let inner = &self.inner;
        let caps = inner.caps.paging.ok_or(DeviceError::Unsupported(Feature::Paging))?;
        if bytes == 0 || !bytes.is_multiple_of(caps.granularity) {
            return Err(DeviceError::InvalidCall("bytes are no multiple of the granularity"));
        }
        let _entered = inner.enter()?;
        // The descriptor travels as a pointer, and the driver takes 0, which standard input has,
        // for none at all. A duplicate gets a number from 3 on.
        let raw = if descriptor.as_raw_fd() == 0 {
            let duplicate = descriptor.try_clone_to_owned();
            let duplicate =
                duplicate.map_err(|_| DeviceError::InvalidCall("no more descriptors"))?;
            inner.import(duplicate.as_raw_fd())?
        } else {
            inner.import(descriptor.as_raw_fd())?
        };
        Ok(inner.spaces.pages.adopt(inner, raw, ClassId(0), bytes))
    }
}
