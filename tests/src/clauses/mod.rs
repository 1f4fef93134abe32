//! The table of clauses.

mod blocks;
mod books;
mod caps;
mod checks;
mod compute;
mod ending;
mod errors;
mod fork;
mod graphs;
mod host;
pub(crate) mod kernels;
mod loss;
mod memory;
mod moves;
mod paging;
mod pausing;
mod reuse;
mod sharing;
mod stealing;
mod streams;
mod views;
mod work;
mod wrapped;

use crate::clause::{Blame, Clause, Level, Need, Outcome};
use crate::rig::Rig;

/// All areas, devices first.
const AREAS: &[&[Clause]] = &[
    caps::CLAUSES,
    memory::CLAUSES,
    work::CLAUSES,
    streams::CLAUSES,
    compute::CLAUSES,
    kernels::CLAUSES,
    host::CLAUSES,
    paging::CLAUSES,
    views::CLAUSES,
    loss::CLAUSES,
    fork::CLAUSES,
    wrapped::CLAUSES,
    sharing::CLAUSES,
    blocks::CLAUSES,
    reuse::CLAUSES,
    stealing::CLAUSES,
    errors::CLAUSES,
    books::CLAUSES,
    moves::CLAUSES,
    pausing::CLAUSES,
    graphs::CLAUSES,
    checks::CLAUSES,
    ending::CLAUSES,
];

/// Every clause, in the order in which they are run.
pub fn all() -> impl Iterator<Item = &'static Clause> {
    AREAS.iter().copied().flatten()
}

/// The clause of a name.
pub fn find(id: &str) -> Option<&'static Clause> {
    all().find(|clause| clause.id == id)
}

/// One row of an area's table: id, sentence, needs, reference, blame, function.
const fn device(
    id: &'static str,
    sentence: &'static str,
    needs: &'static [Need],
    reference: &'static str,
    blames: Blame,
    run: fn(&Rig) -> Outcome,
) -> Clause {
    Clause { id, sentence, level: Level::Device, needs, reference, blames, run }
}

/// As [`device`], for the allocator.
const fn allocator(
    id: &'static str,
    sentence: &'static str,
    needs: &'static [Need],
    reference: &'static str,
    run: fn(&Rig) -> Outcome,
) -> Clause {
    Clause { id, sentence, level: Level::Allocator, needs, reference, blames: Blame::Core, run }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_has_a_name_of_its_own_and_says_where_the_rule_is() {
        let mut ids: Vec<&str> = all().map(|clause| clause.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "two clauses have one name");
        for clause in all() {
            assert!(clause.id.contains('.') && !clause.reference.is_empty(), "{}", clause.id);
            assert!(clause.sentence.ends_with('.'), "{}: no sentence", clause.id);
        }
    }
}
