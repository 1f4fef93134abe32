//! Why a request failed in a log that has requests and frees and nothing else: no addresses, no
//! segments, no limit.

use super::Class;
use super::whatif::{Requests, whatif};
use crate::model::ModelSpec;
use crate::snapshot::History;
use crate::{Op, Reason};
use serde::Serialize;

/// The last request that failed, as far as a log tells. Bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogShortage {
    /// The verdict: capacity or fragmentation; `null` where the limit would have to be known.
    pub class: Option<Class>,
    /// Requests that failed in the whole log.
    pub failures: u64,
    /// Events before it.
    pub event: u64,
    /// Asked for.
    pub asked: u64,
    /// Stream that asked.
    pub stream: u32,
    /// Live when it asked.
    pub live: u64,
    /// The limit, where one was given.
    pub limit: Option<u64>,
    /// Most that was ever live in the log: the limit is no lower.
    pub limit_at_least: u64,
    /// Bytes by which live bytes and the request exceed the limit given.
    pub short_bytes: u64,
    /// Allocators that serve every request under the limit, the least reserved first; of a limit
    /// that was not given, under the lowest that it can be.
    pub served_by: Vec<Served>,
}

/// An allocator that would have served the log's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Served {
    /// As `whatif --allocator` takes it.
    pub model: String,
    /// Most that it obtains from the driver.
    pub peak_reserved: u64,
    /// The limit under which it was replayed.
    pub capacity: u64,
    /// The command that repeats the replay; FILE stands for the log.
    pub command: String,
}

/// What a program of RAPIDS can choose by a line.
const CANDIDATES: [&str; 3] = ["cuda-async", "rmm-pool", "rmm-arena"];

/// Explains the last failure of a log; `None` where nothing failed.
///
/// # Errors
/// [`Reason`] when the sizes cannot all exist.
pub fn explain_log(history: &History, limit: Option<u64>) -> Result<Option<LogShortage>, Reason> {
    let Some(last) = history.attempts.last() else { return Ok(None) };
    let (live, most) = live_bytes(history, last.before_event);
    let needed = live.saturating_add(last.bytes);
    let class = match limit {
        Some(limit) if needed > limit => Some(Class::Capacity),
        Some(_) => Some(Class::Fragmentation),
        // As many bytes were live at another moment, so they can be.
        None if needed <= most => Some(Class::Fragmentation),
        None => None,
    };
    let capacity = limit.unwrap_or(most);
    let served_by =
        if class == Some(Class::Fragmentation) { served(history, capacity)? } else { Vec::new() };
    Ok(Some(LogShortage {
        class,
        failures: history.attempts.len() as u64,
        event: last.before_event as u64,
        asked: last.bytes,
        stream: last.stream,
        live,
        limit,
        limit_at_least: most,
        short_bytes: limit.map_or(0, |limit| needed.saturating_sub(limit)),
        served_by,
    }))
}

/// Live bytes after so many events, and the most that ever were.
fn live_bytes(history: &History, events: usize) -> (u64, u64) {
    let (mut now, mut then, mut most) = (0_u64, 0, 0);
    for (at, event) in history.trace.events().iter().enumerate() {
        if at == events {
            then = now;
        }
        match event.op {
            Op::Alloc => now = now.saturating_add(event.bytes),
            Op::FreeCompleted => now = now.saturating_sub(event.bytes),
            Op::FreeRequested => {}
        }
        most = most.max(now);
    }
    (if events >= history.trace.events().len() { now } else { then }, most)
}

fn served(history: &History, capacity: u64) -> Result<Vec<Served>, Reason> {
    let requests = Requests::all(history)?;
    let mut served = Vec::new();
    for name in CANDIDATES {
        let Ok(spec) = ModelSpec::parse(name) else { continue };
        let found = whatif(&requests, history, &spec, Some(capacity));
        if found.failures == 0 && found.survived_failures == 0 {
            served.push(Served {
                model: name.to_owned(),
                peak_reserved: found.peak_reserved,
                capacity,
                command: format!("terrane whatif FILE --allocator {name} --capacity {capacity}"),
            });
        }
    }
    served.sort_by_key(|served| served.peak_reserved);
    Ok(served)
}
