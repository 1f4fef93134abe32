//! Two GPUs in one process, kernels of one on memory of the other.

use serde_json::json;
use terrane_core::device::{Device, DeviceError, KernelId, MapOp, Paging, SpaceId, StreamSpec};
use terrane_cuda::{CudaDevice, Options, Selector, kernels};

use crate::Check;
use crate::ensure;
use crate::support::{DEVICE, Failure, MIB, Outcome, Setup, at, plain_on, wait_on};

pub const CHECKS: &[Check] = &[("two GPUs: peer access", peer_access)];

const WORDS: u64 = 4 * MIB;

/// Runs `c = a + b` on `there`, all three given by address.
fn add(there: &CudaDevice, kernel: KernelId, [a, b, c]: [u64; 3]) -> Result<(), Failure> {
    let stream = there.create_stream(StreamSpec::default())?;
    let words = u32::try_from(WORDS)?;
    let mut push: Vec<u8> = [a, b, c].iter().flat_map(|address| address.to_le_bytes()).collect();
    push.extend(words.to_le_bytes());
    let groups = [words.div_ceil(256), 1, 1];
    let point = terrane_core::device::Compute::dispatch(there, stream, kernel, &[], &push, groups)?;
    wait_on(there, point)?;
    there.retire_stream(stream)?;
    Ok(())
}

fn filled(device: &CudaDevice, space: SpaceId, offset: u64, value: f32) -> Result<(), Failure> {
    let stream = device.create_stream(StreamSpec::default())?;
    let point = device.fill(stream, at(space, offset), WORDS * 4, value.to_bits())?;
    wait_on(device, point)?;
    device.retire_stream(stream)?;
    Ok(())
}

fn all_are(setup: &Setup, space: SpaceId, offset: u64, value: f32) -> Result<bool, Failure> {
    let stream = setup.stream()?;
    let bytes = setup.contents(stream, at(space, offset), WORDS * 4)?;
    setup.finish(stream)?;
    Ok(bytes.chunks_exact(4).all(|word| word == value.to_le_bytes()))
}

fn peer_access(setup: &Setup) -> Outcome {
    let here = &setup.device;
    let gpus = terrane_cuda::devices()?.len();
    if gpus < 2 {
        let itself = here.allow_peer(here);
        ensure!(matches!(itself, Err(DeviceError::InvalidCall(_))), "a peer of itself: {itself:?}");
        return Ok(json!("one GPU here: access between two is not tried"));
    }
    let there = CudaDevice::open(&Selector::Index(1), Options::default())?;
    ensure!(here.info().uuid != there.info().uuid, "both are the same GPU");
    if !here.can_be_accessed_by(&there)? || !there.can_be_accessed_by(here)? {
        let refused = here.allow_peer(&there);
        ensure!(matches!(refused, Err(DeviceError::InvalidCall(_))), "refused: {refused:?}");
        return Ok(json!("these GPUs can not reach each other"));
    }
    // SAFETY: the kernel stays inside the addresses and the length that `add` passes.
    let kernel =
        unsafe { terrane_core::device::Compute::load_unchecked(&there, &kernels::vector_add())? };
    let bytes = WORDS * 4;
    let before = plain_on(here, DEVICE, 3 * bytes)?;
    here.allow_peer(&there)?;
    here.allow_peer(&there)?;
    let after = plain_on(here, DEVICE, 3 * bytes)?;
    let paged = here.reserve(DEVICE, 3 * bytes)?;
    let memory = here.create(DEVICE, 3 * bytes, false)?;
    let page = MapOp { at: at(paged.space, 0), memory, memory_offset: 0, bytes: 3 * bytes };
    here.map(&[page], &[])?;
    let spaces = [
        (before.space, before.address),
        (after.space, after.address),
        (paged.space, paged.address),
    ];
    for (n, (space, address)) in (1_u8..).zip(spaces) {
        let address = address.ok_or("no address")?;
        filled(here, space, 0, f32::from(n))?;
        filled(here, space, bytes, 0.5)?;
        filled(here, space, 2 * bytes, 0.0)?;
        add(&there, kernel, [address, address + bytes, address + 2 * bytes])?;
        let right = all_are(setup, space, 2 * bytes, f32::from(n) + 0.5)?;
        ensure!(right, "what the other GPU wrote to memory {n} differs");
    }
    // Back again: this GPU's memory stays its own where nothing was allowed the other way.
    there.allow_peer(here)?;
    let theirs = plain_on(&there, DEVICE, bytes)?;
    filled(&there, theirs.space, 0, 7.0)?;
    there.release_plain(theirs.space)?;
    here.unmap(&[terrane_core::device::UnmapOp { at: page.at, bytes: page.bytes }], &[])?;
    here.release(memory)?;
    here.unreserve(paged.space)?;
    here.release_plain(before.space)?;
    here.release_plain(after.space)?;
    Ok(json!({ "gpus": gpus, "verified_bytes": 3 * bytes }))
}
