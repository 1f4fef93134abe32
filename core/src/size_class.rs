//! Rounding of requested sizes, and classes of size for statistics.
//!
//! The offset index packs blocks byte by byte, so rounding is no matter of its structure: it only
//! decides how often two sizes are alike. [`allocated`] rounds up to a multiple of a step:
//!
//! | requested | step | at most added |
//! |---|---|---|
//! | up to 256 KiB | 256 B | 255 B |
//! | above 2^n, up to 2^(n+1) | 2^n / 1,024 | less than 1/1,024 (0.1 %) |
//! | above 4 GiB | 2 MiB | less than 2 MiB |
//!
//! 256 B is the largest alignment that common bindings ask for, so blocks follow each other
//! without padding. The relative step for large blocks lets a hole left by one be filled exactly
//! by another of nearly the same size (batches of varying length), where remnants of a few
//! hundred bytes would each cost a node and never be used.
//!
//! Why so fine: packed by best fit, the six recorded deep-learning traces need the same space to
//! within chance (each up or down by 1.5 %, no trend) whether sizes are rounded to 256 B or by
//! 1/4,096 to 1/128, so coarser steps buy nothing, and what they add counts in full: at the peak
//! 0.02 % of the bytes asked for with steps of 1/1,024, 0.3 % with 1/128.

use std::fmt;

/// Every allocated size is a multiple of this many bytes.
pub const GRANULE: u64 = 256;

/// Above [`FINE`] the step is the next power of two below divided by this.
pub const STEPS: u64 = 1024;

/// Up to here sizes are rounded to [`GRANULE`].
pub const FINE: u64 = GRANULE * STEPS;

/// The largest step: a large page of the usual device.
pub const COARSEST: u64 = 2 << 20;

/// The bytes given to a request: `requested` rounded up. At most 255 bytes more up to [`FINE`],
/// less than 1/1,024 more above and never 2 MiB or more; monotone; a rounded size rounds to
/// itself.
///
/// 0 gives [`GRANULE`]. `None` if the result does not fit in 64 bits.
pub const fn allocated(requested: u64) -> Option<u64> {
    if requested <= FINE {
        return Some(if requested == 0 {
            GRANULE
        } else {
            (requested + GRANULE - 1) & !(GRANULE - 1)
        });
    }
    // Of requested - 1, so that 2^n is the last of its range and needs no coarser step.
    let exponent = (requested - 1).ilog2() - STEPS.ilog2();
    let step = 1 << if exponent < COARSEST.ilog2() { exponent } else { COARSEST.ilog2() };
    match requested.checked_add(step - 1) {
        Some(sum) => Some(sum & !(step - 1)),
        None => None,
    }
}

/// A class of sizes for statistics: 256 B and below, then one per power of two to 256 MiB, then
/// everything beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// Number of classes.
    pub const COUNT: usize = 22;

    /// All classes, small sizes first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The number of the class, from 0 for the smallest sizes.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The largest size in the class; `None` for the last one, which has none.
    pub const fn limit(self) -> Option<u64> {
        if self.0 as usize == Self::COUNT - 1 { None } else { Some(GRANULE << self.0) }
    }
}

impl fmt::Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit() {
            Some(limit) => f.pad(&format!("to {}", crate::units::Bytes(limit))),
            None => f.pad("beyond"),
        }
    }
}

/// The class of a size: the smallest whose limit is not below it.
pub const fn class_of(bytes: u64) -> SizeClass {
    if bytes <= GRANULE {
        return SizeClass(0);
    }
    let class = (bytes - 1).ilog2() + 1 - GRANULE.ilog2();
    let last = SizeClass::COUNT as u32 - 1;
    SizeClass(if class < last { class as u8 } else { last as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    fn assert_sound(requested: u64) {
        let Some(size) = allocated(requested) else {
            assert!(requested > u64::MAX - (1 << 54), "{requested} is refused");
            return;
        };
        assert!(size >= requested && size % GRANULE == 0, "{requested} became {size}");
        let added = size - requested;
        if requested <= FINE {
            assert!(added < GRANULE || requested == 0, "{requested} became {size}");
        } else {
            assert!(added < requested.div_ceil(STEPS), "{requested} became {size}");
        }
        assert_eq!(allocated(size), Some(size), "{requested} is not rounded once and for all");
    }

    #[test]
    fn every_size_up_to_a_mebibyte_is_rounded_within_the_bound_and_in_order() {
        let mut last = 0;
        for requested in 0..=MIB {
            assert_sound(requested);
            let size = allocated(requested).unwrap();
            assert!(size >= last, "{requested} is rounded below its predecessor");
            last = size;
        }
    }

    #[test]
    fn the_edges_above_a_mebibyte_are_rounded_within_the_bound() {
        for power in 20..64 {
            let base = 1_u64 << power;
            let step = base / STEPS;
            for around in [base, base + step, base + 7 * step, base / 2 * 3, base - 1 + base] {
                for requested in around.saturating_sub(2)..=around.saturating_add(2) {
                    assert_sound(requested);
                }
            }
        }
        assert_eq!(allocated(u64::MAX), None);
        assert_eq!(allocated(1 << 63), Some(1 << 63));
        assert_eq!(allocated(256 * MIB + 1), Some(256 * MIB + MIB / 4));
        assert_eq!(allocated(256 * MIB), Some(256 * MIB));
    }

    #[test]
    fn classes_split_at_powers_of_two_from_256_bytes_to_256_mebibytes() {
        assert_eq!(class_of(0).index(), 0);
        for class in SizeClass::all() {
            match class.limit() {
                Some(limit) => {
                    assert_eq!(class_of(limit), class);
                    assert_eq!(class_of(limit + 1).index(), class.index() + 1);
                }
                None => assert_eq!(class_of(u64::MAX), class),
            }
        }
        let largest = SizeClass::all().filter_map(SizeClass::limit).last();
        assert_eq!(largest, Some(256 * MIB));
        assert_eq!(class_of(256 * MIB + 1).to_string(), "beyond");
        assert_eq!(class_of(3 * MIB).to_string(), "to 4 MiB");
    }
}
