//! An open file, and how it is looked at.

use std::sync::Arc;

use egui::Context;
use serde::{Deserialize, Serialize};

use super::job::Job;
use super::layout::{Axis, Camera, Coloring, Focus, Span};
use super::model::{Moment, Recording};
use super::views::Panels;

/// What is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Selected {
    /// A block.
    Block(u32),
    /// A hole or segment at an address, with its bytes.
    Range(u64, u64),
    /// A site.
    Site(u32),
    /// A stream.
    Stream(u32),
    /// A failed request.
    Failure(u32),
}

/// How a file is looked at; what Back and Forward go through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sight {
    /// Events before the moment shown.
    pub at: u32,
    /// What is selected.
    pub selected: Option<Selected>,
    /// What colour stands for.
    pub coloring: Coloring,
    /// What of the heap is shown; all of it without.
    pub camera: Option<Camera>,
    /// What the axis of time counts.
    pub axis: Axis,
    /// What of the time is shown.
    pub span: Option<Span>,
    /// Which addresses are shown beside time.
    pub addresses: Option<(f64, f64)>,
}

impl Sight {
    /// What stands out in the colours.
    pub fn focus(&self) -> Option<Focus> {
        match self.selected {
            Some(Selected::Site(site)) => Some(Focus::Site(site)),
            Some(Selected::Stream(stream)) => Some(Focus::Stream(stream)),
            _ => None,
        }
    }
}

/// The heap of a recording with no more blocks is worked out within a frame.
const AT_ONCE: usize = 100_000;
/// Steps kept for Back.
const STEPS: usize = 200;
/// Changes within this many seconds are one step.
const TOGETHER: f64 = 0.7;

#[derive(Default)]
struct History {
    past: Vec<Sight>,
    future: Vec<Sight>,
    settled: Option<Sight>,
    changed: f64,
}

/// An open file.
pub struct Document {
    /// What it tells.
    pub recording: Arc<Recording>,
    /// How it is looked at.
    pub sight: Sight,
    /// The heap at the moment.
    pub moment: Arc<Moment>,
    /// Moments that were marked, ascending.
    pub marks: Vec<u32>,
    /// The block under the pointer, as of the last frame; all views show it.
    pub hover: Option<u32>,
    /// The block under the pointer, as of this frame so far.
    pub hover_next: Option<u32>,
    /// Whether time runs.
    pub playing: bool,
    /// Bytes of its file when it was opened.
    pub file_bytes: u64,
    /// What the views keep for themselves.
    pub panels: Panels,
    /// The heap at the moment that was gone to, while a thread works it out.
    coming: Option<Job<Arc<Moment>>>,
    history: History,
}

impl Document {
    /// Opens a recording where a person wants to look first.
    pub fn new(recording: Recording, coloring: Coloring, axis: Axis) -> Self {
        Self::of(Arc::new(recording), coloring, axis)
    }

    /// The same for a recording that others have too.
    pub fn of(recording: Arc<Recording>, coloring: Coloring, axis: Axis) -> Self {
        let at = recording.first_look();
        let sight =
            Sight { at, selected: None, coloring, camera: None, axis, span: None, addresses: None };
        let moment = Arc::new(Moment::of(&recording, at));
        let file_bytes = std::fs::metadata(&recording.path).map_or(0, |meta| meta.len());
        Self {
            file_bytes,
            recording,
            sight,
            moment,
            marks: Vec::new(),
            hover: None,
            hover_next: None,
            playing: false,
            panels: Panels::default(),
            coming: None,
            history: History::default(),
        }
    }

    /// Shows what a run recorded since; at the end if it was shown before.
    pub fn replace(&mut self, recording: Arc<Recording>) {
        let followed = self.sight.at >= self.recording.end();
        self.recording = recording;
        if followed {
            self.sight.at = self.recording.end();
        }
        self.catch_up();
        self.panels.forget();
        // Steps of a run that goes on by itself are none of the person's.
        self.history.settled = None;
    }

    /// Goes to a moment.
    pub fn go(&mut self, at: u32) {
        self.sight.at = at.min(self.recording.end());
    }

    /// Goes so many events on or back.
    pub fn step(&mut self, by: i64) {
        let at = i64::from(self.sight.at).saturating_add(by);
        self.go(u32::try_from(at.max(0)).unwrap_or(u32::MAX));
    }

    /// Works out the heap at the moment that was gone to.
    pub fn catch_up(&mut self) {
        self.coming = None;
        self.moment = Arc::new(Moment::of(&self.recording, self.sight.at));
    }

    /// Has the heap at the moment that was gone to worked out: at once where that is nothing, else
    /// by a thread, and the heap before it is shown meanwhile.
    fn follow(&mut self, ctx: &Context) {
        if let Some(moment) = self.coming.as_mut().and_then(|coming| coming.poll().cloned()) {
            (self.moment, self.coming) = (moment, None);
        }
        let at = self.sight.at;
        if self.moment.at == at || self.coming.as_ref().is_some_and(Job::is_running) {
            return;
        }
        if self.recording.blocks.len() <= AT_ONCE {
            return self.catch_up();
        }
        let recording = Arc::clone(&self.recording);
        self.coming = Some(Job::start(ctx, move || Arc::new(Moment::of(&recording, at))));
    }

    /// Takes in what changed in this frame.
    pub fn settle(&mut self, ctx: &Context, now: f64, dragging: bool) {
        self.hover = self.hover_next.take();
        self.follow(ctx);
        let history = &mut self.history;
        let Some(settled) = history.settled else {
            history.settled = Some(self.sight);
            return;
        };
        if settled == self.sight || dragging || self.playing {
            return;
        }
        if now - history.changed > TOGETHER || history.past.is_empty() {
            history.past.push(settled);
            if history.past.len() > STEPS {
                history.past.remove(0);
            }
        }
        history.future.clear();
        history.changed = now;
        history.settled = Some(self.sight);
    }

    /// The sight before.
    pub fn back(&mut self) {
        if let Some(sight) = self.history.past.pop() {
            self.history.future.push(self.sight);
            self.jump(sight);
        }
    }

    /// Undoes [`back`](Self::back).
    pub fn forward(&mut self) {
        if let Some(sight) = self.history.future.pop() {
            self.history.past.push(self.sight);
            self.jump(sight);
        }
    }

    fn jump(&mut self, sight: Sight) {
        self.sight = sight;
        self.history.settled = Some(sight);
        self.history.changed = f64::MIN;
    }

    /// Sets or removes a mark at the moment shown.
    pub fn mark(&mut self) {
        match self.marks.binary_search(&self.sight.at) {
            Ok(index) => _ = self.marks.remove(index),
            Err(index) => self.marks.insert(index, self.sight.at),
        }
    }

    /// The mark after the moment shown; after the last comes the first.
    pub fn next_mark(&self) -> Option<u32> {
        let next = self.marks.iter().find(|mark| **mark > self.sight.at);
        next.or(self.marks.first()).copied()
    }

    /// The failure before the moment shown; before the first comes the last.
    pub fn next_failure(&self) -> Option<u32> {
        let failures = &self.recording.failures;
        let earlier = failures.iter().rposition(|failure| failure.at < self.sight.at);
        let last = failures.len().checked_sub(1)?;
        u32::try_from(earlier.unwrap_or(last)).ok()
    }

    /// Goes to a failure and selects it.
    pub fn go_to_failure(&mut self, number: u32) {
        if let Some(failure) = self.recording.failures.get(number as usize) {
            let at = failure.at;
            self.go(at);
            self.sight.selected = Some(Selected::Failure(number));
        }
    }

    /// Whether a view waits for a thread.
    pub fn is_busy(&mut self) -> bool {
        self.coming.is_some() || self.panels.is_busy()
    }
}
