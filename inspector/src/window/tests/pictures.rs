//! Every view in both themes.

use std::collections::HashMap;

use egui_kittest::kittest::Queryable as _;

use super::*;

/// A file with something to show in a view, and what its page must say.
const PAGES: [(View, &str, &str); 16] = [
    (View::HeapMap, OOM, "Heap map: 249 blocks in 49 segments, 21.4 GiB reserved"),
    (View::AddressTime, OOM, "Address against time: 6,103 blocks over 17,961 events"),
    (View::Timeline, OOM, "Timeline: 17,961 events, peak active 17.8 GiB"),
    (View::Streams, STREAMS, "Lanes of "),
    (View::Compaction, FRAGMENTED, "largest hole before"),
    (View::Allocations, OOM, "249 rows"),
    (View::Segments, OOM, "49 rows"),
    (View::Sites, OOM, "workloads.py:87 forward"),
    (View::Events, OOM, "17,961 rows"),
    (View::Flame, OOM, "Call stacks of live memory"),
    (View::Diff, OOM, "Take this moment"),
    (View::Leaks, LEAK, "It leaks: a line keeps as much more at every step"),
    (View::Explain, OOM, "What would have helped"),
    (View::Whatif, OOM, "pytorch-expandable"),
    (View::Budget, OOM, "limit at most"),
    (View::Details, OOM, "failed requests"),
];

#[test]
fn every_view_says_what_it_shows_and_is_a_picture_in_both_themes() {
    for (view, file, says) in PAGES {
        for dark in [true, false] {
            let mut harness = harness(one(file, view), dark, true);
            settled(&mut harness);
            let found = harness.query_all_by_label_contains(says).count()
                + harness.query_all_by_value(says).count();
            assert!(found > 0, "{view:?}: nothing is called `{says}`");
            let picture = harness.render().unwrap();
            let mut colors: HashMap<[u8; 4], u32> = HashMap::new();
            picture.pixels().for_each(|pixel| *colors.entry(pixel.0).or_default() += 1);
            assert!(colors.len() > 12, "{view:?} is no picture: {} colours", colors.len());
            // Right of the caption.
            let paper = picture.get_pixel(1100, 24).0;
            let is_dark = u32::from(paper[0]) + u32::from(paper[1]) + u32::from(paper[2]) < 380;
            assert_eq!(is_dark, dark, "{view:?}: {paper:?}");
        }
    }
}

/// With UPDATE_PICTURES=1 the pictures of the manual are drawn anew.
#[test]
fn the_manual_has_a_picture_of_every_view_in_both_themes() {
    use super::super::{At, Coloring, Headless, Renderer, Shot, Source, picture};
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/inspector");
    let all = PAGES.iter().map(|(view, file, _)| (Some(*view), *file)).chain([(None, OOM)]);
    for (view, file) in all {
        for dark in [true, false] {
            let name = view.map_or_else(|| "window".to_owned(), View::slug);
            let theme = if dark { "dark" } else { "light" };
            let path = folder.join(format!("{name}-{theme}.png"));
            if std::env::var_os("UPDATE_PICTURES").is_some() {
                let size = if view.is_some() { (960, 600) } else { (1320, 840) };
                let shot = Shot { size, scale: 1.0, dark, renderer: Renderer::Gpu };
                let (at, coloring) = (At::FirstLook, Coloring::Size);
                let source = Source::File(data(file), None);
                let wanted = Headless { source, view, at, before: None, coloring, shot };
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, picture(&wanted).unwrap()).unwrap();
            }
            let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            assert!((1..400_000).contains(&bytes), "{}: {bytes} bytes", path.display());
        }
    }
}

/// The moment with the most old mappings.
fn most_stale(recording: &Recording) -> u32 {
    let rows = &recording.stale;
    let count = |at: u32| rows.iter().filter(|row| row.born <= at && at < row.gone).count();
    rows.iter().map(|row| row.born).max_by_key(|at| count(*at)).unwrap()
}

/// What only traces of our own show, in both themes.
#[test]
fn the_manual_has_pictures_of_pages_moves_waits_and_tags_in_both_themes() {
    use super::super::{At, Coloring, Headless, Renderer, Shot, Source, picture};
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/inspector");
    let (training, serving) = (story::training(), story::serving());
    let stale = At::Event(most_stale(&training.recording()));
    let pictures = [
        ("heap-map-pages", View::HeapMap, &training, stale, Coloring::Size),
        ("heap-map-tags", View::HeapMap, &training, At::Peak, Coloring::Tag),
        ("heap-map-kinds", View::HeapMap, &training, stale, Coloring::Kind),
        ("heap-map-held", View::HeapMap, &serving, At::End, Coloring::Movable),
        ("address-time-moves", View::AddressTime, &serving, At::End, Coloring::Size),
        ("compaction-moves", View::Compaction, &serving, At::End, Coloring::Size),
        ("streams-work", View::Streams, &training, stale, Coloring::Size),
    ];
    for (name, view, told, at, coloring) in pictures {
        for dark in [true, false] {
            let theme = if dark { "dark" } else { "light" };
            let path = folder.join(format!("{name}-{theme}.png"));
            if std::env::var_os("UPDATE_PICTURES").is_some() {
                let shot = Shot { size: (960, 600), scale: 1.0, dark, renderer: Renderer::Gpu };
                let file = told.path.clone();
                let wanted = Headless {
                    source: Source::File(file, None),
                    view: Some(view),
                    at,
                    before: None,
                    coloring,
                    shot,
                };
                std::fs::write(&path, picture(&wanted).unwrap()).unwrap();
            }
            let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len());
            assert!((1..400_000).contains(&bytes), "{}: {bytes} bytes", path.display());
        }
    }
}

#[test]
fn the_cpu_draws_the_same_picture_as_the_driver() {
    use super::super::{At, Coloring, Headless, Renderer, Shot, Source, picture};
    let draw = |renderer| {
        let wanted = Headless {
            source: Source::File(data(OOM), None),
            view: Some(View::HeapMap),
            at: At::Peak,
            before: None,
            coloring: Coloring::Size,
            shot: Shot { size: (640, 400), scale: 1.0, dark: true, renderer },
        };
        tiny_skia::Pixmap::decode_png(&picture(&wanted).unwrap()).unwrap()
    };
    let (gpu, cpu) = (draw(Renderer::Gpu), draw(Renderer::Cpu));
    let far = |a: &tiny_skia::PremultipliedColorU8, b: &tiny_skia::PremultipliedColorU8| {
        a.red().abs_diff(b.red()).max(a.green().abs_diff(b.green())) > 40
    };
    let differ = gpu.pixels().iter().zip(cpu.pixels()).filter(|(a, b)| far(a, b)).count();
    let all = gpu.pixels().len();
    assert!(differ * 100 < all, "{differ} of {all} pixels differ");
}
