//! How often each of the driver's functions was called, and how long it took.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often a function was called and how long it took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallStat {
    /// The driver's function.
    pub call: &'static str,
    /// Calls so far.
    pub count: u64,
    /// Their time together, in nanoseconds.
    pub total_ns: u64,
    /// The longest of them, in nanoseconds.
    pub longest_ns: u64,
}

/// The driver's functions that this crate has called in this process, on all devices, by name.
pub fn calls() -> Vec<CallStat> {
    TABLE.stats()
}

static TABLE: Counters<128> = Counters::new();

/// Makes a call, counted and timed.
pub(super) fn counted<T>(call: &'static str, function: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let answer = function();
    TABLE.add(call, start.elapsed());
    answer
}

struct Counter {
    name: OnceLock<&'static str>,
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl Counter {
    const fn new() -> Self {
        Self {
            name: OnceLock::new(),
            count: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
        }
    }
}

/// Counters by name, found by the address of the name's text, without a lock. One name may have
/// several addresses, and so several counters: they are added up when somebody asks.
struct Counters<const N: usize>([Counter; N]);

impl<const N: usize> Counters<N> {
    const fn new() -> Self {
        Self([const { Counter::new() }; N])
    }

    fn add(&self, name: &'static str, time: Duration) {
        let first = name.as_ptr().addr() / 8;
        let found = (0..N).map(|step| &self.0[(first + step) % N]).find(|counter| {
            let there = counter.name.get_or_init(|| name);
            std::ptr::eq(there.as_ptr(), name.as_ptr())
        });
        // Full: more names than the driver has functions, so somebody else's problem.
        let Some(counter) = found else { return };
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        counter.count.fetch_add(1, Relaxed);
        counter.total_ns.fetch_add(ns, Relaxed);
        counter.longest_ns.fetch_max(ns, Relaxed);
    }

    fn stats(&self) -> Vec<CallStat> {
        let mut stats: Vec<CallStat> = Vec::new();
        for counter in &self.0 {
            let Some(&call) = counter.name.get() else { continue };
            let count = counter.count.load(Relaxed);
            let (total_ns, longest_ns) =
                (counter.total_ns.load(Relaxed), counter.longest_ns.load(Relaxed));
            match stats.iter_mut().find(|stat| stat.call == call) {
                Some(stat) => {
                    stat.count += count;
                    stat.total_ns += total_ns;
                    stat.longest_ns = stat.longest_ns.max(longest_ns);
                }
                None => stats.push(CallStat { call, count, total_ns, longest_ns }),
            }
        }
        stats.sort_unstable_by_key(|stat| stat.call);
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_name_with_their_total_and_longest_time() {
        let counters: Counters<4> = Counters::new();
        let twice: &'static str = String::from("cuB").leak();
        counters.add("cuB", Duration::from_nanos(30));
        counters.add("cuA", Duration::from_nanos(7));
        counters.add(twice, Duration::from_nanos(50));
        let stat =
            |call, count, total_ns, longest_ns| CallStat { call, count, total_ns, longest_ns };
        assert_eq!(counters.stats(), [stat("cuA", 1, 7, 7), stat("cuB", 2, 80, 50)]);
        for name in ["cuC", "cuD", "cuE"] {
            counters.add(name, Duration::from_nanos(1));
        }
        assert_eq!(counters.stats().len(), 3, "a full table counts no new names and goes on");
    }
}
