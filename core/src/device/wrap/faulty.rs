//! A device that fails on purpose.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Answer, Ask, Hook, Wrapped};
use crate::device::calls::CallKind;
use crate::device::{Device, DeviceError};

/// A device whose calls fail as [`Faults`] say, before the device inside is asked: after a
/// failed call nothing has changed.
pub type Faulty = Wrapped<Injected>;

type Rule = Box<dyn FnMut(&Ask) -> Option<DeviceError> + Send>;

/// Which calls are to fail. Rules are asked in the order in which they were added; the first
/// that has an error decides.
#[derive(Default)]
pub struct Faults {
    rules: Vec<Rule>,
    lose_at: Option<u64>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({} rules, lost at {:?})", self.rules.len(), self.lose_at)
    }
}

impl Faults {
    /// None.
    pub fn none() -> Self {
        Self::default()
    }

    /// The `nth` call of a kind fails, the first being 1, with the error that is usual for it.
    #[must_use]
    pub fn nth(self, kind: CallKind, nth: u64) -> Self {
        let mut seen = 0;
        self.matching(move |ask| {
            seen += u64::from(ask.kind == kind);
            (ask.kind == kind && seen == nth).then(|| usual(ask))
        })
    }

    /// Calls fail for which `rule` has an error.
    #[must_use]
    pub fn matching(
        mut self,
        rule: impl FnMut(&Ask) -> Option<DeviceError> + Send + 'static,
    ) -> Self {
        self.rules.push(Box::new(rule));
        self
    }

    /// One in `n` calls of the kinds that `which` chooses fails, at random but always the same
    /// for the same seed and order of calls. 0 means none.
    #[must_use]
    pub fn one_in(self, n: u64, seed: u64, which: fn(CallKind) -> bool) -> Self {
        let mut state = seed;
        self.matching(move |ask| {
            if n == 0 || !which(ask.kind) {
                return None;
            }
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            (x ^ x >> 31).is_multiple_of(n).then(|| usual(ask))
        })
    }

    /// The device is lost at its `nth` call of any kind, the first being 1.
    #[must_use]
    pub fn lose_at(mut self, nth: u64) -> Self {
        self.lose_at = Some(nth);
        self
    }
}

/// The error that a driver would give.
fn usual(ask: &Ask) -> DeviceError {
    let bytes = ask.bytes;
    match ask.kind {
        CallKind::Reserve => DeviceError::OutOfAddressSpace { bytes },
        CallKind::CreatePlain
        | CallKind::CreateMemory
        | CallKind::Map
        | CallKind::Write
        | CallKind::Read
        | CallKind::HostView
        | CallKind::CreateView => DeviceError::OutOfMemory { bytes },
        kind => DeviceError::Driver { call: kind.name(), code: -1 },
    }
}

/// The state of a [`Faulty`] device.
pub struct Injected {
    state: Mutex<State>,
}

struct State {
    faults: Faults,
    next: Vec<(CallKind, u64)>,
    calls: u64,
    injected: u64,
    lost: bool,
}

impl Injected {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn decide(&mut self, ask: &Ask) -> Option<DeviceError> {
        self.calls += 1;
        self.lost |= self.faults.lose_at == Some(self.calls);
        if self.lost {
            return Some(DeviceError::Lost);
        }
        if let Some((_, left)) =
            self.next.iter_mut().find(|(kind, left)| *kind == ask.kind && *left > 0)
        {
            *left -= 1;
            return Some(usual(ask));
        }
        // All rules see the call, so that each counts for itself.
        let errors = self.faults.rules.iter_mut().map(|rule| rule(ask));
        errors.fold(None, Option::or)
    }
}

impl Hook for Injected {
    fn before(&self, ask: &Ask) -> Option<Answer> {
        let mut state = self.lock();
        let error = state.decide(ask)?;
        if error == DeviceError::Lost && gives_back(ask.kind) {
            state.lost = true;
            return Some(Answer::Nothing);
        }
        state.lost |= error == DeviceError::Lost;
        state.injected += 1;
        Some(Answer::Error(error))
    }
}

/// What stays allowed when the device is lost.
fn gives_back(kind: CallKind) -> bool {
    kind.gives_back()
        || matches!(kind, CallKind::RetireStream | CallKind::DestroyView | CallKind::Unload)
}

impl Faulty {
    /// A device around `inner` that fails as `faults` say.
    pub fn new(inner: Arc<dyn Device>, faults: Faults) -> Arc<Self> {
        let state = State { faults, next: Vec::new(), calls: 0, injected: 0, lost: false };
        Self::around(inner, Injected { state: Mutex::new(state) })
    }

    /// Replaces the rules; calls are counted on.
    pub fn set_faults(&self, faults: Faults) {
        self.hook.lock().faults = faults;
    }

    /// Lets the next `times` calls of a kind fail with the usual error.
    pub fn fail_next(&self, kind: CallKind, times: u64) {
        self.hook.lock().next.push((kind, times));
    }

    /// Loses the device from the next call on.
    pub fn lose(&self) {
        self.hook.lock().lost = true;
    }

    /// Calls so far that were answered with an error of ours.
    pub fn injected(&self) -> u64 {
        self.hook.lock().injected
    }

    /// Calls so far.
    pub fn calls_seen(&self) -> u64 {
        self.hook.lock().calls
    }
}
