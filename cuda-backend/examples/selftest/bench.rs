//! Figures: what the driver's calls cost, and how fast copies and gathers are.

use std::time::Instant;

use serde_json::{Map, Value, json};
use terrane_core::device::{
    Compute, CopyOp, Device, MapOp, Paging, Place, Plain, SpaceId, StreamId, SyncPoint, UnmapOp,
};

use crate::support::{
    DEVICE, Failure, GIB, KIB, MIB, Outcome, Page, Random, Setup, UPLOAD, at, median,
};
use crate::{Check, ensure};

pub const BENCHES: &[Check] = &[
    ("bench: calibrate", calibrate),
    ("bench: page calls by size", page_calls),
    ("bench: page calls beside a running kernel", page_calls_beside_work),
    ("bench: plain segments by size", plain_calls),
    ("bench: host time of submissions and questions", host_calls),
    ("bench: gather against the driver's copy", gathers),
    ("bench: fill, verify and checksum", pattern_speed),
];

fn us(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn calibrate(setup: &Setup) -> Outcome {
    setup.device.calibrate()?;
    let start = Instant::now();
    let costs = setup.device.calibrate()?;
    let ms = us(start) / 1e3;
    ensure!(setup.quick || ms < 50.0, "{ms} ms");
    Ok(json!({ "ms": ms, "costs": format!("{costs:?}") }))
}

/// Samples of create, map with access, unmap, release, in microseconds.
fn page_samples(
    setup: &Setup,
    space: SpaceId,
    bytes: u64,
    rounds: u64,
) -> Result<[f64; 4], Failure> {
    let mut samples = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let start = Instant::now();
        let page = Page(Paging::create(&setup.device, DEVICE, bytes, false)?, bytes);
        samples[0].push(us(start));
        let start = Instant::now();
        setup.map_one(space, 0, page)?;
        samples[1].push(us(start));
        let start = Instant::now();
        setup.unmap_one(space, 0, bytes, &[])?;
        samples[2].push(us(start));
        let start = Instant::now();
        setup.device.release(page.0)?;
        samples[3].push(us(start));
    }
    Ok(samples.map(|mut samples| median(&mut samples)))
}

fn page_row([create, map, unmap, release]: [f64; 4]) -> Value {
    json!({ "create_us": create, "map_access_us": map, "unmap_us": unmap, "release_us": release })
}

fn page_calls(setup: &Setup) -> Outcome {
    let space = setup.device.reserve(DEVICE, GIB)?.space;
    let mut rows = Map::new();
    for mib in [2, 10, 20, 64, 128, 512, 1024] {
        if setup.quick && mib > 20 {
            break;
        }
        rows.insert(format!("{mib} MiB"), page_row(page_samples(setup, space, mib * MIB, 15)?));
    }
    // A batch of 64 pages in one call.
    let bytes = 2 * MIB;
    let pages = (0..64)
        .map(|_| Paging::create(&setup.device, DEVICE, bytes, false))
        .collect::<Result<Vec<_>, _>>()?;
    let ops: Vec<_> = (0..)
        .zip(&pages)
        .map(|(i, &memory)| MapOp { at: at(space, i * bytes), memory, memory_offset: 0, bytes })
        .collect();
    let start = Instant::now();
    setup.device.map(&ops, &[])?;
    let map = us(start);
    let offs: Vec<_> = ops.iter().map(|op| UnmapOp { at: op.at, bytes }).collect();
    let start = Instant::now();
    setup.device.unmap(&offs, &[])?;
    rows.insert("64 of 2 MiB".into(), json!({ "map_us": map, "unmap_us": us(start) }));
    for memory in pages {
        setup.device.release(memory)?;
    }
    setup.device.unreserve(space)?;
    Ok(Value::Object(rows))
}

/// Work that keeps the device busy for some milliseconds.
fn keep_busy(setup: &Setup, stream: StreamId, segment: Plain) -> Result<SyncPoint, Failure> {
    let mut point = setup.device.mark(stream)?;
    for word in 0..40 {
        point = setup.device.fill(stream, at(segment.space, 0), segment.bytes, word)?;
    }
    Ok(point)
}

fn page_calls_beside_work(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, setup.size(4 * GIB, 16 * MIB))?;
    let space = setup.device.reserve(DEVICE, 128 * MIB)?.space;
    let mut rows = Map::new();
    for mib in [2, 20, 128] {
        let point = keep_busy(setup, stream, segment)?;
        let row = page_samples(setup, space, mib * MIB, 5)?;
        let busy = !setup.device.wait_any(&[point], std::time::Duration::ZERO)?;
        setup.wait(point)?;
        let mut row = page_row(row);
        row["still_busy_after"] = json!(busy);
        rows.insert(format!("{mib} MiB"), row);
    }
    setup.finish(stream)?;
    setup.device.unreserve(space)?;
    setup.device.release_plain(segment.space)?;
    Ok(Value::Object(rows))
}

fn plain_calls(setup: &Setup) -> Outcome {
    let mut rows = Map::new();
    for (class, name) in [(DEVICE, "device"), (UPLOAD, "upload")] {
        for mib in [2, 64, 1024] {
            if setup.quick && mib > 64 {
                break;
            }
            let (mut create, mut release) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                let start = Instant::now();
                let segment = setup.plain(class, mib * MIB)?;
                create.push(us(start));
                let start = Instant::now();
                setup.device.release_plain(segment.space)?;
                release.push(us(start));
            }
            let row = json!({
                "create_us": median(&mut create), "release_us": median(&mut release),
            });
            rows.insert(format!("{name} {mib} MiB"), row);
        }
    }
    Ok(Value::Object(rows))
}

/// Nanoseconds of one call of many.
fn each(count: u64, mut call: impl FnMut(u64) -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    for i in 0..count {
        call(i)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / count as f64)
}

fn is_capturing_ns(setup: &Setup, count: u64) -> Result<f64, Failure> {
    each(count, |_| {
        std::hint::black_box(setup.device.is_capturing());
        Ok(())
    })
}

fn host_calls(setup: &Setup) -> Outcome {
    let (stream, other) = (setup.stream()?, setup.stream()?);
    let segment = setup.plain(DEVICE, 2 * MIB)?;
    let place = at(segment.space, 0);
    let count = setup.size(2000, 100);
    let device = &setup.device;
    let fill = each(count, |_| Ok(device.fill(stream, place, 64, 1).map(|_| ())?))?;
    setup.wait(device.mark(stream)?)?;
    let mark = each(count * 10, |_| Ok(device.mark(stream).map(|_| ())?))?;
    let reached = each(count * 10, |_| Ok(device.reached(stream).map(|_| ())?))?;
    let mut asked = Vec::new();
    for i in 0..count {
        device.fill(stream, place, 64, i as u32)?;
        let start = Instant::now();
        device.reached(stream)?;
        asked.push(start.elapsed().as_nanos() as f64);
    }
    let wait = each(count, |_| {
        let point = device.fill(stream, place, 64, 1)?;
        Ok(device.wait_on_stream(other, &[point])?)
    })?;
    let write = each(count, |_| Ok(device.write(stream, place, &[1; 1024]).map(|_| ())?))?;
    let capturing = is_capturing_ns(setup, count)?;
    device.raw_stream(other)?;
    let capturing_one = is_capturing_ns(setup, count)?;
    // SAFETY: the legacy stream lives as long as the context.
    let legacy = unsafe { device.wrap_stream(0) }?;
    let capturing_two = is_capturing_ns(setup, count)?;
    device.retire_stream(legacy)?;
    let round_trip = each(count / 4, |_| {
        let point = device.fill(stream, place, 64, 1)?;
        setup.wait(point)
    })?;
    setup.finish(stream)?;
    setup.finish(other)?;
    device.release_plain(segment.space)?;
    Ok(json!({
        "fill_ns": fill, "mark_ns": mark, "reached_known_ns": reached,
        "reached_record_and_query_ns": median(&mut asked), "fill_and_wait_on_stream_ns": wait,
        "write_1_KiB_ns": write, "is_capturing_ns": capturing,
        "is_capturing_with_one_shared_ns": capturing_one,
        "is_capturing_with_legacy_as_well_ns": capturing_two, "fill_and_wait_any_ns": round_trip,
    }))
}

/// Copies `sizes` from one half of the memory to the other, in shuffled order of places.
fn scattered(source: SpaceId, target: SpaceId, sizes: &[u64], random: &mut Random) -> Vec<CopyOp> {
    let mut offset = 0;
    let mut ops: Vec<_> = sizes
        .iter()
        .map(|&bytes| {
            let op = CopyOp { from: at(source, offset), to: at(target, offset), bytes };
            offset += bytes;
            op
        })
        .collect();
    for i in (1..ops.len()).rev() {
        ops.swap(i, random.below(i as u64 + 1) as usize);
    }
    // The destination is packed in the shuffled order, as compaction packs it.
    let mut offset = 0;
    for op in &mut ops {
        op.to = Place { space: target, offset };
        offset += op.bytes;
    }
    ops
}

/// GB/s, read and written counted, best of `rounds`, and the host's microseconds of one call.
fn bandwidth(
    setup: &Setup,
    stream: StreamId,
    bytes: u64,
    rounds: u32,
    mut submit: impl FnMut() -> Result<SyncPoint, Failure>,
) -> Result<(f64, f64), Failure> {
    let (mut best, mut host) = (f64::MAX, f64::MAX);
    submit()?;
    for _ in 0..rounds {
        let from = setup.device.stamp(stream)?;
        let start = Instant::now();
        submit()?;
        host = host.min(us(start));
        let to = setup.device.stamp(stream)?;
        setup.wait(to.point())?;
        best = best.min(setup.device.elapsed_ns(&from, &to)?);
    }
    Ok((2.0 * bytes as f64 / best, host))
}

/// Two seconds of work, so that the clocks are up when something is measured.
fn warm_up(setup: &Setup, stream: StreamId, segment: Plain) -> Result<(), Failure> {
    let start = Instant::now();
    while !setup.quick && start.elapsed().as_secs_f64() < 2.0 {
        setup.wait(keep_busy(setup, stream, segment)?)?;
    }
    Ok(())
}

fn gathers(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let mut random = Random(23);
    let log_uniform = |random: &mut Random| {
        let exponent = 16.0 + 8.0 * random.unit();
        (exponent.exp2() as u64).next_multiple_of(256)
    };
    let count = setup.size(10_000, 50) as usize;
    let mixed: Vec<u64> = (0..count).map(|_| log_uniform(&mut random)).collect();
    let total: u64 = mixed.iter().sum();
    let half = total.max(setup.size(4 * GIB, 16 * MIB)).next_multiple_of(2 * MIB);
    let (source, target) = (setup.plain(DEVICE, half)?, setup.plain(DEVICE, half)?);
    let device = &setup.device;
    let mut rows = Map::new();
    warm_up(setup, stream, target)?;
    let mut large = 0.0_f64;
    for bytes in [setup.size(4 * GIB, 16 * MIB), total & !255] {
        let op = [CopyOp { from: at(source.space, 0), to: at(target.space, 0), bytes }];
        let (speed, _) = bandwidth(setup, stream, bytes, 5, || Ok(device.copy(stream, &op)?))?;
        let (kernel, _) = bandwidth(setup, stream, bytes, 5, || Ok(device.gather(stream, &op)?))?;
        large = large.max(speed).max(kernel);
        rows.insert(format!("one range of {bytes}"), json!({ "copy": speed, "gather": kernel }));
    }
    let small = setup.size(65_536, 64);
    let sets = [
        (format!("{count} of 64 KiB to 16 MiB"), mixed),
        (format!("{small} of 64 KiB"), vec![64 * KIB; small as usize]),
        (format!("{} of 1 MiB", small / 16), vec![MIB; small as usize / 16]),
        (format!("{} of 16 MiB", small / 256), vec![16 * MIB; small as usize / 256]),
    ];
    for (name, sizes) in sets {
        let ops = scattered(source.space, target.space, &sizes, &mut random);
        let bytes = sizes.iter().sum();
        let (kernel, host) =
            bandwidth(setup, stream, bytes, 5, || Ok(device.gather(stream, &ops)?))?;
        let (copy, copy_host) =
            bandwidth(setup, stream, bytes, 1, || Ok(device.copy(stream, &ops)?))?;
        let row = json!({
            "gather_GBps": kernel, "of_best_large": kernel / large, "gather_host_us": host,
            "copy_GBps": copy, "copy_host_us": copy_host,
        });
        rows.insert(name, row);
    }
    setup.finish(stream)?;
    device.release_plain(source.space)?;
    device.release_plain(target.space)?;
    rows.insert("best_large_GBps".into(), json!(large));
    Ok(Value::Object(rows))
}

fn pattern_speed(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let bytes = setup.size(4 * GIB, 16 * MIB);
    let segment = setup.plain(DEVICE, bytes)?;
    let all = [crate::support::region(segment.space, 0, bytes, 3)];
    let device = &setup.device;
    let (fill, _) = bandwidth(setup, stream, bytes, 3, || Ok(device.fill_pattern(stream, &all)?))?;
    let verify = || -> Result<SyncPoint, Failure> {
        let ticket = device.verify(stream, &all)?;
        setup.report(ticket)?;
        Ok(ticket.point)
    };
    let (verify, _) = bandwidth(setup, stream, bytes, 3, verify)?;
    let sum = || -> Result<SyncPoint, Failure> {
        let ticket = device.checksum(stream, &all)?;
        setup.report(ticket)?;
        Ok(ticket.point)
    };
    let (sum, _) = bandwidth(setup, stream, bytes, 3, sum)?;
    setup.finish(stream)?;
    device.release_plain(segment.space)?;
    // One way each, so half of what `bandwidth` counts.
    Ok(json!({ "fill_GBps": fill / 2.0, "verify_GBps": verify / 2.0, "checksum_GBps": sum / 2.0 }))
}
