//! The paged space of a pool: addresses at the device, and which pages back them.

use crate::device::SpaceId;
use crate::pages::{BlockId, Pages, PagesError, Plan, Reservation, Room, Zone};
use crate::point::{Points, StreamId};
use crate::request::{Layout, Tag};

use super::{Grabbed, Part, PartState, Spot, Touched};

/// A reserved space of the device and what is in it.
pub(crate) struct Paged {
    pub space: SpaceId,
    /// The device address of its first byte, where the device has addresses.
    pub address: Option<u64>,
    pub pages: Pages,
    pub(super) touched: Touched,
}

impl Paged {
    pub const fn new(space: SpaceId, address: Option<u64>, pages: Pages) -> Self {
        Self { space, address, pages, touched: Touched::Nobody }
    }

    /// Takes a hole that `stream` can use at once. `left` is what the budget still allows.
    #[inline]
    pub fn serve(
        &mut self,
        layout: Layout,
        stream: StreamId,
        now_ns: u64,
        left: u64,
    ) -> Option<Grabbed> {
        let room = self.pages.room(layout.bytes, left);
        let block = self.pages.serve(&request(layout, stream, false), now_ns, room)?;
        Some(self.grabbed(block, layout.bytes))
    }

    /// A block that was a hole until now.
    fn grabbed(&self, block: BlockId, bytes: u64) -> Grabbed {
        let points = self.pages.uses(block.slot()).clone();
        // A hole is as a whole behind its points.
        let pending = if points.is_empty() { 0 } else { bytes };
        Grabbed { spot: Spot::page(block.slot()), points, pending }
    }

    /// A hole behind other streams' work.
    pub fn find_behind(&self, layout: Layout, stream: StreamId, now_ns: u64) -> Option<Plan> {
        self.pages.find_behind(&request(layout, stream, true), now_ns)
    }

    /// A place backed by new or stolen pages; with `may_wait` also by pages behind other streams'
    /// work. At most `left` bytes may be made.
    ///
    /// # Errors
    /// As [`Pages::find`].
    pub fn find_backed(
        &self,
        layout: Layout,
        stream: StreamId,
        may_wait: bool,
        now_ns: u64,
        left: u64,
    ) -> Result<Plan, PagesError> {
        let room = self.pages.room(layout.bytes, left);
        self.pages.find(&request(layout, stream, may_wait), now_ns, room)
    }

    /// A place for more bytes right after a block.
    ///
    /// # Errors
    /// As [`Pages::find_after`].
    pub fn find_after(
        &self,
        slot: u32,
        more: u64,
        stream: StreamId,
        now_ns: u64,
        left: u64,
    ) -> Result<Plan, PagesError> {
        let align = crate::units::Align::ONE;
        let request = request(Layout { bytes: more, align }, stream, true);
        self.pages.find_after(slot, &request, now_ns, Room { before_stealing: left, at_most: left })
    }

    /// Takes a hole that was found under the same lock.
    ///
    /// # Errors
    /// As [`Pages::reserve`]; nothing has changed then.
    pub fn take(&mut self, plan: Plan) -> Result<Grabbed, PagesError> {
        let bytes = plan.bytes;
        let block = self.pages.take_hole(plan)?;
        Ok(self.grabbed(block, bytes))
    }

    /// Reserves a plan. Gives the change of pending bytes too: active bytes that it took over.
    ///
    /// # Errors
    /// As [`Pages::reserve`]; nothing has changed then.
    pub fn reserve(&mut self, plan: Plan) -> Result<(Reservation, i64), PagesError> {
        let before = self.pages.pending();
        let reservation = self.pages.reserve(plan)?;
        Ok((reservation, self.pages.pending() as i64 - before as i64))
    }

    /// The parts of a zone in order of address, offsets counted from the zone's first byte.
    pub fn parts(&self, zone: Zone) -> Vec<Part> {
        use crate::pages::State;
        let base = self.pages.bounds(zone).0;
        let part = |part: crate::pages::Part<'_>| Part {
            offset: part.at - base,
            bytes: part.bytes,
            owner: part.owner,
            state: match part.state {
                State::Hole => PartState::Unbacked,
                State::Free => PartState::Free,
                State::Live | State::Paused => PartState::Live,
                State::Mapping | State::Leaving => PartState::InFlight,
                State::Stale => PartState::Stale,
            },
            pending: if part.state == State::Free { part.points.clone() } else { Points::NONE },
        };
        self.pages.parts(zone).into_iter().map(part).collect()
    }

    /// Notes that `tag` writes there; tells whether another tag may have left data.
    pub fn touch(&mut self, tag: Tag) -> bool {
        self.touched.note(tag)
    }
}

fn request(layout: Layout, stream: StreamId, may_wait: bool) -> crate::pages::Request {
    crate::pages::Request { bytes: layout.bytes, align: layout.align, stream, may_wait }
}
