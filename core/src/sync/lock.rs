//! A lock that costs next to nothing as long as one thread uses it.
//!
//! Locking and unlocking a mutex takes two atomic instructions, some 16 ns, whoever else is there.
//! This lock belongs to the first thread that enters it, its *owner*, which enters and leaves by
//! plain stores. When a second thread comes, the lock is taken away from the owner: from then on it
//! is a mutex. A thread that then comes many times with no other between gets the lock as its own
//! again, unless it was taken away only a short while ago. So a program of one thread, which
//! another one looks at now and then, pays for that then only.
//!
//! Owner and second thread meet as in Dekker's algorithm. The owner says that it is inside, then
//! looks whether the lock is still its own. The second thread says that it is nobody's own, then
//! waits until the owner is not inside. Between the two steps each has a barrier, so that one of
//! them at least sees what the other said; the owner's is only one for the compiler, since the
//! second thread has the system put a real one into all threads.
//! Source: Kawachiya, Koseki, Onodera, "Lock reservation" (OOPSLA 2002); `membarrier(2)`.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, heavy, light, prepare};

/// [`Lock::owner`] before the first thread comes.
const NOBODY: usize = 0;
/// [`Lock::owner`] after a second thread has come.
const EVERYBODY: usize = 1;

/// The lock. A panic inside leaves the value as it is.
pub struct Lock<T> {
    /// The thread that enters without the mutex. Changed under the mutex only.
    owner: AtomicUsize,
    /// Whether the owner is inside, by its slot. A thread that was the owner may still write to its
    /// slot, so each slot is that of one thread for good.
    inside: [AtomicBool; SLOTS],
    /// The mutex's own guard, while somebody is inside by the mutex: carried along in [`Guard`] it
    /// would cost more than the stores that this lock is about.
    held: UnsafeCell<Held>,
    mutex: Mutex<Visits>,
    value: UnsafeCell<T>,
}

/// Of a lifetime that is not `'static`: taken out before the guard that put it there ends.
type Held = ManuallyDrop<Option<MutexGuard<'static, Visits>>>;

/// What a value does when it is let go of.
pub trait Leave {
    /// Called inside, last.
    fn leave(&mut self) {}
}

/// Threads that may become owners, in turn.
const SLOTS: usize = 4;

#[inline(always)]
const fn slot_of(thread: usize) -> usize {
    // Fibonacci hashing: the high bits of the product depend on all bits.
    ((thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62) as usize
}

/// Who came by the mutex.
struct Visits {
    /// Whose the slots are; 0 for nobody's.
    slots: [usize; SLOTS],
    /// The thread that came last, and how often it did with no other between.
    last: usize,
    times: u32,
    /// When the lock was last taken away from an owner.
    taken: Option<Instant>,
}

/// Visits in a row after which it is looked whether a thread gets the lock as its own.
const TIMES: u32 = if cfg!(loom) { 2 } else { 64 };
/// For how long nobody gets it after it was taken away, which takes some microseconds.
const REST: Duration = Duration::from_micros(if cfg!(loom) { 0 } else { 1_000 });

// SAFETY: at any time there is at most one guard, so threads get the value one after the other,
// with the order of the mutex or of `inside` between them; that is sending it.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: a lock that can be sent has no guard, hence `held` is empty or was leaked for good.
unsafe impl<T: Send> Send for Lock<T> {}

/// The right to use the value, until dropped.
pub struct Guard<'a, T: Leave> {
    lock: &'a Lock<T>,
    /// The owner's slot, or [`BY_MUTEX`].
    slot: usize,
    /// It stays on its thread, as the mutex's own does.
    thread: PhantomData<*const ()>,
}

/// In the place of a slot.
const BY_MUTEX: usize = SLOTS;

/// A number that no other thread has while this one lives, greater than [`EVERYBODY`].
#[inline(always)]
fn token() -> usize {
    thread_local! { static HERE: u64 = const { 0 } }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl<T: Leave> Lock<T> {
    /// A lock that will belong to the first thread that enters it.
    pub fn new(value: T) -> Self {
        prepare();
        let visits = Visits { slots: [0; SLOTS], last: 0, times: 0, taken: None };
        Self {
            owner: AtomicUsize::new(NOBODY),
            inside: std::array::from_fn(|_| AtomicBool::new(false)),
            held: UnsafeCell::new(ManuallyDrop::new(None)),
            mutex: Mutex::new(visits),
            value: UnsafeCell::new(value),
        }
    }

    /// A lock that is always a mutex.
    #[cfg(loom)]
    pub fn shared(value: T) -> Self {
        let lock = Self::new(value);
        lock.owner.store(EVERYBODY, Ordering::Relaxed);
        // All slots are somebody else's.
        lock.mutex.lock().unwrap_or_else(PoisonError::into_inner).slots = [usize::MAX; SLOTS];
        lock
    }

    /// Waits for the value. A thread that already has it waits forever.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock_as(token())
    }

    /// The same by the name of a thread, 2 at least. Pre: no other thread uses it meanwhile.
    #[inline(always)]
    pub fn lock_as(&self, me: usize) -> Guard<'_, T> {
        if self.owner.load(Ordering::Relaxed) == me && self.enter(me) {
            return self.guard(slot_of(me));
        }
        self.lock_slowly(me)
    }

    /// Lets the owner in, unless it is inside already or the lock is its own no more.
    #[inline(always)]
    fn enter(&self, me: usize) -> bool {
        let inside = &self.inside[slot_of(me)];
        // Acquire: the owner may be a new thread at the place of one that has ended.
        if inside.load(Ordering::Acquire) {
            return false;
        }
        inside.store(true, Ordering::Relaxed);
        light();
        if self.owner.load(Ordering::Relaxed) == me {
            return true;
        }
        inside.store(false, Ordering::Release);
        false
    }

    #[inline(never)]
    fn lock_slowly(&self, me: usize) -> Guard<'_, T> {
        let mut visits = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = self.owner.load(Ordering::Relaxed);
        let earned = owner == NOBODY || (owner == EVERYBODY && visits.count(me));
        if earned && visits.claim(me) {
            // Who comes next finds the mutex taken until this thread is inside.
            self.inside[slot_of(me)].store(true, Ordering::Relaxed);
            self.owner.store(me, Ordering::Relaxed);
            return self.guard(slot_of(me));
        }
        self.share(&mut visits);
        self.hold(visits)
    }

    /// Takes the lock away from its owner, if it has one, and waits until that is not inside.
    fn share(&self, visits: &mut Visits) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == EVERYBODY {
            return;
        }
        self.owner.store(EVERYBODY, Ordering::Relaxed);
        heavy();
        // Acquire: what the owner did inside is done. It comes seldom, so nobody need be told.
        let inside = &self.inside[slot_of(owner)];
        let mut turns = 0;
        while inside.load(Ordering::Acquire) {
            pause(turns);
            turns += 1;
        }
        visits.times = 0;
        visits.taken = Some(Instant::now());
    }

    #[inline(always)]
    const fn guard(&self, slot: usize) -> Guard<'_, T> {
        Guard { lock: self, slot, thread: PhantomData }
    }

    /// Keeps the mutex's guard as long as the one that it gives is not dropped.
    fn hold<'a>(&'a self, guard: MutexGuard<'a, Visits>) -> Guard<'a, T> {
        // SAFETY: only the lifetime changes. The guard given here borrows the lock for `'a`, and
        // `release` takes the mutex's own out before it ends; a leaked one is never used again.
        let held: MutexGuard<'static, Visits> =
            unsafe { std::mem::transmute::<MutexGuard<'a, Visits>, MutexGuard<'_, Visits>>(guard) };
        // SAFETY: whoever has the mutex is the only one that uses `held`.
        unsafe { *self.held.get() = ManuallyDrop::new(Some(held)) };
        self.guard(BY_MUTEX)
    }

    /// Takes the mutex's guard back. Pre: this thread is inside by the mutex.
    fn release(&self) -> Option<MutexGuard<'_, Visits>> {
        // SAFETY: whoever has the mutex is the only one that uses `held`.
        unsafe { (*self.held.get()).take() }
    }
}

impl Visits {
    /// Counts a visit to a lock that is everybody's; tells whether the thread has earned it.
    #[inline]
    fn count(&mut self, me: usize) -> bool {
        if self.last != me {
            (self.last, self.times) = (me, 0);
        }
        self.times += 1;
        if self.times < TIMES {
            return false;
        }
        self.times = 0;
        self.taken.is_none_or(|taken| taken.elapsed() >= REST)
    }

    /// Makes the thread's slot its own; false when it is another's.
    fn claim(&mut self, me: usize) -> bool {
        let slot = &mut self.slots[slot_of(me)];
        if *slot == 0 {
            *slot = me;
        }
        *slot == me
    }
}

#[cfg(loom)]
fn pause(_: u32) {
    loom::thread::yield_now();
}

/// Waits a little; longer when the owner seems to have lost its processor.
#[cfg(not(loom))]
fn pause(turns: u32) {
    if turns < 200 {
        std::hint::spin_loop();
    } else {
        std::thread::sleep(Duration::from_micros(20));
    }
}

impl<'a, T: Leave> Guard<'a, T> {
    /// Lets go of the value until `changed` is told or the time has passed. Whoever tells counts up
    /// what `told` reads first, while it has the value.
    pub fn wait(
        mut self,
        changed: &Condvar,
        time: Duration,
        told: impl Fn(&T) -> u64,
    ) -> Guard<'a, T> {
        let lock = self.lock;
        if self.slot != BY_MUTEX {
            // The owner becomes one of many: only with a mutex can it be woken.
            let before = told(&self);
            drop(self);
            let mut visits = lock.mutex.lock().unwrap_or_else(PoisonError::into_inner);
            lock.share(&mut visits);
            self = lock.hold(visits);
            if told(&self) != before {
                // Between the two, and nobody would tell it again.
                return self;
            }
        }
        self.leave();
        std::mem::forget(self);
        let Some(visits) = lock.release() else { return lock.lock() };
        let waited = changed.wait_timeout(visits, time);
        let mut visits = waited.unwrap_or_else(PoisonError::into_inner).0;
        // It may have become somebody's own meanwhile.
        lock.share(&mut visits);
        lock.hold(visits)
    }
}

impl<T: Leave> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.leave();
        match self.lock.inside.get(self.slot) {
            Some(inside) => inside.store(false, Ordering::Release),
            None => drop(self.lock.release()),
        }
    }
}

impl<T: Leave> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard there is, and it is borrowed for as long.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: Leave> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard there is, and it is borrowed mutably for as long.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    impl Leave for u64 {}
    impl Leave for (u64, u64) {}

    #[test]
    fn the_first_thread_owns_the_lock_until_a_second_one_comes() {
        let lock = Arc::new(Lock::new(0_u64));
        *lock.lock() += 1;
        assert_ne!(lock.lock().slot, BY_MUTEX);
        let other = Arc::clone(&lock);
        thread::spawn(move || {
            let mut guard = other.lock();
            assert_eq!(guard.slot, BY_MUTEX);
            *guard += 1;
        })
        .join()
        .unwrap();
        let guard = lock.lock();
        assert_eq!(guard.slot, BY_MUTEX);
        assert_eq!(*guard, 2);
    }

    #[test]
    fn a_second_thread_waits_for_the_owner_that_is_inside() {
        for _ in 0..200 {
            let lock = Arc::new(Lock::new((0_u64, 0_u64)));
            let count = |lock: &Lock<(u64, u64)>, times| {
                for _ in 0..times {
                    let mut both = lock.lock();
                    both.0 += 1;
                    std::hint::black_box(&mut both);
                    both.1 += 1;
                    assert_eq!(both.0, both.1);
                }
            };
            let other = Arc::clone(&lock);
            let second = thread::spawn(move || count(&other, 1_000));
            count(&lock, 20_000);
            second.join().unwrap();
            assert_eq!(*lock.lock(), (21_000, 21_000));
        }
    }

    #[test]
    fn an_owner_that_waits_is_woken_and_a_panic_inside_leaves_the_lock_free() {
        let both = Arc::new((Lock::new(0_u64), Condvar::new()));
        let other = Arc::clone(&both);
        let mut guard = both.0.lock();
        let second = thread::spawn(move || {
            *other.0.lock() += 1;
            other.1.notify_all();
        });
        while *guard == 0 {
            guard = guard.wait(&both.1, Duration::from_secs(60), |told| *told);
        }
        drop(guard);
        second.join().unwrap();
        let lock = Arc::new(Lock::new(0_u64));
        let other = Arc::clone(&lock);
        let owner = thread::spawn(move || {
            let _guard = other.lock();
            panic!("inside, on purpose");
        });
        assert!(owner.join().is_err());
        assert_eq!(*lock.lock(), 0);
    }
}
