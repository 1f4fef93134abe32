//! The device's clock as the allocator reads it: seldom.

use crate::device::Device;

/// The device's clock, read every 32 events, or after more where they come so fast that the time
/// is no older than [`AGE_NS`] for it: where a reading is a system call it costs more than serving
/// some requests.
#[derive(Debug)]
pub(crate) struct Clock {
    now_ns: u64,
    ms: u32,
    opened_ns: u64,
    stale: u32,
    /// Events from one reading to the next.
    period: u32,
}

/// How old the time may become by reading the clock less often.
const AGE_NS: u64 = 20_000;
const PERIODS: std::ops::RangeInclusive<u32> = 32..=128;

impl Clock {
    pub const fn starting_at(now_ns: u64) -> Self {
        Self { now_ns, ms: 0, opened_ns: now_ns, stale: 0, period: *PERIODS.start() }
    }

    /// Milliseconds since the allocator was opened.
    pub const fn ms(&self) -> u32 {
        self.ms
    }

    /// Milliseconds from the opening of the allocator to a time of the device's clock.
    pub fn ms_at(&self, ns: u64) -> u32 {
        let ms = ns.saturating_sub(self.opened_ns) / 1_000_000;
        u32::try_from(ms).unwrap_or(u32::MAX)
    }

    /// Nanoseconds of the device's clock.
    pub const fn ns(&self) -> u64 {
        self.now_ns
    }

    pub fn read(&mut self, device: &dyn Device) {
        let now_ns = device.now_ns();
        // A model's clock may stand still: that says nothing about the rate.
        let passed = now_ns.saturating_sub(self.now_ns);
        let period = (u64::from(self.stale) * AGE_NS).checked_div(passed).unwrap_or(0);
        let (least, most) = (*PERIODS.start(), *PERIODS.end());
        self.period = u32::try_from(period).unwrap_or(most).clamp(least, most);
        self.now_ns = now_ns;
        self.ms = self.ms_at(now_ns);
        self.stale = 0;
    }

    #[inline]
    pub fn tick(&mut self, device: &dyn Device) {
        self.stale += 1;
        if self.stale >= self.period {
            self.read(device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use crate::device::sim::Sim;

    /// Ticks until the clock is read, with `ns` from one to the next.
    fn ticks(clock: &mut Clock, ns: u64) -> u32 {
        let sim = Sim::cuda().open();
        sim.advance(clock.ns());
        let before = clock.ns();
        for tick in 1..1_000 {
            sim.advance(ns);
            clock.tick(&sim);
            if clock.ns() != before {
                return tick;
            }
        }
        1_000
    }

    #[test]
    fn the_clock_is_read_less_often_only_while_its_time_stays_young() {
        let mut clock = Clock::starting_at(0);
        assert_eq!(ticks(&mut clock, 100), 32);
        assert_eq!(ticks(&mut clock, 100), 128, "after 12.8 us");
        assert_eq!(ticks(&mut clock, 1_000), 128, "the rate has changed unseen");
        assert_eq!(ticks(&mut clock, 1_000), 32);
        assert_eq!(ticks(&mut clock, 400), 32);
        assert_eq!(ticks(&mut clock, 400), 50, "20 us");
    }
}
