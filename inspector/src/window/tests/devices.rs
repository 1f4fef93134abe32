//! A file that tells of several devices: each of them can be looked at.

use egui_kittest::kittest::Queryable as _;

use super::*;
use crate::window::load::open_device;

const MIB: u64 = 1 << 20;

/// Three blocks on device 0, of which one is freed; one block on device 1; a segment on device 2,
/// which has no history.
fn file(folder: &std::path::Path) -> PathBuf {
    let entry = |action: &str, addr: u64, mib: u64, time_us: u64| {
        serde_json::json!({ "action": action, "addr": addr, "size": mib * MIB, "stream": 0,
            "time_us": time_us, "frames": [] })
    };
    let (a, b, c) = (0x7f00_0000_0000, 0x7f40_0000_0000, 0x7f80_0000_0000_u64);
    let first = [
        entry("segment_alloc", a, 32, 10),
        entry("alloc", a, 8, 20),
        entry("alloc", a + 8 * MIB, 4, 30),
        entry("alloc", a + 12 * MIB, 2, 40),
        entry("free_requested", a, 8, 50),
        entry("free_completed", a, 8, 50),
    ];
    let second = [entry("segment_alloc", b, 64, 10), entry("alloc", b, 48, 20)];
    let block = serde_json::json!({ "address": c, "size": 16 * MIB, "requested_size": 16 * MIB,
        "state": "active_allocated", "frames": [] });
    let segment = serde_json::json!({ "device": 2, "address": c, "total_size": 16 * MIB,
        "allocated_size": 16 * MIB, "active_size": 16 * MIB, "stream": 0, "segment_type": "large",
        "is_expandable": false, "frames": [], "blocks": [block] });
    let whole = serde_json::json!({ "segments": [segment], "device_traces": [first, second] });
    let path = folder.join("three.json");
    std::fs::write(&path, serde_json::to_vec(&whole).unwrap()).unwrap();
    path
}

#[test]
fn each_device_of_a_file_is_opened_by_its_number_and_another_number_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path());
    let of = |device| {
        let recording = open_device(&path, device).unwrap();
        assert_eq!(recording.devices, [0, 1, 2]);
        let moment = crate::window::model::Moment::of(&recording, recording.peak());
        (recording.device, moment.requested / MIB, moment.reserved / MIB)
    };
    assert_eq!(of(None), (0, 14, 32), "the one with the longest history");
    assert_eq!([of(Some(0)), of(Some(1))], [(0, 14, 32), (1, 48, 64)]);
    assert_eq!(of(Some(2)), (2, 16, 16));
    let said = open_device(&path, Some(7)).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("no device 7") && said.contains("0, 1, 2"), "{said}");
    let said = open_device(&data(STREAMS), Some(3)).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains('3'), "{said}");
}

#[test]
fn the_device_is_chosen_in_the_window_and_kept_in_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path());
    let mut inspector = empty();
    inspector.add(open(&path, &Progress::default()).unwrap());
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    harness.get_by_label("device").click();
    harness.run_steps(3);
    harness.get_by_label("device 1").click();
    settled(&mut harness);
    let document = harness.state_mut().document().unwrap();
    assert_eq!((document.recording.device, document.moment.requested), (1, 48 * MIB));
    let note = "Device 1 is shown; 1 segment of other devices";
    assert!(document.recording.notes.iter().any(|it| it.starts_with(note)));
    let ctx = harness.ctx.clone();
    let line = harness.state().as_command(&ctx);
    assert!(line.contains("three.json' --device 1 --view"), "{line}");
    // A file of one device offers no choice.
    harness.state_mut().add(open(&data(OOM), &Progress::default()).unwrap());
    settled(&mut harness);
    assert_eq!(harness.query_all_by_label("device").count(), 0);
    let line = harness.state().as_command(&ctx);
    assert!(!line.contains("--device"), "{line}");
}
