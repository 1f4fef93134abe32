//! 04: blocks by address, as a plug-in for a CUDA framework hands them out.
//!
//! The framework keeps raw pointers and streams. It asks for memory on a stream, may use it there
//! at once, says which other streams use it, and frees it without waiting for anything. Run:
//! `cargo run --example 04_raw_addresses_on_cuda`. Where there is no CUDA it exits with 77.

use terrane::{Choice, Config, CudaRaw, Device, Slice, StreamSpec};

/// The legacy default stream and the calling thread's, as CUDA numbers them.
const LEGACY: u64 = 0;
const PER_THREAD: u64 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let opened = match terrane::open(&Choice::Cuda(String::new())) {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("skipped: {error}");
            std::process::exit(77);
        }
    };
    let device = opened.cuda.clone().ok_or("a CUDA device that is none")?;
    let raw = CudaRaw::new(device.clone(), Config::for_device(opened.device.caps()))?;

    // SAFETY: the default streams live as long as the context.
    let address = unsafe { raw.alloc_raw(1 << 20, LEGACY)? };
    println!("1 MiB at {address:#x}");
    // SAFETY: as above.
    unsafe { raw.record_stream(address, PER_THREAD)? };
    raw.free_raw(address)?;
    // SAFETY: as above.
    let again = unsafe { raw.alloc_raw(1 << 20, LEGACY)? };
    println!("freed, and handed out to the same stream at once: {}", again == address);

    // The same memory by handle, for what the allocator can do beyond.
    let handle = raw.handle(again)?;
    let own = device.create_stream(StreamSpec::default())?;
    raw.allocator().write(own, handle, 0, b"by address")?;
    let ticket = raw.allocator().read(own, Slice::read(handle).part(0, 10))?;
    raw.allocator().wait(ticket.point, std::time::Duration::from_secs(10))?;
    assert_eq!(raw.allocator().take_read(ticket)?, b"by address");
    raw.free_raw(again)?;
    assert!(raw.free_raw(again).is_err(), "a second free is an error, never a crash");
    println!("{}", raw.allocator().summary());
    Ok(())
}
