//! An open file, and how it is looked at.

use std::sync::Arc;

use egui::Context;
use serde::{Deserialize, Serialize};

use super::job::{Job, drop_later};
use super::layout::{Axis, Camera, Coloring, Focus, Painted, Span};
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
    /// All of a moment.
    const fn at(at: u32, coloring: Coloring, axis: Axis) -> Self {
        Self { at, selected: None, coloring, camera: None, axis, span: None, addresses: None }
    }

    /// What stands out in the colours.
    pub fn focus(&self) -> Option<Focus> {
        match self.selected {
            Some(Selected::Site(site)) => Some(Focus::Site(site)),
            Some(Selected::Stream(stream)) => Some(Focus::Stream(stream)),
            _ => None,
        }
    }
}

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
    /// The same, sorted into classes: what is drawn.
    pub painted: Arc<Painted>,
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
    /// What it tells by now; shown as soon as the heap at the moment has been worked out.
    newest: Arc<Recording>,
    /// The heap at the moment that was gone to, while a thread works it out.
    coming: Option<Job<Arc<Painted>>>,
    /// Another device of the file, while a thread places its blocks.
    other_device: Option<Job<Option<Arc<Painted>>>>,
    history: History,
}

impl Document {
    /// Opens a recording where a person wants to look first.
    pub fn new(recording: Recording, coloring: Coloring, axis: Axis) -> Self {
        Self::of(first_look(&Arc::new(recording), coloring), axis)
    }

    /// Opens a recording at a moment that has been worked out.
    pub fn of(painted: Arc<Painted>, axis: Axis) -> Self {
        let (recording, moment) = (Arc::clone(&painted.recording), Arc::clone(&painted.moment));
        let (at, coloring) = (moment.at, painted.by.0);
        let sight = Sight::at(at, coloring, axis);
        let file_bytes = std::fs::metadata(&recording.path).map_or(0, |meta| meta.len());
        Self {
            file_bytes,
            newest: Arc::clone(&recording),
            recording,
            sight,
            moment,
            painted,
            marks: Vec::new(),
            hover: None,
            hover_next: None,
            playing: false,
            panels: Panels::default(),
            coming: None,
            other_device: None,
            history: History::default(),
        }
    }

    /// Shows all of a file whose first picture was shown, where a person wants to look first.
    pub fn show(&mut self, painted: Arc<Painted>) {
        let at = painted.moment.at;
        self.newest = Arc::clone(&painted.recording);
        self.coming = None;
        self.adopt(painted);
        self.sight.at = at;
    }

    /// Shows what a run recorded since; at the end if it was shown before. Where the moment is
    /// another one than has been worked out, it is shown once that is there.
    pub fn replace(&mut self, painted: Arc<Painted>) {
        self.newest = Arc::clone(&painted.recording);
        let is_it = painted.moment.at == self.wanted() && painted.by.0 == self.sight.coloring;
        if is_it && self.sight.focus().is_none() {
            self.coming = None;
            self.adopt(painted);
        }
    }

    /// The moment of what it tells by now that is to be shown.
    fn wanted(&self) -> u32 {
        let follows = self.sight.at >= self.recording.end();
        if follows { self.newest.end() } else { self.sight.at.min(self.newest.end()) }
    }

    fn adopt(&mut self, painted: Arc<Painted>) {
        if !Arc::ptr_eq(&painted.recording, &self.recording) {
            if self.sight.at >= self.recording.end() {
                self.sight.at = painted.recording.end();
            }
            self.panels.forget();
            // Steps of a run that goes on by itself are none of the person's.
            self.history.settled = None;
        }
        self.recording = Arc::clone(&painted.recording);
        self.moment = Arc::clone(&painted.moment);
        drop_later(std::mem::replace(&mut self.painted, painted));
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

    /// Works out the heap at the moment that was gone to, at once.
    pub fn catch_up(&mut self) {
        self.coming = None;
        let by = (self.sight.coloring, self.sight.focus());
        let painted = Painted::at(&self.newest, self.wanted(), by);
        self.adopt(Arc::new(painted));
    }

    /// Whether another moment, or another recording, is shown than is wanted.
    pub fn is_late(&self) -> bool {
        let by = (self.sight.coloring, self.sight.focus());
        let is_newest = Arc::ptr_eq(&self.painted.recording, &self.newest);
        !is_newest || self.moment.at != self.wanted() || self.painted.by != by
    }

    /// Has the heap at the moment that was gone to worked out: at once where that is nothing, else
    /// by a thread, and the heap before it is shown meanwhile.
    fn follow(&mut self, ctx: &Context) {
        if let Some(painted) = self.coming.as_mut().and_then(|coming| coming.poll().cloned()) {
            self.coming = None;
            self.adopt(painted);
        }
        if !self.is_late() || self.coming.as_ref().is_some_and(Job::is_running) {
            return;
        }
        if self.newest.is_small() {
            return self.catch_up();
        }
        let (recording, at) = (Arc::clone(&self.newest), self.wanted());
        let by = (self.sight.coloring, self.sight.focus());
        // Other colours of the same moment need no other heap.
        let moment = (self.moment.at == at && Arc::ptr_eq(&self.recording, &recording))
            .then(|| Arc::clone(&self.moment));
        self.coming = Some(Job::start(ctx, move || {
            let moment = moment.unwrap_or_else(|| Arc::new(Moment::of(&recording, at)));
            Arc::new(Painted::of(&recording, &moment, by))
        }));
    }

    /// Takes in what changed in this frame.
    pub fn settle(&mut self, ctx: &Context, now: f64, dragging: bool) {
        self.hover = self.hover_next.take();
        self.take_device();
        self.follow(ctx);
        self.panels.tables.finish_copy(ctx);
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

    /// The device shown, where there are several.
    pub fn chosen_device(&self) -> Option<usize> {
        (self.recording.devices.len() > 1).then_some(self.recording.device)
    }

    /// Shows another device of the file, once a thread has placed its blocks.
    pub fn choose_device(&mut self, ctx: &Context, device: usize) {
        let (of, coloring) = (Arc::clone(&self.recording), self.sight.coloring);
        self.other_device = Some(Job::start(ctx, move || {
            let facts = of.facts.as_ref()?;
            Some(first_look(&Arc::new(facts.of_device(&of.path, device)), coloring))
        }));
    }

    fn take_device(&mut self) {
        let Some(other) = self.other_device.as_mut() else { return };
        match other.poll().cloned() {
            Some(painted) => {
                self.other_device = None;
                let Some(painted) = painted else { return };
                // Numbers of blocks, sites and streams, and moments, are each device's own.
                let Sight { coloring, axis, .. } = self.sight;
                self.marks.clear();
                self.history = History::default();
                self.show(painted);
                let at = self.sight.at;
                self.sight = Sight::at(at, coloring, axis);
            }
            None if other.is_running() => {}
            None => self.other_device = None,
        }
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
        self.other_device.is_some() || self.is_late() || self.panels.is_busy()
    }
}

/// A recording where a person wants to look first, ready to be shown.
pub fn first_look(recording: &Arc<Recording>, coloring: Coloring) -> Arc<Painted> {
    Arc::new(Painted::at(recording, recording.first_look(), (coloring, None)))
}
