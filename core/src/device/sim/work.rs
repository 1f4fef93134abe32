//! What a modelled job does to bytes, at the moment it is done.
//!
//! Effects happen as late as the contract allows: at completion. A reader that does not wait
//! for its writer therefore sees old bytes, every time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::memory::Memory;
use super::referee::Use;
use crate::device::host::{HostGroup, HostKernel, RawView};
use crate::device::{Access, Binding, CopyOp, MapOp, Place, Region, UnmapOp, pattern};

pub(super) enum Effect {
    None,
    Copy(Vec<CopyOp>),
    Fill { place: Place, bytes: u64, word: u32 },
    Write { place: Place, data: Vec<u8> },
    Read { ticket: u64, place: Place, bytes: u64 },
    Pattern(Vec<Region>),
    Verify { ticket: u64, regions: Vec<Region> },
    Checksum { ticket: u64, regions: Vec<Region> },
    Launch(Box<Launch>),
    Map(Vec<MapOp>),
    Unmap(Vec<UnmapOp>),
}

impl Effect {
    /// The ticket of the result, for what has one.
    pub(super) fn ticket(&self) -> Option<u64> {
        match self {
            Self::Read { ticket, .. } | Self::Verify { ticket, .. } => Some(*ticket),
            Self::Checksum { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }
}

/// One run of a kernel.
pub(super) struct Launch {
    pub(super) kernel: HostKernel,
    pub(super) bindings: Vec<Binding>,
    pub(super) push: Vec<u8>,
    pub(super) groups: [u32; 3],
}

/// What came of a job.
pub(super) enum Outcome {
    Nothing,
    /// A range that nothing is mapped at.
    Unmapped {
        place: Place,
        bytes: u64,
    },
    Bytes {
        ticket: u64,
        bytes: Vec<u8>,
    },
    Report {
        ticket: u64,
        report: Vec<u64>,
    },
    /// A kernel panicked.
    Panicked,
}

/// Ranges that an effect uses, for the referee.
pub(super) fn uses_of(effect: &Effect) -> Vec<Use> {
    let one = |place, bytes, write| vec![Use { place, bytes, write }];
    match effect {
        Effect::None | Effect::Map(_) | Effect::Unmap(_) => Vec::new(),
        Effect::Copy(ops) => ops
            .iter()
            .flat_map(|op| {
                let CopyOp { from, to, bytes } = *op;
                [Use { place: from, bytes, write: false }, Use { place: to, bytes, write: true }]
            })
            .collect(),
        Effect::Fill { place, bytes, .. } => one(*place, *bytes, true),
        Effect::Write { place, data } => one(*place, data.len() as u64, true),
        Effect::Read { place, bytes, .. } => one(*place, *bytes, false),
        Effect::Pattern(regions) => regions.iter().map(|r| region_use(r, true)).collect(),
        Effect::Verify { regions, .. } | Effect::Checksum { regions, .. } => {
            regions.iter().map(|r| region_use(r, false)).collect()
        }
        Effect::Launch(launch) => launch.bindings.iter().map(binding_use).collect(),
    }
}

fn region_use(region: &Region, write: bool) -> Use {
    Use { place: region.place, bytes: region.bytes, write }
}

pub(super) fn binding_use(binding: &Binding) -> Use {
    let write = binding.access == Access::Write;
    Use { place: binding.place, bytes: binding.bytes, write }
}

/// Does what the job is for. Without bytes only the mappings change.
pub(super) fn run(memory: &mut Memory, effect: Effect, keep_bytes: bool) -> Outcome {
    match effect {
        Effect::Map(ops) => memory.map_now(&ops),
        Effect::Unmap(ops) => memory.unmap_now(&ops),
        Effect::Read { ticket, place, bytes } => {
            let mut data = vec![0; bytes as usize];
            if keep_bytes {
                memory.read(place, &mut data);
            }
            return Outcome::Bytes { ticket, bytes: data };
        }
        other => {
            let missing = uses_of(&other)
                .into_iter()
                .find(|used| memory.actual(used.place, used.bytes).is_none());
            if let Some(Use { place, bytes, .. }) = missing {
                return Outcome::Unmapped { place, bytes };
            }
            if keep_bytes {
                return run_on_bytes(memory, other);
            }
        }
    }
    Outcome::Nothing
}

fn run_on_bytes(memory: &mut Memory, effect: Effect) -> Outcome {
    match effect {
        Effect::Copy(ops) => {
            for op in &ops {
                pieces_of(op.bytes, |at, len| {
                    let mut data = vec![0; len];
                    memory.read(shift(op.from, at), &mut data);
                    memory.write(shift(op.to, at), &data);
                });
            }
        }
        Effect::Fill { place, bytes, word } => {
            pieces_of(bytes, |at, len| {
                let data = word.to_le_bytes().repeat(len / 4);
                memory.write(shift(place, at), &data);
            });
        }
        Effect::Write { place, data } => {
            memory.write(place, &data);
        }
        Effect::Pattern(regions) => {
            for region in &regions {
                pieces_of(region.bytes, |at, len| {
                    let words = at / 4..(at + len as u64) / 4;
                    let data: Vec<u8> =
                        words.flat_map(|i| pattern::word(region.seed, i).to_le_bytes()).collect();
                    memory.write(shift(region.place, at), &data);
                });
            }
        }
        Effect::Verify { ticket, regions } => {
            let report = regions.iter().map(|region| {
                let mut wrong = 0;
                each_word(memory, region, |i, word| {
                    wrong += u64::from(word != pattern::word(region.seed, i));
                });
                wrong
            });
            return Outcome::Report { ticket, report: report.collect() };
        }
        Effect::Checksum { ticket, regions } => {
            let report = regions.iter().map(|region| checksum(memory, region)).collect();
            return Outcome::Report { ticket, report };
        }
        Effect::Launch(launch) => return run_kernel(memory, &launch),
        Effect::None | Effect::Read { .. } | Effect::Map(_) | Effect::Unmap(_) => {}
    }
    Outcome::Nothing
}

fn checksum(memory: &Memory, region: &Region) -> u64 {
    let (mut low, mut high) = (0_u32, 0_u32);
    each_word(memory, region, |index, word| {
        let (a, b) = pattern::term(word, index);
        low = low.wrapping_add(a);
        high = high.wrapping_add(b);
    });
    u64::from(high) << 32 | u64::from(low)
}

fn each_word(memory: &Memory, region: &Region, mut each: impl FnMut(u64, u32)) {
    pieces_of(region.bytes, |at, len| {
        let mut data = vec![0; len];
        memory.read(shift(region.place, at), &mut data);
        for (index, word) in (at / 4..).zip(data.chunks_exact(4)) {
            each(index, u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        }
    });
}

fn shift(place: Place, by: u64) -> Place {
    Place { offset: place.offset + by, ..place }
}

/// Splits a range so that no buffer of its whole size is needed.
fn pieces_of(bytes: u64, mut each: impl FnMut(u64, usize)) {
    const PIECE: u64 = 1 << 20;
    let mut at = 0;
    while at < bytes {
        let len = PIECE.min(bytes - at);
        each(at, len as usize);
        at += len;
    }
}

fn run_kernel(memory: &mut Memory, launch: &Launch) -> Outcome {
    let shared = Mutex::new(memory);
    let views: Vec<SimView<'_, '_>> =
        launch.bindings.iter().map(|&binding| SimView { memory: &shared, binding }).collect();
    let bindings: Vec<&dyn RawView> = views.iter().map(|view| view as &dyn RawView).collect();
    let [x, y, z] = launch.groups;
    let kernel = Arc::clone(&launch.kernel.0);
    let all = AssertUnwindSafe(|| {
        for group in (0..z).flat_map(|k| (0..y).flat_map(move |j| (0..x).map(move |i| [i, j, k]))) {
            let (groups, push) = (launch.groups, launch.push.as_slice());
            kernel(&HostGroup { group, groups, push, bindings: &bindings });
        }
    });
    if catch_unwind(all).is_ok() { Outcome::Nothing } else { Outcome::Panicked }
}

struct SimView<'a, 'm> {
    memory: &'a Mutex<&'m mut Memory>,
    binding: Binding,
}

impl SimView<'_, '_> {
    fn place(&self, offset: u64, bytes: u64) -> Option<Place> {
        let end = offset.checked_add(bytes)?;
        (end <= self.binding.bytes).then(|| shift(self.binding.place, offset))
    }
}

impl RawView for SimView<'_, '_> {
    fn len(&self) -> u64 {
        self.binding.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(place) = self.place(offset, into.len() as u64) else { return false };
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).read(place, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        let place = self.place(offset, from.len() as u64);
        match place.filter(|_| self.binding.access == Access::Write) {
            Some(place) => {
                self.memory.lock().unwrap_or_else(PoisonError::into_inner).write(place, from)
            }
            None => false,
        }
    }

    fn add_u32(&self, offset: u64, value: u32) -> Option<u32> {
        if !offset.is_multiple_of(4) || self.binding.access != Access::Write {
            return None;
        }
        let place = self.place(offset, 4)?;
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = [0; 4];
        memory.read(place, &mut word);
        let old = u32::from_le_bytes(word);
        memory.write(place, &old.wrapping_add(value).to_le_bytes());
        Some(old)
    }
}
