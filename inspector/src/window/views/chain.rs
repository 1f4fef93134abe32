//! The chain of numbers behind a verdict, each a link to its place in the map.

use super::Stage;
use crate::commands::failure::Failure;
use crate::window::commands::Command;
use crate::window::document::Selected;
use crate::window::model::{Moment, Part, PartState, Recording, Space};
use crate::window::view::View;
use terrane_trace::diagnose::{Chain, Explanation};

/// Where a number is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All of the heap when the request failed.
    Heap,
    /// A stretch of addresses, with its bytes.
    Stretch(u64, u64),
    /// Blocks of a site.
    Site(u32),
    /// Limits and what is left.
    Budget,
}

impl Place {
    /// What a click does.
    pub const fn tip(self) -> &'static str {
        match self {
            Self::Heap => "show the heap when the request failed",
            Self::Stretch(..) => "show where in the heap map",
            Self::Site(_) => "let its blocks stand out in the heap map",
            Self::Budget => "show limits and headroom",
        }
    }
}

/// A number of the chain.
pub struct Link {
    /// What it is.
    pub what: String,
    /// How much.
    pub bytes: u64,
    /// In words.
    pub meaning: String,
    /// Where it is seen; nowhere where there was no such memory.
    pub place: Option<Place>,
}

/// Places in the heap as it was when the request failed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The stretch that is cheapest to empty.
    pub window: Option<Place>,
    hole: Option<Place>,
    with_pending: Option<Place>,
    of_others: Option<Place>,
    pending: Option<Place>,
}

impl Places {
    /// Looks for the places of an explanation of the last failure.
    pub fn of(recording: &Recording, found: &Failure) -> Self {
        let Some(failure) = recording.failures.last() else { return Self::default() };
        let moment = Moment::of(recording, failure.at);
        let own = |space: &Space| space.stream == failure.stream;
        let pending = |state| state == PartState::Pending;
        let mut places = Self { pending: most(&moment, pending, |_| true), ..Self::default() };
        if let Failure::Pytorch(found) = found {
            let chain = &found.explanation.chain;
            let free = |state| state == PartState::Free;
            let usable = |state| matches!(state, PartState::Free | PartState::Pending);
            let range = chain.window.map(|window| (window.address, chain.rounded));
            places.window = range.map(|(address, bytes)| Place::Stretch(address, bytes));
            places.hole = exactly(&moment, chain.best_hole, free, own);
            places.with_pending = exactly(&moment, chain.best_hole_with_pending, usable, own);
            let others = |space: &Space| space.stream != failure.stream;
            places.of_others = exactly(&moment, chain.best_hole_other_stream, free, others);
        }
        places
    }
}

/// Stretches of neighbouring parts in one of these states, in these segments: address and bytes.
fn stretches(
    moment: &Moment,
    is_it: impl Fn(PartState) -> bool,
    of: impl Fn(&Space) -> bool,
) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for space in moment.spaces.iter().filter(|space| of(space)) {
        let mut open = false;
        for Part { start, bytes, state, .. } in &moment.parts[space.parts.clone()] {
            match found.last_mut().filter(|_| open && is_it(*state)) {
                Some(last) => last.1 += bytes,
                None if is_it(*state) => {
                    found.push((space.address + (start - space.start), *bytes));
                }
                None => {}
            }
            open = is_it(*state);
        }
    }
    found
}

/// The first stretch of so many bytes.
fn exactly(
    moment: &Moment,
    bytes: u64,
    is_it: impl Fn(PartState) -> bool,
    of: impl Fn(&Space) -> bool,
) -> Option<Place> {
    let all = stretches(moment, is_it, of);
    let found = all.into_iter().find(|stretch| stretch.1 == bytes && bytes > 0)?;
    Some(Place::Stretch(found.0, found.1))
}

/// The longest stretch.
fn most(
    moment: &Moment,
    is_it: impl Fn(PartState) -> bool,
    of: impl Fn(&Space) -> bool,
) -> Option<Place> {
    let found = stretches(moment, is_it, of).into_iter().max_by_key(|stretch| stretch.1)?;
    Some(Place::Stretch(found.0, found.1))
}

/// The numbers behind a verdict, in order, each with its place.
pub fn links(found: &Failure, places: &Places) -> Vec<Link> {
    if let Failure::Pytorch(found) = found {
        return pytorch(&found.explanation, places);
    }
    let place = |what: &str| match what {
        "asked for" | "live" | "reserved" => Some(Place::Heap),
        "pending" => places.pending,
        _ => Some(Place::Budget),
    };
    let link = |(what, bytes, meaning): (&str, u64, String)| {
        let place = place(what);
        Link { what: what.to_owned(), bytes, meaning, place }
    };
    found.numbers().into_iter().map(link).collect()
}

fn pytorch(found: &Explanation, places: &Places) -> Vec<Link> {
    let chain: &Chain = &found.chain;
    let mut links = Vec::new();
    let mut row = |what: &str, bytes: u64, meaning: &str, place: Option<Place>| {
        let (what, meaning) = (what.to_owned(), meaning.to_owned());
        links.push(Link { what, bytes, meaning, place });
    };
    let (heap, budget) = (Some(Place::Heap), Some(Place::Budget));
    row("asked for", chain.asked, "by the program", heap);
    row("segment", chain.segment_bytes, "that would have been made for it", None);
    row("allocated", chain.allocated, "in live blocks, after rounding", heap);
    row("reserved", chain.reserved, "after the cache was given back", heap);
    row("free", chain.free, "reserved and in no block", heap);
    row("largest hole", chain.best_hole, "of this stream and pool", places.hole);
    let text = "the same, once other streams are done";
    row("with pending", chain.best_hole_with_pending, text, places.with_pending);
    let text = "largest hole that belongs to them";
    row("other streams'", chain.best_hole_other_stream, text, places.of_others);
    let text = "in whole free pages of 2 MiB: paging could gather them";
    row("stealable", chain.stealable, text, heap);
    if let Some(window) = chain.window {
        let text = "live bytes in the cheapest stretch: compaction";
        row("to move", window.live_bytes, text, places.window);
    }
    row("given back", chain.released, "to the driver before it failed", None);
    row("driver's free", chain.device_free, "at that moment", budget);
    row("limit at least", found.limit.at_least, "as much was reserved at some moment", budget);
    if let Some(most) = found.limit.at_most {
        row("limit at most", most, "with one byte more it would have been served", budget);
    }
    links
}

/// Shows a place, at the moment of the last failure.
pub fn go(stage: &mut Stage<'_>, place: Place) {
    let last = stage.document.recording.failures.len().saturating_sub(1) as u32;
    stage.document.go_to_failure(last);
    let sight = &mut stage.document.sight;
    let shown = if place == Place::Budget { View::Budget } else { View::HeapMap };
    stage.commands.push(Command::Show(shown));
    match place {
        Place::Heap => sight.camera = None,
        Place::Stretch(address, bytes) => {
            sight.selected = Some(Selected::Range(address, bytes));
            stage.commands.push(Command::ZoomToSelection);
        }
        Place::Site(site) => {
            sight.camera = None;
            sight.selected = Some(Selected::Site(site));
        }
        Place::Budget => {}
    }
}
