//! From the verdict to its places in the map, and what charts are asked for by others than keys.

use egui::accesskit::Role;
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;

use super::*;
use crate::window::commands::Command;
use crate::window::document::Selected;
use crate::window::view::Arrangement;

/// The arrangement for a failure, on a file that has one, shown from the start of the run.
fn explained() -> Harness<'static, Inspector> {
    let mut inspector = with_file(OOM);
    inspector.dock = Arrangement::OutOfMemory.tree();
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    harness.state_mut().document().unwrap().go(0);
    settled(&mut harness);
    harness
}

/// Presses a link of that name, or a button.
fn press(harness: &Harness<'_, Inspector>, name: &str) {
    let role = if name.starts_with("Show") { Role::Button } else { Role::Link };
    harness.get_by_role_and_label(role, name).click_accesskit();
}

#[test]
fn every_number_of_the_chain_with_a_place_shows_it_in_the_map() {
    let mut harness = explained();
    for (link, is_named) in [
        ("asked for", false),
        ("allocated", false),
        ("free", false),
        ("largest hole", true),
        ("to move", true),
        ("Show the cheapest stretch", true),
    ] {
        let document = harness.state_mut().document().unwrap();
        document.go(0);
        document.sight.camera = None;
        settled(&mut harness);
        press(&harness, link);
        settled(&mut harness);
        let document = harness.state_mut().document().unwrap();
        assert_eq!(document.moment.at, 17_811, "{link}: the moment of the failure");
        let camera = document.sight.camera;
        assert_eq!(camera.is_some(), is_named, "{link}: {camera:?}");
        let Some(Selected::Range(_, bytes)) = document.sight.selected else {
            assert!(!is_named, "{link}: {:?}", document.sight.selected);
            continue;
        };
        // It fills most of a row.
        let share = bytes as f64 / camera.unwrap().per_row;
        assert!((0.4..1.0).contains(&share), "{link}: {share}");
        if link == "largest hole" {
            assert_eq!(bytes, document.moment.largest_free);
        }
    }
    press(&harness, "limit at least");
    settled(&mut harness);
    assert_eq!(harness.state().active, View::Budget);
}

#[test]
fn what_the_palette_or_the_menu_asks_of_a_chart_is_done() {
    let mut harness = harness(one_of_many(), true, false);
    settled(&mut harness);
    let per_row = |harness: &mut Harness<'_, Inspector>| {
        harness.state_mut().document().unwrap().sight.camera.map(|camera| camera.per_row)
    };
    let ask = |harness: &mut Harness<'_, Inspector>, words: &str| {
        harness.key_press_modifiers(Modifiers::COMMAND, Key::K);
        harness.run_steps(2);
        harness.event(egui::Event::Text(words.to_owned()));
        harness.run_steps(2);
        harness.key_press(Key::Enter);
        harness.run_steps(4);
    };
    assert_eq!(per_row(&mut harness), None);
    ask(&mut harness, "zoom in");
    let once = per_row(&mut harness).unwrap();
    ask(&mut harness, "zoom in");
    assert!((per_row(&mut harness).unwrap() / once - 0.5).abs() < 1e-9, "twice as large, once");
    ask(&mut harness, "fit");
    assert_eq!(per_row(&mut harness), None);
    assert!(Command::Fit.is_for_charts() && !Command::Mark.is_for_charts());
}

/// The map in the usual arrangement, used last.
fn one_of_many() -> Inspector {
    let mut inspector = with_file(OOM);
    inspector.active = View::HeapMap;
    inspector
}
