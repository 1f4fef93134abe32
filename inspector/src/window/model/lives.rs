//! From what happened to segments to how long each range was backed.

use terrane_trace::model::{SegmentEvent, SegmentOp};

use super::{NEVER, PoolKind, SegmentRow};

/// Ranges that are backed now, and those that were.
#[derive(Default)]
pub struct Lives {
    rows: Vec<SegmentRow>,
    /// Indices into `rows` of what is backed now, by address.
    open: std::collections::BTreeMap<u64, usize>,
}

impl Lives {
    /// Takes what happened after `at` events.
    pub fn take(&mut self, at: u32, event: &SegmentEvent) {
        match event.op {
            SegmentOp::Alloc | SegmentOp::Map => {
                let pool = match (event.op, event.bytes) {
                    (SegmentOp::Alloc, 0..=SMALL_SEGMENT_BYTES) => PoolKind::Small,
                    (SegmentOp::Alloc, _) => PoolKind::Large,
                    _ => PoolKind::Unknown,
                };
                self.open(SegmentRow {
                    address: event.address,
                    bytes: event.bytes,
                    born: at,
                    gone: NEVER,
                    stream: event.stream,
                    pool,
                    object: event.object,
                });
            }
            SegmentOp::Free | SegmentOp::Unmap => self.close(at, event.address, event.bytes),
        }
    }

    /// A range that is backed from now on.
    pub fn open(&mut self, row: SegmentRow) {
        self.open.insert(row.address, self.rows.len());
        self.rows.push(row);
    }

    /// Whether something is backed at this address.
    pub fn covers(&self, address: u64) -> bool {
        self.at(address).is_some()
    }

    fn at(&self, address: u64) -> Option<usize> {
        let (_, index) = self.open.range(..=address).next_back()?;
        let row = &self.rows[*index];
        (address - row.address < row.bytes).then_some(*index)
    }

    /// Ends what is backed in a range; what sticks out of it goes on.
    fn close(&mut self, at: u32, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        let start = self.at(address).map_or(address, |index| self.rows[index].address);
        let hit: Vec<usize> = self.open.range(start..end).map(|(_, index)| *index).collect();
        for index in hit {
            let row = self.rows[index];
            self.open.remove(&row.address);
            self.rows[index].gone = at;
            let row_end = row.address.saturating_add(row.bytes);
            if row.address < address {
                self.open(SegmentRow { bytes: address - row.address, born: at, ..row });
            }
            if row_end > end {
                self.open(SegmentRow { address: end, bytes: row_end - end, born: at, ..row });
            }
        }
    }

    /// All of them, in order of their making.
    pub fn finish(self) -> Vec<SegmentRow> {
        self.rows
    }
}

/// Segments up to this many bytes serve small requests.
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn event(op: SegmentOp, address: u64, bytes: u64) -> SegmentEvent {
        SegmentEvent { op, address, bytes, stream: 0, object: None }
    }

    #[test]
    fn unmapping_the_middle_leaves_both_ends_backed() {
        let mut lives = Lives::default();
        lives.take(1, &event(SegmentOp::Map, 100, 50));
        lives.take(2, &event(SegmentOp::Unmap, 120, 10));
        assert!(lives.covers(119) && !lives.covers(120) && !lives.covers(129) && lives.covers(130));
        let rows = lives.finish();
        let at = |moment: u32| {
            let there = rows.iter().filter(|r| r.born <= moment && moment < r.gone);
            there.map(|r| (r.address, r.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(at(1), [(100, 50)]);
        assert_eq!(at(2), [(100, 20), (130, 20)]);
    }

    #[test]
    fn a_freed_segment_is_gone_and_its_address_can_be_used_again() {
        let mut lives = Lives::default();
        lives.take(0, &event(SegmentOp::Alloc, 100, 50));
        lives.take(3, &event(SegmentOp::Free, 100, 50));
        lives.take(4, &event(SegmentOp::Alloc, 100, 80));
        let rows = lives.finish();
        assert_eq!((rows[0].gone, rows[1].born, rows[1].gone), (3, 4, NEVER));
    }
}
