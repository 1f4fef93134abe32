//! Compaction: what to move so that free memory comes together. Pure: no device, no clock.
//!
//! A [`PoolView`] says what lies where in the segments of one pool; [`plan`] answers with the
//! moves that reach a [`Goal`] within [`Limits`]. The same view gives the same plan. Who makes
//! the view, reserves the places and submits the copies is the allocator (`allocator/moving`).
//!
//! # What a plan costs
//! Bytes moved, not blocks. For *N contiguous bytes* every stretch of a segment in which nothing
//! is immovable is looked at: the live bytes of a stretch are its cost, whether they are placed
//! into holes elsewhere or slid together, and the cheapest stretch that yields the bytes wins.
//! Blocks that fit into holes elsewhere are placed there, tightest hole first; the others are
//! slid to one end.
//!
//! # What a plan never does
//! It never raises the top (the end of the last live block of the highest segment in use), never
//! moves more bytes or blocks than the limits say, never touches what is held, and does nothing
//! where the goal is met already.

mod chain;
mod course;
mod goal;
mod holes;
mod paged;
mod plan;
mod release;
mod report;
mod squeeze;
#[cfg(test)]
mod tests;
mod view;
mod window;

pub use course::{Leg, course};
pub use goal::{Goal, Limits, Mode, Verify};
pub(crate) use paged::worth_making;
pub use paged::{PageView, PagedMove, PagedView, free_pages};
pub use plan::{Chain, Move, Plan, Slide, To, plan};
pub use report::{Refused, Verdict, Verdicts, Why};
pub use view::{Part, PoolView, SegmentView, What};
