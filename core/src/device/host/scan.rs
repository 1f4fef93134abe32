//! The loops over pattern and checksum, written so that compilers make vectors of them.
//!
//! They work on small buffers that stay in the first cache: memory itself is only touched by
//! atomics (see `span`), which no compiler makes vectors of.

use crate::device::pattern;

/// Words of a buffer: 4 KiB.
pub(super) const WORDS: usize = 1024;

/// A buffer of words.
pub(super) type Buffer = [u32; WORDS];

/// Index arithmetic of a whole buffer stays within 32 bits when its first index is a multiple
/// of the buffer's length.
fn high_of(seed: u64, first: u64) -> u32 {
    // Word 0 of the pattern whose low seed is 0 is `mix(high)`; the term before mixing is needed.
    ((seed >> 32) as u32).wrapping_add(((first >> 32) as u32).wrapping_mul(0x85EB_CA6B))
}

#[inline(always)]
fn word(seed: u32, high: u32, index: u32) -> u32 {
    pattern::mix(seed ^ index.wrapping_mul(0x9E37_79B1) ^ high)
}

#[inline(always)]
fn fill_any(words: &mut [u32], seed: u64, first: u64) {
    let (low, high, start) = (seed as u32, high_of(seed, first), first as u32);
    for (at, target) in words.iter_mut().enumerate() {
        *target = word(low, high, start.wrapping_add(at as u32));
    }
}

#[inline(always)]
fn differ_any(words: &[u32], seed: u64, first: u64) -> u64 {
    let (low, high, start) = (seed as u32, high_of(seed, first), first as u32);
    let mut differ = 0_u32;
    for (at, found) in words.iter().enumerate() {
        differ += u32::from(*found != word(low, high, start.wrapping_add(at as u32)));
    }
    u64::from(differ)
}

#[inline(always)]
fn sums_any(words: &[u32], first: u64) -> (u32, u32) {
    let above = ((first >> 32) as u32).wrapping_mul(0x85EB_CA6B);
    let (mut low, mut high) = (0_u32, 0_u32);
    for (at, &value) in words.iter().enumerate() {
        let place = pattern::mix((first as u32).wrapping_add(at as u32) ^ above);
        low = low.wrapping_add(pattern::mix(value ^ place));
        high = high
            .wrapping_add(pattern::mix(value.wrapping_add(0x5BD1_E995) ^ place.rotate_left(16)));
    }
    (low, high)
}

macro_rules! fastest {
    ($(#[$doc:meta])* $name:ident, $any:ident, ($($arg:ident: $ty:ty),*) -> $out:ty) => {
        $(#[$doc])*
        pub(super) fn $name($($arg: $ty),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wide($($arg: $ty),*) -> $out {
                    $any($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has the instructions that the function is built for.
                    return unsafe { wide($($arg),*) };
                }
            }
            $any($($arg),*)
        }
    };
}

fastest! {
    /// Writes words `first..` of the pattern; `first` is a multiple of [`WORDS`].
    fill, fill_any, (words: &mut [u32], seed: u64, first: u64) -> ()
}
fastest! {
    /// Counts words that differ from the pattern.
    differ, differ_any, (words: &[u32], seed: u64, first: u64) -> u64
}
fastest! {
    /// The sums of the words' checksum terms.
    sums, sums_any, (words: &[u32], first: u64) -> (u32, u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_loops_give_what_the_definition_says() {
        for first in [0, 1024, (1 << 32) - 1024, 1 << 32, 5 << 32] {
            for seed in [0, 1, u64::MAX, 0x1234_5678_9ABC_DEF0] {
                let mut words = [0; 777];
                fill(&mut words, seed, first);
                let expected: Vec<u32> =
                    (first..first + 777).map(|i| pattern::word(seed, i)).collect();
                assert_eq!(words.as_slice(), expected);
                assert_eq!(differ(&words, seed, first), 0);
                words[776] ^= 1;
                words[3] ^= 1 << 31;
                assert_eq!(differ(&words, seed, first), 2);
                let terms = (first..).zip(words).map(|(i, word)| pattern::term(word, i));
                let sum = terms.fold((0_u32, 0_u32), |sum, term| {
                    (sum.0.wrapping_add(term.0), sum.1.wrapping_add(term.1))
                });
                assert_eq!(sums(&words, first), sum);
            }
        }
    }
}
