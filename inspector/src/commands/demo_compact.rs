//! `terrane demo --compact`: kernels write and verify hundreds of blocks without pause while passes
//! move them together; pictures before and after, and a report.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use terrane_core::compact::{Goal, Limits};
use terrane_core::device::HeapId;
use terrane_core::{Allocator, Config, Growth, PassReport, Request};

use super::demo_work::{Rounds, Worker};
use crate::cli::DemoArgs;
use crate::exit::{BadInput, FoundWrong};
use crate::model::{HeapMap, Picture, Sample, Timeline};
use crate::paint::{self, Font};
use crate::source::{self, Opened};
use crate::{layout, progress, units};

/// Blocks that the heap begins with, about; every second one is freed.
const BLOCKS: u64 = 1_200;
/// Without optimisation the CPU's kernels take ten times as long.
const BYTES_ON_CPU: u64 = if cfg!(debug_assertions) { 24 << 20 } else { 256 << 20 };
const BYTES_ON_GPU: u64 = 4 << 30;
/// Moves of one pass.
const MOVES: u64 = 64;
/// Fragmentation that is good enough.
const BELOW: f64 = 0.05;

/// What the demo found. Times are microseconds of the host unless they say otherwise.
#[derive(Debug, Default, Serialize)]
struct Found {
    device: String,
    heap_bytes: u64,
    blocks: u64,
    passes: u64,
    moves: u64,
    moved_bytes: u64,
    committed: u64,
    cancelled: u64,
    dropped: u64,
    corrupt: u64,
    refused: Vec<(String, u64)>,
    fragmentation_before: f64,
    fragmentation_after: f64,
    largest_free_before: u64,
    largest_free_after: u64,
    free_bytes: u64,
    compaction_us: u64,
    plan_us: u64,
    submit_us: u64,
    rounds: u64,
    kernels: u64,
    verified_bytes: u64,
    mismatches: u64,
    slowest_submit_us: u64,
    median_submit_us: u64,
    longest_lock_us: u64,
}

/// Runs kernels and passes at once, draws and reports.
///
/// # Errors
/// Bad input; the device's and the system's; [`FoundWrong`] when contents differ.
pub fn run(args: &DemoArgs, quiet: bool) -> Result<()> {
    let opened = source::open(&args.device)?;
    if opened.sim.is_some() || opened.device.compute().is_none() {
        let text = format!("{} runs no kernels over real bytes; say --device host", opened.choice);
        return Err(BadInput(text).into());
    }
    progress::note(quiet, &format!("device: {} ({})", opened.choice, opened.device.info().name));
    fs::create_dir_all(&args.output).map_err(|error| {
        BadInput(format!("{}: {error}; choose another --output", args.output.display()))
    })?;
    let heap = heap_bytes(&opened)?;
    let alloc = Allocator::with_config(opened.device.clone(), config(&opened, heap))?;
    let worker = Worker::new(&opened, &alloc, blocks(&alloc, &opened, heap)?)?;
    let start = Instant::now();
    let mut timeline = Timeline::default();
    timeline.samples.push(sample(&alloc, start));
    let before = picture(&opened, "before", &alloc, &timeline);
    alloc.watch_lock(true);
    let mut found = Found { heap_bytes: heap, blocks: worker.blocks(), ..Found::default() };
    found.device = format!("{}: {}", opened.choice, opened.device.info().name);
    let rounds = std::thread::scope(|scope| -> Result<Rounds> {
        let running = scope.spawn(|| worker.run());
        let compacted = compact(&alloc, &mut found, &mut timeline, start);
        worker.stop();
        let rounds = running.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
        compacted.and(rounds)
    })?;
    found.longest_lock_us = alloc.longest_lock_ns() / 1000;
    note_rounds(&mut found, &rounds);
    timeline.marked = timeline.samples.len() - 1;
    let after = picture(&opened, "after", &alloc, &timeline);
    let files =
        [save(args, "compact-before.png", &before)?, save(args, "compact-after.png", &after)?];
    let json = args.output.join("compact.json");
    fs::write(&json, serde_json::to_string_pretty(&found)? + "\n")
        .with_context(|| format!("writing {}", json.display()))?;
    worker.free()?;
    super::print(&text(&found, &files, &json)?)?;
    if found.mismatches > 0 || found.corrupt > 0 {
        return Err(FoundWrong(format!("{} words lost their contents", found.mismatches)).into());
    }
    Ok(())
}

fn heap_bytes(opened: &Opened) -> Result<u64> {
    let free = opened.device.heap_use(HeapId(0))?.free;
    let wanted = if opened.device.info().is_cpu { BYTES_ON_CPU } else { BYTES_ON_GPU };
    let most = (free / 4).min(opened.device.caps().max_plain_bytes);
    Ok(wanted.min(most) / (2 << 20) * (2 << 20))
}

/// One plain segment that holds everything.
fn config(opened: &Opened, heap: u64) -> Config {
    let mut config = Config::for_device(opened.device.caps());
    config.paging = false;
    config.small_max = 0;
    config.growth = Growth::Proportional { min_bytes: heap, max_bytes: heap };
    config.limits = vec![terrane_core::Limit::Bytes(heap)];
    config
}

/// Blocks of sizes that spread evenly over their logarithms fill the heap; every second one is
/// freed.
fn blocks(
    alloc: &Allocator,
    opened: &Opened,
    heap: u64,
) -> Result<Vec<(terrane_core::Handle, u64)>> {
    let stream = opened.device.create_stream(Default::default())?;
    // The mean of such sizes from s to 64 s is 15.1 s.
    let smallest = (heap / BLOCKS) as f64 / 15.1;
    let mut random = 1_u64;
    let mut made = Vec::new();
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let bytes = (smallest * 64_f64.powf(part)) as u64;
        let request = Request::new(bytes.next_multiple_of(4), stream);
        match alloc.alloc(&request.wait(terrane_core::Wait::Never)) {
            Ok(block) => made.push((block.handle, block.bytes)),
            Err(error) if error.is_transient() => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut live = Vec::new();
    for (at, block) in made.into_iter().enumerate() {
        if at % 2 == 0 {
            live.push(block);
        } else {
            alloc.free(block.0)?;
        }
    }
    Ok(live)
}

/// Passes until what is free is together.
fn compact(
    alloc: &Allocator,
    found: &mut Found,
    timeline: &mut Timeline,
    start: Instant,
) -> Result<()> {
    let begin = Instant::now();
    loop {
        let limits = Limits::NONE.moves(MOVES);
        let report = alloc.compact(Goal::Fragmentation { below: BELOW }, limits)?;
        note_pass(found, &report);
        timeline.samples.push(sample(alloc, start));
        // Blocks in use by an open submission are refused: another pass finds them free.
        if report.reached || found.passes > 10_000 {
            break;
        }
    }
    found.compaction_us = begin.elapsed().as_micros() as u64;
    Ok(())
}

fn note_pass(found: &mut Found, report: &PassReport) {
    if found.passes == 0 {
        found.fragmentation_before = report.fragmentation.0;
        found.largest_free_before = report.largest_free.0;
    }
    found.passes += 1;
    found.moves += report.moves;
    found.moved_bytes += report.bytes;
    found.committed += report.verdicts.committed;
    found.cancelled += report.verdicts.cancelled;
    found.dropped += report.verdicts.dropped;
    found.corrupt += report.verdicts.corrupt;
    found.plan_us += report.plan_ns / 1000;
    found.submit_us += report.submit_ns / 1000;
    found.fragmentation_after = report.fragmentation.1;
    found.largest_free_after = report.largest_free.1;
    found.free_bytes = report.free.1;
    for (why, refused) in &report.refused {
        let text = why.text().to_owned();
        match found.refused.iter_mut().find(|(known, _)| *known == text) {
            Some((_, blocks)) => *blocks += refused.blocks,
            None => found.refused.push((text, refused.blocks)),
        }
    }
}

fn note_rounds(found: &mut Found, rounds: &Rounds) {
    found.rounds = rounds.rounds;
    found.kernels = rounds.kernels;
    found.verified_bytes = rounds.verified_bytes;
    found.mismatches = rounds.mismatches;
    let mut submits = rounds.submit_us.clone();
    submits.sort_unstable();
    found.slowest_submit_us = submits.last().copied().unwrap_or(0);
    found.median_submit_us = submits.get(submits.len() / 2).copied().unwrap_or(0);
}

fn sample(alloc: &Allocator, start: Instant) -> Sample {
    let stats = alloc.stats();
    Sample {
        time_ms: start.elapsed().as_secs_f64() * 1e3,
        requested: stats.total.requested.current,
        active: stats.active.current,
        reserved: stats.reserved.current,
    }
}

fn picture(opened: &Opened, when: &str, alloc: &Allocator, timeline: &Timeline) -> Picture {
    Picture {
        title: format!("The heap {when} compaction, with kernels running on it"),
        subtitle: format!("{} ({})", opened.device.info().name, opened.choice),
        map: HeapMap { segments: source::segments(alloc) },
        timeline: timeline.clone(),
    }
}

fn save(args: &DemoArgs, name: &str, picture: &Picture) -> Result<PathBuf> {
    let font = Font::new().context("the built-in font")?;
    let measure = |text: &str, size: f32| font.width(text, size);
    let scene = layout::picture(picture, args.size.0, args.size.1, &measure);
    let path = args.output.join(name);
    fs::write(&path, paint::png(&scene, &font)?)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn text(found: &Found, pictures: &[PathBuf], json: &Path) -> Result<String> {
    let mut text = String::new();
    let bytes = units::bytes;
    writeln!(
        text,
        "{} live blocks in {} on {}",
        found.blocks,
        bytes(found.heap_bytes),
        found.device
    )?;
    writeln!(
        text,
        "Fragmentation {:.3} before, {:.3} after; largest free {} before, {} after, of {} free.",
        found.fragmentation_before,
        found.fragmentation_after,
        bytes(found.largest_free_before),
        bytes(found.largest_free_after),
        bytes(found.free_bytes),
    )?;
    writeln!(
        text,
        "{} moves of {} in {} passes, {:.1} ms: {} committed, {} cancelled, {} dropped, {} corrupt.",
        found.moves,
        bytes(found.moved_bytes),
        found.passes,
        found.compaction_us as f64 / 1e3,
        found.committed,
        found.cancelled,
        found.dropped,
        found.corrupt,
    )?;
    for (why, blocks) in &found.refused {
        writeln!(text, "Refused for now: {blocks} times, {why}.")?;
    }
    writeln!(
        text,
        "Meanwhile {} rounds over all blocks, {} kernels, {} verified: {} words differ.",
        found.rounds,
        units::count(found.kernels),
        bytes(found.verified_bytes),
        found.mismatches,
    )?;
    writeln!(
        text,
        "The slowest of the program's submits took {} us (median {} us); the allocator's lock was \
         held for at most {} us.",
        found.slowest_submit_us, found.median_submit_us, found.longest_lock_us,
    )?;
    for path in pictures {
        writeln!(text, "Picture: {}", path.display())?;
    }
    writeln!(text, "Figures: {}", json.display())?;
    Ok(text)
}
