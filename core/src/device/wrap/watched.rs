//! A device that tells of every call before it makes it.

use std::sync::Arc;

use super::{Answer, Ask, Hook, Wrapped};
use crate::device::Device;

/// A device whose calls are watched: to look around at the moment of a call, such as for locks
/// that must not be held then.
pub type Watched = Wrapped<Watcher>;

/// The watcher of a [`Watched`] device.
pub struct Watcher(Box<dyn Fn(&Ask) + Send + Sync>);

impl Hook for Watcher {
    fn before(&self, ask: &Ask) -> Option<Answer> {
        (self.0)(ask);
        None
    }
}

impl Watched {
    /// A device around `inner` that calls `watch` on the caller's thread before every call.
    pub fn new(inner: Arc<dyn Device>, watch: impl Fn(&Ask) + Send + Sync + 'static) -> Arc<Self> {
        Self::around(inner, Watcher(Box::new(watch)))
    }
}
