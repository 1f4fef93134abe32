//! Every view as a picture, by the program itself and without a display.

#![cfg(feature = "gui")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::path::PathBuf;
use std::process::{Command, Output};

const VIEWS: [&str; 16] = [
    "heap-map",
    "address-time",
    "timeline",
    "streams",
    "compaction",
    "allocations",
    "segments",
    "sites",
    "events",
    "flame",
    "diff",
    "leaks",
    "explain",
    "whatif",
    "budget",
    "details",
];

fn draw(args: &[&str]) -> Output {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrane"));
    command.arg("inspect").arg(data.join("leak_accumulating.frames.pickle.gz")).args(args);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").output().unwrap()
}

/// Width and height, as the picture's first chunk has them.
fn size(png: &[u8]) -> (u32, u32) {
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[test]
fn every_view_is_drawn_at_the_peak_without_a_display() {
    let mut pictures = Vec::new();
    for view in VIEWS {
        let args = ["--view", view, "--at", "PEAK", "--size", "960x600", "--screenshot", "-"];
        let output = draw(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{view}: {said}");
        assert_eq!(size(&output.stdout), (960, 600), "{view}");
        pictures.push(output.stdout);
    }
    pictures.sort();
    pictures.dedup();
    assert_eq!(pictures.len(), VIEWS.len(), "two views are the same picture");
}

#[test]
fn a_moment_or_a_size_that_is_none_is_told_with_what_to_say_instead() {
    for (args, words) in [
        (["--at", "TEATIME", "--screenshot", "x.png"], "say PEAK, FAILURE, START, END"),
        (["--size", "9x9", "--screenshot", "x.png"], "from 200x150"),
        (["--view", "heap-map", "--at", "PEAK"], "--screenshot"),
    ] {
        let output = draw(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let output = draw(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("draw a picture instead"), "{said}");
}

#[test]
fn a_difference_is_drawn_to_any_moment_and_to_another_file() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let other = data.join("leak_fragmenting.frames.pickle.gz");
    let other = other.to_str().unwrap();
    let mut pictures = Vec::new();
    for before in [
        &["--before", "START"][..],
        &["--before", "2000"],
        &["--before-file", other],
        &["--before-file", other, "--before", "START"],
    ] {
        let args = ["--view", "diff", "--size", "640x400", "--screenshot", "-"];
        let output = draw(&[&args, before].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{before:?}: {said}");
        pictures.push(output.stdout);
    }
    pictures.sort();
    pictures.dedup();
    assert_eq!(pictures.len(), 4, "two differences are the same picture");
    let args = ["--view", "diff", "--before-file", "absent.pickle", "--screenshot", "-"];
    let output = draw(&args);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The file of three devices that the window's tests have, as small as can be.
fn two_devices(folder: &std::path::Path) -> PathBuf {
    let entries = |mib: u64| {
        let entry = |action: &str, size: u64| {
            format!(
                r#"{{"action":"{action}","addr":{},"size":{size},"stream":0,"time_us":1,"frames":[]}}"#,
                1_u64 << 40
            )
        };
        let made = [entry("segment_alloc", 64 << 20), entry("alloc", mib << 20)];
        format!("[{}]", made.join(","))
    };
    let text = format!(r#"{{"segments":[],"device_traces":[{},{}]}}"#, entries(8), entries(48));
    let path = folder.join("two.json");
    std::fs::write(&path, text).unwrap();
    path
}

fn inspect(args: &[&std::ffi::OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrane"));
    command.arg("inspect").args(args);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").output().unwrap()
}

#[test]
fn each_device_of_a_file_has_a_picture_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = two_devices(dir.path());
    let draw = |device: &str| {
        let args = ["--device", device, "--view", "heap-map", "--size", "640x400"];
        let args = args.into_iter().chain(["--screenshot", "-"]).map(std::ffi::OsStr::new);
        inspect(&std::iter::once(path.as_os_str()).chain(args).collect::<Vec<_>>())
    };
    let (first, second, none) = (draw("0"), draw("1"), draw("2"));
    assert!(first.status.success() && second.status.success());
    assert_eq!(size(&first.stdout), (640, 400));
    assert!(first.stdout != second.stdout, "both devices look the same");
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(none.status.code(), Some(2), "{said}");
    assert!(said.contains("no device 2") && said.contains("0, 1"), "{said}");
}

#[test]
fn a_running_program_is_drawn_without_a_display() {
    use terrane_core::device::sim::Sim;
    use terrane_core::device::{Device as _, StreamSpec};
    use terrane_core::{Allocator, Request};
    let device = Sim::slabs().open();
    let alloc = Allocator::new(device.shared()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let request = |bytes| alloc.alloc(&Request::new(bytes, stream)).unwrap().handle;
    let blocks: Vec<_> = (0..300).map(|number| request(40_000 + number * 1000)).collect();
    let meta = terrane_trace::file::Meta::default();
    let recorder = terrane_trace::file::Tap::new(&alloc, meta).socket().start().unwrap();
    // Half of them go while it is looked on at.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let goes_on = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for pair in blocks.chunks(2).cycle().take_while(|_| goes_on()) {
                alloc.free(request(pair.len() as u64 * 10_000)).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let process = std::process::id().to_string();
        let mut pictures = Vec::new();
        for view in ["heap-map", "timeline", "events"] {
            let args = ["--attach", &process, "--watch", "0.5", "--view", view];
            let args = args.into_iter().chain(["--size", "800x500", "--screenshot", "-"]);
            let output = inspect(&args.map(std::ffi::OsStr::new).collect::<Vec<_>>());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{view}: {said}");
            assert_eq!(size(&output.stdout), (800, 500), "{view}");
            pictures.push(output.stdout);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        pictures.sort();
        pictures.dedup();
        assert_eq!(pictures.len(), 3, "two views are the same picture");
    });
    drop(recorder);
    let args = ["--attach", "no-such-program", "--screenshot", "-"].map(std::ffi::OsStr::new);
    let output = inspect(&args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("neither the number nor the name"), "{said}");
}
