//! The running programs that let others look on, and the choice of one of them.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use terrane_trace::file::Status;
use terrane_trace::live::{Client, Message, sockets};

use super::attach::Target;

/// An allocator that can be looked on at.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Where it is.
    pub target: Target,
    /// The program's name.
    pub program: String,
    /// Its process, the program and the device, in words.
    pub text: String,
    /// Live and reserved bytes.
    pub status: Status,
    /// Whether it did not answer when it was asked last: mostly it has ended.
    pub is_silent: bool,
}

/// The allocators of this user's programs. Asks each for its first figures, at most two seconds.
pub fn offered() -> Vec<Offered> {
    let asked = sockets().into_iter().map(|path| std::thread::spawn(move || ask(path)));
    let asked: Vec<_> = asked.collect();
    asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
}

fn ask(path: PathBuf) -> Option<Offered> {
    let mut client = Client::connect(&path, Duration::from_secs(2)).ok()?;
    let end = Instant::now() + Duration::from_secs(2);
    let mut meta = None;
    while Instant::now() < end {
        match client.receive().ok()?? {
            Message::Meta(found) => meta = Some(found),
            Message::Status(status) => {
                let meta = meta.unwrap_or_default();
                let text = format!("{} {}, {}", meta.process, meta.program, meta.device);
                let (target, program) = (Target::Local(path), meta.program);
                return Some(Offered { target, program, text, status, is_silent: false });
            }
            _ => {}
        }
    }
    None
}

/// What was found, each where it was before and new ones behind; those that are not there any more
/// keep their place, and say so. Nobody's button moves from under the pointer because others come
/// or go.
fn in_place(before: &[Offered], mut found: Vec<Offered>) -> Vec<Offered> {
    let known = before.iter().map(|one| {
        let at = found.iter().position(|other| other.target == one.target);
        at.map_or_else(|| Offered { is_silent: true, ..one.clone() }, |at| found.remove(at))
    });
    let mut all: Vec<Offered> = known.collect();
    all.append(&mut found);
    all
}

/// Programs come and go: who is there is asked again after so long.
const AGAIN: Duration = Duration::from_secs(2);

/// The allocators that are offered, once they have been asked.
pub struct Picker {
    /// What was found.
    pub found: Vec<Offered>,
    asked: Option<Receiver<Vec<Offered>>>,
    answered: Instant,
    /// The address that is being typed.
    pub address: String,
    /// The token that is being typed.
    pub token: String,
    /// The control token that is being typed.
    pub control: String,
}

impl Picker {
    /// Opens it, and asks who is there.
    pub fn open(ctx: &egui::Context) -> Self {
        let mut picker = Self {
            found: Vec::new(),
            asked: None,
            answered: Instant::now(),
            address: String::new(),
            token: String::new(),
            control: String::new(),
        };
        picker.ask(ctx);
        picker
    }

    /// Forgets those that did not answer, and asks who is there.
    pub fn look_again(&mut self, ctx: &egui::Context) {
        self.found.retain(|one| !one.is_silent);
        self.ask(ctx);
    }

    /// Asks again, unless answers are on their way.
    pub fn ask(&mut self, ctx: &egui::Context) {
        if self.asked.is_some() {
            return;
        }
        let (sender, receiver) = channel();
        let waker = ctx.clone();
        std::thread::spawn(move || {
            // The window may be gone.
            let _ = sender.send(offered());
            waker.request_repaint();
        });
        self.asked = Some(receiver);
    }

    /// Takes answers in, asks again after a while, and tells whether the first are still to come.
    pub fn is_asking(&mut self, ctx: &egui::Context) -> bool {
        if let Some(found) = self.asked.as_ref().and_then(|asked| asked.try_recv().ok()) {
            (self.asked, self.answered) = (None, Instant::now());
            self.found = in_place(&self.found, found);
        }
        if self.asked.is_none() && self.answered.elapsed() >= AGAIN {
            self.ask(ctx);
        }
        ctx.request_repaint_after(if self.asked.is_some() { AGAIN / 20 } else { AGAIN });
        self.asked.is_some() && self.found.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn programs_keep_their_place_in_the_choice_and_new_ones_come_behind() {
        let one = |port: u16| Offered {
            target: Target::Tcp(SocketAddr::from(([127, 0, 0, 1], port)), String::new()),
            program: String::new(),
            text: String::new(),
            status: Status::default(),
            is_silent: false,
        };
        let of = |all: Vec<Offered>| -> Vec<(Target, bool)> {
            all.into_iter().map(|it| (it.target, it.is_silent)).collect()
        };
        let found = in_place(&[one(3), one(2), one(1)], vec![one(9), one(1), one(8), one(3)]);
        // The one in the middle has gone: nobody takes its place.
        let ports = [(3, false), (2, true), (1, false), (9, false), (8, false)];
        assert_eq!(of(found.clone()), ports.map(|(port, silent)| (one(port).target, silent)));
        // It may have been busy only.
        assert_eq!(of(in_place(&found, vec![one(2)]))[1], (one(2).target, false));
    }
}
