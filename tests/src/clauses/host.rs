//! Memory that the host sees.

use terrane_core::device::{DeviceError, Feature};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, ensure, equal, fails};
use crate::rig::{Rig, at};

use Blame::Backend;
use Need::{HostInvisible, HostVisible};

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "host.sees",
        "A view shows what the device wrote.",
        &[HostVisible],
        "HostAccess::view",
        Backend,
        sees,
    ),
    device(
        "host.shows",
        "The device sees what the host wrote through a view, once it is dropped.",
        &[HostVisible],
        "HostAccess::view",
        Backend,
        shows,
    ),
    device(
        "host.range",
        "A view has exactly the bytes asked for, and views of parts that touch exist at once.",
        &[HostVisible],
        "HostAccess::view",
        Backend,
        range,
    ),
    device(
        "host.pointer",
        "The host's addresses of a segment run on as its offsets do.",
        &[HostVisible],
        "HostAccess::pointer",
        Backend,
        pointer,
    ),
    device(
        "host.flush",
        "A range can be flushed and invalidated.",
        &[HostVisible],
        "HostAccess::flush, invalidate",
        Backend,
        flush,
    ),
    device(
        "host.hidden",
        "Memory that the host can not see has no view and no address.",
        &[HostInvisible],
        "DeviceError::Unsupported",
        Backend,
        hidden,
    ),
];

fn sees(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    for (number, class) in (0..).zip(rig.caps().classes.clone()) {
        if !class.host_visible {
            continue;
        }
        let plain = rig.plain_of(terrane_core::device::ClassId(number), 8192)?;
        rig.device().fill(stream, start(plain), 8192, 0x0606_0606)?;
        rig.wait(rig.device().write(stream, at(plain.space, 100), b"written by the device")?)?;
        let view = rig.host()?.view(start(plain), 8192)?;
        let bytes = view.bytes();
        equal!(bytes[99], 6, "the byte before in class {number}");
        ensure!(
            &bytes[100..121] == b"written by the device",
            "class {number}: {:?}",
            &bytes[100..121]
        );
        equal!(bytes[8191], 6, "the last byte in class {number}");
    }
    Ok(())
}

fn shows(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain_of(rig.class_visible(true)?, 8192)?;
    rig.wait(rig.device().fill(stream, start(plain), 8192, 0)?)?;
    for round in 1..=3_u8 {
        let mut view = rig.host()?.view(at(plain.space, 256), 4096)?;
        view.bytes_mut().fill(round);
        drop(view);
        let words = rig.words(stream, at(plain.space, 252), 1026)?;
        let word = u32::from_le_bytes([round; 4]);
        ensure!(words[1..1025].iter().all(|&w| w == word), "the device does not see round {round}");
        equal!([words[0], words[1025]], [0, 0], "words beside the view");
    }
    Ok(())
}

fn range(rig: &Rig) -> Outcome {
    let plain = rig.plain_of(rig.class_visible(true)?, 8192)?;
    let access = rig.host()?;
    let mut first = access.view(start(plain), 4096)?;
    let mut second = access.view(at(plain.space, 4096), 1001)?;
    equal!([first.bytes().len(), second.bytes_mut().len()], [4096, 1001], "bytes of two views");
    first.bytes_mut().fill(1);
    second.bytes_mut().fill(2);
    ensure!(first.bytes().iter().all(|&byte| byte == 1), "one view shows what the other wrote");
    Ok(())
}

fn pointer(rig: &Rig) -> Outcome {
    let plain = rig.plain_of(rig.class_visible(true)?, 64 << 10)?;
    let access = rig.host()?;
    let base = access.pointer(start(plain))?.addr().get() as u64;
    for offset in [4, 4096, 65_532] {
        let address = access.pointer(at(plain.space, offset))?.addr().get() as u64;
        equal!(address - base, offset, "the distance of offset {offset}");
    }
    equal!(access.pointer(start(plain))?.addr().get() as u64, base, "the address, asked again");
    Ok(())
}

fn flush(rig: &Rig) -> Outcome {
    let plain = rig.plain_of(rig.class_visible(true)?, 64 << 10)?;
    let atom = rig.caps().non_coherent_atom;
    ensure!(atom.is_power_of_two(), "an atom of {atom} bytes");
    for (offset, bytes) in [(0, 64 << 10), (4096, 4096), (100, 20), (65_535, 1)] {
        rig.host()?.flush(at(plain.space, offset), bytes)?;
        rig.host()?.invalidate(at(plain.space, offset), bytes)?;
    }
    Ok(())
}

fn hidden(rig: &Rig) -> Outcome {
    let plain = rig.plain_of(rig.class_visible(false)?, 4096)?;
    let Some(access) = rig.device().host_access() else { return Ok(()) };
    let unsupported = DeviceError::Unsupported(Feature::HostMapping);
    fails(&access.view(start(plain), 64).map(drop), &unsupported, "a view of hidden memory")?;
    fails(&access.pointer(start(plain)).map(drop), &unsupported, "an address of hidden memory")
}
