//! What submitted work does, cut into chunks that several workers can share.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::scan::{self, Buffer, WORDS};
use super::span::Span;
use super::tables::Claim;
use super::{HostGroup, HostKernel, RawView};
use crate::device::{Access, Binding, Region};

/// The largest piece that one worker takes at a time.
const PIECE: usize = 1 << 20;

/// Results of one region; sums do not depend on the order in which pieces are done.
#[derive(Default)]
pub(super) struct Sums {
    wrong: AtomicU64,
    low: AtomicU32,
    high: AtomicU32,
}

/// A piece of a region.
pub(super) struct Part {
    span: Span,
    region: u32,
    first_word: u64,
}

/// What to do with the words of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    Fill,
    Verify,
    Checksum,
}

pub(super) enum Work {
    Copy { pieces: Vec<(Span, Span)>, times: Option<Times> },
    Fill { pieces: Vec<Span>, word: u32 },
    Write { to: Span, data: Vec<u8> },
    Read { from: Span, into: Mutex<Vec<u8>> },
    Scan { what: Scan, parts: Vec<Part>, seeds: Vec<u64>, sums: Vec<Sums> },
    Kernel { kernel: HostKernel, bindings: Vec<(Span, Access)>, push: Vec<u8>, groups: [u32; 3] },
}

/// When the first piece was begun and the last was done.
pub(super) struct Times {
    since: Instant,
    first: AtomicU64,
    last: AtomicU64,
}

impl Times {
    const fn since(since: Instant) -> Self {
        Self { since, first: AtomicU64::new(u64::MAX), last: AtomicU64::new(0) }
    }

    fn note(&self) {
        let ns = self.since.elapsed().as_nanos() as u64;
        self.first.fetch_min(ns, Ordering::Relaxed);
        self.last.fetch_max(ns, Ordering::Relaxed);
    }

    fn taken(&self) -> [u64; 2] {
        let last = self.last.load(Ordering::Relaxed);
        [self.first.load(Ordering::Relaxed).min(last), last]
    }
}

/// A result that a ticket stands for.
pub(super) enum Held {
    Coming,
    Bytes(Vec<u8>),
    Report(Vec<u64>),
    Times([u64; 2]),
    /// A kernel of the stream failed before.
    Failed,
}

/// Work with what it claims, ready to be queued.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) claim: Claim,
    pub(super) ticket: Option<u64>,
}

impl Work {
    pub(super) fn copy(pairs: impl Iterator<Item = (Span, Span)>) -> Self {
        let mut pieces = Vec::new();
        for (from, to) in pairs {
            let cut = cut(from).zip(cut(to)).map(|((_, from), (_, to))| (from, to));
            pieces.extend(cut);
        }
        Self::Copy { pieces, times: None }
    }

    /// Copies whose start and end are noted, in nanoseconds since a moment.
    pub(super) fn timed(self, since: Instant) -> Self {
        match self {
            Self::Copy { pieces, .. } => Self::Copy { pieces, times: Some(Times::since(since)) },
            other => other,
        }
    }

    pub(super) fn fill(span: Span, word: u32) -> Self {
        Self::Fill { pieces: cut(span).map(|(_, piece)| piece).collect(), word }
    }

    pub(super) fn scan(what: Scan, regions: &[Region], spans: Vec<Span>) -> Self {
        let parts = (0_u32..).zip(spans).flat_map(|(region, span)| {
            cut(span).map(move |(at, span)| Part { span, region, first_word: at as u64 / 4 })
        });
        let seeds = regions.iter().map(|region| region.seed).collect();
        let sums = regions.iter().map(|_| Sums::default()).collect();
        Self::Scan { what, parts: parts.collect(), seeds, sums }
    }

    pub(super) fn kernel(
        kernel: HostKernel,
        bindings: &[Binding],
        spans: Vec<Span>,
        push: &[u8],
        groups: [u32; 3],
    ) -> Self {
        let bindings = spans.into_iter().zip(bindings.iter().map(|b| b.access)).collect();
        Self::Kernel { kernel, bindings, push: push.to_vec(), groups }
    }

    /// Where chunks begin and end: in pieces, parts or groups.
    pub(super) fn chunks(&self, workers: usize) -> Vec<Range<u64>> {
        match self {
            Self::Copy { pieces, .. } => by_bytes(pieces.iter().map(|(from, _)| from.len())),
            Self::Fill { pieces, .. } => by_bytes(pieces.iter().map(Span::len)),
            Self::Scan { parts, .. } => by_bytes(parts.iter().map(|part| part.span.len())),
            Self::Write { .. } | Self::Read { .. } => std::iter::once(0..1).collect(),
            Self::Kernel { groups, .. } => {
                let all: u64 = groups.iter().map(|n| u64::from(*n)).product();
                let step = all.div_ceil(workers as u64 * 8).max(1);
                let starts = (0..).map(|at| at * step).take_while(|start| *start < all);
                starts.map(|start| start..all.min(start + step)).collect()
            }
        }
    }

    /// Does one chunk; false when a kernel panicked.
    pub(super) fn run(&self, chunk: Range<u64>) -> bool {
        let range = chunk.start as usize..chunk.end as usize;
        match self {
            Self::Copy { pieces, times } => {
                times.iter().for_each(Times::note);
                pieces[range].iter().for_each(|(from, to)| from.copy_to(to));
                times.iter().for_each(Times::note);
            }
            Self::Fill { pieces, word } => pieces[range].iter().for_each(|p| fill(p, *word)),
            Self::Write { to, data } => to.write(data),
            Self::Read { from, into } => {
                from.read(&mut into.lock().unwrap_or_else(PoisonError::into_inner));
            }
            Self::Scan { what, parts, seeds, sums } => {
                for part in &parts[range] {
                    let region = part.region as usize;
                    scan_part(*what, part, seeds[region], &sums[region]);
                }
            }
            Self::Kernel { kernel, bindings, push, groups } => {
                return run_groups(kernel, bindings, push, *groups, chunk);
            }
        }
        true
    }

    /// The result, once all chunks are done.
    pub(super) fn result(&self) -> Option<Held> {
        match self {
            Self::Read { into, .. } => {
                let mut bytes = into.lock().unwrap_or_else(PoisonError::into_inner);
                Some(Held::Bytes(std::mem::take(&mut *bytes)))
            }
            Self::Copy { times: Some(times), .. } => Some(Held::Times(times.taken())),
            Self::Scan { what: Scan::Verify, sums, .. } => {
                let wrong = sums.iter().map(|sum| sum.wrong.load(Ordering::Relaxed));
                Some(Held::Report(wrong.collect()))
            }
            Self::Scan { what: Scan::Checksum, sums, .. } => {
                let both = sums.iter().map(|sum| {
                    let (low, high) =
                        (sum.low.load(Ordering::Relaxed), sum.high.load(Ordering::Relaxed));
                    u64::from(high) << 32 | u64::from(low)
                });
                Some(Held::Report(both.collect()))
            }
            _ => None,
        }
    }
}

/// The pieces of a span with their offsets.
fn cut(span: Span) -> impl Iterator<Item = (usize, Span)> {
    let starts = (0..span.len()).step_by(PIECE);
    starts.filter_map(move |at| Some((at, span.part(at, PIECE.min(span.len() - at))?)))
}

/// Groups small pieces so that a chunk is worth a worker's while.
fn by_bytes(sizes: impl Iterator<Item = usize>) -> Vec<Range<u64>> {
    let mut chunks = Vec::new();
    let (mut start, mut end, mut bytes) = (0_u64, 0_u64, 0);
    for size in sizes {
        end += 1;
        bytes += size;
        if bytes >= PIECE / 2 {
            chunks.push(start..end);
            (start, bytes) = (end, 0);
        }
    }
    if start < end {
        chunks.push(start..end);
    }
    chunks
}

fn fill(span: &Span, word: u32) {
    let [a, b, c, d] = word.to_le_bytes();
    let pattern = [a, b, c, d].repeat(WORDS);
    let mut at = 0;
    while let Some(part) = span.part(at, pattern.len().min(span.len() - at))
        && part.len() > 0
    {
        part.write(&pattern);
        at += part.len();
    }
}

fn scan_part(what: Scan, part: &Part, seed: u64, sums: &Sums) {
    let mut words: Buffer = [0; WORDS];
    let mut bytes = [0_u8; WORDS * 4];
    let mut at = 0;
    while at < part.span.len() {
        let len = bytes.len().min(part.span.len() - at);
        let Some(span) = part.span.part(at, len) else { return };
        let (first, count) = (part.first_word + at as u64 / 4, len / 4);
        if what == Scan::Fill {
            scan::fill(&mut words[..count], seed, first);
            for (bytes, word) in bytes.chunks_exact_mut(4).zip(&words[..count]) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            span.write(&bytes[..len]);
        } else {
            span.read(&mut bytes[..len]);
            for (word, bytes) in words.iter_mut().zip(bytes[..len].chunks_exact(4)) {
                *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            count_part(what, &words[..count], seed, first, sums);
        }
        at += len;
    }
}

fn count_part(what: Scan, words: &[u32], seed: u64, first: u64, sums: &Sums) {
    if what == Scan::Verify {
        let wrong = scan::differ(words, seed, first);
        if wrong > 0 {
            sums.wrong.fetch_add(wrong, Ordering::Relaxed);
        }
    } else {
        let (low, high) = scan::sums(words, first);
        sums.low.fetch_add(low, Ordering::Relaxed);
        sums.high.fetch_add(high, Ordering::Relaxed);
    }
}

fn run_groups(
    kernel: &HostKernel,
    bindings: &[(Span, Access)],
    push: &[u8],
    groups: [u32; 3],
    chunk: Range<u64>,
) -> bool {
    let views: Vec<View> = bindings.iter().map(|&(span, access)| View { span, access }).collect();
    let bindings: Vec<&dyn RawView> = views.iter().map(|view| view as &dyn RawView).collect();
    let (wide, high) = (u64::from(groups[0]), u64::from(groups[1]));
    let run = AssertUnwindSafe(|| {
        for at in chunk {
            let group = [at % wide, at / wide % high, at / wide / high].map(|n| n as u32);
            (kernel.0)(&HostGroup { group, groups, push, bindings: &bindings });
        }
    });
    catch_unwind(run).is_ok()
}

struct View {
    span: Span,
    access: Access,
}

impl View {
    fn part(&self, offset: u64, bytes: usize) -> Option<Span> {
        self.span.part(usize::try_from(offset).ok()?, bytes)
    }
}

impl RawView for View {
    fn len(&self) -> u64 {
        self.span.len() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.part(offset, into.len()).map(|span| span.read(into)).is_some()
    }

    fn write(&self, offset: u64, from: &[u8]) -> bool {
        let span = self.part(offset, from.len()).filter(|_| self.access == Access::Write);
        span.map(|span| span.write(from)).is_some()
    }

    fn add_u32(&self, offset: u64, value: u32) -> Option<u32> {
        let offset = usize::try_from(offset).ok().filter(|_| self.access == Access::Write)?;
        self.span.add_u32(offset, value)
    }
}
