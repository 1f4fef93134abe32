//! Counting what is asked of a device: shared by the model and by the wrappers.

use std::fmt;

use super::DeviceError;

macro_rules! call_kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A method of a device that a driver may have to serve.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum CallKind { $($(#[$doc])* $name,)* }

        impl CallKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The call in words, lower case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        const KINDS: usize = [$(CallKind::$name,)*].len();
    };
}

call_kinds! {
    /// [`Device::heap_use`](super::Device::heap_use)
    HeapUse = "heap use",
    /// [`Device::create_plain`](super::Device::create_plain)
    CreatePlain = "create plain",
    /// [`Device::release_plain`](super::Device::release_plain)
    ReleasePlain = "release plain",
    /// [`Device::create_stream`](super::Device::create_stream)
    CreateStream = "create stream",
    /// [`Device::retire_stream`](super::Device::retire_stream)
    RetireStream = "retire stream",
    /// [`Device::mark`](super::Device::mark)
    Mark = "mark",
    /// [`Device::reached`](super::Device::reached)
    Reached = "reached",
    /// [`Device::wait_on_stream`](super::Device::wait_on_stream)
    WaitOnStream = "wait on stream",
    /// [`Device::wait_any`](super::Device::wait_any)
    WaitAny = "wait on host",
    /// [`Device::copy`](super::Device::copy)
    Copy = "copy",
    /// [`Device::fill`](super::Device::fill)
    Fill = "fill",
    /// [`Device::write`](super::Device::write)
    Write = "write",
    /// [`Device::read`](super::Device::read)
    Read = "read",
    /// [`Device::take_read`](super::Device::take_read)
    TakeRead = "take read",
    /// [`Device::copy_timed`](super::Device::copy_timed)
    CopyTimed = "copy timed",
    /// [`Device::take_times`](super::Device::take_times)
    TakeTimes = "take times",
    /// [`Device::create_view`](super::Device::create_view)
    CreateView = "create view",
    /// [`Device::destroy_view`](super::Device::destroy_view)
    DestroyView = "destroy view",
    /// [`Paging::reserve`](super::Paging::reserve)
    Reserve = "reserve",
    /// [`Paging::unreserve`](super::Paging::unreserve)
    Unreserve = "unreserve",
    /// [`Paging::create`](super::Paging::create)
    CreateMemory = "create memory",
    /// [`Paging::release`](super::Paging::release)
    ReleaseMemory = "release memory",
    /// [`Paging::map`](super::Paging::map)
    Map = "map",
    /// [`Paging::unmap`](super::Paging::unmap)
    Unmap = "unmap",
    /// [`Compute::load`](super::Compute::load) and `load_unchecked`
    Load = "load kernel",
    /// [`Compute::unload`](super::Compute::unload)
    Unload = "unload kernel",
    /// [`Compute::dispatch`](super::Compute::dispatch)
    Dispatch = "dispatch",
    /// [`Compute::fill_pattern`](super::Compute::fill_pattern)
    FillPattern = "fill pattern",
    /// [`Compute::verify`](super::Compute::verify)
    Verify = "verify",
    /// [`Compute::checksum`](super::Compute::checksum)
    Checksum = "checksum",
    /// [`Compute::take_report`](super::Compute::take_report)
    TakeReport = "take report",
    /// [`Compute::gather`](super::Compute::gather)
    Gather = "gather",
    /// [`Compute::gather_within`](super::Compute::gather_within)
    GatherWithin = "gather within",
    /// [`HostAccess::view`](super::HostAccess::view)
    HostView = "host view",
    /// [`HostAccess::pointer`](super::HostAccess::pointer)
    HostPointer = "host pointer",
    /// [`HostAccess::flush`](super::HostAccess::flush)
    Flush = "flush",
    /// [`HostAccess::invalidate`](super::HostAccess::invalidate)
    Invalidate = "invalidate",
}

impl CallKind {
    /// Whether the call gives memory or mappings back to the driver.
    pub const fn gives_back(self) -> bool {
        matches!(self, Self::ReleasePlain | Self::Unreserve | Self::ReleaseMemory | Self::Unmap)
    }

    /// Whether the call gets memory, addresses or mappings from the driver.
    pub const fn gets(self) -> bool {
        matches!(self, Self::CreatePlain | Self::Reserve | Self::CreateMemory | Self::Map)
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What calls of one kind added up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Calls that were answered with an error.
    pub failed: u64,
    /// Mappings, copies or regions of all calls; 1 for a call that has no list.
    pub items: u64,
    /// Bytes of all successful calls.
    pub bytes: u64,
    /// Nanoseconds of all calls.
    pub total_ns: u64,
    /// Nanoseconds of the longest call.
    pub longest_ns: u64,
}

/// One call, as the log keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was called.
    pub kind: CallKind,
    /// The device's clock when it returned.
    pub at_ns: u64,
    /// How long it took.
    pub ns: u64,
    /// Mappings, copies or regions; 1 where there is no list.
    pub items: u64,
    /// Bytes that the call was about, 0 if none.
    pub bytes: u64,
    /// The error, if it failed.
    pub error: Option<DeviceError>,
}

/// Statistics of every kind, with the first calls themselves where a log is kept.
#[derive(Clone, Debug)]
pub struct CallTable {
    stats: [CallStats; KINDS],
    log: Vec<Call>,
    log_max: usize,
}

impl CallTable {
    /// No calls yet; keeps at most `log_max` of them in the log (0: none), and counts all.
    pub const fn new(log_max: usize) -> Self {
        const NONE: CallStats =
            CallStats { calls: 0, failed: 0, items: 0, bytes: 0, total_ns: 0, longest_ns: 0 };
        Self { stats: [NONE; KINDS], log: Vec::new(), log_max }
    }

    /// The figures of one kind.
    pub fn of(&self, kind: CallKind) -> CallStats {
        self.stats[kind as usize]
    }

    /// Calls of all kinds that `which` chooses.
    pub fn count(&self, which: impl Fn(CallKind) -> bool) -> u64 {
        CallKind::ALL.iter().filter(|kind| which(**kind)).map(|kind| self.of(*kind).calls).sum()
    }

    /// Nanoseconds of all calls of the kinds that `which` chooses.
    pub fn total_ns(&self, which: impl Fn(CallKind) -> bool) -> u64 {
        CallKind::ALL.iter().filter(|kind| which(**kind)).map(|kind| self.of(*kind).total_ns).sum()
    }

    /// The logged calls, oldest first.
    pub fn log(&self) -> &[Call] {
        &self.log
    }

    /// Counts a call.
    pub fn record(&mut self, call: Call) {
        let stats = &mut self.stats[call.kind as usize];
        stats.calls += 1;
        stats.total_ns = stats.total_ns.saturating_add(call.ns);
        stats.longest_ns = stats.longest_ns.max(call.ns);
        stats.items = stats.items.saturating_add(call.items);
        match call.error {
            None => stats.bytes = stats.bytes.saturating_add(call.bytes),
            Some(_) => stats.failed += 1,
        }
        if self.log.len() < self.log_max {
            self.log.push(call);
        }
    }

    /// Forgets everything; the log goes on with the same size.
    pub fn clear(&mut self) {
        *self = Self::new(self.log_max);
    }
}

impl Default for CallTable {
    fn default() -> Self {
        Self::new(0)
    }
}

/// One line per kind that was called: calls, failures, items, total and longest time.
impl fmt::Display for CallTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16} {:>10} {:>8} {:>10} {:>14} {:>14}",
            "call", "calls", "failed", "items", "total us", "longest us"
        )?;
        for &kind in CallKind::ALL {
            let stats = self.of(kind);
            if stats.calls > 0 {
                writeln!(
                    f,
                    "{kind:<16} {:>10} {:>8} {:>10} {:>14.3} {:>14.3}",
                    stats.calls,
                    stats.failed,
                    stats.items,
                    stats.total_ns as f64 / 1e3,
                    stats.longest_ns as f64 / 1e3
                )?;
            }
        }
        Ok(())
    }
}
