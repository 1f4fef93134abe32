//! Events as columns of small numbers.
//!
//! Each field is a column of its own, so that zstd sees like beside like. A number is written as
//! its difference from what is expected: the field of the last event about the same block, where
//! this chunk has one, and otherwise the last event's.

use rustc_hash::FxHashMap;
use terrane_core::event::Event;

const COLUMNS: usize = 14;
/// Columns, in the order of the file.
const SEQUENCE: usize = 0;
const TIME: usize = 1;
const KIND: usize = 2;
const WHY: usize = 3;
const CLASS: usize = 4;
const TAG_SPACE: usize = 5;
/// 0: no block; 1: a block new to this chunk; 2 + n: the block that was new n blocks before.
const BLOCK: usize = 6;
const HANDLE_LOW: usize = 7;
const HANDLE_HIGH: usize = 8;
const STREAM: usize = 9;
const SITE: usize = 10;
const A: usize = 11;
const B: usize = 12;
const C: usize = 13;

/// What is expected of the next event.
#[derive(Default)]
struct Expected {
    last: [u64; 8],
    /// Blocks of this chunk in the order of their first event.
    blocks: Vec<[u64; 8]>,
    /// Handle -> place in `blocks`.
    places: FxHashMap<u64, usize>,
    last_handle: (u32, u32),
    /// Low half of a handle -> its last high half.
    generations: FxHashMap<u32, u32>,
}

const PACKED: usize = 2;
const HANDLE: usize = 3;
const STREAM_SITE: usize = 4;

impl Expected {
    /// The high half that a handle with this low half most likely has.
    fn generation(&self, low: u32) -> u32 {
        self.generations.get(&low).map_or(self.last_handle.1, |high| high.wrapping_add(1))
    }

    fn note(&mut self, words: [u64; 8], place: Option<usize>) {
        self.last = words;
        let handle = words[HANDLE];
        match place {
            Some(place) => self.blocks[place] = words,
            None if handle != 0 => {
                self.places.insert(handle, self.blocks.len());
                self.blocks.push(words);
                self.last_handle = (handle as u32, (handle >> 32) as u32);
                self.generations.insert(self.last_handle.0, self.last_handle.1);
            }
            None => {}
        }
    }
}

/// The events as one body.
pub(super) fn encode(events: &[Event]) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut expected = Expected::default();
    for event in events {
        let words = event.to_words();
        put_signed(&mut columns[SEQUENCE], words[0].wrapping_sub(expected.last[0]).wrapping_sub(1));
        put_signed(&mut columns[TIME], words[1].wrapping_sub(expected.last[1]));
        columns[KIND].push(words[PACKED] as u8);
        columns[WHY].push((words[PACKED] >> 8) as u8);
        columns[CLASS].push((words[PACKED] >> 16) as u8);
        // The means of a move, in bits 24..32, travel with the tag.
        put(&mut columns[TAG_SPACE], (words[PACKED] >> 24).rotate_left(24));
        let handle = words[HANDLE];
        let place = expected.places.get(&handle).copied().filter(|_| handle != 0);
        match place {
            None if handle == 0 => put(&mut columns[BLOCK], 0),
            Some(place) => put(&mut columns[BLOCK], 2 + (expected.blocks.len() - place) as u64),
            None => {
                put(&mut columns[BLOCK], 1);
                let (low, high) = (handle as u32, (handle >> 32) as u32);
                let step = low.wrapping_sub(expected.last_handle.0) as i32;
                put_signed(&mut columns[HANDLE_LOW], i64::from(step) as u64);
                let step = high.wrapping_sub(expected.generation(low)) as i32;
                put_signed(&mut columns[HANDLE_HIGH], i64::from(step) as u64);
            }
        }
        let like = place.map_or(expected.last, |place| expected.blocks[place]);
        let (own, other) = (words[STREAM_SITE], like[STREAM_SITE]);
        put_signed(&mut columns[STREAM], (own & LOW).wrapping_sub(other & LOW));
        put_signed(&mut columns[SITE], (own >> 32).wrapping_sub(other >> 32));
        let (a, b) = expected_sizes(words[5], place.is_some(), &like);
        put_signed(&mut columns[A], words[5].wrapping_sub(a));
        put_signed(&mut columns[B], words[6].wrapping_sub(b));
        put(&mut columns[C], words[7]);
        expected.note(words, place);
    }
    let mut body = Vec::new();
    for column in &columns {
        put(&mut body, column.len() as u64);
        body.extend_from_slice(column);
    }
    body
}

const LOW: u64 = u32::MAX as u64;

/// Expected sizes: those of the block before, or for a new one zero, and then as much as was
/// asked for.
fn expected_sizes(a: u64, known: bool, like: &[u64; 8]) -> (u64, u64) {
    if known { (like[5], like[6].wrapping_add(a).wrapping_sub(like[5])) } else { (0, a) }
}

/// `count` events of a body; `None` for a body that no writer makes.
pub(super) fn decode(mut body: &[u8], count: u32) -> Option<Vec<Event>> {
    let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
    for column in &mut columns {
        let length = usize::try_from(take(&mut body)?).ok()?;
        let (own, rest) = body.split_at_checked(length)?;
        (*column, body) = (own, rest);
    }
    if columns[KIND].len() != count as usize {
        return None;
    }
    let mut expected = Expected::default();
    let mut events = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (words, place) = one(&mut columns, &expected)?;
        expected.note(words, place);
        events.push(Event::from_words(words));
    }
    columns.iter().all(|column| column.is_empty()).then_some(events)
}

fn one(columns: &mut [&[u8]; COLUMNS], expected: &Expected) -> Option<([u64; 8], Option<usize>)> {
    let mut words = [0; 8];
    words[0] = take_signed(&mut columns[SEQUENCE])?.wrapping_add(expected.last[0]).wrapping_add(1);
    words[1] = take_signed(&mut columns[TIME])?.wrapping_add(expected.last[1]);
    let small = [KIND, WHY, CLASS].map(|at| byte(&mut columns[at]));
    let high = take(&mut columns[TAG_SPACE])?.rotate_right(24);
    words[PACKED] =
        u64::from(small[0]?) | u64::from(small[1]?) << 8 | u64::from(small[2]?) << 16 | high << 24;
    let place = match take(&mut columns[BLOCK])? {
        0 => None,
        1 => {
            let low = take_signed(&mut columns[HANDLE_LOW])? as u32;
            let low = low.wrapping_add(expected.last_handle.0);
            let high = take_signed(&mut columns[HANDLE_HIGH])? as u32;
            let high = high.wrapping_add(expected.generation(low));
            words[HANDLE] = u64::from(high) << 32 | u64::from(low);
            None
        }
        distance => {
            let distance = usize::try_from(distance - 2).ok()?;
            Some(expected.blocks.len().checked_sub(distance)?)
        }
    };
    let like = match place {
        Some(place) => *expected.blocks.get(place)?,
        None => expected.last,
    };
    if place.is_some() {
        words[HANDLE] = like[HANDLE];
    }
    let other = like[STREAM_SITE];
    let stream = take_signed(&mut columns[STREAM])?.wrapping_add(other & LOW) & LOW;
    let site = take_signed(&mut columns[SITE])?.wrapping_add(other >> 32) & LOW;
    words[STREAM_SITE] = site << 32 | stream;
    let step = take_signed(&mut columns[A])?;
    words[5] = step.wrapping_add(if place.is_some() { like[5] } else { 0 });
    let (_, b) = expected_sizes(words[5], place.is_some(), &like);
    words[6] = take_signed(&mut columns[B])?.wrapping_add(b);
    words[7] = take(&mut columns[C])?;
    Some((words, place))
}

/// Seven bits a byte, the lowest first.
pub(super) fn put(column: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        column.push(number as u8 | 0x80);
        number >>= 7;
    }
    column.push(number as u8);
}

/// A difference, so that small ones of both signs are short.
fn put_signed(column: &mut Vec<u8>, difference: u64) {
    let signed = difference as i64;
    put(column, ((signed << 1) ^ (signed >> 63)) as u64);
}

fn byte(column: &mut &[u8]) -> Option<u8> {
    let (first, rest) = column.split_first()?;
    *column = rest;
    Some(*first)
}

/// The number that [`put`] wrote.
pub(super) fn take(column: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let part = byte(column)?;
        let bits = u64::from(part & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if part & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_signed(column: &mut &[u8]) -> Option<u64> {
    let coded = take(column)?;
    Some((coded >> 1) ^ (coded & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrane_core::event::EventKind;

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn any_events_come_back() {
        let mut seed = 7;
        let mut events = Vec::new();
        for count in 0..2_000u64 {
            let mut words = [0; 8];
            words.fill_with(|| random(&mut seed) >> (random(&mut seed) % 64));
            words[0] = count;
            // Some handles come again.
            words[3] = [0, words[3], count / 3, u64::MAX][(words[3] % 4) as usize];
            events.push(Event::from_words(words));
        }
        for length in [0, 1, 2, 500, 2_000] {
            let body = encode(&events[..length]);
            assert_eq!(decode(&body, length as u32).as_deref(), Some(&events[..length]));
        }
    }

    #[test]
    fn a_body_that_is_cut_or_has_the_wrong_count_is_refused() {
        let event = Event::new(EventKind::Alloc).handle(9).a(1000).b(1024);
        let body = encode(&[event, event]);
        assert!(decode(&body, 2).is_some());
        assert!(decode(&body, 1).is_none() && decode(&body, 3).is_none());
        for length in 0..body.len() {
            assert!(decode(&body[..length], 2).is_none(), "{length}");
        }
    }
}
