//! Texts for people on a terminal: aligned tables, bars, and numbers in words.

use std::fmt::Write as _;

use crate::units;

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Rows under a head, aligned by their longest cells.
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
    has_head: bool,
}

const INDENT: &str = "  ";
const BETWEEN: &str = "   ";

impl Table {
    /// A table without a head.
    pub fn new(sides: &[Side]) -> Self {
        Self { sides: sides.to_vec(), rows: Vec::new(), has_head: false }
    }

    /// A table with a head.
    pub fn with_head(head: &[(&str, Side)]) -> Self {
        let sides = head.iter().map(|(_, side)| *side).collect();
        let names = head.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { sides, rows: vec![names], has_head: true }
    }

    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = |text: &String| text.chars().count();
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::from(INDENT);
            for (at, cell) in row.iter().enumerate() {
                let between = if at == 0 { "" } else { BETWEEN };
                let pad = " ".repeat(widths[at].saturating_sub(length(cell)));
                // Writing to a String cannot fail.
                let _ = match self.sides[at] {
                    Side::Left => write!(line, "{between}{cell}{pad}"),
                    Side::Right => write!(line, "{between}{pad}{cell}"),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 && self.has_head {
                let total: usize =
                    widths.iter().sum::<usize>() + BETWEEN.len() * (widths.len() - 1);
                writeln!(f, "{INDENT}{}", "-".repeat(total))?;
            }
        }
        Ok(())
    }
}

/// `1 block`, `3 blocks`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", units::count(count), if count == 1 { one } else { many })
}

/// The share of a part, `12 %`; what is small and not nothing is `<1 %`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    match percent {
        0.0 => "0 %".to_owned(),
        small if small < 1.0 => "<1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// A time since a start: `1.234 s`, `12.3 ms`, `45 us`.
pub fn duration_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.3} s", us as f64 / 1e6),
    }
}

/// A bar of `width` characters for `value` of `most`, with `inner` of it drawn darker.
pub fn bar(inner: u64, value: u64, most: u64, width: usize) -> String {
    let cells = |bytes: u64| {
        (bytes as f64 / most.max(1) as f64 * width as f64).round().min(width as f64) as usize
    };
    let (dark, all) = (cells(inner), cells(value));
    format!("{}{}", "#".repeat(dark), ".".repeat(all.saturating_sub(dark)))
}

/// Bytes with all digits beside the short form.
pub fn exact(bytes: u64) -> String {
    format!("{} ({} bytes)", units::bytes(bytes), units::count(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_have_no_trailing_blanks() {
        let mut table = Table::with_head(&[("bytes", Side::Right), ("site", Side::Left)]);
        table.row(["1 GiB", "a.py:1"]);
        table.row(["100 MiB", "b.py:22 step"]);
        let text = table.to_string();
        assert_eq!(
            text,
            "    bytes   site\n  ----------------------\n    1 GiB   a.py:1\n  100 MiB   \
             b.py:22 step\n"
        );
    }

    #[test]
    fn numbers_are_in_words() {
        assert_eq!(counted(1, "block", "blocks"), "1 block");
        assert_eq!(counted(2000, "block", "blocks"), "2,000 blocks");
        assert_eq!((percent(0, 5), percent(1, 1000)), ("0 %".into(), "<1 %".into()));
        assert_eq!(duration_us(1_500), "1.5 ms");
        assert_eq!(bar(5, 10, 20, 20), "#####.....");
    }
}
