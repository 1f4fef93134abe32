//! Kernels: those of users by id, and the built-in ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use terrane_core::device::{DeviceError, Feature, KernelId, KernelSource, UnsafeKernelSource};

use crate::driver::Driver;

use super::fold;
use super::pipeline::{Pipeline, PipelineCache, Recipe};
use super::wgsl::{self, Bounds};

/// A kernel of a user's.
pub struct Kernel {
    pub pipeline: Arc<Pipeline>,
    /// The least bytes of each binding.
    pub least_bytes: Vec<u64>,
    /// The source and the entry point, kept for a kernel over very many workgroups.
    text: Option<(Arc<str>, Arc<str>)>,
    /// That kernel, once it is needed.
    folded: OnceLock<Arc<Pipeline>>,
}

/// The built-in kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    Fill,
    Verify,
    Checksum,
    /// Over bindings.
    Gather,
    /// Over device addresses.
    GatherByAddress,
}

/// All kernels of a device.
pub struct Kernels {
    cache: PipelineCache,
    next: AtomicU64,
    users: RwLock<HashMap<KernelId, Arc<Kernel>>>,
    builtin: Mutex<HashMap<Builtin, Arc<Pipeline>>>,
    int64: bool,
    driver: Arc<Driver>,
    /// Submissions with kernels.
    pub submissions: AtomicU64,
}

const PATTERN: &str = include_str!("kernels/pattern.wgsl");
const GATHER: &str = include_str!("kernels/gather.wgsl");
const GATHER_BY_ADDRESS: &[u8] = include_bytes!("kernels/gather.spv");

impl Kernels {
    pub fn new(driver: &Arc<Driver>, cache: PipelineCache, int64: bool) -> Self {
        Self {
            cache,
            next: AtomicU64::new(1),
            users: RwLock::default(),
            builtin: Mutex::default(),
            int64,
            driver: Arc::clone(driver),
            submissions: AtomicU64::new(0),
        }
    }

    /// Loads a safe kernel.
    pub fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        self.driver.check()?;
        let KernelSource::Wgsl { text, entry } = source else {
            return Err(DeviceError::Unsupported(Feature::KernelLanguage));
        };
        let checked = wgsl::check(text, entry, self.int64)?;
        let words = checked.words(entry, Bounds::Checked)?;
        let text = Some((Arc::clone(text), Arc::clone(entry)));
        self.add(&words, entry, checked.least_bytes, checked.push_bytes, text)
    }

    /// Loads SPIR-V, which the caller vouches for.
    pub fn load_unchecked(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        self.driver.check()?;
        let UnsafeKernelSource::SpirV { words, entry, bindings, push_bytes } = source else {
            return Err(DeviceError::Unsupported(Feature::KernelLanguage));
        };
        if words.first() != Some(&0x0723_0203) {
            return Err(DeviceError::InvalidCall("the words are no SPIR-V"));
        }
        self.add(words, entry, vec![1; *bindings as usize], *push_bytes, None)
    }

    fn add(
        &self,
        words: &[u32],
        entry: &str,
        least_bytes: Vec<u64>,
        push_bytes: u32,
        text: Option<(Arc<str>, Arc<str>)>,
    ) -> Result<KernelId, DeviceError> {
        let id = KernelId(self.next.fetch_add(1, Relaxed));
        let recipe = Recipe {
            words,
            entry,
            bindings: least_bytes.len() as u32,
            push_bytes,
            based: false,
            name: entry,
        };
        let pipeline = Arc::new(Pipeline::new(&self.driver, &self.cache, &recipe)?);
        let kernel = Kernel { pipeline, least_bytes, text, folded: OnceLock::new() };
        let kernel = Arc::new(kernel);
        self.users.write().unwrap_or_else(PoisonError::into_inner).insert(id, kernel);
        Ok(id)
    }

    /// The kernel for rows of more than `limit` workgroups, made the first time.
    pub fn folded(&self, kernel: &Kernel, limit: u32) -> Result<Arc<Pipeline>, DeviceError> {
        if let Some(pipeline) = kernel.folded.get() {
            return Ok(Arc::clone(pipeline));
        }
        let (text, entry) = kernel.text.as_ref().ok_or(DeviceError::InvalidCall(
            "more workgroups than the device's limit, in a kernel given as SPIR-V",
        ))?;
        let mut module = wgsl::check(text, entry, self.int64)?.module;
        fold::fold(&mut module, entry, limit)?;
        let checked = wgsl::inspect(module, entry, self.int64, text)?;
        let words = checked.words(entry, Bounds::Checked)?;
        let recipe = Recipe {
            words: &words,
            entry,
            bindings: checked.least_bytes.len() as u32,
            push_bytes: checked.push_bytes,
            based: true,
            name: entry,
        };
        let made = Arc::new(Pipeline::new(&self.driver, &self.cache, &recipe)?);
        Ok(Arc::clone(kernel.folded.get_or_init(|| made)))
    }

    /// Forgets a kernel; submissions that use it keep what they need.
    pub fn unload(&self, id: KernelId) -> Result<(), DeviceError> {
        let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
        let kernel = users.remove(&id);
        drop(users);
        let gone = kernel.map(drop);
        if self.driver.is_lost() {
            return Ok(());
        }
        gone.ok_or(DeviceError::InvalidCall("no such kernel"))
    }

    /// A user's kernel.
    pub fn get(&self, id: KernelId) -> Result<Arc<Kernel>, DeviceError> {
        let users = self.users.read().unwrap_or_else(PoisonError::into_inner);
        users.get(&id).cloned().ok_or(DeviceError::InvalidCall("no such kernel"))
    }

    /// A built-in kernel, made the first time.
    pub fn builtin(&self, which: Builtin) -> Result<Arc<Pipeline>, DeviceError> {
        let known =
            self.builtin.lock().unwrap_or_else(PoisonError::into_inner).get(&which).cloned();
        if let Some(pipeline) = known {
            return Ok(pipeline);
        }
        // Two threads may both make it; one of the two is then dropped.
        let made = Arc::new(self.make(which)?);
        let mut builtin = self.builtin.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(builtin.entry(which).or_insert(made)))
    }

    fn make(&self, which: Builtin) -> Result<Pipeline, DeviceError> {
        let (text, entry) = match which {
            Builtin::Fill => (PATTERN, "fill"),
            Builtin::Verify => (PATTERN, "verify"),
            Builtin::Checksum => (PATTERN, "checksum"),
            Builtin::Gather => (GATHER, "gather"),
            Builtin::GatherByAddress => return self.make_by_address(),
        };
        let checked = wgsl::check(text, entry, false)?;
        let words = checked.words(entry, Bounds::Trusted)?;
        let recipe = Recipe {
            words: &words,
            entry,
            bindings: checked.least_bytes.len() as u32,
            push_bytes: checked.push_bytes,
            based: false,
            name: entry,
        };
        Pipeline::new(&self.driver, &self.cache, &recipe)
    }

    fn make_by_address(&self) -> Result<Pipeline, DeviceError> {
        let word = |w: &[u8]| u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
        let words: Vec<u32> = GATHER_BY_ADDRESS.chunks_exact(4).map(word).collect();
        let recipe = Recipe {
            words: &words,
            entry: "main",
            bindings: 0,
            push_bytes: 24,
            based: false,
            name: "gather by address",
        };
        Pipeline::new(&self.driver, &self.cache, &recipe)
    }

    /// What a later run can begin its pipeline cache with.
    pub fn cache_data(&self) -> Result<Vec<u8>, DeviceError> {
        self.driver.check()?;
        self.cache.data()
    }
}
