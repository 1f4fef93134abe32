//! Plain segments.

use terrane_core::MemoryKind;
use terrane_core::device::{ClassId, DeviceError, HeapId, Place, Plain, PlainSpec, SpaceId};

use super::device;
use crate::clause::{Blame, Clause, Need, Outcome, Stop, ensure, equal, refused};
use crate::rig::{Rig, at};

use Blame::Backend;

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "memory.size",
        "A plain segment has at least the bytes asked for.",
        &[],
        "Plain::bytes",
        Backend,
        size,
    ),
    device(
        "memory.base",
        "A plain segment's address is aligned as promised.",
        &[Need::Addresses],
        "Caps::plain_base_align",
        Backend,
        base,
    ),
    device(
        "memory.distinct",
        "No two segments share an address or a byte.",
        &[],
        "Device::create_plain",
        Backend,
        distinct,
    ),
    device(
        "memory.classes",
        "Every memory class gives memory that work can use.",
        &[],
        "Caps::classes",
        Backend,
        classes,
    ),
    device(
        "memory.class-of-heap",
        "Memory counts in the heap of its class.",
        &[Need::CountedHeap],
        "Class::heap",
        Backend,
        class_of_heap,
    ),
    device(
        "memory.class-unknown",
        "A class that does not exist is an invalid call.",
        &[],
        "Device::create_plain",
        Backend,
        class_unknown,
    ),
    device(
        "memory.ids",
        "The id of a segment that was given back names nothing any more.",
        &[],
        "Device, rules for every method: ids",
        Backend,
        ids,
    ),
    device(
        "memory.release-unknown",
        "Giving back what never was is an invalid call.",
        &[],
        "Device::release_plain",
        Backend,
        release_unknown,
    ),
    device(
        "memory.too-large",
        "A segment over the limit is refused with the limit.",
        &[],
        "DeviceError::TooLarge",
        Backend,
        too_large,
    ),
    device(
        "memory.out-of-memory",
        "A full heap refuses with the bytes, changes nothing, and gives again after a release.",
        &[Need::CountedHeap],
        "DeviceError::OutOfMemory",
        Backend,
        out_of_memory,
    ),
    device(
        "memory.heap-counts",
        "What is held is missing from what the heap has free.",
        &[Need::CountedHeap],
        "Device::heap_use",
        Backend,
        heap_counts,
    ),
    device(
        "memory.outside",
        "Work outside of a segment is an invalid call.",
        &[],
        "Place",
        Backend,
        outside,
    ),
];

/// The first byte of a segment.
pub(super) const fn start(plain: Plain) -> Place {
    at(plain.space, 0)
}

fn size(rig: &Rig) -> Outcome {
    let class = rig.class(MemoryKind::Device)?;
    for bytes in [1, 4096, 100_000, 3 << 20] {
        let spec = rig.spec(class, bytes);
        let plain = rig.plain_of(class, bytes)?;
        ensure!(plain.bytes >= spec.bytes, "{} bytes for {}", plain.bytes, spec.bytes);
        let stream = rig.stream()?;
        let last = at(plain.space, plain.bytes - 4);
        rig.wait(rig.device().fill(stream, last, 4, 7)?)?;
        equal!(rig.words(stream, last, 1)?, [7], "the last word of {} bytes", plain.bytes);
    }
    Ok(())
}

fn base(rig: &Rig) -> Outcome {
    for bytes in [1, 5000, 1 << 20] {
        let plain = rig.plain(bytes)?;
        let address = plain.address.ok_or_else(|| Stop::failed("no address"))?;
        ensure!(rig.caps().plain_base_align.divides(address), "address {address:#x}");
    }
    Ok(())
}

fn distinct(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let mut plains = Vec::new();
    for number in 0..8 {
        let plain = rig.plain(64 << 10)?;
        rig.device().fill(stream, start(plain), 64 << 10, number)?;
        plains.push(plain);
    }
    for (number, plain) in (0..).zip(&plains) {
        let words = rig.words(stream, start(*plain), 16 << 10)?;
        ensure!(words.iter().all(|&word| word == number), "segment {number} was overwritten");
    }
    let mut spans: Vec<(u64, u64)> =
        plains.iter().filter_map(|plain| Some((plain.address?, plain.bytes))).collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        ensure!(pair[0].0 + pair[0].1 <= pair[1].0, "addresses overlap: {pair:?}");
    }
    Ok(())
}

fn classes(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    for class in 0..rig.caps().classes.len() {
        let id = ClassId(u8::try_from(class).unwrap_or(u8::MAX));
        let plain = rig.plain_of(id, 8192)?;
        rig.device().fill(stream, start(plain), 8192, 0xABCD_0123)?;
        let words = rig.words(stream, start(plain), 2048)?;
        ensure!(words.iter().all(|&word| word == 0xABCD_0123), "class {class} keeps nothing");
    }
    Ok(())
}

fn free_of(rig: &Rig, heap: HeapId) -> Result<u64, Stop> {
    Ok(rig.device().heap_use(heap)?.process.unwrap_or(0))
}

fn class_of_heap(rig: &Rig) -> Outcome {
    let caps = rig.caps();
    if rig.device().heap_use(HeapId(0))?.process.is_none() {
        return Err(Stop::Skipped("the driver does not tell what the process holds".to_owned()));
    }
    for (at, class) in caps.classes.iter().enumerate() {
        let before = free_of(rig, class.heap)?;
        let plain = rig.plain_of(ClassId(u8::try_from(at).unwrap_or(u8::MAX)), 1 << 20)?;
        let after = free_of(rig, class.heap)?;
        equal!(after, before + plain.bytes, "bytes held in the heap of class {at}");
    }
    Ok(())
}

fn class_unknown(rig: &Rig) -> Outcome {
    let spec = rig.spec(ClassId(u8::MAX), 4096);
    refused(&rig.device().create_plain(&spec), "memory of an unknown class")
}

fn ids(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let old = rig.plain(4096)?;
    rig.release(old.space)?;
    let new = rig.plain(4096)?;
    ensure!(old.space != new.space, "{:?} was given out twice", old.space);
    refused(&rig.device().fill(stream, start(old), 16, 9), "work on a segment given back")?;
    refused(&rig.device().release_plain(old.space), "a second release")?;
    rig.wait(rig.device().fill(stream, start(new), 16, 9)?)
}

fn release_unknown(rig: &Rig) -> Outcome {
    let nobody = SpaceId(u64::MAX - 7);
    refused(&rig.device().release_plain(nobody), "the release of an unknown segment")
}

fn too_large(rig: &Rig) -> Outcome {
    let limit = rig.caps().max_plain_bytes;
    let class = rig.class(MemoryKind::Device)?;
    let Some(bytes) = limit.checked_add(rig.caps().plain_granularity) else { return Ok(()) };
    let spec = PlainSpec { bytes, ..rig.spec(class, 1) };
    let answer = rig.device().create_plain(&spec);
    let right = matches!(answer, Err(DeviceError::TooLarge { limit: told, .. }) if told == limit);
    ensure!(right, "{bytes} bytes, limit {limit}: {answer:?}");
    rig.plain(4096).map(drop)
}

/// Takes all of a heap, at most 4,096 objects of the largest size.
fn fill_up(rig: &Rig, bytes: u64) -> Result<(Vec<Plain>, DeviceError), Stop> {
    let class = rig.class(MemoryKind::Device)?;
    let mut held = Vec::new();
    let mut bytes = bytes;
    loop {
        let spec = rig.spec(class, bytes);
        match rig.device().create_plain(&spec) {
            Ok(plain) if held.len() < 4096 => held.push(plain),
            Ok(_) => return Err(Stop::failed("a heap that never ends")),
            Err(error @ DeviceError::OutOfMemory { .. }) if bytes <= 64 << 20 => {
                return Ok((held, error));
            }
            Err(DeviceError::OutOfMemory { .. }) => bytes = (bytes / 2).max(64 << 20),
            Err(error) => return Err(error.into()),
        }
    }
}

fn out_of_memory(rig: &Rig) -> Outcome {
    let (held, error) = fill_up(rig, rig.caps().max_plain_bytes)?;
    ensure!(!held.is_empty(), "the first segment was refused");
    let asked = rig.spec(ClassId(0), 64 << 20).bytes;
    equal!(error, DeviceError::OutOfMemory { bytes: asked }, "what a full heap answers");
    for (number, plain) in held.iter().enumerate() {
        rig.device().release_plain(plain.space)?;
        if number == 0 {
            let again = rig.plain(1 << 20)?;
            rig.release(again.space)?;
        }
    }
    Ok(())
}

fn heap_counts(rig: &Rig) -> Outcome {
    let class = rig.class(MemoryKind::Device)?;
    let heap = rig.caps().class(class).map_or(HeapId(0), |class| class.heap);
    let total = rig.caps().heaps[usize::from(heap.0)].total;
    let bytes = (total / 4).min(rig.caps().max_plain_bytes);
    let before = rig.device().heap_use(heap)?.free;
    let plain = rig.plain(bytes)?;
    let after = rig.device().heap_use(heap)?.free;
    // Other programs come and go meanwhile: half of it has to show at least.
    ensure!(after + plain.bytes / 2 <= before, "{before} free before, {after} after {plain:?}");
    Ok(())
}

fn outside(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    let (device, end) = (rig.device(), plain.bytes);
    for (offset, bytes) in [(end - 4, 8), (end, 4), (end + 4096, 4), (u64::MAX - 3, 8)] {
        let place = at(plain.space, offset);
        let what = format!("{bytes} bytes at {offset} of {end}");
        refused(&device.fill(stream, place, bytes, 0), &format!("a fill of {what}"))?;
        refused(&device.read(stream, place, bytes), &format!("a read of {what}"))?;
        let data = vec![0; bytes as usize];
        refused(&device.write(stream, place, &data), &format!("a write of {what}"))?;
    }
    Ok(())
}
