//! Every clause fails on a mutant made for it: one that nothing can fail would say nothing.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use terrane_tests::probe::Flaw;
use terrane_tests::{Ending, clauses, mutants, run};

#[test]
fn every_clause_has_a_mutant() {
    let rows = mutants::table().unwrap();
    let named: BTreeMap<_, _> = rows.iter().map(|row| (row.clause, row)).collect();
    let missing: Vec<_> = clauses::all().filter(|clause| !named.contains_key(clause.id)).collect();
    assert!(missing.is_empty(), "without a mutant: {missing:?}");
    assert_eq!(named.len(), clauses::all().count(), "a row names no clause");
}

/// A way to be broken that no clause notices says that a clause is missing.
#[test]
fn every_flaw_is_noticed_by_a_clause() {
    let rows = mutants::table().unwrap();
    let named: BTreeSet<_> = rows.iter().map(|row| row.flaw).collect();
    let missing: Vec<_> = Flaw::ALL.iter().filter(|flaw| !named.contains(flaw)).collect();
    assert!(missing.is_empty(), "noticed by no clause: {missing:?}");
}

#[test]
fn every_clause_fails_on_its_mutant() {
    let rows = Mutex::new(mutants::table().unwrap());
    let survived = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(row) = rows.lock().unwrap().pop() else { break };
                    let clause = clauses::find(row.clause).unwrap();
                    let plan = mutants::plan(row.device, row.flaw, Duration::from_millis(500));
                    let ending = run(clause, &plan.unwrap()).ending;
                    if !matches!(ending, Ending::Failed(_)) {
                        survived.lock().unwrap().push(format!("{row:?}: {ending:?}"));
                    }
                }
            });
        }
    });
    let survived = survived.into_inner().unwrap();
    assert!(survived.is_empty(), "mutants that their clauses let pass:\n{}", survived.join("\n"));
}
