//! What has been reached: free ranges behind it are ready for everyone.

use super::ranges::{NONE, State};
use super::{Pages, Points, SyncPoint};

impl Pages {
    /// Drops the points that have been reached.
    pub(super) fn prune(&self, points: &mut Points) {
        points.retain(|point| {
            self.reached.get(&{ point.stream }).is_none_or(|&value| value < point.value)
        });
    }

    /// Says that `point` has been reached: what was behind it alone is free for everyone.
    pub fn settle(&mut self, point: SyncPoint) {
        let mut all = u32::MAX;
        self.settle_some(point, &mut all);
    }

    /// A part of [`settle`](Self::settle): at most `left` ranges, which it counts down, those
    /// behind the earliest points first. The point counts as reached once all are done.
    pub(super) fn settle_some(&mut self, point: SyncPoint, left: &mut u32) {
        let SyncPoint { stream, value } = point;
        if self.reached.get(&stream).is_some_and(|&known| known >= value) {
            return;
        }
        self.version += 1;
        let mut known = value;
        while let Some(&(_, next, index)) =
            self.ranges.pending.range((stream, 0, 0)..=(stream, value, NONE)).next()
        {
            if *left == 0 {
                known = next.saturating_sub(1);
                break;
            }
            *left -= 1;
            let Some(range) = self.ranges.at(index) else { break };
            let mut points = range.points.clone();
            self.prune(&mut points);
            points.retain(|it| it.stream != stream || it.value > value);
            self.ranges.set(index, State::Free, points);
        }
        let before = self.reached.entry(stream).or_insert(0);
        *before = known.max(*before);
    }
}
