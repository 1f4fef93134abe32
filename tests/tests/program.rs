//! The program `conformance`: what it prints, writes and exits with.

#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use terrane_tests::clauses;

fn conformance(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.env_remove("TERRANE_COMMIT").env_remove("TERRANE_DEVICE");
    command.args(args).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("terrane-{}-{name}", std::process::id()))
}

/// A clause that fails on a device whose name is empty.
const BROKEN: &[&str] =
    &["--device", "sim:cuda", "--filter", "caps.", "--flaw", "Nameless", "--seed", "7"];
const NAMELESS: &str = "sim,,caps.names,the model of this test has no name on purpose\n";

#[test]
fn json_has_all_keys_and_counts_that_add_up() {
    let output = conformance(&[
        "--device",
        "sim:vulkan",
        "--filter",
        "views.",
        "--filter",
        "caps.",
        "--json",
    ]);
    assert_eq!(code(&output), 0);
    let report = json(&output);
    let keys = [
        "device",
        "backend",
        "driver",
        "commit",
        "seed",
        "passed",
        "failed",
        "expected_failures",
        "skipped",
        "clauses",
    ];
    for key in keys {
        assert!(report.get(key).is_some(), "no key {key}: {report}");
    }
    assert!(report["device"].as_str().unwrap().contains("vulkan"), "{report}");
    assert!(!report["driver"].as_str().unwrap().is_empty() && report["seed"] == 1);
    let number = |key: &str| report[key].as_u64().unwrap();
    let rows = report["clauses"].as_array().unwrap();
    let sum = number("passed") + number("failed") + number("expected_failures") + number("skipped");
    assert_eq!(sum, rows.len() as u64);
    assert!(number("passed") > 0 && number("skipped") > 0, "{report}");
    for row in rows {
        assert!(clauses::find(row["id"].as_str().unwrap()).is_some(), "{row}");
        let is_told = row["outcome"] == "passed" || !row["reason"].as_str().unwrap().is_empty();
        assert!(is_told, "no reason: {row}");
    }
}

#[test]
fn the_filter_chooses_by_parts_of_ids_and_an_empty_choice_is_an_error() {
    let report = json(&conformance(&[
        "--device",
        "sim",
        "--filter",
        "caps.names",
        "--filter",
        "caps.clock",
        "--json",
    ]));
    let ids: Vec<&str> = report["clauses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["caps.names", "caps.clock"]);
    let none = conformance(&["--device", "sim", "--filter", "no such clause"]);
    assert_eq!(code(&none), 2);
    let unknown = conformance(&["--device", "vulkan:no such driver anywhere", "--filter", "caps."]);
    assert_eq!(code(&unknown), 2, "a device that can not be opened");
}

#[test]
fn the_seed_is_used_and_told() {
    let args = |seed| ["--device", "sim", "--filter", "blocks.apart", "--seed", seed, "--json"];
    let report = json(&conformance(&args("12345")));
    assert_eq!((report["seed"].as_u64(), report["passed"].as_u64()), (Some(12345), Some(1)));
    // The calls of a failure differ with the seed, and do not without.
    let calls = |seed| {
        let flawed = ["--device", "sim", "--filter", "stats.walk", "--flaw", "StatsOff"];
        let output = conformance(&[&flawed[..], &["--seed", seed, "--json"]].concat());
        json(&output)["clauses"][0]["calls"].clone()
    };
    assert_eq!(calls("1"), calls("1"));
    assert_ne!(calls("1"), calls("2"));
}

#[test]
fn a_failure_says_what_whose_and_how_to_run_it_again_with_its_calls() {
    let output = conformance(&[BROKEN, &["--json"]].concat());
    assert_eq!(code(&output), 1);
    let report = json(&output);
    assert_eq!(report["failed"], 1, "{report}");
    let rows = report["clauses"].as_array().unwrap();
    let row = rows.iter().find(|row| row["outcome"] == "failed").unwrap();
    assert_eq!((&row["id"], &row["blames"]), (&"caps.names".into(), &"backend".into()), "{row}");
    let again = "cargo run -p terrane-tests --bin conformance -- \
         --device sim:cuda --filter caps.names --seed 7";
    assert_eq!(
        row["again"].as_str().unwrap().replace("--device sim ", "--device sim:cuda "),
        again
    );
    assert!(row["sentence"].as_str().unwrap().ends_with('.') && row["calls"].is_array());
    let text = conformance(BROKEN);
    let errors = String::from_utf8_lossy(&text.stderr).into_owned();
    assert!(errors.contains("again: cargo run"), "{errors}");
}

#[test]
fn a_failure_of_work_shows_its_device_calls() {
    let args =
        ["--device", "sim", "--filter", "work.fill-exact", "--flaw", "FillIgnoresWord", "--json"];
    let report = json(&conformance(&args));
    let calls: Vec<&str> = report["clauses"][0]["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c.as_str().unwrap())
        .collect();
    assert!(calls.iter().any(|line| line.starts_with("fill")), "{calls:?}");
    assert!(calls.len() <= 41, "{} lines", calls.len());
}

#[test]
fn an_expected_failure_is_none_and_an_unexpected_pass_is_one() {
    let rows = file("expected.csv");
    std::fs::write(&rows, NAMELESS).unwrap();
    let path = rows.to_str().unwrap();
    let failing = conformance(&[BROKEN, &["--json", "--expected", path]].concat());
    let report = json(&failing);
    assert_eq!((code(&failing), &report["expected_failures"]), (0, &1.into()), "{report}");
    let args = ["--device", "sim", "--filter", "caps.names", "--json", "--expected", path];
    let passing = conformance(&args);
    let report = json(&passing);
    assert_eq!((code(&passing), &report["failed"]), (1, &1.into()), "{report}");
    assert!(
        report["clauses"][0]["reason"].as_str().unwrap().contains("though a failure is expected")
    );
    std::fs::write(&rows, "sim,,caps.names,no\n").unwrap();
    assert_eq!(code(&conformance(&args)), 2, "a row without a reason");
    std::fs::remove_file(rows).unwrap();
}

/// The elements of an XML text, with their attributes; panics where tags do not match.
fn elements(xml: &str) -> Vec<(String, String)> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(!text.contains('>') && !text.contains('"') || !open.is_empty(), "{text}");
        let end = at + rest[at..].find('>').unwrap();
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "tags do not match");
            continue;
        }
        let whole = tag.trim_end_matches('/');
        let (name, attributes) = whole.split_once(' ').unwrap_or((whole, ""));
        assert_eq!(attributes.matches('"').count() % 2, 0, "{attributes}");
        found.push((name.to_owned(), attributes.to_owned()));
        if !tag.ends_with('/') {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "open at the end: {open:?}");
    found
}

#[test]
fn junit_has_a_case_for_every_clause_and_the_failures_in_full() {
    let path = file("junit.xml");
    let output =
        conformance(&[BROKEN, &["--filter", "views.", "--junit", path.to_str().unwrap()]].concat());
    assert_eq!(code(&output), 1);
    let xml = std::fs::read_to_string(&path).unwrap();
    let found = elements(&xml);
    let of = |name: &str| found.iter().filter(|(it, _)| it == name).count();
    let chosen =
        clauses::all().filter(|c| c.id.contains("caps.") || c.id.contains("views.")).count();
    assert_eq!((of("testsuite"), of("testcase"), of("failure")), (1, chosen, 1), "{xml}");
    assert!(of("skipped") > 0, "{xml}");
    let suite = &found.iter().find(|(name, _)| name == "testsuite").unwrap().1;
    assert!(suite.contains(&format!("tests=\"{chosen}\" failures=\"1\"")), "{suite}");
    assert!(xml.contains("classname=\"caps\" name=\"caps.names\"") && xml.contains("again: cargo"));
    std::fs::remove_file(path).unwrap();
}
