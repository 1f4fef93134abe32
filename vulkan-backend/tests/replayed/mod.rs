//! A recorded workload replayed on a device, with what the driver and the layer saw of it.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use terrane_trace::replay::{Options, Replay, Report, Target};
use terrane_trace::{Limits, open_csv};
use terrane_vulkan::{Call, VulkanDevice};

/// What a replay showed.
pub struct Replayed {
    pub report: Report,
    /// Calls that map or look at memory of blocks from the host, during the replay.
    pub host_looks: u64,
    pub messages: Vec<String>,
}

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// Replays a workload of `tests/data/traces` with every size divided by `scale`; every block is
/// filled by a kernel and verified by another before it is freed.
pub fn replay(device: &VulkanDevice, workload: &str, scale: u64) -> Answer<Replayed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    // On another machine than the one that built this, the repository is where it is run.
    let folder = if folder.is_dir() { folder } else { Path::new("tests/data/traces").into() };
    let trace = open_csv(&folder.join(format!("{workload}.native.csv.gz")), Limits::default())?;
    let mut options = Options::default();
    options.scale = NonZeroU64::new(scale).ok_or("a scale of 0")?;
    let looks = || -> u64 {
        let kinds = [Call::MapMemory, Call::InvalidateMemory];
        let calls = device.calls();
        calls.iter().filter(|stat| kinds.contains(&stat.call)).map(|stat| stat.count).sum()
    };
    let before = looks();
    let target = Target::Real(Arc::new(device.clone()));
    let report = Replay::new(workload, &trace, target, &options)?.run()?;
    Ok(Replayed { report, host_looks: looks() - before, messages: device.validation_messages() })
}

impl Replayed {
    /// What has to hold, in sentences that do not.
    pub fn wrong(&self) -> Vec<String> {
        let Report { mismatches, failures, verified_bytes, dispatches, .. } = self.report;
        let mut wrong = Vec::new();
        let mut check = |holds: bool, sentence: String| {
            if !holds {
                wrong.push(sentence);
            }
        };
        check(mismatches == 0, format!("{mismatches} blocks differ from their pattern"));
        check(failures == 0, format!("{failures} requests were refused"));
        check(verified_bytes > 0 && dispatches > 0, "nothing was verified by a kernel".to_owned());
        check(self.host_looks == 0, format!("the host mapped memory {} times", self.host_looks));
        check(self.messages.is_empty(), format!("the layer speaks: {:?}", self.messages));
        wrong
    }
}
