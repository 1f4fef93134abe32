//! A recording that grows: the events of an allocator of ours as they come, over a live connection.

use super::own;
use super::walk::Walk;
use super::{Format, Recording};
use crate::Reason;
use crate::file::{Ending, HeapState, Meta, Text, TextKind};
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use terrane_core::event::Event;

/// What came so far.
#[derive(Clone, Debug, Default)]
pub struct Follow {
    snapshot: Snapshot,
    tags: BTreeMap<u16, String>,
    walk: Walk,
    meta: Option<Meta>,
    left_out: u64,
}

impl Follow {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where it comes from.
    pub fn meta(&mut self, meta: Meta) {
        self.meta = Some(meta);
    }

    /// Names that events use from now on.
    pub fn texts(&mut self, texts: &[Text]) {
        own::add_sites(texts, &mut self.snapshot, &mut self.walk.sites);
        self.walk.name();
        for text in texts.iter().filter(|text| text.kind == TextKind::Tag) {
            if let Ok(number) = u16::try_from(text.number) {
                self.tags.insert(number, text.text.clone());
            }
        }
    }

    /// The full state: at the beginning, and after events were lost.
    ///
    /// # Errors
    /// [`Reason`] for sizes that cannot all exist.
    pub fn state(&mut self, state: &HeapState) -> Result<(), Reason> {
        self.walk.keyframe(state.sequence, &state.to_events())
    }

    /// The full state, where nothing came before it.
    pub(super) fn begin_with(&mut self, state: HeapState) -> Result<(), Reason> {
        self.walk.begin_with(state)
    }

    /// What happened since.
    ///
    /// # Errors
    /// [`Reason`] for sizes that cannot all exist.
    pub fn events(&mut self, events: &[Event]) -> Result<(), Reason> {
        events.iter().try_for_each(|event| self.walk.take(event))
    }

    /// Events of the recording so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.walk.len()
    }

    /// True before the first event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events that were lost on the way.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.walk.lost
    }

    /// Leaves the events so far out and goes on from the state that they led to, so that whoever
    /// looks on for days does not run out of memory.
    ///
    /// # Errors
    /// [`Reason`] for sizes that cannot all exist.
    pub fn begin_anew(&mut self) -> Result<(), Reason> {
        self.left_out = self.left_out.saturating_add(self.walk.len() as u64);
        let old = std::mem::take(&mut self.walk);
        self.walk.sites = old.sites;
        self.walk.lost = old.lost;
        self.walk.keyframe(old.state.sequence, &old.state.to_events())
    }

    /// What came so far, as a recording.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.clone().into_recording()
    }

    /// The same, where nothing more is to come.
    #[must_use]
    pub fn into_recording(self) -> Recording {
        let (mut snapshot, walk) = (self.snapshot, self.walk);
        snapshot.stacks.seal();
        let mut lacks = own::lacks(Ending::Finished, &walk);
        if self.left_out > 0 {
            lacks.push(format!("{} older events were left out to save memory", self.left_out));
        }
        own::fill(&mut snapshot, &walk);
        let stacks = walk.stacks_taken();
        Recording {
            format: Format::Terrane,
            snapshot,
            histories: vec![walk.finish()],
            dump: None,
            tags: self.tags,
            meta: self.meta,
            stacks,
            lacks,
        }
    }
}
