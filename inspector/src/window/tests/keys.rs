//! Keys and pointer.

use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;

use super::*;
use crate::window::document::Selected;
use crate::window::layout::Coloring;

fn at(harness: &mut Harness<'_, Inspector>) -> u32 {
    harness.state_mut().document().unwrap().sight.at
}

fn press(harness: &mut Harness<'_, Inspector>, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    harness.run_steps(2);
}

#[test]
fn the_file_opens_at_its_failure_and_keys_step_jump_and_mark() {
    let mut harness = harness(with_file(OOM), true, false);
    harness.run_steps(3);
    let failure = at(&mut harness);
    assert_eq!(failure, 17_811, "the fatal failure");
    press(&mut harness, Modifiers::NONE, Key::ArrowLeft);
    assert_eq!(at(&mut harness), failure - 1);
    press(&mut harness, Modifiers::SHIFT, Key::ArrowLeft);
    let hundredth = 17_961 / 100;
    assert_eq!(at(&mut harness), failure - 1 - hundredth);
    press(&mut harness, Modifiers::NONE, Key::M);
    press(&mut harness, Modifiers::NONE, Key::Num1);
    let peak = at(&mut harness);
    press(&mut harness, Modifiers::NONE, Key::Home);
    assert_eq!(at(&mut harness), 0);
    press(&mut harness, Modifiers::NONE, Key::Num3);
    assert_eq!(at(&mut harness), failure - 1 - hundredth, "the mark");
    press(&mut harness, Modifiers::NONE, Key::Num2);
    assert_eq!(at(&mut harness), failure);
    assert_ne!(peak, 0);
}

#[test]
fn back_and_forward_go_through_what_was_shown() {
    let mut harness = harness(with_file(OOM), true, false);
    harness.run_steps(3);
    let first = at(&mut harness);
    press(&mut harness, Modifiers::NONE, Key::Home);
    harness.run_steps(8);
    press(&mut harness, Modifiers::ALT, Key::ArrowLeft);
    assert_eq!(at(&mut harness), first);
    press(&mut harness, Modifiers::ALT, Key::ArrowRight);
    assert_eq!(at(&mut harness), 0);
}

#[test]
fn the_palette_finds_a_command_and_runs_it() {
    let mut harness = harness(with_file(OOM), true, false);
    harness.run_steps(3);
    press(&mut harness, Modifiers::COMMAND, Key::K);
    harness.event(egui::Event::Text("colour by strm".to_owned()));
    harness.run_steps(2);
    assert_eq!(harness.query_all_by_label("Colour by stream").count(), 1);
    press(&mut harness, Modifiers::NONE, Key::Enter);
    let coloring = harness.state_mut().document().unwrap().sight.coloring;
    assert_eq!(coloring, Coloring::Stream);
    assert!(!harness.state_mut().palette.is_open());
}

#[test]
fn a_question_mark_shows_all_keys_and_escape_closes_them() {
    let mut harness = harness(with_file(OOM), true, false);
    press(&mut harness, Modifiers::NONE, Key::Questionmark);
    assert!(harness.query_all_by_label("One event back").count() > 0);
    assert!(harness.state().help);
    press(&mut harness, Modifiers::NONE, Key::Escape);
    assert!(!harness.state().help);
}

#[test]
fn a_click_selects_the_wheel_zooms_at_the_cursor_and_f_fits() {
    let mut harness = harness(one(OOM, View::HeapMap), true, false);
    harness.run_steps(3);
    let target = harness.get_by_label_contains("Heap map:").rect().center() + egui::vec2(60.0, 0.0);
    harness.hover_at(target);
    harness.run_steps(2);
    harness.drag_at(target);
    harness.drop_at(target);
    harness.run_steps(2);
    let document = harness.state_mut().document().unwrap();
    assert!(matches!(document.sight.selected, Some(Selected::Block(_) | Selected::Range(..))));
    assert!(document.hover.is_some() || document.sight.selected.is_some());
    harness.hover_at(target);
    harness.run_steps(2);
    harness.event_modifiers(
        egui::Event::MouseWheel {
            unit: egui::MouseWheelUnit::Line,
            delta: egui::vec2(0.0, 4.0),
            phase: egui::TouchPhase::Move,
            source: egui::MouseWheelSource::Unknown,
            modifiers: Modifiers::COMMAND,
        },
        Modifiers::COMMAND,
    );
    harness.run_steps(6);
    let camera = harness.state_mut().document().unwrap().sight.camera;
    assert!(camera.is_some(), "Ctrl+wheel zooms");
    press(&mut harness, Modifiers::NONE, Key::F);
    assert_eq!(harness.state_mut().document().unwrap().sight.camera, None);
}

#[test]
fn a_row_of_the_sites_makes_its_blocks_stand_out_everywhere() {
    let mut harness = harness(with_file(OOM), true, false);
    harness.run_steps(4);
    harness.get_by_label("workloads.py:97 forward").click();
    harness.run_steps(3);
    let document = harness.state_mut().document().unwrap();
    let Some(Selected::Site(site)) = document.sight.selected else { panic!("no site") };
    assert!(document.recording.places.sites[site as usize].ends_with("workloads.py:97 forward"));
    assert!(document.sight.focus().is_some());
}
