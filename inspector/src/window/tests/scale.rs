//! A million live blocks and ten million events: what a frame costs while panning and zooming.
//! Run with optimisation: `cargo test --release -p terrane-inspector a_million -- --ignored`.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::window::model::{
    Addresses, BlockRow, EventOp, EventRow, Hold, NEVER, Places, PoolKind, Recording, SegmentRow,
    Series,
};

const LIVE: u64 = 1_000_000;
const PASSING: u64 = 4_500_000;

/// Views for which threads replay the run, which takes minutes here.
const REPLAYS: [View; 3] = [View::Leaks, View::Explain, View::Whatif];

/// Blocks of 64 KiB in segments of 64 MiB, a quarter of the places free; short-lived blocks come
/// and go in the free ones.
fn recording() -> Recording {
    let (mut blocks, mut events) = (Vec::new(), Vec::new());
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
        (random >> 33) % below
    };
    let mut block = |address: u64, bytes: u64, stream: u32, site: u32, ends: bool| {
        let number = blocks.len() as u32;
        events.push(EventRow { time_us: events.len() as u64, block: number, op: EventOp::Alloc });
        let born = events.len() as u32;
        let (mut freed, mut gone) = (NEVER, NEVER);
        if ends {
            for op in [EventOp::Freed, EventOp::Done] {
                events.push(EventRow { time_us: events.len() as u64, block: number, op });
            }
            (freed, gone) = (born + 1, born + 2);
        }
        let row = BlockRow {
            address,
            bytes,
            requested: bytes,
            born,
            freed,
            gone,
            stream,
            site,
            stack: NEVER,
            tag: 0,
            hold: Hold::Unknown,
            kind: 0,
        };
        blocks.push(row);
    };
    for number in 0..LIVE {
        let bytes = 512 * (1 + next(128));
        let (stream, site) = (next(4) as u32, next(200) as u32);
        block(number * 98_304, bytes, stream, site, false);
        if number < PASSING / 5 {
            for at in 0..5 {
                block(number * 98_304 + 65_536 + at * 4096, 4096, 0, 7, true);
            }
        }
    }
    let segments = segments(LIVE * 98_304);
    let sites = (0..200).map(|n| format!("train.py:{n} step")).collect();
    Recording {
        name: "a million".to_owned(),
        path: PathBuf::new(),
        kind: "made up",
        addresses: Addresses::Recorded,
        series: Series::of(&events, &blocks, &segments),
        events,
        blocks,
        segments,
        streams: (0..4).map(|n| format!("stream {n}")).collect(),
        places: Places::of_sites(sites),
        ..Recording::for_tests(Vec::new(), Vec::new())
    }
}

/// Segments of 64 MiB, one behind the other.
fn segments(total: u64) -> Vec<SegmentRow> {
    let segment = |number: u64| SegmentRow {
        object: None,
        address: number * (64 << 20),
        bytes: 64 << 20,
        born: 0,
        gone: NEVER,
        stream: 0,
        pool: PoolKind::Large,
    };
    (0..total.div_ceil(64 << 20)).map(segment).collect()
}

/// Milliseconds that this thread was busy: other programs on the machine do not count.
fn busy_ms() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

/// Milliseconds of logic, widgets and tessellation of each frame while the pointer drags and the
/// wheel zooms over a point.
fn frames(inspector: &mut Inspector, at: egui::Pos2) -> Vec<f64> {
    let ctx = egui::Context::default();
    crate::window::paint::apply(&ctx);
    let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(1920.0, 1080.0));
    let run = |inspector: &mut Inspector, number: usize, events: Vec<egui::Event>| {
        let input = egui::RawInput {
            screen_rect: Some(screen),
            time: Some(number as f64 / 60.0),
            events,
            ..egui::RawInput::default()
        };
        let begin = busy_ms();
        let output = ctx.run_ui(input, |ui| inspector.frame(ui));
        let shapes = output.shapes.clone();
        std::hint::black_box(ctx.tessellate(shapes, 1.0));
        let time = busy_ms() - begin;
        output.drop_without_applying_deltas();
        time
    };
    // Until all is there: what threads work out of it is no part of what a frame costs.
    // A replay of ten million events by each of several allocators takes longer than this waits.
    for number in 0..200 {
        run(inspector, number, vec![egui::Event::PointerMoved(at)]);
        if number >= 40 && !inspector.is_busy() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let replays = REPLAYS.contains(&inspector.active);
    assert!(replays || !inspector.is_busy(), "it is not there");
    let mut times = Vec::new();
    let mut events = Vec::new();
    let button = |pressed| egui::Event::PointerButton {
        pos: at,
        button: egui::PointerButton::Primary,
        pressed,
        modifiers: egui::Modifiers::NONE,
    };
    for step in 0..240 {
        match step {
            0 => events.push(button(true)),
            1..120 => {
                let by = egui::vec2((step % 40) as f32 * 3.0, (step % 17) as f32 * 4.0);
                events.push(egui::Event::PointerMoved(at + by));
            }
            120 => events.push(button(false)),
            _ => events.push(egui::Event::Zoom(if step % 60 < 40 { 1.15 } else { 0.8 })),
        }
        times.push(run(inspector, 1000 + step, std::mem::take(&mut events)));
        // What threads find meanwhile is taken in by one of the next frames.
        std::thread::sleep(std::time::Duration::from_millis(4));
    }
    times
}

#[test]
#[ignore = "a benchmark, run alone: cargo test --release -p terrane-inspector a_million -- --ignored"]
fn a_million_live_blocks_pan_and_zoom_within_a_frame() {
    let begin = Instant::now();
    let recording = recording();
    println!("made {} events in {:?}", recording.events.len(), begin.elapsed());
    let at = recording.end();
    let begin = Instant::now();
    let moment = crate::window::model::Moment::of(&recording, at);
    println!("the heap at a moment: {} parts in {:?}", moment.parts.len(), begin.elapsed());
    let mut inspector = Inspector::new(Settings::default(), Some(wgpu::TextureFormat::Rgba8Unorm));
    inspector.add(recording);
    inspector.go(crate::window::At::End);
    let (replays, views): (Vec<View>, Vec<View>) =
        View::ALL.into_iter().partition(|view| REPLAYS.contains(view));
    let views = || std::iter::once(None).chain(views.iter().copied().map(Some));
    let mut late: Vec<String> = views().filter_map(|view| pans(&mut inspector, view)).collect();
    late.extend(views().filter_map(|view| walks(&mut inspector, view)));
    for view in replays.into_iter().map(Some) {
        late.extend(pans(&mut inspector, view));
        late.extend(walks(&mut inspector, view));
    }
    assert!(late.is_empty(), "{late:?}");
}

/// Says what frames of a view cost while it is panned and zoomed; once more if that is too much.
fn pans(inspector: &mut Inspector, view: Option<View>) -> Option<String> {
    inspector.show_only(view);
    let mut times = frames(inspector, egui::pos2(500.0, 400.0));
    times.sort_by(f64::total_cmp);
    let part = |share: f64| times[(times.len() as f64 * share) as usize];
    let name = view.map_or("the whole window", View::title);
    println!("{name}: median {:.2} ms, p95 {:.2} ms", part(0.5), part(0.95));
    let most = if cfg!(debug_assertions) { 1000.0 } else { 8.0 };
    (part(0.95) > most).then(|| format!("{name}: p95 {:.2} ms", part(0.95)))
}

/// The same of frames after a step or a jump to another moment.
fn walks(inspector: &mut Inspector, view: Option<View>) -> Option<String> {
    inspector.show_only(view);
    let name = view.map_or("the whole window", View::title);
    let longest = steps(inspector);
    println!("{name}: a step takes {:.1} ms, a jump {:.1} ms at most", longest[0], longest[1]);
    let most = if cfg!(debug_assertions) { 5000.0 } else { 100.0 };
    (longest[0].max(longest[1]) > most).then(|| format!("{name}: {longest:.1?}"))
}

/// The longest frames, in milliseconds, after steps of one event and after jumps through the run.
fn steps(inspector: &mut Inspector) -> [f64; 2] {
    let ctx = egui::Context::default();
    crate::window::paint::apply(&ctx);
    let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(1920.0, 1080.0));
    let mut number = 0.0;
    let mut run = |inspector: &mut Inspector| {
        number += 1.0;
        let input = egui::RawInput {
            screen_rect: Some(screen),
            time: Some(number / 60.0),
            ..egui::RawInput::default()
        };
        let begin = busy_ms();
        let output = ctx.run_ui(input, |ui| inspector.frame(ui));
        let shapes = output.shapes.clone();
        std::hint::black_box(ctx.tessellate(shapes, 1.0));
        output.drop_without_applying_deltas();
        busy_ms() - begin
    };
    inspector.go(crate::window::At::End);
    for _ in 0..40 {
        run(inspector);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let end = inspector.document().unwrap().recording.end();
    let mut longest = [0.0_f64; 2];
    let places = (1..6).map(|step| (0, end - step)).chain((1..6).map(|part| (1, end / 7 * part)));
    for (kind, at) in places {
        inspector.document().unwrap().go(at);
        // A thread works it out, and other programs may have the processors.
        for round in 0..500 {
            longest[kind] = longest[kind].max(run(inspector));
            std::thread::sleep(std::time::Duration::from_millis(10));
            let is_there = inspector.document().unwrap().moment.at == at;
            let replays = REPLAYS.contains(&inspector.active);
            if is_there && round >= 12 && (replays || !inspector.is_busy()) {
                break;
            }
        }
        assert_eq!(inspector.document().unwrap().moment.at, at, "the moment never came");
    }
    longest
}
