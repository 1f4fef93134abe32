//! The tables: blocks, segments, sites, streams and events.

use std::sync::Arc;

use egui::Ui;

use super::groups::{Events, Grouped, Groups};
use super::table::{Done, Head, Key, Rows, TableState, head};
use super::{Stage, charts, empty, header, work};
use crate::units;
use crate::window::document::Selected;
use crate::window::model::{Column, Moment, NEVER, PartState, Recording};
use crate::window::view::View;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Allocations,
    Segments,
    Sites,
    Events,
    Streams,
    Pending,
    Work,
    Moves,
    Course,
}

/// How many tables there are.
const KINDS: usize = 9;

/// How the tables are looked at, in the order of [`Kind`].
#[derive(Default)]
pub struct Tables {
    states: [TableState; KINDS],
    /// Whether blocks of the whole run are listed rather than those of the moment.
    whole_run: bool,
    /// The table used last: what Find and Copy act on.
    last: Option<Kind>,
    /// What the rows are, in the order of [`Kind`], and of which content.
    kept: [Option<(u64, Kept)>; KINDS],
}

/// What was gathered for a table.
enum Kept {
    /// Nothing: the rows are the recording's own.
    Nothing,
    /// Blocks, or work and waits.
    Blocks(Vec<u32>),
    /// Sites or streams.
    Groups(Groups),
    /// Parts of a run.
    Parts(Vec<Column>),
}

impl Tables {
    /// Forgets the rows.
    pub fn forget(&mut self) {
        self.states.iter_mut().for_each(TableState::forget);
        self.kept = Default::default();
    }

    /// Lets the search field of the table used last have the keyboard; the view that it is in.
    pub fn find(&mut self) -> View {
        let kind = self.last.unwrap_or(Kind::Allocations);
        self.states[kind as usize].focus = true;
        kind.view()
    }

    /// The table used last as text.
    pub fn copy(&self, recording: &Recording, moment: &Moment, csv: bool) -> String {
        let kind = self.last.unwrap_or(Kind::Allocations);
        let kept = kind.gather(recording, moment, self.whole_run);
        let rows = kind.rows(recording, moment, &kept);
        self.states[kind as usize].copy(&*rows, csv)
    }
}

impl Kind {
    const fn view(self) -> View {
        match self {
            Self::Allocations => View::Allocations,
            Self::Segments => View::Segments,
            Self::Sites => View::Sites,
            Self::Events => View::Events,
            Self::Streams | Self::Pending | Self::Work => View::Streams,
            Self::Moves => View::Compaction,
            Self::Course => View::Timeline,
        }
    }

    fn gather(self, recording: &Recording, moment: &Moment, whole_run: bool) -> Kept {
        match self {
            Self::Allocations if whole_run => {
                Kept::Blocks((0..recording.blocks.len() as u32).collect())
            }
            Self::Allocations => {
                let parts = moment.parts.iter().filter(|part| part.block != NEVER);
                Kept::Blocks(parts.map(|part| part.block).collect())
            }
            Self::Pending => {
                let parts = moment.parts.iter();
                let pending = parts.filter(|part| part.state == PartState::Pending);
                Kept::Blocks(pending.map(|part| part.block).collect())
            }
            Self::Work => Kept::Blocks(work::in_order(recording)),
            Self::Sites => Kept::Groups(Groups::of(recording, moment, false)),
            Self::Streams => Kept::Groups(Groups::of(recording, moment, true)),
            Self::Course => Kept::Parts(charts::course(recording)),
            Self::Segments | Self::Events | Self::Moves => Kept::Nothing,
        }
    }

    fn rows<'a>(
        self,
        recording: &'a Recording,
        moment: &'a Moment,
        kept: &'a Kept,
    ) -> Box<dyn Rows + 'a> {
        match kept {
            Kept::Blocks(blocks) if self == Self::Pending => {
                Box::new(work::Pending { recording, blocks })
            }
            Kept::Blocks(order) if self == Self::Work => Box::new(work::Work { recording, order }),
            Kept::Blocks(blocks) => Box::new(Blocks { recording, blocks, at: moment.at }),
            Kept::Groups(groups) => Box::new(Grouped { recording, groups }),
            Kept::Parts(columns) => Box::new(charts::Course { recording, columns }),
            Kept::Nothing if self == Self::Moves => Box::new(charts::Moves { recording }),
            Kept::Nothing if self == Self::Segments => Box::new(Segments { recording, moment }),
            Kept::Nothing => Box::new(Events { recording }),
        }
    }
}

/// Draws a table with its search field.
pub fn show(ui: &mut Ui, stage: &mut Stage<'_>, kind: Kind) {
    let recording = Arc::clone(&stage.document.recording);
    let moment = Arc::clone(&stage.document.moment);
    let whole_run = stage.document.panels.tables.whole_run;
    let name = kind.view().title();
    let content = match kind {
        Kind::Events | Kind::Work | Kind::Moves | Kind::Course => Arc::as_ptr(&recording) as u64,
        _ => (Arc::as_ptr(&moment) as u64) << 1 | u64::from(whole_run),
    };
    let kept = stage.document.panels.tables.kept[kind as usize].take();
    let kept = match kept {
        Some((known, kept)) if known == content => kept,
        _ => kind.gather(&recording, &moment, whole_run),
    };
    let rows = kind.rows(&recording, &moment, &kept);
    let mut state = std::mem::take(&mut stage.document.panels.tables.states[kind as usize]);
    if state.sort.is_none() && matches!(kind, Kind::Sites | Kind::Streams | Kind::Allocations) {
        state.sort = Some((SORTED_BY, true));
    }
    state.update(&*rows, content);
    let mut copy = None;
    header(ui, |ui| {
        state.search(ui, rows.count(), name);
        if ui.button("Copy CSV").on_hover_text("copy the rows found, with all digits").clicked() {
            copy = Some(state.copy(&*rows, true));
        }
        if kind == Kind::Allocations {
            let whole = &mut stage.document.panels.tables.whole_run;
            ui.checkbox(whole, "whole run").on_hover_text("also blocks that are gone");
        }
    });
    if let Some(text) = copy {
        ui.copy_text(text);
    }
    if rows.count() == 0 {
        empty(ui, "No rows", nothing(kind));
    } else {
        let selected = match kind {
            // Rows of events are numbered by event; the last one before the moment stands out.
            Kind::Events => moment.at.checked_sub(1).map(Selected::Block),
            _ => stage.document.sight.selected,
        };
        if let Some(done) = state.show(ui, &*rows, &stage.look, name, selected) {
            take(stage, kind, done);
        }
    }
    if ui.rect_contains_pointer(ui.max_rect()) {
        stage.document.panels.tables.last = Some(kind);
        *stage.active = kind.view();
    }
    drop(rows);
    stage.document.panels.tables.states[kind as usize] = state;
    stage.document.panels.tables.kept[kind as usize] = Some((content, kept));
}

/// The column that most tables are ordered by at first.
const SORTED_BY: usize = 1;

const fn nothing(kind: Kind) -> &'static str {
    match kind {
        Kind::Allocations => "No block is live at this moment. Press 1 to go to the peak.",
        Kind::Segments => "No segment exists at this moment. Press 1 to go to the peak.",
        Kind::Sites | Kind::Streams => "Nothing is live at this moment. Press 1 to go to the peak.",
        Kind::Events => "The file has no history, only one moment.",
        Kind::Moves => "No live block was moved in this recording.",
        Kind::Course => "The file has no history, only one moment.",
        Kind::Pending => "No freed block is in use at this moment.",
        Kind::Work => {
            "Only traces of Terrane tell of work, and this one has none: a program submits it \
             with Allocator::submit, dispatch, copy, read or write."
        }
    }
}

fn take(stage: &mut Stage<'_>, kind: Kind, done: Done) {
    let document = &mut *stage.document;
    match done {
        Done::Selected(Selected::Block(event)) if kind == Kind::Events => {
            // Rows of events are numbered by event.
            document.go(event + 1);
            let block = document.recording.events.get(event as usize).map(|event| event.block);
            document.sight.selected = block.map(Selected::Block);
        }
        Done::Selected(Selected::Block(moment)) if kind == Kind::Course => document.go(moment),
        Done::Selected(selected) => {
            let again = document.sight.selected == Some(selected);
            document.sight.selected = (!again).then_some(selected);
        }
        Done::Hovered(Selected::Block(block))
            if matches!(kind, Kind::Allocations | Kind::Pending) =>
        {
            document.hover_next = Some(block);
        }
        Done::Hovered(_) => {}
    }
}

struct Blocks<'a> {
    recording: &'a Recording,
    blocks: &'a [u32],
    at: u32,
}

const BLOCK_HEADS: [Head; 8] = [
    head("address", "first address", 122.0, false),
    head("requested", "bytes asked for", 84.0, true),
    head("bytes", "bytes after rounding", 84.0, true),
    head("stream", "the stream that owns it", 96.0, false),
    head("born", "the event that made it", 70.0, true),
    head("state", "live, pending or gone at this moment", 62.0, false),
    head("moves", "whether a pass could move it at this moment, or what holds it", 96.0, false),
    head("site", "where in the program", 160.0, false),
];

impl Rows for Blocks<'_> {
    fn heads(&self) -> &'static [Head] {
        &BLOCK_HEADS
    }

    fn count(&self) -> usize {
        self.blocks.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        match column {
            0 => format!("{:#x}", block.address),
            1 => units::bytes(block.requested),
            2 => units::bytes(block.bytes),
            3 => self.recording.stream(block.stream).to_owned(),
            4 => units::count(u64::from(block.born)),
            5 => match () {
                () if self.at < block.born => "to come",
                () if self.at >= block.gone => "gone",
                () if self.at >= block.freed => "pending",
                () => "live",
            }
            .to_owned(),
            6 => self.recording.hold(self.blocks[row], self.at).text().to_owned(),
            _ => crate::window::model::short_site(self.recording.site(block)).to_owned(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        match column {
            1 => block.requested.to_string(),
            2 => block.bytes.to_string(),
            4 => block.born.to_string(),
            7 => self.recording.site(block).to_owned(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        match column {
            0 => Key::Number(block.address),
            1 => Key::Number(block.requested),
            2 => Key::Number(block.bytes),
            3 => Key::Number(u64::from(block.stream)),
            4 => Key::Number(u64::from(block.born)),
            _ => Key::Text(self.text(row, column)),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        Some((block.address, block.bytes))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        Some(Selected::Block(self.blocks[row]))
    }
}

struct Segments<'a> {
    recording: &'a Recording,
    moment: &'a Moment,
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

impl Segments<'_> {
    /// Bytes, live, free, largest hole, blocks.
    fn figures(&self, row: usize) -> [u64; 5] {
        let space = &self.moment.spaces[row];
        let mut figures = [space.backed, 0, 0, 0, 0];
        for part in &self.moment.parts[space.parts.clone()] {
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

    /// Pages, and the memory objects that they are of.
    fn pages(&self, row: usize) -> [u64; 2] {
        let space = &self.moment.spaces[row];
        let all = &self.moment.pages;
        let place = |byte: u64| all.partition_point(|page| page.start < byte);
        let pages = &all[place(space.start)..place(space.start + space.bytes)];
        let objects: std::collections::HashSet<u64> =
            pages.iter().map(|page| page.object).collect();
        [pages.len() as u64, objects.len() as u64]
    }
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
            1..=4 => units::bytes(self.figures(row)[column - 1]),
            5 => units::count(self.figures(row)[4]),
            6 if space.implied => "not in file".to_owned(),
            6 => space.pool.name().to_owned(),
            7 => self.recording.stream(space.stream).to_owned(),
            _ if self.moment.pages.is_empty() => "not told".to_owned(),
            _ => units::count(self.pages(row)[column - 8]),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        match column {
            1..=5 => self.figures(row)[column - 1].to_string(),
            8.. if !self.moment.pages.is_empty() => self.pages(row)[column - 8].to_string(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        match column {
            0 => Key::Number(self.moment.spaces[row].address),
            1..=5 => Key::Number(self.figures(row)[column - 1]),
            8.. => Key::Number(self.pages(row)[column - 8]),
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
        let figures = self.figures(row);
        (column == 2).then(|| figures[1] as f32 / figures[0].max(1) as f32)
    }
}
