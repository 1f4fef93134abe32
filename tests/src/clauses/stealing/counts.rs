//! What is counted of pages that are mapped twice, and how many there may be.

use terrane_core::{Limit, Wait};

use super::{ask, late_write, limited, page, paged, pair, set_limit};
use crate::clause::{Outcome, ensure, equal};
use crate::rig::Rig;

pub(super) fn reserved(rig: &Rig) -> Outcome {
    let (alloc, page, stream) = (limited(rig, 6)?, page(rig), rig.stream()?);
    let [old, between] = pair(rig, &alloc, 4, stream)?;
    alloc.free(old)?;
    let got = ask(rig, &alloc, 5, stream, Wait::OnStream)?;
    let mapping = rig.probe().mapping();
    equal!(mapping.twice_bytes, 4 * page, "bytes that are mapped twice");
    let stats = alloc.stats();
    equal!(stats.reserved.current, mapping.object_bytes, "reserved, and bytes of memory objects");
    equal!(stats.reserved.peak, 6 * page, "peak of reserved bytes");
    alloc.sound()?;
    alloc.free(got.handle)?;
    alloc.free(between)?;
    alloc.release_cached()?;
    equal!(rig.probe().mapping().object_bytes, 0, "bytes of memory objects in the end");
    equal!(alloc.stats().reserved.current, 0, "reserved bytes in the end");
    alloc.sound()
}

pub(super) fn cap(rig: &Rig) -> Outcome {
    for most in [0, 1, 3] {
        let alloc = paged(rig, |config| config.pages.stale_max = most)?;
        let (stream, before) = (rig.stream()?, rig.probe().mapping().twice);
        equal!(before, 0, "pages mapped twice at first");
        let mut kept = Vec::new();
        for round in 0..4 {
            let old = ask(rig, &alloc, 4 + round, stream, Wait::OnStream)?.handle;
            kept.push(ask(rig, &alloc, 1, stream, Wait::OnStream)?.handle);
            alloc.free(old)?;
            // Fits no hole: gaps are filled with stolen pages, and with new ones past the cap.
            kept.push(ask(rig, &alloc, 6 + 2 * round, stream, Wait::OnStream)?.handle);
            let twice = rig.probe().mapping().twice;
            ensure!(twice <= most as u64, "{twice} pages are mapped twice, the cap is {most}");
        }
        let peak = rig.probe().mapping().twice_peak;
        ensure!(peak <= most as u64, "{peak} pages were mapped twice, the cap is {most}");
        let stolen = alloc.stats().pages_stolen;
        ensure!((stolen > 0) == (most > 0), "{stolen} pages stolen with a cap of {most}");
        for block in kept {
            alloc.free(block)?;
        }
        alloc.release_cached()?;
        // Where memory is limited, what may not be stolen is given back.
        set_limit(rig, &alloc, 6)?;
        let [old, between] = pair(rig, &alloc, 4, stream)?;
        alloc.free(old)?;
        let got = ask(rig, &alloc, 5, stream, Wait::OnStream)?.handle;
        ensure!(rig.probe().mapping().twice <= most as u64, "the cap was exceeded at a limit");
        alloc.free(got)?;
        alloc.free(between)?;
        alloc.sound()?;
    }
    Ok(())
}

pub(super) fn cap_in_use(rig: &Rig) -> Outcome {
    let (page, stream) = (page(rig), rig.stream()?);
    let alloc = paged(rig, |config| {
        config.limits = vec![Limit::Bytes(11 * page)];
        config.pages.stale_max = 3;
    })?;
    let [old, between] = pair(rig, &alloc, 6, stream)?;
    let (point, busy) = late_write(rig, &alloc, old, stream)?;
    alloc.free(old)?;
    // In stream order its pages serve at once: four new ones, and three stolen.
    let first = ask(rig, &alloc, 7, stream, Wait::OnStream)?.handle;
    let stolen = || alloc.stats().pages_stolen;
    equal!((stolen(), rig.probe().mapping().twice), (3, 3), "pages stolen, and mapped twice");
    // One new page, and the three that are left: but the cap is reached.
    set_limit(rig, &alloc, 12)?;
    let answer = ask(rig, &alloc, 4, stream, Wait::OnStream).map(drop);
    ensure!(answer.is_err(), "more was stolen than the cap allows");
    equal!((stolen(), rig.probe().mapping().twice), (3, 3), "pages stolen, and mapped twice");
    busy.finish();
    rig.wait(point)?;
    let second = ask(rig, &alloc, 4, stream, Wait::OnStream)?.handle;
    equal!(rig.probe().mapping().twice, 0, "pages mapped twice once the work was over");
    alloc.free(first)?;
    alloc.free(second)?;
    let third = ask(rig, &alloc, 8, stream, Wait::OnStream)?.handle;
    ensure!(stolen() > 3, "nothing more was stolen");
    ensure!(rig.probe().mapping().twice_peak <= 3, "the cap was exceeded");
    alloc.free(third)?;
    alloc.free(between)?;
    alloc.sound()
}
