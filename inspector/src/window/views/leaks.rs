//! What grows from step to step.

use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui};
use terrane_trace::diagnose::{LeakClass, LeakOptions, Leaks, Verdict, judge_trace, leaks};

use super::{Stage, empty, waiting};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::Job;
use crate::window::model::{Recording, short_site};

/// The verdict, once it is there.
#[derive(Default)]
pub struct LeaksPanel {
    job: Job<Option<Leaks>>,
}

impl LeaksPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.job.poll();
        self.job.is_running()
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.events.is_empty() {
        let text = "Growth needs a history of several steps; this file has one moment.";
        empty(ui, "No history", text);
        return;
    }
    let panel = &mut stage.document.panels.leaks;
    if panel.job.is_idle() {
        let work = Arc::clone(&recording);
        panel.job = Job::start(ui.ctx(), move || judge(&work));
    }
    let Some(result) = panel.job.poll() else {
        waiting(ui, "comparing steps…");
        return;
    };
    let Some(found) = result.clone() else {
        let text = "Sites are needed to say who grows, and this file has neither call stacks \
            nor a history that can be replayed.";
        empty(ui, "Nothing can be said", text);
        return;
    };
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| verdict(ui, stage, &recording, &found));
}

fn judge(recording: &Recording) -> Option<Leaks> {
    if let Some(facts) = &recording.facts {
        return Some(leaks(facts.snapshot(), facts.history()?, LeakOptions::default()));
    }
    let trace = as_trace(recording)?;
    let sites: Vec<u64> = recording.blocks.iter().map(|block| u64::from(block.site)).collect();
    let verdict = judge_trace(&trace, &sites, LeakOptions::default());
    let site = verdict.site.and_then(|site| recording.places.sites.get(site as usize).cloned());
    Some(Leaks { verdict, line: site, advice: "record call stacks to see which line it is" })
}

/// The events as a workload that models can be driven with.
pub fn as_trace(recording: &Recording) -> Option<terrane_trace::Trace> {
    use crate::window::model::EventOp;
    use terrane_trace::{Op, TraceBuilder};
    let mut builder = TraceBuilder::new();
    for event in &recording.events {
        let block = recording.blocks.get(event.block as usize)?;
        let op = match event.op {
            EventOp::Alloc => Op::Alloc,
            EventOp::Freed => Op::FreeRequested,
            EventOp::Done => Op::FreeCompleted,
        };
        let bytes = block.requested.max(1);
        builder.push(op, event.time_us, event.block.into(), bytes, block.stream).ok()?;
    }
    (!builder.is_empty()).then(|| builder.finish())
}

fn title(verdict: &Verdict) -> &'static str {
    match verdict.class {
        LeakClass::Accumulating => "It leaks: a line keeps as much more at every step",
        LeakClass::Exponential => "It leaks: a line keeps a multiple of what it kept before",
        LeakClass::Fragmenting => "It fragments: small blocks keep large segments from being freed",
        LeakClass::PendingBacklog => "A backlog grows: freed blocks wait for other streams",
        LeakClass::Plateau => "No leak: it grew and has stopped growing",
        LeakClass::None => "No leak: it does not grow",
        LeakClass::Unknown => "Too few steps to say",
    }
}

fn verdict(ui: &mut Ui, stage: &mut Stage<'_>, recording: &Recording, found: &Leaks) {
    let verdict = &found.verdict;
    let bad = matches!(
        verdict.class,
        LeakClass::Accumulating
            | LeakClass::Exponential
            | LeakClass::Fragmenting
            | LeakClass::PendingBacklog
    );
    let color = if bad { stage.look.alarm } else { stage.look.ink };
    ui.label(RichText::new(title(verdict)).heading().color(color));
    ui.add_space(4.0);
    if let Some(line) = &found.line {
        ui.weak("the line");
        ui.label(RichText::new(short_site(line)).monospace().strong()).on_hover_text(line);
    }
    egui::Grid::new("leak figures").num_columns(2).spacing([14.0, 4.0]).show(ui, |ui| {
        let mut row = |what: &str, value: String| {
            ui.weak(what);
            ui.label(value);
            ui.end_row();
        };
        if bad {
            let bytes = verdict.bytes_per_step.max(0.0) as u64;
            row(
                "kept more per step",
                format!("{} ({} bytes)", units::bytes(bytes), units::count(bytes)),
            );
        }
        row("steps seen", units::count(verdict.steps));
        if let Some(first) = verdict.first_step {
            row("grows from step", units::count(first));
        }
        if let Some(needed) = verdict.steps_needed {
            row("steps needed to say", units::count(needed));
        }
        row("confidence", format!("{:.0} %", verdict.confidence * 100.0));
    });
    ui.add_space(6.0);
    ui.label(format!("What to do: {}.", found.advice));
    let site = found.line.as_ref().and_then(|line| {
        let mut sites = recording.places.sites.iter();
        sites.position(|site| site == line)
    });
    if let Some(site) = site {
        ui.add_space(6.0);
        ui.horizontal_wrapped(|ui| {
            if ui.button("Show its blocks").on_hover_text("they stand out in the maps").clicked() {
                stage.document.sight.selected = Some(Selected::Site(site as u32));
            }
            if ui.button("At the end of the run").clicked() {
                let last = recording
                    .events
                    .iter()
                    .rposition(|e| e.op == crate::window::model::EventOp::Alloc);
                stage.document.go(last.map_or(recording.end(), |event| event as u32 + 1));
                stage.document.sight.selected = Some(Selected::Site(site as u32));
            }
        });
    }
}
