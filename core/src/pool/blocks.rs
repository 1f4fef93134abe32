//! What a pool knows of a block, wherever its range is.

use crate::device::{Place, SpaceId};
use crate::point::{Points, SyncPoint};
use crate::range::State;
use crate::request::Tag;

use super::{Pool, Spot, SpotKind};

static NO_POINTS: Points = Points::NONE;

impl Pool {
    /// Bytes of a block.
    #[inline]
    pub fn bytes(&self, spot: Spot) -> u64 {
        match (spot.kind(), &self.paged) {
            (SpotKind::Slab(node), _) => self.ranges.bytes(node),
            (SpotKind::Page(slot), Some(paged)) => paged.pages.extent_of(slot).1,
            (SpotKind::Page(_), None) => 0,
        }
    }

    /// What those who used a block, or its range before it, may still be doing.
    pub fn uses(&self, spot: Spot) -> &Points {
        match (spot.kind(), &self.paged) {
            (SpotKind::Slab(node), _) => self.ranges.points(node),
            (SpotKind::Page(slot), Some(paged)) => paged.pages.uses(slot),
            (SpotKind::Page(_), None) => &NO_POINTS,
        }
    }

    fn uses_mut(&mut self, spot: Spot) -> Option<&mut Points> {
        match (spot.kind(), &mut self.paged) {
            (SpotKind::Slab(node), _) => Some(self.ranges.points_mut(node)),
            (SpotKind::Page(slot), Some(paged)) => paged.pages.uses_mut(slot),
            (SpotKind::Page(_), None) => None,
        }
    }

    /// Records uses of a block.
    pub fn add_uses(&mut self, spot: Spot, points: &Points) {
        if let Some(uses) = self.uses_mut(spot) {
            uses.merge(points);
        }
    }

    /// Records one use of a block.
    pub fn add_use(&mut self, spot: Spot, point: SyncPoint) {
        if let Some(uses) = self.uses_mut(spot) {
            uses.insert(point);
        }
    }

    /// Takes the recorded uses away: they are handed to [`free`](Self::free) with others.
    pub fn take_uses(&mut self, spot: Spot) -> Points {
        self.uses_mut(spot).map(std::mem::take).unwrap_or_default()
    }

    /// Where a block is, its bytes and its recorded uses.
    #[inline(always)]
    pub fn extent(&mut self, spot: Spot) -> Option<(Place, u64, &mut Points)> {
        match (spot.kind(), &mut self.paged) {
            (SpotKind::Slab(node), _) => {
                let segments = &self.segments;
                let (segment, offset, bytes, uses) = self.ranges.extent(node);
                let segment = segments.get(segment.index() as usize)?.as_ref()?;
                Some((Place { space: segment.plain.space, offset }, bytes, uses))
            }
            (SpotKind::Page(slot), Some(paged)) => {
                let (offset, bytes, uses) = paged.pages.live_extent(slot)?;
                Some((Place { space: paged.space, offset }, bytes, uses))
            }
            (SpotKind::Page(_), None) => None,
        }
    }

    /// Names the block that a range belongs to, by its slot, and tells where it is.
    #[inline]
    pub fn own(&mut self, spot: Spot, slot: u32) -> Place {
        if let (SpotKind::Page(at), Some(paged)) = (spot.kind(), &mut self.paged) {
            let offset = paged.pages.set_owner(at, slot);
            return Place { space: paged.space, offset };
        }
        self.set_owner(spot, slot);
        self.place(spot)
    }

    /// Names the block that a range belongs to, by its slot.
    #[inline]
    pub fn set_owner(&mut self, spot: Spot, slot: u32) {
        match (spot.kind(), &mut self.paged) {
            (SpotKind::Slab(node), _) => self.ranges.set_owner(node, slot),
            (SpotKind::Page(at), Some(paged)) => {
                paged.pages.set_owner(at, slot);
            }
            (SpotKind::Page(_), None) => {}
        }
    }

    /// Whether a range is live and belongs to the block in `slot`.
    pub fn is_owned_by(&self, spot: Spot, slot: u32) -> bool {
        match (spot.kind(), &self.paged) {
            (SpotKind::Slab(node), _) => {
                self.ranges.state(node) == State::Live && self.ranges.owner(node) == slot
            }
            (SpotKind::Page(at), Some(paged)) => paged.pages.is_owned_by(at, slot),
            (SpotKind::Page(_), None) => false,
        }
    }

    /// The owners of the nearest live ranges before and after a block, as far as a few ranges
    /// between them.
    pub fn beside(&self, spot: Spot) -> [Option<u32>; 2] {
        const FAR: usize = 8;
        match (spot.kind(), &self.paged) {
            (SpotKind::Slab(node), _) => {
                let ranges = &self.ranges;
                let owner = |node| (ranges.state(node) == State::Live).then(|| ranges.owner(node));
                let below = std::iter::successors(ranges.prev(node), |at| ranges.prev(*at));
                let above = std::iter::successors(ranges.next(node), |at| ranges.next(*at));
                [below.take(FAR).find_map(owner), above.take(FAR).find_map(owner)]
            }
            (SpotKind::Page(slot), Some(paged)) => paged.pages.owners_beside(slot, FAR),
            (SpotKind::Page(_), None) => [None; 2],
        }
    }

    /// What growing a block in place would have to wait for; `None` when there is no room. Blocks
    /// in slabs only.
    pub fn growth(&self, spot: Spot, bytes: u64) -> Option<Points> {
        let SpotKind::Slab(node) = spot.kind() else { return None };
        self.ranges.growth(node, bytes)
    }

    /// Grows a block in place as [`growth`](Self::growth) said it can; the points stay recorded
    /// on it. Gives the bytes taken over that were pending.
    pub fn grow_in_place(&mut self, spot: Spot, bytes: u64) -> Option<u64> {
        let SpotKind::Slab(node) = spot.kind() else { return None };
        let before = self.pending();
        let points = self.ranges.grow_in_place(node, bytes)?;
        self.ranges.points_mut(node).merge(&points);
        Some(before - self.pending())
    }

    /// First byte of a block in its segment.
    #[inline]
    pub fn offset(&self, spot: Spot) -> u64 {
        match (spot.kind(), &self.paged) {
            (SpotKind::Slab(node), _) => self.ranges.offset(node),
            (SpotKind::Page(slot), Some(paged)) => paged.pages.extent_of(slot).0,
            (SpotKind::Page(_), None) => 0,
        }
    }

    /// Where a block is.
    #[inline]
    pub fn place(&self, spot: Spot) -> Place {
        let space = match (spot.kind(), &self.paged) {
            (SpotKind::Slab(node), _) => {
                self.segment(self.ranges.segment(node)).map(|segment| segment.plain.space)
            }
            (SpotKind::Page(_), paged) => paged.as_ref().map(|paged| paged.space),
        };
        Place { space: space.unwrap_or(SpaceId(u64::MAX)), offset: self.offset(spot) }
    }

    /// The device address of a block, where the device has addresses.
    pub fn address(&self, spot: Spot) -> Option<u64> {
        let base = match spot.kind() {
            SpotKind::Slab(node) => self.segment(self.ranges.segment(node))?.plain.address?,
            SpotKind::Page(_) => self.paged.as_ref()?.address?,
        };
        base.checked_add(self.offset(spot))
    }

    /// Notes that `tag` writes to the block's segment; tells whether another tag may have left
    /// data there.
    pub fn touch(&mut self, spot: Spot, tag: Tag) -> bool {
        match (spot.kind(), &mut self.paged) {
            (SpotKind::Slab(node), _) => {
                let id = self.ranges.segment(node);
                self.segment_mut(id).is_some_and(|segment| segment.touched.note(tag))
            }
            (SpotKind::Page(_), Some(paged)) => paged.touch(tag),
            (SpotKind::Page(_), None) => false,
        }
    }
}
