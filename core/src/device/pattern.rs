//! The pattern and the checksum that every device computes alike.
//!
//! Only 32-bit multiplies, shifts and additions: WGSL has nothing wider. A region is a sequence
//! of little-endian 4-byte words, numbered from 0 at the region's first byte.

/// Word `index` of the pattern of `seed`.
pub const fn word(seed: u64, index: u64) -> u32 {
    let low = (seed as u32) ^ (index as u32).wrapping_mul(0x9E37_79B1);
    let high = ((seed >> 32) as u32).wrapping_add(((index >> 32) as u32).wrapping_mul(0x85EB_CA6B));
    mix(low ^ high)
}

/// A bijection of 32 bits in which every input bit changes about half of the output bits.
pub const fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^= x >> 16;
    x
}

/// What one word adds to a checksum: `(low, high)`, each summed modulo 2^32.
///
/// Sums do not depend on the order of the words, so threads may add in any order; the word's
/// index is part of each term, so exchanged words are noticed.
pub const fn term(value: u32, index: u64) -> (u32, u32) {
    let place = mix((index as u32) ^ ((index >> 32) as u32).wrapping_mul(0x85EB_CA6B));
    (mix(value ^ place), mix(value.wrapping_add(0x5BD1_E995) ^ place.rotate_left(16)))
}

/// The checksum of a sequence of words: the two sums of [`term`], high in the upper 32 bits.
pub fn checksum(words: impl IntoIterator<Item = u32>) -> u64 {
    let (mut low, mut high) = (0_u32, 0_u32);
    for (index, value) in words.into_iter().enumerate() {
        let (a, b) = term(value, index as u64);
        low = low.wrapping_add(a);
        high = high.wrapping_add(b);
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_different_seeds_differ_nearly_everywhere() {
        let same = (0..10_000).filter(|&i| word(1, i) == word(2, i)).count();
        assert_eq!(same, 0);
    }

    #[test]
    fn a_checksum_notices_exchanged_and_changed_words() {
        let sum = checksum([1, 2, 3]);
        assert_ne!(sum, checksum([2, 1, 3]));
        assert_ne!(sum, checksum([1, 2, 2]));
        assert_ne!(checksum([0]), checksum([0, 0]));
    }
}
