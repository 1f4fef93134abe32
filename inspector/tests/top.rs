//! `terrane top`, as its users run it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::Output;

use assert_cmd::Command;

fn terrane() -> Command {
    let mut command = Command::cargo_bin("terrane").unwrap();
    for name in ["TERRANE_TOKEN", "TERRANE_CONTROL", "DISPLAY", "WAYLAND_DISPLAY"] {
        command.env_remove(name);
    }
    command.env("TERRANE_QUIET", "1");
    command
}

fn run(args: &[&str]) -> Output {
    terrane().args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn shown(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn top_shows_an_allocator_of_a_running_program() {
    use terrane_core::device::StreamSpec;
    let device = terrane_core::device::sim::Sim::cuda().open().shared();
    let alloc = terrane_core::Allocator::new(device.clone()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let block = alloc.buffer(&terrane_core::Request::new(3 << 20, stream)).unwrap();
    let meta = terrane_trace::file::Meta { program: "test".to_owned(), ..Default::default() };
    let tap = terrane_trace::file::Tap::new(&alloc, meta).socket();
    let tap = tap.tcp("127.0.0.1:0".parse().unwrap(), "the-token-of-this-test").unwrap();
    let (send, asked) = std::sync::mpsc::channel();
    let tap =
        tap.control("the-control-of-this-test", move |what| send.send(what).unwrap()).unwrap();
    let recorder = tap.start().unwrap();
    let own = std::process::id().to_string();
    let found: serde_json::Value =
        serde_json::from_str(&shown(&["top", "--json", "--process", &own])).unwrap();
    let line = &found.as_array().unwrap()[0];
    assert_eq!((&line["program"], &line["blocks"]), (&"test".into(), &1.into()));
    assert_eq!(line["requested"], 3 << 20);
    let table = shown(&["top", "--once", "--process", &own]);
    assert!(table.contains("3 MiB"), "{table}");
    shown(&["top", "--once", "--process", &own, "--device", ""]);
    let output = run(&["top", "--once", "--process", &own, "--device", "no such"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no program shows an allocator on"));
    let at = recorder.address().unwrap().to_string();
    let over_tcp = |token: &str| {
        let mut command = terrane();
        command.args(["top", "--once", "--tcp", &at]).env("TERRANE_TOKEN", token);
        command.output().unwrap()
    };
    assert!(text(&over_tcp("the-token-of-this-test").stdout).contains("3 MiB"));
    assert_eq!(over_tcp("another-token-of-a-test").status.code(), Some(2));
    let mut command = terrane();
    command.args(["top", "--compact", "--process", &own]);
    assert_eq!(command.output().unwrap().status.code(), Some(2), "without a token");
    assert!(asked.try_recv().is_err());
    command.env("TERRANE_CONTROL", "the-control-of-this-test");
    assert!(text(&command.output().unwrap().stdout).contains("3 MiB"));
    let what = asked.recv_timeout(std::time::Duration::from_secs(20));
    use terrane_trace::live::{Aim, Command as Asked, Compact};
    assert_eq!(what, Ok(Asked::Compact(Compact::default())));
    let limits = ["--goal", "room:64MiB", "--bytes", "1GiB", "--moves", "7", "--time", "50"];
    command.args(limits).args(["--mode", "background"]);
    assert!(text(&command.output().unwrap().stdout).contains("3 MiB"));
    let what = asked.recv_timeout(std::time::Duration::from_secs(20));
    let expected = Compact {
        aim: Aim::Room(64 << 20),
        bytes_max: 1 << 30,
        moves_max: 7,
        time_max_ms: 50,
        background: true,
    };
    assert_eq!(what, Ok(Asked::Compact(expected)));
    for bad in [["--goal", "nothing"], ["--bytes", "0"], ["--moves", "0"], ["--time", "600001"]] {
        let mut command = terrane();
        command.args(["top", "--compact", "--process", &own]).args(bad);
        assert_eq!(command.output().unwrap().status.code(), Some(2), "{bad:?}");
    }
    let output = run(&["top", "--moves", "7"]);
    assert_eq!(output.status.code(), Some(2), "a limit of nothing");
    drop((block, recorder));
    let output = run(&["top", "--once", "--process", &own]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("terrane::inspect"), "{}", text(&output.stderr));
}
