//! Where a device's bandwidth goes: kernels over plain and paged memory, by the size of a
//! workgroup's tile, the size of the memory, and how its pages lie. A table on standard output.
//!
//! `cargo run --release -p terrane-vulkan --example diagnose [-- DEVICE]`

use std::time::{Duration, Instant};

use terrane_core::device::{
    ClassId, CopyOp, Device, MapOp, MemoryKind, Place, PlainSpec, Region, SpaceId, StreamId,
    StreamSpec, UnmapOp,
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
    let probe = Probe::open(&selector, Tuning::default())?;
    for idle in [0, 1, 3, 10] {
        probe.clocks(Duration::from_secs(idle))?;
    }
    for (total, slab) in
        [(4 * GIB, 256 * MIB), (16 * GIB, 256 * MIB), (32 * GIB, 256 * MIB), (32 * GIB, 2 * GIB)]
    {
        probe.blocks(total / probe.shrink(), slab / probe.shrink())?;
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
        let spaces = self.slabs(bytes, each)?;
        let regions: Vec<_> = spaces.iter().map(|space| region(*space, each)).collect();
        self.measure(name, &regions)?;
        self.release(spaces)
    }

    fn slabs(&self, total: u64, bytes: u64) -> Result<Vec<SpaceId>> {
        let class = self.class;
        let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "probe" };
        let make = |_| Ok(self.device.create_plain(&spec)?.space);
        (0..total / bytes).map(make).collect()
    }

    fn release(&self, spaces: Vec<SpaceId>) -> Result<()> {
        Ok(spaces.into_iter().try_for_each(|space| self.device.release_plain(space))?)
    }

    /// The rate of one fill after the other, once the device had nothing to do for `idle`: how
    /// long its clocks take to come back.
    fn clocks(&self, idle: Duration) -> Result<()> {
        let slabs = self.slabs(2 * GIB / self.shrink(), 2 * GIB / self.shrink())?;
        let regions = [region(slabs[0], 2 * GIB / self.shrink())];
        self.best(Timed::FillPattern(&regions))?;
        std::thread::sleep(idle);
        let (start, mut marks) = (Instant::now(), [0, 20, 50, 100, 200, 400, 800, 1600].iter());
        let mut mark = marks.next();
        print!("fill after {idle:?} without work, GB/s at ms:");
        while let Some(at) = mark {
            let ns = self.once(Timed::FillPattern(&regions))?;
            if start.elapsed() >= Duration::from_millis(*at) {
                print!("  {at}: {:.0}", regions[0].bytes as f64 / ns);
                mark = marks.next();
            }
        }
        println!();
        self.release(slabs)
    }

    /// Gathers blocks of 64 KiB to 16 MiB, packed in slabs, until 1.5 seconds have passed.
    fn blocks(&self, total: u64, slab: u64) -> Result<()> {
        let (from, to) = (self.slabs(total, slab)?, self.slabs(total, slab)?);
        let mut ops = Vec::new();
        for (source, target) in from.iter().zip(to.iter().rev()) {
            let (mut offset, mut size) = (0, 64 * KIB);
            while offset < slab {
                let bytes = size.min(slab - offset);
                let place = |space| Place { space, offset };
                ops.push(CopyOp { from: place(*source), to: place(*target), bytes });
                offset += bytes;
                size = if size == 16 * MIB { 64 * KIB } else { size * 2 };
            }
        }
        let bytes: u64 = ops.iter().map(|op| op.bytes).sum();
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        let cold = self.once(Timed::Gather(&ops))?;
        while start.elapsed() < Duration::from_millis(1500) {
            best = best.min(self.once(Timed::Gather(&ops))?);
        }
        let rate = |ns: f64| 2.0 * bytes as f64 / ns;
        let (count, mib) = (ops.len(), bytes / MIB);
        println!(
            "{:7.1} first, {:7.1} best, read and written by gather: {count} blocks, {mib} MiB, in slabs of {} MiB",
            rate(cold),
            rate(best),
            slab / MIB
        );
        self.release(from)?;
        self.release(to)
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
            best = best.min(self.once(work)?);
        }
        Ok(best)
    }

    /// One run, in nanoseconds of the device.
    fn once(&self, work: Timed<'_>) -> Result<f64> {
        let timing = self.device.timed(self.stream, work)?;
        if !self.device.wait_any(&[timing.point], Duration::from_secs(60))? {
            return Err("work is not done after a minute".into());
        }
        if let (Some(ticket), Some(compute)) = (timing.ticket, self.device.compute()) {
            compute.take_report(ticket)?;
        }
        Ok(timing.device_ns()?)
    }
}

fn region(space: SpaceId, bytes: u64) -> Region {
    Region { place: Place { space, offset: 0 }, bytes, seed: 1 }
}
