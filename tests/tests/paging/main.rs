//! The paging policy on the six recorded workloads, at full size, with the costs of CUDA's calls
//! modelled: what it reserves against what is asked for, and what share of the run it would spend
//! in the driver. `docs/fragmentation.md` explains the figures.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod cost;
mod replay;

use cost::Cost;
use replay::{Figures, TRACES, replay, trace};
use terrane_core::pages::Policy;

fn geometric_mean(all: &[Figures]) -> f64 {
    let sum: f64 = all.iter().map(|figures| figures.ratio().max(1.0).ln()).sum();
    (sum / all.len() as f64).exp()
}

fn serves_tokens(name: &str) -> bool {
    name == "llm_serving"
}

fn print(all: &[Figures]) {
    println!(
        "trace | reserved/requested | % after the first tenth of events | of time | us/GiB | total ms | pages | steals"
    );
    for figures in all {
        println!("{figures}");
    }
}

#[test]
fn reserved_stays_near_requested_on_every_trace_and_mapping_within_its_share() {
    let all: Vec<Figures> =
        TRACES.map(|name| replay(name, &trace(name), Policy::default(), Cost::IDLE, None)).into();
    print(&all);
    let mean = geometric_mean(&all);
    println!("geometric mean {mean:.4}");
    for figures in &all {
        assert!(figures.ratio() <= 1.03, "{figures}");
        if serves_tokens(figures.name) {
            assert!(figures.us_per_gib() <= 150.0, "{figures}");
        } else {
            assert!(figures.share() <= 0.04, "{figures}");
        }
    }
    assert!(mean <= 1.010, "geometric mean {mean}");
    let timed: Vec<f64> =
        all.iter().filter(|f| !serves_tokens(f.name)).map(Figures::share).collect();
    let average = timed.iter().sum::<f64>() / timed.len() as f64;
    println!("average share {:.2} %", average * 100.0);
    assert!(average <= 0.02, "average share {average}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "some forty full replays: minutes without optimisation")]
fn little_more_than_what_is_asked_for_is_capacity_enough() {
    let mut all = Vec::new();
    for name in TRACES {
        let trace = trace(name);
        let completes = |thousandths: u64| {
            let capacity = Some(thousandths as f64 / 1_000.0);
            replay(name, &trace, Policy::default(), Cost::IDLE, capacity).completed
        };
        let (mut low, mut high) = (1_000, 1_030);
        assert!(completes(high), "{name} does not complete within 1.030");
        while low < high {
            let middle = (low + high) / 2;
            if completes(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        println!("{name}: {:.3}", low as f64 / 1_000.0);
        all.push(low as f64 / 1_000.0);
    }
    let average = all.iter().sum::<f64>() / all.len() as f64;
    println!("average {average:.4}");
    assert!(average <= 1.010, "average {average}");
}

/// Prints the frontier of reserved against mapping time over the knobs: run it with
/// `cargo test --release -p terrane-tests --test paging -- --ignored --nocapture frontier`.
#[test]
#[ignore = "prints figures for docs/fragmentation.md, asserts nothing"]
fn frontier() {
    let traces = TRACES.map(|name| (name, trace(name)));
    let base = Policy::default();
    let mut rows = vec![("default".to_string(), base)];
    for grading in [1, 2, 4, 16] {
        rows.push((format!("grading {grading}"), Policy { grading, ..base }));
    }
    for mib in [2, 4, 8, 32] {
        rows.push((format!("large_page {mib} MiB"), Policy { large_page: mib << 20, ..base }));
    }
    for mib in [4, 6] {
        rows.push((format!("small_page {mib} MiB"), Policy { small_page: mib << 20, ..base }));
    }
    for permille in [0, 5, 20] {
        let policy = Policy { steal_permille: permille, ..base };
        rows.push((format!("steal_permille {permille}"), policy));
    }
    for permille in [3, 10, 20] {
        let policy = Policy { slack_permille: permille, ..base };
        rows.push((format!("slack_permille {permille}"), policy));
    }
    for mib in [0, 20, 100] {
        rows.push((format!("gap_bytes {mib} MiB"), Policy { gap_bytes: mib << 20, ..base }));
    }
    for mib in [8, 32] {
        rows.push((format!("large {mib} MiB"), Policy { large: mib << 20, ..base }));
    }
    rows.push(("no stealing".to_string(), Policy { stale_max: 0, ..base }));
    println!(
        "| setting | geometric mean | worst | mapping average | mapping worst | llm_serving us/GiB |"
    );
    for (label, policy) in rows {
        let all: Vec<Figures> = traces
            .iter()
            .map(|(name, trace)| replay(name, trace, policy, Cost::IDLE, None))
            .collect();
        let worst = all.iter().map(Figures::ratio).fold(0.0, f64::max);
        let timed: Vec<f64> =
            all.iter().filter(|f| !serves_tokens(f.name)).map(Figures::share).collect();
        println!(
            "| {label} | {:.4} | {worst:.4} | {:.2} % | {:.2} % | {:.0} |",
            geometric_mean(&all),
            timed.iter().sum::<f64>() / timed.len() as f64 * 100.0,
            timed.iter().copied().fold(0.0, f64::max) * 100.0,
            all.iter().find(|f| serves_tokens(f.name)).map_or(0.0, Figures::us_per_gib),
        );
    }
    for (label, cost) in [("busy device", Cost::BUSY), ("cold creates", Cost::COLD)] {
        println!("{label}");
        let all: Vec<Figures> =
            traces.iter().map(|(name, trace)| replay(name, trace, base, cost, None)).collect();
        print(&all);
    }
}
