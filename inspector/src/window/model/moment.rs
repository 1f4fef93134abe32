//! The heap at one moment.

use super::{Addresses, BlockRow, NEVER, PoolKind, Recording, SegmentRow, StaleRow};

/// In our own files, spaces that are backed page by page lie from here on.
const PAGED: u64 = 0x2_0000 << SPACE_SHIFT;
/// A gap of at most so many bytes, or of an eighth of what is backed, is shown.
const FAR_AT_LEAST: u64 = 16 << 20;
/// Each space has so many addresses.
const SPACE_SHIFT: u32 = 40;

/// What a part of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// A live block.
    Live,
    /// A block that was freed and is still in use by other streams.
    Pending,
    /// A hole.
    Free,
    /// Addresses without memory; with a block, one that is paused.
    Unbacked,
    /// An old mapping of pages that are mapped elsewhere.
    Stale,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte, counted over all segments one behind the other.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// The block, or [`NEVER`] for a hole.
    pub block: u32,
    /// What it is.
    pub state: PartState,
}

/// A page: a piece of a memory object that is mapped on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// First byte, counted over all segments one behind the other.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its memory object, by number.
    pub object: u64,
}

/// A segment at the moment; pieces that lie next to each other are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of them that are backed.
    pub backed: u64,
    /// Where it begins when all segments lie one behind the other.
    pub start: u64,
    /// Index into [`Recording::streams`].
    pub stream: u32,
    /// Which requests it serves.
    pub pool: PoolKind,
    /// Its parts, as a range of [`Moment::parts`].
    pub parts: std::ops::Range<usize>,
    /// Whether the file has no segment here, only blocks.
    pub implied: bool,
}

/// The heap at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Events before it.
    pub at: u32,
    /// Segments by address.
    pub spaces: Vec<Space>,
    /// Parts by address.
    pub parts: Vec<Part>,
    /// Pages by address; none where the file does not tell of them one by one.
    pub pages: Vec<Page>,
    /// Bytes of all segments one behind the other, with what is not backed.
    pub extent: u64,
    /// Bytes of all segments that are backed.
    pub reserved: u64,
    /// Bytes of live blocks after rounding.
    pub live: u64,
    /// Bytes asked for by them.
    pub requested: u64,
    /// Bytes of pending blocks.
    pub pending: u64,
    /// Live blocks.
    pub live_blocks: u32,
    /// Largest hole.
    pub largest_free: u64,
    /// Bytes of addresses without memory.
    pub unbacked: u64,
    /// Bytes of old mappings.
    pub stale: u64,
}

impl Moment {
    /// The heap of a recording after `at` events.
    pub fn of(recording: &Recording, at: u32) -> Self {
        let mut alive: Vec<u32> = Vec::new();
        for (number, block) in (0..).zip(&recording.blocks) {
            if block.is_there(at) {
                alive.push(number);
            }
        }
        alive.sort_unstable_by_key(|number| recording.blocks[*number as usize].address);
        let there = |row: &&SegmentRow| row.born <= at && at < row.gone;
        let mut ranges: Vec<SegmentRow> =
            recording.segments.iter().filter(there).copied().collect();
        ranges.sort_unstable_by_key(|row| row.address);
        let mut build = Build { moment: Self { at, ..Self::default() }, blocks: &recording.blocks };
        let mut blocks = alive.into_iter().peekable();
        let pages = ranges.clone();
        let ranges = joined(&ranges);
        let paged =
            |range: &SegmentRow| recording.addresses == Addresses::Own && range.address >= PAGED;
        let backed: u64 = ranges.iter().map(|range| range.bytes).sum();
        let far = (backed / 8).max(FAR_AT_LEAST);
        // Pools lie far apart in one space: what is between them is nobody's.
        let same = |a: &SegmentRow, b: &SegmentRow| {
            let gap = b.address.saturating_sub(a.address.saturating_add(a.bytes));
            paged(a) && a.address >> SPACE_SHIFT == b.address >> SPACE_SHIFT && gap <= far
        };
        let mut shown_to = 0;
        for runs in ranges.chunk_by(same) {
            let stale =
                if paged(&runs[0]) { stale_in(recording, &runs[0], at) } else { Vec::new() };
            let (first, end, stale) = reach(runs, &stale, (shown_to, far));
            shown_to = end;
            let strays = |number: &u32| recording.blocks[*number as usize].address < first;
            build.implied(std::iter::from_fn(|| blocks.next_if(strays)));
            let within = |number: &u32| recording.blocks[*number as usize].address < end;
            let mut inside = std::iter::from_fn(|| blocks.next_if(within));
            build.space((first, end), runs, stale, &mut inside);
        }
        build.implied(blocks);
        build.moment.pages = pages_in(&pages, &build.moment.spaces);
        build.moment
    }

    /// The page at a byte of all segments one behind the other.
    pub fn page_at(&self, start: u64) -> Option<&Page> {
        let index = self.pages.partition_point(|page| page.start <= start).checked_sub(1)?;
        self.pages.get(index).filter(|page| start - page.start < page.bytes)
    }

    /// Bytes of holes.
    pub fn free(&self) -> u64 {
        self.reserved.saturating_sub(self.live).saturating_sub(self.pending)
    }

    /// The part at a byte of all segments one behind the other.
    pub fn part_at(&self, start: u64) -> Option<(usize, &Part)> {
        let index = self.parts.partition_point(|part| part.start <= start).checked_sub(1)?;
        let part = &self.parts[index];
        (start - part.start < part.bytes).then_some((index, part))
    }

    /// The part of a block.
    pub fn part_of(&self, recording: &Recording, block: u32) -> Option<&Part> {
        let address = recording.blocks.get(block as usize)?.address;
        let index = self.spaces.partition_point(|space| space.address <= address).checked_sub(1)?;
        let space = &self.spaces[index];
        let (_, part) = self.part_at(space.start + (address - space.address))?;
        (part.block == block).then_some(part)
    }

    /// The segment at a byte of all segments one behind the other.
    pub fn space_at(&self, start: u64) -> Option<&Space> {
        let index = self.spaces.partition_point(|space| space.start <= start).checked_sub(1)?;
        self.spaces.get(index)
    }

    /// The address of a byte of all segments one behind the other.
    pub fn address_at(&self, start: u64) -> Option<u64> {
        self.space_at(start).map(|space| space.address + (start - space.start))
    }

    /// Of free bytes, the share that is not in the largest hole: 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        let free = self.free();
        if free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / free as f64 }
    }
}

/// Those of the ranges, which are by address, that are pages, where they lie when all segments lie
/// one behind the other.
fn pages_in(ranges: &[SegmentRow], spaces: &[Space]) -> Vec<Page> {
    let mut spaces = spaces.iter().filter(|space| !space.implied).peekable();
    let mut pages = Vec::new();
    for row in ranges {
        let Some(object) = row.object else { continue };
        while spaces.next_if(|it| it.address.saturating_add(it.bytes) <= row.address).is_some() {}
        if let Some(space) = spaces.peek().filter(|space| space.address <= row.address) {
            let start = space.start + (row.address - space.address);
            pages.push(Page { start, bytes: row.bytes, object });
        }
    }
    pages
}

/// Neighbouring ranges of one stream are shown as one segment.
fn joined(ranges: &[SegmentRow]) -> Vec<SegmentRow> {
    let mut all: Vec<SegmentRow> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match all.last_mut() {
            Some(last)
                if last.pool == PoolKind::Unknown
                    && range.pool == PoolKind::Unknown
                    && last.stream == range.stream
                    && last.address + last.bytes == range.address =>
            {
                last.bytes += range.bytes;
            }
            _ => all.push(*range),
        }
    }
    all
}

/// The first and last address of runs with the old mappings in them and near them: no farther than
/// `far`, and not before `from`.
fn reach<'a>(
    runs: &[SegmentRow],
    stale: &'a [StaleRow],
    (from, far): (u64, u64),
) -> (u64, u64, &'a [StaleRow]) {
    let mut first = runs[0].address;
    let mut end = runs.iter().map(|run| run.address.saturating_add(run.bytes)).max().unwrap_or(0);
    let after = |row: &StaleRow| row.address.saturating_add(row.bytes);
    let near =
        |row: &&StaleRow| row.address >= from && after(row) <= first && first - after(row) <= far;
    first = stale.iter().find(near).map_or(first, |row| row.address);
    for row in stale.iter().filter(|row| row.address >= first) {
        if row.address.saturating_sub(end) <= far {
            end = end.max(after(row));
        }
    }
    let from = stale.partition_point(|row| row.address < first);
    let to = stale.partition_point(|row| row.address < end);
    (first, end, &stale[from..to.max(from)])
}

/// The old mappings that stand in a space, by address.
fn stale_in(recording: &Recording, range: &SegmentRow, at: u32) -> Vec<StaleRow> {
    let space = range.address >> SPACE_SHIFT;
    let there =
        |row: &&StaleRow| row.address >> SPACE_SHIFT == space && row.born <= at && at < row.gone;
    let mut stale: Vec<StaleRow> = recording.stale.iter().filter(there).copied().collect();
    stale.sort_unstable_by_key(|row| row.address);
    stale
}

struct Build<'a> {
    moment: Moment,
    blocks: &'a [BlockRow],
}

/// Blocks of a space that are still to come, by address.
type Inside<'a> = std::iter::Peekable<&'a mut dyn Iterator<Item = u32>>;

impl Build<'_> {
    /// A space from its first to its last address: runs that are backed, and what lies between.
    fn space(
        &mut self,
        (from, end): (u64, u64),
        runs: &[SegmentRow],
        stale: &[StaleRow],
        blocks: &mut dyn Iterator<Item = u32>,
    ) {
        let (start, first) = (self.moment.extent, self.moment.parts.len());
        let mut blocks: Inside<'_> = blocks.peekable();
        let shift = start.wrapping_sub(from);
        let mut at = from;
        for run in runs {
            self.gap(shift, (at, run.address), stale, &mut blocks);
            self.run(shift, run, &mut blocks);
            at = run.address.saturating_add(run.bytes);
        }
        self.gap(shift, (at, end), stale, &mut blocks);
        let backed = runs.iter().map(|run| run.bytes).sum();
        let whole = SegmentRow { address: from, bytes: end - from, ..runs[0] };
        self.close(&whole, backed, start, first, false);
    }
    /// A stretch that is backed: blocks and holes. `shift` leads from addresses to places.
    fn run(&mut self, shift: u64, range: &SegmentRow, blocks: &mut Inside<'_>) {
        let all = self.blocks;
        let end = range.address.saturating_add(range.bytes);
        let mut at = range.address;
        while let Some(number) = blocks.next_if(|number| all[*number as usize].address < end) {
            let block = all[number as usize];
            // What contradicts itself (blocks that overlap) is cut, not trusted.
            let from = block.address.max(at);
            let to = block.address.saturating_add(block.bytes).min(end);
            if from >= to {
                continue;
            }
            self.hole(at.wrapping_add(shift), from - at);
            self.block(from.wrapping_add(shift), to - from, number);
            at = to;
        }
        self.hole(at.wrapping_add(shift), end - at);
    }

    /// A stretch that is not backed: nothing, old mappings, and blocks that are paused.
    fn gap(
        &mut self,
        shift: u64,
        (mut at, end): (u64, u64),
        stale: &[StaleRow],
        blocks: &mut Inside<'_>,
    ) {
        let all = self.blocks;
        let mut old = stale[stale.partition_point(|row| row.address < at)..].iter().peekable();
        let mut part = |start: u64, end: u64, block, state| {
            if start < end {
                let (start, bytes) = (start.wrapping_add(shift), end - start);
                let moment = &mut self.moment;
                let sum = match state {
                    PartState::Stale => &mut moment.stale,
                    _ => &mut moment.unbacked,
                };
                *sum += bytes;
                moment.parts.push(Part { start, bytes, block, state });
            }
        };
        while at < end {
            let block = blocks.peek().copied().filter(|number| all[*number as usize].address < end);
            let of_block = block.map_or(end, |number| all[number as usize].address);
            let of_stale = old.peek().map_or(end, |row| row.address).min(end);
            let (from, bytes, number, state) = match (block, old.peek()) {
                (Some(number), _) if of_block <= of_stale => {
                    _ = blocks.next();
                    (of_block, all[number as usize].bytes, number, PartState::Unbacked)
                }
                (_, Some(row)) if of_stale < end => {
                    let bytes = row.bytes;
                    _ = old.next();
                    (of_stale, bytes, NEVER, PartState::Stale)
                }
                _ => break,
            };
            let (from, to) = (from.max(at), from.saturating_add(bytes).min(end));
            part(at, from, NEVER, PartState::Unbacked);
            part(from, to, number, state);
            at = at.max(from).max(to);
        }
        part(at, end, NEVER, PartState::Unbacked);
    }

    /// Blocks in no segment that the file knows: a segment of their own for each run of them.
    fn implied(&mut self, blocks: impl Iterator<Item = u32>) {
        let mut run: Option<(SegmentRow, u64, usize)> = None;
        for number in blocks {
            let block = self.blocks[number as usize];
            let touches = run.is_some_and(|(row, ..)| row.address + row.bytes == block.address);
            if !touches {
                if let Some((row, start, first)) = run.take() {
                    self.close(&row, row.bytes, start, first, true);
                }
                let row = SegmentRow {
                    address: block.address,
                    bytes: 0,
                    born: 0,
                    gone: NEVER,
                    stream: block.stream,
                    pool: PoolKind::Unknown,
                    object: None,
                };
                run = Some((row, self.moment.extent, self.moment.parts.len()));
            }
            if let Some((row, start, _)) = &mut run {
                let at = *start + row.bytes;
                row.bytes += block.bytes;
                self.block(at, block.bytes, number);
            }
        }
        if let Some((row, start, first)) = run {
            self.close(&row, row.bytes, start, first, true);
        }
    }

    fn close(&mut self, range: &SegmentRow, backed: u64, start: u64, first: usize, implied: bool) {
        let moment = &mut self.moment;
        moment.reserved += backed;
        moment.extent += range.bytes;
        moment.spaces.push(Space {
            address: range.address,
            bytes: range.bytes,
            backed,
            start,
            stream: range.stream,
            pool: range.pool,
            parts: first..moment.parts.len(),
            implied,
        });
    }

    fn hole(&mut self, start: u64, bytes: u64) {
        if bytes > 0 {
            let moment = &mut self.moment;
            moment.parts.push(Part { start, bytes, block: NEVER, state: PartState::Free });
            moment.largest_free = moment.largest_free.max(bytes);
        }
    }

    fn block(&mut self, start: u64, bytes: u64, number: u32) {
        let block = self.blocks[number as usize];
        let moment = &mut self.moment;
        let state = if moment.at >= block.freed { PartState::Pending } else { PartState::Live };
        moment.parts.push(Part { start, bytes, block: number, state });
        if state == PartState::Pending {
            moment.pending += bytes;
        } else {
            moment.live += bytes;
            moment.requested += block.requested;
            moment.live_blocks += 1;
        }
    }
}
