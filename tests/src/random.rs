//! Random numbers that are the same for the same seed, on every machine.

/// SplitMix64: small, and good enough to choose sizes and orders.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence for a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 for a limit of 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.bits() % limit }
    }

    /// A number from `low` to `high`, all magnitudes about as often.
    pub fn size(&mut self, low: u64, high: u64) -> u64 {
        let (from, to) = (low.max(1).ilog2(), high.max(1).ilog2());
        let bits = from + self.below(u64::from(to - from) + 1) as u32;
        let base = 1_u64 << bits;
        (base + self.below(base)).clamp(low, high)
    }

    /// Whether one of `n` came up.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
