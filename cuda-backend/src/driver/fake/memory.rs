//! The software driver's memory: vectors for the device's, real pages for the host's.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ptr;

use super::PAGE;
use crate::driver::{Dev, code};

/// Device addresses start here, far from what the host uses.
const DEVICE_BASE: u64 = 0x7F00_0000_0000_0000;

pub(crate) struct Memory {
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    plain: BTreeMap<u64, Vec<u8>>,
    host: BTreeMap<u64, Layout>,
    reservations: BTreeMap<u64, u64>,
    objects: HashMap<u64, Object>,
    /// By address: bytes, object, and the devices that have access.
    mappings: BTreeMap<u64, (u64, u64, Vec<Dev>)>,
    pub(crate) exported: HashMap<i32, u64>,
    pub(crate) asked_to_import: Vec<i32>,
    next: u64,
}

struct Object {
    bytes: Vec<u8>,
    references: u32,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            capacity: 64 << 20,
            used: 0,
            plain: BTreeMap::new(),
            host: BTreeMap::new(),
            reservations: BTreeMap::new(),
            objects: HashMap::new(),
            mappings: BTreeMap::new(),
            exported: HashMap::new(),
            asked_to_import: Vec::new(),
            next: DEVICE_BASE,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (address, layout) in std::mem::take(&mut self.host) {
            // SAFETY: from `host_alloc` with this layout, and freed once.
            unsafe { dealloc(host(address), layout) };
        }
    }
}

fn host(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(address as usize)
}

impl Memory {
    /// Objects of every kind that are still there, for tests of leaks.
    pub(crate) fn leftovers(&self) -> usize {
        self.plain.len()
            + self.host.len()
            + self.reservations.len()
            + self.objects.len()
            + self.mappings.len()
    }

    pub(crate) fn mapped(&self) -> usize {
        self.mappings.len()
    }

    pub(crate) fn access_of(&self, address: u64) -> Vec<Dev> {
        self.mappings.get(&address).map(|(_, _, devices)| devices.clone()).unwrap_or_default()
    }

    fn addresses(&mut self, bytes: u64) -> u64 {
        let at = self.next;
        self.next += bytes.next_multiple_of(PAGE) + PAGE;
        at
    }

    fn take(&mut self, bytes: u64) -> Result<(), i32> {
        if bytes > self.capacity - self.used {
            return Err(code::OUT_OF_MEMORY);
        }
        self.used += bytes;
        Ok(())
    }

    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<u64, i32> {
        self.take(bytes)?;
        let at = self.addresses(bytes);
        self.plain.insert(at, vec![0xA5; bytes as usize]);
        Ok(at)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), i32> {
        if self.host.contains_key(&address) {
            return self.host_free(address);
        }
        let gone = self.plain.remove(&address).ok_or(code::INVALID_VALUE)?;
        self.used -= gone.len() as u64;
        Ok(())
    }

    pub(crate) fn host_alloc(&mut self, bytes: u64) -> u64 {
        let layout = Layout::from_size_align(bytes as usize, 4096).unwrap();
        // SAFETY: the layout's size is not 0: the crate never asks for 0 bytes.
        let memory = unsafe { alloc_zeroed(layout) };
        let address = memory.expose_provenance() as u64;
        self.host.insert(address, layout);
        address
    }

    pub(crate) fn host_free(&mut self, address: u64) -> Result<(), i32> {
        let layout = self.host.remove(&address).ok_or(code::INVALID_VALUE)?;
        // SAFETY: from `host_alloc` with this layout, and freed once.
        unsafe { dealloc(host(address), layout) };
        Ok(())
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> u64 {
        let at = self.addresses(bytes);
        self.reservations.insert(at, bytes);
        at
    }

    pub(crate) fn unreserve(&mut self, address: u64, bytes: u64) -> Result<(), i32> {
        let mapped = self.mappings.range(address..address + bytes).next().is_some();
        if mapped || self.reservations.get(&address) != Some(&bytes) {
            return Err(code::INVALID_VALUE);
        }
        self.reservations.remove(&address);
        Ok(())
    }

    pub(crate) fn create(&mut self, bytes: u64) -> Result<u64, i32> {
        self.take(bytes)?;
        let id = self.addresses(0);
        self.objects.insert(id, Object { bytes: vec![0xA5; bytes as usize], references: 1 });
        Ok(id)
    }

    pub(crate) fn import(&mut self, descriptor: i32) -> Result<u64, i32> {
        self.asked_to_import.push(descriptor);
        let id = *self.exported.get(&descriptor).ok_or(code::INVALID_VALUE)?;
        self.objects.get_mut(&id).ok_or(code::INVALID_HANDLE)?.references += 1;
        Ok(id)
    }

    /// The real driver keeps an object while it is mapped; so does this one.
    pub(crate) fn release(&mut self, id: u64) -> Result<(), i32> {
        let object = self.objects.get_mut(&id).ok_or(code::INVALID_VALUE)?;
        object.references -= 1;
        if object.references == 0 {
            self.used -= object.bytes.len() as u64;
            self.objects.remove(&id);
        }
        Ok(())
    }

    pub(crate) fn map(&mut self, address: u64, bytes: u64, id: u64) -> Result<(), i32> {
        let object = self.objects.get_mut(&id).ok_or(code::INVALID_VALUE)?;
        let reserved = self.reservations.range(..=address).next_back();
        let inside = reserved.is_some_and(|(at, size)| address + bytes <= at + size);
        let below = self.mappings.range(..address + bytes).next_back();
        let free = below.is_none_or(|(at, (size, _, _))| at + size <= address);
        let whole = object.bytes.len() as u64 == bytes;
        if !(inside && free && whole && address.is_multiple_of(PAGE)) {
            return Err(code::INVALID_VALUE);
        }
        object.references += 1;
        self.mappings.insert(address, (bytes, id, Vec::new()));
        Ok(())
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), i32> {
        match self.mappings.get(&address) {
            Some(&(size, id, _)) if size == bytes => {
                self.mappings.remove(&address);
                self.release(id)
            }
            _ => Err(code::INVALID_VALUE),
        }
    }

    pub(crate) fn set_access(&mut self, at: u64, bytes: u64, devices: &[Dev]) -> Result<(), i32> {
        match self.mappings.get_mut(&at) {
            Some((size, _, access)) if *size == bytes => {
                *access = devices.to_vec();
                Ok(())
            }
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// The memory that starts at an address, to the end of its object, as far as it goes.
    fn piece(&mut self, address: u64) -> Option<&mut [u8]> {
        if let Some((&at, layout)) = self.host.range(..=address).next_back() {
            let offset = (address - at) as usize;
            if offset < layout.size() {
                let rest = layout.size() - offset;
                // SAFETY: inside an allocation of `host_alloc` that is alive; the tests run one
                // thing at a time, so nobody else touches it now.
                return Some(unsafe { std::slice::from_raw_parts_mut(host(address), rest) });
            }
        }
        if let Some((&at, &mut (size, id, ref devices))) =
            self.mappings.range_mut(..=address).next_back()
            && address < at + size
        {
            if devices.is_empty() {
                return None;
            }
            return self.objects.get_mut(&id)?.bytes.get_mut((address - at) as usize..);
        }
        let (&at, bytes) = self.plain.range_mut(..=address).next_back()?;
        bytes.get_mut((address - at) as usize..).filter(|rest| !rest.is_empty())
    }

    /// Reads as the device would: code 700 where nothing accessible is mapped.
    pub(crate) fn load(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>, i32> {
        let mut out = Vec::with_capacity(bytes as usize);
        while (out.len() as u64) < bytes {
            let at = address + out.len() as u64;
            let left = bytes as usize - out.len();
            let piece = self.piece(at).ok_or(code::ILLEGAL_ADDRESS)?;
            let length = piece.len().min(left);
            out.extend_from_slice(&piece[..length]);
        }
        Ok(out)
    }

    /// Writes as the device would.
    pub(crate) fn store(&mut self, address: u64, data: &[u8]) -> Result<(), i32> {
        let mut done = 0;
        while done < data.len() {
            let piece = self.piece(address + done as u64).ok_or(code::ILLEGAL_ADDRESS)?;
            let length = piece.len().min(data.len() - done);
            piece[..length].copy_from_slice(&data[done..done + length]);
            done += length;
        }
        Ok(())
    }
}
