//! Hooks, holds, threads and the end of an allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrane_core::{Error, Handle, Limit, Request};

use super::allocator;
use super::books::{mixture, settled};
use crate::clause::{Clause, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;
use crate::subject::Subject;

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "hooks.room",
        "A hook that makes room serves the request that runs short.",
        &[],
        "Allocator::on_pressure",
        room,
    ),
    allocator(
        "hooks.panic",
        "A hook that panics fails its request and nothing else.",
        &[],
        "Error::HookPanicked",
        panics,
    ),
    allocator(
        "holds.free",
        "A block freed while it is held stays until the last guard is gone.",
        &[],
        "Pin",
        held,
    ),
    allocator(
        "threads.books",
        "Threads that allocate, free and trim at once leave the books right.",
        &[],
        "Allocator: Send, Sync",
        threads,
    ),
    allocator(
        "threads.send",
        "A block may be freed by another thread than the one that asked for it.",
        &[],
        "Handle: Send",
        send,
    ),
    allocator(
        "end.leaks",
        "Closing names the blocks that are live: name, bytes and line.",
        &[],
        "Allocator::close",
        leaks,
    ),
    allocator(
        "end.drop",
        "Dropping an allocator with live blocks gives all memory back.",
        &[],
        "Allocator: dropping",
        dropped,
    ),
];

const MIB: u64 = 1 << 20;

fn room(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.limits = vec![Limit::Bytes(8 * MIB)])?;
    let held = std::sync::Mutex::new(Some(alloc.get(6 * MIB, stream)?));
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    alloc.on_pressure(move |alloc, _| {
        count.fetch_add(1, Ordering::Relaxed);
        let taken = held.lock().ok().and_then(|mut held| held.take());
        taken.is_some_and(|handle| alloc.free(handle).is_ok() && alloc.trim(0).is_ok())
    });
    alloc.get(6 * MIB, stream)?;
    equal!(asked.load(Ordering::Relaxed), 1, "times the hook was asked");
    let answer = alloc.alloc(&Request::new(6 * MIB, stream)).map(drop);
    ensure!(answer.is_err(), "a request was served that nothing could serve");
    equal!(asked.load(Ordering::Relaxed), 2, "times the hook was asked in the end");
    alloc.sound()
}

#[allow(clippy::panic, reason = "the hook under test panics")]
fn panics(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.limits = vec![Limit::Bytes(8 * MIB)])?;
    let block = alloc.get(6 * MIB, stream)?;
    alloc.on_pressure(|_, _| std::panic::panic_any("a hook of the suite that panics on purpose"));
    let answer = alloc.alloc(&Request::new(6 * MIB, stream)).map(drop);
    fails(&answer, &Error::HookPanicked, "a request whose hook panicked")?;
    alloc.sound()?;
    alloc.free(block)?;
    alloc.get(6 * MIB, stream)?;
    alloc.sound()
}

fn held(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let block = alloc.get(5000, stream)?;
    let (first, second) = (alloc.pin(block)?, alloc.pin(block)?);
    equal!(first.at(), second.at(), "where two guards see the block");
    alloc.free(block)?;
    fails(&alloc.free(block), &Error::DoubleFree, "a second free while held")?;
    equal!(alloc.stats().total.blocks.current, 1, "blocks while held");
    drop(first);
    equal!(alloc.stats().total.blocks.current, 1, "blocks while held once");
    drop(second);
    equal!(alloc.stats().total.blocks.current, 0, "blocks after the last guard");
    alloc.sound()
}

fn churn(rig: &Rig, alloc: &Subject, seed: u64) -> Outcome {
    let stream = rig.stream()?;
    let mut random = crate::Random::new(seed);
    let mut mine = Vec::new();
    for step in 0..400 {
        mine.push(alloc.buffer(&Request::new(random.size(1, MIB), stream))?);
        if mine.len() > 12 {
            mine.swap_remove(random.below(12) as usize);
        }
        if step % 100 == 0 {
            alloc.trim(0)?;
        }
    }
    Ok(())
}

fn threads(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let alloc = alloc.clone();
                scope.spawn(move || churn(rig, &alloc, number + 1))
            })
            .collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Outcome>| {
            thread.join().unwrap_or_else(|_| Err(Stop::failed("a thread panicked")))
        };
        threads.into_iter().map(ended).collect()
    });
    outcomes.into_iter().collect::<Outcome>()?;
    equal!(alloc.stats().total.blocks.current, 0, "blocks after all threads ended");
    alloc.sound()?;
    settled(rig, &alloc)?;
    alloc.trim(0)?;
    equal!(rig.probe().alive().memory_objects(), 0, "memory objects alive");
    Ok(())
}

fn send(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let handles: Vec<Handle> =
        (0..64).map(|n| alloc.get(1000 * (n + 1), stream)).collect::<Result<_, _>>()?;
    let other = alloc.clone();
    let freed = std::thread::spawn(move || -> Result<(), Error> {
        handles.into_iter().try_for_each(|handle| other.free(handle))
    });
    freed.join().map_err(|_| Stop::failed("the other thread panicked"))??;
    equal!(alloc.stats().total.blocks.current, 0, "blocks after another thread freed them");
    alloc.sound()
}

fn leaks(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let freed = alloc.get(4096, stream)?;
    let _ = alloc.alloc(&Request::new(7000, stream).name("forgotten"))?;
    alloc.free(freed)?;
    let Err(leaks) = alloc.close() else { return Err(Stop::failed("no leak was told")) };
    equal!(leaks.len(), 1, "leaks");
    equal!((leaks[0].name.as_str(), leaks[0].bytes), ("forgotten", 7000), "the leak");
    ensure!(leaks[0].site.contains("ending.rs"), "the leak's line: {}", leaks[0].site);
    let clean = rig.alloc()?;
    let block = clean.get(4096, stream)?;
    clean.free(block)?;
    clean.close().map_err(|leaks| Stop::failed(format!("leaks where there are none: {leaks:?}")))
}

fn dropped(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let live = mixture(rig, &alloc)?;
    alloc.write(stream, live[0], 0, b"still running, maybe")?;
    ensure!(rig.probe().alive().memory_objects() > 0, "no memory object is alive");
    drop(alloc);
    equal!(rig.probe().alive().memory_objects(), 0, "memory objects alive after the allocator");
    Ok(())
}
