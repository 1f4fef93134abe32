//! Whether CUDA is there, and which devices it has.

use std::sync::Arc;

use terrane_core::device::DeviceInfo;

use crate::driver::{Attribute, Dev, Driver, Fault, code, load};

/// The oldest driver that serves: CUDA 12.0, which loads the built-in kernels' PTX 8.0.
pub const MIN_DRIVER: i32 = 12_000;

/// Why no CUDA device can be opened. None of these is a panic, on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CudaUnavailable {
    /// The driver's library is not on this machine.
    #[error("no libcuda.so.1 here: install NVIDIA's driver, or use another device")]
    NoLibrary,
    /// The library lacks a function that drivers of [`MIN_DRIVER`] have.
    #[error("the driver's library has no {0}: update NVIDIA's driver to 525 or later")]
    MissingSymbol(&'static str),
    /// The driver would not start.
    #[error("cuInit failed with code {code}: see whether nvidia-smi works here")]
    Init {
        /// The driver's result code.
        code: i32,
    },
    /// The driver is older than [`MIN_DRIVER`]. Versions are 1,000 times the major number.
    #[error("the driver offers CUDA {}.{}, {}.{} is needed: update it",
        .found / 1000, .found % 1000 / 10, .needed / 1000, .needed % 1000 / 10)]
    DriverTooOld {
        /// What the driver has.
        found: i32,
        /// What is needed.
        needed: i32,
    },
    /// The driver runs but has no device (or `CUDA_VISIBLE_DEVICES` hides all).
    #[error("the driver has no device: look at CUDA_VISIBLE_DEVICES and nvidia-smi")]
    NoDevice,
    /// No device answers to the index, UUID or name asked for.
    #[error("no such CUDA device among {count}: list them with `devices`")]
    NoSuchDevice {
        /// Devices that there are.
        count: u32,
    },
    /// The device is older than compute capability 7.5, for which the built-in kernels are made.
    #[error("compute capability {major}.{minor} is below 7.5: use another device")]
    DeviceTooOld {
        /// Major number.
        major: i32,
        /// Minor number.
        minor: i32,
    },
    /// A driver call failed while the device was opened.
    #[error("{call} failed with code {code} while opening the device")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// Its result code.
        code: i32,
    },
}

impl From<Fault> for CudaUnavailable {
    fn from(fault: Fault) -> Self {
        Self::Driver { call: fault.call, code: fault.code }
    }
}

/// How to choose a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// The driver's number, from 0.
    Index(u32),
    /// The identity that `nvidia-smi -L` and Vulkan show.
    Uuid([u8; 16]),
    /// A part of the name, whatever the case: the first device that has it.
    Name(String),
}

/// The devices of this machine, in the driver's order. Makes no context.
///
/// # Errors
/// Why there are none.
pub fn devices() -> Result<Vec<DeviceInfo>, CudaUnavailable> {
    let driver = start(load()?)?;
    list(driver.as_ref())
}

/// Initialises the driver and checks its version.
pub(crate) fn start(driver: Arc<dyn Driver>) -> Result<Arc<dyn Driver>, CudaUnavailable> {
    match driver.init() {
        Err(fault) if matches!(fault.code, code::NO_DEVICE | code::INVALID_DEVICE) => {
            return Err(CudaUnavailable::NoDevice);
        }
        Err(fault) => return Err(CudaUnavailable::Init { code: fault.code }),
        Ok(()) => {}
    }
    let found = driver.version()?;
    if found < MIN_DRIVER {
        return Err(CudaUnavailable::DriverTooOld { found, needed: MIN_DRIVER });
    }
    Ok(driver)
}

/// What the driver says of its devices.
pub(crate) fn list(driver: &dyn Driver) -> Result<Vec<DeviceInfo>, CudaUnavailable> {
    let count = driver.device_count()?;
    if count <= 0 {
        return Err(CudaUnavailable::NoDevice);
    }
    let version = driver.version()?;
    (0..count).map(|ordinal| Ok(identify(driver, ordinal, version)?)).collect()
}

fn identify(driver: &dyn Driver, ordinal: i32, version: i32) -> Result<DeviceInfo, Fault> {
    let device = driver.device(ordinal)?;
    Ok(DeviceInfo {
        backend: "cuda",
        name: driver.device_name(device)?,
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        index: ordinal.unsigned_abs(),
        uuid: Some(driver.device_uuid(device)?),
        is_cpu: false,
    })
}

/// The device that `selector` names, when it is recent enough.
pub(crate) fn choose(
    driver: &dyn Driver,
    selector: &Selector,
) -> Result<(Dev, DeviceInfo), CudaUnavailable> {
    let all = list(driver)?;
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    let wanted = |info: &DeviceInfo| match selector {
        Selector::Index(index) => info.index == *index,
        Selector::Uuid(uuid) => info.uuid.as_ref() == Some(uuid),
        Selector::Name(part) => info.name.to_lowercase().contains(&part.to_lowercase()),
    };
    let Some(info) = all.into_iter().find(wanted) else {
        return Err(CudaUnavailable::NoSuchDevice { count });
    };
    let device = driver.device(info.index.cast_signed())?;
    let major = driver.attribute(Attribute::ComputeMajor, device)?;
    let minor = driver.attribute(Attribute::ComputeMinor, device)?;
    if (major, minor) < (7, 5) {
        return Err(CudaUnavailable::DeviceTooOld { major, minor });
    }
    Ok((device, info))
}
