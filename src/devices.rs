//! The devices of this machine, over all backends that were built in.

use std::fmt;

use terrane_core::device::DeviceInfo;

use crate::Choice;

/// A way to reach devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// CUDA's driver API.
    Cuda,
    /// Vulkan.
    Vulkan,
    /// The CPU and its memory.
    Host,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cuda => "CUDA",
            Self::Vulkan => "Vulkan",
            Self::Host => "CPU",
        })
    }
}

/// A device that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// How to open exactly this one.
    pub choice: Choice,
    /// Its backend.
    pub backend: Backend,
    /// Its name, driver and identity.
    pub info: DeviceInfo,
}

impl Found {
    /// Smaller is better: CUDA, then a GPU under Vulkan, then a software device under Vulkan, then
    /// the CPU. A GPU seen by both APIs is reached with less in between by CUDA, which also copies
    /// and pages faster there.
    fn rank(&self) -> (u8, u32) {
        let group = match (self.backend, self.info.is_cpu) {
            (Backend::Cuda, _) => 0,
            (Backend::Vulkan, false) => 1,
            (Backend::Vulkan, true) => 2,
            (Backend::Host, _) => 3,
        };
        (group, self.info.index)
    }
}

/// A backend without a device, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The backend.
    pub backend: Backend,
    /// Why it has none, and what to do about it.
    pub why: String,
}

/// What is there and what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Devices, the best first.
    pub found: Vec<Found>,
    /// Backends without any.
    pub absent: Vec<Absent>,
}

/// The devices of this machine over all backends that were built in, the best first. Opens none.
/// The model is not among them: it is opened by name.
pub fn devices() -> Vec<Found> {
    survey().found
}

/// The devices of this machine, and why backends have none.
pub fn survey() -> Survey {
    let mut survey = Survey::default();
    let asked = [(Backend::Cuda, cuda()), (Backend::Vulkan, vulkan()), (Backend::Host, host())];
    for (backend, answer) in asked {
        match answer {
            Ok(infos) if !infos.is_empty() => {
                survey.found.extend(infos.into_iter().map(|info| found(backend, info)));
            }
            Ok(_) => survey.absent.push(Absent { backend, why: "it has no device".to_owned() }),
            Err(why) => survey.absent.push(Absent { backend, why }),
        }
    }
    survey.found.sort_by_key(Found::rank);
    survey
}

fn found(backend: Backend, info: DeviceInfo) -> Found {
    let number = info.index.to_string();
    let choice = match backend {
        Backend::Cuda => Choice::Cuda(number),
        Backend::Vulkan => Choice::Vulkan(number),
        Backend::Host => Choice::Host,
    };
    Found { choice, backend, info }
}

type Answer = Result<Vec<DeviceInfo>, String>;

#[cfg(feature = "cuda")]
fn cuda() -> Answer {
    terrane_cuda::devices().map_err(|error| error.to_string())
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Answer {
    Err("it was not built in: build with the feature `cuda`".to_owned())
}

#[cfg(feature = "vulkan")]
fn vulkan() -> Answer {
    terrane_vulkan::list().map_err(|error| error.to_string())
}

#[cfg(not(feature = "vulkan"))]
fn vulkan() -> Answer {
    Err("it was not built in: build with the feature `vulkan`".to_owned())
}

fn host() -> Answer {
    let device = crate::open::host().map_err(|error| error.to_string())?;
    Ok(vec![device.info().clone()])
}
