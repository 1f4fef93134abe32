//! The real window, with real key and mouse events, on a display that nobody sees.

#![cfg(feature = "gui")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends what was started, however the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// A display number that no server has.
fn display() -> (Ended, String) {
    for number in 91 + std::process::id() % 400..600 {
        if Path::new(&format!("/tmp/.X11-unix/X{number}")).exists() {
            continue;
        }
        let name = format!(":{number}");
        let mut server = Command::new("Xvfb");
        // Without -noreset it starts anew when the first client leaves, and turns others away.
        server.args([&name, "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-noreset"]);
        let server = Ended(server.stderr(Stdio::null()).spawn().unwrap());
        wait("the display", || !xdotool(&name, &["getdisplaygeometry"]).is_empty());
        return (server, name);
    }
    panic!("no display number is free");
}

fn wait(what: &str, mut there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !there() {
        assert!(begin.elapsed() < Duration::from_secs(40), "{what} did not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn xdotool(display: &str, args: &[&str]) -> String {
    let output = Command::new("xdotool").args(args).env("DISPLAY", display).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn settings(home: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read(home.join("terrane/inspector.json")).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Ticks of CPU time that a process has used, 10 ms each.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // After the name, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Idle for a minute, with a file and with a program that tells nothing.
#[test]
#[ignore = "takes two minutes, run alone: cargo test --release -p terrane-inspector --test window idle -- --ignored --nocapture"]
fn an_idle_window_takes_a_thousandth_of_a_processor_at_most() {
    use terrane_core::device::{Device as _, StreamSpec, sim::Sim};
    let (_server, display) = display();
    let home = tempfile::tempdir().unwrap();
    let device = Sim::cuda().open();
    let alloc = terrane_core::Allocator::new(device.shared()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let _block = alloc.buffer(&terrane_core::Request::new(3 << 20, stream)).unwrap();
    let _shown = terrane::tap(&alloc).socket().start().unwrap();
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let file = data.join("unet_multires.oom.pickle.gz");
    let own = std::process::id().to_string();
    let sources = [vec![file.to_str().unwrap()], vec!["--attach", &own]];
    for source in sources {
        let mut window = Command::new(env!("CARGO_BIN_EXE_terrane"));
        window.arg("inspect").args(&source).env("DISPLAY", &display).env_remove("WAYLAND_DISPLAY");
        window.env("XDG_CONFIG_HOME", home.path()).stderr(Stdio::null());
        let window = Ended(window.spawn().unwrap());
        let find = ["search", "--onlyvisible", "--name", "Terrane"];
        wait("the window", || !xdotool(&display, &find).is_empty());
        // Everything is read and drawn by then.
        std::thread::sleep(Duration::from_secs(12));
        let before = ticks(window.0.id());
        std::thread::sleep(Duration::from_secs(60));
        let used = ticks(window.0.id()) - before;
        println!("{source:?}: {} ms of 60 s", used * 10);
        assert!(used <= 6, "{source:?}: {} ms", used * 10);
    }
}

#[test]
fn the_window_opens_a_file_takes_keys_and_the_mouse_and_keeps_settings() {
    for program in ["Xvfb", "xdotool"] {
        if !is_installed(program) {
            println!("skipped: {program} is not installed");
            return;
        }
    }
    let (_server, display) = display();
    let home = tempfile::tempdir().unwrap();
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    let file = data.join("unet_multires.oom.pickle.gz");
    let mut window = Command::new(env!("CARGO_BIN_EXE_terrane"));
    window.arg("inspect").arg(&file).env("DISPLAY", &display).env_remove("WAYLAND_DISPLAY");
    window.env("XDG_CONFIG_HOME", home.path()).stderr(Stdio::piped());
    let mut window = Ended(window.spawn().unwrap());
    let find = ["search", "--onlyvisible", "--name", "Terrane"];
    wait("the window", || {
        if let Some(status) = window.0.try_wait().unwrap() {
            let mut text = String::new();
            let _ = window.0.stderr.take().unwrap().read_to_string(&mut text);
            panic!("the window ended with {status}: {text}");
        }
        !xdotool(&display, &find).is_empty()
    });
    // The file is remembered once it is open.
    wait("the file", || {
        settings(home.path()).is_some_and(|s| s["recent"].as_array().is_some_and(|r| !r.is_empty()))
    });
    let id = xdotool(&display, &find).lines().next().unwrap().to_owned();
    xdotool(&display, &["windowfocus", &id]);
    // The axis of time by clock, by its key.
    wait("the key T", || {
        xdotool(&display, &["key", "t"]);
        std::thread::sleep(Duration::from_millis(400));
        settings(home.path()).is_some_and(|s| s["axis"] == "Clock")
    });
    // A theme from the palette, by typing.
    wait("the palette", || {
        xdotool(&display, &["key", "ctrl+k"]);
        std::thread::sleep(Duration::from_millis(300));
        xdotool(&display, &["type", "light theme"]);
        std::thread::sleep(Duration::from_millis(300));
        xdotool(&display, &["key", "Return"]);
        std::thread::sleep(Duration::from_millis(500));
        settings(home.path()).is_some_and(|s| s["theme"] == "Light")
    });
    // The layout from the menu bar's right end, by the mouse.
    let before = settings(home.path()).unwrap()["dock"].clone();
    wait("the mouse", || {
        xdotool(&display, &["mousemove", "1245", "10", "click", "1"]);
        std::thread::sleep(Duration::from_millis(500));
        settings(home.path()).is_some_and(|s| s["dock"] != before)
    });
    xdotool(&display, &["key", "ctrl+q"]);
    wait("the end", || window.0.try_wait().unwrap().is_some());
    assert!(window.0.wait().unwrap().success());
}
