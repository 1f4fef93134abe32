//! Example 01 on a Vulkan device: only the way to open it and the kernel's language differ.
//!
//! `cargo run --example 02_the_same_on_vulkan`. Where there is no Vulkan it says so and exits
//! with 77.

use std::time::Duration;

use terrane::core::device::KernelSource;
use terrane::{Allocator, Choice, Request, Slice, StreamSpec};

const COUNT: u32 = 1 << 16;
const PER_GROUP: u32 = 256;

// Accesses are checked against the binding, so that loading and running this is safe.
const SQUARES: &str = "
@group(0) @binding(0) var<storage, read_write> squares: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    squares[id.x] = id.x * id.x;
}";

/// By this exit code CI knows that the machine lacks what an example shows.
fn no_vulkan(reason: &str) -> ! {
    eprintln!("skipped: {reason}");
    std::process::exit(77)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Err(reason) = terrane::vulkan::list() {
        no_vulkan(&reason.to_string());
    }
    let opened = terrane::open(&Choice::Vulkan(String::new()))?;
    println!("device: {}", opened.device.info().name);
    let alloc = Allocator::new(opened.device.clone())?;
    let stream = opened.device.create_stream(StreamSpec::default())?;

    let squares = alloc.buffer(&Request::new(u64::from(COUNT) * 4, stream).name("squares"))?;

    // The bounds of every access are checked by what the compiler adds.
    let compute = opened.device.compute().ok_or("this device does not compute")?;
    let kernel =
        compute.load(&KernelSource::Wgsl { text: SQUARES.into(), entry: "main".into() })?;
    let groups = [COUNT / PER_GROUP, 1, 1];
    alloc.dispatch(stream, kernel, &[Slice::write(squares.handle())], &[], groups)?;

    // Reading is ordered behind the kernel, being on the same stream.
    let ticket = alloc.read(stream, Slice::read(squares.handle()).part(0, 40))?;
    alloc.wait(ticket.point, Duration::from_secs(10))?;
    let bytes = alloc.take_read(ticket)?;
    let first: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    println!("the first squares: {first:?}");
    if first != [0, 1, 4, 9, 16, 25, 36, 49, 64, 81] {
        return Err("the kernel computed something else".into());
    }

    drop(squares);
    println!("{}", alloc.summary());
    Ok(())
}
