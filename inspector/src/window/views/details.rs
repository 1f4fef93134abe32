//! All about what is selected.

use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui};

use super::{Stage, empty};
use crate::units;
use crate::window::commands::Command;
use crate::window::document::Selected;
use crate::window::job::Later;
use crate::window::layout::TimeScale;
use crate::window::model::{Addresses, Moment, NEVER, PartState, Recording, short_site};
use crate::window::view::View;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| match stage.document.sight.selected {
        None => overview(ui, stage),
        Some(Selected::Block(block)) => show_block(ui, stage, block),
        Some(Selected::Range(address, bytes)) => range(ui, stage, address, bytes),
        Some(Selected::Site(site)) => group(ui, stage, site, false),
        Some(Selected::Stream(stream)) => group(ui, stage, stream, true),
        Some(Selected::Failure(failure)) => show_failure(ui, stage, failure),
    });
}

/// Two columns: what, and how much.
fn facts(ui: &mut Ui, id: &str, rows: &[(&str, String, String)]) {
    egui::Grid::new(id).num_columns(2).spacing([14.0, 3.0]).show(ui, |ui| {
        for (what, value, exact) in rows {
            ui.weak(*what);
            let shown = ui.add(egui::Label::new(value).wrap());
            if !exact.is_empty() {
                shown.on_hover_text(exact);
            }
            ui.end_row();
        }
    });
}

fn sized(what: &'static str, bytes: u64) -> (&'static str, String, String) {
    (what, units::bytes(bytes), format!("{} bytes", units::count(bytes)))
}

fn plain(what: &'static str, value: String) -> (&'static str, String, String) {
    (what, value, String::new())
}

fn overview(ui: &mut Ui, stage: &mut Stage<'_>) {
    let (recording, moment) = (&stage.document.recording, &stage.document.moment);
    ui.label(RichText::new(&recording.name).strong());
    ui.weak(recording.kind);
    ui.add_space(4.0);
    let addresses = match recording.addresses {
        Addresses::Recorded => "as recorded",
        Addresses::Own => "segment number and offset",
        Addresses::Modelled => "modelled: the file has none",
    };
    let rows = [
        plain("moment", TimeScale::describe(recording, moment.at)),
        plain("live blocks", units::count(u64::from(moment.live_blocks))),
        sized("requested", moment.requested),
        sized("after rounding", moment.live),
        sized("reserved", moment.reserved),
        plain("segments", units::count(moment.spaces.len() as u64)),
        plain("events", units::count(recording.events.len() as u64)),
        plain("failed requests", units::count(recording.failures.len() as u64)),
        plain("call stacks", units::count(recording.places.stacks.len() as u64)),
        plain("addresses", addresses.to_owned()),
    ];
    facts(ui, "overview", &rows);
    for note in &recording.notes {
        ui.add_space(4.0);
        ui.label(RichText::new(note).weak());
    }
    ui.add_space(6.0);
    ui.weak("Click a block, a row or a lane to see all about it here.");
}

fn show_block(ui: &mut Ui, stage: &mut Stage<'_>, number: u32) {
    let recording = Arc::clone(&stage.document.recording);
    let Some(block) = recording.blocks.get(number as usize) else { return };
    let at = stage.document.sight.at;
    let state = match () {
        () if at < block.born => "not yet allocated",
        () if at >= block.gone => "gone",
        () if at >= block.freed => "pending: freed, and work may still use it",
        () => "live",
    };
    let awaited = recording.awaited_text(number);
    ui.label(RichText::new(format!("Block of {}", units::bytes(block.requested))).strong());
    let event = |moment: u32| match moment {
        NEVER => "never, in this recording".to_owned(),
        0 => "before the recording".to_owned(),
        moment => TimeScale::describe(&recording, moment),
    };
    let rows = [
        plain("state", state.to_owned()),
        plain("address", format!("{:#x}", block.address)),
        sized("requested", block.requested),
        sized("after rounding", block.bytes),
        plain("stream", recording.stream(block.stream).to_owned()),
        plain("kind", recording.kind(block.kind)),
        plain("moves", recording.hold(number, at).text().to_owned()),
        plain("allocated", event(block.born)),
        plain("free requested", event(block.freed)),
        plain("free completed", event(block.gone)),
        plain("site", recording.site(block).to_owned()),
    ];
    let waits = (!awaited.is_empty()).then(|| plain("its free waits for", awaited));
    let rows: Vec<_> = rows.into_iter().chain(waits).collect();
    facts(ui, "block", &rows);
    ui.horizontal_wrapped(|ui| {
        if ui.button("Zoom to").clicked() {
            stage.commands.extend(ZOOM);
        }
        if ui.button("To its allocation").clicked() {
            stage.document.go(block.born);
        }
        let freed = block.freed.min(block.gone);
        if ui.add_enabled(freed != NEVER, egui::Button::new("To its free")).clicked() {
            stage.document.go(freed);
        }
        if ui.button("Select its site").clicked() {
            stage.document.sight.selected = Some(Selected::Site(block.site));
        }
    });
    stack(ui, stage, &recording, block.stack);
}

fn stack(ui: &mut Ui, stage: &Stage<'_>, recording: &Recording, stack: u32) {
    ui.add_space(6.0);
    if stack == NEVER {
        ui.weak("No call stack was recorded for it.");
        return;
    }
    ui.weak("call stack, innermost first");
    for frame in recording.places.stack(stack) {
        let text = RichText::new(short_site(frame)).monospace().size(11.5).color(stage.look.ink);
        ui.add(egui::Label::new(text).truncate()).on_hover_text(frame);
    }
}

fn range(ui: &mut Ui, stage: &mut Stage<'_>, address: u64, bytes: u64) {
    let moment = Arc::clone(&stage.document.moment);
    let is_segment = moment.spaces.iter().any(|s| s.address == address && s.bytes == bytes);
    let what = if is_segment { "Segment" } else { "Range" };
    ui.label(RichText::new(format!("{what} of {}", units::bytes(bytes))).strong());
    let start =
        moment.spaces.iter().find(|s| s.address <= address && address - s.address < s.bytes);
    let Some(space) = start else {
        ui.weak(format!("At {address:#x}; nothing is backed there at this moment."));
        return;
    };
    let from = space.start + (address - space.address);
    let inside = moment.parts[space.parts.clone()]
        .iter()
        .filter(|part| part.start >= from && part.start < from + bytes);
    let (mut live, mut free, mut blocks) = (0, 0, 0);
    for part in inside {
        match part.state {
            PartState::Free => free += part.bytes,
            PartState::Unbacked | PartState::Stale => {}
            _ => live += part.bytes,
        }
        blocks += u64::from(part.block != NEVER);
    }
    let rows = [
        plain("address", format!("{address:#x}")),
        sized("bytes", bytes),
        sized("taken", live),
        sized("free", free),
        plain("blocks", units::count(blocks)),
        plain("pool", space.pool.name().to_owned()),
        plain("stream", stage.document.recording.stream(space.stream).to_owned()),
    ];
    facts(ui, "range", &rows);
    if ui.button("Zoom to").clicked() {
        stage.commands.extend(ZOOM);
    }
}

/// Shows what is selected in the heap map.
const ZOOM: [Command; 2] = [Command::Show(View::HeapMap), Command::ZoomToSelection];

/// What was added up for the site or stream that is selected, and for what.
#[derive(Default)]
pub struct DetailsPanel {
    group: Later<GroupKey, (Arc<Moment>, Group)>,
}

type GroupKey = (*const Moment, Selected);

impl DetailsPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.group.is_busy()
    }
}

/// Live blocks of a site or stream.
#[derive(Clone, Copy, Default)]
struct Group {
    bytes: u64,
    blocks: u64,
    largest: u64,
    /// The call stack of the largest.
    stack: u32,
}

impl Group {
    fn of(recording: &Recording, moment: &Moment, number: u32, is_stream: bool) -> Self {
        let mut group = Self { stack: NEVER, ..Self::default() };
        for part in moment.parts.iter().filter(|part| part.state == PartState::Live) {
            let Some(block) = recording.blocks.get(part.block as usize) else { continue };
            if number != if is_stream { block.stream } else { block.site } {
                continue;
            }
            group.bytes += block.requested;
            group.blocks += 1;
            if block.requested > group.largest {
                (group.largest, group.stack) = (block.requested, block.stack);
            }
        }
        group
    }
}

fn group(ui: &mut Ui, stage: &mut Stage<'_>, number: u32, is_stream: bool) {
    let recording = Arc::clone(&stage.document.recording);
    let selected = if is_stream { Selected::Stream(number) } else { Selected::Site(number) };
    let (of, at) = (Arc::clone(&recording), Arc::clone(&stage.document.moment));
    let key = (Arc::as_ptr(&at), selected);
    let at_once = recording.is_small();
    let made = stage.document.panels.details.group.get(ui.ctx(), key, at_once, move || {
        let group = Group::of(&of, &at, number, is_stream);
        (at, group)
    });
    let Some(made) = made else {
        ui.weak("adding up its blocks…");
        return;
    };
    let (moment, Group { bytes, blocks, largest, stack: stack_of }) = (&made.0, made.1);
    let name = if is_stream {
        recording.stream(number)
    } else {
        recording.places.sites.get(number as usize).map_or("", String::as_str)
    };
    ui.label(RichText::new(if is_stream { "Stream" } else { "Site" }).strong());
    ui.label(name);
    let part = bytes as f64 / moment.requested.max(1) as f64 * 100.0;
    let rows = [
        sized("live bytes", bytes),
        plain("of all", format!("{part:.1} %")),
        plain("live blocks", units::count(blocks)),
        sized("largest block", largest),
    ];
    facts(ui, "group", &rows);
    ui.weak("Its blocks stand out in the maps. Escape lets go.");
    if !is_stream && blocks > 0 {
        stack(ui, stage, &recording, stack_of);
    }
}

fn show_failure(ui: &mut Ui, stage: &mut Stage<'_>, number: u32) {
    let recording = Arc::clone(&stage.document.recording);
    let Some(failure) = recording.failures.get(number as usize) else {
        empty(ui, "No such failure", "It is not in this file.");
        return;
    };
    let fatal = if failure.fatal { "fatal" } else { "survived" };
    let title = format!("Failed request of {} ({fatal})", units::bytes(failure.bytes));
    ui.label(RichText::new(title).strong());
    let of = format!("{} of {}", number + 1, recording.failures.len());
    let rows = [
        plain("failure", of),
        plain("when", TimeScale::describe(&recording, failure.at)),
        sized("asked for", failure.bytes),
        sized("driver had free", failure.device_free),
        sized("largest hole then", stage.document.moment.largest_free),
        plain("stream", recording.stream(failure.stream).to_owned()),
    ];
    facts(ui, "failure", &rows);
    if ui.button("Explain").clicked() {
        stage.commands.push(Command::Show(View::Explain));
    }
    stack(ui, stage, &recording, failure.stack);
}
