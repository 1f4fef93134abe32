//! Address against time: one rectangle per block.

use egui::{Rect, pos2};

use super::density::{FEW, Sight};
use super::{Classes, TimeScale};
use crate::window::model::{BlockRow, NEVER, PoolKind, Recording};
use crate::window::paint::{Cell, Look};

/// All addresses ever used, without the gaps between segments.
#[derive(Debug, Default)]
pub struct Order {
    /// (first address, bytes, start), by address.
    ranges: Vec<(u64, u64, u64)>,
    /// Bytes in all.
    pub total: u64,
    /// Blocks by bytes times events, largest first, as many as are looked at.
    largest: Vec<Entry>,
    /// Blocks in all.
    blocks: usize,
    /// The last moment.
    end: u32,
}

/// A block's place and life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// First byte, without the gaps between segments.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// First moment at which it is there.
    pub born: u32,
    /// First moment at which it is gone, or the last one.
    pub gone: u32,
    /// Index into [`Recording::blocks`].
    pub number: u32,
}

impl Order {
    /// Collects the ranges of all segments and of blocks outside of them.
    pub fn of(recording: &Recording) -> Self {
        let segments = recording.segments.iter().map(|row| (row.address, row.bytes));
        let mut all: Vec<(u64, u64)> = segments.collect();
        if all.is_empty() {
            all.extend(recording.blocks.iter().map(|block| (block.address, block.bytes)));
        }
        all.sort_unstable();
        let mut order = Self::default();
        for (address, bytes) in all {
            match order.ranges.last_mut() {
                Some((first, length, _)) if address <= *first + *length => {
                    *length = (*length).max(address.saturating_add(bytes) - *first);
                }
                _ => order.ranges.push((address, bytes, 0)),
            }
        }
        for range in &mut order.ranges {
            range.2 = order.total;
            order.total += range.1;
        }
        let end = recording.end();
        order.end = end;
        let weight = |block: &BlockRow| {
            let gone = block.gone.min(end);
            u128::from(block.bytes) * u128::from(gone - block.born.min(gone) + 1)
        };
        let mut numbers: Vec<(u128, u32)> = recording.blocks.iter().map(weight).zip(0..).collect();
        numbers.sort_unstable_by_key(|(weight, number)| (std::cmp::Reverse(*weight), *number));
        order.blocks = numbers.len();
        numbers.truncate(EXAMINED);
        let entry = |(_, number)| order.entry(&recording.blocks[number as usize], number);
        order.largest = numbers.into_iter().filter_map(entry).collect();
        order
    }

    /// A block's place and life.
    pub fn entry(&self, block: &BlockRow, number: u32) -> Option<Entry> {
        let start = self.start(block.address)?;
        let gone = if block.gone == NEVER { self.end } else { block.gone };
        Some(Entry { start, bytes: block.bytes, born: block.born, gone, number })
    }

    /// Blocks by bytes times events, largest first, as many as are drawn while nothing else is
    /// there.
    pub fn largest(&self) -> &[Entry] {
        &self.largest
    }

    /// How many others there are.
    pub fn others(&self) -> usize {
        self.blocks - self.largest.len()
    }

    /// Where an address is when there are no gaps.
    pub fn start(&self, address: u64) -> Option<u64> {
        let index = self.ranges.partition_point(|range| range.0 <= address).checked_sub(1)?;
        let (first, bytes, start) = self.ranges[index];
        (address - first < bytes).then(|| start + (address - first))
    }
}

/// The chart: time to the right, addresses upwards.
#[derive(Clone, Copy)]
pub struct AddressTime<'a> {
    /// Addresses.
    pub order: &'a Order,
    /// Time.
    pub time: TimeScale<'a>,
    /// The chart's area.
    pub area: Rect,
    /// Visible bytes: first and last.
    pub bytes: (f64, f64),
    /// Pixels per point.
    pub scale: f32,
}

/// Rectangles drawn at most; where there are more, a picture by density is.
const MOST: usize = 20_000;
/// Blocks that are drawn in every frame, those with the most bytes times events first.
const EXAMINED: usize = 20_000;

impl AddressTime<'_> {
    /// Height of a byte.
    pub fn y_of(&self, start: f64) -> f32 {
        let part = (start - self.bytes.0) / (self.bytes.1 - self.bytes.0).max(1.0);
        self.area.bottom() - (part * f64::from(self.area.height())) as f32
    }

    /// The byte at a height.
    pub fn start_at(&self, y: f32) -> f64 {
        let part = f64::from((self.area.bottom() - y) / self.area.height().max(1.0));
        self.bytes.0 + part * (self.bytes.1 - self.bytes.0)
    }

    /// The rectangle of a block, if any of it is visible.
    pub fn rect(&self, block: &BlockRow) -> Option<Rect> {
        self.place(&self.order.entry(block, 0)?)
    }

    /// Where what was in sight is now.
    pub fn rect_of(&self, sight: Sight) -> Rect {
        let [from, to] = sight.time.map(|value| self.time.x_of_value(value));
        let [low, high] = sight.bytes.map(|byte| self.y_of(byte));
        Rect::from_min_max(pos2(from, high), pos2(to, low))
    }

    fn place(&self, entry: &Entry) -> Option<Rect> {
        let snap = |at: f32| (at * self.scale).round() / self.scale;
        let left = self.time.x_of(entry.born.saturating_sub(1));
        let right = self.time.x_of(entry.gone);
        let (top, bottom) =
            (self.y_of((entry.start + entry.bytes) as f64), self.y_of(entry.start as f64));
        let rect = Rect::from_min_max(
            pos2(snap(left), snap(top)),
            pos2(snap(right).max(snap(left)), snap(bottom)),
        );
        rect.intersects(self.area).then(|| rect.intersect(self.area))
    }

    /// A rectangle for each of some blocks, in place of what `cells` held, and how many were too
    /// many or too small to draw.
    pub fn cells(
        &self,
        blocks: &[Entry],
        classes: &Classes,
        look: &Look,
        mut cells: Vec<Cell>,
    ) -> (Vec<Cell>, usize) {
        cells.clear();
        let pixel = 1.0 / self.scale;
        let mut left_out = 0;
        // Farther than a point from what is visible nothing is rounded into it.
        let point = (self.bytes.1 - self.bytes.0) / f64::from(self.area.height().max(1.0));
        let (low, high) = (self.bytes.0 - 2.0 * point, self.bytes.1 + 2.0 * point);
        let near = |entry: &&Entry| {
            entry.start as f64 <= high && (entry.start + entry.bytes) as f64 >= low
        };
        for entry in blocks.iter().filter(near) {
            let Some(mut rect) = self.place(entry) else { continue };
            let is_small = rect.width() < pixel && rect.height() < pixel;
            if is_small && blocks.len() > FEW || cells.len() >= MOST {
                left_out += 1;
                continue;
            }
            rect.max.x = rect.max.x.max(rect.min.x + pixel);
            rect.max.y = rect.max.y.max(rect.min.y + pixel);
            if rect.height() > 4.0 * pixel {
                rect.min.y += pixel;
            }
            if rect.width() > 4.0 * pixel {
                rect.max.x -= pixel;
            }
            let class = classes.class(self.time.recording, entry.number, PoolKind::Unknown);
            let Some(class) = class else { continue };
            let (colors, pattern) = classes.paint(look, class);
            cells.push(Cell::new(rect, colors, pattern));
        }
        (cells, left_out)
    }

    /// The block at a point: of several, the one that comes last.
    pub fn block_at(&self, blocks: &[Entry], at: egui::Pos2) -> Option<u32> {
        let moment = self.time.moment_at(at.x);
        let start = self.start_at(at.y).max(0.0) as u64;
        blocks.iter().rfind(|entry| entry.holds(moment, start)).map(|entry| entry.number)
    }
}

impl Entry {
    /// Whether a byte is its at a moment.
    pub fn holds(&self, moment: u32, start: u64) -> bool {
        self.born <= moment + 1
            && moment < self.gone
            && start >= self.start
            && start - self.start < self.bytes
    }
}
