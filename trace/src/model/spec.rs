//! Names and options of models as a person types them: `pytorch:max_split_size_mb=128`.

use super::bfc::Bfc;
use super::rmm::{Arena, Pool};
use super::vma::Vma;
use super::{ArenaConfig, BfcConfig, Model, PoolConfig, Pytorch, PytorchConfig, Validation};
use super::{VmaConfig, cuda_async};

/// A model with its options, ready to be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelSpec {
    /// PyTorch's native rules or, with `expandable_segments`, its expandable segments.
    Pytorch(PytorchConfig),
    /// The BFC allocator of TensorFlow and JAX.
    Bfc(BfcConfig),
    /// `cudaMallocAsync`.
    CudaAsync,
    /// RMM's pool.
    RmmPool(PoolConfig),
    /// RMM's arena.
    RmmArena(ArenaConfig),
    /// Vulkan Memory Allocator.
    Vma(VmaConfig),
}

/// Why a model's name or option was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No model has this name.
    #[error("no model is called `{name}`; there are {}", ModelSpec::NAMES.join(", "))]
    Model {
        /// The name given.
        name: String,
    },
    /// The model has no such option.
    #[error("unknown option `{key}`")]
    Key {
        /// The option given.
        key: String,
    },
    /// The option does not take this value.
    #[error("`{value}` is no value for `{key}`; it takes {takes}")]
    Value {
        /// The option given.
        key: String,
        /// The value given.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
}

impl SpecError {
    pub(super) fn key(key: &str) -> Self {
        Self::Key { key: key.to_owned() }
    }

    pub(super) fn value(key: &str, value: &str, takes: &'static str) -> Self {
        Self::Value { key: key.to_owned(), value: value.to_owned(), takes }
    }
}

impl ModelSpec {
    /// Every name that [`ModelSpec::parse`] knows.
    pub const NAMES: [&'static str; 7] =
        ["pytorch", "pytorch-expandable", "bfc", "cuda-async", "rmm-pool", "rmm-arena", "vma"];

    /// Reads `name` or `name:key=value,key=value`. PyTorch's options have the names that
    /// `PYTORCH_CUDA_ALLOC_CONF` gives them.
    ///
    /// # Errors
    /// [`SpecError`] names the part that is not understood.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = match name {
            "pytorch" => Self::Pytorch(PytorchConfig::default()),
            "pytorch-expandable" => {
                Self::Pytorch(PytorchConfig { expandable_segments: true, ..Default::default() })
            }
            "bfc" => Self::Bfc(BfcConfig::default()),
            "cuda-async" => Self::CudaAsync,
            "rmm-pool" => Self::RmmPool(PoolConfig::default()),
            "rmm-arena" => Self::RmmArena(ArenaConfig::default()),
            "vma" => Self::Vma(VmaConfig::default()),
            _ => return Err(SpecError::Model { name: name.to_owned() }),
        };
        for item in split_items(options) {
            let pair = item.split_once('=');
            let (key, value) = pair.ok_or_else(|| SpecError::value(item, "", "key=value"))?;
            spec.set(key.trim(), value.trim())?;
        }
        Ok(spec)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match self {
            Self::Pytorch(config) => config.set(key, value),
            Self::Bfc(config) => config.set(key, value),
            Self::CudaAsync => Err(SpecError::key(key)),
            Self::RmmPool(config) => config.set(key, value),
            Self::RmmArena(config) => config.set(key, value),
            Self::Vma(config) => config.set(key, value),
        }
    }

    /// The model's name, without options.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pytorch(config) if config.expandable_segments => "pytorch-expandable",
            Self::Pytorch(_) => "pytorch",
            Self::Bfc(_) => "bfc",
            Self::CudaAsync => "cuda-async",
            Self::RmmPool(_) => "rmm-pool",
            Self::RmmArena(_) => "rmm-arena",
            Self::Vma(_) => "vma",
        }
    }

    /// An empty allocator of this kind on a device that has `capacity` bytes for it.
    #[must_use]
    pub fn build(&self, capacity: Option<u64>) -> Box<dyn Model> {
        match self {
            Self::Pytorch(config) => Box::new(Pytorch::new(config.clone(), capacity)),
            Self::Bfc(config) => Box::new(Bfc::new(config.clone(), capacity)),
            Self::CudaAsync => Box::new(cuda_async::model(capacity)),
            Self::RmmPool(config) => Box::new(Pool::new(config.clone(), capacity)),
            Self::RmmArena(config) => Box::new(Arena::new(config, capacity)),
            Self::Vma(config) => Box::new(Vma::new(config, capacity)),
        }
    }

    /// How far the model may be believed with these options.
    #[must_use]
    pub fn validation(&self) -> Validation {
        match self {
            Self::Pytorch(config) => config.validation(),
            Self::Bfc(_) => BfcConfig::VALIDATION,
            Self::CudaAsync => cuda_async::VALIDATION,
            Self::RmmPool(_) => PoolConfig::VALIDATION,
            Self::RmmArena(_) => ArenaConfig::VALIDATION,
            Self::Vma(_) => VmaConfig::VALIDATION,
        }
    }
}

/// The name, with the options that differ from the model's own where it is PyTorch's.
impl std::fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        let Self::Pytorch(config) = self else { return Ok(()) };
        let options = config.to_options();
        let shown = options.iter().filter(|(key, _)| *key != "expandable_segments");
        for (at, (key, value)) in shown.enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

/// Splits at commas that are not within brackets; empty items are dropped.
pub(super) fn split_items(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    let items = text.split(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth <= 0
    });
    items.map(str::trim).filter(|item| !item.is_empty()).collect()
}
