//! Replays a recorded workload through an [`Allocator`](terrane_core::Allocator) on any device.
//!
//! On the model ([`Target::Sim`]) at full size this measures the allocator: the virtual clock
//! follows the recorded times, and what is assumed is stated here. A free that completed (`f`)
//! means that no work uses the block any more, on any stream; with [`Policy::Wait`] the block is
//! freed where its free was *requested*, behind a use that ends exactly at its `f`.
//!
//! On a real device it proves contents and order: every block is filled by a kernel with a
//! pattern of its own and verified before its memory can be used again, in batches, on several
//! streams at once. A block that another stream still used when its free was requested is
//! verified on another stream. Uses are recorded as any program's are, so memory is reused in
//! stream order whatever the policy.
//!
//! ```
//! use terrane_core::device::sim::Sim;
//! use terrane_trace::replay::{Options, Replay, Target};
//! let csv = b"t_us,op,block,size,stream\n5,a,0,4096,0\n9,r,0,4096,0\n9,f,0,4096,0\n";
//! let trace = terrane_trace::read_csv(&csv[..], terrane_trace::Limits::default())?;
//! let target = Target::Sim(Sim::cuda().open());
//! let report = Replay::new("example", &trace, target, &Options::default())?.run()?;
//! assert_eq!((report.failures, report.peak_active), (0, 4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod contents;
mod engine;
mod error;
mod mapping;
mod options;
mod overlap;
mod placements;
mod report;
mod search;
mod target;
mod warm;

pub use engine::Replay;
pub use error::ReplayError;
pub use options::{Capacity, Options, Policy};
pub use report::Report;
pub use search::{Row, Smallest, find_capacity, sweep};
pub use target::Target;
pub use warm::{Warmed, warm};
