//! The software driver places what the model places; tests/tests/placements.rs has the others.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use terrane_core::device::Device;
use terrane_core::device::sim::Sim;
use terrane_core::device::wrap::{Common, Paced};
use terrane_trace::replay::{Options, Policy, Replay, Report, Target};
use terrane_trace::{Limits, Trace, open_csv};

use super::{CudaDevice, FakeDriver};
use crate::driver::Driver;
use crate::{Options as Open, Selector};

/// A device with the memory that all devices have in common; it is asked for at opening.
fn software() -> Arc<dyn Device> {
    let fake = Arc::new(FakeDriver::default());
    fake.state().memory.capacity = 4 << 30;
    let driver: Arc<dyn Driver> = fake;
    Arc::new(CudaDevice::open_with(driver, &Selector::Index(0), Open::default()).unwrap())
}

fn replay(trace: &Trace, device: Arc<dyn Device>, common: Common, policy: Policy) -> Report {
    let mut options = Options::default();
    let scale = trace.figures().peak_requested.div_ceil(512 << 20);
    options.scale = NonZeroU64::new(scale).unwrap();
    (options.policy, options.paging) = (policy, Some(common == Common::Pages));
    (options.contents, options.placements) = (false, true);
    let target = Target::Paced(Paced::new(device, common).unwrap());
    Replay::new("test", trace, target, &options).unwrap().run().unwrap()
}

#[test]
fn every_block_of_a_trace_is_placed_as_on_the_model() {
    for name in ["multistream", "resnet50_amp"] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
        let trace = open_csv(&file.join(format!("{name}.native.csv.gz")), Limits::default());
        let trace = trace.unwrap();
        for common in [Common::Slabs, Common::Pages] {
            for policy in [Policy::Completed, Policy::Wait] {
                let cuda = replay(&trace, software(), common, policy);
                let model = replay(&trace, Sim::vulkan().open().shared(), common, policy);
                assert!(cuda.placements.is_some() && cuda.failures == 0, "{cuda:?}");
                let shown = |report: &Report| {
                    (report.placements.clone(), report.peak_reserved, report.pages_stolen)
                };
                assert_eq!(shown(&cuda), shown(&model), "{name}, {common:?}, {policy:?}");
            }
        }
    }
}
