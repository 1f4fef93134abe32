//! A kernel that computes and touches no memory, in the language of each device.

use std::sync::Arc;

use terrane_core::device::host::{HostGroup, HostKernel};
use terrane_core::device::{
    Access, Binding, Compute, DeviceError, Feature, KernelId, KernelSource, MemoryKind, Place,
    PlainSpec, SpaceId, StreamId, SyncPoint, UnsafeKernelSource,
};

use crate::{Outcome, Shared};

/// Rounds of 16 multiplications and additions in each thread.
const ROUNDS: u32 = 64;
/// Threads of a workgroup.
const THREADS: u32 = 256;
/// Bytes of the binding, which a thread would write to if its sum were one that it can not be.
const BYTES: u64 = THREADS as u64 * 4;

const WGSL: &str = "
struct Push { rounds: u32 }
@group(0) @binding(0) var<storage, read_write> sums: array<f32>;
var<immediate> push: Push;
@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var a = f32(lane);
    var b = a + 1.0;
    var c = a + 2.0;
    var d = a + 3.0;
    for (var i = 0u; i < push.rounds; i++) {
        a = fma(a, 0.999, 0.5); b = fma(b, 0.999, 0.5); c = fma(c, 0.999, 0.5); d = fma(d, 0.999, 0.5);
        a = fma(a, 0.999, 0.5); b = fma(b, 0.999, 0.5); c = fma(c, 0.999, 0.5); d = fma(d, 0.999, 0.5);
        a = fma(a, 0.999, 0.5); b = fma(b, 0.999, 0.5); c = fma(c, 0.999, 0.5); d = fma(d, 0.999, 0.5);
        a = fma(a, 0.999, 0.5); b = fma(b, 0.999, 0.5); c = fma(c, 0.999, 0.5); d = fma(d, 0.999, 0.5);
    }
    if (a + b + c + d == -1.0) { sums[lane] = a; }
}";

const PTX: &str = include_str!("multiply.ptx");

/// The kernel, loaded, and what it is bound to.
pub struct Multiply {
    device: Shared,
    kernel: KernelId,
    space: SpaceId,
}

impl Multiply {
    pub fn new(device: &Shared) -> Outcome<Self> {
        let compute = device.compute().ok_or("the device runs no kernels")?;
        let kernel = load(compute)?;
        let class =
            device.caps().classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
        let bytes = BYTES.next_multiple_of(device.caps().plain_granularity);
        let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "sums" };
        let space = device.create_plain(&spec)?.space;
        Ok(Self { device: device.clone(), kernel, space })
    }

    /// Runs it in so many workgroups.
    pub fn run(&self, stream: StreamId, groups: u32) -> Result<SyncPoint, DeviceError> {
        let compute = self.device.compute();
        let compute = compute.ok_or(DeviceError::Unsupported(Feature::Compute))?;
        let place = Place { space: self.space, offset: 0 };
        let binding = Binding { place, bytes: BYTES, access: Access::Write };
        let push = ROUNDS.to_le_bytes();
        compute.dispatch(stream, self.kernel, &[binding], &push, [groups, 1, 1])
    }

    pub fn end(self) -> Outcome<()> {
        if let Some(compute) = self.device.compute() {
            compute.unload(self.kernel)?;
        }
        Ok(self.device.release_plain(self.space)?)
    }
}

fn load(compute: &dyn Compute) -> Outcome<KernelId> {
    let wgsl = KernelSource::Wgsl { text: WGSL.into(), entry: "main".into() };
    let host = KernelSource::Host(HostKernel(Arc::new(on_host)));
    for source in [wgsl, host] {
        match compute.load(&source) {
            Err(DeviceError::Unsupported(Feature::KernelLanguage)) => {}
            loaded => return Ok(loaded?),
        }
    }
    let source = UnsafeKernelSource::Cuda {
        image: PTX.as_bytes().into(),
        entry: "terrane_multiply".into(),
        threads: [THREADS, 1, 1],
        shared_bytes: 0,
    };
    // SAFETY: the kernel writes at most one number for each of its 256 threads to its only
    // binding, which has room for them.
    Ok(unsafe { compute.load_unchecked(&source)? })
}

fn on_host(group: &HostGroup<'_>) {
    let mut sums = [1.0_f32, 2.0, 3.0, 4.0];
    for _ in 0..ROUNDS * THREADS {
        sums.iter_mut().for_each(|sum| *sum = sum.mul_add(0.999, 0.5));
    }
    if sums.iter().sum::<f32>() == -1.0 {
        group.bindings.iter().for_each(|binding| {
            binding.write(0, &sums[0].to_le_bytes());
        });
    }
}
