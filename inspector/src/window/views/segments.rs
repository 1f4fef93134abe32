//! Rows of the table of segments.

use super::table::{Head, Key, Rows, head};
use crate::units;
use crate::window::document::Selected;
use crate::window::model::{Moment, NEVER, PartState, Recording, Space};

/// Segments of a moment.
pub struct Segments<'a> {
    /// Whose.
    pub recording: &'a Recording,
    /// When.
    pub moment: &'a Moment,
    /// What each of them holds.
    pub figures: &'a [Figures],
}

/// What a segment holds: its bytes, live and free ones, the largest hole, blocks; pages, and the
/// memory objects that they are of.
pub struct Figures([u64; 5], [u64; 2]);

/// What each segment of a moment holds.
pub fn figures(moment: &Moment) -> Vec<Figures> {
    moment.spaces.iter().map(|space| Figures(sums(moment, space), pages(moment, space))).collect()
}

const SEGMENT_HEADS: [Head; 10] = [
    head("address", "first address", 122.0, false),
    head("bytes", "its length", 84.0, true),
    head("live", "bytes of live blocks", 84.0, true),
    head("free", "bytes of holes", 84.0, true),
    head("largest hole", "the largest of them", 88.0, true),
    head("blocks", "live and pending blocks", 60.0, true),
    head("pool", "which requests it serves", 70.0, false),
    head("stream", "the stream that owns it", 100.0, false),
    head("pages", "pages mapped in it, where they are told one by one", 60.0, true),
    head("objects", "memory objects that they are of", 66.0, true),
];

fn sums(moment: &Moment, space: &Space) -> [u64; 5] {
    let mut figures = [space.backed, 0, 0, 0, 0];
    for part in &moment.parts[space.parts.clone()] {
        match part.state {
            PartState::Free => {
                figures[2] += part.bytes;
                figures[3] = figures[3].max(part.bytes);
            }
            PartState::Live => figures[1] += part.bytes,
            PartState::Pending | PartState::Unbacked | PartState::Stale => {}
        }
        figures[4] += u64::from(part.block != NEVER);
    }
    figures
}

fn pages(moment: &Moment, space: &Space) -> [u64; 2] {
    let all = &moment.pages;
    let place = |byte: u64| all.partition_point(|page| page.start < byte);
    let pages = &all[place(space.start)..place(space.start + space.bytes)];
    let objects: std::collections::HashSet<u64> = pages.iter().map(|page| page.object).collect();
    [pages.len() as u64, objects.len() as u64]
}

impl Rows for Segments<'_> {
    fn heads(&self) -> &'static [Head] {
        &SEGMENT_HEADS
    }

    fn count(&self) -> usize {
        self.moment.spaces.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let space = &self.moment.spaces[row];
        match column {
            0 => format!("{:#x}", space.address),
            1..=4 => units::bytes(self.figures[row].0[column - 1]),
            5 => units::count(self.figures[row].0[4]),
            6 if space.implied => "not in file".to_owned(),
            6 => space.pool.name().to_owned(),
            7 => self.recording.stream(space.stream).to_owned(),
            _ if self.moment.pages.is_empty() => "not told".to_owned(),
            _ => units::count(self.figures[row].1[column - 8]),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        match column {
            1..=5 => self.figures[row].0[column - 1].to_string(),
            8.. if !self.moment.pages.is_empty() => self.figures[row].1[column - 8].to_string(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        match column {
            0 => Key::Number(self.moment.spaces[row].address),
            1..=5 => Key::Number(self.figures[row].0[column - 1]),
            8.. => Key::Number(self.figures[row].1[column - 8]),
            _ => Key::Text(self.text(row, column)),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        let space = &self.moment.spaces[row];
        Some((space.address, space.bytes))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        let space = &self.moment.spaces[row];
        Some(Selected::Range(space.address, space.bytes))
    }

    fn share(&self, row: usize, column: usize) -> Option<f32> {
        let figures = self.figures[row].0;
        (column == 2).then(|| figures[1] as f32 / figures[0].max(1) as f32)
    }
}
