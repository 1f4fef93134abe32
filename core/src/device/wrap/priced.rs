//! A device that is said to cost otherwise.

use std::sync::Arc;

use super::{Hook, Wrapped};
use crate::device::{Caps, Costs, Device};

/// A device whose calls are said to cost something else, for trying what is chosen by cost.
pub type Priced = Wrapped<Costs>;

impl Hook for Costs {
    fn caps(&self, mut caps: Caps) -> Caps {
        caps.costs = *self;
        caps
    }
}

impl Priced {
    /// A device that costs what is said here.
    pub fn new(inner: Arc<dyn Device>, costs: Costs) -> Arc<Self> {
        Self::around(inner, costs)
    }
}
