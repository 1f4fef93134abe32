//! Allocates memory on the CPU device, computes on it, and reads the result.
//!
//! `cargo run --example 01_allocate_and_compute`

use std::sync::Arc;
use std::time::Duration;

use terrane::core::device::KernelSource;
use terrane::core::device::host::HostKernel;
use terrane::{Allocator, Choice, Request, Slice, StreamSpec};

const COUNT: u32 = 1 << 16;
const PER_GROUP: u32 = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let opened = terrane::open(&Choice::Host)?;
    println!("device: {}", opened.device.info().name);
    let alloc = Allocator::new(opened.device.clone())?;
    let stream = opened.device.create_stream(StreamSpec::default())?;

    // A block is owned: it goes back to its pool, in stream order, when it is dropped.
    let squares = alloc.buffer(&Request::new(u64::from(COUNT) * 4, stream).name("squares"))?;

    // A kernel of the CPU device is a closure, called once per workgroup.
    let kernel = HostKernel(Arc::new(|group| {
        let first = group.group[0] * PER_GROUP;
        for index in first..first + PER_GROUP {
            let square = index.wrapping_mul(index);
            group.bindings[0].write(u64::from(index) * 4, &square.to_le_bytes());
        }
    }));
    let compute = opened.device.compute().ok_or("this device does not compute")?;
    let kernel = compute.load(&KernelSource::Host(kernel))?;
    let groups = [COUNT / PER_GROUP, 1, 1];
    alloc.dispatch(stream, kernel, &[Slice::write(squares.handle())], &[], groups)?;

    // Reading is ordered behind the kernel, being on the same stream.
    let ticket = alloc.read(stream, Slice::read(squares.handle()).part(0, 40))?;
    alloc.wait(ticket.point, Duration::from_secs(10))?;
    let bytes = alloc.take_read(ticket)?;
    let first: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    println!("the first squares: {first:?}");

    drop(squares);
    println!("{}", alloc.summary());
    Ok(())
}
