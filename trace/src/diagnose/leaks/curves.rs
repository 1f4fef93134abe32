//! What is kept from step to step.

use super::steps::{StepSource, Steps};
use crate::model::{Model, PlacedBlock, Pytorch, Request};
use crate::{Event, Op, Trace};
use std::collections::HashMap;

/// Most steps that are looked at one by one; more are taken several at a time.
const SAMPLES_MAX: usize = 64;

/// Which bytes of a site a curve counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Kept {
    pub site: u64,
    pub by: By,
}

/// Two ways to leave out what a step uses and returns. Each finds what the other misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum By {
    /// The least live bytes within the step: follows a block that is replaced by a larger one.
    Least,
    /// At the step's end, blocks from before the step: finds what is kept where the same line
    /// always has some short-lived blocks too.
    Old,
}

/// Bytes of each sampled step.
#[derive(Debug)]
pub(super) struct Curves {
    /// What each site keeps.
    pub kept: HashMap<Kept, Vec<f64>>,
    /// Least bytes freed and still in use by other streams within the step.
    pub pending: Vec<f64>,
    /// At the step's end, bytes of blocks from before the step and after the warm-up.
    pub late: Vec<f64>,
    /// Bytes of the segments that hold such blocks, less the blocks: what they keep from being
    /// given back.
    pub held_empty: Vec<f64>,
    /// Sum over all samples of such blocks' bytes, by site.
    pub late_by_site: HashMap<u64, f64>,
    /// Largest bytes live in any step.
    pub peak: f64,
    /// Steps that each sample stands for.
    pub stride: usize,
    /// Steps seen.
    pub steps: usize,
    pub source: StepSource,
}

/// Share of the steps that is warm-up.
const WARM_UP: f64 = 0.15;

/// Samples that belong to the warm-up, of so many.
pub(super) fn warm_up(samples: usize) -> usize {
    ((samples as f64 * WARM_UP).ceil() as usize).max(2)
}

impl Curves {
    pub(super) fn of(trace: &Trace, sites: &[u64], steps: &Steps, model: Pytorch) -> Self {
        let stride = steps.ends.len().div_ceil(SAMPLES_MAX).max(1);
        let ends: Vec<usize> = steps.ends.iter().copied().step_by(stride).collect();
        let curves = Self {
            kept: HashMap::new(),
            pending: vec![0.0; ends.len()],
            late: vec![0.0; ends.len()],
            held_empty: vec![0.0; ends.len()],
            late_by_site: HashMap::new(),
            peak: 0.0,
            stride,
            steps: steps.ends.len(),
            source: steps.source,
        };
        let mut walk = Walk {
            curves,
            ends,
            sample: 0,
            live: HashMap::new(),
            sites: HashMap::new(),
            pending: Low::default(),
            active: 0,
            model,
        };
        for (at, event) in trace.iter().enumerate() {
            while walk.ends.get(walk.sample).is_some_and(|end| *end <= at) {
                walk.sample();
            }
            walk.take(event, at, sites.get(event.block as usize).copied().unwrap_or(u64::MAX));
        }
        while walk.sample < walk.ends.len() {
            walk.sample();
        }
        walk.curves
    }
}

#[derive(Clone, Copy)]
struct Live {
    /// The event that allocated it.
    born: usize,
    bytes: u64,
    site: u64,
}

/// A sum, and the least that it was since the last sample.
#[derive(Clone, Copy, Default)]
struct Low {
    now: u64,
    least: u64,
}

impl Low {
    fn sub(&mut self, bytes: u64) {
        self.now -= bytes;
        self.least = self.least.min(self.now);
    }

    fn sample(&mut self) -> f64 {
        std::mem::replace(&mut self.least, self.now) as f64
    }
}

struct Walk {
    curves: Curves,
    ends: Vec<usize>,
    /// Samples taken.
    sample: usize,
    live: HashMap<u32, Live>,
    sites: HashMap<u64, Low>,
    pending: Low,
    active: u64,
    model: Pytorch,
}

impl Walk {
    fn take(&mut self, event: Event, at: usize, site: u64) {
        let Event { block, bytes, stream, .. } = event;
        match event.op {
            Op::Alloc => {
                self.live.insert(block, Live { born: at, bytes, site });
                self.sites.entry(site).or_default().now += bytes;
                self.active += bytes;
                self.model.alloc(Request { block, bytes, stream });
            }
            Op::FreeRequested => {
                self.live.remove(&block);
                self.sites.entry(site).or_default().sub(bytes);
                self.pending.now += bytes;
                self.model.free_requested(block);
            }
            Op::FreeCompleted => {
                self.pending.sub(bytes);
                self.active -= bytes;
                self.model.free_completed(block);
            }
        }
        self.curves.peak = self.curves.peak.max(self.active as f64);
    }

    fn sample(&mut self) {
        let began = self.sample.checked_sub(1).map_or(0, |before| self.ends[before]);
        let old: HashMap<u32, Live> =
            self.live.iter().filter(|(_, l)| l.born < began).map(|(b, l)| (*b, *l)).collect();
        let least = self.sites.iter_mut().map(|(site, low)| (*site, By::Least, low.sample()));
        let aged = old.values().map(|live| (live.site, By::Old, live.bytes as f64));
        for (site, by, bytes) in least.chain(aged).filter(|kept| kept.2 > 0.0) {
            let fresh = || vec![0.0; self.ends.len()];
            let curve = self.curves.kept.entry(Kept { site, by }).or_insert_with(fresh);
            curve[self.sample] += bytes;
        }
        self.curves.pending[self.sample] = self.pending.sample();
        let warm = self.ends.get(warm_up(self.ends.len())).copied().unwrap_or(usize::MAX);
        let late: HashMap<u32, Live> = old.into_iter().filter(|(_, l)| l.born >= warm).collect();
        for live in late.values() {
            *self.curves.late_by_site.entry(live.site).or_default() += live.bytes as f64;
        }
        self.curves.late[self.sample] = late.values().map(|live| live.bytes as f64).sum();
        self.curves.held_empty[self.sample] = self.held_empty(&late);
        self.sample += 1;
    }

    /// Bytes of segments that hold one of these blocks, less the blocks.
    fn held_empty(&self, blocks: &HashMap<u32, Live>) -> f64 {
        let placed: HashMap<u64, u64> =
            blocks.keys().filter_map(|block| self.model.place_of(*block)).collect();
        let kept = |block: &PlacedBlock| placed.get(&block.address).copied().unwrap_or(0);
        let mut held = 0;
        for segment in self.model.placed_blocks().chunk_by(|a, b| a.segment == b.segment) {
            if segment.iter().any(|block| kept(block) > 0) {
                held += segment.iter().map(|b| b.bytes.saturating_sub(kept(b))).sum::<u64>();
            }
        }
        held as f64
    }
}
