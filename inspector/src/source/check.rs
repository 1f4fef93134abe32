//! A short self-test of a device: the clauses that everything else rests on.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use terrane::Opened;
use terrane_core::device::{Region, StreamSpec};
use terrane_core::point::StreamId;
use terrane_core::{Allocator, Buffer, Config, Request, Slice};
use terrane_trace::replay::Options;
use terrane_trace::{Op, TraceBuilder};

/// The outcome of one check.
#[derive(Serialize)]
pub struct Check {
    /// What was checked, as a sentence.
    pub name: &'static str,
    /// Milliseconds that it took.
    pub ms: f64,
    /// Whether there was nothing to check: the device keeps no bytes, or runs no kernels.
    pub skipped: bool,
    /// What was wrong, if anything.
    pub error: Option<String>,
}

/// The longest wait for one piece of work.
const SOON: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

type Run = fn(&Opened) -> Result<()>;

/// What a check needs of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Bytes that are really kept.
    Contents,
    /// Kernels that run over such bytes.
    Kernels,
}

/// Runs the checks until the time is over; what was not reached is left out.
pub fn checks(opened: &Opened, time: Duration) -> Vec<Check> {
    let all: [(&'static str, Needs, Run); 6] = [
        ("memory is given and given back whole", Needs::Nothing, memory),
        ("bytes written by the host come back", Needs::Contents, bytes),
        ("a copy on another stream sees what was written before it", Needs::Contents, order),
        ("a kernel's pattern is found again, and one flipped byte too", Needs::Kernels, pattern),
        ("a limit is kept and told apart from want of memory", Needs::Nothing, limit),
        ("2,000 random blocks on three streams keep their contents", Needs::Kernels, workload),
    ];
    let start = Instant::now();
    let mut checks = Vec::new();
    for (name, needs, run) in all {
        if start.elapsed() >= time {
            break;
        }
        let begin = Instant::now();
        let skipped = !has(opened, needs);
        let error = if skipped { None } else { run(opened).err() };
        let error = error.map(|error| format!("{error:#}"));
        checks.push(Check { name, ms: begin.elapsed().as_secs_f64() * 1e3, skipped, error });
    }
    checks
}

fn has(opened: &Opened, needs: Needs) -> bool {
    match needs {
        Needs::Nothing => true,
        Needs::Contents => opened.sim.is_none(),
        Needs::Kernels => opened.sim.is_none() && opened.device.compute().is_some(),
    }
}

struct Rig {
    alloc: Allocator,
    stream: StreamId,
}

impl Rig {
    fn new(opened: &Opened) -> Result<Self> {
        let alloc = opened.allocator(Config::for_device(opened.device.caps()))?;
        let stream = opened.device.create_stream(StreamSpec::default())?;
        Ok(Self { alloc, stream })
    }

    fn block(&self, bytes: u64) -> Result<Buffer> {
        Ok(self.alloc.buffer(&Request::new(bytes, self.stream))?)
    }

    fn read(&self, stream: StreamId, slice: Slice) -> Result<Vec<u8>> {
        let ticket = self.alloc.read(stream, slice)?;
        self.alloc.wait(ticket.point, SOON)?;
        Ok(self.alloc.take_read(ticket)?)
    }
}

fn memory(opened: &Opened) -> Result<()> {
    let rig = Rig::new(opened)?;
    let blocks: Vec<Buffer> = (1..=16).map(|n| rig.block(n * 300_000)).collect::<Result<_>>()?;
    drop(blocks);
    rig.alloc.trim(0)?;
    let reserved = rig.alloc.stats().reserved.current;
    ensure!(reserved == 0, "{reserved} bytes stayed after everything was freed and trimmed");
    rig.alloc.check().map_err(anyhow::Error::msg)
}

fn sample() -> Vec<u8> {
    (0..65_536_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn bytes(opened: &Opened) -> Result<()> {
    let rig = Rig::new(opened)?;
    let block = rig.block(MIB)?;
    rig.alloc.write(rig.stream, block.handle(), 4096, &sample())?;
    let got = rig.read(rig.stream, Slice::read(block.handle()).part(4096, 65_536))?;
    ensure!(got == sample(), "other bytes came back");
    Ok(())
}

fn order(opened: &Opened) -> Result<()> {
    let rig = Rig::new(opened)?;
    let other = opened.device.create_stream(StreamSpec::default())?;
    let (from, to) = (rig.block(8 * MIB)?, rig.block(8 * MIB)?);
    rig.alloc.write(rig.stream, from.handle(), 8 * MIB - 65_536, &sample())?;
    rig.alloc.copy(other, Slice::read(from.handle()), Slice::write(to.handle()))?;
    let got = rig.read(other, Slice::read(to.handle()).part(8 * MIB - 65_536, 65_536))?;
    ensure!(got == sample(), "the copy ran before the write was done");
    Ok(())
}

fn pattern(opened: &Opened) -> Result<()> {
    let Some(compute) = opened.device.compute() else { return Ok(()) };
    let rig = Rig::new(opened)?;
    let block = rig.block(4 * MIB)?;
    let region = |place| Region { place, bytes: 4 * MIB, seed: 42 };
    let mut submission = rig.alloc.submit(rig.stream);
    let at = submission.resolve(block.handle())?;
    let point = compute.fill_pattern(rig.stream, &[region(at.place)])?;
    submission.close_at(point);
    for wrong in [0, 1] {
        let mut submission = rig.alloc.submit(rig.stream);
        let at = submission.resolve(block.handle())?;
        let ticket = compute.verify(rig.stream, &[region(at.place)])?;
        submission.close_at(ticket.point);
        rig.alloc.wait(ticket.point, SOON)?;
        let report = compute.take_report(ticket)?;
        ensure!(report == [wrong], "{report:?} words differ, {wrong} should");
        let mut word = terrane_core::device::pattern::word(42, 1000).to_le_bytes();
        word[2] ^= 1;
        rig.alloc.write(rig.stream, block.handle(), 4000, &word)?;
    }
    Ok(())
}

fn limit(opened: &Opened) -> Result<()> {
    use terrane_core::{Error, Limit};
    let config = Config::for_device(opened.device.caps()).limit(Limit::Bytes(8 * MIB));
    let alloc = Allocator::with_config(opened.device.clone(), config)?;
    let stream = opened.device.create_stream(StreamSpec::default())?;
    match alloc.buffer(&Request::new(9 * MIB, stream)) {
        Err(Error::OverUserLimit { .. }) => Ok(()),
        Err(error) => bail!("the wrong error: {error}"),
        Ok(_) => bail!("9 MiB were given under a limit of 8 MiB"),
    }
}

fn workload(opened: &Opened) -> Result<()> {
    let mut builder = TraceBuilder::new();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut live: Vec<(u64, u64, u32)> = Vec::new();
    for block in 0..2_000 {
        let (bytes, stream) = (256 + (random(MIB) >> random(10)), random(3) as u32);
        builder.push(Op::Alloc, block, block, bytes, stream)?;
        live.push((block, bytes, stream));
        if live.len() > 64 {
            let (gone, bytes, stream) = live.swap_remove(random(64) as usize);
            builder.push(Op::FreeRequested, block, gone, bytes, stream)?;
            builder.push(Op::FreeCompleted, block, gone, bytes, stream)?;
        }
    }
    let trace = builder.finish();
    let report = super::replay(opened, "check", &trace, &Options::default())?.run()?;
    ensure!(report.failures == 0, "{} requests failed", report.failures);
    ensure!(report.mismatches == 0, "{} blocks lost their contents", report.mismatches);
    Ok(())
}
