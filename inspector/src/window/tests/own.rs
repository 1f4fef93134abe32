//! What only a trace of our own tells: moves, waits, pages that come and go, tags, limits.

use egui_kittest::kittest::Queryable as _;
use terrane_core::event::{Event, EventKind, MoveKind};
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
    let moved = Event::new(EventKind::MoveSubmitted).handle(3).b(MIB).c(10 * MIB).of(PAGED, 0);
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
        Event::new(EventKind::Submitted).a(5).b(3 * MIB).c(2).on(1, 0),
        Event::new(EventKind::WorkWaits).handle(2).a(5).c(0).on(1, 0),
        Event::new(EventKind::Submitted).a(1).b(2 * MIB).c(1),
        Event::new(EventKind::Wait).a(5).c(0).on(1, 0),
        block(4, 2 * MIB, 14 * MIB, 2),
        moved.by(MoveKind::Remap),
        Event::new(EventKind::MoveRefused).handle(1).a(HELD).b(2 * MIB),
        Event::new(EventKind::MoveCommitted).handle(3).b(MIB),
        block(5, MIB, 9 * MIB, 0),
        block(6, MIB, 11 * MIB, 0),
        // Of stream 0, in use until the work of stream 1 is done.
        Event::new(EventKind::FreeWaits).handle(6).a(5).on(1, 0),
        Event::new(EventKind::FreeRequested).handle(6).a(MIB).b(MIB).of(PAGED, 0),
        Event::new(EventKind::Reached).a(1),
    ]);
    for (number, event) in (1..).zip(&mut events) {
        (event.sequence, event.time_ns) = (number, 1000 * number);
    }
    events
}

fn recording() -> Recording {
    recording_of(&events())
}

fn recording_of(events: &[Event]) -> Recording {
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    let tag = |number, text: &str| Text { kind: TextKind::Tag, number, text: text.to_owned() };
    writer.texts(&[tag(1, "weights"), tag(2, "activations")]).unwrap();
    writer.keyframe(&HeapState::default()).unwrap();
    writer.events(events).unwrap();
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
    assert_eq!((moment.stale, moment.unbacked), (2 * MIB, 4 * MIB));
    assert_eq!((bytes(PartState::Live), bytes(PartState::Free)), (8 * MIB, MIB));
    assert_eq!(bytes(PartState::Pending), MIB);
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

#[test]
fn each_page_has_its_place_and_its_memory_object_in_map_hover_and_table() {
    let recording = recording();
    let moment = crate::window::model::Moment::of(&recording, recording.end());
    let pages: Vec<_> = moment.pages.iter().map(|page| (page.start / MIB, page.object)).collect();
    assert_eq!(pages, [(0, 1), (4, 3), (8, 5), (10, 6), (14, 2)]);
    assert_eq!(moment.page_at(5 * MIB).map(|page| page.object), Some(3));
    assert_eq!(moment.page_at(2 * MIB), None, "stale");
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording);
    inspector.go(crate::window::At::End);
    inspector.show_only(Some(View::HeapMap));
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    let map = harness.get_by_label_contains("Heap map: ").rect();
    harness.event(egui::Event::PointerMoved(map.center() - egui::vec2(0.0, map.height() * 0.45)));
    harness.run_steps(60);
    let hover = "on a page of 2 MiB, of memory object 1";
    assert_eq!(harness.query_all_by_label_contains(hover).count(), 1);
    harness.state_mut().show_only(Some(View::Segments));
    settled(&mut harness);
    let csv = {
        let document = harness.state_mut().document().unwrap();
        document.panels.tables.copy(&document.recording, &document.moment, true)
    };
    let last: Vec<_> =
        csv.lines().map(|line| line.rsplit(',').take(2).collect::<Vec<_>>()).collect();
    assert_eq!(last, [["objects", "pages"], ["5", "5"]], "{csv}");
}

#[test]
fn whether_a_block_can_be_moved_is_told_for_every_block_at_every_moment() {
    use terrane_core::compact::Why;
    let block = |handle, at, hold: Option<Why>| {
        let event = Event::new(EventKind::Alloc).handle(handle).a(MIB).b(MIB).c(at);
        event.holding(1 + hold.map_or(0, |why| why as u8))
    };
    let hold = |handle, why: u64| Event::new(EventKind::Hold).handle(handle).a(why);
    let mut events = vec![
        Event::new(EventKind::SegmentEnd).b(16 * MIB),
        block(1, 0, None),
        block(2, 2 * MIB, Some(Why::Asked)),
        hold(1, Why::Held as u64),
        block(3, 4 * MIB, None),
        // What a pass refuses is known by then.
        Event::new(EventKind::MoveRefused).handle(3).a(Why::Moving as u64).b(MIB),
        hold(1, 0),
        block(4, 6 * MIB, None),
        hold(3, Why::Captured as u64),
        Event::new(EventKind::MoveSubmitted).handle(3).b(MIB).c(8 * MIB),
        block(5, 12 * MIB, Some(Why::RawHandle)),
        hold(3, 0),
        block(6, 14 * MIB, None),
    ];
    (1..).zip(&mut events).for_each(|(number, event)| event.sequence = number);
    let recording = recording_of(&events);
    let held = |why: Why| Hold::Refused(why as u8);
    // Moments count blocks made here.
    let of = |at: u32| [0, 1, 2].map(|block| recording.hold(block, at));
    assert_eq!(of(1)[0], Hold::Movable);
    assert_eq!(of(2)[..2], [held(Why::Held), held(Why::Asked)]);
    assert_eq!(of(3), [Hold::Movable, held(Why::Asked), Hold::Movable]);
    let moved = recording.moves[0].to;
    assert_eq!(recording.hold(moved, 4), held(Why::Captured));
    assert_eq!(recording.hold(moved, 5), Hold::Movable);
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording);
    inspector.go(crate::window::At::Event(4));
    inspector.document().unwrap().sight.coloring = Coloring::Movable;
    inspector.show_only(Some(View::HeapMap));
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    for (words, count) in [("movable", 1), ("made not to move", 1), ("used by a captured graph", 1)]
    {
        let keys = harness.query_all_by_label(&format!("colour key: {words}")).count();
        assert_eq!(keys, count, "{words}");
    }
    assert_eq!(harness.query_all_by_label_contains("not told").count(), 0);
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
    said(View::HeapMap, Coloring::Size, &["long tick: a memory object begins"]);
    said(View::HeapMap, Coloring::Tag, &["weights", "activations", "no tag"]);
    let holds = ["movable", "held in place", "not told, and no pass tried it"];
    said(View::HeapMap, Coloring::Movable, &holds);
    said(View::AddressTime, Coloring::Size, &["1 move", "moved, to the dot"]);
    let means = ["1 remapped", "ring: remapped"];
    said(View::Compaction, Coloring::Size, &means);
    let lanes = [
        "2 pieces of work",
        "2 waits",
        "arrow: waits for the stream that it comes from",
        "dots: from blocks pending now",
        "1 block (1 MiB) pending on stream 1, work 5",
    ];
    said(View::Streams, Coloring::Size, &lanes);
    said(View::Timeline, Coloring::Size, &["limit, at most 64 MiB"]);
    said(View::Budget, Coloring::Size, &["Headroom over the run: at least 52 MiB"]);
}

#[test]
fn work_is_under_way_until_it_was_known_to_be_done_and_a_block_names_what_it_waits_for() {
    use crate::window::model::NEVER;
    let recording = recording();
    let works: Vec<_> = recording.work.iter().map(|w| (w.stream, w.value, w.bytes)).collect();
    assert_eq!(works, [(1, 5, 3 * MIB), (0, 1, 2 * MIB)]);
    assert_eq!(recording.work[0].done, NEVER);
    assert_eq!(recording.work[1].done, recording.end());
    assert_eq!(recording.waits.iter().map(|wait| wait.by_work).collect::<Vec<_>>(), [true, false]);
    let freed = recording.pending[0].block;
    assert!(recording.blocks[freed as usize].freed <= recording.end());
    assert_eq!(recording.awaited_text(freed), "stream 1, work 5");
    assert_eq!(recording.awaited_text(0), "");
}

#[test]
fn the_table_of_moves_says_of_each_by_what_means_and_one_from_before_that_was_told_says_so() {
    let mut recording = recording();
    assert_eq!(recording.moves[0].by, MoveKind::Remap);
    let untold = crate::window::model::Move { by: MoveKind::Untold, ..recording.moves[0] };
    recording.moves.push(untold);
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording);
    inspector.go(crate::window::At::End);
    inspector.show_only(Some(View::Compaction));
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    harness.get_by_label("table").click();
    settled(&mut harness);
    let csv = {
        let document = harness.state_mut().document().unwrap();
        document.panels.tables.copy(&document.recording, &document.moment, true)
    };
    let how = |line: &str| line.split(',').nth(4).map(str::to_owned);
    let told: Vec<_> = csv.lines().filter_map(how).collect();
    assert_eq!(told, ["how", "remapped", "not told how"], "{csv}");
}

#[test]
fn pending_blocks_and_work_are_tables_beside_the_lanes() {
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording());
    inspector.go(crate::window::At::End);
    inspector.show_only(Some(View::Streams));
    let mut harness = harness(inspector, true, false);
    settled(&mut harness);
    for (tab, words) in [("pending", "stream 1, work 5"), ("work and waits", "work submitted")] {
        harness.get_by_label(tab).click();
        settled(&mut harness);
        let found = harness.query_all_by_label_contains(words).count();
        assert!(found > 0, "{tab}: nothing is called `{words}`");
        let csv = {
            let document = harness.state_mut().document().unwrap();
            document.panels.tables.copy(&document.recording, &document.moment, true)
        };
        assert!(csv.lines().count() > 1, "{tab}: {csv}");
    }
}

/// A file in which events 20 to 29 were lost, with the state after them.
fn with_gap() -> Recording {
    let plain =
        |handle, at| Event::new(EventKind::Alloc).handle(handle).a(MIB).b(MIB).c(at).within(1);
    let segment = |space| Event::new(EventKind::SegmentEnd).a(space).b(8 * MIB);
    let mut before =
        vec![segment(1), segment(2), plain(1, 0), plain(2, 2 * MIB), plain(3, 4 * MIB)];
    let mut after = HeapState::default();
    for event in [segment(1), plain(1, MIB), plain(3, 4 * MIB), plain(4, 6 * MIB)] {
        after.apply(&event, &mut |_| {});
    }
    after.sequence = 29;
    let mut rest = vec![Event::new(EventKind::FreeRequested).handle(3).a(MIB).b(MIB).within(1)];
    rest.push(Event::new(EventKind::FreeCompleted).handle(3).b(MIB));
    let number = |events: &mut Vec<Event>, first: u64| {
        for (number, event) in (first..).zip(events) {
            (event.sequence, event.time_ns) = (number, 1000 * number);
        }
    };
    number(&mut before, 15);
    number(&mut rest, 30);
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    writer.keyframe(&HeapState::empty_after(14)).unwrap();
    writer.events(&before).unwrap();
    writer.keyframe(&after).unwrap();
    writer.events(&rest).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gap.terrane");
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    open(&path, &Progress::default()).unwrap()
}

#[test]
fn a_file_with_lost_events_says_so_where_they_were_lost_and_goes_on_from_the_state_after_them() {
    let recording = with_gap();
    assert_eq!(recording.gaps.len(), 1);
    assert_eq!((recording.gaps[0].at, recording.gaps[0].lost), (3, 10));
    let moment = crate::window::model::Moment::of(&recording, recording.end());
    // The second segment is gone, the first counts once, and one block is elsewhere.
    assert_eq!((moment.reserved, moment.live_blocks), (8 * MIB, 2));
    let live = moment.parts.iter().filter(|part| part.state == PartState::Live);
    assert_eq!(live.map(|part| part.start).collect::<Vec<_>>(), [MIB, 6 * MIB]);
    assert_eq!(recording.moves.len(), 1);
    let times: Vec<u64> = recording.events.iter().map(|event| event.time_us).collect();
    assert!(times.is_sorted(), "{times:?}");
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording);
    let mut whole = harness(inspector, true, false);
    settled(&mut whole);
    assert!(whole.query_all_by_label_contains("10 events were lost").count() > 0);
    assert!(whole.query_all_by_label("colour key: ×: events were lost").count() > 0);
}
