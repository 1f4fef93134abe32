//! The conformance suite: what every device, and the allocator on it, has to do.
//!
//! A [`Clause`] is one sentence of the contract with the function that tries to break it. All of
//! them are in one table, [`clauses::all`]. [`Rig`] is what they run on: a device under test with
//! the means that a test needs, such as work that is done only when the test says so. [`run`] runs
//! one clause and never panics.
//!
//! A backend elsewhere tests its device so:
//!
//! ```
//! use std::sync::Arc;
//! use terrane_core::device::sim::Sim;
//! use terrane_tests::{Ending, Plan, Source, clauses, run};
//!
//! let device = Sim::slabs().bytes(true).open();
//! let plan = Plan::new(Source::shared(Arc::new(device)));
//! let clause = clauses::find("memory.too-large").expect("a clause of the table");
//! assert_eq!(run(clause, &plan).ending, Ending::Passed);
//! ```
//!
//! [`probe::Flaw`] is how the suite tests itself: each flaw breaks a device or an allocator in one
//! way, which some clause has to notice.

mod busy;
mod calls;
mod clause;
pub mod clauses;
pub mod expected;
#[cfg(feature = "program")]
mod gate;
pub mod mutants;
mod native;
#[cfg(feature = "program")]
pub mod outcome;
mod plan;
pub mod probe;
#[cfg(feature = "program")]
pub mod program;
mod random;
mod rig;
mod run;
mod spin;
mod subject;

pub use busy::{Busy, Held, Keeper};
pub use calls::CallLog;
pub use clause::{Blame, Clause, Level, Need, Outcome, Stop};
pub use native::{Captures, Foreign, Imported, Imports, Mapped};
pub use plan::{Plan, Source};
pub use random::Random;
pub use rig::Rig;
pub use run::{Ending, Verdict, run};
pub use subject::Subject;
