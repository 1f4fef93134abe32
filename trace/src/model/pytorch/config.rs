//! PyTorch's allocator settings, as far as they change where memory goes.

use crate::model::spec::split_items;
use crate::model::{SpecError, Validation};

/// One mebibyte, the unit of every size in these settings.
pub(super) const MIB: u64 = 1 << 20;
/// Intervals of `roundup_power2_divisions`: 1 MiB, 2 MiB, up to 32 GiB and above.
const INTERVALS: usize = 16;

/// Settings of PyTorch's caching allocator. The default is PyTorch's default.
#[derive(Clone, Debug, PartialEq)]
pub struct PytorchConfig {
    /// Blocks of this many bytes or more are never split; `None`: all may be.
    pub max_split_bytes: Option<u64>,
    /// Waste allowed, in bytes, when a block too large to split is reused whole.
    pub max_non_split_rounding_bytes: u64,
    /// Share of the allowed memory above which cached segments are given back; 0 turns it off.
    /// Without effect unless `memory_fraction` is below 1.
    pub gc_threshold: f64,
    /// Divisions per power of two, for requests of 1 MiB (and less), 2 MiB, ...; 0 or 1: none.
    pub roundup_divisions: [u64; INTERVALS],
    /// One growing segment per stream and size class instead of many fixed ones.
    pub expandable_segments: bool,
    /// Share of the device that the process may reserve; 1 means no limit is set.
    pub memory_fraction: f64,
    /// Segment size for requests of 1 to 10 MiB, and handle size of large expandable segments.
    pub large_segment_bytes: u64,
    /// The same for requests up to 1 MiB; PyTorch has no setting for it.
    pub(crate) small_segment_bytes: u64,
}

impl Default for PytorchConfig {
    fn default() -> Self {
        Self {
            max_split_bytes: None,
            max_non_split_rounding_bytes: 20 * MIB,
            gc_threshold: 0.0,
            roundup_divisions: [0; INTERVALS],
            expandable_segments: false,
            memory_fraction: 1.0,
            large_segment_bytes: 20 * MIB,
            small_segment_bytes: 2 * MIB,
        }
    }
}

impl PytorchConfig {
    /// Reads the text of `PYTORCH_CUDA_ALLOC_CONF` (`key:value,key:value`). Keys that do not
    /// change placement (`pinned_*`, `release_lock_on_cudamalloc`, ...) are accepted and left.
    ///
    /// # Errors
    /// [`SpecError`] for an unknown key or a value that PyTorch would refuse.
    pub fn from_conf(text: &str) -> Result<Self, SpecError> {
        let mut config = Self::default();
        for item in split_items(text) {
            let (key, value) =
                item.split_once(':').ok_or_else(|| SpecError::value(item, "", ":"))?;
            config.set(key.trim(), value.trim())?;
        }
        Ok(config)
    }

    /// Sets one value by PyTorch's name of the setting.
    ///
    /// # Errors
    /// [`SpecError`] for an unknown key or a value that PyTorch would refuse.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "max_split_size_mb" => self.max_split_bytes = Some(mebibytes(key, value, 20)?),
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding_bytes = mebibytes(key, value, 20)?;
            }
            "large_segment_size_mb" => self.large_segment_bytes = mebibytes(key, value, 2)?,
            "garbage_collection_threshold" => self.gc_threshold = share(key, value, false)?,
            "per_process_memory_fraction" => self.memory_fraction = share(key, value, true)?,
            "expandable_segments" => self.expandable_segments = boolean(key, value)?,
            "roundup_power2_divisions" => self.roundup_divisions = divisions(key, value)?,
            "backend" if value == "native" => {}
            _ if NO_PLACEMENT.contains(&key) || key.starts_with("pinned_") => {}
            _ => return Err(SpecError::key(key)),
        }
        Ok(())
    }

    /// The text for `PYTORCH_CUDA_ALLOC_CONF` that gives these settings; empty for the default.
    #[must_use]
    pub fn to_conf(&self) -> String {
        let items = self.to_options();
        let items: Vec<String> =
            items.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        items.join(",")
    }

    /// The settings that differ from the default, by PyTorch's names.
    #[must_use]
    pub fn to_options(&self) -> Vec<(&'static str, String)> {
        let default = Self::default();
        let mut options = Vec::new();
        let mut option = |differs: bool, key: &'static str, value: String| {
            if differs {
                options.push((key, value));
            }
        };
        let mebibytes = |bytes: u64| (bytes / MIB).to_string();
        let (waste, segment) = (self.max_non_split_rounding_bytes, self.large_segment_bytes);
        let limit = self.max_split_bytes;
        option(self.expandable_segments, "expandable_segments", "True".to_owned());
        option(limit.is_some(), "max_split_size_mb", mebibytes(limit.unwrap_or(0)));
        option(
            waste != default.max_non_split_rounding_bytes,
            "max_non_split_rounding_mb",
            mebibytes(waste),
        );
        option(segment != default.large_segment_bytes, "large_segment_size_mb", mebibytes(segment));
        let (threshold, fraction) = (self.gc_threshold, self.memory_fraction);
        option(threshold > 0.0, "garbage_collection_threshold", threshold.to_string());
        option(fraction < 1.0, "per_process_memory_fraction", fraction.to_string());
        let rounds = self.roundup_divisions != default.roundup_divisions;
        option(rounds, "roundup_power2_divisions", self.divisions_text());
        options
    }

    /// How far the model may be believed with these settings.
    pub(crate) fn validation(&self) -> Validation {
        let default = Self::default();
        if *self == default {
            let against = "peaks of six runs on one H200, PyTorch 2.11, and segment events";
            return Validation::Validated { within_percent: 0.0, against };
        }
        if *self == (Self { expandable_segments: true, ..default }) {
            let against = "peaks of five runs on one H200, PyTorch 2.11";
            return Validation::Validated { within_percent: 0.3, against };
        }
        Validation::NotValidated { assumes: "PyTorch's published rules for these settings" }
    }

    fn divisions_text(&self) -> String {
        let first = self.roundup_divisions[0];
        if self.roundup_divisions.iter().all(|n| *n == first) {
            return first.to_string();
        }
        let listed = self.roundup_divisions.iter().enumerate();
        let listed: Vec<String> = listed.map(|(i, n)| format!("{}:{n}", 1u64 << i)).collect();
        format!("[{}]", listed.join(","))
    }

    /// What a request of `bytes` is rounded up to; `None` above the largest size there is.
    pub(super) fn rounded(&self, bytes: u64) -> Option<u64> {
        if bytes > MAX_REQUEST_BYTES {
            return None;
        }
        let interval = (bytes.max(MIB).ilog2() - MIB.ilog2()).min(INTERVALS as u32 - 1);
        let divisions = self.roundup_divisions[interval as usize];
        if divisions > 1 && bytes > BLOCK_BYTES_MIN * divisions {
            let step = (1u64 << bytes.ilog2()) >> divisions.ilog2();
            return Some(bytes.next_multiple_of(step.max(1)));
        }
        Some(bytes.max(1).next_multiple_of(BLOCK_BYTES_MIN))
    }
}

/// Every block is a multiple of this.
pub(super) const BLOCK_BYTES_MIN: u64 = 512;
/// PyTorch refuses larger requests at once (1 EiB).
const MAX_REQUEST_BYTES: u64 = 1 << 60;
const NO_PLACEMENT: [&str; 4] = [
    "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
    "expandable_segments_reserve",
];

fn mebibytes(key: &str, value: &str, min: u64) -> Result<u64, SpecError> {
    let parsed = value.parse::<u64>().ok().filter(|n| *n >= min).and_then(|n| n.checked_mul(MIB));
    parsed.ok_or_else(|| SpecError::value(key, value, "a whole number of MiB, not too small"))
}

fn share(key: &str, value: &str, one_allowed: bool) -> Result<f64, SpecError> {
    let fits = |n: &f64| *n > 0.0 && (*n < 1.0 || (one_allowed && *n <= 1.0));
    let parsed = value.parse::<f64>().ok().filter(fits);
    parsed.ok_or_else(|| SpecError::value(key, value, "a number between 0 and 1"))
}

fn boolean(key: &str, value: &str) -> Result<bool, SpecError> {
    match value {
        "True" | "true" => Ok(true),
        "False" | "false" => Ok(false),
        _ => Err(SpecError::value(key, value, "True or False")),
    }
}

/// One number for all intervals, or a list: the first entry also holds below it, `>` from the
/// last entry on.
fn divisions(key: &str, value: &str) -> Result<[u64; INTERVALS], SpecError> {
    let refuse = || SpecError::value(key, value, "a power of two, or [MiB:divisions,...,>:n]");
    let power =
        |text: &str| text.trim().parse::<u64>().ok().filter(|n| *n == 0 || n.is_power_of_two());
    let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return power(value).map(|n| [n; INTERVALS]).ok_or_else(refuse);
    };
    let mut table = [0; INTERVALS];
    let mut last = None;
    for entry in list.split(',') {
        let (from, count) = entry.split_once(':').ok_or_else(refuse)?;
        let count = power(count).ok_or_else(refuse)?;
        if from.trim() == ">" {
            table[last.unwrap_or(0)..].fill(count);
            continue;
        }
        let size = power(from).filter(|n| *n > 0).ok_or_else(refuse)?;
        let index = (size.ilog2() as usize).min(INTERVALS - 1);
        if last.is_none() {
            table[..index].fill(count);
        }
        table[index] = count;
        last = Some(index);
    }
    Ok(table)
}
