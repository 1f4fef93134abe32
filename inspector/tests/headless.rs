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
