//! Before a file is open, while one is opened, and when that fails.

use egui_kittest::kittest::Queryable as _;

use super::*;
use crate::window::commands::Command;
use crate::window::run::Work;

#[test]
fn an_empty_window_says_what_to_do() {
    let mut harness = harness(Inspector::new(Settings::default(), None), false, false);
    harness.run_steps(2);
    for label in ["Open file…", "Type a path…", "Run the demo workload"] {
        assert!(harness.query_all_by_label(label).count() > 0, "{label}");
    }
}

#[test]
fn a_bad_file_is_named_with_what_is_wrong_and_the_window_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let cut = dir.path().join("cut.csv");
    std::fs::write(&cut, "t_us,op,block,size,stream\n1,a,0,1000,0\n2,f,0,10").unwrap();
    let mut harness = harness(with_file(STREAMS), false, false);
    harness.run_steps(2);
    let ctx = harness.ctx.clone();
    harness.state_mut().load(&ctx, cut);
    harness.state_mut().load(&ctx, dir.path().join("absent.pickle"));
    settled(&mut harness);
    for words in ["line 3", "absent.pickle could not be opened"] {
        assert!(harness.query_all_by_label_contains(words).count() > 0, "{words}");
    }
    assert_eq!(harness.state().documents.len(), 1);
    harness.get_all_by_label("×").next().unwrap().click();
    harness.run_steps(3);
    assert_eq!(harness.state().notices.len(), 1);
}

#[test]
fn every_view_has_a_page_for_a_file_without_history() {
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("vma.json");
    let text = r#"{"General": {"API": "Vulkan"}, "DefaultPools": {"Type 0": {"Blocks": {"0":
        {"MapRefCount": 0, "TotalBytes": 1048576, "Suballocations": [
        {"Offset": 0, "Type": "BUFFER", "Size": 4096, "Name": "vertices"},
        {"Offset": 4096, "Type": "FREE", "Size": 1044480}]}}}}}"#;
    std::fs::write(&dump, text).unwrap();
    for view in View::ALL {
        let recording = open(&dump, &Progress::default()).unwrap();
        let mut inspector = Inspector::new(Settings::default(), None);
        inspector.add(recording);
        inspector.show_only(Some(view));
        let mut harness = harness(inspector, true, false);
        settled(&mut harness);
        assert!(harness.query_all_by_label_contains(view.title()).count() > 0, "{view:?}");
    }
}

/// A log of RMM in which a request failed, though more was live before.
fn failed_log() -> String {
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    let rows = ["allocate,0x1,734003200", "free,0x1,734003200", "allocate,0x2,67108864"];
    for (second, row) in rows.iter().chain(&["allocate failure,(nil),536870912"]).enumerate() {
        text += &format!("1,01:00:0{second}.5,{row},0\n");
    }
    text
}

#[test]
fn a_log_is_explained_by_the_verdict_and_the_remedies_of_the_command() {
    use crate::commands::failure::Failure;
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("rmm.csv");
    std::fs::write(&log, failed_log()).unwrap();
    let recording = open(&log, &Progress::default()).unwrap();
    assert_eq!(recording.failures.len(), 1);
    let facts = recording.facts.as_ref().unwrap();
    let history = facts.history().unwrap();
    let known = terrane_trace::diagnose::Known::default();
    let found = Failure::of(facts.read(), history, known).unwrap().unwrap();
    let verdict = found.verdict();
    let mut said = vec![verdict.split_once(": ").unwrap().1[1..].to_owned()];
    said.extend(found.numbers().into_iter().map(|(_, _, meaning)| meaning));
    said.extend(found.served_by().iter().map(|served| served.model.clone()));
    assert!(said.len() > 4, "{said:?}");
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording);
    inspector.show_only(Some(View::Explain));
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    for words in said {
        assert!(harness.query_all_by_label_contains(&words).count() > 0, "{words}");
    }
    harness.get_by_label("Show the moment").click();
    harness.run_steps(3);
    assert_eq!(harness.state_mut().document().unwrap().sight.at, 4);
}

#[test]
fn small_windows_and_large_text_lose_nothing() {
    for (size, scale) in [([460.0, 320.0], 1.0), ([900.0, 600.0], 3.0), ([3000.0, 1500.0], 0.5)] {
        let mut harness = harness(with_file(OOM), true, false);
        harness.set_size(size.into());
        harness.ctx.set_zoom_factor(scale);
        harness.run_steps(4);
        assert!(harness.query_all_by_label("File").count() > 0, "{size:?}");
        // Nothing lies over the menus.
        let menus = harness.get_by_label("Help").rect();
        let shortcuts = harness.query_all_by_label("Leak hunt").map(|node| node.rect());
        for rect in shortcuts {
            assert!(rect.left() > menus.right(), "{size:?}: {rect:?} over {menus:?}");
        }
    }
}

#[test]
fn compaction_in_a_run_is_seen_as_moves_with_goal_and_limits() {
    use crate::window::model::Moment;
    use terrane_core::event::MoveKind;
    use terrane_trace::live::{Aim, Compact};
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    harness.run_steps(2);
    let ctx = harness.ctx.clone();
    let work = Work::Demo { device: "sim:slabs", compacts: false };
    harness.state_mut().start_run(&ctx, work);
    let is_there = |it: &mut Inspector| {
        it.document().is_some_and(|document| document.recording.events.len() > 500)
    };
    assert!(comes_to(&mut harness, is_there), "the run is not followed");
    // Asked for with limits of the person's own, which the pass keeps and tells.
    harness.state_mut().show_only(Some(View::Compaction));
    let asked = Compact { aim: Aim::Fragmentation(0), moves_max: 3, ..Compact::default() };
    harness.state_mut().document().unwrap().panels.compaction.asked = asked;
    harness.run_steps(3);
    for name in ["goal of compact now", "bytes moved at most", "milliseconds at most"] {
        assert!(harness.query_all_by_label(name).count() > 0, "{name} is no field");
    }
    let is_told = |it: &mut Inspector| {
        let passes = &it.document().unwrap().recording.passes;
        let told = "goal: fragmentation of at most 0.0 %; full speed; at most 3 blocks, 2000 ms";
        passes.iter().any(|pass| pass.asked == told)
    };
    let begin = std::time::Instant::now();
    while !is_told(harness.state_mut()) {
        assert!(begin.elapsed().as_secs() < 60, "no pass told its limits");
        harness.get_all_by_label("Compact now").last().unwrap().click();
        harness.run_steps(10);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let moved = |it: &mut Inspector| !it.document().unwrap().recording.moves.is_empty();
    assert!(comes_to(&mut harness, moved), "nothing moved");
    harness.state_mut().runs[0].stop();
    assert!(comes_to(&mut harness, |it| it.runs.is_empty()), "it does not stop");
    let recording = Arc::clone(&harness.state_mut().document().unwrap().recording);
    let ranges = recording.move_ranges();
    let before = Moment::of(&recording, ranges[0].start);
    assert!(!recording.shifts(&before, &ranges[0]).is_empty());
    assert!(recording.moves.iter().all(|one| one.by != MoveKind::Untold));
    harness.run_steps(3);
    let told = "at most 3 blocks, 2000 ms";
    assert!(harness.query_all_by_label_contains(told).count() > 0, "the pass does not show them");
}

#[test]
fn a_run_inside_the_window_tells_all_that_a_program_tells_which_is_looked_on_at() {
    use crate::window::model::Hold;
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    harness.run_steps(2);
    let ctx = harness.ctx.clone();
    harness.state_mut().start_run(&ctx, Work::Demo { device: "sim", compacts: false });
    let is_full = |it: &mut Inspector| {
        let Some(document) = it.document() else { return false };
        let recording = &document.recording;
        recording.events.len() > 5_000 && !recording.stale.is_empty()
    };
    assert!(comes_to(&mut harness, is_full), "no page was seen to be taken");
    harness.state_mut().runs[0].stop();
    assert!(comes_to(&mut harness, |it| it.runs.is_empty()), "it does not stop");
    let document = harness.state_mut().document().unwrap();
    let recording = Arc::clone(&document.recording);
    assert!(recording.facts.is_some() && recording.is_live, "the diagnosis has its facts");
    assert!(recording.notes.iter().all(|note| !note.contains("lost")), "{:?}", recording.notes);
    assert!(recording.blocks.iter().all(|block| block.hold != Hold::Unknown));
    assert!(recording.segments.iter().any(|segment| segment.object.is_some()), "pages");
    assert!(!recording.limits.is_empty() && !recording.kinds.is_empty());
}

#[test]
fn a_run_inside_the_window_is_followed_live() {
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    harness.run_steps(2);
    harness.get_by_label("Run the demo workload").click();
    let begin = std::time::Instant::now();
    let mut seen = 0;
    while begin.elapsed().as_secs() < 20 && seen < 3 {
        harness.run_steps(1);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let Some(document) = harness.state_mut().document() else { continue };
        if document.recording.events.len() > seen * 50 + 1 {
            seen += 1;
        }
    }
    assert!(seen >= 3, "the run was not followed");
    let document = harness.state_mut().document().unwrap();
    assert!(document.moment.reserved >= document.moment.live && document.moment.live > 0);
    harness.state_mut().runs[0].stop();
}

/// Runs frames until something is so, or 90 s have passed; tells whether it came to be.
pub fn comes_to(
    harness: &mut Harness<'_, Inspector>,
    is_so: impl Fn(&mut Inspector) -> bool,
) -> bool {
    let begin = std::time::Instant::now();
    while begin.elapsed().as_secs() < 90 {
        harness.run_steps(1);
        if is_so(harness.state_mut()) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    false
}

#[test]
fn a_run_on_a_vulkan_device_of_its_own_compacts_and_is_followed() {
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    harness.run_steps(2);
    let ctx = harness.ctx.clone();
    harness.state_mut().act(&ctx, Command::RunVulkanCompacting);
    let is_there = |it: &mut Inspector| {
        it.runs.is_empty() || it.document().is_some_and(|it| !it.recording.passes.is_empty())
    };
    assert!(comes_to(&mut harness, is_there), "no pass of compaction was seen");
    let said: Vec<String> = harness.state().notices.iter().map(|n| n.text.clone()).collect();
    if harness.state().documents.is_empty() && std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none()
    {
        println!("skipped: {said:?}");
        return;
    }
    let document = harness.state_mut().document().unwrap();
    assert!(!document.recording.passes.is_empty(), "{said:?}");
    assert!(document.recording.name.contains("vulkan"), "{}", document.recording.name);
    harness.state_mut().act(&ctx, Command::StopRun);
    assert!(comes_to(&mut harness, |it| it.runs.is_empty()), "it does not stop");
}
