//! A table that sorts, searches and copies.

use egui::{Align, Layout, RichText, Sense, Ui};
use egui_table::{CellInfo, Column, HeaderCellInfo, HeaderRow, TableDelegate};

use crate::units;
use crate::window::document::Selected;
use crate::window::paint::Look;

/// A column.
pub struct Head {
    pub title: &'static str,
    pub tip: &'static str,
    pub width: f32,
    /// Numbers stand at the right.
    pub number: bool,
}

/// A column.
pub const fn head(title: &'static str, tip: &'static str, width: f32, number: bool) -> Head {
    Head { title, tip, width, number }
}

/// What rows are ordered by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Number(u64),
    Text(String),
}

/// Rows of something.
pub trait Rows {
    /// The columns.
    fn heads(&self) -> &'static [Head];
    /// How many rows there are.
    fn count(&self) -> usize;
    /// A cell in words.
    fn text(&self, row: usize, column: usize) -> String;
    /// A cell with all digits, for the hover and for CSV.
    fn exact(&self, row: usize, column: usize) -> String {
        self.text(row, column)
    }
    /// What a cell is ordered by.
    fn key(&self, row: usize, column: usize) -> Key;
    /// Address and bytes of a row, for searches by them.
    fn range(&self, row: usize) -> Option<(u64, u64)>;
    /// What a click on a row selects.
    fn pick(&self, row: usize) -> Option<Selected>;
    /// A share from 0 to 1 drawn behind a cell.
    fn share(&self, _row: usize, _column: usize) -> Option<f32> {
        None
    }
}

/// How a table is looked at.
#[derive(Default)]
pub struct TableState {
    /// What is searched for.
    pub query: String,
    /// Column and whether the largest is first.
    pub sort: Sort,
    /// Whether the search field is to get the keyboard.
    pub focus: bool,
    /// Which part of a long table is shown, counted from 0.
    part: usize,
}

/// A column, and whether the largest is first.
pub type Sort = Option<(usize, bool)>;

/// Rows of a part: beyond, positions on the screen are no longer exact.
const PART: usize = 500_000;
/// Rows copied at most.
pub const COPIED: usize = 200_000;

/// What was done to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    Selected(Selected),
    Hovered(Selected),
}

/// Orders rows, which ascend, by a key. Mostly that is a number, and a million of them are sorted
/// within a frame or two.
fn sort(order: &mut Vec<u32>, key: impl Fn(u32) -> Key) {
    let number = |row: &u32| match key(*row) {
        Key::Number(number) => Some((number, *row)),
        _ => None,
    };
    match order.iter().map(number).collect::<Option<Vec<_>>>() {
        Some(mut numbers) => {
            numbers.sort_unstable();
            order.clear();
            order.extend(numbers.into_iter().map(|(_, row)| row));
        }
        None => order.sort_by_cached_key(|row| key(*row)),
    }
}

/// The rows that a search finds, in order.
pub fn found(rows: &dyn Rows, query: &str, by: Sort) -> Vec<u32> {
    let query = Query::parse(query);
    let all = 0..rows.count() as u32;
    let mut order: Vec<u32> = all.filter(|row| query.finds(rows, *row as usize)).collect();
    if let Some((column, descending)) = by {
        sort(&mut order, |row| rows.key(row as usize, column));
        if descending {
            order.reverse();
        }
    }
    order
}

/// The rows found, as text with tabs or as CSV.
pub fn copy(rows: &dyn Rows, order: &[u32], csv: bool) -> String {
    let heads = rows.heads();
    let join = |cells: Vec<String>| {
        if !csv {
            return cells.join("\t");
        }
        let quoted = cells.into_iter().map(|cell| {
            let plain = !cell.contains([',', '"', '\n']);
            if plain { cell } else { format!("\"{}\"", cell.replace('"', "\"\"")) }
        });
        quoted.collect::<Vec<_>>().join(",")
    };
    let mut text = join(heads.iter().map(|head| head.title.to_owned()).collect());
    text.push('\n');
    for row in order.iter().take(COPIED) {
        let cell = |column| {
            let row = *row as usize;
            if csv { rows.exact(row, column) } else { rows.text(row, column) }
        };
        text += &join((0..heads.len()).map(cell).collect());
        text.push('\n');
    }
    text
}

impl TableState {
    /// The search field and how much it found.
    pub fn search(&mut self, ui: &mut Ui, rows: usize, found: usize, name: &str) {
        let field = egui::TextEdit::singleline(&mut self.query)
            .hint_text("text, 0x7f…, 0xA-0xB, >=4MiB")
            .desired_width(190.0);
        let shown = ui.add(field).on_hover_text(
            "find rows by text, by an address in them, by a range of addresses, or by size",
        );
        if std::mem::take(&mut self.focus) {
            shown.request_focus();
        }
        shown.accessible_name(format!("search {name}"));
        let text = if found == rows {
            format!("{} rows", units::count(rows as u64))
        } else {
            format!("{} of {} rows", units::count(found as u64), units::count(rows as u64))
        };
        ui.weak(text);
        self.choose_part(ui, found);
    }

    /// The rows that are shown, of those found.
    fn range(&self, found: usize) -> std::ops::Range<usize> {
        let first = (self.part * PART).min(found);
        first..(first + PART).min(found)
    }

    /// Which part of a long table is shown.
    fn choose_part(&mut self, ui: &mut Ui, found: usize) {
        let parts = found.div_ceil(PART);
        self.part = self.part.min(parts.saturating_sub(1));
        if parts < 2 {
            return;
        }
        let before = ui.add_enabled(self.part > 0, egui::Button::new("◀").small());
        if before.clicked() {
            self.part -= 1;
        }
        before.accessible_name("rows before");
        let mut first = self.part * PART + 1;
        let last = (self.part + 1).saturating_mul(PART).min(found);
        let words = |first: f64, _| {
            let count = |row: usize| units::count(row as u64);
            format!("rows {} to {}", count(first as usize), count(last))
        };
        let field = egui::DragValue::new(&mut first).range(1..=found).speed(PART as f64 / 40.0);
        let shown = ui.add(field.custom_formatter(words));
        let shown = shown.on_hover_text("drag, or type a row, to see others");
        if shown.changed() {
            self.part = (first - 1) / PART;
        }
        shown.accessible_name("first row shown");
        let next = ui.add_enabled(self.part + 1 < parts, egui::Button::new("▶").small());
        if next.clicked() {
            self.part += 1;
        }
        next.accessible_name("next rows");
    }

    /// Draws the table.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        (rows, order): (&dyn Rows, &[u32]),
        look: &Look,
        name: &str,
        selected: Option<Selected>,
    ) -> Option<Done> {
        let heads = rows.heads();
        // The last column takes what room is left.
        let fixed: f32 = heads.iter().rev().skip(1).map(|head| head.width).sum();
        let column = |(index, head): (usize, &Head)| {
            let last = index + 1 == heads.len();
            let room = (ui.available_width() - fixed - 14.0).max(head.width);
            Column::new(if last { room } else { head.width })
                .range((if last { room } else { head.width })..=2000.0)
                .resizable(true)
                .id(egui::Id::unique((name, index)))
        };
        let columns: Vec<Column> = heads.iter().enumerate().map(column).collect();
        let order = &order[self.range(order.len())];
        let mut delegate =
            Delegate { rows, order, sort: &mut self.sort, look, selected, done: None };
        egui_table::Table::new()
            .id_salt((name, self.part))
            .num_rows(order.len() as u64)
            .columns(columns)
            .headers([HeaderRow::new(22.0)])
            .show(ui, &mut delegate);
        delegate.done
    }
}

struct Delegate<'a> {
    rows: &'a dyn Rows,
    order: &'a [u32],
    sort: &'a mut Sort,
    look: &'a Look,
    selected: Option<Selected>,
    done: Option<Done>,
}

impl TableDelegate for Delegate<'_> {
    fn header_cell_ui(&mut self, ui: &mut Ui, cell: &HeaderCellInfo) {
        let column = cell.col_range.start;
        let Some(head) = self.rows.heads().get(column) else { return };
        let arrow = match *self.sort {
            Some((sorted, true)) if sorted == column => " ▼",
            Some((sorted, false)) if sorted == column => " ▲",
            _ => "",
        };
        let text = RichText::new(format!("{}{arrow}", head.title)).strong().size(12.0);
        let shown = ui.with_layout(side(head), |ui| {
            ui.add_space(6.0);
            ui.add(egui::Button::new(text).frame(false))
        });
        let shown = shown.inner.on_hover_text(format!("{}; click to sort", head.tip));
        if shown.clicked() {
            *self.sort = match *self.sort {
                Some((sorted, descending)) if sorted == column => Some((column, !descending)),
                _ => Some((column, head.number)),
            };
        }
    }

    fn row_ui(&mut self, ui: &mut Ui, row: u64) {
        let Some(number) = self.order.get(row as usize) else { return };
        let pick = self.rows.pick(*number as usize);
        let rect = ui.max_rect();
        let is_selected = pick.is_some() && pick == self.selected;
        if is_selected {
            ui.painter().rect_filled(rect, 0.0, ui.visuals().selection.bg_fill);
        } else if row % 2 == 1 {
            ui.painter().rect_filled(rect, 0.0, ui.visuals().faint_bg_color);
        }
        let response = ui.interact(rect, ui.scope_id().with(("row", row)), Sense::click());
        if let Some(pick) = pick {
            if response.clicked() {
                self.done = Some(Done::Selected(pick));
            } else if response.contains_pointer() && self.done.is_none() {
                ui.painter().rect_filled(rect, 0.0, self.look.ink.gamma_multiply(0.06));
                self.done = Some(Done::Hovered(pick));
            }
        }
    }

    fn cell_ui(&mut self, ui: &mut Ui, cell: &CellInfo) {
        let Some(number) = self.order.get(cell.row_nr as usize) else { return };
        let (row, column) = (*number as usize, cell.col_nr);
        let Some(head) = self.rows.heads().get(column) else { return };
        if let Some(share) = self.rows.share(row, column) {
            let mut bar = ui.max_rect().shrink2(egui::vec2(3.0, 3.0));
            bar.min.x = bar.max.x - bar.width() * share.clamp(0.0, 1.0);
            ui.painter().rect_filled(bar, 2.0, self.look.active.gamma_multiply(0.28));
        }
        ui.with_layout(side(head), |ui| {
            ui.add_space(6.0);
            let text = RichText::new(self.rows.text(row, column)).size(12.5);
            let label = egui::Label::new(text).truncate().selectable(false);
            let shown = ui.add(label);
            if shown.contains_pointer() {
                let exact = self.rows.exact(row, column);
                if exact != self.rows.text(row, column) {
                    shown.on_hover_text(exact);
                }
            }
        });
    }
}

fn side(head: &Head) -> Layout {
    if head.number {
        Layout::right_to_left(Align::Center)
    } else {
        Layout::left_to_right(Align::Center)
    }
}

/// What a search asks for; all its words have to hold.
struct Query(Vec<Word>);

enum Word {
    Text(String),
    Addresses(u64, u64),
    AtLeast(u64),
    AtMost(u64),
}

impl Query {
    fn parse(text: &str) -> Self {
        Self(text.split_whitespace().map(Word::parse).collect())
    }

    fn finds(&self, rows: &dyn Rows, row: usize) -> bool {
        self.0.iter().all(|word| word.finds(rows, row))
    }
}

impl Word {
    fn parse(word: &str) -> Self {
        let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let range = word.split_once('-').and_then(|(a, b)| Some((address(a)?, address(b)?)));
        if let Some((from, to)) = range {
            return Self::Addresses(from, to);
        }
        if let Some(at) = address(word) {
            return Self::Addresses(at, at.saturating_add(1));
        }
        let size = |text: &str| size(text.trim_start_matches('='));
        if let Some(bytes) = word.strip_prefix('>').and_then(size) {
            return Self::AtLeast(bytes);
        }
        if let Some(bytes) = word.strip_prefix('<').and_then(size) {
            return Self::AtMost(bytes);
        }
        Self::Text(word.to_lowercase())
    }

    fn finds(&self, rows: &dyn Rows, row: usize) -> bool {
        let bytes = || rows.range(row).map(|(_, bytes)| bytes);
        match self {
            Self::Addresses(from, to) => rows
                .range(row)
                .is_some_and(|(at, bytes)| at < *to && *from < at.saturating_add(bytes)),
            Self::AtLeast(least) => bytes().is_some_and(|bytes| bytes >= *least),
            Self::AtMost(most) => bytes().is_some_and(|bytes| bytes <= *most),
            Self::Text(text) => (0..rows.heads().len())
                .any(|column| rows.text(row, column).to_lowercase().contains(text)),
        }
    }
}

/// `4MiB`, `512`, `1.5GiB`.
fn size(text: &str) -> Option<u64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let unit = match text[split..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" | "kb" => 1024.0,
        "m" | "mib" | "mb" => 1_048_576.0,
        "g" | "gib" | "gb" => 1_073_741_824.0,
        _ => return None,
    };
    (number >= 0.0).then_some((number * unit) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    const HEADS: [Head; 2] = [
        Head { title: "name", tip: "", width: 10.0, number: false },
        Head { title: "bytes", tip: "", width: 10.0, number: true },
    ];

    impl Rows for Two {
        fn heads(&self) -> &'static [Head] {
            &HEADS
        }
        fn count(&self) -> usize {
            3
        }
        fn text(&self, row: usize, column: usize) -> String {
            let names = ["Loss, kept", "weights", "cache"];
            if column == 0 { names[row].to_owned() } else { units::bytes(self.bytes(row)) }
        }
        fn exact(&self, row: usize, column: usize) -> String {
            if column == 0 { self.text(row, 0) } else { self.bytes(row).to_string() }
        }
        fn key(&self, row: usize, column: usize) -> Key {
            if column == 0 { Key::Text(self.text(row, 0)) } else { Key::Number(self.bytes(row)) }
        }
        fn range(&self, row: usize) -> Option<(u64, u64)> {
            Some((0x1000 + 0x1000 * row as u64, self.bytes(row)))
        }
        fn pick(&self, _: usize) -> Option<Selected> {
            None
        }
    }

    impl Two {
        fn bytes(&self, row: usize) -> u64 {
            [100, 5 << 20, 4096][row]
        }
    }

    fn found(query: &str, sort: Sort) -> Vec<u32> {
        super::found(&Two, query, sort)
    }

    #[test]
    fn searches_are_by_text_address_range_and_size() {
        assert_eq!(found("", None), [0, 1, 2]);
        assert_eq!(found("LOSS", None), [0]);
        assert_eq!(found("0x1063", None), [0]);
        assert_eq!(found("0x1064", None), [0_u32; 0]);
        assert_eq!(found("0x1000-0x3001", None), [0, 1, 2]);
        assert_eq!(found(">=4KiB", None), [1, 2]);
        assert_eq!(found(">=4KiB <1MiB", None), [2]);
        assert_eq!(found("e >1k", None), [1, 2]);
    }

    #[test]
    fn rows_are_ordered_and_copied_with_all_digits_and_quotes() {
        assert_eq!(found("", Some((1, true))), [1, 2, 0]);
        assert_eq!(found("", Some((0, false))), [0, 2, 1]);
        let order = found("", Some((1, true)));
        let csv = "name,bytes\nweights,5242880\ncache,4096\n\"Loss, kept\",100\n";
        assert_eq!(copy(&Two, &order, true), csv);
        assert!(copy(&Two, &order, false).starts_with("name\tbytes\nweights\t5 MiB\n"));
    }

    #[test]
    fn every_row_of_a_long_table_is_in_some_part_of_it() {
        use egui_kittest::kittest::Queryable as _;
        let draw = |ui: &mut Ui, state: &mut TableState| state.choose_part(ui, 1_200_000);
        let harness = egui_kittest::Harness::builder();
        let harness = harness.with_context_setup(crate::window::paint::apply);
        let mut harness = harness.build_ui_state(draw, TableState::default());
        let mut parts = Vec::new();
        for _ in 0..3 {
            harness.run_steps(2);
            parts.push(harness.state().range(1_200_000));
            harness.get_by_label("next rows").click();
            harness.run_steps(3);
        }
        assert_eq!(parts, [0..500_000, 500_000..1_000_000, 1_000_000..1_200_000]);
        assert_eq!(harness.state().part, 2, "there is no other behind the last");
        harness.get_by_label("rows before").click();
        harness.run_steps(3);
        assert_eq!(harness.state().part, 1);
    }
}
