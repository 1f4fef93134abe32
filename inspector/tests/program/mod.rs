//! The program, as the tests of its commands on files run it.

use std::path::PathBuf;
use std::process::Output;

use assert_cmd::Command;

/// A file of a run that ended for want of memory.
pub const OOM: &str = "snapshots/unet_multires.oom.pickle.gz";

/// The program, run in tests/data so that its output names files as written here.
pub fn terrane() -> Command {
    let mut command = Command::cargo_bin("terrane").unwrap();
    for name in ["DEVICE", "CAPACITY", "SCALE", "POLICY", "RECORD"] {
        command.env_remove(format!("TERRANE_{name}"));
    }
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command.current_dir(data()).env("TERRANE_QUIET", "1");
    command
}

pub fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data")
}

pub fn run(args: &[&str]) -> Output {
    terrane().args(args).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn shown(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

pub fn json(args: &[&str]) -> serde_json::Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&shown(&args)).unwrap()
}

pub fn snapshot(name: &str) -> String {
    format!("snapshots/{name}.frames.pickle.gz")
}
