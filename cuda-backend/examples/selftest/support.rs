//! What the checks share.

use std::error::Error;
use std::time::Duration;

use serde_json::Value;
use terrane_core::device::{
    ClassId, Compute, Device, MapOp, MemoryId, Paging, Place, Plain, PlainSpec, Region, SpaceId,
    StreamId, StreamSpec, SyncPoint, Ticket, UnmapOp,
};
use terrane_cuda::{CudaDevice, Selector};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const DEVICE: ClassId = ClassId(0);
pub const UPLOAD: ClassId = ClassId(1);
pub const READBACK: ClassId = ClassId(2);
pub const SHARED: ClassId = ClassId(3);
/// Longer than any work here takes.
pub const LONG: Duration = Duration::from_secs(60);

pub type Failure = Box<dyn Error>;
pub type Outcome = Result<Value, Failure>;

/// Fails the check unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($text)+).into());
        }
    };
}

pub struct Setup {
    pub device: CudaDevice,
    pub quick: bool,
    pub selector: Selector,
}

/// Small, fast, seeded.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

pub fn at(space: SpaceId, offset: u64) -> Place {
    Place { space, offset }
}

pub fn region(space: SpaceId, offset: u64, bytes: u64, seed: u64) -> Region {
    Region { place: at(space, offset), bytes, seed }
}

impl Setup {
    /// The larger size, or the smaller one in a quick run.
    pub fn size(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    pub fn plain(&self, class: ClassId, bytes: u64) -> Result<Plain, Failure> {
        plain_on(&self.device, class, bytes)
    }

    pub fn stream(&self) -> Result<StreamId, Failure> {
        Ok(self.device.create_stream(StreamSpec::default())?)
    }

    /// Waits for a point; an error when that takes too long.
    pub fn wait(&self, point: SyncPoint) -> Result<(), Failure> {
        wait_on(&self.device, point)
    }

    /// Waits for all work of a stream, then ends it.
    pub fn finish(&self, stream: StreamId) -> Result<(), Failure> {
        self.wait(self.device.mark(stream)?)?;
        Ok(self.device.retire_stream(stream)?)
    }

    pub fn contents(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Vec<u8>, Failure> {
        let ticket = self.device.read(stream, place, bytes)?;
        self.wait(ticket.point)?;
        Ok(self.device.take_read(ticket)?)
    }

    pub fn report(&self, ticket: Ticket) -> Result<Vec<u64>, Failure> {
        self.wait(ticket.point)?;
        Ok(self.device.take_report(ticket)?)
    }

    /// Words that differ from the regions' patterns, all together.
    pub fn mismatches(&self, stream: StreamId, regions: &[Region]) -> Result<u64, Failure> {
        let ticket = self.device.verify(stream, regions)?;
        Ok(self.report(ticket)?.iter().sum())
    }

    /// Fills regions with their patterns and verifies them.
    pub fn fill_and_check(&self, stream: StreamId, regions: &[Region]) -> Result<(), Failure> {
        self.device.fill_pattern(stream, regions)?;
        match self.mismatches(stream, regions)? {
            0 => Ok(()),
            wrong => Err(format!("{wrong} words differ").into()),
        }
    }

    pub fn map_one(&self, space: SpaceId, offset: u64, page: Page) -> Result<(), Failure> {
        let op = MapOp { at: at(space, offset), memory: page.0, memory_offset: 0, bytes: page.1 };
        self.device.map(&[op], &[])?;
        Ok(())
    }

    pub fn unmap_one(
        &self,
        space: SpaceId,
        offset: u64,
        bytes: u64,
        after: &[SyncPoint],
    ) -> Result<(), Failure> {
        self.device.unmap(&[UnmapOp { at: at(space, offset), bytes }], after)?;
        Ok(())
    }
}

/// A memory object for pages and its bytes.
#[derive(Clone, Copy)]
pub struct Page(pub MemoryId, pub u64);

pub fn plain_on(device: &CudaDevice, class: ClassId, bytes: u64) -> Result<Plain, Failure> {
    let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "selftest" };
    Ok(device.create_plain(&spec)?)
}

pub fn wait_on(device: &CudaDevice, point: SyncPoint) -> Result<(), Failure> {
    if device.wait_any(&[point], LONG)? { Ok(()) } else { Err("work did not end".into()) }
}

/// The median of a few samples.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}
