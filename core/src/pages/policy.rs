//! The knobs, and the two rules that follow from them: how large to make a page, and when
//! stealing has become too dear.

use super::Zone;

/// How a space of pages places, creates and steals. The defaults need no tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Blocks from this size on live in a zone of their own, on larger pages. 0: all of them.
    pub large: u64,
    /// Largest page made for blocks below `large`. 0: one granule.
    pub small_page: u64,
    /// Largest page made for blocks of at least `large`. 0: one granule.
    pub large_page: u64,
    /// Pages of the large zone get at most this fraction of the gap they fill while stealing is
    /// cheap, so that block ends, where memory is stranded, lie on small pages. 0: no fraction,
    /// every page is as large as `large_page` allows.
    pub grading: u64,
    /// Creation may lift reserved bytes this many thousandths above the peak of active bytes
    /// before pages are stolen. 0: the peak of active bytes is the line.
    pub slack_permille: u64,
    /// Share of the elapsed time, in thousandths, that stealing may take before new pages become
    /// larger (twice as large for each doubling). 0: pages never grow with the time spent.
    pub steal_permille: u64,
    /// Time for stealing, in ticks (nanoseconds in the default), that is not counted against that
    /// share. 0: none is free.
    pub steal_allowance: u64,
    /// What one more gap to fill weighs in the choice of a place, in bytes. 0: only bytes count.
    pub gap_bytes: u64,
    /// Stale mappings kept at most; past it nothing more is stolen. 0: stealing is off.
    pub stale_max: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            large: 32 << 20,
            small_page: 2 << 20,
            large_page: 16 << 20,
            grading: 8,
            slack_permille: 0,
            steal_permille: 10,
            steal_allowance: 30_000_000,
            gap_bytes: 55 << 20,
            stale_max: 1_024,
        }
    }
}

/// What stealing has cost so far, on the caller's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heat {
    /// When the first plan was reserved.
    pub since: Option<u64>,
    /// Ticks spent on plans that stole or released.
    pub spent: u64,
}

impl Policy {
    /// The zone that a block of `bytes` belongs to.
    pub(super) const fn zone(&self, bytes: u64) -> Zone {
        if bytes < self.large { Zone::Small } else { Zone::Large }
    }

    /// Bytes that may be created above `active` ones before pages are stolen.
    pub(super) fn slack(&self, active: u64) -> u64 {
        if self.slack_permille == 0 {
            return 0;
        }
        let slack = u128::from(active) * u128::from(self.slack_permille) / 1_000;
        u64::try_from(slack).unwrap_or(u64::MAX)
    }

    /// The divisor of gaps: `grading`, halved for each doubling of the share over its limit.
    fn divisor(&self, heat: Heat, now: u64) -> u64 {
        let over = heat.spent.saturating_sub(self.steal_allowance);
        if self.steal_permille == 0 || over == 0 {
            return self.grading;
        }
        let elapsed = now.saturating_sub(heat.since.unwrap_or(now));
        let allowed = (u128::from(elapsed) * u128::from(self.steal_permille) / 1_000).max(1);
        let times = u128::from(over) / allowed;
        let halvings = (u128::BITS - times.leading_zeros()).min(3);
        (self.grading >> halvings).max(1)
    }

    /// Bytes of the next page for a gap with `left` bytes to fill: a multiple of `granule`, not
    /// above `left`.
    pub(super) fn piece(&self, zone: Zone, left: u64, granule: u64, heat: Heat, now: u64) -> u64 {
        let most = match zone {
            Zone::Small => self.small_page,
            Zone::Large if self.grading == 0 => self.large_page,
            Zone::Large => (left / self.divisor(heat, now)).min(self.large_page),
        };
        let most = most.max(granule);
        // Pieces of one size, rather than full ones and a rest.
        let pieces = left.div_ceil(most);
        left.div_ceil(pieces).div_ceil(granule) * granule
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_large_gap_is_filled_with_pages_that_become_smaller_towards_its_end() {
        let policy = Policy::default();
        let mut left = 128 * MIB;
        let mut pieces = Vec::new();
        while left > 0 {
            let piece = policy.piece(Zone::Large, left, 2 * MIB, Heat::default(), 0);
            pieces.push(piece / MIB);
            left -= piece;
        }
        assert!(pieces.is_sorted_by(|a, b| a >= b), "{pieces:?}");
        assert_eq!((pieces.first(), pieces.last()), (Some(&16), Some(&2)));
    }

    #[test]
    fn pages_grow_when_stealing_takes_more_than_its_share() {
        let policy = Policy::default();
        let piece = |spent| {
            let heat = Heat { since: Some(0), spent };
            policy.piece(Zone::Large, 64 * MIB, 2 * MIB, heat, 1_000_000_000) / MIB
        };
        assert_eq!(piece(0), 8);
        assert_eq!(piece(39_000_000), 8);
        assert_eq!(piece(41_000_000), 16);
        assert!(piece(900_000_000) <= 16);
    }
}
