//! Address against time where there are more blocks than a frame can lay out: all that are in
//! sight, one by one where they are few, else a picture in which each pixel has the colour of what
//! covers most of it. Both take longer than a frame.

use egui::{Color32, ColorImage};

use super::address_time::{AddressTime, Entry};
use super::{Axis, Classes};
use crate::window::model::PoolKind;
use crate::window::paint::Look;

/// So many blocks in sight are drawn one by one.
pub const FEW: usize = 20_000;
/// What a block that covers all of a pixel adds to it.
const WHOLE: f64 = (1 << 20) as f64;
/// Where little of a pixel is covered, it is still this much of the colour.
const PALEST: f32 = 0.35;

/// What is in sight: time on the axis, and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight {
    /// From and to, in events or microseconds.
    pub time: [f64; 2],
    /// First and last byte.
    pub bytes: [f64; 2],
}

impl Sight {
    /// The same with as much again around it, half at each side.
    fn widened(self) -> Self {
        let wide = |[from, to]: [f64; 2]| [from - (to - from) / 2.0, to + (to - from) / 2.0];
        Self { time: wide(self.time), bytes: wide(self.bytes) }
    }

    /// Whether all of another one is in it.
    pub fn has(&self, other: &Self) -> bool {
        let has = |[a, b]: [f64; 2], [c, d]: [f64; 2]| a <= c && d <= b;
        has(self.time, other.time) && has(self.bytes, other.bytes)
    }
}

/// All blocks in sight.
pub enum Layer {
    /// One by one, of more than is in sight.
    Few(Sight, Vec<Entry>),
    /// As a picture of what is in sight, and how many they are.
    Dense(Sight, ColorImage, usize),
}

/// Classes there may be.
const CLASSES: usize = super::coloring::CLASSES;

/// What covers pixels, class by class: where it begins and, negative, where it ends.
struct Planes {
    columns: usize,
    rows: usize,
    /// Of each class that occurs, row by row.
    of: [Option<Vec<i32>>; CLASSES],
}

impl AddressTime<'_> {
    /// What is in sight.
    pub fn sight(&self) -> Sight {
        let span = self.time.span;
        Sight { time: [span.from, span.to], bytes: [self.bytes.0, self.bytes.1] }
    }

    /// All blocks in sight.
    pub fn layer(&self, classes: &Classes, look: &Look) -> Layer {
        let wide = self.sight().widened();
        let mut few = Vec::new();
        self.each(&wide, &mut |entry| {
            few.push(entry);
            few.len() <= FEW
        });
        if few.len() <= FEW {
            // Those that go over others come last, as among the largest.
            let area =
                |it: &Entry| u128::from(it.bytes) * u128::from(it.gone - it.born.min(it.gone));
            few.sort_by_key(|entry| std::cmp::Reverse(area(entry)));
            return Layer::Few(wide, few);
        }
        let side = |points: f32| ((points * self.scale).round() as usize).clamp(1, 8192);
        let (columns, rows) = (side(self.area.width()), side(self.area.height()));
        let mut planes = Planes { columns, rows, of: [const { None }; CLASSES] };
        let mut count = 0;
        self.each(&self.sight(), &mut |entry| {
            count += 1;
            let class = classes.class(self.time.recording, entry.number, PoolKind::Unknown);
            if let Some(class) = class {
                self.cover(&mut planes, &entry, usize::from(class).min(CLASSES - 1));
            }
            true
        });
        Layer::Dense(self.sight(), planes.picture(classes, look), count)
    }

    /// The block that has a byte at a moment.
    pub fn find(&self, moment: u32, start: u64) -> Option<u32> {
        let here = [start as f64, start as f64];
        let bytes = Sight { time: [f64::MIN, f64::MAX], bytes: here };
        let mut found = None;
        self.each(&bytes, &mut |entry| {
            found = entry.holds(moment, start).then_some(entry.number);
            found.is_none()
        });
        found
    }

    /// Gives all blocks of which anything is in sight, until one is refused.
    fn each(&self, sight: &Sight, take: &mut dyn FnMut(Entry) -> bool) {
        let recording = self.time.recording;
        let moment = |value: f64| match self.time.axis {
            Axis::Events => value.clamp(0.0, f64::from(u32::MAX)) as u32,
            Axis::Clock => recording.moment_at(value.max(0.0) as u64),
        };
        let (first, last) = (moment(sight.time[0]), moment(sight.time[1]).saturating_add(1));
        let [low, high] = sight.bytes;
        for (number, block) in (0..).zip(&recording.blocks) {
            if block.born > last || block.gone < first {
                continue;
            }
            let Some(entry) = self.order.entry(block, number) else { continue };
            let is_in = entry.start as f64 <= high && (entry.start + entry.bytes) as f64 >= low;
            if is_in && !take(entry) {
                return;
            }
        }
    }

    /// Adds what a block covers.
    fn cover(&self, planes: &mut Planes, entry: &Entry, class: usize) {
        let (columns, rows) = (planes.columns as f64, planes.rows as f64);
        let Sight { time: [from, to], bytes: [low, high] } = self.sight();
        let x = |moment: u32| (self.time.value(moment) - from) / (to - from).max(1e-9) * columns;
        // Rows are counted from above, where the high addresses are.
        let y = |byte: u64| (high - byte as f64) / (high - low).max(1e-9) * rows;
        let (left, right) = (x(entry.born.saturating_sub(1)), x(entry.gone));
        let (top, bottom) = (y(entry.start + entry.bytes), y(entry.start));
        let (left, right) = (left.clamp(0.0, columns), right.clamp(0.0, columns));
        let first = (left as usize).min(planes.columns - 1);
        let after = (right.ceil() as usize).clamp(first + 1, planes.columns);
        // What is over within a column has that part of it.
        let part = if after == first + 1 { (right - left).clamp(0.0, 1.0) } else { 1.0 };
        let row = (top.clamp(0.0, rows) as usize).min(planes.rows - 1);
        let below = (bottom.clamp(0.0, rows).ceil() as usize).clamp(row + 1, planes.rows);
        for row in row..below {
            let share = (bottom.min(row as f64 + 1.0) - top.max(row as f64)).clamp(0.0, 1.0);
            planes.add(class, row, first..after, ((share * part * WHOLE).round() as i32).max(1));
        }
    }
}

impl Planes {
    fn add(&mut self, class: usize, row: usize, columns: std::ops::Range<usize>, share: i32) {
        let width = self.columns + 1;
        let room = width * self.rows;
        let plane = self.of[class].get_or_insert_with(|| vec![0; room]);
        plane[row * width + columns.start] += share;
        plane[row * width + columns.end] -= share;
    }

    /// Each pixel in the colour of what covers most of it, paler where little of it is covered.
    fn picture(&self, classes: &Classes, look: &Look) -> ColorImage {
        let width = self.columns + 1;
        let of = self.of.iter().enumerate();
        let planes: Vec<(Color32, &[i32])> = of
            .filter_map(|(class, plane)| {
                Some((classes.paint(look, class as u8).0.0, plane.as_deref()?))
            })
            .collect();
        let mut pixels = vec![Color32::TRANSPARENT; self.columns * self.rows];
        let mut now = vec![0_i64; planes.len()];
        for (row, line) in pixels.chunks_exact_mut(self.columns).enumerate() {
            now.fill(0);
            for (column, pixel) in line.iter_mut().enumerate() {
                let (mut most, mut all, mut color) = (0, 0, Color32::TRANSPARENT);
                for ((paint, plane), now) in planes.iter().zip(&mut now) {
                    *now += i64::from(plane[row * width + column]);
                    all += *now;
                    if *now > most {
                        (most, color) = (*now, *paint);
                    }
                }
                if most > 0 {
                    let share = (all as f32 / WHOLE as f32).min(1.0);
                    let strength = PALEST + (1.0 - PALEST) * share;
                    *pixel = look.paper.lerp_to_gamma(color, strength);
                }
            }
        }
        ColorImage::new([self.columns, self.rows], pixels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::layout::{Coloring, Order, TimeScale};
    use crate::window::model::{
        BlockRow, EventOp, EventRow, Moment, NEVER, PoolKind, Recording, SegmentRow,
    };

    const BLOCKS: u32 = 30_000;

    /// Blocks one above the other, each made by an event of its own and kept.
    fn recording() -> Recording {
        let block = |number: u32| BlockRow {
            born: number + 1,
            ..BlockRow::kept(u64::from(number) * 4096, 4096)
        };
        let segment = SegmentRow {
            address: 0,
            bytes: u64::from(BLOCKS) * 4096,
            born: 0,
            gone: NEVER,
            stream: 0,
            pool: PoolKind::Unknown,
            object: None,
        };
        let blocks = (0..BLOCKS).map(block).collect();
        let mut recording = Recording::for_tests(blocks, vec![segment]);
        let event = |block| EventRow { time_us: 0, block, op: EventOp::Alloc };
        recording.events = (0..BLOCKS).map(event).collect();
        recording
    }

    #[test]
    fn all_blocks_in_sight_are_a_picture_or_where_they_are_few_one_by_one() {
        let recording = recording();
        let order = Order::of(&recording);
        let moment = Moment::of(&recording, recording.end());
        let classes = Classes::of(&recording, &moment, Coloring::Size, None);
        let look = Look::of(true);
        let area = egui::Rect::from_min_size(egui::pos2(10.0, 20.0), egui::vec2(300.0, 200.0));
        let time = TimeScale::new(&recording, Axis::Events, None, area.x_range());
        let bytes = (0.0, order.total as f64);
        let mut chart = AddressTime { order: &order, time, area, bytes, scale: 1.0 };
        let Layer::Dense(sight, picture, count) = chart.layer(&classes, &look) else {
            unreachable!("so many are no few")
        };
        assert_eq!((count, picture.size, sight), (BLOCKS as usize, [300, 200], chart.sight()));
        // The first ones are there all the time, the last ones at the end only.
        let at = |x: usize, y: usize| picture[(x, y)];
        let class = classes.class(&recording, 0, PoolKind::Unknown).unwrap();
        let (color, none) = (classes.paint(&look, class).0.0, Color32::TRANSPARENT);
        assert_eq!(
            [at(150, 199), at(299, 100), at(290, 0), at(100, 20)],
            [color, color, none, none]
        );
        // Where less than all of a pixel is covered it is paler.
        assert_ne!(at(150, 99), color);
        // A tenth of the addresses, and as much again around it.
        chart.bytes.1 /= 10.0;
        let Layer::Few(wide, few) = chart.layer(&classes, &look) else {
            unreachable!("they are few")
        };
        assert!((4500..4600).contains(&few.len()), "{}", few.len());
        assert!(wide.has(&chart.sight()) && !chart.sight().has(&wide));
        assert_eq!(chart.cells(&few, &classes, &look, Vec::new()).1, 0, "none is left out");
        // None of the largest has to be there for one to be found.
        assert_eq!(chart.find(29_990, 29_000 * 4096 + 7), Some(29_000));
        assert_eq!(chart.find(28_000, 29_000 * 4096 + 7), None);
    }
}
