//! Streams of the model: queues of jobs on a virtual clock.

use std::collections::VecDeque;

use super::work::Effect;
use crate::device::{CaptureId, DeviceError, Points, StreamId, SyncPoint};

/// When submitted work completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// At once, unless it waits for work that is not done.
    #[default]
    Immediate,
    /// So many nanoseconds after it could start.
    After(u64),
    /// After the time that [`Costs`](crate::device::Costs) says, for copies and gathers; other
    /// work of the device's own takes no time.
    Modelled,
    /// When a test says so.
    ByHand,
}

pub(super) struct Job {
    value: u64,
    /// Nanoseconds once it starts; `None` until a test completes it.
    duration: Option<u64>,
    submitted_at: u64,
    after: Points,
    /// What comes before this job on other streams, through waits of waits.
    ordered: Points,
    /// When it ends on the virtual clock, once that is known.
    end: Option<u64>,
    /// Whether a capture records it: it never runs.
    recorded: bool,
    effect: Effect,
}

#[derive(Default)]
pub(super) struct Lane {
    done: u64,
    submitted: u64,
    jobs: VecDeque<Job>,
    /// What the next job has to wait for, and what is known to come before it.
    after: Points,
    ordered: Points,
    /// When the last job that is done ended.
    free_at: u64,
    rule: Option<Completion>,
    pub(super) foreign: bool,
    pub(super) retired: bool,
    pub(super) poisoned: bool,
    pub(super) capture: Option<CaptureId>,
}

/// All streams that ever were; a stream's number is its place in the list.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// Streams with jobs.
    busy: Vec<u32>,
    pub(super) now: u64,
    rule: Completion,
    /// The value that streams begin with.
    first_value: u64,
    /// Nothing completes before this, as long as nothing is submitted or completed by hand.
    next_due: u64,
}

/// What is to run, in which order and for how long.
pub(super) struct Submission {
    /// Modelled nanoseconds; how long it takes depends on the rule.
    pub(super) modelled_ns: u64,
    /// Nanoseconds that count whatever the rule says, unless it says by hand.
    pub(super) given_ns: Option<u64>,
    pub(super) effect: Effect,
}

const GONE: DeviceError = DeviceError::UnknownStream;

impl Lanes {
    pub(super) fn new(rule: Completion, first_value: u64) -> Self {
        let next_due = u64::MAX;
        Self { lanes: Vec::new(), busy: Vec::new(), now: 0, rule, first_value, next_due }
    }

    pub(super) fn open(&mut self, foreign: bool) -> StreamId {
        let id = StreamId(self.lanes.len() as u32);
        let (done, submitted) = (self.first_value, self.first_value);
        self.lanes.push(Lane { foreign, done, submitted, ..Lane::default() });
        id
    }

    pub(super) fn any(&self, stream: StreamId) -> Result<&Lane, DeviceError> {
        self.lanes.get(stream.0 as usize).ok_or(GONE)
    }

    pub(super) fn any_mut(&mut self, stream: StreamId) -> Result<&mut Lane, DeviceError> {
        self.lanes.get_mut(stream.0 as usize).ok_or(GONE)
    }

    pub(super) fn open_mut(&mut self, stream: StreamId) -> Result<&mut Lane, DeviceError> {
        self.any_mut(stream).and_then(|lane| if lane.retired { Err(GONE) } else { Ok(lane) })
    }

    pub(super) fn set_rule(
        &mut self,
        stream: StreamId,
        rule: Completion,
    ) -> Result<(), DeviceError> {
        self.open_mut(stream)?.rule = Some(rule);
        Ok(())
    }

    pub(super) fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        self.any(stream).map(|lane| lane.done)
    }

    pub(super) fn is_reached(&self, point: SyncPoint) -> bool {
        self.lanes.get(point.stream.0 as usize).is_some_and(|lane| lane.done >= point.value)
    }

    /// Whether the point names a submission that was made.
    pub(super) fn was_submitted(&self, point: SyncPoint) -> bool {
        self.lanes.get(point.stream.0 as usize).is_some_and(|lane| lane.submitted >= point.value)
    }

    /// A point after all work so far.
    pub(super) fn mark(&mut self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        let first = self.first_value;
        let lane = self.open_mut(stream)?;
        if !lane.foreign {
            // Before all work is value 0, wherever the values of work begin.
            let any = lane.submitted > first;
            return Ok(SyncPoint { stream, value: if any { lane.submitted } else { 0 } });
        }
        let event = Submission { modelled_ns: 0, given_ns: Some(0), effect: Effect::None };
        self.push(stream, event, Some(0))
    }

    /// What orders the next submission of the stream behind other streams' work.
    pub(super) fn ordered(&self, stream: StreamId) -> Points {
        self.any(stream).map(|lane| lane.ordered.clone()).unwrap_or_default()
    }

    pub(super) fn wait(
        &mut self,
        stream: StreamId,
        points: &[SyncPoint],
    ) -> Result<(), DeviceError> {
        self.open_mut(stream)?;
        for &point in points {
            self.any(point.stream)?;
            if point.stream == stream || self.is_reached(point) {
                continue;
            }
            let before = self.job(point).map(|job| job.ordered.clone()).unwrap_or_default();
            let lane = self.open_mut(stream)?;
            lane.after.insert(point);
            lane.ordered.insert(point);
            lane.ordered.merge(&before);
        }
        Ok(())
    }

    /// All that is over once `points` are reached, through waits of waits, as far as it is not yet.
    pub(super) fn all_before(&self, points: &[SyncPoint]) -> Points {
        let mut all: Points = points.iter().copied().collect();
        for job in points.iter().filter_map(|&point| self.job(point)) {
            all.merge(&job.ordered);
        }
        all
    }

    fn job(&self, point: SyncPoint) -> Option<&Job> {
        let lane = self.any(point.stream).ok()?;
        let index = point.value.checked_sub(lane.done + 1)?;
        lane.jobs.get(usize::try_from(index).ok()?)
    }

    /// The point that the next submission will have.
    pub(super) fn next_point(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        let lane = self.any(stream)?;
        if lane.retired {
            return Err(GONE);
        }
        if lane.poisoned {
            return Err(DeviceError::StreamPoisoned);
        }
        Ok(SyncPoint { stream, value: lane.submitted + 1 })
    }

    pub(super) fn submit(
        &mut self,
        stream: StreamId,
        submission: Submission,
    ) -> Result<SyncPoint, DeviceError> {
        self.next_point(stream)?;
        let given = submission.given_ns;
        let duration = match self.any(stream)?.rule.unwrap_or(self.rule) {
            Completion::ByHand => None,
            Completion::Immediate => Some(given.unwrap_or(0)),
            Completion::After(ns) => Some(given.unwrap_or(ns)),
            Completion::Modelled => Some(given.unwrap_or(submission.modelled_ns)),
        };
        self.push(stream, submission, duration)
    }

    fn push(
        &mut self,
        stream: StreamId,
        submission: Submission,
        duration: Option<u64>,
    ) -> Result<SyncPoint, DeviceError> {
        let submitted_at = self.now;
        let lanes = &self.lanes;
        let done = |p: &SyncPoint| lanes.get(p.stream.0 as usize).is_none_or(|l| l.done < p.value);
        let mut ordered = self.ordered(stream);
        ordered.retain(done);
        let lane = self.open_mut(stream)?;
        lane.submitted += 1;
        let value = lane.submitted;
        lane.ordered = ordered.clone();
        let after = std::mem::take(&mut lane.after);
        let recorded = lane.capture.is_some();
        let effect = submission.effect;
        lane.jobs.push_back(Job {
            value,
            duration,
            submitted_at,
            end: None,
            after,
            ordered,
            recorded,
            effect,
        });
        if lane.jobs.len() == 1 {
            self.busy.push(stream.0);
            self.next_due = 0;
        }
        Ok(SyncPoint { stream, value })
    }

    /// Lets jobs up to a point complete as soon as what they wait for has.
    pub(super) fn complete(&mut self, point: SyncPoint) {
        let now = self.now;
        if let Ok(lane) = self.any_mut(point.stream) {
            for job in lane.jobs.iter_mut().filter(|job| job.value <= point.value) {
                if job.duration.is_none() {
                    job.duration = Some(0);
                    job.submitted_at = now;
                }
            }
        }
        self.next_due = 0;
    }

    pub(super) fn complete_all(&mut self) {
        for stream in self.busy.clone() {
            self.complete(SyncPoint { stream: StreamId(stream), value: u64::MAX });
        }
    }

    /// Whether some job is left to a test to complete.
    pub(super) fn any_by_hand(&self) -> bool {
        self.busy.iter().any(|&stream| {
            let jobs = &self.lanes[stream as usize].jobs;
            jobs.iter().any(|job| job.duration.is_none() || job.recorded)
        })
    }

    /// When the stream's first job ends, if that is known by now.
    fn due(&mut self, stream: u32) -> Option<u64> {
        let lane = &self.lanes[stream as usize];
        let job = lane.jobs.front().filter(|job| !job.recorded)?;
        if job.end.is_some() {
            return job.end;
        }
        let duration = job.duration?;
        let mut start = lane.free_at.max(job.submitted_at);
        for point in job.after.iter() {
            // What was waited for is the last that its stream has done: jobs end in order of
            // time, and this is asked after each of them.
            let other =
                self.lanes.get(point.stream.0 as usize).filter(|o| o.done >= point.value)?;
            start = start.max(other.free_at.min(self.now));
        }
        let end = start.saturating_add(duration);
        self.lanes[stream as usize].jobs.front_mut()?.end = Some(end);
        Some(end)
    }

    /// The job that ends first by rule, and its stream.
    fn first_due(&mut self) -> Option<(u64, u32)> {
        let mut first = None;
        for at in 0..self.busy.len() {
            let stream = self.busy[at];
            if let Some(end) = self.due(stream)
                && first.is_none_or(|best| (end, stream) < best)
            {
                first = Some((end, stream));
            }
        }
        self.next_due = first.map_or(u64::MAX, |(end, _)| end);
        first
    }

    /// When something completes next by rule, if anything does.
    pub(super) fn next_due(&mut self) -> Option<u64> {
        self.first_due().map(|(end, _)| end)
    }

    /// Takes the next job that is done by now, in order of time.
    pub(super) fn pop_done(&mut self) -> Option<(StreamId, Effect)> {
        if self.now < self.next_due {
            return None;
        }
        let (end, stream) = self.first_due().filter(|(end, _)| *end <= self.now)?;
        let lane = &mut self.lanes[stream as usize];
        let job = lane.jobs.pop_front()?;
        lane.done = job.value;
        lane.free_at = end;
        if lane.jobs.is_empty() {
            self.busy.retain(|&busy| busy != stream);
        }
        self.next_due = 0;
        Some((StreamId(stream), job.effect))
    }

    /// Ends the recording of a capture's jobs: they are done, and were never run.
    pub(super) fn end_capture(&mut self, capture: CaptureId) -> bool {
        let mut found = false;
        for lane in self.lanes.iter_mut().filter(|lane| lane.capture == Some(capture)) {
            found = true;
            lane.capture = None;
            for job in lane.jobs.iter_mut().filter(|job| job.recorded) {
                job.recorded = false;
                job.duration = Some(0);
                job.effect = Effect::None;
                job.after = Points::NONE;
            }
        }
        self.next_due = 0;
        found
    }
}
