//! What people expect of any program: names for those who do not see, nothing lost on restart,
//! files dropped on the window, views as commands.

use std::path::Path;

use clap::Parser as _;
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT as _, Queryable as _, by};

use super::*;
use crate::window::commands::Command;
use crate::window::document::{Selected, first_look};
use crate::window::layout::Coloring;
use crate::window::load::OpenError;
use crate::window::view::Arrangement;

/// Things that can be pressed, typed into or looked at, and have neither name nor value.
fn nameless(harness: &Harness<'_, Inspector>) -> Vec<String> {
    use egui::accesskit::Role;
    let asked = [
        Role::Button,
        Role::CheckBox,
        Role::RadioButton,
        Role::Slider,
        Role::SpinButton,
        Role::ComboBox,
        Role::TextInput,
        Role::Image,
        Role::Link,
    ];
    let mut found = Vec::new();
    for role in asked {
        let is_nameless = |node: &egui_kittest::kittest::AccessKitNode<'_>| {
            let is_empty = |text: Option<String>| text.is_none_or(|text| text.trim().is_empty());
            is_empty(node.label()) && (role == Role::Image || is_empty(node.value()))
        };
        for node in harness.query_all(by().role(role).predicate(is_nameless)) {
            found.push(format!("{role:?} at {:?}", node.accesskit_node().bounding_box()));
        }
    }
    found
}

#[test]
fn everything_that_can_be_pressed_or_looked_at_has_a_name_in_every_view() {
    for view in View::ALL {
        let file = if view == View::Streams { STREAMS } else { OOM };
        let mut harness = harness(one(file, view), true, false);
        settled(&mut harness);
        let found = nameless(&harness);
        assert!(found.is_empty(), "{view:?}: {found:?}");
    }
    for arrangement in Arrangement::ALL {
        let mut inspector = with_file(OOM);
        inspector.dock = arrangement.tree();
        let mut harness = harness(inspector, true, false);
        settled(&mut harness);
        let found = nameless(&harness);
        assert!(found.is_empty(), "{arrangement:?}: {found:?}");
    }
}

/// A window that keeps its settings in a folder, with what is kept there.
fn kept_at(path: &Path) -> Inspector {
    let (settings, note) = Settings::load(Some(path));
    let mut inspector = Inspector::new(settings, None);
    inspector.keep_settings_at(Some(path.to_owned()), note);
    inspector
}

/// The window as it is when it is opened without files.
fn started_again(path: &Path) -> Harness<'static, Inspector> {
    let mut inspector = kept_at(path);
    inspector.resume_session(&egui::Context::default());
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    harness
}

#[test]
fn after_a_restart_the_files_are_open_again_and_looked_at_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inspector.json");
    let mut harness = harness(kept_at(&path), true, false);
    let ctx = harness.ctx.clone();
    for name in [OOM, STREAMS] {
        harness.state_mut().load(&ctx, data(name));
        settled(&mut harness);
    }
    harness.state_mut().current = 0;
    let document = harness.state_mut().document().unwrap();
    document.go(1234);
    document.mark();
    document.go(5000);
    document.sight.coloring = Coloring::Site;
    document.sight.selected = Some(Selected::Site(2));
    document.sight.addresses = Some((4096.0, 8192.0));
    harness.run_steps(2);
    let sight = harness.state_mut().document().unwrap().sight;
    eframe::App::on_exit(harness.state_mut());
    drop(harness);
    let mut again = started_again(&path);
    let ctx = again.ctx.clone();
    assert_eq!(again.state().documents.len(), 2);
    assert_eq!(again.state().current, 0, "the same one is shown");
    let document = again.state_mut().document().unwrap();
    assert_eq!((document.sight, &document.marks[..]), (sight, &[1234][..]));
    assert_eq!(document.moment.at, 5000);
    // What is closed is not there the next time; what is broken takes nothing else with it.
    again.state_mut().act(&ctx, Command::CloseFile);
    again.state_mut().settings.scale = 1.4;
    eframe::App::on_exit(again.state_mut());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("multistream")
            && !text.contains("unet_multires.oom.pickle.gz\",\n      \"bytes\"")
    );
    std::fs::write(&path, text.replace("\"bytes\":", "\"bites\":")).unwrap();
    let kept = kept_at(&path);
    assert!(kept.settings.session.is_empty());
    assert_eq!(kept.settings.scale, 1.4);
}

#[test]
fn a_file_that_is_gone_or_has_changed_since_is_told_of_or_opened_afresh() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("inspector.json"), folder.path().join("run.csv"));
    let mut text = String::from("t_us,op,block,size,stream\n");
    for block in 0..50 {
        text += &format!("{block},a,{block},1000,0\n");
    }
    std::fs::write(&file, &text).unwrap();
    let mut harness = harness(kept_at(&path), true, false);
    let ctx = harness.ctx.clone();
    harness.state_mut().load(&ctx, file.clone());
    settled(&mut harness);
    harness.state_mut().document().unwrap().go(3);
    harness.run_steps(2);
    eframe::App::on_exit(harness.state_mut());
    std::fs::write(&file, text + "50,a,50,1000,0\n").unwrap();
    let mut again = started_again(&path);
    assert_eq!(again.state_mut().document().unwrap().sight.at, 51, "at its peak, as any file");
    std::fs::remove_file(&file).unwrap();
    eframe::App::on_exit(again.state_mut());
    let gone = started_again(&path);
    assert!(gone.state().notices[0].text.contains("run.csv could not be opened"));
    assert!(gone.state().session().is_empty(), "it is not tried again");
}

/// A file as the desktop drops it.
#[derive(Debug)]
struct Dropped(PathBuf);

impl egui::DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|error| error.to_string())
    }
}

#[test]
fn several_files_dropped_on_the_window_are_opened_beside_each_other_at_their_peaks() {
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    harness.run_steps(1);
    for name in [STREAMS, LEAK] {
        harness.input_mut().dropped_files.push(Arc::new(Dropped(data(name))));
    }
    harness.run_steps(1);
    settled(&mut harness);
    assert_eq!(harness.state().documents.len(), 2);
    for document in &harness.state().documents {
        assert_eq!(document.sight.at, document.recording.peak());
        assert_ne!(document.sight.at, 0);
    }
    // Ctrl+Tab goes through them.
    let current = harness.state().current;
    harness.key_press_modifiers(Modifiers::COMMAND, Key::Tab);
    harness.run_steps(2);
    assert_eq!(harness.state().current, 1 - current);
}

#[test]
fn a_file_that_is_being_read_can_be_cancelled_and_is_no_error() {
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    let ctx = harness.ctx.clone();
    harness.run_steps(3);
    harness.state_mut().load(&ctx, data(OOM));
    harness.run_steps(2);
    assert!(harness.query_all_by_label_contains("unet_multires.oom").count() > 0);
    harness.get_by_label("Cancel").click();
    harness.state_mut().loads[0].progress.cancel();
    settled(&mut harness);
    assert!(harness.state().documents.is_empty() && harness.state().notices.is_empty());
    assert!(harness.query_all_by_label("Open file…").count() > 0, "the window says what to do");
}

#[test]
fn a_first_picture_goes_with_the_reading_that_was_cancelled() {
    let mut inspector = with_file(LEAK);
    let whole = Arc::new(open(&data(OOM), &Progress::default()).unwrap());
    let at = inspector.first_picture(first_look(&whole, Coloring::Size), None);
    inspector.add(open(&data(FRAGMENTED), &Progress::default()).unwrap());
    let stopped = |path| OpenError { path, reason: "stopped".to_owned(), cancelled: true };
    // The place of a document that was closed is another's by now.
    inspector.opened(Err(stopped(data(OOM))), Some(0));
    assert_eq!((inspector.documents.len(), inspector.current), (3, 2));
    inspector.opened(Err(stopped(data(OOM))), Some(at));
    let shown: Vec<PathBuf> =
        inspector.documents.iter().map(|document| document.recording.path.clone()).collect();
    assert_eq!(shown, [data(LEAK), data(FRAGMENTED)]);
    assert_eq!(inspector.current, 1, "the same one is shown");
    assert!(inspector.notices.is_empty());
}

#[test]
fn a_view_copied_as_a_command_is_drawn_by_that_command() {
    let mut inspector = with_file(OOM);
    inspector.go(crate::window::At::Event(1234));
    let ctx = egui::Context::default();
    for view in View::ALL {
        inspector.active = view;
        inspector.document().unwrap().sight.coloring = Coloring::Stream;
        let line = inspector.as_command(&ctx);
        let words: Vec<String> = line.split(' ').map(|word| word.replace('\'', "")).collect();
        let args =
            crate::cli::Cli::try_parse_from(&words).unwrap_or_else(|e| panic!("{line}: {e}"));
        let Some(crate::cli::Command::Inspect(args)) = args.command else { panic!("{line}") };
        assert_eq!(args.files, [data(OOM)]);
        assert_eq!((args.view, args.color), (Some(view), Coloring::Stream));
        assert_eq!(args.at, Some(crate::window::At::Event(1234)));
    }
    // What is in no file has no such line, and says what to do.
    inspector.document().unwrap().recording = {
        let mut recording = open(&data(OOM), &Progress::default()).unwrap();
        recording.path = PathBuf::new();
        Arc::new(recording)
    };
    inspector.act(&ctx, Command::CopyAsLine);
    assert!(inspector.notices[0].text.contains("TERRANE_RECORD"));
}

#[test]
fn a_difference_of_two_files_is_drawn_by_the_command_that_is_copied() {
    let mut inspector = with_file(LEAK);
    inspector.add(open(&data(FRAGMENTED), &Progress::default()).unwrap());
    inspector.go(crate::window::At::Event(1234));
    inspector.active = View::Diff;
    let other = Arc::clone(&inspector.documents[0].recording);
    inspector.document().unwrap().panels.diff.compare(other, 77);
    let ctx = egui::Context::default();
    let event = |at| Some(crate::window::At::Event(at));
    for (file, at, other, before) in [(FRAGMENTED, 1234, LEAK, 77), (LEAK, 77, FRAGMENTED, 1234)] {
        let line = inspector.as_command(&ctx);
        let words: Vec<String> = line.split(' ').map(|word| word.replace('\'', "")).collect();
        let Some(crate::cli::Command::Inspect(args)) =
            crate::cli::Cli::try_parse_from(&words).unwrap().command
        else {
            panic!("{line}")
        };
        assert_eq!((args.files, args.before_file), (vec![data(file)], Some(data(other))), "{line}");
        assert_eq!((args.at, args.before), (event(at), event(before)), "{line}");
        inspector.document().unwrap().panels.diff.swap();
    }
}

#[test]
fn letters_pan_a_drag_pans_and_ctrl_f_finds_in_the_table_used_last() {
    let mut harness = harness(one(OOM, View::Timeline), true, false);
    settled(&mut harness);
    let middle = harness.get_by_label_contains("Timeline:").rect().center();
    let span = |harness: &mut Harness<'_, Inspector>| {
        harness.state_mut().document().unwrap().sight.span.map(|span| span.from)
    };
    harness.hover_at(middle);
    harness.run_steps(2);
    for _ in 0..3 {
        harness.key_press(Key::Plus);
        harness.run_steps(2);
    }
    let zoomed = span(&mut harness).unwrap();
    harness.key_press(Key::D);
    harness.run_steps(2);
    let right = span(&mut harness).unwrap();
    assert!(right > zoomed, "D goes on in time: {zoomed} {right}");
    harness.key_press(Key::A);
    harness.run_steps(2);
    assert!((span(&mut harness).unwrap() - zoomed).abs() < 1.0, "A goes back");
    harness.drag_at(middle);
    harness.run_steps(2);
    harness.hover_at(middle + egui::vec2(-120.0, 0.0));
    harness.run_steps(2);
    harness.drop_at(middle + egui::vec2(-120.0, 0.0));
    harness.run_steps(2);
    assert!(span(&mut harness).unwrap() > zoomed, "a drag to the left goes on in time");
    harness.key_press_modifiers(Modifiers::COMMAND, Key::F);
    harness.run_steps(2);
    assert_eq!(harness.state().active, View::Allocations);
}

#[test]
fn charts_have_tables_beside_them_that_are_copied() {
    let mut harness = harness(one(OOM, View::Timeline), true, false);
    settled(&mut harness);
    harness.get_by_label("table").click();
    settled(&mut harness);
    assert!(harness.query_all_by_label_contains("500 rows").count() > 0);
    let document = harness.state_mut().document().unwrap();
    let csv = document.panels.tables.copy(&document.recording, &document.moment, true);
    let peak = document.recording.series.most[1].to_string();
    assert!(csv.lines().any(|line| line.split(',').nth(3) == Some(&peak)), "the peak is a row");
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(story::serving().recording());
    inspector.show_only(Some(View::Compaction));
    let mut harness = super::harness(inspector, true, false);
    settled(&mut harness);
    harness.get_by_label("table").click();
    settled(&mut harness);
    let document = harness.state_mut().document().unwrap();
    let csv = document.panels.tables.copy(&document.recording, &document.moment, true);
    assert_eq!(csv.lines().count(), document.recording.moves.len() + 1);
}

#[test]
fn the_scale_goes_from_50_to_300_percent_and_reduced_motion_stops_all_sliding() {
    let folder = tempfile::tempdir().unwrap();
    let mut inspector = kept_at(&folder.path().join("inspector.json"));
    inspector.add(story::serving().recording());
    inspector.dock = Arrangement::Compaction.tree();
    let mut harness = harness(inspector, true, false);
    let ctx = harness.ctx.clone();
    for (command, limit) in [(Command::Larger, 3.0), (Command::Smaller, 0.5)] {
        for _ in 0..40 {
            harness.state_mut().act(&ctx, command);
        }
        harness.run_steps(3);
        assert_eq!(harness.state().settings.scale, limit);
        assert_eq!(harness.ctx.zoom_factor(), limit);
    }
    harness.state_mut().act(&ctx, Command::NormalSize);
    harness.state_mut().act(&ctx, Command::ReducedMotion);
    harness.run_steps(3);
    assert_eq!(harness.ctx.global_style().animation_time, 0.0);
}
