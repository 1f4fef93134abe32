//! A large PyTorch snapshot is seen before its history is read: the segments, then the peak.
//!
//! How soon each of them is there, of the file that TERRANE_LARGE_SNAPSHOT names, run with
//! optimisation and alone:
//! `cargo test --release -p terrane-inspector a_large_snapshot -- --ignored --nocapture`.

use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::window::layout::{Coloring, Painted};
use crate::window::load::{Came, Load};
use crate::window::model::{BlockRow, Recording};

/// What comes of a file, in order, with the time since the start.
fn all_of(path: &Path) -> Vec<(Arc<Painted>, f64)> {
    let begin = Instant::now();
    let load = Load::start((path.to_owned(), None), Coloring::Size, || {});
    let mut came = Vec::new();
    loop {
        let (painted, is_whole) = match load.poll() {
            Some(Came::First(painted)) => (painted, false),
            Some(Came::Whole(result)) => (result.unwrap(), true),
            None => {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
        };
        came.push((painted, begin.elapsed().as_secs_f64()));
        if is_whole {
            return came;
        }
    }
}

#[test]
fn the_segments_and_then_the_peak_are_shown_before_the_history() {
    let path = data("snapshots/unet_random.frames.pickle.gz");
    let mut came = all_of(&path).into_iter().map(|(painted, _)| painted);
    let (first, second, third) = (came.next().unwrap(), came.next().unwrap(), came.next().unwrap());
    assert!(came.next().is_none());
    let (segments, peak, whole) = (&first.recording, &second.recording, &third.recording);
    let says = |recording: &Recording, words: &str| {
        recording.notes.iter().any(|note| note.contains(words))
    };
    assert!(says(segments, "history is being read"), "{:?}", segments.notes);
    assert!(says(peak, "moment of the peak alone"), "{:?}", peak.notes);
    assert!(segments.events.is_empty() && peak.events.is_empty());
    assert!(!whole.events.is_empty());
    let requested = |blocks: &[BlockRow]| blocks.iter().map(|b| b.requested).sum::<u64>();
    let at = whole.peak();
    let live = whole.blocks.iter().filter(|block| block.born <= at && at < block.gone);
    let at_peak: u64 = live.map(|block| block.requested).sum();
    assert_eq!(requested(&peak.blocks), at_peak);
    // One and the same document shows them all.
    let mut inspector = Inspector::new(Settings::default(), None);
    let at = inspector.first_picture(Arc::clone(&first), None);
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    let now = harness.state_mut().first_picture(Arc::clone(&second), Some(at));
    assert_eq!(now, at);
    settled(&mut harness);
    assert_eq!(harness.state().documents.len(), 1);
    assert_eq!(requested(&harness.state().documents[at].recording.blocks), at_peak);
}

#[test]
#[ignore = "a benchmark, run alone: cargo test --release -p terrane-inspector a_large_snapshot -- --ignored"]
fn a_large_snapshot_is_seen_before_its_history_is_read() {
    let path = std::env::var_os("TERRANE_LARGE_SNAPSHOT").expect("TERRANE_LARGE_SNAPSHOT=FILE");
    let path = Path::new(&path);
    println!("{} bytes", std::fs::metadata(path).unwrap().len());
    let came = all_of(path);
    for (name, (painted, seconds)) in ["segments", "peak", "all of it"].iter().zip(&came) {
        let recording = &painted.recording;
        let (blocks, events) = (recording.blocks.len(), recording.events.len());
        println!("{name} after {seconds:.2} s: {blocks} blocks, {events} events");
    }
    assert_eq!(came.len(), 3);
    println!("{} kB", most_kib());
    assert!(most_kib() < MOST_KIB, "{} kB", most_kib());
}
