//! Call stacks, each frame and each stack held once.

use crate::pickle::Text;
use std::collections::HashMap;
use std::num::NonZeroU32;

/// One line of a program on a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Path of the source file.
    pub file: Text,
    /// Function.
    pub name: Text,
    /// Line, from 1; 0 where the file does not say.
    pub line: u32,
}

/// A frame in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub(super) u32);

impl FrameId {
    /// Position among the frames, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0
    }
}

/// A stack in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(NonZeroU32);

impl StackId {
    pub(super) fn at(at: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(at))
    }

    /// Position among the stacks, from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// All frames and stacks of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    /// All stacks back to back.
    flat: Vec<FrameId>,
    ends: Vec<usize>,
    known_frames: HashMap<Frame, FrameId>,
    known_stacks: HashMap<Vec<FrameId>, StackId>,
}

impl Stacks {
    /// The frames of a stack, innermost first.
    #[must_use]
    pub fn get(&self, stack: StackId) -> &[FrameId] {
        let at = stack.index() as usize;
        let Some(&end) = self.ends.get(at) else { return &[] };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.flat[start..end]
    }

    /// One frame; `None` for the name of a frame from another snapshot.
    #[must_use]
    pub fn frame(&self, frame: FrameId) -> Option<Frame> {
        self.frames.get(frame.0 as usize).copied()
    }

    /// Number of different stacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when no stack was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn intern_frame(&mut self, frame: Frame) -> FrameId {
        let next = FrameId(self.frames.len() as u32);
        *self.known_frames.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            next
        })
    }

    /// `None` for an empty stack: no frames were recorded.
    pub(crate) fn intern_stack(&mut self, frames: Vec<FrameId>) -> Option<StackId> {
        if frames.is_empty() {
            return None;
        }
        if let Some(&known) = self.known_stacks.get(&frames) {
            return Some(known);
        }
        let stack = StackId::at(self.ends.len() as u32);
        self.flat.extend_from_slice(&frames);
        self.ends.push(self.flat.len());
        self.known_stacks.insert(frames, stack);
        Some(stack)
    }

    /// Replaces every frame. Stacks keep their numbers.
    pub(crate) fn rename(&mut self, mut new: impl FnMut(Frame) -> Frame) {
        self.frames.iter_mut().for_each(|frame| *frame = new(*frame));
    }

    /// Forgets what only reading needs.
    pub(crate) fn seal(&mut self) {
        self.known_frames = HashMap::new();
        self.known_stacks = HashMap::new();
    }
}
