//! What a snapshot does not say, from a small JSON file beside it.

use super::Known;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Facts of the device and the process, as `terrane howto pytorch` has a program write them:
/// FILE.json beside FILE. Every fact may be absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sidecar {
    /// Bytes of the device.
    pub device_total: Option<u64>,
    /// Bytes of it that were free at the dump.
    pub device_free: Option<u64>,
    /// Share of the device that the process may reserve (`set_per_process_memory_fraction`).
    pub memory_fraction: Option<f64>,
    /// Bytes that the process had reserved at the dump.
    pub process_reserved: Option<u64>,
    /// PyTorch's version.
    pub torch: Option<String>,
    /// CUDA's version.
    pub cuda: Option<String>,
    /// Name of the device.
    pub device_name: Option<String>,
    /// Rank of the process in its group.
    pub rank: Option<i64>,
}

const BYTES_MAX: u64 = 1 << 16;

impl Sidecar {
    /// Where the sidecar of a file is.
    #[must_use]
    pub fn path_of(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(".json");
        PathBuf::from(name)
    }

    /// The sidecar beside a file; `None` where there is none.
    ///
    /// # Errors
    /// A sentence when there is one that cannot be read.
    pub fn beside(file: &Path) -> Result<Option<Self>, String> {
        let path = Self::path_of(file);
        let Ok(opened) = File::open(&path) else { return Ok(None) };
        let mut text = String::new();
        let read = opened.take(BYTES_MAX).read_to_string(&mut text);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        read.map_err(|e| failed(&e))?;
        serde_json::from_str(&text).map(Some).map_err(|e| failed(&e))
    }

    /// What it tells about limits.
    #[must_use]
    pub fn known(&self) -> Known {
        let fraction = self.memory_fraction.filter(|share| (0.0..1.0).contains(share));
        let limit = self.device_total.zip(fraction);
        Known {
            limit: limit.map(|(total, share)| (total as f64 * share) as u64),
            device_total: self.device_total,
        }
    }
}
