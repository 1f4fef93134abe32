//! What "compact now" asks for: a goal and limits, which go to the run or the program.

use egui::{ComboBox, DragValue, Ui};
use terrane_trace::live::{Aim, Compact};

use super::header;
use crate::units;

const MIB: u64 = 1 << 20;
/// MiB and blocks from which on there is no limit.
const BYTES_MOST: u64 = 1 << 22;
const MOVES_MOST: u64 = 1_000_000;
/// The room that is asked for unless the person says how much.
const ROOM_MIB: u64 = 256;

/// Fields for what is asked for; true when the pass is to be made now.
pub fn show(ui: &mut Ui, asked: &mut Compact) -> bool {
    let mut is_now = false;
    header(ui, |ui| {
        let tip = "move the live blocks of the run together at once";
        is_now = ui.button("Compact now").on_hover_text(tip).clicked();
        goal(ui, &mut asked.aim);
        let words = |mib| format!("at most {}", units::bytes(mib * MIB));
        limit(ui, &mut asked.bytes_max, (MIB, BYTES_MOST), "bytes moved at most", words);
        let words = |moves| format!("at most {}", crate::text::counted(moves, "block", "blocks"));
        limit(ui, &mut asked.moves_max, (1, MOVES_MOST), "blocks moved at most", words);
        let words = |ms: f64| format!("at most {} ms", units::count(ms as u64));
        let range = 1..=Compact::TIME_MAX_MS;
        field(ui, &mut asked.time_max_ms, range, "milliseconds at most", words);
        let tip = "a few copies at a time, beside other work; else as fast as the device can";
        ui.checkbox(&mut asked.background, "in the background").on_hover_text(tip);
    });
    is_now
}

fn goal(ui: &mut Ui, aim: &mut Aim) {
    let words = match aim {
        Aim::Room(_) => "make room",
        Aim::Release(_) => "give segments back",
        Aim::Fragmentation(_) => "fragmentation",
    };
    let shown =
        ComboBox::from_id_salt("goal of compact now").selected_text(words).show_ui(ui, |ui| {
            let is = |one: &Aim| std::mem::discriminant(one) == std::mem::discriminant(&*aim);
            let choices = [
                (Aim::Fragmentation(5), "fragmentation"),
                (Aim::Release(u64::MAX), "give segments back"),
                (Aim::Room(ROOM_MIB * MIB), "make room"),
            ];
            let chosen = choices.into_iter().find(|(choice, words)| {
                ui.selectable_label(is(choice), *words).clicked() && !is(choice)
            });
            chosen.map(|(choice, _)| choice)
        });
    shown.response.accessible_name("goal of compact now");
    if let Some(chosen) = shown.inner.flatten() {
        *aim = chosen;
    }
    match aim {
        Aim::Fragmentation(percent) => {
            let mut most = u64::from(*percent);
            if field(
                ui,
                &mut most,
                0..=100,
                "per cent of free bytes outside the largest hole",
                |n| format!("to {n:.0} %"),
            ) {
                *percent = most as u8;
            }
        }
        Aim::Room(bytes) => {
            let mut mib = *bytes / MIB;
            let words =
                |mib: f64| format!("for {}", units::bytes((mib as u64).saturating_mul(MIB)));
            if field(ui, &mut mib, 1..=1 << 24, "room that is wanted", words) {
                *bytes = mib.saturating_mul(MIB);
            }
        }
        Aim::Release(_) => {}
    }
}

/// A limit in some unit; at its most there is none.
fn limit(
    ui: &mut Ui,
    value: &mut u64,
    (unit, most): (u64, u64),
    name: &str,
    words: impl Fn(u64) -> String,
) {
    let mut number = (*value / unit).clamp(1, most);
    let words = |number: f64| match number as u64 {
        number if number >= most => format!("{name}: no limit"),
        number => words(number),
    };
    if field(ui, &mut number, 1..=most, name, words) {
        *value = if number == most { u64::MAX } else { number * unit };
    }
}

/// A number that is dragged or typed; true when it is another one now.
fn field(
    ui: &mut Ui,
    value: &mut u64,
    range: std::ops::RangeInclusive<u64>,
    name: &str,
    words: impl Fn(f64) -> String,
) -> bool {
    let field = DragValue::new(value).range(range).custom_formatter(|number, _| words(number));
    let shown = ui.add(field).on_hover_text(name);
    let changed = shown.changed();
    shown.accessible_name(name);
    changed
}
