//! Limits, headroom, and what is not tracked.

use std::sync::Arc;

use egui::{Align2, FontId, Rect, RichText, Role, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};

use super::Stage;
use super::legend::legend;
use crate::units;
use crate::window::model::LimitRow;
use crate::window::paint::{Cell, Cells, Pattern};

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    super::explain::ask(ui, stage);
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        moment(ui, stage);
        ui.add_space(10.0);
        limit(ui, stage);
        super::limits::headroom(ui, stage);
        ui.add_space(10.0);
        process(ui, stage);
    });
}

/// The reserved bytes of the moment as one bar.
fn moment(ui: &mut Ui, stage: &mut Stage<'_>) {
    let moment = Arc::clone(&stage.document.moment);
    let look = stage.look;
    let most = stage.document.recording.series.most[2].max(moment.reserved).max(1);
    ui.label(RichText::new("At this moment").strong());
    let slack = moment.live - moment.requested.min(moment.live);
    let parts = [
        ("requested", moment.requested, (look.requested, look.requested), Pattern::Solid),
        ("rounding", slack, (look.steps[1], look.steps[1]), Pattern::Solid),
        ("pending", moment.pending, look.pending, Pattern::Stripes),
        ("free", moment.free(), look.free, Pattern::Hatch),
    ];
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 30.0), Sense::hover());
    let words: Vec<String> =
        parts.iter().map(|(name, bytes, ..)| format!("{name} {}", units::bytes(*bytes))).collect();
    let name = format!("Reserved {}: {}", units::bytes(moment.reserved), words.join(", "));
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &name));
    response.on_hover_text(&name);
    let mut x = rect.left();
    let mut cells = vec![Cell::solid(rect, look.paper)];
    for (_, bytes, colors, pattern) in &parts {
        let width = rect.width() * (*bytes as f64 / most as f64) as f32;
        let bar = Rect::from_min_size(pos2(x, rect.top()), vec2(width, rect.height()));
        cells.push(Cell::new(bar, *colors, *pattern));
        x += width;
    }
    stage.surface.draw(ui.painter(), 60, &Cells::new(cells));
    let font = FontId::proportional(11.5);
    let text = format!("peak reserved {}", units::bytes(most));
    ui.painter().text(
        rect.right_center() - vec2(6.0, 0.0),
        Align2::RIGHT_CENTER,
        text,
        font,
        look.ink,
    );
    let keys: Vec<_> = parts
        .iter()
        .zip(words)
        .map(|((_, _, colors, pattern), words)| (*colors, *pattern, words))
        .collect();
    legend(ui, stage, &keys, &[]);
}

fn limit(ui: &mut Ui, stage: &mut Stage<'_>) {
    ui.label(RichText::new("Limit").strong());
    let recording = Arc::clone(&stage.document.recording);
    let reserved = stage.document.moment.reserved;
    let told = recording.limits_at(stage.document.sight.at).copied().unwrap_or_default();
    let failure = recording.failures.last();
    if failure.is_none() && told == LimitRow::default() {
        ui.weak("The file names no limit, and no request failed, so none can be inferred.");
        return;
    }
    let inferred = stage.document.panels.explain.limit();
    egui::Grid::new("limits").num_columns(2).spacing([14.0, 3.0]).show(ui, |ui| {
        let mut row = |what: &str, bytes: u64| {
            ui.weak(what);
            ui.label(units::bytes(bytes)).on_hover_text(format!("{} bytes", units::count(bytes)));
            ui.end_row();
        };
        if told.limit > 0 {
            row("limit", told.limit);
            row("headroom", told.limit.saturating_sub(reserved));
        } else if let Some(Some(limit)) = inferred {
            row("limit at least", limit.at_least);
            if let Some(most) = limit.at_most {
                row("limit at most", most);
                row("headroom at most", most.saturating_sub(reserved));
            }
        }
        if let Some(failure) = failure {
            row("driver's free memory at the last failure", failure.device_free);
        }
        row("reserved now", reserved);
        if told.device_total > 0 {
            row("the device has", told.device_total);
            row("free on the device", told.device_free);
        }
    });
    if failure.is_some() && inferred.is_none() {
        ui.weak("inferring the limit from the failed requests…");
        ui.request_repaint_after(std::time::Duration::from_millis(100));
    }
}

fn process(ui: &mut Ui, stage: &mut Stage<'_>) {
    ui.label(RichText::new("Not tracked").strong());
    let recording = &stage.document.recording;
    let told = recording.limits_at(stage.document.sight.at).copied().unwrap_or_default();
    if let Some(others) = told.untracked(stage.document.moment.reserved) {
        let text = format!(
            "{} of the device are neither reserved here nor free: other processes, the driver, or \
             libraries hold them.",
            units::bytes(others)
        );
        ui.label(text).on_hover_text(format!("{} bytes", units::count(others)));
        return;
    }
    let text = if recording.failures.is_empty() {
        "What the device and other processes hold is not in this file."
    } else {
        "Memory of the device that is neither reserved here nor free belongs to other processes, \
         to the driver, or to libraries. The file does not say how large the device is, so how \
         much that was is not known."
    };
    ui.label(RichText::new(text).weak());
}
