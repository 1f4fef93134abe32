//! What the CPU device asks of the operating system. The only code here that knows Linux.

use std::ffi::c_void;
use std::fs;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::device::DeviceError;

fn failed(call: &'static str, error: Errno, bytes: u64) -> DeviceError {
    match error {
        Errno::NOMEM => DeviceError::OutOfMemory { bytes },
        other => DeviceError::Driver { call, code: other.raw_os_error() },
    }
}

/// Bytes of a page of the operating system.
pub(super) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A range of addresses that belongs to us alone. Unmapped when dropped.
pub(super) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is only an address range and the duty to unmap it; access goes through
// `Span`, which has rules of its own.
unsafe impl Send for Region {}
// SAFETY: as above; no method gives access to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory, backed as it is touched.
    pub(super) fn memory(bytes: u64) -> Result<Self, DeviceError> {
        let region = Self::map(bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        if bytes >= 2 << 20 {
            // SAFETY: the range is ours, and large pages change nothing that can be seen.
            let _ = unsafe { madvise(region.start(), region.bytes, Advice::LinuxHugepage) };
        }
        Ok(region)
    }

    /// Addresses with nothing behind them, the first a multiple of `align`, a power of two. Both
    /// are multiples of the system's pages.
    pub(super) fn reserved(bytes: u64, align: u64) -> Result<Self, DeviceError> {
        let refused = DeviceError::OutOfAddressSpace { bytes };
        let more = bytes.checked_add(align).ok_or(refused)?;
        // The system says so by ENOMEM, valgrind by EINVAL.
        let invalid = Errno::INVAL.raw_os_error();
        let mut region = Self::map(more, ProtFlags::empty()).map_err(|error| match error {
            DeviceError::OutOfMemory { .. } => refused,
            DeviceError::Driver { code, .. } if code == invalid => refused,
            other => other,
        })?;
        let first = region.base.as_ptr().addr() as u64;
        region.keep((first.next_multiple_of(align) - first) as usize, bytes as usize);
        Ok(region)
    }

    /// Gives the addresses back that lie before the first `skip` bytes and behind `bytes` more.
    fn keep(&mut self, skip: usize, bytes: usize) {
        let rest = self.bytes - skip - bytes;
        // SAFETY: all three parts lie inside the region, which is ours; nobody has used it yet.
        unsafe {
            if skip > 0 {
                let _ = munmap(self.start(), skip);
            }
            self.base = self.base.add(skip);
            if rest > 0 {
                let _ = munmap(self.base.add(bytes).as_ptr().cast(), rest);
            }
        }
        self.bytes = bytes;
    }

    fn map(bytes: u64, prot: ProtFlags) -> Result<Self, DeviceError> {
        let len = usize::try_from(bytes).map_err(|_| DeviceError::OutOfAddressSpace { bytes })?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses a range that nobody uses.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, flags) }
            .map_err(|error| failed("mmap", error, bytes))?;
        let base = NonNull::new(base.cast()).ok_or(DeviceError::OutOfAddressSpace { bytes })?;
        Ok(Self { base, bytes: len })
    }

    fn start(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }

    /// The first address.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The address of a range, if the range is inside.
    fn at(&self, offset: u64, bytes: u64) -> Result<(*mut c_void, usize), DeviceError> {
        if !crate::device::rules::inside(offset, bytes, self.bytes as u64) {
            return Err(DeviceError::InvalidCall("a range lies outside its space"));
        }
        Ok((self.base.as_ptr().wrapping_add(offset as usize).cast(), bytes as usize))
    }

    /// Lets a range of the file appear at `offset`, in place of what is there.
    ///
    /// # Safety
    /// Nobody accesses the range of addresses during the call or expects its old contents.
    pub(super) unsafe fn map_file(
        &self,
        offset: u64,
        file: &PageFile,
        file_offset: u64,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let (at, len) = self.at(offset, bytes)?;
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range lies inside this region, which is ours, and by this function's
        // contract nobody uses it.
        unsafe { mmap(at, len, prot, flags, &file.fd, file_offset) }
            .map(drop)
            .map_err(|error| failed("mmap", error, bytes))
    }

    /// Takes away what is behind a range; its addresses stay ours.
    ///
    /// # Safety
    /// Nobody accesses the range during the call or later, until something is mapped there.
    pub(super) unsafe fn clear(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let (at, len) = self.at(offset, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range lies inside this region, which is ours, and by this function's
        // contract nobody uses it.
        unsafe { mmap_anonymous(at, len, ProtFlags::empty(), flags) }
            .map(drop)
            .map_err(|error| failed("mmap", error, bytes))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap and is unmapped once; `Span`s into it are gone by the
        // rule of `Span::new`.
        let _ = unsafe { munmap(self.start(), self.bytes) };
    }
}

/// The file without a name that pages are mapped from. A range of it is given out once.
pub(super) struct PageFile {
    fd: OwnedFd,
    bytes: u64,
}

impl PageFile {
    pub(super) fn new() -> Result<Self, DeviceError> {
        let fd = memfd_create(c"terrane pages", MemfdFlags::CLOEXEC)
            .map_err(|error| failed("memfd_create", error, 0))?;
        Ok(Self { fd, bytes: 0 })
    }

    /// A new range at the end; returns where it starts.
    pub(super) fn extend(&mut self, bytes: u64) -> Result<u64, DeviceError> {
        let start = self.bytes;
        let end = start.checked_add(bytes).ok_or(DeviceError::OutOfMemory { bytes })?;
        ftruncate(&self.fd, end).map_err(|error| failed("ftruncate", error, bytes))?;
        self.bytes = end;
        Ok(start)
    }

    /// Gives the memory behind a range back.
    pub(super) fn punch(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.fd, hole, offset, bytes).map_err(|error| failed("fallocate", error, bytes))
    }
}

/// Tells whether this process is still the one that made it, without a system call: a child
/// finds the page zeroed.
pub(super) struct Birth {
    page: Region,
}

impl Birth {
    pub(super) fn new() -> Result<Self, DeviceError> {
        let page = Region::memory(page_bytes())?;
        // SAFETY: the range is ours and holds nothing that a child needs.
        unsafe { madvise(page.start(), page.bytes, Advice::LinuxWipeOnFork) }
            .map_err(|error| failed("madvise", error, 0))?;
        let birth = Self { page };
        birth.flag().store(true, Ordering::Relaxed);
        Ok(birth)
    }

    fn flag(&self) -> &AtomicBool {
        // SAFETY: the page is mapped readable and writable while `self` lives, holds 0 or 1 in
        // its first byte, and is accessed by nothing but this flag.
        unsafe { AtomicBool::from_ptr(self.page.base.as_ptr().cast()) }
    }

    /// Whether the process was not forked since.
    pub(super) fn same_process(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }
}

/// Mappings that a process may have: `vm.max_map_count`.
pub(super) fn max_map_count() -> u64 {
    number("/proc/sys/vm/max_map_count").unwrap_or(65_530)
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Bytes of memory that this process can still get: what the machine has available, and what
/// its control groups allow beyond what they use.
pub(super) fn available_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let allowed = groups.lines().filter_map(group_allowance).min();
    machine.unwrap_or(u64::MAX).min(allowed.unwrap_or(u64::MAX))
}

/// What the control group of one line of /proc/self/cgroup allows, with those above it.
fn group_allowance(line: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (root, limit, used) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max", "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    // In a container the path can be one of the host's; then only the root is seen.
    let mut path = path.trim_end_matches('/');
    let mut least = None;
    loop {
        let group = format!("{root}{path}");
        if let Some(limit) = number(&format!("{group}/{limit}")) {
            let used = number(&format!("{group}/{used}")).unwrap_or(0);
            let left = limit.saturating_sub(used);
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        match path.rfind('/') {
            Some(parent) => path = &path[..parent],
            None => return least,
        }
    }
}

/// The processor's name and the kernel's version.
pub(super) fn names() -> (String, String) {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = model.map_or("processor", |(_, name)| name.trim());
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    (name.to_owned(), format!("Linux {}", release.trim()))
}
