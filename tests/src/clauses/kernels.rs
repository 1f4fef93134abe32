//! User kernels, in the language that the device speaks.

use std::sync::Arc;

use terrane_core::device::host::{HostGroup, HostKernel};
use terrane_core::device::{
    Access, Binding, Compute, Device, DeviceError, KernelId, KernelSource, Place, StreamId,
    SyncPoint, UnsafeKernelSource,
};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, Stop, ensure, equal, fails, refused};
use crate::rig::{Rig, at};

use Blame::Backend;
use Need::{CheckedKernels, HostKernels, UserKernels};

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "kernels.run",
        "A kernel runs over all of its groups, with its bindings in order and its push data.",
        &[UserKernels],
        "Compute::dispatch",
        Backend,
        run,
    ),
    device(
        "kernels.bounds",
        "A safe kernel can not write beyond its bindings.",
        &[UserKernels, CheckedKernels],
        "KernelSource",
        Backend,
        bounds,
    ),
    device(
        "kernels.order",
        "A kernel sees what work before it on its stream wrote.",
        &[UserKernels],
        "Device, rules for every method: order",
        Backend,
        order,
    ),
    device(
        "kernels.too-large",
        "A binding over the limit is refused with the limit.",
        &[UserKernels],
        "Caps::max_binding_bytes",
        Backend,
        too_large,
    ),
    device(
        "kernels.limits",
        "Too many bindings, too much push data, too many groups or a crooked binding is invalid.",
        &[UserKernels],
        "Caps::max_bindings, max_push_bytes, max_groups, binding_align",
        Backend,
        limits,
    ),
    device(
        "kernels.unload",
        "A kernel that was unloaded can not be run, and work submitted with it is done all the same.",
        &[UserKernels],
        "Compute::unload",
        Backend,
        unload,
    ),
    device(
        "kernels.language",
        "A kernel in a language that the device does not speak, or that is no kernel, is refused.",
        &[Need::Compute],
        "Compute::load",
        Backend,
        language,
    ),
    device(
        "kernels.panic",
        "A kernel that panics poisons its stream and no other.",
        &[HostKernels],
        "DeviceError::StreamPoisoned",
        Backend,
        panic,
    ),
];

/// What the suite's kernels are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Closures on the host.
    Closure,
    /// WGSL.
    Wgsl,
    /// PTX.
    Ptx,
}

impl Language {
    /// The language that a device accepts.
    pub(crate) fn of(device: &dyn Device) -> Option<Self> {
        let compute = device.compute()?;
        [Self::Closure, Self::Wgsl, Self::Ptx].into_iter().find(|language| {
            let loaded = language.load(compute);
            loaded.is_ok_and(|kernel| compute.unload(kernel).is_ok())
        })
    }

    /// Whether kernels can not reach beyond their bindings.
    pub(crate) const fn is_checked(self) -> bool {
        !matches!(self, Self::Ptx)
    }

    /// `c[i] = a[i] + b[i] * factor` for the i below `words`; 64 words to a group, in one
    /// dimension. Push data: words, factor.
    fn load(self, compute: &dyn Compute) -> Result<KernelId, DeviceError> {
        match self {
            Self::Closure => compute.load(&KernelSource::Host(HostKernel(Arc::new(add)))),
            Self::Wgsl => {
                let (text, entry) = (Arc::from(ADD), Arc::from("main"));
                compute.load(&KernelSource::Wgsl { text, entry })
            }
            Self::Ptx => {
                let source = ptx("terrane_suite_add", [64, 1, 1]);
                // SAFETY: the kernel touches the words below the number in its push data, which
                // the clauses that take unchecked kernels keep within the bindings.
                unsafe { compute.load_unchecked(&source) }
            }
        }
    }
}

/// A kernel of the suite's in PTX.
pub(crate) fn ptx(entry: &str, threads: [u32; 3]) -> UnsafeKernelSource {
    UnsafeKernelSource::Cuda {
        image: Arc::from(&include_bytes!("kernels.ptx")[..]),
        entry: Arc::from(entry),
        threads,
        shared_bytes: 0,
    }
}

const ADD: &str = "
struct Push { words: u32, factor: u32 }
@group(0) @binding(0) var<storage> a: array<u32>;
@group(0) @binding(1) var<storage> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<u32>;
var<immediate> push: Push;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < push.words) { c[id.x] = a[id.x] + b[id.x] * push.factor; }
}";

fn add(group: &HostGroup<'_>) {
    let number = |at: usize| group.push.get(at..at + 4).map_or(0, word);
    let (words, factor) = (u64::from(number(0)), number(4));
    let [a, b, c] = group.bindings else { return };
    for index in (0..64).map(|thread| u64::from(group.group[0]) * 64 + thread) {
        if index >= words {
            return;
        }
        let (mut left, mut right) = ([0; 4], [0; 4]);
        a.read(index * 4, &mut left);
        b.read(index * 4, &mut right);
        let sum = word(&left).wrapping_add(word(&right).wrapping_mul(factor));
        c.write(index * 4, &sum.to_le_bytes());
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

const BYTES: u64 = 16 << 10;
const WORDS: u32 = 4096;

/// The kernel with three ranges of 16 KiB for it, unloaded when dropped.
struct Bench<'a> {
    rig: &'a Rig,
    kernel: KernelId,
    stream: StreamId,
    places: [Place; 3],
}

impl<'a> Bench<'a> {
    fn new(rig: &'a Rig) -> Result<Self, Stop> {
        let stream = rig.stream()?;
        let plain = rig.plain(8 * BYTES)?;
        let places = [0, 2, 4].map(|part| at(plain.space, part * BYTES));
        rig.device().fill(stream, start(plain), 8 * BYTES, 0x4444_4444)?;
        let kernel = rig.language()?.load(rig.compute()?)?;
        let ramp: Vec<u8> = (0..WORDS).flat_map(u32::to_le_bytes).collect();
        rig.device().write(stream, places[0], &ramp)?;
        rig.device().fill(stream, places[1], BYTES, 3)?;
        Ok(Self { rig, kernel, stream, places })
    }

    fn bindings(&self) -> [Binding; 3] {
        let access = [Access::Read, Access::Read, Access::Write];
        std::array::from_fn(|n| Binding { place: self.places[n], bytes: BYTES, access: access[n] })
    }

    fn run(&self, words: u32, factor: u32, groups: u32) -> Result<SyncPoint, DeviceError> {
        self.dispatch(&self.bindings(), &push(words, factor), [groups, 1, 1])
    }

    fn dispatch(
        &self,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        let compute = self.rig.device().compute();
        let compute = compute.ok_or(DeviceError::InvalidCall("the power is gone"))?;
        compute.dispatch(self.stream, self.kernel, bindings, push, groups)
    }

    /// The result, and the 16 KiB after it.
    fn result(&self) -> Result<Vec<u32>, Stop> {
        self.rig.words(self.stream, self.places[2], 2 * u64::from(WORDS))
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        if let Some(compute) = self.rig.device().compute() {
            // A clause may have unloaded it itself.
            let _ = compute.unload(self.kernel);
        }
    }
}

fn push(words: u32, factor: u32) -> Vec<u8> {
    [words.to_le_bytes(), factor.to_le_bytes()].concat()
}

fn run(rig: &Rig) -> Outcome {
    let bench = Bench::new(rig)?;
    bench.run(WORDS, 5, WORDS / 64)?;
    let words = bench.result()?;
    for (index, &found) in (0_u32..WORDS).zip(&words) {
        equal!(found, index + 15, "word {index} of a[i] + b[i] * 5");
    }
    bench.run(100, 7, 2)?;
    let words = bench.result()?;
    equal!([words[99], words[100]], [99 + 21, 100 + 15], "words at the end of a short run");
    Ok(())
}

fn bounds(rig: &Rig) -> Outcome {
    let bench = Bench::new(rig)?;
    // Twice as many words as the bindings have.
    bench.run(2 * WORDS, 1, 2 * WORDS / 64)?;
    let words = bench.result()?;
    equal!(words[WORDS as usize - 2], WORDS - 2 + 3, "a word inside");
    let beyond = &words[WORDS as usize..];
    let touched = beyond.iter().filter(|&&word| word != 0x4444_4444).count();
    equal!(touched, 0, "words changed beyond the binding");
    Ok(())
}

fn order(rig: &Rig) -> Outcome {
    let bench = Bench::new(rig)?;
    for round in 1..50_u32 {
        rig.device().fill(bench.stream, bench.places[1], BYTES, round)?;
        bench.run(WORDS, 2, WORDS / 64)?;
        rig.device().fill(bench.stream, bench.places[1], BYTES, 0)?;
        if round % 7 == 0 {
            let last = bench.result()?[WORDS as usize - 1];
            equal!(last, WORDS - 1 + 2 * round, "the last word of round {round}");
        }
    }
    Ok(())
}

fn too_large(rig: &Rig) -> Outcome {
    let limit = rig.caps().max_binding_bytes;
    let bytes = limit.saturating_add(256) & !255;
    let room = rig.caps().max_plain_bytes.min(4 << 30);
    if limit >= room {
        return Err(Stop::Skipped("a binding can have as much as a segment".to_owned()));
    }
    let bench = Bench::new(rig)?;
    let large = rig.plain(bytes)?;
    let mut bindings = bench.bindings();
    bindings[0] = Binding { place: start(large), bytes, access: Access::Read };
    let answer = bench.dispatch(&bindings, &push(1, 1), [1, 1, 1]);
    fails(&answer, &DeviceError::TooLarge { bytes, limit }, "a binding over the limit")
}

fn limits(rig: &Rig) -> Outcome {
    let bench = Bench::new(rig)?;
    let caps = rig.caps();
    let good = bench.bindings();
    let many = vec![good[0]; caps.max_bindings as usize + 1];
    refused(&bench.dispatch(&many, &push(1, 1), [1, 1, 1]), "one binding too many")?;
    let long = vec![0; caps.max_push_bytes as usize + 4];
    refused(&bench.dispatch(&good, &long, [1, 1, 1]), "too much push data")?;
    for dimension in 0..3 {
        let mut groups = [1; 3];
        let Some(over) = caps.max_groups[dimension].checked_add(1) else { continue };
        groups[dimension] = over;
        let what = format!("{groups:?} groups");
        refused(&bench.dispatch(&good, &push(1, 1), groups), &what)?;
    }
    if caps.binding_align.get() > 4 {
        let mut crooked = good;
        crooked[0].place.offset += 4;
        crooked[0].bytes -= 4;
        refused(&bench.dispatch(&crooked, &push(1, 1), [1, 1, 1]), "a crooked binding")?;
    }
    Ok(())
}

fn unload(rig: &Rig) -> Outcome {
    let bench = Bench::new(rig)?;
    bench.run(WORDS, 9, WORDS / 64)?;
    rig.compute()?.unload(bench.kernel)?;
    equal!(bench.result()?[10], 10 + 27, "a word written by an unloaded kernel's last run");
    refused(&bench.run(WORDS, 1, 1), "a run of an unloaded kernel")?;
    refused(&rig.compute()?.unload(bench.kernel), "a second unload")
}

fn language(rig: &Rig) -> Outcome {
    let compute = rig.compute()?;
    let text = "this is no kernel in any language";
    let broken = KernelSource::Wgsl { text: Arc::from(text), entry: Arc::from("main") };
    let refused = matches!(
        compute.load(&broken),
        Err(DeviceError::InvalidCall(_) | DeviceError::Unsupported(_))
    );
    ensure!(refused, "a text that is no kernel was loaded");
    let closure = KernelSource::Host(HostKernel(Arc::new(|_| {})));
    match compute.load(&closure) {
        Ok(kernel) => Ok(compute.unload(kernel)?),
        Err(DeviceError::Unsupported(_)) => Ok(()),
        Err(error) => Err(Stop::failed(format!("a closure was answered with `{error}`"))),
    }
}

#[allow(clippy::panic, reason = "the kernel under test panics")]
fn panic(rig: &Rig) -> Outcome {
    let [bad, good] = rig.streams()?;
    let plain = rig.plain(4096)?;
    let compute = rig.compute()?;
    let kernel = HostKernel(Arc::new(|_: &HostGroup<'_>| {
        std::panic::panic_any("a kernel of the suite that panics on purpose");
    }));
    let kernel = compute.load(&KernelSource::Host(kernel))?;
    let point = compute.dispatch(bad, kernel, &[], &[], [1, 1, 1])?;
    rig.wait(point)?;
    compute.unload(kernel)?;
    let answer = rig.device().fill(bad, start(plain), 64, 1);
    fails(&answer, &DeviceError::StreamPoisoned, "work on a poisoned stream")?;
    rig.wait(rig.device().fill(good, start(plain), 64, 2)?)?;
    equal!(rig.words(good, start(plain), 1)?, [2], "work of another stream");
    Ok(())
}
