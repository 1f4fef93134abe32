//! Opening a device by choice.

use std::sync::Arc;

use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::device::{Costs, Device, DeviceError};
use terrane_core::{Allocator, Config, Error};

use crate::{Backend, Choice, Preset, Survey, survey};

/// A device, and how it came to be chosen.
#[derive(Clone)]
pub struct Opened {
    /// The device, as allocators take it.
    pub device: Arc<dyn Device>,
    /// How to open the same one again.
    pub choice: Choice,
    /// Why this one, in a sentence to show.
    pub why: String,
    /// The model behind the device, where it is one.
    pub sim: Option<SimDevice>,
    /// The Vulkan device, where it is one: its raw handles, driver calls and images.
    #[cfg(feature = "vulkan")]
    pub vulkan: Option<terrane_vulkan::VulkanDevice>,
    /// The CUDA device, where it is one: foreign streams, addresses, export.
    #[cfg(feature = "cuda")]
    pub cuda: Option<Arc<terrane_cuda::CudaDevice>>,
}

impl Opened {
    fn over(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            choice: Choice::default(),
            why: String::new(),
            sim: None,
            #[cfg(feature = "vulkan")]
            vulkan: None,
            #[cfg(feature = "cuda")]
            cuda: None,
        }
    }

    /// An allocator over the device. Memory that the device takes for itself (Vulkan's staging,
    /// readback and images) counts against the allocator's limits from now on.
    ///
    /// # Errors
    /// As [`Allocator::with_config`]; [`Error::OverUserLimit`] when what the device holds already
    /// is over the limit.
    pub fn allocator(&self, config: Config) -> Result<Allocator, Error> {
        let alloc = Allocator::with_config(self.device.clone(), config)?;
        self.charge(&alloc)?;
        Ok(alloc)
    }

    /// Loads what the device would load at its first work, such as built-in kernels.
    ///
    /// # Errors
    /// The driver's.
    pub fn prepare(&self) -> Result<(), DeviceError> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &self.cuda {
            return device.prepare();
        }
        Ok(())
    }

    /// What the device's calls cost: measured now on CUDA, at opening on Vulkan, elsewhere what the
    /// device says of itself.
    ///
    /// # Errors
    /// The device's, such as too little memory to measure with.
    pub fn costs(&self) -> Result<Costs, DeviceError> {
        #[cfg(feature = "cuda")]
        if let Some(device) = &self.cuda {
            return device.calibrate();
        }
        Ok(self.device.caps().costs)
    }

    /// Has memory that the device takes for itself count against the limits of an allocator that
    /// was made otherwise, such as over a wrapper of the device. One allocator at a time: the last
    /// one named.
    ///
    /// # Errors
    /// [`Error::OverUserLimit`] when what the device holds already is over the limit.
    pub fn charge(&self, alloc: &Allocator) -> Result<(), Error> {
        #[cfg(feature = "vulkan")]
        if let Some(device) = &self.vulkan {
            crate::shared_budget::share(device, alloc)?;
        }
        #[cfg(not(feature = "vulkan"))]
        let _ = alloc;
        Ok(())
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.choice, self.device.info().name, self.why)
    }
}

/// Why no device was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device that was named can not be opened; the text says what to do.
    #[error("{choice} can not be opened: {why}")]
    Named {
        /// What was asked for.
        choice: Choice,
        /// The backend's reason.
        why: String,
    },
    /// None of the devices could be opened.
    #[error("no device can be opened: {why}")]
    None {
        /// The reason of each backend.
        why: String,
    },
}

/// How to open a device, where the defaults will not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Guard mode of CUDA devices, for use with [`Config::guard`]: an unmapped page after every
    /// memory object. Other devices ignore it.
    pub guard: bool,
    /// Measure what the calls of a CUDA device cost instead of taking the model's word; under
    /// 50 ms. Vulkan devices are measured in any case, others never.
    pub calibrate: bool,
}

/// Opens a device.
///
/// # Errors
/// [`OpenError::Named`] for a device asked for by name, [`OpenError::None`] when nothing opens.
pub fn open(choice: &Choice) -> Result<Opened, OpenError> {
    open_with(choice, OpenOptions::default())
}

/// As [`open`], with options.
///
/// # Errors
/// As [`open`].
pub fn open_with(choice: &Choice, options: OpenOptions) -> Result<Opened, OpenError> {
    if *choice == Choice::Best {
        return best(&survey(), options);
    }
    open_named(choice, options, format!("it was asked for by name ({choice})"))
        .map_err(|why| OpenError::Named { choice: choice.clone(), why })
}

/// Opens the first device that can be, the best first.
fn best(survey: &Survey, options: OpenOptions) -> Result<Opened, OpenError> {
    let mut against: Vec<String> =
        survey.absent.iter().map(|absent| format!("{}: {}", absent.backend, absent.why)).collect();
    for found in &survey.found {
        let kind = match (found.backend, found.info.is_cpu) {
            (Backend::Cuda, _) => "a GPU with CUDA",
            (Backend::Vulkan, false) => "a GPU under Vulkan",
            (Backend::Vulkan, true) => "a software device under Vulkan",
            (Backend::Host, _) => "the CPU, which is always there",
        };
        let mut why = format!("it is the best that opens here: {kind}");
        if !against.is_empty() {
            why = format!("{why} ({})", against.join("; "));
        }
        match open_named(&found.choice, options, why) {
            Ok(opened) => return Ok(opened),
            Err(reason) => against.push(format!("{}: {reason}", found.info.name)),
        }
    }
    Err(OpenError::None { why: against.join("; ") })
}

fn open_named(choice: &Choice, options: OpenOptions, why: String) -> Result<Opened, String> {
    let mut opened = match choice {
        Choice::Best | Choice::Host => Opened::over(host().map_err(|error| error.to_string())?),
        Choice::Sim(preset) => {
            let model = model(*preset);
            Opened { sim: Some(model.clone()), ..Opened::over(model.shared()) }
        }
        Choice::Vulkan(name) => vulkan(name)?,
        Choice::Cuda(name) => cuda(name, options)?,
    };
    opened.choice = choice.clone();
    opened.why = why;
    Ok(opened)
}

fn model(preset: Preset) -> SimDevice {
    match preset {
        Preset::Cuda => Sim::cuda(),
        Preset::Vulkan => Sim::vulkan(),
        Preset::Slabs => Sim::slabs().capacity(140 << 30).max_plain(140 << 30),
    }
    .open()
}

/// The CPU device.
#[cfg(target_os = "linux")]
pub(crate) fn host() -> Result<Arc<dyn Device>, DeviceError> {
    let device: Arc<dyn Device> = terrane_core::device::host::Host::new().open()?;
    Ok(device)
}

/// The CPU device maps memory as only Linux does.
#[cfg(not(target_os = "linux"))]
pub(crate) fn host() -> Result<Arc<dyn Device>, DeviceError> {
    Err(DeviceError::InvalidCall("the CPU device needs Linux"))
}

#[cfg(feature = "vulkan")]
fn vulkan(name: &str) -> Result<Opened, String> {
    let selector = terrane_vulkan::Selector::parse(name);
    let options = terrane_vulkan::OpenOptions::default();
    match terrane_vulkan::open(&selector, &options) {
        Ok(device) => Ok(Opened { vulkan: Some(device.clone()), ..Opened::over(Arc::new(device)) }),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "vulkan"))]
fn vulkan(_: &str) -> Result<Opened, String> {
    Err("Vulkan was not built in: build with the feature `vulkan`".to_owned())
}

#[cfg(feature = "cuda")]
fn cuda(name: &str, options: OpenOptions) -> Result<Opened, String> {
    use terrane_cuda::{CudaDevice, Options, Selector};
    let OpenOptions { guard, calibrate } = options;
    let selector = match (name, name.parse()) {
        ("", _) => Selector::Index(0),
        (_, Ok(index)) => Selector::Index(index),
        _ => Selector::Name(name.to_owned()),
    };
    match CudaDevice::open(&selector, Options { guard, calibrate, ..Options::default() }) {
        Ok(device) => {
            let device = Arc::new(device);
            Ok(Opened { cuda: Some(Arc::clone(&device)), ..Opened::over(device) })
        }
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &str, _: OpenOptions) -> Result<Opened, String> {
    Err("CUDA was not built in: build with the feature `cuda`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_opens_by_name_and_the_best_device_says_why() {
        let host = open(&Choice::Host).unwrap();
        assert_eq!(host.device.info().backend, "host");
        let best = best(
            &Survey {
                found: crate::devices()
                    .into_iter()
                    .filter(|f| f.backend == Backend::Host)
                    .collect(),
                absent: vec![crate::Absent { backend: Backend::Cuda, why: "no driver".to_owned() }],
            },
            OpenOptions::default(),
        );
        let best = best.unwrap();
        assert!(best.why.contains("CPU") && best.why.contains("CUDA: no driver"), "{best:?}");
    }

    #[test]
    fn the_model_opens_by_name_only() {
        let sim = open(&Choice::Sim(Preset::Slabs)).unwrap();
        assert!(sim.sim.is_some() && sim.device.paging().is_none());
        assert!(crate::devices().iter().all(|found| found.info.backend != "sim"));
    }

    #[test]
    fn with_no_device_at_all_every_reason_is_given() {
        let absent = |backend, why: &str| crate::Absent { backend, why: why.to_owned() };
        let absent = vec![absent(Backend::Vulkan, "no loader"), absent(Backend::Host, "no Linux")];
        let survey = Survey { found: Vec::new(), absent };
        let error = best(&survey, OpenOptions::default()).unwrap_err();
        assert!(error.to_string().ends_with("Vulkan: no loader; CPU: no Linux"), "{error}");
    }
}
