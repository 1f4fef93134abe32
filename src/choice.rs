//! Which device to open, in words.

use std::fmt;
use std::str::FromStr;

/// What the model is modelled on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// CUDA on a large GPU: pages of 2 MiB and more, mapped whole.
    #[default]
    Cuda,
    /// Vulkan on a large GPU: sparse pages of 64 KiB, bound in stream order.
    Vulkan,
    /// A device that can not page.
    Slabs,
}

/// Which device to open. As text: `best`, `host`, `sim[:cuda|vulkan|slabs]`,
/// `vulkan[:NAME or number or UUID]`, `cuda[:NAME or number]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// A CUDA device, else a GPU under Vulkan, else a software device under Vulkan, else the CPU.
    #[default]
    Best,
    /// The CPU and its memory.
    Host,
    /// The model, which computes nothing.
    Sim(Preset),
    /// A device under Vulkan; the empty text means the best of them.
    Vulkan(String),
    /// A CUDA device; the empty text means the first.
    Cuda(String),
}

/// A text that names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no device: say best, host, sim[:cuda|vulkan|slabs], vulkan[:NAME] or cuda[:N]"
)]
pub struct ChoiceError(pub String);

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let (backend, name) = text.split_once(':').unwrap_or((text, ""));
        let preset = match name {
            "" | "cuda" => Some(Preset::Cuda),
            "vulkan" => Some(Preset::Vulkan),
            "slabs" => Some(Preset::Slabs),
            _ => None,
        };
        match (backend.to_ascii_lowercase().as_str(), preset) {
            ("best", _) if name.is_empty() => Ok(Self::Best),
            ("host", _) if name.is_empty() => Ok(Self::Host),
            ("sim", Some(preset)) => Ok(Self::Sim(preset)),
            ("vulkan", _) => Ok(Self::Vulkan(name.to_owned())),
            ("cuda", _) => Ok(Self::Cuda(name.to_owned())),
            _ => Err(ChoiceError(text.to_owned())),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, name) = match self {
            Self::Best => ("best", ""),
            Self::Host => ("host", ""),
            Self::Sim(Preset::Cuda) => ("sim", ""),
            Self::Sim(Preset::Vulkan) => ("sim", "vulkan"),
            Self::Sim(Preset::Slabs) => ("sim", "slabs"),
            Self::Vulkan(name) => ("vulkan", name.as_str()),
            Self::Cuda(name) => ("cuda", name.as_str()),
        };
        f.write_str(backend)?;
        if name.is_empty() { Ok(()) } else { write!(f, ":{name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_reads_what_it_writes() {
        for text in
            ["best", "host", "sim", "sim:vulkan", "sim:slabs", "vulkan", "vulkan:H200", "cuda:1"]
        {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
        assert_eq!("sim:cuda".parse(), Ok(Choice::Sim(Preset::Cuda)));
    }

    #[test]
    fn what_names_no_device_is_refused_with_what_would() {
        for text in ["", "gpu", "sim:metal", "host:0", "best:1"] {
            let error = text.parse::<Choice>().unwrap_err();
            assert!(error.to_string().contains("vulkan[:NAME]"), "{error}");
        }
    }
}
