//! The allocator's lock itself, with a value that loom watches: two threads at it at once, or one
//! that does not see what the other did there, are errors.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::Condvar;
use terrane_core::sync::{Guard, Leave, Lock};

use super::{explore, large};

struct Watched(UnsafeCell<u64>);

impl Leave for Watched {}

/// Numbers of two threads, whose slots differ.
const FIRST: usize = 2;
const SECOND: usize = 3;

fn new() -> Arc<Lock<Watched>> {
    Arc::new(Lock::new(Watched(UnsafeCell::new(0))))
}

/// Counts up; gives what was there.
fn count(guard: &Guard<'_, Watched>) -> u64 {
    // SAFETY: loom fails the test if this is not the only access.
    guard.0.with_mut(|value| unsafe {
        *value += 1;
        *value - 1
    })
}

fn read(watched: &Watched) -> u64 {
    // SAFETY: loom fails the test if somebody writes meanwhile.
    watched.0.with(|value| unsafe { *value })
}

#[test]
fn a_second_thread_against_the_owner() {
    explore(|| {
        let lock = new();
        count(&lock.lock_as(FIRST));
        let other = Arc::clone(&lock);
        let second = large(move || count(&other.lock_as(SECOND)));
        count(&lock.lock_as(FIRST));
        count(&lock.lock_as(FIRST));
        let was = second.join().unwrap();
        assert_eq!(read(&lock.lock_as(FIRST)), 4);
        // Whether it came before the owner's last visit.
        was < 3
    });
}

#[test]
fn who_is_first_against_who_is_second() {
    explore(|| {
        let lock = new();
        let other = Arc::clone(&lock);
        let second = large(move || {
            count(&other.lock_as(SECOND));
            count(&other.lock_as(SECOND))
        });
        let was = count(&lock.lock_as(FIRST));
        count(&lock.lock_as(FIRST));
        second.join().unwrap();
        assert_eq!(read(&lock.lock_as(FIRST)), 4);
        was == 0
    });
}

#[test]
fn a_new_owner_against_the_old_one() {
    explore(|| {
        let lock = new();
        count(&lock.lock_as(FIRST));
        let other = Arc::clone(&lock);
        // It takes the lock away, has earned it by its third visit, and owns it at its fourth.
        let second = large(move || (0..4).map(|_| count(&other.lock_as(SECOND))).last().unwrap());
        let was = count(&lock.lock_as(FIRST));
        let last = second.join().unwrap();
        assert_eq!(read(&lock.lock_as(FIRST)), 6);
        was > last
    });
}

#[test]
fn an_owner_that_waits_is_told() {
    explore(|| {
        let both = Arc::new((Lock::new(Watched(UnsafeCell::new(0))), Condvar::new()));
        let other = Arc::clone(&both);
        let mut guard = both.0.lock_as(FIRST);
        let second = large(move || {
            for _ in 0..2 {
                count(&other.0.lock_as(SECOND));
                other.1.notify_all();
            }
        });
        let mut waited = 0;
        // A wait that nobody ends is a deadlock here: time does not pass.
        while read(&guard) < 2 {
            guard = guard.wait(&both.1, Duration::from_secs(1), read);
            waited += 1;
        }
        drop(guard);
        second.join().unwrap();
        waited == 2
    });
}
