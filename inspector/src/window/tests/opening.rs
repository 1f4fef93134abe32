//! A file of our own with a million live blocks and ten million events: how soon it is seen, and
//! how soon all of it is there. Run with optimisation and alone, as its memory is the process's:
//! `cargo test --release -p terrane-inspector a_large_file -- --ignored --nocapture`.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use terrane_core::event::{Event, EventKind};
use terrane_trace::file::{HeapState, Meta, TraceWriter};

use super::*;
use crate::window::layout::Coloring;
use crate::window::load::{Came, Load};

const LIVE: u64 = 1_000_000;
const EVENTS: u64 = 10_000_000;
/// Events of a chunk, and chunks between keyframes, as the recorder writes them.
const CHUNK: usize = 64 * 1024;
const KEYFRAME_EVERY: usize = 32;
const PLACE: u64 = 64 * 1024;

/// Blocks in 64 KiB places of one segment: a million that stay, and others that come and go.
fn events() -> impl Iterator<Item = Event> {
    let mut made = LIVE;
    let block = |kind, handle: u64, place: u64| {
        let bytes = 4096 + place % 13 * 4096;
        let event = Event::new(kind).handle(handle).a(bytes - 100).b(bytes).c(place * PLACE);
        event.on(u32::try_from(place % 4).unwrap_or(0), 1)
    };
    let segment = Event::new(EventKind::SegmentEnd).b(2 * LIVE * PLACE);
    let stay = (0..LIVE).map(move |number| block(EventKind::Alloc, number + 1, number * 2));
    let pass = (0..).flat_map(move |number: u64| {
        made += 1;
        let place = number * 7919 % LIVE * 2 + 1;
        let kinds = [EventKind::Alloc, EventKind::FreeRequested, EventKind::FreeCompleted];
        kinds.map(|kind| block(kind, made, place))
    });
    let all = std::iter::once(segment).chain(stay).chain(pass).take(EVENTS as usize);
    (1..).zip(all).map(|(number, mut event)| {
        (event.sequence, event.time_ns) = (number, number * 300);
        event
    })
}

fn write(path: &Path) {
    let file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let mut writer = TraceWriter::new(file, &Meta::default()).unwrap();
    let mut state = HeapState::default();
    writer.keyframe(&state).unwrap();
    let (mut chunk, mut chunks) = (Vec::with_capacity(CHUNK), 0);
    let mut events = events().peekable();
    while let Some(event) = events.next() {
        state.apply(&event, &mut |_| {});
        chunk.push(event);
        if chunk.len() == CHUNK || events.peek().is_none() {
            writer.events(&chunk).unwrap();
            chunk.clear();
            chunks += 1;
            if chunks % KEYFRAME_EVERY == 0 {
                writer.keyframe(&state).unwrap();
            }
        }
    }
    writer.finish().unwrap().flush().unwrap();
}

/// Writes it in a process of its own, whose memory is none of the inspector's.
fn write_elsewhere(path: &Path) {
    let this = std::env::current_exe().unwrap();
    let writer = concat!(module_path!(), "::the_large_file_is_written");
    let writer = writer.split_once("::").unwrap().1;
    let mut run = std::process::Command::new(this);
    run.args([writer, "--exact", "--ignored"]).env(WRITE_TO, path);
    assert!(run.output().unwrap().status.success());
}

/// Where to write it.
const WRITE_TO: &str = "TERRANE_WRITE_LARGE_FILE";

#[test]
#[ignore = "part of a benchmark: TERRANE_WRITE_LARGE_FILE=FILE cargo test --release -p terrane-inspector the_large_file -- --ignored"]
fn the_large_file_is_written() {
    if let Some(path) = std::env::var_os(WRITE_TO) {
        write(Path::new(&path));
    }
}

fn draw(inspector: &mut Inspector, ctx: &egui::Context) {
    let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(1920.0, 1080.0));
    let input = egui::RawInput { screen_rect: Some(screen), ..egui::RawInput::default() };
    let output = ctx.run_ui(input, |ui| inspector.frame(ui));
    std::hint::black_box(ctx.tessellate(output.shapes.clone(), 1.0));
    output.drop_without_applying_deltas();
}

#[test]
#[ignore = "a benchmark, run alone: cargo test --release -p terrane-inspector a_large_file -- --ignored"]
fn a_large_file_of_our_own_is_seen_before_its_history_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.terrane");
    write_elsewhere(&path);
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!("{bytes} bytes, {EVENTS} events; {} kB so far", most_kib());
    let ctx = egui::Context::default();
    crate::window::paint::apply(&ctx);
    let mut inspector = Inspector::new(Settings::default(), Some(wgpu::TextureFormat::Rgba8Unorm));
    draw(&mut inspector, &ctx);
    let begin = Instant::now();
    let load = Load::start((path, None), Coloring::Size, || {});
    let mut came_first = false;
    let painted = loop {
        match load.poll() {
            Some(Came::First(painted)) => {
                assert!(painted.recording.blocks.len() as u64 >= LIVE);
                inspector.first_picture(painted, None);
                draw(&mut inspector, &ctx);
                println!("first picture after {:.2} s", begin.elapsed().as_secs_f64());
                came_first = true;
            }
            Some(Came::Whole(result)) => break result.unwrap(),
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    assert!(came_first);
    assert!(painted.recording.events.len() as u64 > EVENTS - 10);
    let document = inspector.document().unwrap();
    document.show(painted);
    let frame = Instant::now();
    draw(&mut inspector, &ctx);
    println!("the frame that shows it takes {:.1} ms", frame.elapsed().as_secs_f64() * 1e3);
    println!("all of it after {:.2} s, {} kB", begin.elapsed().as_secs_f64(), most_kib());
    assert!(most_kib() < MOST_KIB, "{} kB", most_kib());
}
