//! Case 19: a process that ends with everything alive ends cleanly (wait mode: on the stream).

#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;

use terrane_core::device::host::{Host, HostGroup, HostKernel};
use terrane_core::device::sim::{Completion, Sim};
use terrane_core::device::{Device, KernelSource, StreamSpec};
use terrane_core::{Allocator, Request, Slice, Wait};

/// Says to the child which device to leave alive.
const CHILD: &str = "TERRANE_TEST_ENDS_WITH_EVERYTHING_ALIVE";

/// Live blocks, a held one, a mapped one, an open submission and work that is not done; then the
/// process ends without a drop. `last` is called before.
fn end_with_everything_alive(device: &Arc<dyn Device>, last: &dyn Fn()) -> ! {
    let alloc = Allocator::new(Arc::clone(device)).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let request = Request::new(1 << 20, stream).wait(Wait::OnStream);
    let buffers: Vec<_> = (0..64).map(|_| alloc.buffer(&request).unwrap()).collect();
    let pin = buffers[0].pin().unwrap();
    let mut submission = alloc.submit(stream);
    submission.resolve(buffers[1].handle()).unwrap();
    if device.info().backend == "vulkan" {
        // No closures there; many copies take their time too.
        let at = pin.at().place;
        let half = terrane_core::device::Place { offset: at.offset + (1 << 19), ..at };
        let op = terrane_core::device::CopyOp { from: at, to: half, bytes: 1 << 19 };
        for _ in 0..2_000 {
            device.copy(stream, &[op]).unwrap();
        }
    } else if let Some(compute) = device.compute() {
        let slow = |_: &HostGroup<'_>| std::thread::sleep(std::time::Duration::from_millis(20));
        let source = KernelSource::Host(HostKernel(Arc::new(slow)));
        let kernel = compute.load(&source).unwrap();
        let bindings = [Slice::write(buffers[2].handle())];
        alloc.dispatch(stream, kernel, &bindings, &[], [1_000, 1, 1]).unwrap();
    }
    device.fill(stream, pin.at().place, 4096, 7).unwrap();
    alloc.free(buffers[3].handle()).unwrap();
    last();
    std::process::exit(0);
}

/// Runs one test of this file again in a process of its own, as the child.
fn run_child(test: &str, device: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, device)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "the child said something");
}

#[test]
fn case_19_a_process_on_the_cpu_device_may_end_with_everything_alive() {
    if std::env::var(CHILD).as_deref() == Ok("host") {
        let device: Arc<dyn Device> = Host::new().limit(1 << 30).open().unwrap();
        end_with_everything_alive(&device, &|| ());
    }
    run_child("case_19_a_process_on_the_cpu_device_may_end_with_everything_alive", "host");
}

/// On the device named by TERRANE_VULKAN, or the best, under Khronos' validation layer, whose
/// messages the child prints. Without the two this is skipped, in words; TERRANE_REQUIRE_VULKAN=1
/// makes that a failure.
#[cfg(feature = "program")]
#[test]
fn case_19_a_process_on_vulkan_may_end_with_everything_alive() {
    use terrane::vulkan::{OpenOptions, Selector};
    let name = std::env::var("TERRANE_VULKAN").unwrap_or_default();
    let options = OpenOptions { validation: true, ..OpenOptions::default() };
    let opened = terrane::vulkan::open(&Selector::parse(&name), &options);
    let device = match opened {
        Ok(device) => device,
        Err(error) => {
            println!("skipped: {error}");
            assert!(std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none(), "{error}");
            return;
        }
    };
    if std::env::var(CHILD).as_deref() == Ok("vulkan") {
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        end_with_everything_alive(&shared, &|| {
            device.validation_messages().iter().for_each(|message| eprintln!("{message}"));
        });
    }
    run_child("case_19_a_process_on_vulkan_may_end_with_everything_alive", "vulkan");
}

#[test]
fn case_19_a_process_on_the_model_may_end_with_everything_alive() {
    if std::env::var(CHILD).as_deref() == Ok("sim") {
        let sim = Sim::slabs().completion(Completion::ByHand).open();
        end_with_everything_alive(&sim.shared(), &|| ());
    }
    run_child("case_19_a_process_on_the_model_may_end_with_everything_alive", "sim");
}
