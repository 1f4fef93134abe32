//! One run over everything the contract rests on, with a report as JSON on standard output.
//!
//! `cargo run --release -p terrane-vulkan --example spike [-- DEVICE]`, where DEVICE is a name, a
//! number, a UUID or `best`. Sizes follow the device's memory, so it runs on lavapipe too.

mod parts;
mod speed;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terrane_core::device::{
    Compute, Device, DeviceError, MapOp, MemoryKind, Paging, Place, PlainSpec, Region, SpaceId,
    StreamId, StreamSpec, SyncPoint, UnmapOp, pattern,
};
use terrane_vulkan::{OpenOptions, Selector, Timed, VulkanDevice, list, open};

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

/// How long work is repeated on a GPU. After some seconds without work a GPU lowers its clocks,
/// and takes some tenths of a second of work to raise them: a few short runs after a long bind or
/// many allocations measure a fifth of its bandwidth.
const WARM: Duration = Duration::from_millis(1500);

/// Device time of work, in nanoseconds.
#[derive(Clone, Copy)]
struct Best {
    /// Of the first run, perhaps at the clocks of an idle device.
    cold_ns: f64,
    /// Of the fastest.
    ns: f64,
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

    /// Times work on the spike's device.
    fn best(&self, work: Timed<'_>) -> Result<Best, Box<dyn std::error::Error>> {
        let start = Instant::now();
        let (mut best, mut runs) = (Best { cold_ns: f64::INFINITY, ns: f64::INFINITY }, 0);
        while runs < 5 || (self.shrink == 1 && start.elapsed() < WARM) {
            let timing = self.device.timed(self.stream, work)?;
            self.wait(timing.point)?;
            let ns = timing.device_ns()?;
            best.ns = best.ns.min(ns);
            if runs == 0 {
                best.cold_ns = ns;
            }
            runs += 1;
        }
        Ok(best)
    }
}
