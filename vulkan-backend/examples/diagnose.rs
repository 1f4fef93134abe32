//! Where a device's bandwidth goes: kernels over plain and paged memory, by the size of a
//! workgroup's tile, the size of the memory, and how its pages lie. A table on standard output.
//!
//! `cargo run --release -p terrane-vulkan --example diagnose [-- DEVICE]`

use std::time::Duration;

use terrane_core::device::{
    ClassId, Device, MapOp, MemoryKind, Place, PlainSpec, Region, SpaceId, StreamId, StreamSpec,
    UnmapOp,
};
use terrane_vulkan::{OpenOptions, Selector, Timed, Tuning, VulkanDevice, open};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

struct Probe {
    device: VulkanDevice,
    stream: StreamId,
    class: ClassId,
}

fn main() -> Result<()> {
    let selector = Selector::parse(&std::env::args().nth(1).unwrap_or_default());
    println!("GB/s: written by fill, read by checksum");
    for tile in [4 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 512 * KIB] {
        let probe = Probe::open(&selector, Tuning { tile_bytes: tile, ..Default::default() })?;
        let shrink = probe.shrink();
        for (bytes, each) in [(2 * GIB, 2 * GIB), (16 * GIB, 2 * GIB), (16 * GIB, 256 * MIB)] {
            let name = format!("plain, tile {} KiB, segments of {} MiB", tile / KIB, each / MIB);
            probe.plain(&name, bytes / shrink, each / shrink)?;
        }
    }
    for unaliased in [false, true] {
        let probe = Probe::open(&selector, Tuning { unaliased, ..Default::default() })?;
        let shrink = probe.shrink();
        for (total, page, shuffled) in [
            (64 * MIB, 2 * MIB, true),
            (256 * MIB, 2 * MIB, true),
            (GIB, GIB, false),
            (GIB, 2 * MIB, false),
            (GIB, 2 * MIB, true),
            (4 * GIB, 256 * MIB, false),
            (4 * GIB, 32 * MIB, true),
        ] {
            let how = if shuffled { "shuffled" } else { "in order" };
            let alias = if unaliased { "unaliased" } else { "aliased" };
            let name = format!("paged, {alias}, pages of {} MiB {how}", page / MIB);
            probe.paged(&name, total / shrink, (page / shrink).max(64 * KIB), shuffled)?;
        }
    }
    for tile in [4 * KIB, 16 * KIB, 128 * KIB, 512 * KIB] {
        let probe = Probe::open(&selector, Tuning { tile_bytes: tile, ..Default::default() })?;
        let name = format!("paged, tile {} KiB, pages of 64 MiB in order", tile / KIB);
        let shrink = probe.shrink();
        probe.paged(&name, 2 * GIB / shrink, 64 * MIB / shrink, false)?;
    }
    Ok(())
}

impl Probe {
    fn open(selector: &Selector, tuning: Tuning) -> Result<Self> {
        let options = OpenOptions { tuning, skip_calibration: true, ..Default::default() };
        let device = open(selector, &options)?;
        let stream = device.create_stream(StreamSpec::default())?;
        let class = device.caps().classes_of(MemoryKind::Device).next().ok_or("no memory")?;
        Ok(Self { device, stream, class })
    }

    fn shrink(&self) -> u64 {
        if self.device.info().is_cpu { 256 } else { 1 }
    }

    fn plain(&self, name: &str, bytes: u64, each: u64) -> Result<()> {
        let each = each.max(64 * KIB);
        let spec = PlainSpec {
            class: self.class,
            bytes: each,
            exportable: false,
            priority: 0.5,
            name: "probe",
        };
        let spaces: Vec<SpaceId> = (0..bytes / each)
            .map(|_| self.device.create_plain(&spec).map(|plain| plain.space))
            .collect::<std::result::Result<_, _>>()?;
        let regions: Vec<_> = spaces.iter().map(|space| region(*space, each)).collect();
        self.measure(name, &regions)?;
        for space in spaces {
            self.device.release_plain(space)?;
        }
        Ok(())
    }

    fn paged(&self, name: &str, total: u64, page: u64, shuffled: bool) -> Result<()> {
        let Some(paging) = self.device.paging() else { return Ok(()) };
        let space = paging.reserve(self.class, total)?.space;
        let object = total.min(GIB).max(page);
        let mut maps = Vec::new();
        for part in 0..total / object {
            let memory = paging.create(self.class, object, false)?;
            let pages = object / page;
            for i in 0..pages {
                let from = if shuffled { (i * 2_654_435_761) % pages } else { i };
                let at = Place { space, offset: part * object + i * page };
                maps.push(MapOp { at, memory, memory_offset: from * page, bytes: page });
            }
        }
        let ready = paging.map(&maps, &[])?;
        self.device.wait_on_stream(self.stream, ready.as_slice())?;
        self.measure(name, &[region(space, total)])?;
        let drops: Vec<_> = maps.iter().map(|op| UnmapOp { at: op.at, bytes: op.bytes }).collect();
        if let Some(point) = paging.unmap(&drops, &[])? {
            self.device.wait_any(&[point], Duration::from_secs(60))?;
        }
        let mut memories: Vec<_> = maps.iter().map(|op| op.memory).collect();
        memories.dedup();
        memories.into_iter().try_for_each(|memory| paging.release(memory))?;
        Ok(paging.unreserve(space)?)
    }

    fn measure(&self, name: &str, regions: &[Region]) -> Result<()> {
        let bytes: u64 = regions.iter().map(|region| region.bytes).sum();
        let fill = self.best(Timed::FillPattern(regions))?;
        let read = self.best(Timed::Checksum(regions))?;
        let gb_s = |ns: f64| bytes as f64 / ns;
        println!("{:7.1} {:7.1}  {} MiB, {name}", gb_s(fill), gb_s(read), bytes / MIB);
        Ok(())
    }

    /// The best of three runs, in nanoseconds of the device.
    fn best(&self, work: Timed<'_>) -> Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            let timing = self.device.timed(self.stream, work)?;
            if !self.device.wait_any(&[timing.point], Duration::from_secs(60))? {
                return Err("work is not done after a minute".into());
            }
            if let (Some(ticket), Some(compute)) = (timing.ticket, self.device.compute()) {
                compute.take_report(ticket)?;
            }
            best = best.min(timing.device_ns()?);
        }
        Ok(best)
    }
}

fn region(space: SpaceId, bytes: u64) -> Region {
    Region { place: Place { space, offset: 0 }, bytes, seed: 1 }
}
