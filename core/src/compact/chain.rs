//! Slides: the blocks of a stretch move towards one end, one after the other, into the gap that
//! the one before left.

use super::holes::round_up;
use super::plan::{Chain, Need, Slide};
use super::view::{PoolView, What};
use super::window::Window;

/// The most pieces a block is copied in when it slides by less than its size.
pub(super) const PIECES_MAX: u64 = 64;

/// The slides that bring the free parts of a stretch together, or `None` when a block would have
/// to be copied in too many pieces. Down is tried first: it leaves the free range at the end.
pub(super) fn slide(view: &PoolView, window: Window, need: Need) -> Option<Chain> {
    slide_down(view, window, need).or_else(|| slide_up(view, window, need))
}

fn slide_down(view: &PoolView, window: Window, need: Need) -> Option<Chain> {
    let parts = &view.segments[window.segment].parts;
    let mut to = parts[window.first].offset;
    let mut slides = Vec::new();
    for (at, part) in parts.iter().enumerate().take(window.last + 1).skip(window.first) {
        let What::Movable { owner, align } = part.what else { continue };
        let offset = round_up(to, align);
        if offset < part.offset {
            enough_at_once(part.bytes, part.offset - offset)?;
            slides.push(Slide {
                owner,
                part: at,
                from: part.offset,
                to: offset,
                bytes: part.bytes,
            });
        }
        to = offset.min(part.offset) + part.bytes;
    }
    let is_enough = need.short(to, parts[window.last].end()) == 0;
    is_enough.then(|| chain(window, slides, false))
}

fn slide_up(view: &PoolView, window: Window, need: Need) -> Option<Chain> {
    let segment = &view.segments[window.segment];
    let parts = &segment.parts;
    let mut end = parts[window.last].end();
    // Into the free end of the highest segment in use: that would raise the top.
    if view.top().is_some_and(|(at, top)| at == window.segment && end > top) {
        return None;
    }
    let mut slides = Vec::new();
    for at in (window.first..=window.last).rev() {
        let part = &parts[at];
        let What::Movable { owner, align } = part.what else { continue };
        let offset = (end - part.bytes) & !(align - 1);
        if offset > part.offset {
            enough_at_once(part.bytes, offset - part.offset)?;
            slides.push(Slide {
                owner,
                part: at,
                from: part.offset,
                to: offset,
                bytes: part.bytes,
            });
        }
        end = offset.max(part.offset);
    }
    let is_enough = need.short(parts[window.first].offset, end) == 0;
    is_enough.then(|| chain(window, slides, true))
}

fn enough_at_once(bytes: u64, distance: u64) -> Option<()> {
    (bytes.div_ceil(distance) <= PIECES_MAX).then_some(())
}

fn chain(window: Window, slides: Vec<Slide>, up: bool) -> Chain {
    Chain { segment: window.segment, first: window.first, last: window.last, up, slides }
}
