//! How much memory may be held, and how much is.
//!
//! Bytes are taken from the budget *before* the device is asked, and given back when it refuses:
//! two requests can not both see the last room. One budget per heap.

use crate::device::HeapId;
use crate::error::Error;
use crate::stats::Counter;

/// A limit on the bytes of memory objects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Limit {
    /// What the device gives.
    #[default]
    None,
    /// This many bytes.
    Bytes(u64),
    /// This part (0.0 to 1.0) of the heap's size.
    OfTotal(f64),
    /// This part (0.0 to 1.0) of what is free in the heap when the allocator is opened.
    OfFree(f64),
}

impl Limit {
    /// The limit in bytes, given the heap's size and what is free in it.
    pub fn resolve(self, total: u64, free: u64) -> u64 {
        let part = |of: u64, part: f64| (of as f64 * part.clamp(0.0, 1.0)) as u64;
        match self {
            Self::None => u64::MAX,
            Self::Bytes(bytes) => bytes,
            Self::OfTotal(fraction) => part(total, fraction),
            Self::OfFree(fraction) => part(free, fraction),
        }
    }
}

/// One heap's account. `held.current + charged <= limit` unless the limit was lowered since.
#[derive(Clone, Copy, Debug)]
struct Account {
    limit: u64,
    held: Counter,
    charged: u64,
    /// Bytes about to be given back, while what replaces them is taken.
    lent: u64,
}

/// The accounts of all heaps and the number of memory objects.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    accounts: Vec<Account>,
    objects: Counter,
    max_objects: u64,
    objects_lent: u64,
}

impl Accounts {
    pub fn new(limits: &[u64], max_objects: u64) -> Self {
        let account =
            |&limit: &u64| Account { limit, held: Counter::default(), charged: 0, lent: 0 };
        Self {
            accounts: limits.iter().map(account).collect(),
            objects: Counter::default(),
            max_objects,
            objects_lent: 0,
        }
    }

    fn account(&self, heap: HeapId) -> Option<&Account> {
        self.accounts.get(usize::from(heap.0))
    }

    fn account_mut(&mut self, heap: HeapId) -> Option<&mut Account> {
        self.accounts.get_mut(usize::from(heap.0))
    }

    /// Bytes that the limit still allows in a heap.
    pub fn left(&self, heap: HeapId) -> u64 {
        let left =
            |a: &Account| a.limit.saturating_add(a.lent).saturating_sub(a.held.current + a.charged);
        self.account(heap).map_or(0, left)
    }

    /// The heap's limit in bytes; `u64::MAX` for none.
    pub fn limit(&self, heap: HeapId) -> u64 {
        self.account(heap).map_or(0, |a| a.limit)
    }

    /// Sets a heap's limit. What is held above it is not given back by this.
    pub fn set_limit(&mut self, heap: HeapId, bytes: u64) {
        if let Some(account) = self.account_mut(heap) {
            account.limit = bytes;
        }
    }

    /// Memory objects that can still be made.
    pub fn objects_left(&self) -> u64 {
        self.max_objects.saturating_add(self.objects_lent).saturating_sub(self.objects.current)
    }

    /// Most memory objects that can exist.
    pub const fn max_objects(&self) -> u64 {
        self.max_objects
    }

    /// Takes bytes and one memory object.
    ///
    /// # Errors
    /// [`Error::OverUserLimit`], [`Error::TooManyObjects`]; nothing is taken then.
    pub fn take(&mut self, heap: HeapId, bytes: u64) -> Result<(), Error> {
        self.room(heap, bytes)?;
        if self.objects_left() == 0 {
            return Err(Error::TooManyObjects { limit: self.max_objects });
        }
        self.objects.add(1);
        if let Some(account) = self.account_mut(heap) {
            account.held.add(bytes);
        }
        Ok(())
    }

    /// Whether the limit allows `bytes` more.
    ///
    /// # Errors
    /// [`Error::OverUserLimit`].
    pub fn room(&self, heap: HeapId, bytes: u64) -> Result<(), Error> {
        if self.left(heap) < bytes {
            let used = self.account(heap).map_or(0, |a| a.held.current + a.charged);
            return Err(Error::OverUserLimit { asked: bytes, used, limit: self.limit(heap) });
        }
        Ok(())
    }

    /// Gives back what [`take`](Self::take) took.
    pub fn give(&mut self, heap: HeapId, bytes: u64) {
        self.objects.sub(1);
        if let Some(account) = self.account_mut(heap) {
            account.held.sub(bytes);
        }
    }

    /// Raises the limits for a moment by objects that are about to be given back, so that what
    /// replaces them can be taken; [`take_back`](Self::take_back) ends that.
    pub fn lend(&mut self, heap: HeapId, bytes: u64, objects: u64) {
        self.objects_lent += objects;
        if let Some(account) = self.account_mut(heap) {
            account.lent += bytes;
        }
    }

    /// Ends [`lend`](Self::lend).
    pub fn take_back(&mut self, heap: HeapId, bytes: u64, objects: u64) {
        self.objects_lent -= objects;
        if let Some(account) = self.account_mut(heap) {
            account.lent -= bytes;
        }
    }

    /// Counts what the device really gave for `bytes` that were taken.
    pub fn correct(&mut self, heap: HeapId, bytes: u64, given: u64) {
        if let Some(account) = self.account_mut(heap)
            && bytes != given
        {
            account.held.sub(bytes);
            account.held.add(given);
        }
    }

    /// Counts memory that is not the allocator's against the limit.
    ///
    /// # Errors
    /// [`Error::OverUserLimit`].
    pub fn charge(&mut self, heap: HeapId, bytes: u64) -> Result<(), Error> {
        self.room(heap, bytes)?;
        if let Some(account) = self.account_mut(heap) {
            account.charged += bytes;
        }
        Ok(())
    }

    /// Takes a charge back.
    pub fn refund(&mut self, heap: HeapId, bytes: u64) {
        if let Some(account) = self.account_mut(heap) {
            account.charged = account.charged.saturating_sub(bytes);
        }
    }

    /// Bytes held in a heap by memory objects.
    pub fn held(&self, heap: HeapId) -> u64 {
        self.account(heap).map_or(0, |a| a.held.current)
    }

    /// Bytes charged in a heap.
    pub fn charged_in(&self, heap: HeapId) -> u64 {
        self.account(heap).map_or(0, |a| a.charged)
    }

    /// Bytes charged in all heaps.
    pub fn charged(&self) -> u64 {
        self.accounts.iter().map(|a| a.charged).sum()
    }

    /// Memory objects.
    pub const fn objects(&self) -> Counter {
        self.objects
    }

    pub fn reset_peaks(&mut self) {
        self.objects.reset_peak();
        for account in &mut self.accounts {
            account.held.reset_peak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: HeapId = HeapId(0);

    #[test]
    fn a_refused_take_changes_nothing() {
        let mut budget = Accounts::new(&[100], 1);
        budget.charge(HEAP, 30).unwrap();
        assert_eq!(
            budget.take(HEAP, 71),
            Err(Error::OverUserLimit { asked: 71, used: 30, limit: 100 })
        );
        budget.take(HEAP, 70).unwrap();
        budget.refund(HEAP, 30);
        assert_eq!(budget.take(HEAP, 1), Err(Error::TooManyObjects { limit: 1 }));
        assert_eq!((budget.left(HEAP), budget.held(HEAP)), (30, 70));
        budget.give(HEAP, 70);
        assert_eq!((budget.left(HEAP), budget.objects_left()), (100, 1));
    }

    #[test]
    fn limits_resolve_against_the_heap() {
        assert_eq!(Limit::OfTotal(0.5).resolve(200, 100), 100);
        assert_eq!(Limit::OfFree(0.9).resolve(200, 100), 90);
        assert_eq!(Limit::OfTotal(7.0).resolve(200, 100), 200);
        assert_eq!(Limit::None.resolve(200, 100), u64::MAX);
    }
}
