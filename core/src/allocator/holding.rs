//! Telling whether a block can be moved, and what holds it in place where it can not: with its
//! making, and when that changes; and what a pass is to reach and may spend.

use crate::compact::{Goal, Limits, Mode, Why};
use crate::event::{Event, EventKind, GoalKind, RecorderMode};
use crate::id::Key;
use crate::request::Request;

use super::state::{Block, State, flag};

/// What events say of a block that nothing holds.
const NOTHING: u8 = 1;

/// What holds a new block, as events tell it: the request says so, or the graph it is for.
// In the order of [`State::held_by`].
#[inline(always)]
pub(super) const fn code_of_new(request: &Request<'_>, is_graphs: bool) -> u8 {
    if is_graphs {
        NOTHING + Why::Captured as u8
    } else if request.exportable {
        NOTHING + Why::Exported as u8
    } else if !request.movable || request.dedicated {
        NOTHING + Why::Asked as u8
    } else if request.raw_handle {
        NOTHING + Why::RawHandle as u8
    } else {
        NOTHING
    }
}

/// Whether a block could not be moved without a guard either.
const fn is_fixed(block: &Block) -> bool {
    !block.has(flag::MOVABLE) || block.has(flag::RAW)
}

impl State {
    /// What holds a block in place, what lasts longest first. A copy or a slide that is under way
    /// is soon over and does not count.
    pub(super) fn held_by(&self, block: &Block) -> Option<Why> {
        let pool = self.pool(block);
        let is_captured = !pool.is_movable() || block.has(flag::CAPTURED);
        if block.has(flag::FREE_LATER) || is_captured || pool.key.exportable {
            // Guards aside, in the order of `why_not`.
            let flags = block.flags & !(flag::MAPPED | flag::MOVING | flag::SLIDING);
            return self.why_not(&Block { flags, holds: 0, ..*block }, false);
        }
        if !block.has(flag::MOVABLE) {
            Some(Why::Asked)
        } else if block.has(flag::RAW) {
            Some(Why::RawHandle)
        } else {
            let flags = block.flags & !(flag::MOVING | flag::SLIDING);
            self.why_not(&Block { flags, ..*block }, false)
        }
    }

    /// Tells what holds a block in place now.
    pub(super) fn tell_hold(&mut self, key: Key) {
        let Ok(block) = self.blocks.get(key) else { return };
        let number = self.held_by(block).map_or(0, |why| why as u64);
        let (tag, stream) = (block.tag.0, block.stream.0);
        let class = self.pool(block).key.class.0;
        let event = Event::new(EventKind::Hold).handle(key.to_bits()).a(number);
        self.event(event.of(class, tag).on(stream, 0));
    }

    /// Tells that a guard holds a block, unless it could not be moved without that either.
    pub(super) fn tell_guard(&mut self, key: Key) {
        if self.blocks.get(key).is_ok_and(|block| !is_fixed(block)) {
            self.guarded.insert(key);
            self.tell_hold(key);
        }
    }

    /// Tells that an open submission holds a block that nothing held, to whoever takes all events:
    /// in a flight recorder they would take the place of what they are about.
    pub(super) fn tell_open(&mut self, key: Key) {
        let is_first = |block: &Block| block.holds == 1 && !is_fixed(block);
        if self.is_streaming() && self.blocks.get(key).is_ok_and(is_first) {
            self.tell_hold(key);
        }
    }

    /// Tells that the last hold of a block has ended, if it was told of one; `is_submission`: of
    /// one that [`tell_open`](Self::tell_open) tells of.
    #[inline]
    pub(super) fn tell_let_go(&mut self, key: Key, is_submission: bool) {
        let was_guarded = !self.guarded.is_empty() && self.guarded.remove(&key);
        let was_told = was_guarded || is_submission && self.is_streaming();
        if was_told && self.block(key).is_ok_and(|block| was_guarded || !is_fixed(block)) {
            self.tell_hold(key);
        }
    }

    /// A submission that was told of has ended before the block's last hold, which may be that of a
    /// call and would not be told of by itself.
    pub(super) fn tell_at_last(&mut self, key: Key) {
        if self.is_streaming() && self.blocks.get(key).is_ok_and(|block| !is_fixed(block)) {
            self.guarded.insert(key);
        }
    }

    const fn is_streaming(&self) -> bool {
        matches!(self.ring.mode(), RecorderMode::Stream { .. })
    }

    /// Tells what a pass that begins is to reach and may spend.
    pub(super) fn tell_asked(&mut self, pass: u32, goal: Goal, limits: &Limits) {
        let pass = u64::from(pass);
        let (kind, number) = match goal {
            Goal::Contiguous { bytes, .. } => (GoalKind::Contiguous, bytes),
            Goal::Release { bytes } => (GoalKind::Release, bytes),
            Goal::Fragmentation { below } => {
                (GoalKind::Fragmentation, (below.clamp(0.0, 1.0) * 1e6).round() as u64)
            }
        };
        let mode = if limits.mode == Mode::Background { GoalKind::BACKGROUND } else { 0 };
        let event = Event::new(EventKind::PassGoal).a(pass).b(number);
        self.event(event.c(kind as u64 | mode));
        let event = Event::new(EventKind::PassLimits).a(pass).handle(limits.ticks);
        self.event(event.b(limits.bytes).c(limits.moves));
    }
}
