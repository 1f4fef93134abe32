use super::*;

const PAGE: u64 = 100;

/// Pages side by side, and blocks in them: first byte and bytes.
fn view(pages: u64, blocks: &[(u64, u64)]) -> PagedView {
    let mut parts = Vec::new();
    let mut at = 0;
    for (&(offset, bytes), owner) in blocks.iter().zip(0..) {
        if offset > at {
            parts.push(Part { offset: at, bytes: offset - at, what: What::Free });
        }
        parts.push(Part { offset, bytes, what: What::Movable { owner, align: 1 } });
        at = offset + bytes;
    }
    if at < pages * PAGE {
        parts.push(Part { offset: at, bytes: pages * PAGE - at, what: What::Free });
    }
    let page = |n| PageView { at: n * PAGE, bytes: PAGE, may_leave: true };
    PagedView { parts, pages: (0..pages).map(page).collect() }
}

/// Bytes of wholly free pages once the moves are made; no two blocks may overlap.
fn free_after(view: &PagedView, moves: &[PagedMove]) -> u64 {
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for part in view.parts.iter().filter(|part| !part.is_free()) {
        let moved = moves.iter().find(|it| it.from == part.offset);
        blocks.push((moved.map_or(part.offset, |it| it.to), part.bytes));
    }
    blocks.sort_unstable();
    assert!(blocks.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{blocks:?}");
    let is_free = |page: &&PageView| {
        blocks.iter().all(|&(at, len)| at + len <= page.at || at >= page.at + page.bytes)
    };
    view.pages.iter().filter(is_free).map(|page| page.bytes).sum()
}

/// The space after some moves.
fn after(view: &PagedView, moves: &[PagedMove]) -> PagedView {
    let taken = view.parts.iter().filter(|part| !part.is_free()).map(|part| {
        let moved = moves.iter().find(|it| it.from == part.offset);
        Part { offset: moved.map_or(part.offset, |it| it.to), ..*part }
    });
    PagedView::new(taken.collect(), view.pages.clone())
}

#[test]
fn the_page_whose_blocks_are_smallest_is_emptied() {
    let view = view(3, &[(0, 60), (110, 10), (150, 10), (200, 70)]);
    let moves = free_pages(&view, PAGE);
    assert_eq!(moves.iter().map(|it| it.bytes).sum::<u64>(), 20, "{moves:?}");
    assert_eq!(free_after(&view, &moves), PAGE);
}

#[test]
fn a_block_over_two_pages_goes_where_there_is_room_for_it_and_not_into_a_free_page() {
    // 90 to 110 is one block; page 2 is free; page 3 has a hole of 30.
    let view = view(4, &[(0, 85), (90, 20), (330, 70)]);
    let moves = free_pages(&view, PAGE);
    assert_eq!(moves, [PagedMove { owner: 1, from: 90, bytes: 20, to: 300 }]);
    assert_eq!(free_after(&view, &moves), 2 * PAGE);
}

#[test]
fn blocks_that_fit_into_no_page_in_use_come_closer_together_in_free_ones() {
    // Two blocks of 90 bytes with 60 between them reach into four pages; two are enough.
    let view = view(7, &[(55, 90), (205, 90)]);
    assert_eq!(free_after(&view, &[]), 4 * PAGE);
    let moves = free_pages(&view, PAGE);
    assert!(free_after(&view, &moves) >= 5 * PAGE, "{moves:?}");
}

#[test]
fn what_can_not_be_placed_stays_and_held_blocks_hold_their_page() {
    let mut full = view(2, &[(0, 60), (100, 60)]);
    assert_eq!(free_pages(&full, PAGE), []);
    full = view(2, &[(0, 10), (100, 60)]);
    full.parts[0].what = What::Fixed { owner: 0, why: super::super::Why::Held };
    assert_eq!(free_pages(&full, PAGE), [PagedMove { owner: 1, from: 100, bytes: 60, to: 10 }]);
}

/// Numbers below `most`, always the same ones.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |most| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % most
    }
}

/// Blocks of `least` bytes and up to twice as many, of which every second is gone.
fn worn(pages: u64, least: u64, seed: u64) -> PagedView {
    let mut next = numbers(seed);
    let (mut blocks, mut at) = (Vec::new(), 0);
    loop {
        let bytes = least + next(least);
        if at + 2 * bytes > pages * PAGE {
            return view(pages, &blocks);
        }
        blocks.push((at, bytes));
        at += bytes + least + next(least);
    }
}

#[test]
fn more_than_half_of_what_is_free_comes_together_however_long_the_blocks_are() {
    for least in [1, 5, 15, 30, 45, 60] {
        // A few free pages to begin with: the moves go on in rounds, as in a pass.
        let mut view = worn(400, least, least);
        let blocks: u64 = view.parts.iter().filter(|it| !it.is_free()).map(|it| it.bytes).sum();
        view.pages.extend((400..404).map(|n| PageView {
            at: n * PAGE,
            bytes: PAGE,
            may_leave: true,
        }));
        let free = 404 * PAGE - blocks;
        for _ in 0..8 {
            let moves = free_pages(&view, free);
            let next = after(&view, &moves);
            assert!(free_after(&next, &[]) >= free_after(&view, &[]), "blocks of {least}");
            view = next;
        }
        let together = free_after(&view, &[]);
        assert!(2 * together > free, "blocks of {least}: {together} of {free}");
    }
}

#[test]
fn moves_never_overlap_nor_cost_more_pages_than_they_free() {
    for seed in 0..200 {
        let mut next = numbers(seed);
        let (mut blocks, mut at) = (Vec::new(), next(30));
        while at < 1_900 {
            let bytes = 1 + next(120);
            blocks.push((at, bytes));
            at += bytes + next(90);
        }
        let mut view = view(22, &blocks);
        for part in &mut view.parts {
            if part.is_movable() && next(12) == 0 {
                part.what = What::Busy;
            }
        }
        let free_pages_now = free_after(&view, &[]);
        let wanted = next(2_000);
        let moves = free_pages(&view, wanted);
        assert!(free_after(&view, &moves) >= free_pages_now, "seed {seed}: {moves:?}");
        assert_eq!(free_pages(&view, wanted), moves, "seed {seed}");
        let busy = |it: &Part| it.what == What::Busy;
        for it in &moves {
            assert!(view.parts.iter().all(|part| !busy(part) || part.offset != it.from));
        }
    }
}

#[test]
fn a_view_of_parts_and_pages_that_do_not_go_together_has_no_byte_twice() {
    let block =
        |offset, bytes, owner| Part { offset, bytes, what: What::Movable { owner, align: 1 } };
    // The second block overlaps the first; a page was taken down at its old and its new place.
    let page = |at, bytes| PageView { at, bytes, may_leave: true };
    let view = PagedView::new(
        vec![block(250, 20, 2), block(0, 60, 0), block(40, 40, 1)],
        vec![page(200, 100), page(0, 100), page(50, 100)],
    );
    assert_eq!(view.pages, [page(0, 100), page(200, 100)]);
    let free = |offset, bytes| Part { offset, bytes, what: What::Free };
    let expected = [
        block(0, 60, 0),
        Part { offset: 60, bytes: 20, what: What::Busy },
        free(80, 20),
        free(200, 50),
        block(250, 20, 2),
        free(270, 30),
    ];
    assert_eq!(view.parts, expected);
}

#[test]
fn passes_of_a_few_moves_each_come_to_an_end_and_use_up_no_free_pages() {
    for least in [30, 60, 130] {
        for most in [1, 2, 5] {
            let mut view = after(&worn(200, least, least), &[]);
            // The last dozen is free: moves into free pages are found too.
            let page = |n| PageView { at: n * PAGE, bytes: PAGE, may_leave: true };
            view = after(&PagedView { pages: (0..212).map(page).collect(), ..view }, &[]);
            let (mut free, mut passes) = (free_after(&view, &[]), 0);
            loop {
                let mut moves = free_pages(&view, u64::MAX);
                moves.truncate(worth_making(&view, &moves, most));
                if moves.is_empty() {
                    break;
                }
                view = after(&view, &moves);
                let now = free_after(&view, &[]);
                assert!(now >= free, "blocks of {least}, {most} moves each: {free} to {now}");
                (free, passes) = (now, passes + 1);
                assert!(passes < 300, "blocks of {least}, {most} moves each");
            }
        }
    }
}

/// A space of pages of mixed lengths, with gaps between some, and blocks of mixed alignments, some
/// of which may not move.
fn mixed(seed: u64) -> PagedView {
    const UNIT: u64 = 64 << 10;
    let mut next = numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut pages, mut at) = (Vec::new(), next(8) * UNIT);
    for _ in 0..2 + next(40) {
        let bytes = UNIT << [0, 0, 1, 2, 3, 5, 8][next(7) as usize];
        pages.push(PageView { at, bytes, may_leave: next(10) > 0 });
        at += bytes + if next(5) == 0 { UNIT << next(6) } else { 0 };
    }
    let backed = |from: u64, to: u64| {
        let under = pages.iter().map(|page| page.end().min(to).saturating_sub(page.at.max(from)));
        under.sum::<u64>()
    };
    let most = 1 << (13 + next(10));
    let wear = next(4) * most / 2 + 1;
    let (mut taken, end) = (Vec::new(), at);
    at = pages[0].at;
    for owner in 0..400 {
        let widest = if next(20) == 0 { 22 } else { 10 };
        let (align, bytes) = (1 << next(widest), 1 + next(most));
        let offset = at.next_multiple_of(align);
        let what = match next(16) {
            0 => What::Busy,
            1 => What::Fixed { owner, why: super::super::Why::Held },
            _ => What::Movable { owner, align },
        };
        if backed(offset, offset + bytes) == bytes {
            taken.push(Part { offset, bytes, what });
            at = offset + bytes + next(wear);
        } else if at < end {
            at += 1 + next(4 * UNIT);
        }
    }
    PagedView::new(taken, pages)
}

#[test]
fn places_are_backed_free_and_aligned_whatever_the_pages_are() {
    let mut gains = 0;
    for seed in 0..60 {
        let view = mixed(seed);
        let before = free_after(&view, &[]);
        for wanted in [1, 3 << 20, u64::MAX] {
            let moves = free_pages(&view, wanted);
            assert_eq!(free_pages(&view, wanted), moves, "seed {seed}");
            for it in &moves {
                let (from, to) = (it.to, it.to + it.bytes);
                let part = view.parts.iter().find(|part| part.offset == it.from).unwrap();
                let What::Movable { owner, align } = part.what else { panic!("{seed}: {part:?}") };
                assert_eq!((owner, part.bytes, it.to % align), (it.owner, it.bytes, 0), "{seed}");
                // What is free in a view is backed.
                let free = view.parts.iter().filter(|part| part.is_free());
                let free = free.map(|it| it.end().min(to).saturating_sub(it.offset.max(from)));
                assert_eq!(free.sum::<u64>(), it.bytes, "seed {seed}: {it:?}");
            }
            // Moves are made for nothing else.
            let now = free_after(&view, &moves);
            assert!(now > before || moves.is_empty(), "seed {seed}: {before} to {now}");
            gains += u64::from(now > before);
        }
    }
    assert!(gains > 60, "only {gains} plans gain anything");
}
