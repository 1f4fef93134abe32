//! Copies, fills, writes and reads.

use std::time::Duration;

use terrane_core::device::{CopyOp, Place};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, ensure, equal, refused};
use crate::rig::{Rig, at};

use Blame::Backend;

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "work.fill-exact",
        "A fill writes its word to the range and to nothing beside it.",
        &[],
        "Device::fill",
        Backend,
        fill_exact,
    ),
    device(
        "work.fill-unaligned",
        "A fill whose offset or size is no multiple of 4 is an invalid call.",
        &[],
        "Device::fill",
        Backend,
        fill_unaligned,
    ),
    device(
        "work.fill-large",
        "A fill larger than a binding or a piece of staging reaches its last word.",
        &[],
        "Device::fill",
        Backend,
        fill_large,
    ),
    device(
        "work.copy-exact",
        "A copy moves its bytes in its direction and touches nothing beside them.",
        &[],
        "Device::copy",
        Backend,
        copy_exact,
    ),
    device(
        "work.copy-many",
        "All copies of one call are made.",
        &[],
        "Device::copy",
        Backend,
        copy_many,
    ),
    device(
        "work.copy-none",
        "A copy of nothing is a submission like any other.",
        &[],
        "Device::copy",
        Backend,
        copy_none,
    ),
    device(
        "work.copy-invalid",
        "A copy that overlaps itself or is not aligned is an invalid call.",
        &[],
        "CopyOp",
        Backend,
        copy_invalid,
    ),
    device(
        "work.nothing-changed",
        "A call that is refused has done none of its copies.",
        &[],
        "Device, rules for every method: errors",
        Backend,
        nothing_changed,
    ),
    device(
        "work.write-any",
        "Any number of bytes can be written and read at any offset.",
        &[],
        "Device::write, Device::read",
        Backend,
        write_any,
    ),
    device(
        "work.write-large",
        "A write of 5 MiB and 3 bytes comes back as it was.",
        &[],
        "Device::write, Device::read",
        Backend,
        write_large,
    ),
    device(
        "work.write-owned",
        "Bytes given to a write may be used again as soon as the call returns.",
        &[Need::Busy],
        "Device::write",
        Backend,
        write_owned,
    ),
    device(
        "work.ticket-once",
        "The bytes of a read are taken once.",
        &[],
        "Device::take_read",
        Backend,
        ticket_once,
    ),
    device(
        "work.ticket-early",
        "The bytes of a read that is not done can not be taken, and are not lost by asking.",
        &[Need::Busy],
        "Device::take_read",
        Backend,
        ticket_early,
    ),
    device(
        "work.read-in-order",
        "A read sees the work before it and none after it.",
        &[],
        "Device::read",
        Backend,
        read_in_order,
    ),
];

/// Bytes that differ from their neighbours.
fn data(bytes: usize, salt: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ salt).collect()
}

fn fill_exact(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    rig.device().fill(stream, start(plain), 64 << 10, 0x1111_1111)?;
    for (offset, bytes) in [(4, 4), (256, 4096), (16_380, 8), (32_768, 20_000)] {
        rig.device().fill(stream, at(plain.space, offset), bytes, 0xDEAD_BEEF)?;
        let words = rig.words(stream, at(plain.space, offset - 4), bytes / 4 + 2)?;
        let inside = &words[1..words.len() - 1];
        ensure!(inside.iter().all(|&w| w == 0xDEAD_BEEF), "{bytes} bytes at {offset} not filled");
        let (before, after) = (words[0], words[words.len() - 1]);
        equal!([before, after], [0x1111_1111; 2], "beside {bytes} bytes at {offset}");
    }
    Ok(())
}

fn fill_unaligned(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    for (offset, bytes) in [(2, 8), (4, 6), (1, 1)] {
        let answer = rig.device().fill(stream, at(plain.space, offset), bytes, 0);
        refused(&answer, &format!("a fill of {bytes} bytes at {offset}"))?;
    }
    Ok(())
}

/// More than one binding, where that is a size to be had; else more than usual pieces.
pub(super) fn large_bytes(rig: &Rig) -> u64 {
    let binding = rig.caps().max_binding_bytes;
    if binding > 1 << 30 {
        return 24 << 20;
    }
    let more = binding.next_multiple_of(4096) + (72 << 20);
    if more <= rig.caps().max_plain_bytes { more } else { 24 << 20 }
}

fn fill_large(rig: &Rig) -> Outcome {
    let bytes = large_bytes(rig);
    let stream = rig.stream()?;
    let plain = rig.plain(bytes)?;
    rig.device().fill(stream, at(plain.space, bytes - 4096), 4096, 1)?;
    rig.device().fill(stream, start(plain), bytes, 2)?;
    for offset in [0, bytes / 2, bytes - 8, bytes - 4] {
        equal!(rig.words(stream, at(plain.space, offset), 1)?, [2], "the word at {offset}");
    }
    Ok(())
}

fn copy_exact(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let (from, to) = (rig.plain(16 << 10)?, rig.plain(16 << 10)?);
    let source = data(16 << 10, 0);
    rig.device().write(stream, start(from), &source)?;
    rig.device().fill(stream, start(to), 16 << 10, 0x5555_5555)?;
    let op = CopyOp { from: at(from.space, 1000), to: at(to.space, 2004), bytes: 5000 };
    rig.device().copy(stream, &[op])?;
    let mut expected = vec![0x55; 16 << 10];
    expected[2004..7004].copy_from_slice(&source[1000..6000]);
    ensure!(rig.fetch(stream, start(to), 16 << 10)? == expected, "the destination is wrong");
    ensure!(rig.fetch(stream, start(from), 16 << 10)? == source, "the source was changed");
    Ok(())
}

fn copy_many(rig: &Rig) -> Outcome {
    const PART: u64 = 4096;
    let stream = rig.stream()?;
    let (from, to) = (rig.plain(64 * PART)?, rig.plain(64 * PART)?);
    let source = data((64 * PART) as usize, 9);
    rig.device().write(stream, start(from), &source)?;
    // Backwards, so that neighbours at the source are apart at the destination.
    let ops: Vec<CopyOp> = (0..64)
        .map(|part| CopyOp {
            from: at(from.space, part * PART),
            to: at(to.space, (63 - part) * PART),
            bytes: PART,
        })
        .collect();
    rig.device().copy(stream, &ops)?;
    let found = rig.fetch(stream, start(to), 64 * PART)?;
    for (part, chunk) in found.chunks_exact(PART as usize).enumerate() {
        let at = (63 - part) * PART as usize;
        ensure!(*chunk == source[at..at + PART as usize], "part {part} is wrong");
    }
    Ok(())
}

fn copy_none(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    let point = rig.device().copy(stream, &[])?;
    equal!(point.stream, stream, "the point's stream");
    rig.wait(point)?;
    rig.wait(rig.device().fill(stream, start(plain), 4, 1)?)
}

fn copy_invalid(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    let op =
        |from, to, bytes| CopyOp { from: at(plain.space, from), to: at(plain.space, to), bytes };
    let bad = [op(0, 0, 64), op(0, 60, 64), op(2, 4096, 64), op(0, 4098, 64), op(0, 4096, 30)];
    for op in bad {
        refused(&rig.device().copy(stream, &[op]), &format!("{op:?}"))?;
    }
    rig.device().copy(stream, &[op(0, 64, 64)])?;
    Ok(())
}

fn nothing_changed(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    rig.device().fill(stream, start(plain), 4096, 1)?;
    rig.device().fill(stream, at(plain.space, 4096), 4096, 2)?;
    let good = CopyOp { from: start(plain), to: at(plain.space, 4096), bytes: 4096 };
    let bad = CopyOp { from: at(plain.space, 8192), to: at(plain.space, 8194), bytes: 4 };
    refused(&rig.device().copy(stream, &[good, bad]), "a list with one bad copy")?;
    let words = rig.words(stream, at(plain.space, 4096), 1024)?;
    ensure!(words.iter().all(|&word| word == 2), "the good copy of a refused list was made");
    Ok(())
}

fn write_any(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(8192)?;
    let mut expected = vec![0; 8192];
    rig.device().fill(stream, start(plain), 8192, 0)?;
    for (offset, bytes) in [(0, 1), (1, 3), (7, 2), (101, 257), (4095, 2), (5001, 999)] {
        let source = data(bytes, offset as u8);
        rig.device().write(stream, at(plain.space, offset as u64), &source)?;
        expected[offset..offset + bytes].copy_from_slice(&source);
        let back = rig.fetch(stream, at(plain.space, offset as u64), bytes as u64)?;
        ensure!(back == source, "{bytes} bytes at {offset} came back otherwise");
    }
    ensure!(rig.fetch(stream, start(plain), 8192)? == expected, "bytes beside were changed");
    Ok(())
}

fn write_large(rig: &Rig) -> Outcome {
    let source = data((5 << 20) + 3, 77);
    let stream = rig.stream()?;
    let plain = rig.plain(6 << 20)?;
    rig.device().write(stream, at(plain.space, 8), &source)?;
    let back = rig.fetch(stream, at(plain.space, 8), source.len() as u64)?;
    ensure!(back == source, "5 MiB came back otherwise");
    Ok(())
}

fn write_owned(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(8192)?;
    let busy = rig.busy(stream, &[])?;
    let mut source = data(4096, 3);
    let expected = source.clone();
    rig.device().write(stream, start(plain), &source)?;
    source.fill(0xEE);
    busy.finish();
    ensure!(rig.fetch(stream, start(plain), 4096)? == expected, "the write saw later bytes");
    Ok(())
}

fn ticket_once(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    let ticket = rig.device().read(stream, start(plain), 64)?;
    equal!(rig.take(ticket)?.len(), 64, "bytes of a read");
    refused(&rig.device().take_read(ticket), "a ticket taken twice")
}

fn ticket_early(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    rig.device().fill(stream, start(plain), 64, 0x0A0A_0A0A)?;
    let busy = rig.busy(stream, &[])?;
    let ticket = rig.device().read(stream, start(plain), 64)?;
    refused(&rig.device().take_read(ticket), "a ticket taken before its point")?;
    busy.finish();
    equal!(rig.take(ticket)?, vec![10; 64], "bytes after an early question");
    Ok(())
}

fn read_in_order(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(64 << 10)?;
    let place: Place = start(plain);
    let mut tickets = Vec::new();
    for round in 0..32 {
        rig.device().fill(stream, place, 64 << 10, round)?;
        tickets.push(rig.device().read(stream, at(plain.space, (64 << 10) - 4), 4)?);
    }
    for (round, ticket) in (0_u32..).zip(tickets) {
        equal!(rig.take(ticket)?, round.to_le_bytes(), "what read {round} saw");
    }
    rig.device().wait_any(&[], Duration::ZERO)?;
    Ok(())
}
