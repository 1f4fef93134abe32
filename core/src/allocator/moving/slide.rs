//! Slides: blocks of a stretch move one after the other, each into the gap that the one before
//! left, which may overlap its own old place.

use crate::compact::{Slide, Verdict};
use crate::device::{CopyOp, Place};
use crate::error::Error;
use crate::event::MoveKind;
use crate::id::Key;
use crate::point::{Points, StreamId, SyncPoint};
use crate::pool::Spot;

use super::super::Inner;
use super::super::state::{State, flag};
use super::compactor::Pass;
use super::flip::is_covered;
use super::reserve::{Item, Slides};
use super::state::Flight;
use super::submit::SLICE;

/// How often a piece is put back where it was, before its block is given up.
const PUT_BACK_TRIES: u32 = 8;

/// What of the slides was really copied.
#[derive(Default)]
struct Slid {
    /// The first so many.
    done: usize,
    point: Option<SyncPoint>,
    /// A block was left in pieces: the device failed between two of them and again when they
    /// were to be put back.
    torn: bool,
    /// A block was put back where it was: its next use has to wait for that.
    restored: bool,
    error: Option<Error>,
}

impl Inner {
    pub(super) fn submit_slides(
        &self,
        pass: &mut Pass,
        mut slides: Slides,
    ) -> Result<Option<SyncPoint>, Error> {
        let mut waits = Points::NONE;
        let ops = self.arm_slides(pass, &mut slides, &mut waits);
        waits.retain(|point| point.value < SyncPoint::NEVER);
        let slid = if ops.is_empty() {
            Slid::default()
        } else {
            match self.copy_stream(false) {
                Ok(stream) => self.copy_slides(pass, stream, &ops, &waits),
                Err(error) => Slid { error: Some(error), ..Slid::default() },
            }
        };
        self.flip_slides(pass, &slides, &waits, &slid);
        if let Some(point) = slid.point {
            pass.last = Some(point);
        }
        match slid.error {
            Some(error) => Err(error),
            None => Ok(slid.point),
        }
    }

    /// Gives up slides before anything of them was submitted.
    pub(super) fn cancel_slides(&self, pass: &mut Pass, mut slides: Slides) {
        for item in &mut slides.items {
            if let Item::Block { key, slide, .. } = item
                && let Some(slide) = slide.take()
            {
                self.lock().verdict(pass.id, *key, slide.bytes, Verdict::Cancelled);
            }
        }
        self.flip_slides(pass, &slides, &Points::NONE, &Slid::default());
    }

    /// Marks the blocks that slide; the first that can not is where the slides end. Gives their
    /// copies in order.
    fn arm_slides(&self, pass: &mut Pass, slides: &mut Slides, waits: &mut Points) -> Vec<CopyOp> {
        let mut ops = Vec::new();
        let mut is_over = false;
        for items in slides.items.chunks_mut(SLICE) {
            let mut state = self.lock();
            for item in items {
                match item {
                    Item::Gap { points, .. } => waits.merge(points),
                    Item::Block { slide: None, .. } => {}
                    Item::Block { key, spot, slide } => {
                        let op = self.arm_slide(
                            &mut state,
                            pass,
                            (*key, *spot),
                            slide.take().filter(|_| !is_over),
                            waits,
                        );
                        is_over |= op.is_none();
                        *slide = op.map(|(slide, _)| slide);
                        ops.extend(op.map(|(_, op)| op));
                    }
                }
            }
        }
        ops
    }

    fn arm_slide(
        &self,
        state: &mut State,
        pass: &Pass,
        (key, spot): (Key, Spot),
        slide: Option<Slide>,
        waits: &mut Points,
    ) -> Option<(Slide, CopyOp)> {
        let slide = slide?;
        let ranges = &state.pools[usize::from(pass.pool)];
        let block = state.blocks.get(key).ok().copied();
        let block = block.filter(|block| {
            block.spot == spot
                && block.pool == pass.pool
                && ranges.offset(spot) == slide.from
                && ranges.bytes(spot) == slide.bytes
                && state.why_not(block, false).is_none()
        });
        // A move that is to be verified needs its old place whole.
        let Some(block) = block.filter(|_| !state.moves.is_sampled(self.config.verify_moves))
        else {
            let is_gone = state.block(key).is_err();
            let verdict = if is_gone { Verdict::Dropped } else { Verdict::Cancelled };
            state.verdict(pass.id, key, slide.bytes, verdict);
            return None;
        };
        self.gather_waits(state, key, &block, waits);
        let space = state.pool(&block).place(spot).space;
        if let Ok(block) = state.blocks.get_mut(key) {
            block.flags |= flag::SLIDING;
        }
        let (from, to) = (Place { space, offset: slide.from }, Place { space, offset: slide.to });
        Some((slide, CopyOp { from, to, bytes: slide.bytes }))
    }

    /// Submits the slides in order: as many at once as do not reach into what others read.
    fn copy_slides(
        &self,
        pass: &mut Pass,
        stream: StreamId,
        ops: &[CopyOp],
        waits: &Points,
    ) -> Slid {
        let mut slid = Slid::default();
        if let Err(error) = self.device.wait_on_stream(stream, waits.as_slice()) {
            slid.error = Some(error.into());
            return slid;
        }
        while slid.done < ops.len() && slid.error.is_none() {
            let rest = &ops[slid.done..];
            let together = independent(rest);
            if together == 0 {
                self.copy_in_pieces(pass, stream, &rest[0], &mut slid);
            } else {
                match self.copy_all(pass, stream, &rest[..together]) {
                    Ok(point) => {
                        slid.point = Some(point);
                        slid.done += together;
                    }
                    Err(error) => slid.error = Some(error),
                }
            }
        }
        slid
    }

    /// Copies a block over its own old place, in pieces of the distance, each its own submission.
    fn copy_in_pieces(&self, pass: &mut Pass, stream: StreamId, op: &CopyOp, slid: &mut Slid) {
        let pieces = pieces(op);
        for (at, piece) in pieces.iter().enumerate() {
            match self.copy_all(pass, stream, std::slice::from_ref(piece)) {
                Ok(point) => slid.point = Some(point),
                Err(error) => {
                    slid.error = Some(error);
                    slid.restored = at > 0;
                    // Back to where it was: the pieces copied so far have overwritten its front.
                    let back = pieces[..at].iter().rev().map(|piece| CopyOp {
                        from: piece.to,
                        to: piece.from,
                        bytes: piece.bytes,
                    });
                    for piece in back {
                        match self.copy_surely(pass, stream, &piece) {
                            Some(point) => slid.point = Some(point),
                            None => slid.torn = true,
                        }
                    }
                    return;
                }
            }
        }
        slid.done += 1;
    }

    /// Copies a piece without which a block is lost: a device that fails now and then is asked
    /// again.
    fn copy_surely(&self, pass: &mut Pass, stream: StreamId, op: &CopyOp) -> Option<SyncPoint> {
        (0..PUT_BACK_TRIES).find_map(|_| self.copy_all(pass, stream, &[*op]).ok())
    }

    fn flip_slides(&self, pass: &mut Pass, slides: &Slides, waits: &Points, slid: &Slid) {
        let mut walk = Walk { pool: pass.pool, up: slides.up, ..Walk::default() };
        let mut left = slid.done;
        let (mut torn, mut restored) = (slid.torn, slid.restored);
        let mut items = slides.items.iter().peekable();
        while items.peek().is_some() {
            let mut flights = Vec::with_capacity(SLICE);
            let mut state = self.lock();
            for item in items.by_ref().take(SLICE) {
                match item {
                    Item::Gap { spot, points } => walk.meet(&mut state, *spot, points),
                    Item::Block { key, spot, slide: Some(slide) } if left > 0 => {
                        left -= 1;
                        let Some(point) = slid.point else { continue };
                        walk.slide(&mut state, (*key, *spot), slide.to, waits, point);
                        flights.extend(self.note_slid(&mut state, pass, *key, slide.bytes, point));
                    }
                    Item::Block { key, slide, .. } => {
                        walk.end(&mut state, slid.point);
                        if let Some(slide) = slide {
                            let verdict = if torn { Verdict::Corrupt } else { Verdict::Cancelled };
                            state.moves.stopped |= torn;
                            torn = false;
                            if std::mem::take(&mut restored)
                                && let Some(point) = slid.point
                            {
                                state.add_waits(*key, &Points::one(point));
                            }
                            state.verdict(pass.id, *key, slide.bytes, verdict);
                            let view = state.calm(*key, slid.point);
                            pass.unused_views.extend(view);
                        }
                    }
                }
            }
            state.moves.take_off(flights);
            self.unlock_and_tell(state);
        }
        walk.end(&mut self.lock(), slid.point);
        self.destroy_unused(pass);
    }

    fn note_slid(
        &self,
        state: &mut State,
        pass: &mut Pass,
        key: Key,
        bytes: u64,
        point: SyncPoint,
    ) -> Option<Flight> {
        let new = state.blocks.get(key).ok()?.spot;
        state.note_moved(pass.pool, key, new, bytes, MoveKind::Slide);
        pass.report.moves += 1;
        pass.report.bytes += bytes;
        let view = state.calm(key, None);
        pass.unused_views.extend(view);
        Some(Flight { pass: pass.id, key, bytes, point, check: None })
    }
}

/// How many copies at the start of `ops` can be one submission: none of them overlaps itself,
/// none writes what another reads.
fn independent(ops: &[CopyOp]) -> usize {
    let Some(first) = ops.first() else { return 0 };
    let down = first.to.offset < first.from.offset;
    let fits = |op: &&CopyOp| {
        if down {
            op.to.offset + op.bytes <= first.from.offset
        } else {
            op.to.offset >= first.from.offset + first.bytes
        }
    };
    ops.iter().take_while(fits).count()
}

/// The pieces in which a block is copied over its own old place, in the order that loses nothing.
fn pieces(op: &CopyOp) -> Vec<CopyOp> {
    let distance = op.from.offset.abs_diff(op.to.offset).max(1);
    let at = |begin: u64| CopyOp {
        from: Place { offset: op.from.offset + begin, ..op.from },
        to: Place { offset: op.to.offset + begin, ..op.to },
        bytes: distance.min(op.bytes - begin),
    };
    let mut pieces = Vec::new();
    if op.to.offset < op.from.offset {
        let mut begin = 0;
        while begin < op.bytes {
            pieces.push(at(begin));
            begin += distance;
        }
        return pieces;
    }
    let mut end = op.bytes;
    while end > 0 {
        let begin = end.saturating_sub(distance);
        pieces.push(CopyOp { bytes: end - begin, ..at(begin) });
        end = begin;
    }
    pieces
}

/// The gap that wanders through a stretch while blocks slide past it.
#[derive(Default)]
struct Walk {
    pool: u16,
    up: bool,
    gap: Option<Spot>,
    /// What has to be reached before the gap can be used.
    points: Points,
}

impl Walk {
    /// The gap meets a further reserved range.
    fn meet(&mut self, state: &mut State, spot: Spot, points: &Points) {
        let ranges = &mut state.pools[usize::from(self.pool)];
        let joined = self.gap.and_then(|gap| {
            let joined = ranges.join_gap(gap, spot, self.up)?;
            Some(joined)
        });
        if joined.is_none() {
            self.end(state, None);
        }
        self.gap = Some(joined.unwrap_or(spot));
        self.points.merge(points);
    }

    /// A block slides past the gap, to begin at `to`.
    fn slide(
        &mut self,
        state: &mut State,
        (key, spot): (Key, Spot),
        to: u64,
        waited: &Points,
        point: SyncPoint,
    ) {
        let Some(gap) = self.gap else { return };
        let ranges = &mut state.pools[usize::from(self.pool)];
        let bytes = ranges.bytes(spot);
        let begin = ranges.offset(gap);
        let pad = if self.up { begin + ranges.bytes(gap) - (to + bytes) } else { to - begin };
        let (gap, rest) = ranges.cut_gap(gap, pad, self.up);
        let Some((block, after)) = ranges.slide(gap, spot, self.up) else { return };
        ranges.set_owner(block, key.index());
        let mut uses = ranges.take_uses(block);
        uses.retain(|use_| !is_covered(*use_, waited));
        uses.insert(point);
        ranges.add_uses(block, &uses);
        self.points.merge(&uses);
        state.set_place(key, block, point);
        if let Some(rest) = rest {
            state.let_go(self.pool, rest, self.points.clone());
        }
        self.gap = Some(after);
    }

    /// The gap stays where it is: it is free again.
    fn end(&mut self, state: &mut State, point: Option<SyncPoint>) {
        if let Some(gap) = self.gap.take() {
            let mut points = std::mem::take(&mut self.points);
            if let Some(point) = point {
                points.insert(point);
            }
            state.let_go(self.pool, gap, points);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::SpaceId;

    fn op(from: u64, to: u64, bytes: u64) -> CopyOp {
        let at = |offset| Place { space: SpaceId(1), offset };
        CopyOp { from: at(from), to: at(to), bytes }
    }

    #[test]
    fn pieces_move_a_block_over_itself_in_either_direction() {
        for (from, to, bytes) in [(10, 7, 20), (7, 10, 20), (100, 60, 40), (5, 4, 9), (0, 8, 9)] {
            let mut memory: Vec<u64> = (0..200).collect();
            for piece in pieces(&op(from, to, bytes)) {
                let range = piece.from.offset as usize..(piece.from.offset + piece.bytes) as usize;
                let copy = memory[range].to_vec();
                assert!(piece.from.offset.abs_diff(piece.to.offset) >= piece.bytes, "{piece:?}");
                let at = piece.to.offset as usize;
                memory[at..at + copy.len()].copy_from_slice(&copy);
            }
            let moved: Vec<u64> = (from..from + bytes).collect();
            assert_eq!(memory[to as usize..(to + bytes) as usize], moved, "{from} to {to}");
        }
    }

    #[test]
    fn only_slides_that_do_not_reach_into_each_other_go_together() {
        assert_eq!(independent(&[op(100, 0, 40), op(150, 40, 60), op(220, 100, 50)]), 2);
        assert_eq!(independent(&[op(10, 7, 20)]), 0);
        assert_eq!(independent(&[op(0, 100, 40), op(-40_i64 as u64, 60, 40)]), 2);
    }
}
