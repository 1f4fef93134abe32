//! Blocks that keep a page in use together: none of them frees it alone. All go to the end of the
//! zone, one right behind the other, so that what was free between them comes together there.

use super::anew::{Anew, Candidate, How, Prices, told};
use super::ranges::NONE;
use super::{BlockId, Pages, State, Zone};
use crate::units::Align;

/// Pages tried, those with the most free bytes first.
const PAGES: usize = 48;
/// Blocks of one page at most.
const BLOCKS: usize = 4;

/// The moves of all blocks of a page, the space as it is afterwards, and what that gains.
pub(super) struct Together {
    pub moves: Vec<Anew>,
    pub after: Pages,
    pub gain: u64,
}

impl Pages {
    /// Of the pages with free bytes, the one whose blocks cost the least for each byte that they
    /// gain by leaving it.
    pub(super) fn best_together(
        &self,
        now: u64,
        prices: &Prices,
        may_remap: bool,
        movable: impl Fn(u32, u64) -> Option<Align>,
    ) -> Option<Together> {
        let mut best: Option<(f64, Together)> = None;
        for (at, end) in self.partly_free() {
            let Some(blocks) = self.blocks_over(at, end, &movable) else { continue };
            let found = self.try_together(&blocks, now, prices, may_remap);
            let Some((ns, together)) = found else { continue };
            let cost = ns / together.gain as f64;
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, together));
            }
        }
        best.map(|(_, together)| together)
    }

    /// Partly used pages: first byte and end.
    fn partly_free(&self) -> Vec<(u64, u64)> {
        let base = self.ranges.span(Zone::Large).base;
        let pages = self.store.pages.iter().map(|(_, page)| page).filter(|page| page.at >= base);
        let partly = pages.filter(|page| page.live > 0 && page.live < page.backing.bytes);
        let mut found: Vec<_> = partly
            .filter(|page| !page.in_flight && page.unmapping == 0)
            .map(|page| (std::cmp::Reverse(page.backing.bytes - page.live), page.at, page))
            .map(|(free, at, page)| (free, at, at + page.backing.bytes))
            .collect();
        found.sort_unstable();
        found.truncate(PAGES);
        found.into_iter().map(|(_, at, end)| (at, end)).collect()
    }

    /// The blocks that reach into a page, smallest first; `None` where one may not move, or where
    /// they are many.
    fn blocks_over(
        &self,
        at: u64,
        end: u64,
        movable: &impl Fn(u32, u64) -> Option<Align>,
    ) -> Option<Vec<Candidate>> {
        let over = |range: &super::ranges::Range| range.start < end && range.end() > at;
        let mut found = Vec::new();
        for (key, range) in self.long_ranges().filter(|(_, range)| over(range)) {
            match range.state {
                State::Free => continue,
                State::Live if range.owner != NONE && found.len() < BLOCKS => {}
                _ => return None,
            }
            let (owner, at, bytes) = (range.owner, range.start, range.len);
            let align = movable(owner, at)?;
            found.push(Candidate { block: BlockId(key), owner, at, bytes, align, freed: 0 });
        }
        found.sort_by_key(|it| (it.bytes, it.at));
        Some(found)
    }

    fn try_together(
        &self,
        blocks: &[Candidate],
        now: u64,
        prices: &Prices,
        may_remap: bool,
    ) -> Option<(f64, Together)> {
        let mut after = self.clone();
        let (mut moves, mut ns) = (Vec::with_capacity(blocks.len()), 0.0);
        for it in blocks {
            let way = after
                .to_end(it, now, prices)
                .or_else(|| may_remap.then(|| after.end_remap(it, now, prices)).flatten())?;
            ns += way.ns;
            moves.push(told(it, &way, None));
            after.try_anew(it.block, it.owner, way.how, now)?;
        }
        let gain = after.potential().saturating_sub(self.potential());
        if let Some(last) = moves.last_mut() {
            last.gain = gain;
        }
        (gain > 0).then_some((ns, Together { moves, after, gain }))
    }

    /// Bytes that lie together: in wholly free pages, and behind the last block.
    fn potential(&self) -> u64 {
        self.store.free_bytes + self.rest_at_end()
    }

    fn to_end(&self, it: &Candidate, now: u64, prices: &Prices) -> Option<super::anew::Way> {
        let plan = self.append(it.bytes, it.align, now)?.plan;
        let ns = prices.ns(it.bytes, super::anew::stolen(&plan));
        Some(super::anew::Way { ns, gain: 0, how: How::Append(plan) })
    }

    fn end_remap(&self, it: &Candidate, now: u64, prices: &Prices) -> Option<super::anew::Way> {
        let remap = self.find_remap(it.block, true, now).filter(|_| it.align <= self.granule)?;
        let own = remap.maps().map(|(backing, _)| backing.bytes);
        let pages = own.chain(super::anew::stolen(remap.plan()));
        let ns = prices.ns(remap.head + remap.tail, pages);
        Some(super::anew::Way { ns, gain: 0, how: How::Remap(Box::new(remap), true) })
    }
}
