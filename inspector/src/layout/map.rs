//! The heap by address, wrapped into rows like a text: one byte scale for all segments.

use super::legend::{self, Key};
use super::scene::{Anchor, Fill, Pen, Rect};
use super::{Measure, Theme};
use crate::model::{HeapMap, Part, State};
use crate::units;

/// Rows that the heap is wrapped into, at least.
const ROWS: u64 = 20;
/// Parts narrower than this are drawn together with neighbours that look the same.
const NARROW: f32 = 0.75;

/// Draws map, axes and legend. `area` is the map's own.
pub fn draw(pen: &mut Pen, theme: &Theme, map: &HeapMap, area: Rect, measure: Measure<'_>) {
    let total = map.bytes();
    let per_row = units::byte_step(total, ROWS).max(1);
    let rows = total.div_ceil(per_row).max(1);
    let title = format!("Heap by address: each row is {}", units::bytes(per_row));
    pen.text((area.x, area.y - 20.0), 18.0, Anchor::Start, theme.ink, &title);
    let classes = Classes::of(map);
    legend::draw(pen, theme, &classes.keys(theme, map), (area.right(), area.y - 20.0), measure);
    if total == 0 {
        let middle = (area.x + area.w / 2.0, area.y + area.h / 2.0);
        pen.rect(area, Fill::Solid(theme.panel));
        let text = "No segment: nothing is allocated at this moment.";
        pen.text(middle, 18.0, Anchor::Middle, theme.faint, text);
        return;
    }
    let grid = Grid { area, per_row, pitch: area.h / rows as f32, total };
    axes(pen, theme, &grid, rows);
    let mut start = 0;
    for (number, segment) in map.segments.iter().enumerate() {
        let mut run = Run::default();
        for part in &segment.parts {
            run.add(pen, &grid, start + part.offset, part, number, classes.fill(theme, part));
        }
        run.flush(pen, &grid);
        start += segment.bytes;
        if start < total {
            boundary(pen, theme, &grid, start);
        }
    }
}

fn axes(pen: &mut Pen, theme: &Theme, grid: &Grid, rows: u64) {
    let Grid { area, per_row, pitch, .. } = *grid;
    let every = (22.0 / pitch).ceil().max(1.0) as u64;
    for row in (0..rows).step_by(every as usize) {
        let y = area.y + pitch * (row as f32 + 0.5) + 4.5;
        let label = units::bytes(row * per_row);
        pen.text((area.x - 12.0, y), 13.0, Anchor::End, theme.faint, &label);
    }
    for quarter in 0..=4_u8 {
        let x = area.x + area.w * f32::from(quarter) / 4.0;
        let label = format!("+{}", units::bytes(per_row / 4 * u64::from(quarter)));
        let anchor = match quarter {
            0 => Anchor::Start,
            4 => Anchor::End,
            _ => Anchor::Middle,
        };
        pen.line(vec![(x, area.bottom() + 2.0), (x, area.bottom() + 8.0)], 1.0, theme.faint);
        pen.text((x, area.bottom() + 24.0), 13.0, anchor, theme.faint, &label);
    }
}

/// The end of a segment: a mark that rises above its row.
fn boundary(pen: &mut Pen, theme: &Theme, grid: &Grid, at: u64) {
    let (x, y) = grid.at(at);
    let h = grid.bar();
    pen.rect(Rect::new(x - 1.5, y - 1.0, 3.0, h + 2.0), Fill::Solid(theme.paper));
    pen.line(vec![(x, y - 2.0), (x, y + h + 2.0)], 1.8, theme.mark);
}

/// Where bytes are in pixels.
#[derive(Clone, Copy)]
struct Grid {
    area: Rect,
    per_row: u64,
    pitch: f32,
    total: u64,
}

impl Grid {
    fn at(&self, byte: u64) -> (f32, f32) {
        let (row, within) = (byte / self.per_row, byte % self.per_row);
        let x = self.area.x + self.area.w * (within as f64 / self.per_row as f64) as f32;
        (x, self.area.y + self.pitch * row as f32 + self.gap() / 2.0)
    }

    fn gap(&self) -> f32 {
        (self.pitch * 0.2).min(6.0)
    }

    fn bar(&self) -> f32 {
        self.pitch - self.gap()
    }

    /// The rectangles of a range: one per row that it touches.
    fn rects(&self, from: u64, bytes: u64) -> impl Iterator<Item = Rect> + '_ {
        let end = (from + bytes).min(self.total);
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let stop = end.min((at / self.per_row + 1) * self.per_row);
            let (x, y) = self.at(at);
            let w = self.area.w * ((stop - at) as f64 / self.per_row as f64) as f32;
            at = stop;
            Some(Rect::new(x, y, w, self.bar()))
        })
    }
}

/// Neighbouring parts that look the same and are too narrow to be told apart.
#[derive(Default)]
struct Run {
    current: Option<(u64, u64, Fill, usize, String)>,
}

impl Run {
    fn add(
        &mut self,
        pen: &mut Pen,
        grid: &Grid,
        at: u64,
        part: &Part,
        segment: usize,
        fill: Fill,
    ) {
        let width = grid.area.w * (part.bytes as f64 / grid.per_row as f64) as f32;
        if let Some((_, bytes, same, parts, _)) = &mut self.current
            && width < NARROW
            && *same == fill
        {
            *bytes += part.bytes;
            *parts += 1;
            return;
        }
        self.flush(pen, grid);
        self.current = Some((at, part.bytes, fill, 1, tip(part, segment)));
    }

    fn flush(&mut self, pen: &mut Pen, grid: &Grid) {
        let Some((at, bytes, fill, parts, tip)) = self.current.take() else { return };
        let tip = if parts > 1 { format!("{parts} parts, {}", units::bytes(bytes)) } else { tip };
        for mut rect in grid.rects(at, bytes) {
            if rect.w > 3.0 {
                // A fine line of paper between neighbours.
                rect.w -= 0.8;
            }
            pen.tip_rect(rect, fill, tip.clone());
        }
    }
}

fn tip(part: &Part, segment: usize) -> String {
    let place = format!("segment {segment} +{}", units::bytes(part.offset));
    let size = format!("{} ({} B)", units::bytes(part.bytes), units::count(part.bytes));
    match part.state {
        State::Live { requested, stream } => {
            let asked = units::count(requested);
            format!("block of {size}, {asked} B asked for, stream {stream}, {place}")
        }
        State::Free => format!("free {size}, {place}"),
        State::Pending => format!("pending {size}, {place}"),
    }
}

/// Six classes of size, each four times the one before, the last open.
struct Classes {
    /// The upper limits of all but the last.
    limits: [u64; 5],
    pending: bool,
}

impl Classes {
    fn of(map: &HeapMap) -> Self {
        let parts = map.segments.iter().flat_map(|segment| &segment.parts);
        let live = parts.filter(|part| matches!(part.state, State::Live { .. }));
        let largest = live.map(|part| part.bytes).max().unwrap_or(0).max(4096);
        // The last class holds the largest block.
        let last = 1_u64 << ((largest - 1).ilog2() / 2 * 2);
        let limits = [8, 6, 4, 2, 0].map(|shift| (last >> shift).max(256));
        Self { limits, pending: map.bytes_of(|state| state == State::Pending) > 0 }
    }

    fn class(&self, bytes: u64) -> usize {
        self.limits.iter().take_while(|limit| bytes > **limit).count()
    }

    fn fill(&self, theme: &Theme, part: &Part) -> Fill {
        match part.state {
            State::Live { .. } => Fill::Solid(theme.sizes[self.class(part.bytes)]),
            State::Free => theme.free,
            State::Pending => theme.pending,
        }
    }

    fn keys(&self, theme: &Theme, map: &HeapMap) -> Vec<(Key, String)> {
        let mut keys = Vec::new();
        for (class, color) in theme.sizes.iter().enumerate() {
            let label = match class {
                0 => format!("blocks to {}", units::bytes(self.limits[0])),
                5 => format!("over {}", units::bytes(self.limits[4])),
                _ => format!("to {}", units::bytes(self.limits[class])),
            };
            keys.push((Key::Patch(Fill::Solid(*color)), label));
        }
        keys.push((Key::Patch(theme.free), "free".to_owned()));
        if self.pending {
            keys.push((Key::Patch(theme.pending), "pending".to_owned()));
        }
        if map.segments.len() > 1 {
            keys.push((Key::Bar(theme.mark), "segment ends".to_owned()));
        }
        keys
    }
}
