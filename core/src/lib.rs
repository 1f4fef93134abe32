//! Terrane's allocator: pools, stream order, budgets and compaction, without any GPU crate.
//!
//! The layers, bottom to top; each may use only those above it in this list:
//!
//! | layer | modules |
//! |---|---|
//! | L0 | [`units`], [`id`], [`kind`], [`point`], [`error`], [`size_class`] |
//! | L1 | [`range`], [`event`], [`stats`] |
//! | L2 | [`device`] |
//! | L3 | [`request`](Request), [`pages`], [`budget`](Limit), [`pool`](Growth) |
//! | L4 | [`compact`], [`Allocator`] |
#![deny(unsafe_code)]

mod allocator;
mod budget;
pub mod compact;
pub mod device;
pub mod error;
pub mod event;
pub mod id;
pub mod kind;
pub mod pages;
pub mod point;
mod pool;
pub mod range;
mod request;
pub mod size_class;
pub mod stats;
#[cfg(not(loom))]
mod sync;
#[cfg(loom)]
pub mod sync;
pub mod units;

pub use allocator::{
    Allocation, Allocator, Answer, BlockInfo, BlockView, Budget, Buffer, Charge, Checks, Compactor,
    Config, Contents, Corrupt, Damage, DamageKind, Frame, Graph, Handle, HeapReport, Keep, Leak,
    Mapped, MoveChoice, Offer, PassReport, PauseReport, Pin, Prefer, Progress, Raw, Resolved,
    Reuse, Scrub, Section, SectionPeaks, SegmentInfo, Selection, Slice, Snapshot, Submission,
    Suspect, Warming,
};
pub use budget::Limit;
pub use error::{Error, Shortage};
pub use kind::MemoryKind;
pub use pool::{Growth, PartState};
pub use request::{Request, Tag, Wait};
