//! Every clause on every device that is here.

#![allow(clippy::unwrap_used)]

use terrane_core::device::sim::Sim;
use terrane_tests::{Ending, Plan, Source, clauses, run};

/// Runs all clauses and tells which failed.
fn all(name: &str, plan: &Plan) {
    all_heard(name, plan, &Vec::new);
}

/// The same, with what somebody who looks on has said so far: a clause in which he speaks has
/// failed.
fn all_heard(name: &str, plan: &Plan, heard: &dyn Fn() -> Vec<String>) {
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for clause in clauses::all() {
        let started = std::time::Instant::now();
        let before = heard().len();
        match run(clause, plan).ending {
            Ending::Passed => passed += 1,
            Ending::Skipped(why) => {
                skipped += 1;
                println!("{name}: {} skipped: {why}", clause.id);
            }
            Ending::Failed(text) => failed.push(format!("{}: {text}", clause.id)),
        }
        for message in &heard()[before..] {
            failed.push(format!("{}: {message}", clause.id));
        }
        if started.elapsed().as_millis() > 500 {
            println!("{name}: {} took {:?}", clause.id, started.elapsed());
        }
    }
    println!("{name}: {passed} passed, {} failed, {skipped} skipped", failed.len());
    assert!(failed.is_empty(), "on {name}:\n{}", failed.join("\n"));
}

#[test]
fn every_clause_holds_on_the_model_of_cuda() {
    all("sim:cuda", &Plan::new(Source::Model(Sim::cuda)));
}

#[test]
fn every_clause_holds_on_the_model_of_vulkan() {
    all("sim:vulkan", &Plan::new(Source::Model(Sim::vulkan)));
}

#[test]
fn every_clause_holds_on_the_model_without_paging() {
    all("sim:slabs", &Plan::new(Source::Model(Sim::slabs)));
}

/// Pages are stolen from under work that is not done, and the last mappings go behind it: seeds at
/// which, on slow work, no gap fitted the pages that were left, or the space stayed.
#[test]
fn pages_are_stolen_while_work_is_slow() {
    use terrane_core::device::sim::Completion::After;
    let clause = clauses::find("steal.contents").unwrap();
    let quick: fn() -> Sim = || Sim::vulkan().completion(After(10_000));
    let slow: fn() -> Sim = || Sim::vulkan().completion(After(100_000_000));
    for (model, seeds) in [(quick, 20..28), (slow, 4..7)] {
        for seed in seeds {
            let plan = Plan { seed, ..Plan::new(Source::Model(model)) };
            assert_eq!(run(clause, &plan).ending, Ending::Passed, "seed {seed}");
        }
    }
}

/// Sync values, generations of handles and numbers of events, all just below their ends. Sync
/// values are kept below it: a stream that submits a thousand times a second lasts 584 million
/// years.
#[test]
fn every_clause_holds_where_numbers_are_near_their_ends() {
    // Its mappings have values too.
    let source = Source::Model(|| Sim::vulkan().first_value(u64::MAX - 100_000));
    let plan = Plan { paging: Some(true), near_ends: true, ..Plan::new(source) };
    all("sim:vulkan, large numbers", &plan);
}

#[test]
fn every_clause_holds_on_the_cpu() {
    all("host", &Plan::new(Source::Host));
}

#[test]
fn every_clause_holds_on_the_cpu_page_by_page() {
    all("host, paged", &Plan { paging: Some(true), ..Plan::new(Source::Host) });
}

#[test]
fn every_clause_holds_on_the_model_of_vulkan_page_by_page() {
    all("sim:vulkan, paged", &Plan { paging: Some(true), ..Plan::new(Source::Model(Sim::vulkan)) });
}

/// The device named by TERRANE_VULKAN, or the best. Without a driver this is skipped, in words;
/// TERRANE_REQUIRE_VULKAN=1 makes that a failure.
#[cfg(feature = "program")]
#[test]
fn every_clause_holds_on_vulkan() {
    let name = std::env::var("TERRANE_VULKAN").unwrap_or_default();
    match terrane::open(&terrane::Choice::Vulkan(name)) {
        Ok(opened) => {
            let plan = Plan::new(terrane_tests::program::shared(&opened));
            all("vulkan", &plan);
            all("vulkan, paged", &Plan { paging: Some(true), ..plan });
        }
        Err(error) => {
            println!("skipped: {error}");
            assert!(std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none(), "{error}");
        }
    }
}

/// The same under Khronos' validation layer with synchronization validation, which has nothing to
/// say: neither while a clause runs, nor when the device is closed.
#[cfg(feature = "program")]
#[test]
fn every_clause_holds_on_vulkan_and_the_validation_layer_is_silent() {
    let Some(device) = validated() else { return };
    let heard = device.validation_watch();
    let plan = Plan::new(terrane_tests::program::shared_vulkan(&device));
    all_heard("vulkan, validated", &plan, &heard);
    all_heard("vulkan, paged, validated", &Plan { paging: Some(true), ..plan }, &heard);
    let before = heard().len();
    drop(device);
    assert_eq!(heard()[before..], [""; 0], "when the device was closed");
}

/// That the layer hears what is wrong is a test of the Vulkan backend.
#[test]
fn a_clause_in_which_somebody_who_looks_on_speaks_has_failed() {
    let spoken = std::sync::Mutex::new(Vec::new());
    let heard = || {
        let mut spoken = spoken.lock().unwrap();
        // It is asked before and after each clause: this is in the second.
        let text = if spoken.len() == 3 { "a hazard" } else { "" };
        spoken.push(text.to_owned());
        spoken.iter().filter(|text| !text.is_empty()).cloned().collect()
    };
    let plan = Plan::new(Source::Model(Sim::slabs));
    let run = std::panic::AssertUnwindSafe(|| all_heard("sim:slabs", &plan, &heard));
    let text = std::panic::catch_unwind(run).unwrap_err().downcast::<String>().unwrap();
    let second = clauses::all().nth(1).unwrap().id;
    assert_eq!(*text, format!("on sim:slabs:\n{second}: a hazard"));
}

/// The device named by TERRANE_VULKAN, or the best, under the validation layer. Without the two,
/// `None`, in words; TERRANE_REQUIRE_VULKAN=1 makes that a failure.
#[cfg(feature = "program")]
fn validated() -> Option<terrane::vulkan::VulkanDevice> {
    use terrane::vulkan::{OpenOptions, Selector};
    let name = std::env::var("TERRANE_VULKAN").unwrap_or_default();
    let options = OpenOptions { validation: true, ..OpenOptions::default() };
    match terrane::vulkan::open(&Selector::parse(&name), &options) {
        Ok(device) => Some(device),
        Err(error) => {
            println!("skipped: {error}");
            assert!(std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none(), "{error}");
            None
        }
    }
}
