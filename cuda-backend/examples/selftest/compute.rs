//! Built-in and user kernels.

use serde_json::json;
use terrane_core::device::{
    Access, Binding, Compute, CopyOp, Device, DeviceError, KernelId, Region, UnsafeKernelSource,
    pattern,
};
use terrane_cuda::kernels;

use crate::support::{DEVICE, GIB, KIB, MIB, Outcome, Random, Setup, at, region};
use crate::{Check, ensure};

pub const CHECKS: [Check; 7] = [
    ("compute: patterns and checksums equal the host's, whatever sizes", patterns),
    ("compute: exactly the spoilt words are counted", spoilt),
    ("compute: fill, verify, checksum and gather above 4 GiB", above_4_gib),
    ("compute: a gather of many ranges equals copies", gather),
    ("compute: vector add, matrix product and sum by user kernels", demo_kernels),
    ("compute: images that do not load are typed errors", bad_images),
    ("compute: a kernel is unloaded after its work", unload),
];

/// Regions of odd sizes, some unaligned to 16, one after another.
fn odd_regions(setup: &Setup, space: terrane_core::device::SpaceId) -> Vec<Region> {
    let mut random = Random(11);
    let mut offset = 0;
    let sizes = [4, 8, 12, 16, 20, 32 * KIB - 4, 32 * KIB, 32 * KIB + 4, 0, 5 * MIB + 4];
    let count = setup.size(3000, 50) as usize;
    (0..count)
        .map(|i| {
            let bytes = sizes.get(i).copied().unwrap_or_else(|| random.below(16 * KIB) * 4);
            let region = region(space, offset, bytes, random.next());
            offset += bytes + 4 * random.below(4);
            region
        })
        .collect()
}

fn patterns(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, setup.size(256 * MIB, 32 * MIB))?;
    setup.device.fill(stream, at(segment.space, 0), segment.bytes, 0xFFFF_FFFF)?;
    let regions = odd_regions(setup, segment.space);
    setup.fill_and_check(stream, &regions)?;
    let ticket = setup.device.checksum(stream, &regions)?;
    let sums = setup.report(ticket)?;
    for (region, sum) in regions.iter().zip(&sums).take(60) {
        let words = (0..region.bytes / 4).map(|i| pattern::word(region.seed, i));
        ensure!(pattern::checksum(words) == *sum, "checksum of {region:?}");
        let got = setup.contents(stream, region.place, region.bytes.min(64))?;
        for (i, word) in (0..).zip(got.chunks(4)) {
            ensure!(word == pattern::word(region.seed, i).to_le_bytes(), "{region:?} word {i}");
        }
    }
    // The gaps between the regions still hold what was there.
    for pair in regions.windows(2) {
        let end = pair[0].place.offset + pair[0].bytes;
        let gap = pair[1].place.offset - end;
        if gap > 0 && pair[0].bytes > MIB {
            let got = setup.contents(stream, at(segment.space, end), gap)?;
            ensure!(got.iter().all(|&byte| byte == 0xFF), "written past {:?}", pair[0]);
        }
    }
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!({ "regions": regions.len() }))
}

fn spoilt(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, 64 * MIB)?;
    let regions: Vec<_> = (0..64).map(|i| region(segment.space, i * MIB, MIB, i)).collect();
    setup.device.fill_pattern(stream, &regions)?;
    let mut random = Random(13);
    let mut expected = vec![0_u64; regions.len()];
    for (i, region) in regions.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
        let first = random.below(MIB / 4 - 20);
        let count = random.below(10) + 1;
        for word in first..first + count {
            let place = at(segment.space, region.place.offset + word * 4);
            let value = pattern::word(region.seed, word) ^ (1 << random.below(32));
            setup.device.fill(stream, place, 4, value)?;
        }
        expected[i] = count;
    }
    let ticket = setup.device.verify(stream, &regions)?;
    let got = setup.report(ticket)?;
    ensure!(got == expected, "{got:?} instead of {expected:?}");
    ensure!(setup.device.take_report(ticket).is_err(), "a report was taken twice");
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn above_4_gib(setup: &Setup) -> Outcome {
    if setup.quick {
        return Ok(json!("left out of a quick run"));
    }
    let stream = setup.stream()?;
    let bytes = 5 * GIB + 16;
    let (source, target) = (setup.plain(DEVICE, 6 * GIB)?, setup.plain(DEVICE, 6 * GIB)?);
    let (here, there) = (region(source.space, 16, bytes, 99), region(target.space, 32, bytes, 99));
    setup.fill_and_check(stream, &[here])?;
    let far = (4 * GIB + 400) / 4;
    let got = setup.contents(stream, at(source.space, 16 + far * 4), 4)?;
    ensure!(got == pattern::word(99, far).to_le_bytes(), "word {far} is {got:?}");
    let last = bytes / 4 - 1;
    let got = setup.contents(stream, at(source.space, 16 + last * 4), 4)?;
    ensure!(got == pattern::word(99, last).to_le_bytes(), "word {last} is {got:?}");
    let op = CopyOp { from: here.place, to: there.place, bytes };
    setup.device.fill(stream, at(target.space, 0), 6 * GIB, 0)?;
    setup.device.gather(stream, &[op])?;
    let wrong = setup.mismatches(stream, &[there])?;
    ensure!(wrong == 0, "gather: {wrong} words differ");
    let ticket = setup.device.checksum(stream, &[here, there])?;
    let sums = setup.report(ticket)?;
    ensure!(sums[0] == sums[1] && sums[0] != 0, "checksums {sums:?}");
    let end = setup.contents(stream, at(target.space, 32 + bytes), 16)?;
    ensure!(end == [0; 16], "gather wrote past its end");
    for word in [0, far, last] {
        setup.device.fill(stream, at(target.space, 32 + word * 4), 4, 0xABCD_0000)?;
    }
    let wrong = setup.mismatches(stream, &[there])?;
    ensure!(wrong == 3, "3 words were spoilt, {wrong} counted");
    setup.device.fill(stream, at(target.space, 0), 6 * GIB, 0)?;
    setup.device.copy(stream, &[op])?;
    let wrong = setup.mismatches(stream, &[there])?;
    ensure!(wrong == 0, "copy: {wrong} words differ");
    setup.finish(stream)?;
    setup.device.release_plain(source.space)?;
    setup.device.release_plain(target.space)?;
    Ok(json!({ "bytes": bytes }))
}

fn gather(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let bytes = setup.size(512 * MIB, 16 * MIB);
    let (source, target) = (setup.plain(DEVICE, bytes)?, setup.plain(DEVICE, bytes)?);
    let mut random = Random(17);
    setup.device.fill_pattern(stream, &[region(source.space, 0, bytes, 1)])?;
    setup.device.fill(stream, at(target.space, 0), bytes, 0)?;
    let (mut ops, mut offset) = (Vec::new(), 0);
    loop {
        let length = (random.below(8) * random.below(16 * KIB) + random.below(64)) * 16;
        if offset + length + 256 > bytes {
            break;
        }
        ops.push(CopyOp {
            from: at(source.space, offset),
            to: at(target.space, bytes - offset - length),
            bytes: length,
        });
        offset += length + 16 * random.below(16);
    }
    let before = setup.device.dispatches();
    setup.device.gather(stream, &ops)?;
    ensure!(setup.device.dispatches() == before + 1, "more than one launch");
    let regions = |to: bool| -> Vec<Region> {
        let place = |op: &CopyOp| if to { op.to } else { op.from };
        ops.iter().map(|op| Region { place: place(op), bytes: op.bytes, seed: 0 }).collect()
    };
    let (from, to) = (
        setup.report(setup.device.checksum(stream, &regions(false))?)?,
        setup.report(setup.device.checksum(stream, &regions(true))?)?,
    );
    let wrong = from.iter().zip(&to).filter(|(a, b)| a != b).count();
    ensure!(wrong == 0, "{wrong} of {} ranges differ", ops.len());
    setup.device.gather(stream, &[])?;
    setup.finish(stream)?;
    setup.device.release_plain(source.space)?;
    setup.device.release_plain(target.space)?;
    Ok(json!({ "ranges": ops.len() }))
}

fn load(setup: &Setup, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
    // SAFETY: the demo's kernels stay inside their bindings when the push data is their length,
    // which the checks below see to.
    unsafe { setup.device.load_unchecked(source) }
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

fn demo_kernels(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, 16 * MIB)?;
    let n = 257_u32;
    let count = n * n;
    let bytes = u64::from(count) * 4;
    let place = |slot: u64| at(segment.space, slot * MIB);
    let bind = |slot, bytes, access| Binding { place: place(slot), bytes, access };
    let a: Vec<f32> = (0..count).map(|i| (i % 13) as f32 - 6.0).collect();
    let b: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    setup.device.write(stream, place(0), &floats(&a))?;
    setup.device.write(stream, place(1), &floats(&b))?;
    let inputs = [bind(0, bytes, Access::Read), bind(1, bytes, Access::Read)];
    let three = [inputs[0], inputs[1], bind(2, bytes, Access::Write)];

    let add = load(setup, &kernels::vector_add())?;
    let groups = [count.div_ceil(256), 1, 1];
    setup.device.dispatch(stream, add, &three, &count.to_le_bytes(), groups)?;
    let sums = numbers(&setup.contents(stream, place(2), bytes)?);
    ensure!((0..count as usize).all(|i| sums[i] == a[i] + b[i]), "vector add");

    let product = load(setup, &kernels::matmul())?;
    let groups = [n.div_ceil(16), n.div_ceil(16), 1];
    setup.device.dispatch(stream, product, &three, &n.to_le_bytes(), groups)?;
    let got = numbers(&setup.contents(stream, place(2), bytes)?);
    let n = n as usize;
    for (row, column) in [(0, 0), (1, 200), (n - 1, n - 1), (128, 16), (255, 256)] {
        let expected: f32 = (0..n).map(|k| a[row * n + k] * b[k * n + column]).sum();
        let value = got[row * n + column];
        ensure!((value - expected).abs() < 1e-3, "C[{row}][{column}] is {value}, not {expected}");
    }

    let total = load(setup, &kernels::sum())?;
    setup.device.fill(stream, place(3), 4, 0)?;
    let two = [inputs[0], bind(3, 4, Access::Write)];
    setup.device.dispatch(stream, total, &two, &count.to_le_bytes(), [64, 1, 1])?;
    let got = numbers(&setup.contents(stream, place(3), 4)?)[0];
    let expected: f32 = a.iter().sum();
    ensure!((got - expected).abs() < 1e-2 * (1.0 + expected.abs()), "sum {got}, not {expected}");
    for kernel in [add, product, total] {
        setup.device.unload(kernel)?;
    }
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn bad_images(setup: &Setup) -> Outcome {
    let UnsafeKernelSource::Cuda { image: good, .. } = kernels::sum() else {
        return Err("no image".into());
    };
    let source = |image: &[u8], entry: &str| UnsafeKernelSource::Cuda {
        image: image.into(),
        entry: entry.into(),
        threads: [32, 1, 1],
        shared_bytes: 0,
    };
    let newer = String::from_utf8_lossy(&good).replace(".version 8.0", ".version 9.9");
    for (source, what) in [
        (source(b"this is no PTX", "x"), "text"),
        (source(newer.as_bytes(), "terrane_sum"), "a PTX version to come"),
        (source(&good[..good.len() / 2], "terrane_sum"), "half a module"),
        (source(&good, "missing"), "a missing entry"),
    ] {
        let refused = load(setup, &source);
        ensure!(matches!(refused, Err(DeviceError::InvalidCall(_))), "{what}: {refused:?}");
    }
    Ok(json!(null))
}

fn unload(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, 64 * MIB)?;
    let count = 4 * MIB as u32;
    let bind = |slot: u64| Binding {
        place: at(segment.space, slot * 16 * MIB),
        bytes: 16 * MIB,
        access: Access::Write,
    };
    setup.device.fill(stream, at(segment.space, 0), 64 * MIB, 0x3F80_0000)?;
    for _ in 0..20 {
        let add = load(setup, &kernels::vector_add())?;
        let bindings = [bind(0), bind(1), bind(2)];
        let groups = [count.div_ceil(256), 1, 1];
        setup.device.dispatch(stream, add, &bindings, &count.to_le_bytes(), groups)?;
        setup.device.unload(add)?;
        ensure!(setup.device.unload(add).is_err(), "unloaded twice");
    }
    let got = numbers(&setup.contents(stream, at(segment.space, 48 * MIB - 4), 4)?);
    ensure!(got == [2.0], "{got:?}");
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}
