//! Moves by remap: a long block leaves pages that it shares with free bytes. The pages that are its
//! own are mapped at the new place too, its two ends are copied, and the old mappings go later.

use std::sync::Arc;
use std::time::Instant;

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::calls::CallKind;
use terrane_core::device::wrap::{Faults, Faulty};
use terrane_core::device::{Device, MapOp, Place, StreamId};
use terrane_core::event::MoveKind;
use terrane_core::{Compactor, Config, Handle, Limit, PassReport, Request};

use crate::clause::{Outcome, Stop, ensure, equal};
use crate::clauses::blocks::{paint, spoilt};
use crate::probe::Mapping;
use crate::rig::Rig;
use crate::subject::Subject;

const SEED: u64 = 7;
/// As many whole pages as can be had by moving.
const PAGES: Goal = Goal::Release { bytes: u64::MAX };

/// A block over three pages of its own, whose first bytes alone keep another page from being free
/// and whose last ones share one with a block that stays; and a free granule for each end. There is
/// no room for a copy of it.
struct Long {
    alloc: Subject,
    stream: StreamId,
    block: Handle,
    /// What shares the page of its last bytes, and does not move.
    behind: Handle,
    at: Place,
    /// Its own pages as they were mapped.
    own: Vec<MapOp>,
    page: u64,
    /// Bytes of each end.
    end: u64,
}

impl Long {
    fn new(rig: &Rig) -> Result<Self, Stop> {
        Self::on(rig, rig.shared())
    }

    /// On a device around the one under test.
    fn on(rig: &Rig, device: Arc<dyn Device>) -> Result<Self, Stop> {
        let granule = rig.caps().paging.map_or(1, |paging| paging.granularity);
        let page = 4 * granule.max(64 << 10);
        let (end, stream) = (granule / 2, rig.stream()?);
        let alloc = rig.alloc_on(device, |config| configure(config, page, granule))?;
        let fixed = |bytes: u64| -> Result<Handle, Stop> {
            Ok(alloc.alloc(&Request::new(bytes, stream).movable(false))?.handle)
        };
        let front = alloc.get(page - end, stream)?;
        let holes = [alloc.get(end + 3 * page, stream)?, alloc.get(end, stream)?];
        let behind = fixed(end)?;
        let spare = [alloc.get(granule, stream)?, alloc.get(granule, stream)?];
        holes.into_iter().try_for_each(|hole| alloc.free(hole))?;
        let block = alloc.get(3 * page + 2 * end, stream)?;
        let place = |block| alloc.info(block).map(|info| info.place);
        let at = place(block)?;
        let between =
            [place(front)?.offset + page - end, place(behind)?.offset - 3 * page - 2 * end];
        equal!(between, [at.offset; 2], "where the long block is");
        paint(rig, &alloc, stream, behind, SEED)?;
        rig.wait(paint(rig, &alloc, stream, block, SEED)?)?;
        spare.into_iter().chain([front]).try_for_each(|block| alloc.free(block))?;
        rig.wait(rig.device().mark(stream)?)?;
        let inner = [at.offset + end, at.offset + end + 3 * page];
        let is_own = |op: &MapOp| {
            op.at.space == at.space && op.at.offset >= inner[0] && op.at.offset < inner[1]
        };
        let own = rig.probe().mapping().places.into_iter().filter(is_own).collect();
        Ok(Self { alloc, stream, block, behind, at, own, page, end })
    }

    /// Bytes of the block's own pages that are mapped where they were.
    fn mapped_before(&self, mapping: &Mapping) -> u64 {
        self.own.iter().filter(|op| mapping.places.contains(op)).map(|op| op.bytes).sum()
    }

    fn has_moved(&self) -> Result<bool, Stop> {
        Ok(self.alloc.info(self.block)?.place != self.at)
    }

    /// That the block has moved by a remap and by nothing else.
    fn remapped(&self, report: &PassReport) -> Outcome {
        ensure!(self.has_moved()?, "the block is where it was: {report:?}");
        equal!((report.moves, report.remaps), (1, 1), "moves, and those by remap");
        let bytes = (report.copied_bytes, report.remapped_bytes);
        equal!(bytes, (2 * self.end, 3 * self.page), "bytes copied and remapped");
        let by: Vec<_> = report.choices.iter().map(|choice| choice.by).collect();
        equal!(by, [MoveKind::Remap], "how it was moved");
        equal!(report.verdicts.committed, 1, "committed moves");
        Ok(())
    }

    fn whole(&self, rig: &Rig, seed: u64, what: &str) -> Outcome {
        let words = spoilt(rig, &self.alloc, self.stream, self.block, seed)?;
        equal!(words, 0, "spoilt words {what}");
        let words = spoilt(rig, &self.alloc, self.stream, self.behind, SEED)?;
        equal!(words, 0, "spoilt words behind it {what}");
        self.alloc.sound()
    }

    /// Gives all back; nothing is mapped any more.
    fn end(self, rig: &Rig) -> Outcome {
        self.alloc.free(self.block)?;
        self.alloc.free(self.behind)?;
        rig.wait(rig.device().mark(self.stream)?)?;
        self.alloc.release_cached()?;
        let left = rig.probe().mapping();
        equal!((left.places.len(), left.object_bytes), (0, 0), "mappings and bytes in the end");
        self.alloc.sound()
    }
}

/// The end of a pass that is polled until then.
fn ended(rig: &Rig, mut pass: Compactor) -> Result<PassReport, Stop> {
    let end = Instant::now() + rig.patience();
    while !pass.poll()?.done {
        ensure!(Instant::now() < end, "the pass does not end");
        std::thread::yield_now();
    }
    Ok(pass.end_pass()?)
}

/// Every block lies on pages of one size, and there is memory for two pages more than are used.
fn configure(config: &mut Config, page: u64, granule: u64) {
    config.limits = vec![Limit::Bytes(6 * page + 3 * granule)];
    config.paging = true;
    config.small_max = 0;
    config.pages.large = 0;
    config.pages.grading = 0;
    config.pages.large_page = page;
    // Three pages of the block and one for each end: what is stolen after them has these dropped.
    config.pages.stale_max = 5;
}

pub(super) fn remap(rig: &Rig) -> Outcome {
    let long = Long::new(rig)?;
    let pass = long.alloc.begin_pass(PAGES, Limits::NONE)?;
    long.remapped(&ended(rig, pass)?)?;
    let mapping = rig.probe().mapping();
    equal!(long.mapped_before(&mapping), 3 * long.page, "bytes mapped at the old place too");
    long.whole(rig, SEED, "after the move")?;
    // Who writes at the new place writes to the same pages, whatever stands at the old one.
    paint(rig, &long.alloc, long.stream, long.block, SEED + 1)?;
    long.whole(rig, SEED + 1, "written after the move")?;
    // Who takes pages from where they are has the old mappings dropped.
    let next = long.alloc.get(2 * long.page, long.stream)?;
    let mapping = rig.probe().mapping();
    equal!(long.mapped_before(&mapping), 0, "bytes that are still mapped at the old place");
    equal!(mapping.twice, 0, "pages that are mapped twice");
    long.whole(rig, SEED + 1, "after the old mappings were dropped")?;
    long.alloc.free(next)?;
    long.end(rig)
}

pub(super) fn remap_in_use(rig: &Rig) -> Outcome {
    let long = Long::new(rig)?;
    let busy = rig.busy(long.stream, &[])?;
    // It goes to the old place, whenever it may begin.
    let late = paint(rig, &long.alloc, long.stream, long.block, SEED + 1)?;
    let mut pass = long.alloc.begin_pass(PAGES, Limits::NONE)?;
    ensure!(!pass.poll()?.done, "done before the last use is over");
    ensure!(long.has_moved()?, "the block is not at its new place");
    // The next request does not take the old mappings from under the work.
    let next = long.alloc.get(2 * long.page, long.stream)?;
    if rig.caps().paging.is_some_and(|paging| !paging.stream_ordered) {
        let mapped = long.mapped_before(&rig.probe().mapping());
        equal!(mapped, 3 * long.page, "bytes that the work is still to write to");
    }
    ensure!(!rig.is_reached(late)?, "the work was not held up");
    busy.finish();
    rig.wait(late)?;
    long.remapped(&ended(rig, pass)?)?;
    long.whole(rig, SEED + 1, "written through the old place")?;
    long.alloc.free(next)?;
    long.end(rig)
}

pub(super) fn remap_faults(rig: &Rig) -> Outcome {
    use CallKind::{Copy, CreateStream, Gather, Map, Unmap, WaitAny, WaitOnStream};
    let mut injected = 0;
    for kind in [Map, Unmap, Copy, Gather, WaitOnStream, CreateStream, WaitAny] {
        let faulty = Faulty::new(rig.shared(), Faults::none());
        let device: Arc<dyn Device> = faulty.clone();
        let long = Long::on(rig, device)?;
        let before = faulty.injected();
        faulty.set_faults(Faults::none().nth(kind, 1));
        let answer = long.alloc.begin_pass(PAGES, Limits::NONE).map(|pass| ended(rig, pass));
        // It has the old mappings dropped.
        let next = long.alloc.alloc(&Request::new(2 * long.page, long.stream));
        injected += faulty.injected() - before;
        faulty.set_faults(Faults::none());
        let name = kind.name();
        if let Ok(got) = &next {
            long.alloc.free(got.handle)?;
        }
        let what = format!("after {name} had failed: {answer:?}, {next:?}");
        long.whole(rig, SEED, &what)?;
        ended(rig, long.alloc.begin_pass(PAGES, Limits::NONE)?)?;
        ensure!(long.has_moved()?, "it does not move once {name} works again");
        long.whole(rig, SEED, &format!("moved once {name} worked again"))?;
        long.end(rig)?;
    }
    ensure!(injected >= 3, "only {injected} calls failed");
    Ok(())
}
