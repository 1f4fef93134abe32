//! What the driver's calls cost, from figures measured on one H200.
//!
//! Measured: creating 391 us at 2 MiB when cold, 19 us at 20 MiB, 22 us at 128 MiB, 38 us at
//! 1 GiB; mapping 1 us; setting access 31 to 37 us up to 128 MiB, 75 us at 1 GiB; unmapping 20 to
//! 32 us; releasing 30 to 690 us. Beside a running kernel: create 116 us, map and set access
//! 213 us, unmap 143 us alone and 37 us in a batch of ten, release 126 us. Between measured sizes
//! the figure is interpolated, by the logarithm of the size below 20 MiB.

/// One set of costs. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Creating 2 MiB.
    create_small: f64,
    /// Mapping and setting access, up to 128 MiB.
    map: f64,
    unmap: f64,
    release: f64,
}

const MIB: f64 = (1 << 20) as f64;

impl Cost {
    /// An idle device, creates in their stride (2 MiB: 30 us, an assumption between the cold
    /// figure and that at 20 MiB).
    pub const IDLE: Self = Self { create_small: 30.0, map: 35.0, unmap: 26.0, release: 60.0 };
    /// Calls beside running kernels, unmapping in batches of ten.
    pub const BUSY: Self = Self { create_small: 116.0, map: 213.0, unmap: 37.0, release: 126.0 };
    /// As idle, but every create as slow as a cold one.
    pub const COLD: Self = Self { create_small: 391.0, ..Self::IDLE };

    pub fn create(&self, bytes: u64) -> f64 {
        let mib = bytes as f64 / MIB;
        if mib >= 128.0 {
            return 22.0 + 16.0 * (mib - 128.0) / 896.0;
        }
        if mib >= 20.0 {
            return 19.0 + 3.0 * (mib - 20.0) / 108.0;
        }
        let toward_small = (20.0 / mib).ln() / 10.0_f64.ln();
        (19.0_f64.ln() + toward_small * (self.create_small / 19.0).ln()).exp()
    }

    pub fn map(&self, bytes: u64) -> f64 {
        let mib = bytes as f64 / MIB;
        self.map + 41.0 * (mib - 128.0).max(0.0) / 896.0
    }

    pub const fn unmap(&self) -> f64 {
        self.unmap
    }

    pub fn release(&self, bytes: u64) -> f64 {
        self.release + 0.3 * bytes as f64 / MIB
    }
}
