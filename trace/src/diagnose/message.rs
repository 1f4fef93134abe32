//! An out-of-memory message alone: what it can tell and what it cannot.

use super::Class;
use serde::Serialize;

/// The numbers of PyTorch's message, bytes; absent where the message does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutOfMemoryMessage {
    /// "Tried to allocate".
    pub asked: Option<u64>,
    /// "has a total capacity of".
    pub device_total: Option<u64>,
    /// "of which ... is free".
    pub device_free: Option<u64>,
    /// "this process has ... memory in use".
    pub process_use: Option<u64>,
    /// "allowed": the process's own limit.
    pub allowed: Option<u64>,
    /// "is allocated by PyTorch".
    pub allocated: Option<u64>,
    /// "is reserved by PyTorch but unallocated".
    pub unallocated: Option<u64>,
}

/// What a message says about the cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageVerdict {
    /// The cause, where the numbers decide it.
    pub class: Option<Class>,
    /// The limit that applied, as far as the message says.
    pub limit: Option<u64>,
    /// Bytes by which allocated and asked exceed the limit; 0 when they fit.
    pub short_bytes: u64,
    /// What a message cannot tell and a snapshot could.
    pub cannot_tell: &'static str,
}

/// Numbers are rounded to two digits in the message.
const ROUNDING: f64 = 0.005;

impl OutOfMemoryMessage {
    /// Finds the last out-of-memory message in a text; `None` where there is none.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        let start = text.rfind("Tried to allocate")?;
        let message = &text[start..];
        let after =
            |label: &str| message.split_once(label).and_then(|(_, rest)| leading_size(rest));
        let before = |label: &str| message.split_once(label).and_then(|(text, _)| last_size(text));
        Some(Self {
            asked: after("Tried to allocate"),
            device_total: after("total capacity of").or_else(|| before(" total capacity")),
            device_free: after("of which").or_else(|| before(" free")),
            process_use: after("this process has"),
            allowed: before(" allowed"),
            allocated: before(" is allocated by PyTorch").or_else(|| before(" already allocated")),
            unallocated: before(" is reserved by PyTorch but unallocated"),
        })
    }

    /// The cause, as far as the numbers decide it.
    #[must_use]
    pub fn verdict(&self) -> MessageVerdict {
        let reserved = self.allocated.zip(self.unallocated).map(|(a, u)| a.saturating_add(u));
        let by_device = reserved.zip(self.device_free).map(|(r, free)| r.saturating_add(free));
        let limit = match (self.allowed, by_device) {
            (Some(allowed), Some(device)) => Some(allowed.min(device)),
            (allowed, device) => allowed.or(device),
        };
        let needed = self.allocated.zip(self.asked).map(|(a, asked)| a.saturating_add(asked));
        let short = needed.zip(limit).map(|(needed, limit)| needed.saturating_sub(limit));
        let margin = limit.map_or(0, |limit| (limit as f64 * ROUNDING) as u64);
        let class = match (self.asked, self.device_total, short) {
            (Some(asked), Some(total), _) if asked > total => Some(Class::AbsurdRequest),
            (Some(asked), _, _) if self.allowed.is_some_and(|most| asked > most) => {
                Some(Class::UserLimit)
            }
            (_, _, Some(short)) if short > margin => Some(self.who_is_short(short)),
            (Some(asked), _, Some(0)) if self.unallocated.is_some_and(|free| free >= asked) => {
                Some(Class::Fragmentation)
            }
            _ => None,
        };
        MessageVerdict {
            class,
            limit,
            short_bytes: short.unwrap_or(0),
            cannot_tell: "which lines hold the memory, whether the free bytes are on another \
                          stream or wait for one, and which setting would have helped: a \
                          snapshot can",
        }
    }

    /// Capacity, unless memory outside this process's PyTorch holds at least what is missing.
    fn who_is_short(&self, short: u64) -> Class {
        let seen = [self.device_free, self.process_use];
        let outside = match (self.device_total, seen) {
            (Some(total), [Some(free), Some(own)]) => {
                total.saturating_sub(free.saturating_add(own))
            }
            _ => 0,
        };
        let limited = self.allowed.zip(self.device_total).is_some_and(|(most, all)| most < all);
        if outside >= short && !limited { Class::OtherProcess } else { Class::Capacity }
    }
}

/// The size at the start of a text: `698.00 MiB`.
fn leading_size(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    size(words.next()?, words.next()?)
}

/// The size at the end of a text.
fn last_size(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace().rev();
    let unit = words.next()?;
    size(words.next()?, unit)
}

fn size(number: &str, unit: &str) -> Option<u64> {
    let factor: u64 = match unit.trim_end_matches(['.', ',', ';', ')']) {
        "bytes" | "B" => 1,
        "KiB" | "KB" => 1 << 10,
        "MiB" | "MB" => 1 << 20,
        "GiB" | "GB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    let number: f64 = number.trim_start_matches('(').parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * factor as f64) as u64)
}
