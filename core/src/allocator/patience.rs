//! Waiting on the host, which ends whatever the device says.

use std::time::Duration;

use crate::device::Device;
use crate::error::DeviceError;
use crate::point::SyncPoint;

/// How often a device may say that something is reached without anything having come of it.
const REPEATS: u32 = 16;
/// How long is slept between two looks after that.
const NAP: Duration = Duration::from_millis(1);

/// What is left of the time that somebody waits, on the device's clock.
///
/// It also runs out where that clock stands still, as a model's may, and where the device goes on
/// saying that points are reached which by its own word are not: no loop around
/// [`wait`](Self::wait) spins, and none is without end.
pub(crate) struct Patience {
    left_ns: u64,
    last_ns: u64,
    /// What was waited for last, and how often it was said to be reached.
    points: Vec<SyncPoint>,
    repeats: u32,
}

impl Patience {
    pub fn new(device: &dyn Device, time: Duration) -> Self {
        let left_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { left_ns, last_ns: device.now_ns(), points: Vec::new(), repeats: 0 }
    }

    /// Waits for one of `points` for as long as is left, at most `most`; with no points it lets
    /// the time pass. Tells whether one is reached, as if one were with no points and no time;
    /// `None` once no time is left.
    pub fn wait(
        &mut self,
        device: &dyn Device,
        points: &[SyncPoint],
        most: Duration,
    ) -> Result<Option<bool>, DeviceError> {
        self.pass(device, 0);
        if self.left_ns == 0 {
            return Ok(None);
        }
        if points.is_empty() && most.is_zero() {
            return self.reached(device, points).map(Some);
        }
        let slice = most.min(Duration::from_nanos(self.left_ns));
        if device.wait_any(points, slice)? {
            return self.reached(device, points).map(Some);
        }
        self.repeats = 0;
        self.pass(device, u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX));
        Ok(Some(false))
    }

    /// Takes off what has passed, at least so much; tells whether anything is left. For waits that
    /// the device has no part in.
    pub fn is_left(&mut self, device: &dyn Device, least: Duration) -> bool {
        self.pass(device, u64::try_from(least.as_nanos()).unwrap_or(u64::MAX));
        self.left_ns > 0
    }

    /// Takes in that the device says that one of `points` is reached.
    fn reached(&mut self, device: &dyn Device, points: &[SyncPoint]) -> Result<bool, DeviceError> {
        if self.points != points {
            self.points = points.to_vec();
            self.repeats = 0;
        }
        self.repeats += 1;
        if self.repeats > REPEATS {
            // Somebody else may yet change something, but not before time has passed.
            let nap = NAP.min(Duration::from_nanos(self.left_ns));
            device.wait_any(&[], nap)?;
            self.pass(device, u64::try_from(nap.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(true)
    }

    /// Takes off what has passed on the clock since the last time, at least `least_ns`.
    fn pass(&mut self, device: &dyn Device, least_ns: u64) {
        let now_ns = device.now_ns();
        let passed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        self.left_ns = self.left_ns.saturating_sub(passed.max(least_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::sim::{Completion, Sim};
    use crate::device::wrap::{Common, Paced};

    const SECOND: Duration = Duration::from_secs(1);

    /// A device whose clock stands still, with a point that is never reached.
    fn still() -> (Arc<Paced>, SyncPoint) {
        let sim = Sim::vulkan().open();
        let device = Paced::new(sim.shared(), Common::Slabs).unwrap();
        let lane = device.create_by_hand().unwrap();
        sim.set_completion(lane, Completion::Immediate).unwrap();
        let point = sim.submit(lane, 0).unwrap();
        (device, point)
    }

    #[test]
    fn time_runs_out_where_the_clock_stands_still() {
        let (device, point) = still();
        let mut patience = Patience::new(&*device, Duration::from_millis(20));
        let mut waits = 0;
        let slice = Duration::from_millis(5);
        while let Some(reached) = patience.wait(&*device, &[point], slice).unwrap() {
            assert!(!reached);
            waits += 1;
        }
        assert_eq!(waits, 4);
    }

    #[test]
    fn time_runs_out_where_the_same_is_said_to_be_reached_again_and_again() {
        let sim = Sim::slabs().open();
        let stream = sim.create_stream(Default::default()).unwrap();
        let point = sim.submit(stream, 0).unwrap();
        let mut patience = Patience::new(&sim, SECOND);
        let mut said = 0;
        while patience.wait(&sim, &[point], SECOND).unwrap() == Some(true) {
            said += 1;
        }
        assert_eq!(said, REPEATS + 1000, "one look for each millisecond, after the first ones");
        // News each time are no repetition, and take no time on a clock that stands still.
        let mut patience = Patience::new(&sim, SECOND);
        for _ in 0..5000 {
            let point = sim.submit(stream, 0).unwrap();
            assert_eq!(patience.wait(&sim, &[point], SECOND), Ok(Some(true)));
        }
    }
}
