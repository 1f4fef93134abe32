//! One run over everything the contract rests on, with a report as JSON on standard output.
//!
//! `cargo run --release -p terrane-vulkan --example spike [-- DEVICE]`, where DEVICE is a name, a
//! number, a UUID or `best`. Sizes follow the device's memory, so it runs on lavapipe too.

use std::time::{Duration, Instant};

use ash::vk::{self, Handle};
use serde_json::{Value, json};
use terrane_core::device::{
    Compute, CopyOp, Device, DeviceError, MapOp, MemoryKind, Paging, Place, PlainSpec, Region,
    SpaceId, StreamId, StreamSpec, SyncPoint, UnmapOp, pattern,
};
use terrane_vulkan::{OpenOptions, Part, Parts, Selector, Timed, VulkanDevice, list, open};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A part of the run and its name in the report.
type Step = (&'static str, fn(&Spike) -> Answer);
type Answer = Result<Value, Box<dyn std::error::Error>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let selector = Selector::parse(&std::env::args().nth(1).unwrap_or_default());
    let start = Instant::now();
    let validation = std::env::var_os("TERRANE_VALIDATION").is_some();
    let device = open(&selector, &OpenOptions { validation, ..Default::default() })?;
    let opened = start.elapsed();
    let spike = Spike::new(device)?;
    let mut report = json!({
        "devices": list()?.iter().map(|d| format!("{d:?}")).collect::<Vec<_>>(),
        "device": format!("{:?}", spike.device.info()),
        "open_ms": opened.as_secs_f64() * 1e3,
        "caps": format!("{:?}", spike.device.caps()),
    });
    let parts: [Step; 9] = [
        ("plain_segments", Spike::plain_segments),
        ("batched_submit", Spike::batched_submit),
        ("wait_any", Spike::wait_any),
        ("paged_segment", Spike::paged_segment),
        ("aliasing", Spike::aliasing),
        ("view_object", Spike::view_object),
        ("sparse_against_plain", Spike::sparse_against_plain),
        ("gather_against_copy", Spike::gather_against_copy),
        ("large_fill_and_verify", Spike::large_fill_and_verify),
    ];
    for (name, part) in parts {
        eprintln!("{name} ...");
        let start = Instant::now();
        report[name] = part(&spike).unwrap_or_else(|error| json!({ "FAILED": error.to_string() }));
        report[name]["part_ms"] = json!(start.elapsed().as_secs_f64() * 1e3);
    }
    report["validation_messages"] = json!(spike.device.validation_messages());
    report["calls"] = spike
        .device
        .calls()
        .iter()
        .map(|c| {
            let mean = c.total_ns as f64 / 1e3 / c.count as f64;
            json!({ "call": c.call.name(), "count": c.count, "mean_us": mean,
                    "longest_us": c.longest_ns as f64 / 1e3 })
        })
        .collect();
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

struct Spike {
    device: VulkanDevice,
    stream: StreamId,
    /// Divides sizes on devices that compute on the CPU.
    shrink: u64,
}

/// Plain segments that belong together, released when dropped.
struct Slabs<'a> {
    device: &'a VulkanDevice,
    spaces: Vec<SpaceId>,
    bytes: u64,
}

impl Drop for Slabs<'_> {
    fn drop(&mut self) {
        for space in &self.spaces {
            let _ = self.device.release_plain(*space);
        }
    }
}

/// A paged space backed by one memory object per gibibyte, taken down when dropped.
struct Paged<'a> {
    device: &'a VulkanDevice,
    space: SpaceId,
    maps: Vec<MapOp>,
    ready: SyncPoint,
}

impl Drop for Paged<'_> {
    fn drop(&mut self) {
        let Some(paging) = self.device.paging() else { return };
        let ops: Vec<_> =
            self.maps.iter().map(|op| UnmapOp { at: op.at, bytes: op.bytes }).collect();
        if let Ok(Some(point)) = paging.unmap(&ops, &[]) {
            let _ = self.device.wait_any(&[point], Duration::from_secs(60));
        }
        let mut memories: Vec<_> = self.maps.iter().map(|op| op.memory).collect();
        memories.dedup();
        for memory in memories {
            let _ = paging.release(memory);
        }
        let _ = paging.unreserve(self.space);
    }
}

impl Spike {
    fn new(device: VulkanDevice) -> Result<Self, DeviceError> {
        let stream = device.create_stream(StreamSpec::default())?;
        let shrink = if device.info().is_cpu { 64 } else { 1 };
        Ok(Self { device, stream, shrink })
    }

    fn compute(&self) -> Result<&dyn Compute, Box<dyn std::error::Error>> {
        self.device.compute().ok_or_else(|| "no compute".into())
    }

    fn paging(&self) -> Result<&dyn Paging, Box<dyn std::error::Error>> {
        self.device.paging().ok_or_else(|| "the device can not page".into())
    }

    fn wait(&self, point: SyncPoint) -> Result<(), Box<dyn std::error::Error>> {
        match self.device.wait_any(&[point], Duration::from_secs(60))? {
            true => Ok(()),
            false => Err("work is not done after a minute".into()),
        }
    }

    fn slabs(&self, total: u64, each: u64) -> Result<Slabs<'_>, Box<dyn std::error::Error>> {
        let caps = self.device.caps();
        let class = caps.classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
        let bytes =
            each.min(caps.max_plain_bytes) / caps.plain_granularity * caps.plain_granularity;
        let mut slabs = Slabs { device: &self.device, spaces: Vec::new(), bytes };
        for _ in 0..total.div_ceil(bytes) {
            let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "slab" };
            slabs.spaces.push(self.device.create_plain(&spec)?.space);
        }
        Ok(slabs)
    }

    /// `total` bytes whose pages of `page` bytes are mapped in shuffled order.
    fn paged(&self, total: u64, page: u64) -> Result<Paged<'_>, Box<dyn std::error::Error>> {
        let paging = self.paging()?;
        let class =
            self.device.caps().classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
        let object = total.min(GIB);
        let space = paging.reserve(class, total)?.space;
        let mut maps = Vec::new();
        for part in 0..total / object {
            let memory = paging.create(class, object, false)?;
            let pages = object / page;
            for i in 0..pages {
                // An odd factor visits every page of a power of two once, in no order.
                let from = (i * 2_654_435_761) % pages;
                let at = Place { space, offset: part * object + i * page };
                maps.push(MapOp { at, memory, memory_offset: from * page, bytes: page });
            }
        }
        let ready = paging.map(&maps, &[])?.ok_or("no point")?;
        self.device.wait_on_stream(self.stream, &[ready])?;
        Ok(Paged { device: &self.device, space, maps, ready })
    }

    fn mismatches(&self, regions: &[Region]) -> Result<u64, Box<dyn std::error::Error>> {
        let ticket = self.compute()?.verify(self.stream, regions)?;
        self.wait(ticket.point)?;
        Ok(self.compute()?.take_report(ticket)?.iter().sum())
    }

    /// Words read back one by one that differ from a region's pattern, out of some hundred.
    fn sampled(&self, region: &Region) -> Result<u64, Box<dyn std::error::Error>> {
        let mut wrong = 0;
        let step = (region.bytes / 128 / 4 * 4).max(4);
        let last = region.bytes - 4;
        for offset in (0..region.bytes).step_by(step as usize).chain([last]) {
            let place = Place { offset: region.place.offset + offset, ..region.place };
            let ticket = self.device.read(self.stream, place, 4)?;
            self.wait(ticket.point)?;
            let bytes = self.device.take_read(ticket)?;
            let expected = pattern::word(region.seed, offset / 4).to_le_bytes();
            wrong += u64::from(bytes != expected);
        }
        Ok(wrong)
    }

    /// The best of five runs, in nanoseconds of the device.
    fn best(&self, work: Timed<'_>) -> Result<f64, Box<dyn std::error::Error>> {
        self.best_on(&self.device, self.stream, work)
    }

    fn best_on(
        &self,
        device: &VulkanDevice,
        stream: StreamId,
        work: Timed<'_>,
    ) -> Result<f64, Box<dyn std::error::Error>> {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let timing = device.timed(stream, work)?;
            if !device.wait_any(&[timing.point], Duration::from_secs(60))? {
                return Err("work is not done after a minute".into());
            }
            best = best.min(timing.device_ns()?);
        }
        Ok(best)
    }

    fn plain_segments(&self) -> Answer {
        let mut times = Vec::new();
        for bytes in [64 * KIB, 2 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB] {
            let bytes = (bytes / self.shrink).max(64 * KIB);
            let start = Instant::now();
            let slabs = self.slabs(bytes, bytes)?;
            let made = start.elapsed();
            drop(slabs);
            let released = start.elapsed() - made;
            times.push(json!({ "bytes": bytes, "create_us": made.as_secs_f64() * 1e6,
                               "release_us": released.as_secs_f64() * 1e6 }));
        }
        let mut heaps = Vec::new();
        for (i, heap) in (0_u8..).zip(&self.device.caps().heaps) {
            let now = self.device.heap_use(terrane_core::device::HeapId(i))?;
            heaps.push(format!("{heap:?} {now:?}"));
        }
        Ok(json!({ "times": times, "heaps": heaps }))
    }

    fn batched_submit(&self) -> Answer {
        let slabs = self.slabs(16 * MIB, 16 * MIB)?;
        let streams: Vec<_> = (0..4)
            .map(|_| self.device.create_stream(StreamSpec::default()))
            .collect::<Result<_, _>>()?;
        let place = |i: u64| Place { space: slabs.spaces[0], offset: i * 4096 };
        let start = Instant::now();
        let mut points = Vec::new();
        for i in 0..1000_u64 {
            points.push(self.device.fill(streams[(i % 4) as usize], place(i), 4096, i as u32)?);
        }
        let submitted = start.elapsed();
        for point in points.iter().rev().take(4) {
            self.wait(*point)?;
        }
        let done = start.elapsed();
        let ops: Vec<_> = (0..1000)
            .map(|i| CopyOp { from: place(i), to: place(2000 + i), bytes: 4096 })
            .collect();
        let start = Instant::now();
        let point = self.device.copy(self.stream, &ops)?;
        let batch = start.elapsed();
        self.wait(point)?;
        let ticket = self.device.read(self.stream, place(2999), 4)?;
        self.wait(ticket.point)?;
        let last = self.device.take_read(ticket)?;
        for stream in streams {
            self.device.retire_stream(stream)?;
        }
        Ok(json!({
            "submit_us": submitted.as_secs_f64() * 1e3, "done_ms": done.as_secs_f64() * 1e3,
            "batch_of_1000_copies_submit_us": batch.as_secs_f64() * 1e6,
            "right": last == 999_u32.to_le_bytes(),
        }))
    }

    fn wait_any(&self) -> Answer {
        let bytes = (4 * GIB / self.shrink).min(self.device.caps().max_plain_bytes);
        let slabs = self.slabs(bytes, bytes)?;
        let (slow, quick) = (
            self.device.create_stream(StreamSpec::default())?,
            self.device.create_stream(StreamSpec { high_priority: true, copy_only: false })?,
        );
        let region = Region {
            place: Place { space: slabs.spaces[0], offset: 0 },
            bytes: slabs.bytes,
            seed: 1,
        };
        let mut long = None;
        for _ in 0..50 {
            long = Some(self.compute()?.fill_pattern(slow, &[region])?);
        }
        let long = long.ok_or("no work")?;
        let other = self.slabs(MIB, MIB)?;
        let short = self.device.fill(quick, Place { space: other.spaces[0], offset: 0 }, MIB, 1)?;
        let start = Instant::now();
        let one = self.device.wait_any(&[long, short], Duration::from_secs(60))?;
        let first = start.elapsed();
        let short_done = self.device.reached(quick)? >= { short.value };
        let long_done = self.device.reached(slow)? >= { long.value };
        self.wait(long)?;
        let all = start.elapsed();
        self.device.retire_stream(slow)?;
        self.device.retire_stream(quick)?;
        Ok(json!({ "one": one, "first_us": first.as_secs_f64() * 1e6,
                   "short_done": short_done, "long_done": long_done,
                   "all_us": all.as_secs_f64() * 1e6 }))
    }

    fn paged_segment(&self) -> Answer {
        let caps = self.device.caps().paging.ok_or("the device can not page")?;
        let mut rows = Vec::new();
        for (total, page) in [
            (2 * MIB, 2 * MIB),
            (GIB, caps.granularity),
            (GIB, 2 * MIB),
            (GIB, 16 * MIB),
            (GIB, GIB),
        ] {
            let (total, page) =
                ((total / self.shrink).max(2 * MIB), (page / self.shrink).max(caps.granularity));
            let start = Instant::now();
            let paged = self.paged(total, page)?;
            let submitted = start.elapsed();
            self.wait(paged.ready)?;
            let bound = start.elapsed();
            let region =
                Region { place: Place { space: paged.space, offset: 0 }, bytes: total, seed: 9 };
            self.compute()?.fill_pattern(self.stream, &[region])?;
            let (wrong, sampled) = (self.mismatches(&[region])?, self.sampled(&region)?);
            rows.push(json!({ "bytes": total, "page": page, "binds": paged.maps.len(),
                              "submit_us": submitted.as_secs_f64() * 1e6,
                              "bound_us": bound.as_secs_f64() * 1e6,
                              "wrong_words": wrong, "wrong_samples": sampled }));
        }
        Ok(json!({ "rows": rows, "lone_rebinds_us": self.rebinds()? }))
    }

    /// The median time of unmapping and mapping one page of 2 MiB, waited for, and of 32 in a
    /// batch.
    fn rebinds(&self) -> Answer {
        let paged = self.paged(64 * MIB, 2 * MIB)?;
        self.wait(paged.ready)?;
        let mut medians = Vec::new();
        for pages in [1, 32] {
            let ops = &paged.maps[..pages];
            let drops: Vec<_> =
                ops.iter().map(|op| UnmapOp { at: op.at, bytes: op.bytes }).collect();
            let mut times = Vec::new();
            for _ in 0..51 {
                let start = Instant::now();
                let gone = self.paging()?.unmap(&drops, &[])?;
                let back = self.paging()?.map(ops, gone.as_slice())?.ok_or("no point")?;
                self.wait(back)?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            medians.push(times[25]);
        }
        Ok(json!(medians))
    }

    fn aliasing(&self) -> Answer {
        let page =
            self.device.caps().paging.ok_or("the device can not page")?.granularity.max(2 * MIB);
        let paging = self.paging()?;
        let paged = self.paged(4 * page, page)?;
        let class = self.device.caps().classes_of(MemoryKind::Device).next().ok_or("no memory")?;
        let memory = paging.create(class, page, false)?;
        let twice = paging.reserve(class, 2 * page)?.space;
        let other = self.device.create_stream(StreamSpec::default())?;
        let op = |n| MapOp {
            at: Place { space: twice, offset: n * page },
            memory,
            memory_offset: 0,
            bytes: page,
        };
        let un = |n| UnmapOp { at: Place { space: twice, offset: n * page }, bytes: page };
        let (mut wrong, start, mut before) = (0, Instant::now(), None::<SyncPoint>);
        for round in 0..200_u64 {
            let first = paging.map(&[op(0)], before.as_slice())?.ok_or("no point")?;
            self.device.wait_on_stream(self.stream, &[first])?;
            let region = Region { place: op(0).at, bytes: page, seed: round };
            let written = self.compute()?.fill_pattern(self.stream, &[region])?;
            let second = paging.map(&[op(1)], &[])?.ok_or("no point")?;
            self.device.wait_on_stream(other, &[written, second])?;
            let gone = paging.unmap(&[un(0)], &[written])?.ok_or("no point")?;
            self.device.wait_on_stream(other, &[gone])?;
            let ticket = self.compute()?.verify(other, &[Region { place: op(1).at, ..region }])?;
            self.wait(ticket.point)?;
            wrong += self.compute()?.take_report(ticket)?[0];
            before = paging.unmap(&[un(1)], &[ticket.point])?;
        }
        let elapsed = start.elapsed();
        if let Some(point) = before {
            self.wait(point)?;
        }
        paging.release(memory)?;
        paging.unreserve(twice)?;
        self.device.retire_stream(other)?;
        drop(paged);
        Ok(
            json!({ "rounds": 200, "wrong_words": wrong, "round_us": elapsed.as_secs_f64() * 1e6 / 200.0 }),
        )
    }

    fn view_object(&self) -> Answer {
        let page = self.device.caps().paging.map_or(64 * KIB, |p| p.granularity.max(64 * KIB));
        let target = self.slabs(16 * MIB, 16 * MIB)?;
        let mut results = Vec::new();
        let plain = self.slabs(16 * MIB, 16 * MIB)?;
        let paged = self.paged(16 * MIB, page);
        let mut places =
            vec![("plain", Place { space: plain.spaces[0], offset: 256 * 3 }, 4 * page)];
        if let Ok(paged) = &paged {
            places.push(("paged", Place { space: paged.space, offset: 3 * page }, 5 * page));
        }
        for (name, place, bytes) in places {
            let region = Region { place, bytes, seed: 5 };
            self.compute()?.fill_pattern(self.stream, &[region])?;
            let start = Instant::now();
            let view = self.device.create_view(place, bytes)?;
            let made = start.elapsed();
            let goal = Place { space: target.spaces[0], offset: 0 };
            let raw = self.device.raw(goal)?;
            // SAFETY: both buffers are alive until the wait below, and as large as the copy.
            let point = unsafe {
                self.device.record(self.stream, |device, commands| {
                    let copy = [vk::BufferCopy::default().size(bytes)];
                    let from = vk::Buffer::from_raw(view.0);
                    device.cmd_copy_buffer(commands, from, raw.buffer, &copy);
                })
            }?;
            self.wait(point)?;
            let wrong = self.mismatches(&[Region { place: goal, ..region }])?;
            self.device.destroy_view(view)?;
            results.push(json!({ "segment": name, "wrong_words": wrong,
                                 "create_us": made.as_secs_f64() * 1e6 }));
        }
        Ok(json!({ "results": results }))
    }

    fn sparse_against_plain(&self) -> Answer {
        let bytes = 2 * GIB / self.shrink;
        let granularity = self.device.caps().paging.ok_or("the device can not page")?.granularity;
        let rate = |ns: f64, times: u64| (bytes * times) as f64 / ns;
        let mut rows = Vec::new();
        let mut measure = |name: String,
                           from: Place,
                           to: Place|
         -> Result<(), Box<dyn std::error::Error>> {
            let region = Region { place: from, bytes, seed: 3 };
            let ops = [CopyOp { from, to, bytes }];
            let fill = self.best(Timed::FillPattern(&[region]))?;
            let gather = self.best(Timed::Gather(&ops))?;
            let wrong = self.mismatches(&[Region { place: to, ..region }])?;
            let copy = self.best(Timed::Copy(&ops))?;
            rows.push(json!({ "memory": name, "fill_gb_s": rate(fill, 1),
                "gather_gb_s": rate(gather, 2), "copy_gb_s": rate(copy, 2), "wrong_words": wrong }));
            Ok(())
        };
        let slabs = self.slabs(2 * bytes, bytes)?;
        let at = |space| Place { space, offset: 0 };
        measure("plain".into(), at(slabs.spaces[0]), at(slabs.spaces[1]))?;
        drop(slabs);
        for page in [granularity, (2 * MIB).max(granularity)] {
            let (a, b) = (self.paged(bytes, page)?, self.paged(bytes, page)?);
            measure(format!("sparse, pages of {page}"), at(a.space), at(b.space))?;
        }
        Ok(json!({ "bytes": bytes, "rows": rows }))
    }

    fn gather_against_copy(&self) -> Answer {
        let mut rows = Vec::new();
        let bound = open(
            &Selector::Uuid(self.device.info().uuid.unwrap_or_default()),
            &OpenOptions {
                without: Parts::default().with(Part::BufferDeviceAddress),
                ..Default::default()
            },
        )?;
        let bound = Spike::new(bound)?;
        for (name, count, small, large) in [
            ("one of 2 GiB", 1, 2 * GIB, 2 * GIB),
            ("65,536 of 64 KiB", 65_536, 64 * KIB, 64 * KIB),
            ("4,096 of 1 MiB", 4096, MIB, MIB),
            ("512 of 16 MiB", 512, 16 * MIB, 16 * MIB),
            ("10,000 of 64 KiB to 16 MiB", 10_000, 64 * KIB, 16 * MIB),
        ] {
            let count = if count == 1 { 1 } else { (count / self.shrink).max(8) };
            let shrink = if count == 1 { self.shrink } else { 1 };
            let sizes = sizes(count, small / shrink, large / shrink);
            let total: u64 = sizes.iter().sum();
            let mut row = json!({ "blocks": name, "count": count, "bytes": total });
            for (kind, spike) in [("address", self), ("binding", &bound)] {
                let (from, to) = (
                    spike.slabs(total + total / 8, 2 * GIB / self.shrink.min(8))?,
                    spike.slabs(total + total / 8, 2 * GIB / self.shrink.min(8))?,
                );
                let ops = place(&sizes, &from, &to)?;
                let seeds = |goal: bool| -> Vec<Region> {
                    let place = |op: &CopyOp| if goal { op.to } else { op.from };
                    (0..)
                        .zip(&ops)
                        .map(|(seed, op)| Region { place: place(op), bytes: op.bytes, seed })
                        .collect()
                };
                spike.compute()?.fill_pattern(spike.stream, &seeds(false))?;
                let ns = spike.best(Timed::Gather(&ops))?;
                row[format!("gather_by_{kind}_gb_s")] = json!(2.0 * total as f64 / ns);
                row[format!("gather_by_{kind}_wrong_words")] =
                    json!(spike.mismatches(&seeds(true))?);
                if kind == "address" {
                    let ns = spike.best(Timed::Copy(&ops))?;
                    row["copy_gb_s"] = json!(2.0 * total as f64 / ns);
                }
            }
            rows.push(row);
        }
        Ok(json!({ "rows": rows }))
    }

    fn large_fill_and_verify(&self) -> Answer {
        let bytes = if self.shrink == 1 { 6 * GIB } else { 768 * MIB };
        let (a, b) = (self.paged(bytes, 2 * MIB)?, self.paged(bytes, 2 * MIB)?);
        let region = |space, seed| Region { place: Place { space, offset: 0 }, bytes, seed };
        let (from, to) = (region(a.space, 77), region(b.space, 77));
        let fill = self.best(Timed::FillPattern(&[from]))?;
        let sampled = self.sampled(&from)?;
        let wrong = self.mismatches(&[from])?;
        let mut ticket = self.compute()?.checksum(self.stream, &[from])?;
        self.wait(ticket.point)?;
        let before = self.compute()?.take_report(ticket)?;
        let op = [CopyOp { from: from.place, to: to.place, bytes }];
        let gather = self.best(Timed::Gather(&op))?;
        let moved = (self.mismatches(&[to])?, self.sampled(&to)?);
        ticket = self.compute()?.checksum(self.stream, &[to])?;
        self.wait(ticket.point)?;
        let after = self.compute()?.take_report(ticket)?;
        // One word changed anywhere must be found.
        let odd = Place { space: b.space, offset: bytes - 4 };
        self.device.fill(self.stream, odd, 4, 1)?;
        let found = self.mismatches(&[to])?;
        Ok(json!({
            "bytes": bytes, "fill_gb_s": bytes as f64 / fill, "gather_gb_s": 2.0 * bytes as f64 / gather,
            "wrong_words": wrong, "wrong_samples": sampled, "moved_wrong_words": moved.0,
            "moved_wrong_samples": moved.1, "checksums_equal": before == after,
            "one_changed_word_found": found == 1,
        }))
    }
}

/// Sizes spread evenly over the powers between two sizes, multiples of 16.
fn sizes(count: u64, small: u64, large: u64) -> Vec<u64> {
    let ratio = large as f64 / small as f64;
    let part = |i: u64| (i * 7919 % count) as f64 / count.max(2) as f64;
    (0..count).map(|i| (small as f64 * ratio.powf(part(i))) as u64 / 16 * 16).collect()
}

/// Copies of those sizes from slabs to slabs, the targets in the opposite order.
fn place(sizes: &[u64], from: &Slabs<'_>, to: &Slabs<'_>) -> Result<Vec<CopyOp>, &'static str> {
    let pack = |sizes: &mut dyn Iterator<Item = u64>, slabs: &Slabs<'_>| {
        let (mut slab, mut offset, mut places) = (0, 0, Vec::new());
        for bytes in sizes {
            if offset + bytes > slabs.bytes {
                (slab, offset) = (slab + 1, 0);
            }
            let space = *slabs.spaces.get(slab).ok_or("the slabs are too small")?;
            places.push(Place { space, offset });
            offset += bytes;
        }
        Ok(places)
    };
    let sources = pack(&mut sizes.iter().copied(), from)?;
    let mut targets = pack(&mut sizes.iter().rev().copied(), to)?;
    targets.reverse();
    let op = |((from, to), bytes)| CopyOp { from, to, bytes };
    Ok(sources.into_iter().zip(targets).zip(sizes.iter().copied()).map(op).collect())
}
