//! Traces of GPU memory: reading, recording, replaying and explaining them.
//!
//! A [`Trace`] is the one form in which a recorded workload is held here: a list of
//! [`Event`]s over densely numbered blocks, checked while it was built, so that whoever replays
//! it need not check again. [`read_csv`] reads the recorded CSV form, plain or gzipped;
//! [`recording::open_recording`] opens any file that is read and finds out what it is.
//!
//! ```
//! let csv = b"t_us,op,block,size,stream\n5,a,0,4096,0\n9,r,0,4096,0\n9,f,0,4096,0\n";
//! let trace = terrane_trace::read_csv(&csv[..], terrane_trace::Limits::default())?;
//! assert_eq!(trace.figures().peak_requested, 4096);
//! # Ok::<(), terrane_trace::ReadError>(())
//! ```

mod csv;
pub mod diagnose;
mod error;
pub mod export;
pub mod file;
pub mod import;
mod input;
#[cfg(feature = "live")]
pub mod live;
pub mod model;
pub mod pickle;
pub mod recording;
pub mod replay;
pub mod snapshot;
mod workload;

pub use csv::{open_csv, read_csv};
pub use error::{Field, ReadError, Reason};
pub use input::Limits;
pub use workload::{Event, Figures, Lifetime, Op, Trace, TraceBuilder};
