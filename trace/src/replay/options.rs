//! How a replay is to run.

use std::num::NonZeroU64;

use serde::{Serialize, Serializer};

/// When a block's memory may be used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// From the moment at which the recorded free *completed* (`f`). Nothing waits.
    #[default]
    Completed,
    /// From the moment at which the free was *requested* (`r`), behind a wait for what still uses
    /// the block. Can go below the peak requested, so it is reported apart, with its waits.
    Wait,
}

impl Policy {
    /// The policy in one word, as the command line takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Wait => "wait",
        }
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "completed" => Ok(Self::Completed),
            "wait" => Ok(Self::Wait),
            _ => Err(format!("`{text}` is no policy: say `completed` or `wait`")),
        }
    }
}

/// The most bytes of memory objects that the allocator may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Capacity {
    /// What the device gives.
    #[default]
    Device,
    /// This many bytes.
    Bytes(u64),
    /// This many times the peak of the bytes asked for.
    Times(f64),
}

impl Capacity {
    /// The limit in bytes for a workload whose peak requested is `peak`; `None` for no limit.
    pub fn bytes(self, peak: u64) -> Option<u64> {
        match self {
            Self::Device => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Times(times) => Some((peak as f64 * times).ceil() as u64),
        }
    }
}

/// Bytes (`8589934592`, `8GiB`, `900MB`) or times the peak requested (`1.05x`).
impl std::str::FromStr for Capacity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "`{text}` is no capacity: give bytes (8589934592, 8GiB, 900MB) or times the peak \
                 requested (1.05x)"
            )
        };
        if text == "device" {
            return Ok(Self::Device);
        }
        if let Some(times) = text.strip_suffix('x') {
            let times: f64 = times.parse().map_err(|_| bad())?;
            let possible = times.is_finite() && times > 0.0 && times <= 1e6;
            return if possible { Ok(Self::Times(times)) } else { Err(bad()) };
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" | "K" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            _ => return Err(bad()),
        };
        let digits = digits.trim();
        let bytes = match digits.parse::<u64>() {
            Ok(number) => number.checked_mul(unit).ok_or_else(bad)?,
            Err(_) => {
                let number: f64 = digits.parse().map_err(|_| bad())?;
                let possible = number.is_finite() && number >= 0.0 && unit > 1;
                // Beyond 2^64 the conversion stops at the largest number, which is as good.
                if possible { (number * unit as f64) as u64 } else { 0 }
            }
        };
        if bytes > 0 { Ok(Self::Bytes(bytes)) } else { Err(bad()) }
    }
}

/// The knobs of a replay. The defaults replay at full size without a limit and check contents
/// where the device can compute.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// When memory may be used again.
    pub policy: Policy,
    /// The allocator's limit.
    pub capacity: Capacity,
    /// Every size is divided by this; see [`Trace::scaled`](crate::Trace::scaled).
    pub scale: NonZeroU64,
    /// In how many blocks one byte is flipped after the block was filled. Every one of them must
    /// be reported. Needs contents.
    pub corrupt: u64,
    /// Whether blocks are filled and verified by kernels, on a device that computes.
    pub contents: bool,
    /// The allocator's own invariants are checked every so many events; `None` for never.
    pub check_every: Option<NonZeroU64>,
    /// Whether the allocator runs in guard mode; see [`terrane_core::Config`].
    pub guard: bool,
    /// Whether memory is served page by page; `None` for the device's default.
    pub paging: Option<bool>,
    /// How pages are made and stolen; `None` for the defaults.
    pub pages: Option<terrane_core::pages::Policy>,
    /// Whether the allocator is warmed by dry runs first; see [`warm`](super::warm).
    pub warm: bool,
    /// Whether the replay ends at the first request that is refused.
    pub stop_at_failure: bool,
    /// Whether [`Report::placements`](super::Report::placements) is worked out. Costs time, which
    /// counts as the allocator's.
    pub placements: bool,
    /// What is kept of the allocator's events.
    pub recorder: terrane_core::event::RecorderMode,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            capacity: Capacity::default(),
            scale: NonZeroU64::MIN,
            corrupt: 0,
            contents: true,
            check_every: None,
            guard: false,
            paging: None,
            pages: None,
            warm: false,
            stop_at_failure: false,
            placements: false,
            recorder: terrane_core::event::RecorderMode::default(),
        }
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
