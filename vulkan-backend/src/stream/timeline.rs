//! Timeline semaphores.

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceError;

use crate::calls::Call;
use crate::driver::Driver;

/// A timeline semaphore, ours or a host program's.
pub struct Timeline {
    // Keeps whatever owns a host program's semaphore. Before the driver: it may destroy the
    // semaphore, and the device goes with the driver's last owner.
    _owner: Option<Arc<dyn Any + Send + Sync>>,
    driver: Arc<Driver>,
    pub raw: vk::Semaphore,
    owned: bool,
}

impl Timeline {
    /// A new one, at value 0.
    pub fn new(driver: &Arc<Driver>) -> Result<Self, DeviceError> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timelineSemaphore is enabled on every device that is opened.
        let raw =
            driver.run(Call::CreateSemaphore, 0, |d| unsafe { d.create_semaphore(&info, None) })?;
        Ok(Self { driver: Arc::clone(driver), raw, owned: true, _owner: None })
    }

    /// A host program's.
    pub fn of_host(
        driver: &Arc<Driver>,
        raw: vk::Semaphore,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self { driver: Arc::clone(driver), raw, owned: false, _owner: owner }
    }

    /// The value reached.
    pub fn value(&self) -> Result<u64, DeviceError> {
        // SAFETY: the semaphore is alive and a timeline.
        self.driver.run(Call::GetSemaphoreCounter, 0, |d| unsafe {
            d.get_semaphore_counter_value(self.raw)
        })
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: submissions that use the semaphore keep it by `Arc` until they are done.
            self.driver.done(Call::DestroySemaphore, |d| unsafe {
                d.destroy_semaphore(self.raw, None);
            });
        }
    }
}
