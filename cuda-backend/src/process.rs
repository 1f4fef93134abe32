//! What this process holds of the device's memory by all means, as NVML tells it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::inner::Inner;

/// NVML takes about a millisecond, so its answer serves for this long.
const FRESH: Duration = Duration::from_millis(500);

/// The last answer and when it came.
#[derive(Default)]
pub(crate) struct ProcessUse {
    last: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Inner {
    /// Bytes that this process holds; `None` where nobody tells, as in a container that hides
    /// process numbers.
    pub(crate) fn process_use(&self) -> Option<u64> {
        let mut last = crate::inner::lock(&self.process_use.last);
        if let Some((when, answer)) = *last
            && when.elapsed() < FRESH
        {
            return answer;
        }
        let answer = ask(self.info.uuid?);
        *last = Some((Instant::now(), answer));
        answer
    }
}

#[cfg(feature = "nvml")]
fn ask(uuid: [u8; 16]) -> Option<u64> {
    use std::sync::OnceLock;

    use nvml_wrapper::Nvml;
    use nvml_wrapper::enums::device::UsedGpuMemory;

    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    let nvml = NVML.get_or_init(|| Nvml::init().ok()).as_ref()?;
    let device = nvml.device_by_uuid(uuid_text(uuid)).ok()?;
    let own = std::process::id();
    let processes = device.running_compute_processes().ok()?;
    let mine = processes.iter().find(|process| process.pid == own)?;
    match mine.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    }
}

#[cfg(not(feature = "nvml"))]
fn ask(_uuid: [u8; 16]) -> Option<u64> {
    None
}

/// The UUID as NVML and `nvidia-smi -L` write it.
#[cfg(any(feature = "nvml", test))]
pub(crate) fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
