//! What of a snapshot is there before all of it is read.

use super::convert::convert;
use super::fold::{Key, Records};
use super::{Note, Snapshot};
use crate::pickle::{Arena, Dict, Fold, PickleLimits, Pickled, Value};

/// What of a large snapshot can be looked at while the rest is read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Early {
    /// The segments and blocks at the dump, where they stand before the history in the file. Comes
    /// while the history is read.
    Segments(Snapshot),
    /// The segments and blocks at the peak of the longest history. Comes when all is read, before
    /// the history is put together.
    Peak(Snapshot),
}

/// Who is told of what is there early.
pub(super) type Told<'a> = &'a mut dyn FnMut(Early);

/// Makes records, and tells of the segments once they are complete.
pub(super) struct Watched<'a> {
    pub records: Records,
    limits: PickleLimits,
    tell: Option<Told<'a>>,
}

impl<'a> Watched<'a> {
    pub fn new(limits: PickleLimits, tell: Option<Told<'a>>) -> Self {
        Self { records: Records::default(), limits, tell }
    }
}

impl Fold for Watched<'_> {
    fn dict(&mut self, arena: &Arena, pairs: &[Value]) -> Option<(u8, u32)> {
        self.records.dict(arena, pairs)
    }

    fn glance(&mut self, arena: &Arena, pairs: &[Value]) {
        if self.tell.is_none() {
            return;
        }
        // Complete is what the next key stands behind.
        let complete = pairs.len().saturating_sub(1) / 2;
        for pair in pairs.chunks_exact(2).take(complete) {
            match self.records.key(&arena.strings, pair[0]) {
                Key::Segments => return self.segments(arena, [pair[0], pair[1]]),
                // Behind a history they are no first picture.
                Key::DeviceTraces => return,
                // Any other key may stand before them.
                _ => {}
            }
        }
    }
}

impl Watched<'_> {
    /// Tells of the segments, once.
    fn segments(&mut self, arena: &Arena, pair: [Value; 2]) {
        let Some(tell) = self.tell.take() else { return };
        // What is wrong with them is said when all is read.
        if let Some(snapshot) = segments_of(arena, &self.records, pair, self.limits) {
            tell(Early::Segments(snapshot));
        }
    }
}

/// A snapshot with these segments alone.
fn segments_of(
    arena: &Arena,
    records: &Records,
    pair: [Value; 2],
    limits: PickleLimits,
) -> Option<Snapshot> {
    let mut arena = arena.clone();
    let (pairs, dict) = (arena.pairs.len(), arena.dicts.len());
    arena.pairs.push(pair.to_vec());
    arena.pair_offsets.push(0);
    arena.dicts.push(Dict::Pairs(u32::try_from(pairs).ok()?));
    let root = Value::Dict(u32::try_from(dict).ok()?);
    // The entries read so far belong to the history.
    let records = records.without_entries();
    let mut snapshot = convert(Pickled { arena, root }, records, limits).ok()?;
    snapshot.notes.retain(|note| *note != Note::NoHistory);
    snapshot.notes.push(Note::HistoryFollows);
    Some(snapshot)
}
