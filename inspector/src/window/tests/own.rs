//! What only a trace of our own tells: moves, waits, pages that come and go, tags, limits.

use egui_kittest::kittest::Queryable as _;
use terrane_core::event::{Event, EventKind};
use terrane_trace::file::{HeapState, Meta, Text, TextKind, TraceWriter};

use super::*;
use crate::window::layout::Coloring;
use crate::window::model::{Hold, PartState, Recording};

const MIB: u64 = 1 << 20;
/// The class that is backed page by page.
const PAGED: u8 = 1;
/// The number of the reason of blocks that are held.
const HELD: u64 = 2;

/// Six pages of 2 MiB, of which the second is taken for the seventh place and the fourth is given
/// back; blocks on two streams, one moved, one held; a wait; a limit.
fn events() -> Vec<Event> {
    let page = |kind, object: u64, at: u64| {
        Event::new(kind).a(object).b(2 * MIB).c(at * 2 * MIB).of(PAGED, 0)
    };
    let block = |handle, bytes, at: u64, tag| {
        let event = Event::new(EventKind::Alloc).handle(handle).a(bytes).b(bytes).c(at);
        event.of(PAGED, tag).on(u32::try_from(handle % 2).unwrap(), 0)
    };
    let mut events = vec![Event::new(EventKind::LimitSet).b(64 * MIB)];
    for object in 0..6 {
        events.push(Event::new(EventKind::PageCreated).a(object + 1).b(2 * MIB));
        events.push(page(EventKind::PageMapped, object + 1, object));
    }
    events.extend([
        block(1, 2 * MIB, 0, 1),
        block(2, 2 * MIB, 4 * MIB, 2),
        block(3, MIB, 8 * MIB, 0),
        page(EventKind::PageStolen, 2, 7),
        page(EventKind::PageUnmapped, 4, 3),
        Event::new(EventKind::Wait).a(5).c(0).on(1, 0),
        block(4, 2 * MIB, 14 * MIB, 2),
        Event::new(EventKind::MoveSubmitted).handle(3).b(MIB).c(10 * MIB).of(PAGED, 0),
        Event::new(EventKind::MoveRefused).handle(1).a(HELD).b(2 * MIB),
        Event::new(EventKind::MoveCommitted).handle(3).b(MIB),
        block(5, MIB, 9 * MIB, 0),
    ]);
    for (number, event) in (1..).zip(&mut events) {
        (event.sequence, event.time_ns) = (number, 1000 * number);
    }
    events
}

fn recording() -> Recording {
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    let tag = |number, text: &str| Text { kind: TextKind::Tag, number, text: text.to_owned() };
    writer.texts(&[tag(1, "weights"), tag(2, "activations")]).unwrap();
    writer.keyframe(&HeapState::default()).unwrap();
    writer.events(&events()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.terrane");
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    open(&path, &Progress::default()).unwrap()
}

#[test]
fn what_is_not_backed_and_what_is_stale_has_its_place_and_counts_as_neither_free_nor_reserved() {
    let recording = recording();
    let moment = crate::window::model::Moment::of(&recording, recording.end());
    assert_eq!((moment.reserved, moment.extent), (10 * MIB, 16 * MIB));
    let bytes = |state| -> u64 {
        moment.parts.iter().filter(|part| part.state == state).map(|part| part.bytes).sum()
    };
    assert_eq!(bytes(PartState::Stale), 2 * MIB);
    assert_eq!(bytes(PartState::Unbacked), 4 * MIB);
    assert_eq!((bytes(PartState::Live), bytes(PartState::Free)), (8 * MIB, 2 * MIB));
    let mut at = 0;
    for part in &moment.parts {
        assert_eq!(part.start, at, "{:?}", moment.parts);
        at += part.bytes;
    }
    assert_eq!(at, moment.extent);
    // The block that moved is at its new place and nowhere else.
    let moved = recording.moves[0];
    assert!(moment.part_of(&recording, moved.to).is_some());
    assert!(moment.part_of(&recording, moved.from).is_none());
    let before = crate::window::model::Moment::of(&recording, moved.before);
    assert!(before.part_of(&recording, moved.from).is_some());
    let held = recording.blocks.iter().filter(|b| b.hold == Hold::Refused(HELD as u8));
    assert_eq!(held.count(), 1);
}

/// What a view says of the recording, colours standing for something.
fn said(view: View, coloring: Coloring, words: &[&str]) {
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording());
    inspector.go(crate::window::At::End);
    inspector.document().unwrap().sight.coloring = coloring;
    inspector.show_only(Some(view));
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    for words in words {
        let count = harness.query_all_by_label_contains(words).count();
        assert!(count > 0, "{view:?}: nothing is called `{words}`");
    }
}

#[test]
fn views_name_moves_waits_limits_tags_and_what_is_held() {
    let pages = ["stale: its pages are mapped elsewhere", "no memory behind it"];
    said(View::HeapMap, Coloring::Size, &pages);
    said(View::HeapMap, Coloring::Tag, &["weights", "activations", "no tag"]);
    let holds = ["movable", "held in place", "not known: no pass asked"];
    said(View::HeapMap, Coloring::Movable, &holds);
    said(View::AddressTime, Coloring::Size, &["1 move", "moved, to the dot"]);
    said(View::Streams, Coloring::Size, &["1 wait", "arrow: a request waits"]);
    said(View::Timeline, Coloring::Size, &["limit, at most 64 MiB"]);
    said(View::Budget, Coloring::Size, &["Headroom over the run: at least 52 MiB"]);
}
