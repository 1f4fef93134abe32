//! Bytes, alignments and checked rounding.
//!
//! Sizes and offsets are plain `u64` numbers of bytes everywhere; this module holds the few
//! operations on them that can go wrong, so that none of them is written twice.

use std::fmt;
use std::num::NonZeroU64;

/// 1,024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1,024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1,024 MiB.
pub const GIB: u64 = 1 << 30;

/// An alignment in bytes: always a power of two, so never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Align(NonZeroU64);

impl Align {
    /// No constraint.
    pub const ONE: Self = Self(NonZeroU64::MIN);

    /// `bytes` as an alignment, or `None` unless it is a power of two.
    pub const fn new(bytes: u64) -> Option<Self> {
        match NonZeroU64::new(bytes) {
            Some(b) if bytes.is_power_of_two() => Some(Self(b)),
            _ => None,
        }
    }

    /// The alignment in bytes.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The larger of two alignments, which satisfies both.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if self >= other { self } else { other }
    }

    /// Whether `offset` is a multiple of this alignment.
    pub const fn divides(self, offset: u64) -> bool {
        offset & (self.get() - 1) == 0
    }

    /// The largest multiple not above `offset`.
    pub const fn round_down(self, offset: u64) -> u64 {
        offset & !(self.get() - 1)
    }

    /// The smallest multiple not below `offset`; `None` if it does not fit in 64 bits.
    pub const fn round_up(self, offset: u64) -> Option<u64> {
        match offset.checked_add(self.get() - 1) {
            Some(sum) => Some(self.round_down(sum)),
            None => None,
        }
    }

    /// Bytes from `offset` to the next multiple: 0 to `get() - 1`.
    pub const fn padding(self, offset: u64) -> u64 {
        offset.wrapping_neg() & (self.get() - 1)
    }
}

impl Default for Align {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Debug for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Align({})", self.get())
    }
}

impl fmt::Display for Align {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Bytes(self.get()), f)
    }
}

/// A number of bytes as people write it: `1.5 GiB`, `512 B`.
///
/// Parsing takes a plain number or one with a unit (`B`, `KiB`, `MiB`, `GiB`, `TiB`, and `kB`,
/// `MB`, `GB`, `TB` for powers of 1,000; a bare `K`, `M`, `G`, `T` means the power of 1,024),
/// with or without a space, and a decimal fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut unit = 0;
        let mut value = self.0 as f64;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = if unit == 0 || value.fract() == 0.0 {
            format!("{value:.0} {}", UNITS[unit])
        } else {
            format!("{value:.2} {}", UNITS[unit])
        };
        f.pad(&text)
    }
}

/// Why a text is no number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// There is no number at the start.
    #[error("expected a number of bytes such as 512, 64KiB or 1.5GiB")]
    NoNumber,
    /// What follows the number is no known unit.
    #[error("unknown unit: use B, KiB, MiB, GiB, TiB, or kB, MB, GB, TB")]
    UnknownUnit,
    /// The value does not fit in 64 bits.
    #[error("too large: at most 16 EiB - 1")]
    TooLarge,
}

impl std::str::FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "K" | "KiB" => KIB,
            "M" | "MiB" => MIB,
            "G" | "GiB" => GIB,
            "T" | "TiB" => 1 << 40,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => return Err(ParseBytesError::UnknownUnit),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or(ParseBytesError::TooLarge);
        }
        let value: f64 = number.parse().map_err(|_| ParseBytesError::NoNumber)?;
        let bytes = value * factor as f64;
        // 2^64 as a float: anything below it converts without saturating.
        if bytes < 18_446_744_073_709_551_616.0 {
            Ok(Self(bytes as u64))
        } else {
            Err(ParseBytesError::TooLarge)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_exact_at_the_edges() {
        let align = Align::new(256).unwrap();
        assert_eq!(align.round_up(0), Some(0));
        assert_eq!(align.round_up(1), Some(256));
        assert_eq!(align.round_up(256), Some(256));
        assert_eq!(align.round_up(u64::MAX), None);
        assert_eq!(align.round_down(511), 256);
        assert_eq!(align.padding(1), 255);
        assert_eq!(align.padding(512), 0);
    }

    #[test]
    fn only_powers_of_two_are_alignments() {
        assert_eq!(Align::new(0), None);
        assert_eq!(Align::new(3), None);
        assert_eq!(Align::new(1), Some(Align::ONE));
        assert!(Align::new(1 << 63).is_some());
    }

    #[test]
    fn bytes_read_back_what_people_write() {
        for (text, bytes) in
            [("512", 512), ("64KiB", 65_536), ("1.5 GiB", 3 << 29), ("2 GB", 2e9 as u64)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!("x".parse::<Bytes>(), Err(ParseBytesError::UnknownUnit));
        assert_eq!("".parse::<Bytes>(), Err(ParseBytesError::NoNumber));
        assert_eq!("99999999TiB".parse::<Bytes>(), Err(ParseBytesError::TooLarge));
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
        assert_eq!(Bytes(512).to_string(), "512 B");
    }
}
