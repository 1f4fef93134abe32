//! Work that takes too long for a frame, on a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// A result that is asked for, on its way, or there.
#[derive(Default)]
pub enum Job<T> {
    /// Nobody asked.
    #[default]
    Idle,
    /// On its way.
    Running(Receiver<T>),
    /// There.
    Done(T),
    /// The thread ended without a result.
    Lost,
}

impl<T: Send + 'static> Job<T> {
    /// Starts the work; the window is woken when it is done.
    pub fn start(ctx: &egui::Context, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, receiver) = channel();
        let ctx = ctx.clone();
        std::thread::spawn(move || {
            // Whoever asked may be gone.
            let _ = sender.send(work());
            ctx.request_repaint();
        });
        Self::Running(receiver)
    }

    /// Takes the result in if it is there.
    pub fn poll(&mut self) -> Option<&T> {
        if let Self::Running(receiver) = self {
            match receiver.try_recv() {
                Ok(result) => *self = Self::Done(result),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => *self = Self::Lost,
            }
        }
        match self {
            Self::Done(result) => Some(result),
            _ => None,
        }
    }

    /// Whether nobody asked yet.
    pub const fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    /// Whether it is on its way.
    pub const fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }
}

/// What is worked out from what a key names: within the frame where that is nothing, else by a
/// thread. Until it is there, what was there before is shown.
pub struct Later<K, T> {
    there: Option<(K, Arc<T>)>,
    coming: Option<(K, Job<Arc<T>>)>,
}

impl<K, T> Default for Later<K, T> {
    fn default() -> Self {
        Self { there: None, coming: None }
    }
}

impl<K: PartialEq, T: Send + Sync + 'static> Later<K, T> {
    /// What a key names, or what was there before it. A key that holds the address of something
    /// is good for as long as the result keeps that.
    pub fn get(
        &mut self,
        ctx: &egui::Context,
        key: K,
        at_once: bool,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Arc<T>> {
        self.poll();
        if !self.is_of(&key) {
            if at_once {
                self.set(key, Arc::new(make()));
            } else if self.coming.as_ref().is_none_or(|(of, it)| !it.is_running() && *of != key) {
                self.coming = Some((key, Job::start(ctx, move || Arc::new(make()))));
            }
        }
        self.last()
    }

    /// What is there.
    pub fn last(&self) -> Option<Arc<T>> {
        self.there.as_ref().map(|(_, it)| Arc::clone(it))
    }

    /// Whether what is there is what a key names.
    pub fn is_of(&self, key: &K) -> bool {
        self.there.as_ref().is_some_and(|(known, _)| known == key)
    }

    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.poll();
        self.coming.as_ref().is_some_and(|(_, it)| it.is_running())
    }

    /// Drops what is there, and what is on its way.
    pub fn forget(&mut self) {
        (self.there, self.coming) = (None, None);
    }

    fn poll(&mut self) {
        let Some((key, mut coming)) = self.coming.take() else { return };
        match coming.poll().cloned() {
            Some(result) => self.set(key, result),
            // One that was lost is not begun again for the same key.
            None => self.coming = Some((key, coming)),
        }
    }

    fn set(&mut self, key: K, result: Arc<T>) {
        if let Some((_, before)) = self.there.replace((key, result)) {
            drop_later(before);
        }
    }
}

/// Lets go of what may be large on a thread of its own: handing hundreds of megabytes back to the
/// system takes longer than a frame.
pub fn drop_later<T: Send + Sync + 'static>(it: Arc<T>) {
    if Arc::strong_count(&it) == 1 {
        std::thread::spawn(move || drop(it));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_there_before_is_given_until_the_thread_is_done() {
        let ctx = egui::Context::default();
        let (go, wait) = channel::<()>();
        let mut later: Later<u32, u32> = Later::default();
        assert_eq!(later.get(&ctx, 1, true, || 10).as_deref(), Some(&10));
        let slow = move || {
            wait.recv().unwrap();
            20
        };
        assert_eq!(later.get(&ctx, 2, false, slow).as_deref(), Some(&10));
        assert!(later.is_busy() && later.is_of(&1));
        // Another key waits for the thread that works.
        assert_eq!(later.get(&ctx, 3, false, || 30).as_deref(), Some(&10));
        go.send(()).unwrap();
        while later.is_busy() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(later.is_of(&2));
        assert_eq!(later.get(&ctx, 3, false, || 30).as_deref(), Some(&20));
        while later.is_busy() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(later.last().as_deref(), Some(&30));
    }

    #[test]
    fn work_that_was_lost_is_not_begun_again_for_the_same_key() {
        let ctx = egui::Context::default();
        let mut later: Later<u32, u32> = Later::default();
        assert!(later.get(&ctx, 1, false, || std::panic::resume_unwind(Box::new(()))).is_none());
        while later.is_busy() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(later.get(&ctx, 1, false, || 10).is_none() && !later.is_busy());
        assert_eq!(later.get(&ctx, 2, true, || 20).as_deref(), Some(&20));
    }
}
