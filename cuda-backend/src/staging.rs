//! Memory of the backend's own: page-locked buffers that host bytes travel through, and scratch
//! memory on the device for the built-in kernels' tables. Reused, since making it is slow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ptr;
use std::sync::Mutex;

use terrane_core::device::{DeviceError, Place, StreamId, SyncPoint, Ticket};

use crate::driver::Driver;
use crate::inner::{Inner, lock};
use crate::stream::Stream;

/// The smallest buffer, in bytes.
const MIN_BYTES: u64 = 64 << 10;
/// Up to this many bytes sizes are powers of two, so that buffers fit each other's requests.
const POOLED_BYTES: u64 = 32 << 20;
/// Buffers above [`POOLED_BYTES`] are multiples of this, and go back to the driver soon.
const LARGE_STEP: u64 = 4 << 20;
/// How many waiting buffers of a size are asked whether they are free.
const ASKED: usize = 4;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Page-locked host memory, which host and device see under one address.
    Pinned,
    /// The device's own.
    Device,
}

/// A buffer in use.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) address: u64,
    bytes: u64,
    home: Home,
}

/// What a ticket stands for.
pub(crate) struct Waiting {
    pub(crate) buffer: Buffer,
    /// Where in the buffer the result starts.
    pub(crate) offset: u64,
    /// Bytes of the result.
    pub(crate) bytes: u64,
    pub(crate) kind: TicketKind,
    pub(crate) point: SyncPoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketKind {
    Read,
    Report,
}

/// Buffers of one size that wait for the work that used them, oldest first.
type Queue = VecDeque<(Buffer, SyncPoint)>;

#[derive(Default)]
pub(crate) struct Staging {
    pinned: Mutex<BTreeMap<u64, Queue>>,
    device: Mutex<BTreeMap<u64, Queue>>,
    tickets: Mutex<HashMap<u64, Waiting>>,
}

fn rounded(bytes: u64) -> Option<u64> {
    match bytes {
        0..=POOLED_BYTES => Some(bytes.next_power_of_two().max(MIN_BYTES)),
        _ => bytes.checked_next_multiple_of(LARGE_STEP),
    }
}

fn free(driver: &dyn Driver, buffer: &Buffer) {
    // A buffer that can not be given back is lost with the context; the caller's work is done.
    let _ = match buffer.home {
        Home::Pinned => driver.host_free(buffer.address),
        Home::Device => driver.free(buffer.address),
    };
}

impl Staging {
    fn queues(&self, home: Home) -> &Mutex<BTreeMap<u64, Queue>> {
        match home {
            Home::Pinned => &self.pinned,
            Home::Device => &self.device,
        }
    }

    /// Puts a buffer back, free once `point` is reached.
    pub(crate) fn put(&self, buffer: Buffer, point: SyncPoint) {
        let mut queues = lock(self.queues(buffer.home));
        queues.entry(buffer.bytes).or_default().push_back((buffer, point));
    }

    pub(crate) fn add_ticket(&self, id: u64, waiting: Waiting) {
        lock(&self.tickets).insert(id, waiting);
    }

    /// Frees everything. Pre: entered, and no work runs.
    pub(crate) fn clear(&self, driver: &dyn Driver) {
        for home in [Home::Pinned, Home::Device] {
            for (_, mut queue) in std::mem::take(&mut *lock(self.queues(home))) {
                queue.drain(..).for_each(|(buffer, _)| free(driver, &buffer));
            }
        }
        for (_, waiting) in lock(&self.tickets).drain() {
            free(driver, &waiting.buffer);
        }
    }
}

/// A point that is reached: for buffers that no work uses.
pub(crate) const NEVER_USED: SyncPoint = SyncPoint { stream: StreamId(0), value: 0 };

impl Inner {
    /// A buffer of at least `bytes`. Pre: entered, with no stream's lock held.
    pub(crate) fn take_buffer(&self, home: Home, bytes: u64) -> Result<Buffer, DeviceError> {
        let short = DeviceError::OutOfMemory { bytes };
        let bytes = rounded(bytes).ok_or(short)?;
        if let Some(buffer) = self.reuse(home, bytes) {
            return Ok(buffer);
        }
        self.free_large(home);
        let address = match home {
            Home::Pinned => self.driver.host_alloc(bytes),
            Home::Device => self.driver.alloc(bytes),
        };
        let address = address.map_err(|fault| self.fail_memory(fault, bytes))?;
        Ok(Buffer { address, bytes, home })
    }

    fn is_free(&self, point: SyncPoint) -> bool {
        self.is_reached(point).unwrap_or(false)
    }

    fn reuse(&self, home: Home, bytes: u64) -> Option<Buffer> {
        let mut queues = lock(self.staging.queues(home));
        let queue = queues.get_mut(&bytes)?;
        let at = queue.iter().take(ASKED).position(|(_, point)| self.is_free(*point))?;
        queue.remove(at).map(|(buffer, _)| buffer)
    }

    fn free_large(&self, home: Home) {
        let mut queues = lock(self.staging.queues(home));
        for (_, queue) in queues.range_mut(POOLED_BYTES + 1..) {
            queue.retain(|(buffer, point)| {
                let keep = !self.is_free(*point);
                if !keep {
                    free(self.driver.as_ref(), buffer);
                }
                keep
            });
        }
        queues.retain(|_, queue| !queue.is_empty());
    }

    /// Answers `Capturing` for a stream in a capture: a graph would use the buffer at every
    /// replay, long after it went to somebody else.
    pub(crate) fn not_captured(&self, stream: &Stream) -> Result<(), DeviceError> {
        match stream.capture_state(self).map_err(|fault| self.fail(fault))? {
            crate::driver::CaptureState::None => Ok(()),
            crate::driver::CaptureState::Active(_) => Err(DeviceError::Capturing),
        }
    }

    pub(crate) fn write(
        &self,
        stream: StreamId,
        place: Place,
        data: &[u8],
    ) -> Result<SyncPoint, DeviceError> {
        let stream = self.streams.get(stream)?;
        let _entered = self.enter()?;
        self.not_captured(&stream)?;
        let to = self.spaces.address(place, data.len() as u64)?;
        if data.is_empty() {
            return stream.submit(|_| Ok(()));
        }
        let buffer = self.take_buffer(Home::Pinned, data.len() as u64)?;
        store(&buffer, data);
        let from = buffer.address;
        let submitted = stream.submit(|raw| {
            let copied = self.driver.copy(to, from, data.len() as u64, raw);
            copied.map_err(|fault| self.fail(fault))
        });
        self.staging.put(buffer, submitted.unwrap_or(NEVER_USED));
        submitted
    }

    pub(crate) fn read(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
    ) -> Result<Ticket, DeviceError> {
        let stream = self.streams.get(stream)?;
        let _entered = self.enter()?;
        self.not_captured(&stream)?;
        let from = self.spaces.address(place, bytes)?;
        let buffer = self.take_buffer(Home::Pinned, bytes)?;
        let submitted = stream.submit(|raw| {
            if bytes == 0 {
                return Ok(());
            }
            self.driver.copy(buffer.address, from, bytes, raw).map_err(|fault| self.fail(fault))
        });
        match submitted {
            Ok(point) => {
                let waiting = Waiting { buffer, offset: 0, bytes, kind: TicketKind::Read, point };
                Ok(self.ticket(waiting))
            }
            Err(error) => {
                self.staging.put(buffer, NEVER_USED);
                Err(error)
            }
        }
    }

    pub(crate) fn ticket(&self, waiting: Waiting) -> Ticket {
        let (id, point) = (self.next_id(), waiting.point);
        self.staging.add_ticket(id, waiting);
        Ticket { id, point }
    }

    /// The bytes that a ticket stands for, once its point is reached.
    pub(crate) fn take_ticket(
        &self,
        ticket: Ticket,
        kind: TicketKind,
    ) -> Result<Vec<u8>, DeviceError> {
        let unknown = DeviceError::InvalidCall("no such ticket, or it was taken");
        let point = match lock(&self.staging.tickets).get(&ticket.id) {
            Some(waiting) if waiting.kind == kind => waiting.point,
            _ => return Err(unknown),
        };
        let _entered = self.enter()?;
        if !self.is_reached(point)? {
            return Err(DeviceError::InvalidCall("the ticket's point is not reached"));
        }
        let waiting = lock(&self.staging.tickets).remove(&ticket.id).ok_or(unknown)?;
        let bytes = fetch(&waiting.buffer, waiting.offset, waiting.bytes);
        self.staging.put(waiting.buffer, NEVER_USED);
        Ok(bytes)
    }
}

/// Copies host bytes to the start of a pinned buffer that no work uses.
pub(crate) fn store(buffer: &Buffer, data: &[u8]) {
    debug_assert!(buffer.home == Home::Pinned && data.len() as u64 <= buffer.bytes);
    let to = ptr::with_exposed_provenance_mut::<u8>(buffer.address as usize);
    // SAFETY: the buffer is at least as long as the data, page-locked host memory of this
    // process, and its one owner here is no submitted work: `take_buffer` waited for the last.
    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
}

/// Copies bytes out of a pinned buffer whose work is done.
fn fetch(buffer: &Buffer, offset: u64, bytes: u64) -> Vec<u8> {
    debug_assert!(buffer.home == Home::Pinned && offset + bytes <= buffer.bytes);
    let length = bytes as usize;
    let mut out = Vec::with_capacity(length);
    let from = ptr::with_exposed_provenance::<u8>((buffer.address + offset) as usize);
    // SAFETY: the range lies in the buffer, whose work is done, so the device writes it no more;
    // the vector has the capacity, and all of its bytes are written before its length is set.
    unsafe {
        ptr::copy_nonoverlapping(from, out.as_mut_ptr(), length);
        out.set_len(length);
    }
    out
}
