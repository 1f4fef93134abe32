//! The built-in kernels.

use terrane_core::device::{
    CopyOp, DeviceError, Feature, Place, Region, SpaceId, StreamId, pattern,
};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, Stop, ensure, equal, refused};
use crate::rig::{Rig, at};

use Blame::Backend;
use Need::Compute;

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "compute.pattern",
        "The pattern of a seed is the one that the contract defines.",
        &[Compute],
        "device::pattern::word",
        Backend,
        fill_pattern,
    ),
    device(
        "compute.pattern-exact",
        "A pattern is written to its regions and to nothing beside them.",
        &[Compute],
        "Compute::fill_pattern",
        Backend,
        pattern_exact,
    ),
    device(
        "compute.verify",
        "Verifying counts exactly the words that differ, for each region by itself.",
        &[Compute],
        "Compute::verify",
        Backend,
        verify,
    ),
    device(
        "compute.checksum",
        "The checksum of a region is the one that the contract defines.",
        &[Compute],
        "device::pattern::checksum",
        Backend,
        checksum,
    ),
    device(
        "compute.large",
        "A region larger than a binding is filled and verified to its last word.",
        &[Compute],
        "Compute::fill_pattern",
        Backend,
        large,
    ),
    device(
        "compute.gather",
        "A gather copies like a copy.",
        &[Compute],
        "Compute::gather",
        Backend,
        gather,
    ),
    device(
        "compute.gather-invalid",
        "A gather that overlaps itself or is no multiple of 16 is an invalid call.",
        &[Compute],
        "Compute::gather",
        Backend,
        gather_invalid,
    ),
    device(
        "compute.regions-invalid",
        "Regions outside of their segment or not aligned are invalid calls.",
        &[Compute],
        "Region",
        Backend,
        regions_invalid,
    ),
    device(
        "compute.report-once",
        "A report is taken once.",
        &[Compute],
        "Compute::take_report",
        Backend,
        report_once,
    ),
    device(
        "compute.report-early",
        "A report that is not done can not be taken, and is not lost by asking.",
        &[Compute, Need::Busy],
        "Compute::take_report",
        Backend,
        report_early,
    ),
    device(
        "compute.order",
        "Kernels and copies of one stream run in order.",
        &[Compute],
        "Device, rules for every method: order",
        Backend,
        order,
    ),
    device(
        "compute.counts",
        "Every kernel submitted is counted.",
        &[Compute],
        "Compute::dispatches",
        Backend,
        counts,
    ),
];

pub(super) fn reports(rig: &Rig, stream: StreamId, regions: &[Region]) -> Result<Vec<u64>, Stop> {
    let compute = rig.compute()?;
    let ticket = compute.verify(stream, regions)?;
    rig.wait(ticket.point)?;
    Ok(compute.take_report(ticket)?)
}

const fn region(place: Place, bytes: u64, seed: u64) -> Region {
    Region { place, bytes, seed }
}

fn fill_pattern(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    for seed in [0, 1, 0xFFFF_FFFF, 0x1_0000_0000, 0xDEAD_BEEF_0BAD_CAFE, u64::MAX] {
        let region = region(at(plain.space, 256), 40_004, seed);
        rig.compute()?.fill_pattern(stream, &[region])?;
        let words = rig.words(stream, region.place, region.bytes / 4)?;
        for (index, &found) in (0_u64..).zip(&words) {
            equal!(found, pattern::word(seed, index), "word {index} of seed {seed:#x}");
        }
    }
    Ok(())
}

fn pattern_exact(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    rig.device().fill(stream, start(plain), 64 << 10, 0x7777_7777)?;
    let regions = [
        region(at(plain.space, 4), 4, 3),
        region(at(plain.space, 1024), 2052, 4),
        region(at(plain.space, 32 << 10), 16 << 10, 5),
    ];
    rig.compute()?.fill_pattern(stream, &regions)?;
    let words = rig.words(stream, start(plain), 16 << 10)?;
    for (index, &found) in (0_u64..).zip(&words) {
        let inside =
            |r: &&Region| (r.place.offset..r.place.offset + r.bytes).contains(&(index * 4));
        let expected = regions.iter().find(inside).map_or(0x7777_7777, |region| {
            pattern::word(region.seed, index - region.place.offset / 4)
        });
        equal!(found, expected, "word {index} of the segment");
    }
    Ok(())
}

fn verify(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(256 << 10)?;
    let regions: Vec<Region> =
        (0..8).map(|n| region(at(plain.space, n * (32 << 10)), 20_000 + 4 * n, n << 33)).collect();
    rig.compute()?.fill_pattern(stream, &regions)?;
    equal!(reports(rig, stream, &regions)?, [0; 8], "untouched regions");
    // n words of region n are spoilt: the first, the last, and some between.
    for (n, region) in regions.iter().enumerate() {
        for spoilt in 0..n as u64 {
            let last = region.bytes / 4 - 1;
            let index = if spoilt == 1 { last } else { spoilt * 311 };
            let word = !pattern::word(region.seed, index);
            let place = at(plain.space, region.place.offset + index * 4);
            rig.device().write(stream, place, &word.to_le_bytes())?;
        }
    }
    equal!(reports(rig, stream, &regions)?, [0, 1, 2, 3, 4, 5, 6, 7], "spoilt words by region");
    Ok(())
}

fn checksum(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    let mut random = rig.random();
    let bytes: Vec<u8> = (0..64 << 10).map(|_| random.bits() as u8).collect();
    rig.device().write(stream, start(plain), &bytes)?;
    let parts = [(0, 4), (4, 8), (256, 20_000), (20_480, 44_000)];
    let regions: Vec<Region> =
        parts.iter().map(|&(offset, bytes)| region(at(plain.space, offset), bytes, 0)).collect();
    let ticket = rig.compute()?.checksum(stream, &regions)?;
    rig.wait(ticket.point)?;
    let found = rig.compute()?.take_report(ticket)?;
    let expected: Vec<u64> = parts
        .iter()
        .map(|&(offset, len)| {
            let part = &bytes[offset as usize..(offset + len) as usize];
            pattern::checksum(
                part.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])),
            )
        })
        .collect();
    equal!(found, expected, "checksums");
    Ok(())
}

fn large(rig: &Rig) -> Outcome {
    let bytes = super::work::large_bytes(rig);
    let stream = rig.stream()?;
    let plain = rig.plain(bytes)?;
    let whole = region(start(plain), bytes, 0x1234_5678_9ABC_DEF0);
    rig.compute()?.fill_pattern(stream, &[whole])?;
    for offset in [0, bytes / 2, bytes - 8, bytes - 4] {
        let expected = pattern::word(whole.seed, offset / 4);
        equal!(rig.words(stream, at(plain.space, offset), 1)?, [expected], "at {offset}");
    }
    equal!(reports(rig, stream, &[whole])?, [0], "a region untouched");
    let last = at(plain.space, bytes - 4);
    rig.device().write(stream, last, &(!pattern::word(whole.seed, bytes / 4 - 1)).to_le_bytes())?;
    equal!(reports(rig, stream, &[whole])?, [1], "a region with the last word spoilt");
    Ok(())
}

fn gather(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let (from, to) = (rig.plain(256 << 10)?, rig.plain(256 << 10)?);
    let parts = [(0, 16), (16, 48), (1024, 4096), (8192, 65_536), (128 << 10, 100_000)];
    rig.compute()?.fill_pattern(stream, &[region(start(from), 256 << 10, 11)])?;
    rig.device().fill(stream, start(to), 256 << 10, 0x3333_3333)?;
    let shifted = |offset: u64| (offset + 32 + offset / 2).next_multiple_of(16) % (160 << 10);
    let ops: Vec<CopyOp> = parts
        .iter()
        .map(|&(offset, bytes): &(u64, u64)| CopyOp {
            from: at(from.space, offset),
            to: at(to.space, shifted(offset)),
            bytes: bytes.next_multiple_of(16).min((256 << 10) - shifted(offset)) / 16 * 16,
        })
        .collect();
    let mut expected = vec![0x33_u8; 256 << 10];
    let source = rig.fetch(stream, start(from), 256 << 10)?;
    // One after the other, since a gather's destinations must not overlap.
    for op in &ops {
        rig.compute()?.gather(stream, &[*op])?;
        let (f, t, n) = (op.from.offset as usize, op.to.offset as usize, op.bytes as usize);
        expected[t..t + n].copy_from_slice(&source[f..f + n]);
    }
    ensure!(rig.fetch(stream, start(to), 256 << 10)? == expected, "single gathers went wrong");
    let many: Vec<CopyOp> = (0..200)
        .map(|n| CopyOp {
            from: at(from.space, n * 1024),
            to: at(to.space, (199 - n) * 1280),
            bytes: 1024,
        })
        .collect();
    rig.compute()?.gather(stream, &many)?;
    for op in &many {
        let (f, t) = (op.from.offset as usize, op.to.offset as usize);
        expected[t..t + 1024].copy_from_slice(&source[f..f + 1024]);
    }
    ensure!(rig.fetch(stream, start(to), 256 << 10)? == expected, "200 ranges went wrong");
    gather_otherwise(rig, stream, &many, (to.space, &source))
}

/// The same ranges by a few groups at a time, and with times, where the device can: their bytes,
/// and times that do not run backwards.
fn gather_otherwise(
    rig: &Rig,
    stream: StreamId,
    ops: &[CopyOp],
    (space, source): (SpaceId, &[u8]),
) -> Outcome {
    let (to, bytes) = (at(space, 0), source.len() as u64);
    let mut expected = vec![0x55_u8; source.len()];
    for op in ops {
        let (f, t, n) = (op.from.offset as usize, op.to.offset as usize, op.bytes as usize);
        expected[t..t + n].copy_from_slice(&source[f..f + n]);
    }
    for groups in [1, 3].into_iter().filter(|_| rig.device().caps().gather_within) {
        rig.device().fill(stream, to, bytes, 0x5555_5555)?;
        rig.compute()?.gather_within(stream, ops, groups)?;
        ensure!(rig.fetch(stream, to, bytes)? == expected, "by {groups} groups");
    }
    for by_kernel in [true, false] {
        rig.device().fill(stream, to, bytes, 0x5555_5555)?;
        let ticket = match rig.device().copy_timed(stream, ops, by_kernel) {
            Err(DeviceError::Unsupported(Feature::Timestamps)) => return Ok(()),
            ticket => ticket?,
        };
        rig.wait(ticket.point)?;
        let [from, end] = rig.device().take_times(ticket)?;
        ensure!(from <= end, "copies end {} ns before they start", from - end);
        ensure!(rig.fetch(stream, to, bytes)? == expected, "timed, by kernel: {by_kernel}");
        refused(&rig.device().take_times(ticket), "times taken twice")?;
    }
    Ok(())
}

fn gather_invalid(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    let op =
        |from, to, bytes| CopyOp { from: at(plain.space, from), to: at(plain.space, to), bytes };
    for op in [op(0, 16, 64), op(8, 4096, 64), op(0, 4100, 64), op(0, 4096, 40)] {
        refused(&rig.compute()?.gather(stream, &[op]), &format!("{op:?}"))?;
    }
    Ok(())
}

fn regions_invalid(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    for (offset, bytes) in [(2, 8), (0, 6), (plain.bytes, 4), (0, plain.bytes + 4)] {
        let regions = [region(start(plain), 4, 0), region(at(plain.space, offset), bytes, 0)];
        let what = format!("{bytes} bytes at {offset} of {}", plain.bytes);
        refused(&rig.compute()?.fill_pattern(stream, &regions), &format!("a fill of {what}"))?;
        refused(&rig.compute()?.verify(stream, &regions), &format!("a check of {what}"))?;
        refused(&rig.compute()?.checksum(stream, &regions), &format!("a checksum of {what}"))?;
    }
    Ok(())
}

fn report_once(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    let whole = region(start(plain), 4096, 1);
    rig.compute()?.fill_pattern(stream, &[whole])?;
    let ticket = rig.compute()?.verify(stream, &[whole])?;
    rig.wait(ticket.point)?;
    equal!(rig.compute()?.take_report(ticket)?, [0], "the report");
    refused(&rig.compute()?.take_report(ticket), "a report taken twice")
}

fn report_early(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    let whole = region(start(plain), 4096, 1);
    rig.compute()?.fill_pattern(stream, &[whole])?;
    let busy = rig.busy(stream, &[])?;
    let ticket = rig.compute()?.verify(stream, &[whole])?;
    refused(&rig.compute()?.take_report(ticket), "a report taken before its point")?;
    busy.finish();
    rig.wait(ticket.point)?;
    equal!(rig.compute()?.take_report(ticket)?, [0], "the report after an early question");
    Ok(())
}

fn order(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(128 << 10)?;
    let (a, b) = (start(plain), at(plain.space, 64 << 10));
    let mut tickets = Vec::new();
    for seed in 0..24 {
        rig.compute()?.fill_pattern(stream, &[region(a, 64 << 10, seed)])?;
        let op = CopyOp { from: a, to: b, bytes: 64 << 10 };
        if seed % 2 == 0 {
            rig.device().copy(stream, &[op])?;
        } else {
            rig.compute()?.gather(stream, &[op])?;
        }
        rig.device().fill(stream, a, 64 << 10, 0)?;
        tickets.push(rig.compute()?.verify(stream, &[region(b, 64 << 10, seed)])?);
    }
    for (seed, ticket) in tickets.into_iter().enumerate() {
        rig.wait(ticket.point)?;
        equal!(rig.compute()?.take_report(ticket)?, [0], "round {seed}");
    }
    Ok(())
}

fn counts(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(8192)?;
    let compute = rig.compute()?;
    let whole = region(start(plain), 4096, 1);
    let before = compute.dispatches();
    compute.fill_pattern(stream, &[whole])?;
    let ticket = compute.verify(stream, &[whole])?;
    compute
        .gather(stream, &[CopyOp { from: start(plain), to: at(plain.space, 4096), bytes: 64 }])?;
    let counted = compute.dispatches() - before;
    ensure!(counted >= 3, "{counted} dispatches counted of three");
    rig.wait(ticket.point)?;
    compute.take_report(ticket)?;
    rig.device().fill(stream, start(plain), 64, 0)?;
    ensure!(compute.dispatches() >= before + counted, "the count fell");
    Ok(())
}
