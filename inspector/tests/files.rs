//! The commands that read files, as their users run them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::path::Path;

mod program;

use program::{OOM, data, json, run, shown, snapshot, terrane, text};

fn trace(name: &str) -> String {
    format!("traces/{name}.native.csv.gz")
}

fn file(dir: &Path, name: &str, contents: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, contents).unwrap();
    path.display().to_string()
}

#[test]
fn every_command_prints_what_it_printed() {
    let multistream = snapshot("multistream");
    let leak = snapshot("leak_accumulating");
    let fragmenting = snapshot("leak_fragmenting");
    let recorded = trace("multistream");
    let cases: [(&str, &[&str]); 17] = [
        ("verdict_oom", &[OOM]),
        ("verdict_leak", &[&leak]),
        ("explain", &["explain", OOM]),
        ("explain_capacity", &["explain", OOM, "--limit", "18GB"]),
        ("explain_nothing", &["explain", &multistream]),
        ("info", &["info", OOM, &multistream, &recorded]),
        ("peak", &["peak", &multistream]),
        ("peak_by_size", &["peak", &recorded, "--rows", "5"]),
        ("sites", &["sites", "--by", "top", "--at", "end", &leak]),
        ("timeline", &["timeline", &multistream, "--points", "12"]),
        ("leaks", &["leaks", &leak]),
        ("leaks_fragmenting", &["leaks", &fragmenting]),
        ("why", &["why", &fragmenting, "300"]),
        ("whatif", &["whatif", &recorded, "--model", "pytorch", "--model", "pytorch-expandable"]),
        ("tune", &["tune", OOM, "--card", "24GB"]),
        ("fit", &["fit", OOM]),
        ("diff", &["diff", &multistream, &leak]),
    ];
    for (name, args) in cases {
        insta::assert_snapshot!(name, shown(args));
    }
}

#[test]
fn the_recorded_failure_is_explained_by_its_numbers() {
    let found = json(&["explain", OOM]);
    assert_eq!(found["class"], "fragmentation");
    assert_eq!((&found["failures"], &found["survived"]["count"]), (&54.into(), &53.into()));
    assert_eq!(found["chain"]["segment_bytes"], 698_u64 << 20);
    assert_eq!((&found["exact"], &found["fault"]["fatal"]), (&true.into(), &true.into()));
    let at_most = found["limit"]["at_most"].as_u64().unwrap();
    let at_least = found["limit"]["at_least"].as_u64().unwrap();
    assert!((at_least..=at_most).contains(&23_500_000_000), "{at_least} to {at_most}");
}

/// The command without the quotes that a shell takes off.
fn arguments(command: &str, file: &str) -> Vec<String> {
    let words = command.split_whitespace().skip(1);
    words.map(|word| word.trim_matches('\'').replace("FILE", file)).collect()
}

#[test]
fn every_remedy_that_is_printed_serves_the_request_when_its_command_is_run() {
    for limit in [None, Some("23500000000"), Some("21.9GiB")] {
        let limits: Vec<&str> = limit.iter().flat_map(|limit| ["--limit", *limit]).collect();
        let found = json(&[&["explain", OOM][..], &limits].concat());
        let remedies = found["remedies"].as_array().unwrap();
        assert!(!remedies.is_empty());
        for remedy in remedies {
            let args = arguments(remedy["command"].as_str().unwrap(), OOM);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let again = json(&args);
            assert_eq!(again["failures"], 0, "{args:?}");
            for key in ["peak_reserved", "survived_failures", "capacity", "retries"] {
                assert_eq!(again[key], remedy[key], "{key}: {args:?}");
            }
        }
        // The premise fails without the remedy: under the settings of the run it fails again.
        let capacity = remedies[0]["capacity"].to_string();
        let before = json(&["whatif", OOM, "--allocator", "pytorch", "--capacity", &capacity]);
        assert!(before["failures"].as_u64().unwrap() > 0, "{before}");
    }
}

#[test]
fn where_live_and_asked_exceed_the_limit_no_setting_is_advised() {
    let found = json(&["explain", OOM, "--limit", "18000000000"]);
    assert_eq!(found["class"], "capacity");
    assert_eq!(found["remedies"].as_array().unwrap().len(), 0);
    assert!(found["short_bytes"].as_u64().unwrap() > 1_000_000_000);
    assert!(!found["to_cut"]["rows"].as_array().unwrap().is_empty());
    assert_eq!(json(&["explain", OOM, "--limit", "500MB"])["class"], "user-limit");
    let absurd = json(&["explain", OOM, "--device-total", "600MiB"]);
    assert_eq!(absurd["class"], "absurd-request");
}

#[test]
fn what_the_file_does_not_say_is_read_from_the_sidecar_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(data().join(OOM)).unwrap();
    let path = file(dir.path(), "oom.pickle", &bytes);
    let sidecar = r#"{"device_total": 150110011392, "memory_fraction": 0.15655}"#;
    file(dir.path(), "oom.pickle.json", sidecar.as_bytes());
    let found = json(&["explain", &path]);
    assert_eq!(found["limit"]["given"].as_u64().unwrap() / 1_000_000_000, 23);
    assert_eq!(found["class"], "fragmentation");
    assert!(found["untracked"].as_u64().is_some());
    file(dir.path(), "oom.pickle.json", b"{nonsense");
    let output = run(&["explain", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("oom.pickle.json"), "{}", text(&output.stderr));
}

const MESSAGE: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 698.00 MiB. \
    GPU 0 has a total capacity of 139.80 GiB of which 117.73 GiB is free. 21.89 GiB allowed; Of \
    the allocated memory 17.84 GiB is allocated by PyTorch, and 3.61 GiB is reserved by PyTorch \
    but unallocated.";

#[test]
fn a_message_alone_is_explained_as_far_as_it_goes() {
    let output = terrane().args(["explain", "-", "--json"]).write_stdin(MESSAGE).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["class"], "fragmentation");
    let output = terrane().args(["explain", "-"]).write_stdin(MESSAGE).output().unwrap();
    insta::assert_snapshot!("explain_message", text(&output.stdout));
    let output = terrane().args(["explain", "-"]).write_stdin("all is well").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Tried to allocate"), "{}", text(&output.stderr));
}

#[test]
fn leaks_have_their_class_in_json() {
    for (name, class) in [
        ("leak_accumulating", "accumulating"),
        ("leak_exponential", "exponential"),
        ("leak_fragmenting", "fragmenting"),
    ] {
        let found = json(&["leaks", &snapshot(name)]);
        assert_eq!(found["class"], class);
        assert!(found["line"].as_str().unwrap().starts_with("workloads.py:"), "{found}");
    }
}

#[test]
fn whatif_gives_the_peaks_that_were_recorded() {
    // What the allocator reached that was recorded; see tests/data/README.md.
    for (name, native) in [
        ("resnet50_amp", 7_295_991_808_u64),
        ("multistream", 11_184_111_616),
        ("bert_large_ckpt", 9_787_408_384),
    ] {
        let found = json(&["whatif", &trace(name), "--allocator", "pytorch"]);
        assert_eq!(found["peak_reserved"], native, "{name}");
        let keys = ["model", "peak_requested", "peak_reserved", "failures", "retries"];
        assert!(keys.iter().all(|key| !found[*key].is_null()), "{found}");
    }
    let all = json(&["whatif", &trace("resnet50_amp")]);
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 8);
    let ours = all.iter().find(|found| found["model"] == "terrane").unwrap();
    assert!(ours["peak_reserved"].as_u64().unwrap() <= 7_295_991_808, "{ours}");
}

#[test]
fn a_card_is_its_memory_less_what_is_untracked() {
    let args = ["whatif", OOM, "--model", "pytorch", "--card", "24GB", "--untracked", "1GiB"];
    let found = json(&args);
    assert_eq!(found["capacity"], 23_u64 << 30);
    assert!(shown(&args).contains("24 GiB - 1 GiB untracked"), "{}", shown(&args));
}

#[test]
fn tune_says_the_line_and_whether_it_fits() {
    let found = json(&["tune", OOM, "--card", "24GB"]);
    assert_eq!(found["line"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    assert_eq!(found["fits"], true);
    let short = shown(&["tune", &trace("resnet50_amp"), "--capacity", "0.5x"]);
    assert!(short.starts_with("No setting helps"), "{short}");
}

#[test]
fn check_ends_with_1_when_a_threshold_is_exceeded() {
    let leak = snapshot("leak_accumulating");
    let good = run(&["check", &leak, "--max-reserved", "2GiB", "--max-failures", "0"]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    let bad = run(&["check", &leak, "--no-leak", "--max-ratio", "1.5", "--json"]);
    assert_eq!(bad.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&bad.stdout).unwrap();
    assert_eq!((&found["ok"], &found["rules"][1]["ok"]), (&false.into(), &false.into()));
    assert_eq!(run(&["check", &leak]).status.code(), Some(2));
    let failed = run(&["check", OOM, "--max-failures", "10"]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed.stdout));
}

#[test]
fn a_block_is_found_by_number_and_by_an_address_inside() {
    let file = snapshot("leak_accumulating");
    let by_number = json(&["why", &file, "40"]);
    let address = by_number["address"].as_u64().unwrap();
    let inside = format!("{:#x}", address + 1);
    let by_address = json(&["why", &file, &inside]);
    assert_eq!(by_address["address"].as_u64().unwrap(), address);
    let output = run(&["why", &file, "99999999"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn of_several_ranks_the_one_that_failed_first_is_named() {
    let found = json(&["info", &snapshot("multistream"), OOM]);
    assert_eq!(found["failed_first"], OOM);
    assert!(!found["differences"].as_array().unwrap().is_empty());
}

#[test]
fn files_that_are_nothing_and_damaged_ones_are_refused_with_place_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(data().join(OOM)).unwrap();
    let cases: [(&str, &[u8], &str); 7] = [
        ("empty", b"", "is empty"),
        ("elf", b"\x7fELF and more", "PyTorch snapshots"),
        ("other.json", b"{\"a\": 1}", "neither a PyTorch snapshot"),
        ("cut.json", b"{\"segments\": [", "ends early"),
        ("bad.json", b"{\"segments\": [}", "line 1, column 15"),
        ("cut.pickle.gz", &whole[..whole.len() / 2], "early"),
        ("code.pickle", b"\x80\x04cos\nsystem\n.", "refused"),
    ];
    for (name, contents, reason) in cases {
        let path = file(dir.path(), name, contents);
        let output = run(&["info", &path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(reason) && said.contains(name), "{name}: {said}");
    }
}

#[test]
fn howto_prints_python_that_compiles() {
    let script = shown(&["howto", "pytorch"]);
    assert!(script.contains("_record_memory_history") && script.contains("terrane_dump"));
    let check = "import ast, sys; ast.parse(sys.stdin.read())";
    let Ok(mut python) = std::process::Command::new("python3")
        .args(["-c", check])
        .stdin(std::process::Stdio::piped())
        .spawn()
    else {
        // Without Python there is nobody to ask.
        return;
    };
    use std::io::Write as _;
    python.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
}

#[test]
fn exports_are_written_whole_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name).display().to_string();
    let leak = snapshot("leak_accumulating");
    for (to, name) in [("pytorch", "a.pickle"), ("pytorch-json", "a.json"), ("csv", "a.csv")] {
        let output = run(&["export", &leak, "--format", to, "-o", &out(name)]);
        assert!(output.status.success(), "{to}: {}", text(&output.stderr));
        let found = json(&["peak", &out(name)]);
        assert_eq!(found["bytes"], json(&["peak", &leak])["bytes"], "{to}");
    }
    let redacted = run(&["export", &leak, "--format", "pytorch", "-o", &out("r"), "--redact"]);
    assert!(redacted.status.success());
    let (plain, hidden) = (json(&["leaks", &leak]), json(&["leaks", &out("r")]));
    assert_eq!(
        (&plain["class"], &plain["bytes_per_step"]),
        (&hidden["class"], &hidden["bytes_per_step"])
    );
    assert_ne!(plain["line"], hidden["line"]);
    let flame = shown(&["export", &leak, "--format", "stacks", "-o", "-"]);
    assert!(flame.lines().all(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().is_ok()));
    let picture = shown(&["export", OOM, "--format", "svg", "-o", "-"]);
    assert!(picture.starts_with("<svg") && picture.contains("as recorded"), "{}", &picture[..200]);
    let output = run(&["export", OOM, "--format", "png", "-o", &out("a.png")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(&std::fs::read(out("a.png")).unwrap()[..8], b"\x89PNG\r\n\x1a\n");
    let nowhere = run(&["export", &leak, "--format", "csv", "-o", "/no/such/folder/a.csv"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let leftovers = std::fs::read_dir(dir.path()).unwrap().filter_map(Result::ok);
    let parts = leftovers.filter(|file| file.file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
}

#[test]
fn the_report_needs_nothing_beside_it_and_can_hide_names() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("report.html").display().to_string();
    let found = json(&["report", OOM, "-o", &out]);
    assert!(found["verdict"].as_str().unwrap().starts_with("Fragmentation"), "{found}");
    let page = std::fs::read_to_string(&out).unwrap();
    for part in ["<svg", "What helps", "workloads.py:87 forward", "Growth from step to step"] {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["src=", "href=", "@import", "url(http"] {
        assert!(!page.contains(outside), "the report asks for something: {outside}");
    }
    assert!(run(&["report", OOM, "-o", &out, "--redact"]).status.success());
    let page = std::fs::read_to_string(&out).unwrap();
    for name in ["workloads", "group_norm", "unet"] {
        assert!(!page.contains(name), "{name}");
    }
}

#[test]
fn a_replay_is_recorded_and_every_command_reads_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("replay.terrane").display().to_string();
    let recorded = trace("resnet50_amp");
    let output = terrane().args(["replay", &recorded]).env("TERRANE_RECORD", &out).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let info = json(&["info", &out]);
    let device = &info["files"][0]["devices"][0];
    assert_eq!(info["files"][0]["format"], "terrane");
    assert_eq!(device["peak_requested"], 6_057_040_912_u64);
    assert_eq!(device["peak_reserved"], report["peak_reserved"]);
    let found = json(&["peak", &out]);
    let site = found["rows"][0]["site"].as_str().unwrap();
    assert!(site.contains("engine/mod.rs:"), "the line that asked: {site}");
    for command in [
        &["timeline"][..],
        &["leaks"],
        &["why", "5"],
        &["whatif", "--model", "pytorch"],
        &["tune"],
        &["check", "--max-failures", "0"],
        &["explain"],
    ] {
        let args = [&command[..1], &[out.as_str()], &command[1..]].concat();
        shown(&args);
    }
    let again = json(&["whatif", &out, "--model", "pytorch"]);
    assert_eq!(again["peak_reserved"], 7_295_991_808_u64, "the same requests in the same order");
    let picture = shown(&["export", &out, "--format", "svg", "-o", "-"]);
    assert!(picture.contains("as recorded"));
    shown(&["export", &out, "--format", "pytorch-json", "-o", &format!("{out}.json")]);
    assert_eq!(json(&["peak", &format!("{out}.json")])["bytes"], found["bytes"]);
}

#[test]
fn predictions_are_what_was_measured_on_the_card() {
    // Peaks of the same program under each line, run on an H200: docs/diagnosis.md.
    let file = snapshot("unet_random");
    for (model, measured) in [
        ("pytorch", 36_867_932_160_u64),
        ("pytorch-expandable", 23_702_011_904),
        ("pytorch:roundup_power2_divisions=8", 31_438_405_632),
    ] {
        let found = json(&["whatif", &file, "--allocator", model]);
        assert_eq!(found["peak_reserved"], measured, "{model}");
    }
    let tuned = json(&["tune", &file]);
    assert_eq!(tuned["line"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    assert_eq!(tuned["peak_reserved"], 23_702_011_904_u64);
}

#[test]
fn a_failure_of_our_own_allocator_is_explained_from_its_recording() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("short.terrane").display().to_string();
    let args = ["replay", &trace("resnet50_amp"), "--capacity", "0.9x", "--record", &out];
    assert!(run(&args).status.success());
    let found = json(&["explain", &out]);
    assert!(found["failures"].as_u64().unwrap() > 0, "{found}");
    let number = |key: &str| found[key].as_u64().unwrap();
    let there = number("reserved") + number("left");
    let limit = (6_057_040_912_f64 * 0.9).ceil() as u64;
    assert!(there <= limit, "{there} of {limit}");
    let needed = number("live") + number("asked");
    assert_eq!(found["class"] == "capacity", needed > there, "{found}");
    let text = shown(&["explain", &out]);
    assert!(text.contains("below the limit"), "{text}");
}
