//! What the first moves of a plan come to: a pass that may not make all of them makes none that
//! would only use free pages up.

use super::{PagedMove, PagedView, pages_under};

/// How many of the first `most` moves are worth making: those after which the most bytes lie in
/// wholly free pages, and what follows them as far as it enters no free page, for such moves lead
/// on to the next gain. O(n log n).
pub fn worth_making(view: &PagedView, moves: &[PagedMove], most: usize) -> usize {
    let pages = &view.pages;
    // How many parts of each page are not free.
    let mut taken = vec![0_u32; pages.len()];
    for part in view.parts.iter().filter(|part| !part.is_free()) {
        for page in pages_under(pages, part.offset, part.end()) {
            taken[page] += 1;
        }
    }
    let (mut gained, mut best, mut enters_free) = (0_i128, (0, 0), false);
    for (it, made) in moves.iter().zip(1..).take(most) {
        for page in pages_under(pages, it.to, it.to + it.bytes) {
            if taken[page] == 0 {
                gained -= i128::from(pages[page].bytes);
                enters_free = true;
            }
            taken[page] += 1;
        }
        for page in pages_under(pages, it.from, it.from + it.bytes) {
            taken[page] -= 1;
            if taken[page] == 0 && pages[page].may_leave {
                gained += i128::from(pages[page].bytes);
            }
        }
        if gained > best.0 {
            (best, enters_free) = ((gained, made), false);
        } else if gained == best.0 && !enters_free {
            best.1 = made;
        }
    }
    best.1
}
