//! Submitting: blocks are armed, their copies go to the device, and their addresses flip.

use crate::compact::{Mode, Verdict};
use crate::device::{CopyOp, Place, StreamSpec};
use crate::error::Error;
use crate::id::Key;
use crate::point::{Points, StreamId, SyncPoint};

use super::super::Inner;
use super::super::state::{Block, State, flag};
use super::compactor::Pass;
use super::offer::Answer;
use super::reserve::{Apart, Batch};

/// Blocks armed, and blocks flipped, while the lock is held.
pub(super) const SLICE: usize = 16;
/// Bytes that a pass in the background submits at once; at least one block.
const BACKGROUND_BYTES: u64 = 8 << 20;

/// A block that is being copied: it can not be freed until its address has flipped, and if it is
/// resolved in that time the move is given up.
#[derive(Debug)]
pub(super) struct Armed {
    pub it: Apart,
    pub from: Place,
    pub to: Place,
    /// Whether its checksums are compared.
    pub check: bool,
}

impl Armed {
    /// The copies that it takes: one, or those of its ends.
    pub fn ops(&self) -> impl Iterator<Item = CopyOp> {
        let bytes = self.it.bytes;
        let whole = CopyOp { from: self.from, to: self.to, bytes };
        let ends = self.it.ends.map(|ends| ends.ops(self.from, self.to, bytes));
        let whole = ends.is_none().then_some(whole);
        whole.into_iter().chain(ends.into_iter().flatten())
    }
}

impl Inner {
    /// Submits what of the reserved moves is due: all of them, or a few in the background. Gives
    /// the point of the last copy.
    pub(super) fn submit_due(&self, pass: &mut Pass) -> Result<Option<SyncPoint>, Error> {
        let Some(mut batch) = pass.batch.take() else { return Ok(None) };
        let start = self.device.now_ns();
        let rest = match pass.limits.mode {
            Mode::Full => Vec::new(),
            Mode::Background => batch.apart.split_off(due(&batch.apart)),
        };
        if !rest.is_empty() {
            pass.batch = Some(Batch { apart: rest, chain: batch.chain.take() });
        }
        if pass.limits.mode == Mode::Background {
            let pause = batch.bytes().saturating_mul(1_000_000_000);
            pass.next_ns = start + pause.checked_div(self.config.background_rate).unwrap_or(0);
        }
        let outcome = self.submit_batch(pass, batch);
        pass.report.submit_ns += self.device.now_ns().saturating_sub(start);
        outcome
    }

    fn submit_batch(&self, pass: &mut Pass, batch: Batch) -> Result<Option<SyncPoint>, Error> {
        self.destroy_offered(&batch.apart);
        let (agreed, ignored): (Vec<_>, Vec<_>) =
            batch.apart.into_iter().partition(|it| !it.raw || it.answer == Answer::Copy);
        self.cancel(pass, ignored);
        let mut point = self.submit_apart(pass, agreed)?;
        if let Some(slides) = batch.chain {
            point = self.submit_slides(pass, slides)?.or(point);
        }
        Ok(point)
    }

    fn submit_apart(&self, pass: &mut Pass, it: Vec<Apart>) -> Result<Option<SyncPoint>, Error> {
        let (mut armed, waits) = self.arm(pass, it);
        // In the order in which they lie: neighbours are read together.
        armed.sort_unstable_by_key(|armed| armed.from);
        if armed.is_empty() {
            return Ok(None);
        }
        self.send_armed(pass, armed, &waits).map(Some)
    }

    /// Submits the copies of armed blocks, whose addresses flip; after an error they stay.
    pub(super) fn send_armed(
        &self,
        pass: &mut Pass,
        armed: Vec<Armed>,
        waits: &Points,
    ) -> Result<SyncPoint, Error> {
        match self.copy_apart(pass, &armed, waits) {
            Ok(copied) => {
                let point = copied.point;
                self.flip(pass, armed, waits, &copied);
                Ok(point)
            }
            Err((error, stream)) => {
                // What was submitted before the error may still read and write.
                let point = stream.and_then(|stream| self.device.mark(stream).ok());
                self.disarm(pass, armed, point);
                Err(error)
            }
        }
    }

    /// Arms blocks that can still move; the others' places are given back. Gives what the copies
    /// have to wait for.
    fn arm(&self, pass: &mut Pass, items: Vec<Apart>) -> (Vec<Armed>, Points) {
        let (mut armed, mut waits) = (Vec::with_capacity(items.len()), Points::NONE);
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut state = self.lock();
            for it in items.by_ref().take(SLICE) {
                match state.arm(pass.pool, &it) {
                    Ok(block) => {
                        waits.merge(&it.to.points);
                        self.gather_waits(&state, it.key, &block, &mut waits);
                        let from = state.pools[usize::from(pass.pool)].place(it.from);
                        let to = state.pools[usize::from(pass.pool)].place(it.to.spot);
                        let check = state.moves.is_sampled(self.config.verify_moves);
                        armed.push(Armed { it, from, to, check });
                    }
                    Err(verdict) => self.give_up_one(&mut state, pass, it, verdict, None),
                }
            }
        }
        waits.retain(|point| point.value < SyncPoint::NEVER);
        (armed, waits)
    }

    /// What a copy of the block has to wait for: its uses, and what its first use has to.
    pub(super) fn gather_waits(&self, state: &State, key: Key, block: &Block, waits: &mut Points) {
        waits.merge(state.pool(block).uses(block.spot));
        if let Some(first) = state.waits.get(key.index()) {
            waits.merge(first);
        }
        if block.has(flag::FOREIGN)
            && let Ok(point) = self.device.mark(block.stream)
        {
            waits.insert(point);
        }
    }

    /// Gives moves up before anything of them was submitted.
    pub(super) fn cancel(&self, pass: &mut Pass, items: Vec<Apart>) {
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut state = self.lock();
            for it in items.by_ref().take(SLICE) {
                let is_gone = state.block(it.key).is_err();
                let verdict = if is_gone { Verdict::Dropped } else { Verdict::Cancelled };
                self.give_up_one(&mut state, pass, it, verdict, None);
            }
            self.unlock_and_tell(state);
        }
        self.destroy_unused(pass);
    }

    /// Takes the arming back after a failure; `point` covers what was submitted all the same.
    fn disarm(&self, pass: &mut Pass, armed: Vec<Armed>, point: Option<SyncPoint>) {
        let mut armed = armed.into_iter().peekable();
        while armed.peek().is_some() {
            let mut state = self.lock();
            for Armed { it, .. } in armed.by_ref().take(SLICE) {
                let key = it.key;
                self.give_up_one(&mut state, pass, it, Verdict::Cancelled, point);
                let view = state.calm(key, point);
                pass.unused_views.extend(view);
            }
            self.unlock_and_tell(state);
        }
        self.destroy_unused(pass);
    }

    /// Gives a reserved place back, and counts what became of its move.
    pub(super) fn give_up_one(
        &self,
        state: &mut State,
        pass: &mut Pass,
        it: Apart,
        verdict: Verdict,
        point: Option<SyncPoint>,
    ) {
        let mut points = it.to.points;
        if let Some(point) = point {
            points.insert(point);
        }
        state.let_go(pass.pool, it.to.spot, points);
        state.verdict(pass.id, it.key, it.bytes, verdict);
        pass.unused_views.extend(it.view);
    }

    /// Destroys API objects that were made at places which nothing moved to.
    pub(super) fn destroy_unused(&self, pass: &mut Pass) {
        for view in pass.unused_views.drain(..) {
            self.destroy_views(Some(view));
        }
    }

    /// The stream that copies go to, made when it is first needed.
    pub(super) fn copy_stream(&self, background: bool) -> Result<StreamId, Error> {
        let at = usize::from(background);
        if let Some(stream) = self.lock().moves.streams[at] {
            return Ok(stream);
        }
        let spec = StreamSpec { copy_only: background, high_priority: false };
        let made = self.device.create_stream(spec)?;
        let stream = *self.lock().moves.streams[at].get_or_insert(made);
        if stream != made {
            // Another thread was faster.
            self.device.retire_stream(made)?;
        }
        Ok(stream)
    }
}

/// How many of the moves a pass in the background submits at once.
fn due(apart: &[Apart]) -> usize {
    let mut bytes = 0_u64;
    let fits = |it: &&Apart| {
        bytes = bytes.saturating_add(it.bytes);
        bytes <= BACKGROUND_BYTES
    };
    apart.iter().take_while(fits).count().max(1).min(apart.len())
}

impl State {
    /// Marks a block as being copied, if it is still there and may move.
    fn arm(&mut self, pool: u16, it: &Apart) -> Result<Block, Verdict> {
        let Ok(&block) = self.blocks.get(it.key) else { return Err(Verdict::Dropped) };
        let ranges = &self.pools[usize::from(pool)];
        let is_there =
            block.pool == pool && block.spot == it.from && ranges.bytes(it.from) == it.bytes;
        if !is_there || self.why_not(&block, it.raw).is_some() {
            let freed = block.has(flag::FREE_LATER);
            return Err(if freed { Verdict::Dropped } else { Verdict::Cancelled });
        }
        let armed = self.blocks.get_mut(it.key).map_err(|_| Verdict::Dropped)?;
        armed.flags |= flag::MOVING;
        Ok(block)
    }

    /// Ends the time in which a block is being copied, with `point` as a use of where it is now;
    /// completes a free that came meanwhile. Gives a view that nothing uses any more.
    pub(super) fn calm(
        &mut self,
        key: Key,
        point: Option<SyncPoint>,
    ) -> Option<crate::device::View> {
        let block = self.blocks.get_mut(key).ok()?;
        block.flags &= !(flag::MOVING | flag::TOUCHED | flag::SLIDING);
        let block = *block;
        if let Some(point) = point {
            self.pool_mut(&block).add_use(block.spot, point);
        }
        if block.has(flag::FREE_LATER) && block.holds == 0 {
            return self.complete_free(key, Points::NONE);
        }
        None
    }
}
