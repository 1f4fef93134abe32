//! View objects.

use terrane_core::device::{DeviceError, Feature, View};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, ensure, refused};
use crate::rig::{Rig, at};

use Blame::Backend;

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "views.make",
        "View objects are made over ranges of a segment, each an object of its own.",
        &[Need::Views],
        "Device::create_view",
        Backend,
        make,
    ),
    device(
        "views.ids",
        "A view that was destroyed, or never was, can not be destroyed.",
        &[Need::Views],
        "Device::destroy_view",
        Backend,
        ids,
    ),
    device(
        "views.claim",
        "A device makes view objects exactly when it says so.",
        &[],
        "Caps::views",
        Backend,
        claim,
    ),
];

fn make(rig: &Rig) -> Outcome {
    let plain = rig.plain(1 << 20)?;
    let granularity = rig.caps().plain_base_align.get().max(4096);
    let mut views = Vec::new();
    for part in 0..4 {
        let place = at(plain.space, (part * granularity) % (1 << 20));
        views.push(rig.device().create_view(place, 4096)?);
    }
    let mut distinct = views.clone();
    distinct.sort_unstable();
    distinct.dedup();
    ensure!(distinct.len() == views.len(), "a view was given twice: {views:?}");
    for view in views {
        rig.device().destroy_view(view)?;
    }
    Ok(())
}

fn ids(rig: &Rig) -> Outcome {
    let plain = rig.plain(64 << 10)?;
    let view = rig.device().create_view(start(plain), 4096)?;
    rig.device().destroy_view(view)?;
    refused(&rig.device().destroy_view(view), "a view destroyed twice")?;
    refused(&rig.device().destroy_view(View(u64::MAX - 3)), "a view that never was")
}

fn claim(rig: &Rig) -> Outcome {
    let plain = rig.plain(64 << 10)?;
    match rig.device().create_view(start(plain), 4096) {
        Ok(view) => {
            rig.device().destroy_view(view)?;
            ensure!(rig.caps().views, "a view was made though the device claims to have none");
        }
        Err(DeviceError::Unsupported(Feature::Views)) => {
            ensure!(
                !rig.caps().views,
                "no view could be made though the device claims to have them"
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
