//! Rows of the tables of sites, streams and events.

use std::collections::HashMap;

use super::table::{Head, Key, Rows, head};
use crate::units;
use crate::window::document::Selected;
use crate::window::model::{Moment, PartState, Recording};

/// Live blocks by site or by stream.
pub struct Groups {
    /// Number of the site or stream, bytes, blocks, largest block.
    rows: Vec<(u32, u64, u64, u64)>,
    most: u64,
    streams: bool,
}

/// The same as rows.
pub struct Grouped<'a> {
    /// Whose.
    pub recording: &'a Recording,
    /// The sums.
    pub groups: &'a Groups,
}

const SITE_HEADS: [Head; 4] = [
    head("blocks", "live blocks", 62.0, true),
    head("requested", "bytes asked for by live blocks", 92.0, true),
    head("largest", "the largest of them", 84.0, true),
    head("site", "the line of the program", 240.0, false),
];
const STREAM_HEADS: [Head; 4] = [
    head("blocks", "live blocks", 62.0, true),
    head("requested", "bytes asked for by live blocks", 92.0, true),
    head("largest", "the largest of them", 84.0, true),
    head("stream", "an ordered lane of work", 200.0, false),
];

impl Groups {
    /// Adds up a moment.
    pub fn of(recording: &Recording, moment: &Moment, streams: bool) -> Self {
        let mut groups: HashMap<u32, (u64, u64, u64)> = HashMap::new();
        for part in moment.parts.iter().filter(|part| part.state == PartState::Live) {
            let Some(block) = recording.blocks.get(part.block as usize) else { continue };
            let key = if streams { block.stream } else { block.site };
            let group = groups.entry(key).or_default();
            group.0 += block.requested;
            group.1 += 1;
            group.2 = group.2.max(block.requested);
        }
        let mut rows: Vec<_> = groups.into_iter().map(|(key, g)| (key, g.0, g.1, g.2)).collect();
        rows.sort_unstable();
        let most = rows.iter().map(|row| row.1).max().unwrap_or(1);
        Self { rows, most, streams }
    }
}

impl Grouped<'_> {
    fn name(&self, row: usize) -> &str {
        let number = self.groups.rows[row].0;
        if self.groups.streams {
            self.recording.stream(number)
        } else {
            self.recording.places.sites.get(number as usize).map_or("", String::as_str)
        }
    }
}

impl Rows for Grouped<'_> {
    fn heads(&self) -> &'static [Head] {
        if self.groups.streams { &STREAM_HEADS } else { &SITE_HEADS }
    }

    fn count(&self) -> usize {
        self.groups.rows.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let (_, bytes, blocks, largest) = self.groups.rows[row];
        match column {
            0 => units::count(blocks),
            1 => units::bytes(bytes),
            2 => units::bytes(largest),
            _ => crate::window::model::short_site(self.name(row)).to_owned(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let (_, bytes, blocks, largest) = self.groups.rows[row];
        match column {
            0 => blocks.to_string(),
            1 => bytes.to_string(),
            2 => largest.to_string(),
            _ => self.name(row).to_owned(),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let (_, bytes, blocks, largest) = self.groups.rows[row];
        match column {
            0 => Key::Number(blocks),
            1 => Key::Number(bytes),
            2 => Key::Number(largest),
            _ => Key::Text(self.name(row).to_owned()),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        Some((0, self.groups.rows[row].1))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        let number = self.groups.rows[row].0;
        Some(if self.groups.streams { Selected::Stream(number) } else { Selected::Site(number) })
    }

    fn share(&self, row: usize, column: usize) -> Option<f32> {
        (column == 1).then(|| self.groups.rows[row].1 as f32 / self.groups.most.max(1) as f32)
    }
}

/// Events in order.
pub struct Events<'a> {
    /// Whose.
    pub recording: &'a Recording,
}

const EVENT_HEADS: [Head; 7] = [
    head("event", "its number", 76.0, true),
    head("time", "since the start", 96.0, true),
    head("what", "what happened", 100.0, false),
    head("requested", "bytes asked for", 84.0, true),
    head("address", "first address", 122.0, false),
    head("stream", "the stream that owns the block", 96.0, false),
    head("site", "where the block was allocated", 160.0, false),
];

impl Rows for Events<'_> {
    fn heads(&self) -> &'static [Head] {
        &EVENT_HEADS
    }

    fn count(&self) -> usize {
        self.recording.events.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let event = &self.recording.events[row];
        let block = &self.recording.blocks[event.block as usize];
        match column {
            0 => units::count(row as u64 + 1),
            1 => format!("{:.3} ms", event.time_us as f64 / 1e3),
            2 => event.op.name().to_owned(),
            3 => units::bytes(block.requested),
            4 => format!("{:#x}", block.address),
            5 => self.recording.stream(block.stream).to_owned(),
            _ => crate::window::model::short_site(self.recording.site(block)).to_owned(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let event = &self.recording.events[row];
        let block = &self.recording.blocks[event.block as usize];
        match column {
            0 => (row + 1).to_string(),
            1 => format!("{} us", event.time_us),
            3 => block.requested.to_string(),
            6 => self.recording.site(block).to_owned(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let event = &self.recording.events[row];
        let block = &self.recording.blocks[event.block as usize];
        match column {
            0 => Key::Number(row as u64),
            1 => Key::Number(event.time_us),
            3 => Key::Number(block.requested),
            4 => Key::Number(block.address),
            5 => Key::Number(u64::from(block.stream)),
            _ => Key::Text(self.text(row, column)),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        let block = &self.recording.blocks[self.recording.events[row].block as usize];
        Some((block.address, block.bytes))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        Some(Selected::Block(row as u32))
    }
}
