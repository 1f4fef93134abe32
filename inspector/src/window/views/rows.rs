//! The tables: blocks, segments, sites, streams and events.

use std::sync::Arc;

use egui::{Context, Ui};

use super::groups::{Events, Grouped, Groups};
use super::segments::{self, Segments};
use super::table::{COPIED, Done, Head, Key, Rows, Sort, TableState, copy, found, head};
use super::{Stage, charts, empty, header, waiting, work};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::{Job, Later};
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
    /// What is listed, in the order of [`Kind`].
    lists: [Later<ListKey, Listed>; KINDS],
    /// What is to be copied, while a thread writes it.
    copying: Job<String>,
}

/// Of what, when (where that matters), of the whole run or not, what is searched for, and by what
/// it is ordered.
type ListKey = (*const Recording, *const Moment, bool, String, Sort);

/// What a table lists.
struct Listed {
    kind: Kind,
    recording: Arc<Recording>,
    moment: Arc<Moment>,
    kept: Kept,
    /// The rows found, in order.
    order: Vec<u32>,
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
    /// What each segment holds.
    Segments(Vec<segments::Figures>),
}

impl Listed {
    fn of(
        kind: Kind,
        (recording, moment): (Arc<Recording>, Arc<Moment>),
        (whole_run, query, sort): (bool, &str, Sort),
    ) -> Self {
        let kept = kind.gather(&recording, &moment, whole_run);
        let mut listed = Self { kind, recording, moment, kept, order: Vec::new() };
        let order = found(&*listed.rows(), query, sort);
        listed.order = order;
        listed
    }

    fn rows(&self) -> Box<dyn Rows + '_> {
        self.kind.rows(&self.recording, &self.moment, &self.kept)
    }
}

/// Rows of which a frame writes a copy.
const COPIED_AT_ONCE: usize = 10_000;

impl Tables {
    /// Forgets the rows.
    pub fn forget(&mut self) {
        self.lists.iter_mut().for_each(Later::forget);
    }

    /// Whether a thread works on one of them.
    pub fn is_busy(&mut self) -> bool {
        self.copying.poll();
        self.copying.is_running() || self.lists.iter_mut().any(Later::is_busy)
    }

    /// Lets the search field of the table used last have the keyboard; the view that it is in.
    pub fn find(&mut self) -> View {
        let kind = self.last.unwrap_or(Kind::Allocations);
        self.states[kind as usize].focus = true;
        kind.view()
    }

    /// The table used last as text.
    #[cfg(test)]
    pub fn copy(&self, recording: &Arc<Recording>, moment: &Arc<Moment>, csv: bool) -> String {
        let listed = self.listed(recording, moment);
        copy(&*listed.rows(), &listed.order, csv)
    }

    /// The table used last.
    fn listed(&self, recording: &Arc<Recording>, moment: &Arc<Moment>) -> Arc<Listed> {
        let kind = self.last.unwrap_or(Kind::Allocations);
        let state = &self.states[kind as usize];
        let of = (Arc::clone(recording), Arc::clone(moment));
        let make = || Listed::of(kind, of, (self.whole_run, &state.query, state.sort));
        self.lists[kind as usize].last().unwrap_or_else(|| Arc::new(make()))
    }

    /// Copies the table used last; a thread writes what is long.
    pub fn start_copy(
        &mut self,
        ctx: &Context,
        (recording, moment): (&Arc<Recording>, &Arc<Moment>),
        csv: bool,
    ) {
        let listed = self.listed(recording, moment);
        if listed.order.len() <= COPIED_AT_ONCE {
            return ctx.copy_text(copy(&*listed.rows(), &listed.order, csv));
        }
        self.copying = Job::start(ctx, move || copy(&*listed.rows(), &listed.order, csv));
    }

    /// Copies what a thread has written.
    pub fn finish_copy(&mut self, ctx: &Context) {
        if self.copying.poll().is_some()
            && let Job::Done(text) = std::mem::take(&mut self.copying)
        {
            ctx.copy_text(text);
        }
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
            Self::Segments => Kept::Segments(segments::figures(moment)),
            Self::Events | Self::Moves => Kept::Nothing,
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
            Kept::Segments(figures) => Box::new(Segments { recording, moment, figures }),
            Kept::Nothing => Box::new(Events { recording }),
        }
    }
}

/// Draws a table with its search field.
pub fn show(ui: &mut Ui, stage: &mut Stage<'_>, kind: Kind) {
    let name = kind.view().title();
    let mut state = std::mem::take(&mut stage.document.panels.tables.states[kind as usize]);
    if state.sort.is_none() && matches!(kind, Kind::Sites | Kind::Streams | Kind::Allocations) {
        state.sort = Some((SORTED_BY, true));
    }
    if let Some(listed) = listed(ui, stage, kind, &state) {
        let is_late = stage.document.panels.tables.lists[kind as usize].is_busy();
        tools(ui, stage, (&listed, is_late), &mut state);
        let rows = listed.rows();
        let selected = match kind {
            // Rows of events are numbered by event; the last one before the moment stands out.
            Kind::Events => listed.moment.at.checked_sub(1).map(Selected::Block),
            _ => stage.document.sight.selected,
        };
        if rows.count() == 0 {
            empty(ui, "No rows", nothing(kind));
        } else if let Some(done) =
            state.show(ui, (&*rows, &listed.order), &stage.look, name, selected)
        {
            take(stage, kind, done);
        }
    } else {
        waiting(ui, "listing rows…");
    }
    if ui.rect_contains_pointer(ui.max_rect()) {
        stage.document.panels.tables.last = Some(kind);
        *stage.active = kind.view();
    }
    stage.document.panels.tables.states[kind as usize] = state;
}

/// What is listed, which may be what was listed before.
fn listed(ui: &Ui, stage: &mut Stage<'_>, kind: Kind, state: &TableState) -> Option<Arc<Listed>> {
    let of = (Arc::clone(&stage.document.recording), Arc::clone(&stage.document.moment));
    let tables = &mut stage.document.panels.tables;
    let when = match kind {
        Kind::Events | Kind::Work | Kind::Moves | Kind::Course => std::ptr::null(),
        _ => Arc::as_ptr(&of.1),
    };
    let (whole_run, query, sort) = (tables.whole_run, state.query.clone(), state.sort);
    let key = (Arc::as_ptr(&of.0), when, whole_run, query.clone(), sort);
    let at_once = of.0.is_small();
    tables.lists[kind as usize]
        .get(ui.ctx(), key, at_once, move || Listed::of(kind, of, (whole_run, &query, sort)))
}

/// The line above a table: the search, how much it found, which part of it is shown, copying.
fn tools(
    ui: &mut Ui,
    stage: &mut Stage<'_>,
    (listed, is_late): (&Listed, bool),
    state: &mut TableState,
) {
    let (kind, found) = (listed.kind, listed.order.len());
    let mut is_copied = false;
    header(ui, |ui| {
        state.search(ui, listed.rows().count(), found, kind.view().title());
        if is_late {
            ui.weak("looking again…");
        }
        let text = match found > COPIED {
            true => format!("Copy CSV of the first {}", units::count(COPIED as u64)),
            false => "Copy CSV".to_owned(),
        };
        let tip = "copy the rows found, with all digits";
        is_copied = ui.button(text).on_hover_text(tip).clicked();
        if kind == Kind::Allocations {
            let whole = &mut stage.document.panels.tables.whole_run;
            ui.checkbox(whole, "whole run").on_hover_text("also blocks that are gone");
        }
    });
    if is_copied {
        let tables = &mut stage.document.panels.tables;
        tables.last = Some(kind);
        tables.start_copy(ui.ctx(), (&listed.recording, &listed.moment), true);
    }
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
