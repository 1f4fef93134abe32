//! Two timestamps around a submission.

use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceError;

use crate::calls::Call;
use crate::driver::Driver;

/// Two timestamp queries.
pub struct Stamps {
    driver: Arc<Driver>,
    pub pool: vk::QueryPool,
    ns_per_tick: f64,
    /// Bits of a timestamp that count.
    mask: u64,
}

impl Stamps {
    pub fn new(driver: &Arc<Driver>, ns_per_tick: f64, bits: u32) -> Result<Self, DeviceError> {
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(2);
        // SAFETY: `info` is complete.
        let pool = driver
            .run(Call::CreateQueryPool, 0, |d| unsafe { d.create_query_pool(&info, None) })?;
        driver.name(pool, "terrane stamps");
        let mask = u64::MAX >> (64 - bits.clamp(1, 64));
        Ok(Self { driver: Arc::clone(driver), pool, ns_per_tick, mask })
    }

    /// Nanoseconds between the two. Pre: the submission is done.
    pub fn elapsed_ns(&self) -> Result<f64, DeviceError> {
        let ticks = self.ticks()?;
        Ok((ticks[1].wrapping_sub(ticks[0]) & self.mask) as f64 * self.ns_per_tick)
    }

    /// Nanoseconds of both on the device's clock. Pre: the submission is done.
    pub fn times_ns(&self) -> Result<[u64; 2], DeviceError> {
        Ok(self.ticks()?.map(|ticks| ((ticks & self.mask) as f64 * self.ns_per_tick) as u64))
    }

    fn ticks(&self) -> Result<[u64; 2], DeviceError> {
        let mut ticks = [0_u64; 2];
        let flags = vk::QueryResultFlags::TYPE_64;
        // SAFETY: the pool has two queries of 64 bits each.
        self.driver.run(Call::GetQueryPoolResults, 0, |d| unsafe {
            d.get_query_pool_results(self.pool, 0, &mut ticks, flags)
        })?;
        Ok(ticks)
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        if !self.driver.is_here() {
            return;
        }
        // SAFETY: the submission with these queries keeps them until it is done.
        unsafe { self.driver.device.destroy_query_pool(self.pool, None) };
    }
}
