//! The whole suite on the template: what a backend's own test looks like.

use std::sync::Arc;

use backend_template::Template;
use terrane_tests::{Ending, Plan, Source, clauses, run};

#[test]
fn every_clause_holds_or_says_what_the_device_lacks() {
    let plan = Plan::new(Source::shared(Arc::new(Template::open())));
    let (mut passed, mut failed) = (0, Vec::new());
    for clause in clauses::all() {
        match run(clause, &plan).ending {
            Ending::Passed => passed += 1,
            Ending::Skipped(why) => println!("{} skipped: {why}", clause.id),
            Ending::Failed(text) => failed.push(format!("{}: {text}", clause.id)),
        }
    }
    println!("{passed} passed");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(passed > 100, "only {passed} clauses could be tried");
}
