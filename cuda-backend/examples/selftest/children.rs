//! What needs a process of its own: forks, exits, memory from another process, and everything
//! that makes the device fault on purpose. Each check starts this program again with a name.

use std::process::{Command, ExitCode, Stdio};

use cudarc::driver::sys;
use serde_json::json;
use terrane_core::device::{
    Access, Binding, Compute, Device, DeviceError, Paging, PlainSpec, StreamSpec,
};
use terrane_core::{Allocator, Error, Request};
use terrane_cuda::{CudaDevice, Options, Selector, kernels};

use crate::support::{
    DEVICE, Failure, KIB, MIB, Outcome, Page, Setup, UPLOAD, at, plain_on, wait_on,
};
use crate::{Check, ensure};

const VARIABLE: &str = "TERRANE_SELFTEST_CHILD";

pub const SAFE_CHECKS: [Check; 4] = [
    ("process: memory exported here is used by another process", shared_with_child),
    ("process: use after a fork is a typed error", |setup| child(setup, "fork", None)),
    ("process: another process fills the card", filled_by_another),
    ("process: a process may end with everything alive", |setup| child(setup, "exit", None)),
];

pub const FAULT_CHECKS: [Check; 3] = [
    ("fault: after an access to nothing every method answers Lost", |s| child(s, "lost", None)),
    ("fault: a context reset by the program is Lost", |s| child(s, "reset", None)),
    ("fault: in guard mode an overrun by one group faults", |s| child(s, "guard", None)),
];

fn child(setup: &Setup, name: &str, stdin: Option<std::os::fd::OwnedFd>) -> Outcome {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, name).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.env("TERRANE_SELFTEST_DEVICE", setup.device.info().index.to_string());
    command.stdin(stdin.map_or_else(Stdio::null, Stdio::from));
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(output.status.success(), "{} ended with {}: {text}", name, output.status);
    Ok(json!(text))
}

/// The child's part, when this process is one.
pub fn run_if_child() -> Option<ExitCode> {
    let name = std::env::var(VARIABLE).ok()?;
    let outcome = match name.as_str() {
        "import" => import(),
        "fork" => fork_and_use(),
        "exit" => exit_alive(),
        "fill" => fill_the_card(),
        "lost" => lost(),
        "reset" => reset(),
        "guard" => guard(),
        _ => Err("no such child".into()),
    };
    Some(match outcome {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    })
}

fn open(options: Options) -> Result<CudaDevice, Failure> {
    let index = std::env::var("TERRANE_SELFTEST_DEVICE")?.parse()?;
    Ok(CudaDevice::open(&Selector::Index(index), options)?)
}

fn driver(call: &str, code: sys::CUresult) -> Result<(), Failure> {
    if code == sys::CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(format!("{call}: {code:?}").into())
    }
}

fn shared_with_child(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let spec = PlainSpec {
        class: DEVICE,
        bytes: 4 * MIB,
        exportable: true,
        priority: 0.5,
        name: "shared",
    };
    let segment = setup.device.create_plain(&spec)?;
    let point = setup.device.fill(stream, at(segment.space, 0), 4 * MIB, 0xFACE)?;
    setup.wait(point)?;
    let descriptor = setup.device.export_plain(segment.space)?;
    let told = child(setup, "import", Some(descriptor))?;
    let got = setup.contents(stream, at(segment.space, 4 * MIB - 4), 4)?;
    ensure!(got == 0xF00D_u32.to_le_bytes(), "the child's write is not seen: {got:?}");
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(told)
}

/// Another process takes all but a little; we get a typed error, and memory again when it ends.
fn filled_by_another(setup: &Setup) -> Outcome {
    use std::io::{BufRead, BufReader};
    if setup.quick {
        return Ok(json!("left out of quick runs"));
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.env(VARIABLE, "fill").stdin(Stdio::piped()).stdout(Stdio::piped());
    command.env("TERRANE_SELFTEST_DEVICE", setup.device.info().index.to_string());
    let mut other = command.spawn()?;
    let mut said = String::new();
    let output = other.stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut said)?;
    let bytes = 8 << 30;
    let alloc = Allocator::new(crate::allocator::shared(setup)?)?;
    let stream = alloc.device().create_stream(StreamSpec::default())?;
    let refused = alloc.buffer(&Request::new(bytes, stream)).map(drop);
    let small = alloc.buffer(&Request::new(4 * MIB, stream)).map(drop);
    let others = alloc.heap(terrane_core::device::HeapId(0))?.others;
    drop(other.stdin.take());
    other.wait()?;
    ensure!(said.starts_with("full"), "the other process said {said}");
    let typed = matches!(refused, Err(Error::OutOfMemory(_)));
    ensure!(typed, "8 GiB of a full card: {refused:?}");
    small.map_err(|error| format!("4 MiB of what is left: {error}"))?;
    ensure!(others > 64 << 30, "{others} bytes are seen with others");
    alloc.buffer(&Request::new(bytes, stream)).map_err(|error| format!("afterwards: {error}"))?;
    Ok(json!({ "held_by_others": others }))
}

/// Takes all memory but 2 GiB and holds it until standard input ends.
fn fill_the_card() -> Told {
    use std::io::{Read, Write};
    let device = open(Options::default())?;
    let free = device.heap_use(terrane_core::device::HeapId(0))?.free;
    let mut left = free.saturating_sub(2 << 30) / (2 * MIB) * (2 * MIB);
    while left > 0 {
        let bytes = left.min(16 << 30);
        plain_on(&device, DEVICE, bytes)?;
        left -= bytes;
    }
    let mut out = std::io::stdout();
    writeln!(out, "full")?;
    out.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok("gave it back".into())
}

type Told = Result<String, Failure>;

/// Takes the memory that comes as standard input, looks at it and writes to it.
fn import() -> Told {
    use std::os::fd::AsFd;
    let device = open(Options::default())?;
    let stream = device.create_stream(StreamSpec::default())?;
    let memory = device.import_memory(std::io::stdin().as_fd(), 4 * MIB)?;
    let space = device.reserve(DEVICE, 4 * MIB)?.space;
    let page = Page(memory, 4 * MIB);
    let op = terrane_core::device::MapOp {
        at: at(space, 0),
        memory: page.0,
        memory_offset: 0,
        bytes: page.1,
    };
    device.map(&[op], &[])?;
    let ticket = device.read(stream, at(space, 0), 4)?;
    wait_on(&device, ticket.point)?;
    let got = device.take_read(ticket)?;
    ensure!(got == 0xFACE_u32.to_le_bytes(), "the parent's write is not seen: {got:?}");
    wait_on(&device, device.fill(stream, at(space, 0), 4 * MIB, 0xF00D)?)?;
    Ok("seen and written".into())
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

fn fork_and_use() -> Told {
    let device = open(Options::default())?;
    let stream = device.create_stream(StreamSpec::default())?;
    let segment = plain_on(&device, DEVICE, 2 * MIB)?;
    // SAFETY: the child only makes calls that refuse before they reach the driver, and `_exit`s.
    let process = unsafe { fork() };
    if process == 0 {
        let after = DeviceError::AfterFork;
        let refused = device.fill(stream, at(segment.space, 0), 64, 1) == Err(after)
            && device.release_plain(segment.space) == Err(after)
            && device.wait_any(&[], std::time::Duration::ZERO) == Err(after);
        drop(device);
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { _exit(i32::from(!refused)) };
    }
    ensure!(process > 0, "fork failed");
    let mut status = 0;
    // SAFETY: the child made above; the status outlives the call.
    let ended = unsafe { waitpid(process, &raw mut status, 0) };
    ensure!(ended == process && status == 0, "the forked child: status {status}");
    wait_on(&device, device.fill(stream, at(segment.space, 0), 64, 1)?)?;
    Ok("refused in the child, working in the parent".into())
}

fn exit_alive() -> Told {
    let device = open(Options::default())?;
    let stream = device.create_stream(StreamSpec::default())?;
    let segment = plain_on(&device, DEVICE, 512 * MIB)?;
    plain_on(&device, UPLOAD, 2 * MIB)?;
    for word in 0..100 {
        device.fill(stream, at(segment.space, 0), 512 * MIB, word)?;
    }
    std::mem::forget(device);
    Ok("left alive".into())
}

fn lost() -> Told {
    let device = open(Options::default())?;
    let stream = device.create_stream(StreamSpec::default())?;
    let segment = plain_on(&device, DEVICE, 2 * MIB)?;
    let space = device.reserve(DEVICE, 2 * MIB)?.space;
    let region = terrane_core::device::Region { place: at(space, 0), bytes: 64 * KIB, seed: 1 };
    let submitted = device.fill_pattern(stream, &[region]);
    let lost = DeviceError::Lost;
    let answer = submitted.and_then(|point| device.wait_any(&[point], crate::support::LONG));
    ensure!(answer == Err(lost), "the fault was answered with {answer:?}");
    let answer = device.fill(stream, at(segment.space, 0), 64, 1);
    ensure!(answer == Err(lost), "fill: {answer:?}");
    let answer = Paging::create(&device, DEVICE, 2 * MIB, false);
    ensure!(answer == Err(lost), "create: {answer:?}");
    device.release_plain(segment.space)?;
    device.unreserve(space)?;
    device.retire_stream(stream)?;
    drop(device);
    Ok("lost, and everything could be given up".into())
}

fn reset() -> Told {
    let device = open(Options::default())?;
    let stream = device.create_stream(StreamSpec::default())?;
    let segment = plain_on(&device, DEVICE, 2 * MIB)?;
    wait_on(&device, device.fill(stream, at(segment.space, 0), 64, 1)?)?;
    let index: i32 = std::env::var("TERRANE_SELFTEST_DEVICE")?.parse()?;
    // SAFETY: what a program may do at any time, though it should not.
    driver("reset", unsafe { sys::cuDevicePrimaryCtxReset_v2(index) })?;
    let answers = [
        device
            .create_plain(&PlainSpec {
                class: DEVICE,
                bytes: 2 * MIB,
                exportable: false,
                priority: 0.5,
                name: "",
            })
            .map(|_| ()),
        Paging::create(&device, DEVICE, 2 * MIB, false).map(|_| ()),
        device.heap_use(terrane_core::device::HeapId(0)).map(|_| ()),
    ];
    drop(device);
    ensure!(answers == [Err(DeviceError::Lost); 3], "after the reset: {answers:?}");
    Ok("lost, whatever was asked".into())
}

fn guard() -> Told {
    let device = open(Options { guard: true, ..Options::default() })?;
    let stream = device.create_stream(StreamSpec::default())?;
    let segment = plain_on(&device, DEVICE, 256 * 5)?;
    // SAFETY: vector_add reaches past its bindings only in the second dispatch, on purpose.
    let add = unsafe { device.load_unchecked(&kernels::vector_add()) }?;
    let binding = Binding { place: at(segment.space, 0), bytes: 256 * 5, access: Access::Write };
    let run = |n: u32| {
        let point = device.dispatch(stream, add, &[binding; 3], &n.to_le_bytes(), [4, 1, 1])?;
        device.wait_any(&[point], crate::support::LONG)
    };
    let inside = run(320);
    ensure!(inside == Ok(true), "320 floats in 1,280 bytes: {inside:?}");
    let outside = run(321);
    ensure!(outside == Err(DeviceError::Lost), "321 floats in 1,280 bytes: {outside:?}");
    Ok("the first float past the end faulted".into())
}
