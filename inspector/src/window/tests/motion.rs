//! Reduced motion: a block that moves is at its old place or at its new one, and never between.

use egui_kittest::kittest::Queryable as _;

use super::*;
use crate::window::commands::Command;
use crate::window::view::Arrangement;

/// The chart of the pass shown, half way through a move that is so far done.
fn chart(harness: &mut Harness<'static, Inspector>, done: f32) -> Vec<[u8; 4]> {
    harness.state_mut().document().unwrap().panels.compaction.done = done;
    harness.run_steps(4);
    let rect = harness.get_by_label_contains("Compaction: ").rect();
    let picture = harness.render().unwrap();
    let inside = |x: u32, y: u32| rect.contains(egui::pos2(x as f32 + 0.5, y as f32 + 0.5));
    let pixels = picture.enumerate_pixels().filter(|(x, y, _)| inside(*x, *y));
    pixels.map(|(_, _, pixel)| pixel.0).collect()
}

#[test]
fn under_reduced_motion_blocks_do_not_slide_and_without_it_they_do() {
    let told = story::serving();
    for reduced_motion in [false, true] {
        let settings = Settings { reduced_motion, ..Settings::default() };
        let mut inspector = Inspector::new(settings, None);
        inspector.add(told.recording());
        inspector.go(crate::window::At::End);
        let mut harness = harness(inspector, true, true);
        let ctx = harness.ctx.clone();
        let arrange = Command::Arrange(Arrangement::Compaction);
        harness.state_mut().act(&ctx, arrange);
        settled(&mut harness);
        let at = [2.0, 2.3, 2.7, 3.0].map(|done| chart(&mut harness, done));
        // Whole moves are told apart in any case.
        assert!(at[0] != at[3], "a move makes no difference");
        let slides = at[1] != at[2];
        assert_eq!(slides, !reduced_motion, "with reduced motion {reduced_motion}");
        assert_eq!(at[0] == at[1], reduced_motion, "it begins to slide");
    }
}
