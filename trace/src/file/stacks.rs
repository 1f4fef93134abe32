//! Call stacks of some requests: taken on the allocating thread as addresses, named by the
//! recorder's.

use super::texts::{Text, TextKind};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Numbers of stacks begin here; the allocator's own numbers of call sites never come near.
const FIRST: u32 = 1 << 30;
/// Frames that are kept of a stack, and numbers of stacks that are given.
const FRAMES_MAX: usize = 64;
const STACKS_MAX: usize = 1 << 20;
/// The allocator's frames, which are cut off: they are among the innermost.
const OURS: &str = "terrane_core::";
const INSIDE_MAX: usize = 24;

/// Stacks taken so far.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    inner: Mutex<Inner>,
    /// What stands at addresses that were named, each once: while a name is looked for no stack
    /// can be taken.
    places: Mutex<HashMap<usize, Place>>,
}

#[derive(Debug, Default)]
struct Inner {
    numbers: HashMap<Vec<usize>, u32>,
    /// Taken and not named yet.
    new: Vec<(u32, Vec<usize>)>,
}

impl Stacks {
    pub fn new() -> Self {
        let stacks = Self::default();
        // Debug information is loaded with the first name: before anybody has to wait for it.
        stacks.take();
        stacks.name_new(&mut Vec::new());
        *stacks.inner.lock().unwrap_or_else(PoisonError::into_inner) = Inner::default();
        stacks
    }

    /// Takes the stack of this thread: its number, and what taking it cost.
    pub fn take(&self) -> (u32, u64) {
        let start = Instant::now();
        let mut addresses = Vec::with_capacity(FRAMES_MAX);
        backtrace::trace(|frame| {
            addresses.push(frame.ip() as usize);
            addresses.len() < FRAMES_MAX
        });
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let known = inner.numbers.get(&addresses).copied();
        let number = match known {
            Some(number) => number,
            None if inner.numbers.len() >= STACKS_MAX => 0,
            None => {
                let number = FIRST + inner.numbers.len() as u32;
                inner.numbers.insert(addresses.clone(), number);
                inner.new.push((number, addresses));
                number
            }
        };
        drop(inner);
        (number, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Names the stacks that are new: a frame a line, innermost first, `file:line` and the
    /// function behind a tab.
    pub fn name_new(&self, texts: &mut Vec<Text>) {
        let new =
            std::mem::take(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).new);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, addresses) in new {
            let text = name(&mut places, &addresses);
            texts.push(Text { kind: TextKind::Site, number, text });
        }
    }
}

/// What stands at an address, innermost first: functions that were inlined there are apart.
#[derive(Debug, Default)]
struct Place {
    lines: Vec<String>,
    /// Of `lines`, those up to the last of the allocator's own functions.
    inside: usize,
}

impl Place {
    fn of(address: usize) -> Self {
        let mut place = Self::default();
        // The address is that of the return; the call is before it.
        backtrace::resolve(address.wrapping_sub(1) as *mut _, |symbol| {
            let function = symbol.name().map_or_else(String::new, |name| format!("{name:#}"));
            let file = symbol.filename().map_or_else(|| "??".into(), |file| file.to_string_lossy());
            let line = symbol.lineno().unwrap_or(0);
            place.lines.push(format!("{file}:{line}\t{function}"));
            if function.trim_start_matches('<').starts_with(OURS) {
                place.inside = place.lines.len();
            }
        });
        place
    }
}

fn name(places: &mut HashMap<usize, Place>, addresses: &[usize]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut inside = 0;
    for (at, &address) in addresses.iter().enumerate() {
        let place = places.entry(address).or_insert_with(|| Place::of(address));
        if place.inside > 0 && at < INSIDE_MAX {
            inside = lines.len() + place.inside;
        }
        lines.extend_from_slice(&place.lines);
    }
    lines.drain(..inside);
    lines.join("\n")
}
