//! Blocks named by their device address: for frameworks and C interfaces that keep pointers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::error::{DeviceError, Error, Feature};
use crate::point::{Points, StreamId, SyncPoint};
use crate::request::Request;

use super::{Allocator, Handle};

/// An allocator whose blocks are named by address, with the rules of PyTorch's caching allocator:
///
/// - A block may be used on its stream as soon as it is handed out, without a word more: what it
///   has to wait for was put into that stream.
/// - After a free, its memory serves the same stream at once.
/// - Work on other streams is made known by [`record_stream`](Self::record_stream); a free then
///   waits for all that those streams have been given *by the time of the free*.
///
/// Such blocks are never moved. Cloning gives another name of the same table.
#[derive(Clone, Debug)]
pub struct Raw {
    alloc: Allocator,
    table: Arc<Mutex<FxHashMap<u64, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    handle: Handle,
    stream: StreamId,
    /// Other streams that use the block, each with what it had been given when it was recorded.
    guests: Vec<SyncPoint>,
}

impl Allocator {
    /// The allocator by addresses; each call makes a table of its own.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] on a device without addresses.
    pub fn raw(&self) -> Result<Raw, Error> {
        if !self.inner.caps().addresses {
            return Err(DeviceError::Unsupported(Feature::Addresses).into());
        }
        Ok(Raw { alloc: self.clone(), table: Arc::default() })
    }
}

impl Raw {
    /// The allocator behind the table.
    pub const fn allocator(&self) -> &Allocator {
        &self.alloc
    }

    /// The address of a new block of device memory for `stream`. Never 0.
    ///
    /// # Errors
    /// As [`Allocator::alloc`]; [`Error::ZeroSize`] for 0 bytes.
    #[track_caller]
    pub fn alloc(&self, bytes: u64, stream: StreamId) -> Result<u64, Error> {
        self.alloc_as(&Request::new(bytes, stream))
    }

    /// As [`alloc`](Self::alloc), for any request; it is made not to move.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[track_caller]
    pub fn alloc_as(&self, request: &Request<'_>) -> Result<u64, Error> {
        let request = request.movable(false);
        let allocation = self.alloc.alloc(&request)?;
        let handle = allocation.handle;
        let ready = self.alloc.insert_waits(request.stream, &allocation.waits);
        let address = ready.and_then(|()| self.alloc.pin(handle)?.address());
        match address {
            Ok(address) if address != 0 => {
                let entry = Entry { handle, stream: request.stream, guests: Vec::new() };
                self.lock().insert(address, entry);
                Ok(address)
            }
            refused => {
                self.alloc.free(handle)?;
                Err(refused.err().unwrap_or(DeviceError::Unsupported(Feature::Addresses).into()))
            }
        }
    }

    /// Frees a block, behind the work of all streams that were recorded for it.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] for what was not handed out here, or was freed; nothing changes.
    pub fn free(&self, address: u64) -> Result<(), Error> {
        let entry = self.lock().remove(&address).ok_or(Error::UnknownAddress { address })?;
        let device = self.alloc.device();
        // A stream that is gone keeps the point that it had: nothing came after.
        let last = |guest: &SyncPoint| device.mark(guest.stream).unwrap_or(*guest);
        let points: Points = entry.guests.iter().map(last).collect();
        self.alloc.free_after(entry.handle, &points)
    }

    /// Says that work on another stream uses the block; the block's own stream changes nothing.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`]; the device's for an unknown stream.
    pub fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), Error> {
        let point = self.alloc.device().mark(stream)?;
        let mut table = self.lock();
        let entry = table.get_mut(&address).ok_or(Error::UnknownAddress { address })?;
        if stream == entry.stream {
            return Ok(());
        }
        match entry.guests.iter_mut().find(|guest| guest.stream == stream) {
            Some(guest) => guest.value = guest.value.max(point.value),
            None => entry.guests.push(point),
        }
        Ok(())
    }

    /// The handle of a block, for everything else that the allocator can tell about it.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`].
    pub fn handle(&self, address: u64) -> Result<Handle, Error> {
        let found = self.lock().get(&address).map(|entry| entry.handle);
        found.ok_or(Error::UnknownAddress { address })
    }

    /// Blocks that are live.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no block is live.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<u64, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::sim::{Completion, Sim, SimDevice};
    use crate::device::{Device, StreamSpec};
    use crate::{Config, Limit, Wait};

    const MIB: u64 = 1 << 20;

    fn small() -> (SimDevice, Raw, [StreamId; 2]) {
        let sim = Sim::cuda().open();
        let config = Config::for_device(sim.caps()).limit(Limit::Bytes(6 * MIB));
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
        (sim, alloc.raw().unwrap(), streams)
    }

    /// Whether 5 MiB can be had on a stream without any wait.
    fn is_ready(raw: &Raw, stream: StreamId) -> bool {
        match raw.alloc_as(&Request::new(5 * MIB, stream).wait(Wait::Never)) {
            Ok(address) => raw.free(address).is_ok(),
            Err(_) => false,
        }
    }

    #[test]
    fn the_same_stream_has_the_memory_back_at_once_and_others_behind_its_work() {
        let (sim, raw, [own, other]) = small();
        let address = raw.alloc(5 * MIB, own).unwrap();
        assert!(address != 0 && raw.len() == 1);
        sim.set_completion(own, Completion::ByHand).unwrap();
        let work = sim.submit(own, 1).unwrap();
        raw.alloc.record_use_until(raw.handle(address).unwrap(), work).unwrap();
        raw.free(address).unwrap();
        assert!(!is_ready(&raw, other));
        assert_eq!(raw.alloc(5 * MIB, own), Ok(address));
        sim.complete(work);
    }

    #[test]
    fn a_free_waits_for_all_that_recorded_streams_were_given_by_then() {
        let (sim, raw, [own, other]) = small();
        let address = raw.alloc(5 * MIB, own).unwrap();
        sim.set_completion(other, Completion::ByHand).unwrap();
        let before = sim.submit(other, 1).unwrap();
        raw.record_stream(address, other).unwrap();
        raw.record_stream(address, own).unwrap();
        // After the recording and before the free: PyTorch's rule covers it too.
        let after = sim.submit(other, 1).unwrap();
        raw.free(address).unwrap();
        sim.complete(before);
        assert!(!is_ready(&raw, own), "the work after the recording is not over");
        sim.complete(after);
        assert!(is_ready(&raw, own));
    }

    #[test]
    fn what_was_never_handed_out_is_refused_and_nothing_is_ever_null() {
        let (sim, raw, [own, _]) = small();
        let unknown = |address| Err(Error::UnknownAddress { address });
        assert_eq!(raw.free(0), unknown(0));
        assert_eq!(raw.record_stream(7, own), unknown(7));
        assert_eq!(raw.alloc(0, own), Err(Error::ZeroSize));
        assert!(raw.alloc(7 * MIB, own).is_err());
        let address = raw.alloc(1, own).unwrap();
        raw.free(address).unwrap();
        assert_eq!(raw.free(address), unknown(address));
        assert!(raw.is_empty());
        raw.alloc.check().unwrap();
        let retired = sim.create_stream(StreamSpec::default()).unwrap();
        let address = raw.alloc(MIB, own).unwrap();
        raw.record_stream(address, retired).unwrap();
        sim.retire_stream(retired).unwrap();
        raw.free(address).unwrap();
    }

    #[test]
    fn a_device_without_addresses_says_so() {
        // The model of a device that can not page has none.
        let sim = Sim::slabs().open();
        let raw = Allocator::new(sim.shared()).unwrap().raw();
        assert_eq!(raw.is_ok(), sim.caps().addresses);
    }
}
