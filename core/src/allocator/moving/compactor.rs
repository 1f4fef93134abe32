//! A pass as its owner sees it: begin, poll, end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::compact::{Goal, Leg, Limits, Mode, course, plan};
use crate::device::{Ticket, View};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::point::SyncPoint;
use crate::range::SegmentId;

use super::super::patience::Patience;
use super::super::{Allocator, Inner};
use super::report::PassReport;
use super::reserve::Batch;
use super::spaces::Spaces;

/// Plans made in a row without a move that could be reserved before a pass gives up.
const IDLE_MAX: u32 = 3;
/// How often the way to the goal is planned in one pool.
const COURSES_MAX: u32 = 16;
/// The longest that the one-call form waits for copies that do not get done.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pass under way: a bounded batch of moves towards a goal. Dropping it ends it.
///
/// Moves that are submitted are finished whatever becomes of the pass: their addresses have
/// changed. What is reserved and not submitted is given back.
#[derive(Debug)]
#[must_use = "a pass that is dropped gives up what it has not submitted"]
pub struct Compactor {
    pub(super) alloc: Allocator,
    pub(super) pass: Pass,
}

/// How far a pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Nothing is left to plan, to submit or to wait for.
    pub done: bool,
    /// Submitted moves whose copies are not known to be done.
    pub under_way: u64,
    /// Moves reserved and not submitted yet.
    pub reserved: u64,
}

/// The state of a pass.
#[derive(Debug)]
pub(crate) struct Pass {
    pub id: u32,
    /// The pool that is being worked on.
    pub pool: u16,
    pub limits: Limits,
    pub batch: Option<Batch>,
    pub report: PassReport,
    /// The point of the last copy.
    pub last: Option<SyncPoint>,
    /// Batches whose times the device takes.
    pub timed: Vec<Ticket>,
    /// API objects that turned out not to be needed.
    pub unused_views: Vec<View>,
    pub(super) goal: Goal,
    /// Pools still to be worked on, the present one last.
    targets: Vec<u16>,
    /// The plans still to be carried out in the present pool, made together.
    course: VecDeque<Leg>,
    /// The pool's segments in the order of the views that they were made from.
    segments: Vec<SegmentId>,
    /// Whether the next plan was made from the pool as it is, not as it was to become.
    is_fresh: bool,
    /// Paged spaces still to be worked on, after the targets.
    pub spaces: Spaces,
    /// How often the way to the goal was planned in the present pool.
    courses: u32,
    began_ns: u64,
    /// When the next copies in the background may be submitted.
    pub next_ns: u64,
    idle: u32,
    /// In how many pools the goal is met, and in how many it is not.
    pub(super) met: (u32, u32),
    ended: bool,
}

impl Allocator {
    /// Begins a pass: plans moves for the goal and reserves their places. Nothing is copied before
    /// [`poll`](Compactor::poll) or [`submit`](Compactor::submit).
    ///
    /// Makes no driver call, and holds the allocator's lock only for short stretches.
    ///
    /// # Errors
    /// [`Error::MovesOff`] where the configuration switches moves off; [`Error::MovesStopped`]
    /// after a checksum differed; [`DeviceError::Capturing`](crate::error::DeviceError) while a
    /// graph is being captured.
    pub fn begin_pass(&self, goal: Goal, limits: Limits) -> Result<Compactor, Error> {
        self.begin_anywhere(goal, limits, false)
    }

    /// Moves blocks until the goal is met or the limits are reached, waits for the copies, and
    /// tells what was done. For [`Goal::Release`], segments that are empty then are given back.
    ///
    /// Other threads may go on using the allocator and their blocks.
    ///
    /// # Errors
    /// As [`begin_pass`](Self::begin_pass), and the device's.
    pub fn compact(&self, goal: Goal, limits: Limits) -> Result<PassReport, Error> {
        let mut pass = self.begin_anywhere(goal, limits, true)?;
        pass.run(PATIENCE)?;
        if let Goal::Release { bytes } = goal {
            let held = self.inner.lock().counters.reserved.current;
            self.trim(held.saturating_sub(bytes))?;
        }
        pass.end_pass()
    }
}

impl Compactor {
    /// Submits what is reserved, without waiting: addresses flip. In the background, a part of
    /// it. Gives the point of the last copy.
    ///
    /// # Errors
    /// The device's. What was not submitted is cancelled then.
    pub fn submit(&mut self) -> Result<Option<SyncPoint>, Error> {
        self.alloc.inner.submit_due(&mut self.pass)
    }

    /// Takes in what is done, and goes on: submits what is reserved, plans more where the goal
    /// needs it. Never waits. A pass is done when this says so.
    ///
    /// # Errors
    /// The device's. What was not submitted is cancelled then.
    pub fn poll(&mut self) -> Result<Progress, Error> {
        let inner = &self.alloc.inner;
        inner.reap()?;
        inner.advance(&mut self.pass)?;
        Ok(self.progress())
    }

    /// How far the pass is, as known now.
    pub fn progress(&self) -> Progress {
        let reserved = self.pass.batch.as_ref().map_or(0, Batch::blocks);
        let under_way = self.alloc.inner.lock().moves.under_way(self.pass.id);
        let is_planned = self.pass.targets.is_empty() && self.pass.spaces.is_done();
        let done = is_planned && reserved == 0 && under_way == 0;
        Progress { done, under_way, reserved }
    }

    /// Polls and waits until the pass is done, at most `patience` for each copy.
    pub(super) fn run(&mut self, time: Duration) -> Result<(), Error> {
        let inner = Arc::clone(&self.alloc.inner);
        let device = &*inner.device;
        let (mut patience, mut awaited) = (Patience::new(device, time), Vec::new());
        loop {
            if self.poll()?.done {
                return Ok(());
            }
            let points = inner.lock().awaited_copies(self.pass.id);
            let early = self.pass.next_ns.saturating_sub(device.now_ns());
            if points.is_empty() && early > 0 {
                // With nothing to wait for, this only lets the time pass.
                device.wait_any(&[], Duration::from_nanos(early))?;
                if device.now_ns() >= self.pass.next_ns {
                    continue;
                }
            } else if points != awaited {
                patience = Patience::new(device, time);
                awaited.clone_from(&points);
            }
            // With no points, something was submitted or taken in just now.
            let most = if points.is_empty() { Duration::ZERO } else { time };
            match patience.wait(device, &points, most)? {
                Some(true) => {}
                _ => return Ok(()),
            }
        }
    }

    /// Ends the pass: what is reserved and not submitted is cancelled, what is submitted goes on
    /// by itself. Tells what was done so far.
    ///
    /// # Errors
    /// None now; reserved.
    pub fn end_pass(mut self) -> Result<PassReport, Error> {
        let inner = &self.alloc.inner;
        inner.end(&mut self.pass);
        Ok(std::mem::take(&mut self.pass.report))
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.alloc.inner.end(&mut self.pass);
    }
}

impl Inner {
    /// A pass in which nothing is planned yet.
    ///
    /// # Errors
    /// As [`Allocator::begin_pass`].
    fn open_pass(
        &self,
        goal: Goal,
        limits: Limits,
        targets: Vec<u16>,
        brief: bool,
    ) -> Result<Pass, Error> {
        self.refuse_in_capture()?;
        if !self.config.moves {
            return Err(Error::MovesOff);
        }
        let began_ns = self.device.now_ns();
        let id = {
            let mut state = self.lock();
            if state.moves.stopped {
                return Err(Error::MovesStopped);
            }
            state.clock.read(&*self.device);
            let id = state.new_pass(brief);
            state.tell_asked(id, goal, &limits);
            id
        };
        Ok(Pass {
            id,
            pool: targets.last().copied().unwrap_or(0),
            limits,
            batch: None,
            report: PassReport::default(),
            last: None,
            timed: Vec::new(),
            unused_views: Vec::new(),
            goal,
            targets,
            course: VecDeque::new(),
            segments: Vec::new(),
            is_fresh: false,
            spaces: Spaces::default(),
            courses: 0,
            began_ns,
            next_ns: 0,
            idle: 0,
            met: (0, 0),
            ended: false,
        })
    }

    /// A pass over one pool whose moves are planned by the caller, who ends it before he returns.
    pub(super) fn new_pass(&self, goal: Goal, pool: u16) -> Result<Pass, Error> {
        let mut pass = self.open_pass(goal, Limits::NONE, vec![pool], true)?;
        pass.targets.clear();
        let event = Event::new(EventKind::PassBegin).a(u64::from(pass.id));
        self.lock().event(event);
        Ok(pass)
    }

    /// Begins a pass over some pools and reserves the first moves. Who begins a brief one ends it
    /// before he returns.
    pub(super) fn begin(
        &self,
        goal: Goal,
        limits: Limits,
        pools: Vec<u16>,
        brief: bool,
    ) -> Result<Pass, Error> {
        let mut pass = self.open_pass(goal, limits, pools, brief)?;
        let id = pass.id;
        let start = self.lock().free_in_use(&pass.targets);
        (pass.report.free.0, pass.report.largest_free.0, pass.report.fragmentation.0) = start;
        self.choose(&mut pass);
        if let Err(error) = self.plan_next(&mut pass) {
            self.end(&mut pass);
            return Err(error);
        }
        let blocks = pass.batch.as_ref().map_or(0, Batch::blocks);
        let bytes = pass.batch.as_ref().map_or(0, Batch::bytes);
        let event = Event::new(EventKind::PassBegin).a(u64::from(id)).b(bytes).c(blocks);
        self.lock().event(event);
        Ok(pass)
    }

    /// For contiguous bytes one pool suffices: the one in which they cost the least.
    fn choose(&self, pass: &mut Pass) {
        if !matches!(pass.goal, Goal::Contiguous { .. }) || pass.targets.len() < 2 {
            return;
        }
        let cost = |pool: &u16| {
            let survey = self.survey(*pool, pass.limits.offer_raw);
            let plan = plan(&survey.view, pass.goal, &Limits::NONE);
            (!plan.reachable, plan.more, plan.bytes(), *pool)
        };
        let best = pass.targets.iter().map(cost).min();
        pass.targets = best.map(|(.., pool)| pool).into_iter().collect();
    }

    /// Submits, then plans and submits on, as far as the mode lets it without waiting.
    pub(super) fn advance(&self, pass: &mut Pass) -> Result<(), Error> {
        loop {
            let is_busy = self.lock().moves.under_way(pass.id) > 0;
            let is_early = || self.device.now_ns() < pass.next_ns;
            if pass.limits.mode == Mode::Background && (is_busy || is_early()) {
                return Ok(());
            }
            if pass.batch.is_some() {
                self.submit_due(pass)?;
                continue;
            }
            if pass.targets.is_empty() {
                if self.advance_spaces(pass)? {
                    continue;
                }
                return Ok(());
            }
            self.plan_next(pass)?;
            let Some(batch) = &pass.batch else { return Ok(()) };
            // The program has to be asked first.
            if batch.apart.iter().any(|it| it.raw) {
                return Ok(());
            }
        }
    }

    /// Reserves the next moves; takes pools off the list where nothing is left to do.
    fn plan_next(&self, pass: &mut Pass) -> Result<(), Error> {
        while let Some(&pool) = pass.targets.last() {
            pass.pool = pool;
            if self.is_spent(pass) {
                pass.give_up();
                return Ok(());
            }
            if pass.course.is_empty() {
                // The pool may change as fast as a pass goes on.
                if pass.courses == COURSES_MAX {
                    pass.leave_pool(false);
                    continue;
                }
                self.plan_course(pass);
            }
            let is_fresh = std::mem::take(&mut pass.is_fresh);
            let Some(leg) = pass.course.pop_front() else { continue };
            if self.reserve_leg(pass, &leg) {
                return Ok(());
            }
            // What was planned after it builds on it.
            pass.course.clear();
            if leg.plan.blocks() > 0 && pass.idle < IDLE_MAX {
                pass.idle += 1;
                continue;
            }
            // The last plan of a course only says how things should be by now.
            if leg.plan.blocks() == 0 && !is_fresh {
                continue;
            }
            // Old places that are kept for their checksums may be all that is missing.
            if !leg.plan.met && self.lock().moves.has_checks(pass.id) {
                return Ok(());
            }
            pass.leave_pool(leg.plan.met);
        }
        Ok(())
    }

    /// Whether a pass has used its limits up.
    pub(super) fn is_spent(&self, pass: &Pass) -> bool {
        let spent_ns = self.device.now_ns().saturating_sub(pass.began_ns);
        spent_ns > pass.limits.ticks || pass.is_spent()
    }

    /// Plans the way to the goal in the present pool, from how it is now.
    fn plan_course(&self, pass: &mut Pass) {
        let start = self.device.now_ns();
        let survey = self.survey(pass.pool, pass.limits.offer_raw);
        let goal = self.lock().goal_in(pass.goal, pass.pool, &pass.targets);
        let mut legs = course(&survey.view, goal, &pass.left());
        if self.config.verify_moves == crate::compact::Verify::Always
            && let Some(at) = legs.iter().position(|leg| leg.plan.chain.is_some())
        {
            // A slide overwrites what its checksum would be compared with.
            legs.truncate(at + 1);
            legs[at].plan.chain = None;
        }
        pass.course = legs.into();
        pass.is_fresh = true;
        pass.courses += 1;
        self.note_refusals(pass, &survey);
        pass.segments = survey.segments;
        pass.report.plan_ns += self.device.now_ns().saturating_sub(start);
    }

    fn reserve_leg(&self, pass: &mut Pass, leg: &Leg) -> bool {
        if leg.plan.blocks() == 0 {
            return false;
        }
        let start = self.device.now_ns();
        let mut batch = self.reserve(pass.pool, leg, &pass.segments, pass.limits.offer_raw);
        let failed = self.make_views(&mut batch.apart, pass.pool).is_err();
        pass.report.submit_ns += self.device.now_ns().saturating_sub(start);
        let is_empty = batch.blocks() == 0;
        pass.batch = Some(batch);
        if is_empty || failed {
            self.cancel_batch(pass);
            return false;
        }
        true
    }

    fn cancel_batch(&self, pass: &mut Pass) {
        let Some(batch) = pass.batch.take() else { return };
        self.cancel(pass, batch.apart);
        if let Some(slides) = batch.chain {
            self.cancel_slides(pass, slides);
        }
    }

    /// Cancels what is reserved and writes the end of the report.
    pub(super) fn end(&self, pass: &mut Pass) {
        if std::mem::replace(&mut pass.ended, true) {
            return;
        }
        self.cancel_batch(pass);
        pass.report.device_ns = self.take_time(pass);
        let start = self.device.now_ns();
        let mut state = self.lock();
        let report = &mut pass.report;
        report.reached = pass.goal.is_met_by(pass.met);
        report.under_way = state.moves.under_way(pass.id);
        if let Some(books) = state.moves.passes.get_mut(&pass.id) {
            report.verdicts = books.verdicts;
            report.corrupt.clone_from(&books.corrupt);
            books.ended = true;
        }
        state.forget_pass(pass.id);
        state.moves.end_brief(pass.id);
        let pools = state.movable_pools(|_| true);
        let end = state.free_in_use(&pools);
        (report.free.1, report.largest_free.1, report.fragmentation.1) = end;
        let event = Event::new(EventKind::PassEnd).a(u64::from(pass.id));
        state.event(event.b(report.bytes).c(report.moves));
        self.unlock_and_tell(state);
        report.commit_ns += self.device.now_ns().saturating_sub(start);
        report.total_ns = self.device.now_ns().saturating_sub(pass.began_ns);
    }
}

impl Pass {
    /// What of the limits is left.
    pub(super) fn left(&self) -> Limits {
        let Limits { bytes, moves, .. } = self.limits;
        let bytes = bytes.saturating_sub(self.report.bytes);
        let moves = moves.saturating_sub(self.report.moves);
        Limits { bytes, moves, ..self.limits }
    }

    fn is_spent(&self) -> bool {
        let left = self.left();
        left.bytes == 0 || left.moves == 0
    }

    /// Whether the goal is known to be met.
    pub(super) const fn is_reached(&self) -> bool {
        self.goal.is_met_by(self.met)
    }

    /// Goes on to the next pool.
    fn leave_pool(&mut self, is_met: bool) {
        self.note_met(is_met);
        self.targets.pop();
        (self.idle, self.courses) = (0, 0);
    }

    /// Begins nothing more.
    fn give_up(&mut self) {
        self.met.1 += self.targets.len() as u32;
        self.targets.clear();
        self.course.clear();
    }
}
