//! `terrane devices`: what is there, what it can do, which one would be chosen and why.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use terrane_core::device::Caps;

use crate::cli::DevicesArgs;
use crate::exit::FoundWrong;
use crate::source::{self, Check, Choice};
use crate::{progress, units};

/// The time that checks may take, over all devices.
const CHECKS: Duration = Duration::from_secs(30);

/// One device as it is shown.
#[derive(Serialize)]
struct Line {
    /// How to ask for it.
    name: String,
    device: String,
    driver: String,
    software: bool,
    chosen: bool,
    /// Why it can not be opened, if it can not.
    error: Option<String>,
    capabilities: Vec<(&'static str, String)>,
    checks: Vec<Check>,
    /// What its calls cost, if that was asked for.
    costs: Option<Measured>,
}

/// What a device's calls cost.
#[derive(Serialize)]
struct Measured {
    /// Milliseconds that loading the built-in kernels took before: long where the driver has not
    /// compiled them yet.
    loading_ms: f64,
    /// Milliseconds that the measurement took; little where it was made at opening.
    ms: f64,
    /// Why nothing could be measured, if so.
    error: Option<String>,
    /// Call, microseconds of one, microseconds more for each MiB.
    calls: Vec<(&'static str, f64, f64)>,
}

#[derive(Serialize)]
struct Absent {
    backend: String,
    why: String,
}

#[derive(Serialize)]
struct Listing {
    version: &'static str,
    system: String,
    /// Why the chosen device was chosen.
    why: String,
    devices: Vec<Line>,
    absent: Vec<Absent>,
}

/// Lists devices, and checks them if asked.
///
/// # Errors
/// [`FoundWrong`] after the list when a check failed.
pub fn run(args: &DevicesArgs, quiet: bool) -> Result<()> {
    let listing = list(args, quiet)?;
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&listing)?)
    } else {
        table(&listing)
    };
    super::print(&text)?;
    let failed =
        listing.devices.iter().flat_map(|d| &d.checks).filter(|check| check.error.is_some());
    match failed.count() {
        0 => Ok(()),
        count => Err(FoundWrong(format!("{count} checks failed: paste the text above")).into()),
    }
}

fn list(args: &DevicesArgs, quiet: bool) -> Result<Listing> {
    let survey = source::survey();
    let best = source::open(args.device.as_ref().unwrap_or(&Choice::Best))?;
    let choices: Vec<Choice> = match &args.device {
        Some(_) => vec![best.choice.clone()],
        None => survey.found.iter().map(|found| found.choice.clone()).collect(),
    };
    let deadline = Instant::now() + CHECKS;
    let count = choices.len() as u32;
    let mut devices = Vec::new();
    for (at, choice) in (0..).zip(&choices) {
        if args.check {
            progress::note(quiet, &format!("checking {choice}"));
        }
        // What one device leaves of its share the next may use.
        let left = deadline.saturating_duration_since(Instant::now()) / (count - at);
        let check = args.check.then_some(left);
        devices.push(line(choice, *choice == best.choice, check, args.calibrate));
    }
    let absent = survey.absent.into_iter();
    let absent = absent.map(|a| Absent { backend: a.backend.to_string(), why: a.why });
    Ok(Listing {
        version: env!("CARGO_PKG_VERSION"),
        system: system(),
        why: best.why,
        devices,
        absent: absent.collect(),
    })
}

fn line(choice: &Choice, chosen: bool, check: Option<Duration>, calibrate: bool) -> Line {
    let mut line = Line {
        name: choice.to_string(),
        device: String::new(),
        driver: String::new(),
        software: false,
        chosen,
        error: None,
        capabilities: Vec::new(),
        checks: Vec::new(),
        costs: None,
    };
    match source::open(choice) {
        Ok(opened) => {
            let info = opened.device.info();
            line.device.clone_from(&info.name);
            line.driver.clone_from(&info.driver);
            line.software = info.is_cpu;
            line.capabilities = capabilities(opened.device.caps());
            line.costs = calibrate.then(|| measured(&opened));
            if let Some(time) = check {
                line.checks = source::checks(&opened, time);
            }
        }
        Err(error) => line.error = Some(format!("{error:#}")),
    }
    line
}

fn measured(opened: &source::Opened) -> Measured {
    let start = Instant::now();
    let prepared = opened.prepare();
    let loading_ms = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let answer = prepared.and_then(|()| opened.costs());
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let costs = match answer {
        Ok(costs) => costs,
        Err(error) => {
            let error = Some(error.to_string());
            return Measured { loading_ms, ms, error, calls: Vec::new() };
        }
    };
    let row =
        |name, cost: terrane_core::device::Line| (name, cost.fixed_ns / 1e3, cost.ns_per_mib / 1e3);
    let calls = vec![
        row("make a plain segment", costs.plain_create),
        row("release a plain segment", costs.plain_release),
        row("make memory for pages", costs.page_create),
        row("map a page", costs.page_map),
        row("unmap a page", costs.page_unmap),
        row("release memory of pages", costs.page_release),
        row("copy a block by the driver", costs.copy),
        row("copy a block by kernel", costs.gather),
    ];
    // Zero says that nobody knows.
    let calls = calls.into_iter().filter(|(_, fixed, per_mib)| fixed + per_mib > 0.0).collect();
    Measured { loading_ms, ms, error: None, calls }
}

fn capabilities(caps: &Caps) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| {
        if bytes == u64::MAX { "no limit".to_owned() } else { units::bytes(bytes) }
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let heaps: Vec<String> = caps.heaps.iter().map(|heap| size(heap.total)).collect();
    let mut kinds: Vec<String> = caps.classes.iter().map(|class| class.kind.to_string()).collect();
    kinds.dedup();
    let objects = caps.max_memory_objects;
    let paging = caps.paging.map_or_else(
        || "no: segments are whole memory objects".to_owned(),
        |paging| {
            let order = if paging.stream_ordered { "in stream order" } else { "at once" };
            format!("pages of {}, mapped {order}", size(paging.granularity))
        },
    );
    let copy = if caps.prefer_gather { "by kernel" } else { "by the driver" };
    vec![
        ("memory", heaps.join(", ")),
        ("kinds", kinds.join(", ")),
        ("paging", paging),
        ("compute", yes(caps.compute)),
        ("largest segment", size(caps.max_plain_bytes)),
        ("memory objects", format!("at most {}", units::count(objects))),
        ("largest binding", size(caps.max_binding_bytes)),
        ("moves copy", copy.to_owned()),
        ("addresses", yes(caps.addresses)),
        ("view objects", yes(caps.views)),
        ("export", yes(caps.export)),
        ("graph capture", yes(caps.capture)),
    ]
}

fn table(listing: &Listing) -> String {
    let mut text = format!("terrane {} on {}\n", listing.version, listing.system);
    for line in &listing.devices {
        // Writing to a String cannot fail.
        let _ = write_line(&mut text, line);
    }
    for absent in &listing.absent {
        let _ = writeln!(text, "\n{}: no device: {}", absent.backend, absent.why);
    }
    let chosen = listing.devices.iter().find(|line| line.chosen);
    let _ = writeln!(
        text,
        "\nChosen unless told otherwise: {}, because {}.",
        chosen.map_or("none", |line| line.name.as_str()),
        listing.why
    );
    text
}

fn write_line(text: &mut String, line: &Line) -> std::fmt::Result {
    let chosen = if line.chosen { " *" } else { "" };
    writeln!(text, "\n{}{chosen}", line.name)?;
    if let Some(error) = &line.error {
        return writeln!(text, "  can not be opened: {error}");
    }
    let software = if line.software { " (software, no GPU)" } else { "" };
    writeln!(text, "  {:<16} {}{software}", "device", line.device)?;
    writeln!(text, "  {:<16} {}", "driver", line.driver)?;
    for (what, value) in &line.capabilities {
        writeln!(text, "  {what:<16} {value}")?;
    }
    if let Some(costs) = &line.costs {
        write_costs(text, costs)?;
    }
    for check in &line.checks {
        let Check { name, ms, skipped, error } = check;
        match error {
            None if *skipped => writeln!(text, "  skipped {name}: the device keeps no contents")?,
            None => writeln!(text, "  ok      {name} ({ms:.1} ms)")?,
            Some(error) => writeln!(text, "  FAILED  {name}: {error}")?,
        }
    }
    Ok(())
}

fn write_costs(text: &mut String, costs: &Measured) -> std::fmt::Result {
    match &costs.error {
        Some(error) => writeln!(text, "  {:<16} not measured: {error}", "costs")?,
        None if costs.calls.is_empty() => writeln!(text, "  {:<16} not known", "costs")?,
        None => writeln!(text, "  {:<16} known after {:.1} ms", "costs", costs.ms)?,
    }
    for (call, fixed, per_mib) in &costs.calls {
        writeln!(text, "    {call:<28} {fixed:>9.1} us, {per_mib:>8.3} us more per MiB")?;
    }
    Ok(())
}

/// The system's name and version.
fn system() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let os = name.map_or(std::env::consts::OS, |name| name.trim_matches('"'));
    format!("{os}, kernel {}, {}", kernel.trim(), std::env::consts::ARCH)
}
