//! Call stacks of live memory as nested boxes: a flame graph (callers below) or an icicle.

use std::collections::BTreeMap;

use crate::window::model::{Moment, NEVER, PartState, Recording};

/// A frame with everything that was called from it.
#[derive(Debug, Default)]
struct Node {
    bytes: u64,
    blocks: u64,
    children: BTreeMap<u32, Node>,
}

/// A box of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Box {
    /// Index into [`crate::window::model::Places::frames`]; [`NEVER`] for the root.
    pub frame: u32,
    /// Levels above it.
    pub depth: usize,
    /// Bytes before it, from the left.
    pub from: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Blocks in it.
    pub blocks: u64,
}

/// Live memory by call stack.
#[derive(Debug, Default, PartialEq)]
pub struct Flame {
    /// Boxes, parents before children; the first is everything.
    pub boxes: Vec<Box>,
    /// Bytes of blocks without a call stack.
    pub without: u64,
    /// Levels.
    pub depth: usize,
}

impl Flame {
    /// Adds up a moment. With `by_callee` the innermost frame is outermost in the picture: who
    /// calls this?
    pub fn of(recording: &Recording, moment: &Moment, by_callee: bool) -> Self {
        let mut root = Node::default();
        let mut without = 0;
        for part in moment.parts.iter().filter(|part| part.state == PartState::Live) {
            let Some(block) = recording.blocks.get(part.block as usize) else { continue };
            let Some(stack) = recording.places.stacks.get(block.stack as usize) else {
                without += block.requested;
                continue;
            };
            root.bytes += block.requested;
            root.blocks += 1;
            let mut node = &mut root;
            let add = |node: &mut Node| {
                node.bytes += block.requested;
                node.blocks += 1;
            };
            if by_callee {
                for frame in stack {
                    node = node.children.entry(*frame).or_default();
                    add(node);
                }
            } else {
                for frame in stack.iter().rev() {
                    node = node.children.entry(*frame).or_default();
                    add(node);
                }
            }
        }
        let mut flame = Self { boxes: Vec::new(), without, depth: 0 };
        if root.bytes > 0 {
            flame.place(NEVER, &root, 0, 0);
        }
        flame
    }

    fn place(&mut self, frame: u32, node: &Node, depth: usize, from: u64) {
        // Recorded stacks are at most some hundred frames deep; deeper ones are cut.
        if depth > 250 {
            return;
        }
        self.depth = self.depth.max(depth + 1);
        self.boxes.push(Box { frame, depth, from, bytes: node.bytes, blocks: node.blocks });
        let mut children: Vec<(&u32, &Node)> = node.children.iter().collect();
        children.sort_by_key(|(frame, child)| (std::cmp::Reverse(child.bytes), **frame));
        let mut at = from;
        for (frame, child) in children {
            self.place(*frame, child, depth + 1, at);
            at += child.bytes;
        }
    }
}
