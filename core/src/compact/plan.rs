//! The plan: which blocks go where.

use super::goal::{Goal, Limits};
use super::holes::{Hole, Holes};
use super::view::{Part, PoolView, What};
use super::window::{Window, cheapest, gain};
use super::{chain, release, squeeze};

/// A plan that only prepares others.
const BOLD: Plan = Plan { moves: Vec::new(), chain: None, met: false, reachable: true, more: true };

/// Stretches whose blocks are placed on trial before the search gives up.
const TRIALS: usize = 24;
/// The same for larger stretches, since the dearer ones of a size seldom fare better.
const TRIALS_MORE: usize = 4;
/// How often the search asks for a larger stretch.
const TRIES: u32 = 6;

/// What to do. Moves first; a chain only in a plan without moves. When `more` is set the goal
/// needs a further plan, made once this one is carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Blocks that go to places which do not overlap anything of this plan.
    pub moves: Vec<Move>,
    /// Blocks that slide into each other's old places, in order.
    pub chain: Option<Chain>,
    /// Whether the goal is met without any move.
    pub met: bool,
    /// Whether the goal is met, or can be, by this plan and those after it.
    pub reachable: bool,
    /// Whether this plan alone does not reach the goal.
    pub more: bool,
}

/// One block to a free place apart from its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The block's slot.
    pub owner: u32,
    /// Index of its segment in the view.
    pub segment: usize,
    /// Its first byte there.
    pub from: u64,
    /// Bytes.
    pub bytes: u64,
    /// Where it goes.
    pub to: To,
}

/// A place in a free part of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// Index of the segment in the view.
    pub segment: usize,
    /// Index of the free part in the segment.
    pub part: usize,
    /// First byte in the segment.
    pub offset: u64,
}

/// Blocks of one stretch that slide together, each into the gap before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Index of the segment in the view.
    pub segment: usize,
    /// First part of the stretch.
    pub first: usize,
    /// Last part of the stretch.
    pub last: usize,
    /// Whether blocks go to higher addresses.
    pub up: bool,
    /// The slides in the order in which they have to be done.
    pub slides: Vec<Slide>,
}

/// One block to a place that may overlap its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slide {
    /// The block's slot.
    pub owner: u32,
    /// Index of its part in the view's segment.
    pub part: usize,
    /// Its first byte in the segment.
    pub from: u64,
    /// Its first byte after the slide.
    pub to: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Plan {
    /// Blocks that it moves.
    pub fn blocks(&self) -> usize {
        self.moves.len() + self.chain.as_ref().map_or(0, |chain| chain.slides.len())
    }

    /// Bytes that it moves.
    pub fn bytes(&self) -> u64 {
        let slides = self.chain.iter().flat_map(|chain| &chain.slides);
        self.moves.iter().map(|m| m.bytes).sum::<u64>() + slides.map(|s| s.bytes).sum::<u64>()
    }

    pub(super) fn met() -> Self {
        Self { met: true, reachable: true, ..Self::default() }
    }

    /// Cuts it to the limits.
    fn within(mut self, limits: &Limits) -> Self {
        let (mut bytes, mut moves) = (limits.bytes, limits.moves);
        let mut keep = |needed: u64| {
            let fits = needed <= bytes && moves > 0;
            (bytes, moves) = if fits { (bytes - needed, moves - 1) } else { (0, 0) };
            fits
        };
        let before = self.blocks();
        self.moves.retain(|it| keep(it.bytes));
        if let Some(chain) = &mut self.chain {
            chain.slides.retain(|it| keep(it.bytes));
        }
        self.chain = self.chain.filter(|chain| !chain.slides.is_empty());
        self.more |= self.blocks() < before;
        self
    }
}

/// The moves that reach the goal at the least cost in bytes, within the limits. Pure.
pub fn plan(view: &PoolView, goal: Goal, limits: &Limits) -> Plan {
    let plan = match goal {
        Goal::Contiguous { bytes, align } => contiguous(view, bytes, align, !limits.is_limited()),
        Goal::Release { bytes } => release::release(view, bytes),
        Goal::Fragmentation { below } => fragmentation(view, below, !limits.is_limited()),
    };
    plan.within(limits)
}

/// Largest free range of the segments in use >= (1 - below) of what is free in them.
///
/// A *bold* plan makes things worse before they get better, so it is only for passes that carry it
/// out to its end: cut short by limits, one after the other could move the same blocks to and fro.
fn fragmentation(view: &PoolView, below: f64, bold: bool) -> Plan {
    let (free, _) = view.free_in_use();
    let wanted = (free as f64 * (1.0 - below.clamp(0.0, 1.0))).ceil() as u64;
    if is_met(view, below) {
        return Plan::met();
    }
    let used = |at: usize| !view.segments[at].is_wholly_free();
    let plan = contiguous_in(view, wanted.min(free), 1, used, bold);
    if plan.reachable {
        // A segment that is emptied by it is in use no more, and its free range counts no more.
        let done = plan.more || plan.chain.is_some() || is_met(&view.after(&plan), below);
        return Plan { more: plan.more || !done, ..plan };
    }
    // No segment can hold that much: empty the others instead, after making room for their blocks
    // where the holes are too small for them.
    let plan = release::release(view, u64::MAX);
    if bold && !leads(view, &plan, below) {
        let rotated = squeeze::rotate(view).or_else(|| release::empty_lowest(view));
        let slid = || squeeze::squeeze(view).map(|chain| Plan { chain: Some(chain), ..BOLD });
        if let Some(plan) = rotated.or_else(slid) {
            return plan;
        }
    }
    Plan { met: false, reachable: !plan.moves.is_empty(), more: true, ..plan }
}

/// Whether the largest free range of the segments in use is what is wanted.
fn is_met(view: &PoolView, below: f64) -> bool {
    let (free, largest) = view.free_in_use();
    let wanted = (free as f64 * (1.0 - below.clamp(0.0, 1.0))).ceil() as u64;
    free == 0 || largest >= wanted.min(free)
}

/// Whether after a plan a stretch of one segment can be what is wanted.
fn leads(view: &PoolView, plan: &Plan, below: f64) -> bool {
    if plan.moves.is_empty() {
        return false;
    }
    let after = view.after(plan);
    let (free, largest) = after.free_in_use();
    let wanted = (free as f64 * (1.0 - below.clamp(0.0, 1.0))).ceil() as u64;
    let used = |at: usize| !after.segments[at].is_wholly_free();
    free == 0
        || largest >= wanted
        || contiguous_in(&after, wanted.min(free), 1, used, true).reachable
}

fn contiguous(view: &PoolView, bytes: u64, align: u64, bold: bool) -> Plan {
    contiguous_in(view, bytes, align, |_| true, bold)
}

fn contiguous_in(
    view: &PoolView,
    bytes: u64,
    align: u64,
    of: impl Fn(usize) -> bool,
    bold: bool,
) -> Plan {
    let align = if align.is_power_of_two() { align } else { 1 };
    let segments = view.segments.iter().enumerate().filter(|(at, _)| of(*at));
    let mut parts = segments.flat_map(|(_, segment)| &segment.parts);
    if parts.any(|part| part.room(align) >= bytes) {
        return Plan::met();
    }
    let (holes, need) = (Holes::new(view, &of), Need { bytes, align });
    let slid = cheapest_slide(view, &of, need);
    let most = slid.as_ref().map_or(u64::MAX, |(cost, _)| *cost);
    // What can not be placed elsewhere leaves the stretch short: the next try asks for more.
    let (mut wanted, mut trials) = (bytes, TRIALS);
    for tries in 0..TRIES {
        match cheapest_placed(view, &holes, &of, need, Effort { wanted, most, trials }) {
            Ok(plan) => return plan,
            Err(Some(short)) => wanted = wanted.saturating_add(short.max(bytes >> 8) << tries),
            Err(None) => break,
        }
        if !bold && slid.is_some() {
            break;
        }
        trials = TRIALS_MORE;
    }
    match slid {
        Some((_, chain)) => Plan { chain: Some(chain), reachable: true, ..Plan::default() },
        None => Plan::default(),
    }
}

/// What has to come out.
#[derive(Clone, Copy)]
pub(super) struct Need {
    pub bytes: u64,
    pub align: u64,
}

impl Need {
    /// How many bytes a free range from `begin` to `end` is short of it.
    pub const fn short(self, begin: u64, end: u64) -> u64 {
        let begin = begin + (begin.wrapping_neg() & (self.align - 1));
        self.bytes.saturating_sub(end.saturating_sub(begin))
    }
}

/// The cheapest stretch that becomes a free range by sliding alone, with its cost.
fn cheapest_slide(
    view: &PoolView,
    of: &impl Fn(usize) -> bool,
    need: Need,
) -> Option<(u64, Chain)> {
    // Alignment may take some of what a stretch has.
    [need.bytes, need.bytes.saturating_add(need.align)].into_iter().find_map(|wanted| {
        let windows = cheapest(view, of, wanted, 0);
        windows.iter().find_map(|w| Some((w.cost, chain::slide(view, *w, need)?)))
    })
}

/// How far a search goes.
#[derive(Clone, Copy)]
struct Effort {
    /// Bytes that the stretches are to yield, if all goes well.
    wanted: u64,
    /// What they have to cost less than.
    most: u64,
    /// How many of them are tried.
    trials: usize,
}

/// The cheapest plan that places blocks of a stretch elsewhere; else how many bytes the best of
/// those that were tried is short of what is needed, or nothing where none would be cheaper.
fn cheapest_placed(
    view: &PoolView,
    holes: &Holes,
    of: &impl Fn(usize) -> bool,
    need: Need,
    Effort { wanted, most, trials }: Effort,
) -> Result<Plan, Option<u64>> {
    let thresholds = thresholds(holes).into_iter();
    let mut windows: Vec<Window> =
        thresholds.flat_map(|threshold| cheapest(view, of, wanted, threshold)).collect();
    windows.sort_unstable();
    windows.dedup_by_key(|w| (w.segment, w.first, w.last, w.threshold));
    let mut least_short = None;
    for window in windows.iter().take_while(|w| w.cost < most).take(trials) {
        match place(view, holes, *window, need) {
            Ok(plan) => return Ok(plan),
            Err(short) => least_short = Some(least_short.unwrap_or(u64::MAX).min(short)),
        }
    }
    Err(least_short)
}

/// Sizes up to which blocks are to be placed elsewhere: those of some holes.
fn thresholds(holes: &Holes) -> Vec<u64> {
    let mut sizes = Vec::new();
    let (mut rank, mut next) = (0_usize, 0_usize);
    for hole in holes.largest() {
        if rank == next {
            sizes.push(hole.bytes);
            next = (next * 2).max(1);
        }
        rank += 1;
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Places the small blocks of a stretch elsewhere, the largest first. Those that fit nowhere stay.
fn place(view: &PoolView, holes: &Holes, window: Window, need: Need) -> Result<Plan, u64> {
    let parts = &view.segments[window.segment].parts[window.first..=window.last];
    let is_small = |part: &&Part| gain(part, window.threshold) > 0 && part.is_movable();
    let mut small: Vec<&Part> = parts.iter().filter(is_small).collect();
    small.sort_by_key(|part| (std::cmp::Reverse(part.bytes), part.offset));
    let mut packing = holes.packing(holes.within(window.segment, window.first, window.last));
    let mut gained: u64 = parts.iter().map(Part::free).sum();
    let mut moves = Vec::with_capacity(small.len());
    for part in small {
        let What::Movable { owner, align } = part.what else { continue };
        let Some(spot) = packing.place(part.bytes, align) else { continue };
        let Hole { segment, part: at, .. } = holes.all[spot.hole];
        gained += part.bytes;
        moves.push(Move {
            owner,
            segment: window.segment,
            from: part.offset,
            bytes: part.bytes,
            to: To { segment, part: at, offset: spot.offset },
        });
    }
    let live = parts.iter().filter(|part| part.is_movable()).count();
    let more = live > moves.len();
    // Where blocks stay, the place of the free range is not known before they are slid.
    let (begin, end) = (parts[0].offset, parts[parts.len() - 1].end());
    let short = if more { need.bytes.saturating_sub(gained) } else { need.short(begin, end) };
    if short > 0 || moves.is_empty() {
        return Err(short);
    }
    Ok(Plan { moves, reachable: true, more, ..Plan::default() })
}
