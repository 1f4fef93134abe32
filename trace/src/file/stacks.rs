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
}

#[derive(Debug, Default)]
struct Inner {
    numbers: HashMap<Vec<usize>, u32>,
    /// Taken and not named yet.
    new: Vec<(u32, Vec<usize>)>,
}

impl Stacks {
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
        for (number, addresses) in new {
            texts.push(Text { kind: TextKind::Site, number, text: name(&addresses) });
        }
    }
}

fn name(addresses: &[usize]) -> String {
    let mut lines = Vec::new();
    let mut inside = 0;
    for (at, &address) in addresses.iter().enumerate() {
        // The address is that of the return; the call is before it.
        backtrace::resolve(address.wrapping_sub(1) as *mut _, |symbol| {
            let function = symbol.name().map_or_else(String::new, |name| format!("{name:#}"));
            let file = symbol.filename().map_or_else(|| "??".into(), |file| file.to_string_lossy());
            let line = symbol.lineno().unwrap_or(0);
            let is_ours = function.trim_start_matches('<').starts_with(OURS);
            lines.push(format!("{file}:{line}\t{function}"));
            if is_ours && at < INSIDE_MAX {
                inside = lines.len();
            }
        });
    }
    lines.drain(..inside);
    lines.join("\n")
}
