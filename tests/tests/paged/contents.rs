//! Contents: recorded workloads, scaled, every block filled and verified by kernels while pages
//! are stolen under them.

use std::num::NonZeroU64;
use std::path::PathBuf;

use terrane_trace::replay::{Capacity, Options, Replay, Target};
use terrane_trace::{Limits, open_csv};

fn verified(name: &str, device: &terrane::Opened, trace: &str, scale: u64, times: f64) {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces");
    let trace = open_csv(&data.join(format!("{trace}.native.csv.gz")), Limits::default()).unwrap();
    let mut options = Options::default();
    options.scale = NonZeroU64::new(scale).unwrap();
    options.paging = Some(true);
    options.capacity = Capacity::Times(times);
    let target = Target::Real(device.device.clone());
    let report = Replay::new(name, &trace, target, &options).unwrap().run().unwrap();
    assert_eq!((report.failures, report.mismatches), (0, 0), "{name}: {report:?}");
    assert!(report.pages_stolen > 0, "{name}: no page was stolen, so nothing is shown");
    assert!(report.verified_bytes > 0, "{name}");
    println!(
        "{name}: {} pages made, {} stolen, {} bytes verified, reserved {:.4} of requested",
        report.pages_created, report.pages_stolen, report.verified_bytes, report.ratio
    );
}

#[test]
fn contents_survive_stealing_on_the_cpu() {
    let host = terrane::open(&terrane::Choice::Host).unwrap();
    verified("multistream on host", &host, "multistream", 512, 1.6);
}

#[test]
fn contents_survive_stealing_on_vulkan() {
    let opened = match terrane::open(&terrane::Choice::Vulkan(String::new())) {
        Ok(opened) if opened.device.caps().paging.is_some() => opened,
        Ok(opened) => {
            println!("skipped: {} can not page", opened.device.info().name);
            return;
        }
        Err(error) => {
            println!("skipped: {error}");
            assert!(std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none(), "{error}");
            return;
        }
    };
    verified("multistream on vulkan", &opened, "multistream", 512, 1.6);
}
