//! Work that takes too long for a frame, on a thread of its own.

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
