//! Parts of a history against a plain walk over all of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use terrane_trace::diagnose::{heap_by_address, timeline_each};
use terrane_trace::file::HeapState;
use terrane_trace::recording::{Follow, Point, Recording, Selection, open_recording};
use terrane_trace::snapshot::{History, StackId};
use terrane_trace::{Lifetime, Op};

fn open(name: &str) -> Recording {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots").join(name);
    open_recording(&path, &mut |_| ControlFlow::Continue(())).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

/// A range of a history and filters, each there or not.
fn selection(random: &mut Random, history: &History) -> (Selection, usize, usize) {
    let events = history.trace.events().len();
    let (a, b) = (random.below(events), random.below(events));
    let (from, to) = (a.min(b), a.max(b) + 1);
    let mut selection = Selection {
        from: Some(Point::Event(from)),
        to: (to < events).then_some(Point::Event(to)),
        ..Selection::default()
    };
    match random.below(6) {
        0 => selection.stream = Some(random.below(4) as u32),
        1 => selection.bytes_min = Some(1 << (8 + random.below(14))),
        2 => selection.bytes_max = Some(1 << (8 + random.below(14))),
        3 => {
            let words = ["forward", "optim", "torch", "main"];
            selection.site = Some(words[random.below(4)].to_owned());
        }
        _ => {}
    }
    (selection, from, to)
}

fn keeps(
    selection: &Selection,
    recording: &Recording,
    (stack, bytes, stream): (Option<StackId>, u64, u32),
) -> bool {
    let named = |text: &str| {
        let lines = stack.map_or_else(Vec::new, |stack| recording.snapshot.stack_lines(stack));
        lines.join("\n").contains(text)
    };
    selection.stream.unwrap_or(stream) == stream
        && selection.bytes_min.unwrap_or(0) <= bytes
        && bytes <= selection.bytes_max.unwrap_or(u64::MAX)
        && selection.site.as_deref().is_none_or(named)
}

type Row = (Op, u64, u64, u64, u32);

/// The events that a part is to have: blocks that are there at its start, and what follows.
fn expected(history: &History, kept: &[bool], from: usize, to: usize) -> (Vec<Row>, usize) {
    let events = history.trace.events();
    let address = |block: u32| history.blocks[block as usize].address;
    let mut live = BTreeMap::new();
    for event in &events[..from] {
        match event.op {
            Op::Alloc => _ = live.insert(event.block, (*event, false)),
            Op::FreeRequested => live.get_mut(&event.block).unwrap().1 = true,
            Op::FreeCompleted => _ = live.remove(&event.block),
        }
    }
    let mut rows = Vec::new();
    for (block, (event, pending)) in live.into_iter().filter(|(block, _)| kept[*block as usize]) {
        let row = |op| (op, events[from].time_us, address(block), event.bytes, event.stream);
        rows.push(row(Op::Alloc));
        rows.extend(pending.then(|| row(Op::FreeRequested)));
    }
    let before = rows.len();
    rows.extend(
        events[from..to].iter().filter(|event| kept[event.block as usize]).map(|event| {
            (event.op, event.time_us, address(event.block), event.bytes, event.stream)
        }),
    );
    (rows, before)
}

/// Bytes in use after so many events.
fn active(history: &History, kept: &[bool], events: usize) -> i128 {
    let events = history.trace.events()[..events].iter();
    let kept = events.filter(|event| kept[event.block as usize]);
    kept.map(|event| match event.op {
        Op::Alloc => i128::from(event.bytes),
        Op::FreeCompleted => -i128::from(event.bytes),
        Op::FreeRequested => 0,
    })
    .sum()
}

fn compare(recording: &Recording, chosen: (&Selection, usize, usize), told: &str) {
    let (selection, from, to) = chosen;
    let (snapshot, history) = (&recording.snapshot, &recording.histories[0]);
    let lives = history.trace.lifetimes();
    let is_kept = |(origin, life): (&terrane_trace::snapshot::Origin, &Lifetime)| {
        keeps(selection, recording, (origin.stack, life.bytes, life.stream))
    };
    let kept: Vec<bool> = history.blocks.iter().zip(&lives).map(is_kept).collect();
    let (rows, before) = expected(history, &kept, from, to);
    let part = match selection.apply(snapshot, history) {
        Ok(part) => part,
        Err(reason) => {
            assert!(rows.is_empty() && reason.contains("filters"), "{told}: {reason}");
            return;
        }
    };
    let shown: Vec<Row> = part
        .trace
        .iter()
        .map(|event| {
            let address = part.blocks[event.block as usize].address;
            (event.op, event.time_us, address, event.bytes, event.stream)
        })
        .collect();
    assert_eq!(shown, rows, "{told}");
    let earlier = rows[..before].iter().filter(|row| row.0 == Op::Alloc).count();
    assert_eq!(part.gaps.earlier_blocks, earlier as u64, "{told}");
    // Memory is that of the whole, at each event that is in the part.
    let whole: Vec<u64> = timeline_each(snapshot, history).map(|point| point.reserved).collect();
    let of_part: Vec<u64> = timeline_each(snapshot, &part).map(|point| point.reserved).collect();
    let events = (from..to).filter(|at| kept[history.trace.events()[*at].block as usize]);
    assert!(events.map(|at| whole[at]).eq(of_part[before..].iter().copied()), "{told}");
    // Failed requests with what was in use then.
    let attempts: Vec<_> = history
        .attempts
        .iter()
        .filter(|it| (from..=to).contains(&it.before_event))
        .filter(|it| keeps(selection, recording, (it.stack, it.bytes, it.stream)))
        .map(|it| (it.bytes, it.entry, active(history, &kept, it.before_event)))
        .collect();
    let all = vec![true; part.blocks.len()];
    let shown = part.attempts.iter();
    let shown = shown.map(|it| (it.bytes, it.entry, active(&part, &all, it.before_event)));
    assert_eq!(shown.collect::<Vec<_>>(), attempts, "{told}");
    match selection.last_failure(snapshot, history) {
        Ok(found) => {
            assert_eq!(Some(history.attempts[found].entry), attempts.last().map(|it| it.1));
        }
        Err(reason) => assert!(attempts.is_empty() && reason.contains("none of"), "{reason}"),
    }
    let in_memory =
        lives.iter().map(|life| life.alloc < to && life.completed.is_none_or(|at| at >= from));
    let expected = kept.iter().zip(in_memory).map(|(kept, there)| *kept && there);
    assert_eq!(
        selection.chosen(snapshot, history).unwrap(),
        expected.collect::<Vec<_>>(),
        "{told}"
    );
}

#[test]
fn a_part_has_the_blocks_memory_and_failures_that_a_walk_over_the_whole_finds() {
    for (name, failures) in [("multistream.frames", false), ("unet_multires.oom", true)] {
        let recording = open(&format!("{name}.pickle.gz"));
        assert_eq!(recording.histories[0].attempts.is_empty(), !failures);
        for seed in 0..60 {
            let mut random = Random(seed);
            let (selection, from, to) = selection(&mut random, &recording.histories[0]);
            compare(
                &recording,
                (&selection, from, to),
                &format!("{name}, seed {seed}: {selection:?}"),
            );
        }
    }
}

/// A recording of our own: blocks of a plain segment and of pages, with moves and frees.
fn own() -> Recording {
    use terrane_core::event::{Event, EventKind};
    let block = |kind, handle: u64, at: u64| {
        let event = Event::new(kind).handle(handle).a(1000).b(1024).c(at);
        event.on(u32::from(handle > 2), 0).of(u8::from(handle > 3), 0)
    };
    let page = |kind, at: u64| Event::new(kind).a(70 + at).b(4096).c(at).of(1, 0);
    let mut events = vec![
        Event::new(EventKind::SegmentEnd).b(1 << 20),
        block(EventKind::Alloc, 1, 0),
        block(EventKind::Alloc, 2, 1024),
        Event::new(EventKind::PageCreated).a(70).b(4096).of(1, 0),
        page(EventKind::PageMapped, 0),
        block(EventKind::Alloc, 4, 2048),
        block(EventKind::MoveSubmitted, 1, 9216),
        block(EventKind::MoveCommitted, 1, 9216),
        block(EventKind::Alloc, 3, 0),
        block(EventKind::FreeRequested, 2, 1024),
        block(EventKind::MoveSubmitted, 3, 4096),
        block(EventKind::FreeCompleted, 2, 1024),
        Event::new(EventKind::PageCreated).a(4166).b(4096).of(1, 0),
        page(EventKind::PageMapped, 4096),
        block(EventKind::Alloc, 5, 4096),
        block(EventKind::MoveSubmitted, 1, 1024),
        block(EventKind::FreeRequested, 1, 1024),
        block(EventKind::FreeCompleted, 1, 1024),
    ];
    for (number, event) in (1..).zip(&mut events) {
        (event.sequence, event.time_ns) = (number, 1000 * number);
    }
    let mut follow = Follow::new();
    follow.state(&HeapState::default()).unwrap();
    follow.events(&events).unwrap();
    follow.into_recording()
}

#[test]
fn blocks_of_a_part_lie_where_moves_before_and_within_it_have_put_them() {
    let recording = own();
    let history = &recording.histories[0];
    let count = history.trace.events().len();
    assert_eq!(count, 9);
    // Blocks by their first address, and holes.
    let show = |history: &History, events: usize| {
        let heap = heap_by_address(history, events);
        let blocks = heap.blocks.iter().map(|it| (it.address, it.bytes, it.stream, it.free));
        blocks.collect::<Vec<_>>()
    };
    for (from, to) in (0..count).flat_map(|from| (from + 1..=count).map(move |to| (from, to))) {
        let selection = Selection {
            from: Some(Point::Event(from)),
            to: Some(Point::Event(to)),
            ..Selection::default()
        };
        let part = selection.apply(&recording.snapshot, history).unwrap();
        let before = part.trace.events().len() - (to - from);
        for events in 1..=to - from {
            let told = format!("{events} events of {from} to {to}");
            assert_eq!(show(&part, before + events), show(history, from + events), "{told}");
        }
    }
}

#[test]
fn places_are_found_by_time_and_annotation_and_what_is_not_there_is_told() {
    let recording = open("unet_multires.oom.pickle.gz");
    let (snapshot, history) = (&recording.snapshot, &recording.histories[0]);
    let events = history.trace.events();
    let at = |text: &str| text.parse::<Point>().unwrap().events(snapshot, history);
    assert_eq!((at("0"), at("7"), at("999999999")), (Ok(0), Ok(7), Ok(events.len())));
    for text in ["20ms", "0.02s", "20000us"] {
        let found = at(text).unwrap();
        assert!(events[found - 1].time_us < 20_000 && events[found].time_us >= 20_000, "{found}");
    }
    let error = at("@no such").unwrap_err();
    assert!(error.contains("no such") && error.contains("56 annotations"), "{error}");
    let first = snapshot.annotations[0];
    let named = Point::Marker(snapshot.strings.get(first.name).to_owned());
    let found = named.events(snapshot, history).unwrap();
    let times = events.iter().map(|event| history.start_us + event.time_us);
    assert_eq!(times.take_while(|time| *time < first.time_us).count(), found);
    let range = |from, to| Selection { from: Some(from), to: Some(to), ..Selection::default() };
    let error = range(Point::Event(9), Point::Event(9)).apply(snapshot, history).unwrap_err();
    assert!(error.contains("empty"), "{error}");
    assert!(Selection::default().is_all() && !range(Point::Event(0), Point::Event(1)).is_all());
}
