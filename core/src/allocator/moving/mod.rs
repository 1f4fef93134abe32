//! Moving live blocks while work goes on.
//!
//! A move's way: planned (`survey`, [`crate::compact`]) -> reserved (`reserve`) -> submitted
//! (`submit`, `copies`) -> the address flips (`flip`) -> committed, dropped or found corrupt
//! (`settle`); or cancelled before the flip. `docs/life-of-a-move.md` tells it in order.
//!
//! # Why no write is lost
//! While the copy of a block is being submitted the block is flagged *moving*. Whoever resolves
//! it in that time gets the old place and turns the flag to *touched*: the move is then given up,
//! since the copy may miss what the resolver's work writes. Otherwise the place changes under the
//! lock right after the submission, with the copy's sync point as a wait for everybody. A free in
//! that time is put off to its end. A block that slides over its own old place is flagged
//! *sliding* instead: a resolver waits until its place has changed.

mod anew;
mod compactor;
mod copies;
mod flip;
mod look;
mod offer;
mod paged;
mod remap;
mod report;
mod reserve;
mod rung;
mod settle;
mod slide;
mod spaces;
mod state;
mod submit;
mod survey;

pub use compactor::{Compactor, Progress};
pub use offer::{Answer, Offer};
pub use report::{Corrupt, MoveChoice, PassReport};
pub(super) use settle::room_for_moves;
pub(crate) use state::Moves;
