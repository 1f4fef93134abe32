//! Running one clause.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use crate::clause::{Clause, Outcome, Stop};
use crate::plan::Plan;
use crate::rig::Rig;

/// How a clause ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It holds.
    Passed,
    /// It does not, and how that showed.
    Failed(String),
    /// It could not be tried, and why.
    Skipped(String),
}

/// A clause and how it ended.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The clause.
    pub clause: &'static Clause,
    /// How it ended.
    pub ending: Ending,
}

/// Runs a clause on a device of its own, or on the one that is shared. A clause that panics or
/// does not end has failed; the thread of one that does not end is left behind.
pub fn run(clause: &'static Clause, plan: &Plan) -> Verdict {
    let (tell, told) = mpsc::channel();
    let (mine, patience) = (plan.clone(), plan.patience);
    let thread = std::thread::Builder::new().name(clause.id.to_owned());
    let spawned = thread.spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(clause, &mine)));
        // First: who is told may be the last one that has the device, and close it.
        drop(mine);
        // Nobody listens any more when the time was over.
        let _ = tell.send(outcome.unwrap_or_else(|panic| Err(Stop::failed(text_of(&*panic)))));
    });
    let outcome = match spawned {
        Ok(thread) => {
            let outcome = told.recv_timeout(patience * 4 + Duration::from_secs(20));
            if outcome.is_ok() {
                // It has nothing more to do, and is not to be met by the end of the process.
                let _ = thread.join();
            }
            outcome
        }
        Err(error) => Ok(Err(Stop::Skipped(format!("no thread for the clause: {error}")))),
    };
    let ending = match outcome {
        Ok(Ok(())) => Ending::Passed,
        Ok(Err(Stop::Failed(text))) => Ending::Failed(text),
        Ok(Err(Stop::Skipped(why))) => Ending::Skipped(why),
        Err(_) => Ending::Failed("the clause did not end in time".to_owned()),
    };
    Verdict { clause, ending }
}

fn attempt(clause: &Clause, plan: &Plan) -> Outcome {
    let rig = Rig::open(plan)?;
    if let Some(need) = rig.lacks(clause) {
        return Err(Stop::Skipped(need.lacking().to_owned()));
    }
    let outcome = (clause.run)(&rig);
    // Given back in any case, since the device may be shared; the clause's own failure comes first.
    let finished = rig.finish(clause.level);
    outcome.and(finished)
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a text"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use terrane_core::device::Device;
    use terrane_core::device::sim::Sim;

    use super::*;
    use crate::{Source, clauses};

    #[test]
    fn who_has_a_verdict_is_the_only_one_that_has_the_device() {
        let device: Arc<dyn Device> = Arc::new(Sim::slabs().open());
        let plan = Plan::new(Source::Shared(Arc::clone(&device), None));
        let clause = clauses::find("caps.clock").expect("a clause of the table");
        for _ in 0..500 {
            assert_eq!(run(clause, &plan).ending, Ending::Passed);
            assert_eq!(Arc::strong_count(&device), 2, "a clause that is over has the device");
        }
    }
}
