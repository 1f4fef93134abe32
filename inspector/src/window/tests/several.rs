//! Several runs and several programs at once, each a document of its own.

use egui_kittest::kittest::Queryable as _;

use super::states::comes_to;
use super::*;
use crate::window::commands::Command;

fn events(inspector: &Inspector, document: usize) -> usize {
    inspector.documents.get(document).map_or(0, |document| document.recording.events.len())
}

#[test]
fn a_file_is_replayed_beside_a_demo_and_closing_one_run_leaves_the_other_and_the_file() {
    let mut harness = harness(with_file(STREAMS), true, false);
    harness.run_steps(2);
    let ctx = harness.ctx.clone();
    let file = events(harness.state(), 0);
    harness.state_mut().act(&ctx, Command::ReplaySim);
    let is_there = |it: &mut Inspector| events(it, 1) > 100;
    assert!(comes_to(&mut harness, is_there), "the replay was not followed");
    harness.state_mut().act(&ctx, Command::RunDemo);
    let is_there = |it: &mut Inspector| events(it, 2) > 100;
    assert!(comes_to(&mut harness, is_there), "the demo was not followed");
    let names: Vec<String> =
        harness.state().documents.iter().map(|it| it.recording.name.clone()).collect();
    assert!(names[1].contains("multistream") && names[2].contains("gpt2"), "{names:?}");
    // Each goes on while the other does, and the bar says so.
    let seen = [events(harness.state(), 1), events(harness.state(), 2)];
    let grow = move |it: &mut Inspector| (1..3).all(|at| events(it, at) > seen[at - 1]);
    assert!(comes_to(&mut harness, grow), "one of them stands still");
    assert_eq!(harness.query_all_by_label("goes on").count(), 2);
    // The run shown is the one that the button stops: here the demo's.
    assert_eq!(harness.query_all_by_label("Stop").count(), 1);
    // Closed: what it still tells is nobody's, and the demo goes on in its place.
    harness.state_mut().current = 1;
    harness.state_mut().act(&ctx, Command::CloseFile);
    let seen = events(harness.state(), 1);
    let grows = move |it: &mut Inspector| events(it, 1) > seen + 50;
    assert!(comes_to(&mut harness, grows), "the demo was harmed");
    harness.run_steps(20);
    let names: Vec<String> =
        harness.state().documents.iter().map(|it| it.recording.name.clone()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[1].contains("gpt2"), "{names:?}");
    assert_eq!(events(harness.state(), 0), file, "the file is as it was");
    harness.state_mut().act(&ctx, Command::StopRun);
    assert!(comes_to(&mut harness, |it| it.runs.is_empty()), "it does not stop");
}

#[test]
fn a_command_for_a_run_says_when_it_is_not_clear_which_one_is_meant() {
    let mut harness = harness(with_file(STREAMS), true, false);
    harness.run_steps(2);
    let ctx = harness.ctx.clone();
    harness.state_mut().act(&ctx, Command::CompactNow);
    assert!(harness.state().notices[0].text.contains("Nothing runs here"));
    for _ in 0..2 {
        harness.state_mut().act(&ctx, Command::RunDemo);
    }
    assert!(comes_to(&mut harness, |it| it.documents.len() == 3), "two runs are two documents");
    harness.state_mut().current = 0;
    harness.state_mut().act(&ctx, Command::StopRun);
    assert_eq!(harness.state().runs.len(), 2);
    assert!(harness.state().notices[1].text.contains("Several runs go on"));
    for at in [2, 1] {
        harness.state_mut().current = at;
        harness.state_mut().act(&ctx, Command::StopRun);
    }
    assert!(comes_to(&mut harness, |it| it.runs.is_empty()), "they do not stop");
    assert_eq!(harness.state().documents.len(), 3, "what was seen stays");
}
