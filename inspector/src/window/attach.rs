//! Looking on at a running program: its events are taken in on a thread of their own, and the
//! window gets recordings. The program does not notice when the window goes, and the window keeps
//! what it has when the program does.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use terrane_trace::file::{Meta, Status};
use terrane_trace::live::{Client, Compact, Message};
use terrane_trace::recording::Follow;

use super::link::{Heard, Link};
use super::model::{LimitRow, Recording, build};
use super::run::Feed;

/// Whom to look on at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A program of this user on this machine.
    Local(PathBuf),
    /// Over TCP of this machine, such as the end of a tunnel, with the token.
    Tcp(SocketAddr, String),
}

impl Target {
    /// In words.
    pub fn name(&self) -> String {
        match self {
            Self::Local(path) => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                format!("process {}", stem.split('-').next().unwrap_or_default())
            }
            Self::Tcp(at, _) => at.to_string(),
        }
    }

    pub(super) fn connect(&self) -> Result<Client, String> {
        let client = match self {
            Self::Local(path) => Client::connect(path, PATIENCE),
            Self::Tcp(at, token) => Client::connect_tcp(*at, token, PATIENCE),
        };
        client.map_err(|error| error.to_string())
    }
}

/// Figures come every half second; who is silent for so long is gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two recordings handed to the window, at least.
const BETWEEN: Duration = Duration::from_millis(250);
/// So many times as long as making a recording takes, no other is made.
const REST: u32 = 3;
/// From so many events on the oldest are left out.
const EVENTS_MOST: usize = 4_000_000;

/// What the window and the thread share.
#[derive(Clone)]
pub(super) struct Steering {
    pub stop: Arc<AtomicBool>,
    /// The pass of moves that is asked for.
    pub compact: Arc<Mutex<Option<Compact>>>,
    /// The token of those who may ask for something.
    pub control: Arc<Mutex<String>>,
}

impl Steering {
    /// What is asked for, once.
    pub fn take_asked(&self) -> Option<Compact> {
        self.compact.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The same for somebody who asks for nothing.
    pub fn silent(&self) -> Self {
        Self { compact: Arc::default(), ..self.clone() }
    }
}

/// Follows an allocator until the window has seen enough or the program ends; gives one sentence
/// about how it ended.
pub(super) fn follow(target: &Target, steering: &Steering, feed: &Feed) -> Result<String, String> {
    let link = Link::open(target, steering)?;
    let live = Live::new(target.name(), "running program");
    let again = |link: &Link| link.again(target, steering);
    follow_link((link, live), &again, steering, feed)
}

/// Looks on at a program for a while and gives what it told: its full state, and what happened
/// since.
pub(super) fn look(target: &Target, time: Duration) -> Result<Recording, String> {
    let steering =
        Steering { stop: Arc::default(), compact: Arc::default(), control: Arc::default() };
    let mut link = Link::open(target, &steering)?;
    let mut live = Live::new(target.name(), "running program");
    let (asked, mut is_begun) = (Instant::now(), None);
    loop {
        match link.next() {
            Heard::Message(Message::Meta(meta)) if live.is_of_another(&meta) => break,
            Heard::Message(message) => live.take(message)?,
            Heard::End(why) => match (link.again(target, &steering), is_begun) {
                (Some(again), _) => link = again,
                // It has ended: what it told is what there is.
                (None, Some(_)) => break,
                (None, None) => {
                    let why = why.unwrap_or_else(|| "it ended before it told anything".to_owned());
                    return Err(format!("{}: {why}", live.name));
                }
            },
            Heard::Nothing | Heard::NotAsked(_) => {}
        }
        if live.has_state {
            let begun: &mut Instant = is_begun.get_or_insert_with(Instant::now);
            if begun.elapsed() >= time {
                break;
            }
        } else if asked.elapsed() > PATIENCE {
            return Err(format!("{} has told nothing within 5 s", live.name));
        }
    }
    Ok(live.recording())
}

/// Follows a run in this program until it ends.
pub(super) fn follow_own(
    client: Client,
    name: &str,
    steering: &Steering,
    feed: &Feed,
) -> Result<String, String> {
    // What is asked for is done by the run itself, and so is its end: what it tells is taken in.
    let silent = Steering { stop: Arc::default(), ..steering.silent() };
    let mut live = Live::new(name.to_owned(), "run in this window");
    live.keeps_name = true;
    let link = Link::over(client, &silent);
    follow_link((link, live), &|_| None, &silent, feed)
}

fn follow_link(
    (mut link, mut live): (Link, Live),
    again: &dyn Fn(&Link) -> Option<Link>,
    steering: &Steering,
    feed: &Feed,
) -> Result<String, String> {
    let mut handed = Instant::now();
    let mut rest = Duration::ZERO;
    let outcome = loop {
        if steering.stop.load(Ordering::Relaxed) {
            break Ok(format!("Let go of {}; it goes on.", live.name));
        }
        match link.next() {
            Heard::Nothing => {}
            Heard::Message(Message::Meta(meta)) if live.is_of_another(&meta) => {
                break Ok(live.ended());
            }
            Heard::Message(message) => live.take(message)?,
            Heard::NotAsked(why) => {
                feed.say(format!("{} was not asked to compact: {why}", live.name));
            }
            Heard::End(why) => match again(&link) {
                Some(again) => link = again,
                None => {
                    break why.map_or(Ok(live.ended()), |why| {
                        Err(format!("{}: {why}; what it told stays", live.name))
                    });
                }
            },
        }
        if live.is_new && handed.elapsed() >= BETWEEN.max(rest) {
            let begun = Instant::now();
            feed.hand_over(live.recording());
            rest = begun.elapsed() * REST;
            handed = Instant::now();
        }
    };
    if live.is_new {
        feed.hand_over(live.recording());
    }
    outcome
}

/// What came so far.
struct Live {
    name: String,
    follow: Follow,
    limits: Vec<LimitRow>,
    limit: u64,
    /// Whether something came that was not handed over.
    is_new: bool,
    /// Whether the full state came.
    has_state: bool,
    /// Its process, and when it began to tell.
    who: Option<(u32, u64)>,
    kind: &'static str,
    /// Whether it is called as it was at first, whatever it says.
    keeps_name: bool,
}

impl Live {
    fn new(name: String, kind: &'static str) -> Self {
        Self {
            name,
            follow: Follow::new(),
            limits: Vec::new(),
            limit: 0,
            is_new: false,
            has_state: false,
            who: None,
            kind,
            keeps_name: false,
        }
    }

    /// Whether somebody else answers now where it was.
    fn is_of_another(&self, meta: &Meta) -> bool {
        self.who.is_some_and(|known| known != (meta.process, meta.started_us))
    }

    fn ended(&self) -> String {
        format!("{} has ended; what it told stays.", self.name)
    }

    fn take(&mut self, message: Message) -> Result<(), String> {
        let bad = |error: terrane_trace::Reason| error.to_string();
        match message {
            Message::Meta(meta) => {
                if !self.keeps_name {
                    self.name = format!("{} ({})", meta.program, meta.process);
                }
                self.who = Some((meta.process, meta.started_us));
                self.follow.meta(meta);
            }
            Message::Texts(texts) => self.follow.texts(&texts),
            Message::State(state) => {
                self.limit = state.limit.unwrap_or(self.limit);
                self.follow.state(&state).map_err(bad)?;
                (self.is_new, self.has_state) = (true, true);
            }
            Message::Events(events) => {
                if self.follow.len() + events.len() > EVENTS_MOST {
                    self.follow.begin_anew().map_err(bad)?;
                    self.limits.clear();
                }
                self.follow.events(&events).map_err(bad)?;
                self.is_new |= !events.is_empty();
            }
            Message::Status(status) => self.status(&status),
            _ => {}
        }
        Ok(())
    }

    /// Notes the device's figures where they are others than before.
    fn status(&mut self, status: &Status) {
        let known = status.heap_free.is_some();
        let row = LimitRow {
            at: u32::try_from(self.follow.len()).unwrap_or(u32::MAX),
            limit: self.limit,
            device_free: status.heap_free.unwrap_or(0),
            device_total: if known { status.heap_total } else { 0 },
        };
        let same = |last: &LimitRow| LimitRow { at: row.at, ..*last } == row;
        if !self.limits.last().is_some_and(same) {
            self.limits.push(row);
            self.is_new = true;
        }
    }

    fn recording(&mut self) -> Recording {
        self.is_new = false;
        let read = self.follow.recording();
        let mut recording = build(read, &PathBuf::new(), None, |_| {});
        recording.name.clone_from(&self.name);
        recording.kind = self.kind;
        recording.is_live = true;
        merge(&mut recording.limits, &self.limits);
        recording
    }
}

/// Limits from events and figures of the device, in one order; each row has both.
fn merge(told: &mut Vec<LimitRow>, figures: &[LimitRow]) {
    let mut all: Vec<(LimitRow, bool)> = told.iter().map(|row| (*row, true)).collect();
    all.extend(figures.iter().map(|row| (*row, false)));
    all.sort_by_key(|(row, _)| row.at);
    let mut now = LimitRow::default();
    let mut merged = Vec::with_capacity(all.len());
    for (row, is_limit) in all {
        now = if is_limit {
            LimitRow { at: row.at, limit: row.limit, ..now }
        } else {
            let limit = if row.limit > 0 && now.limit == 0 { row.limit } else { now.limit };
            LimitRow { limit, ..row }
        };
        merged.push(now);
    }
    *told = merged;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_figures_of_the_device_are_one_line_of_time() {
        let row = |at, limit, device_free| LimitRow { at, limit, device_free, device_total: 100 };
        let mut told = vec![LimitRow { at: 5, limit: 70, ..LimitRow::default() }];
        merge(&mut told, &[row(0, 60, 90), row(9, 60, 40)]);
        assert_eq!(told, [row(0, 60, 90), row(5, 70, 90), row(9, 70, 40)]);
        assert_eq!(told[2].untracked(50), Some(10));
    }

    /// What a window shows that was busy for long while a program told more than is read ahead.
    #[test]
    fn a_window_that_falls_behind_says_how_much_it_missed_and_is_right_after_that() {
        use crate::window::model::Moment;
        use egui_kittest::kittest::Queryable as _;
        use terrane_core::device::{Device as _, StreamSpec, sim::Sim};
        use terrane_core::{Allocator, Request};
        let device = Sim::slabs().open();
        let alloc = Allocator::new(device.shared()).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let mut blocks = std::collections::VecDeque::new();
        let mut work = |pairs: u64| {
            for number in 0..pairs {
                let request = Request::new(4096 + number * 7919 % 60_000, stream);
                blocks.push_back(alloc.alloc(&request).unwrap().handle);
                if blocks.len() > 40 {
                    alloc.free(blocks.pop_front().unwrap()).unwrap();
                }
            }
        };
        work(60);
        // Over TCP: nobody else's choice of programs has it.
        let (own, token) = ("127.0.0.1:0".parse().unwrap(), "the-token-of-the-slow-window");
        let tap = terrane_trace::file::Tap::new(&alloc, Meta::default()).tcp(own, token).unwrap();
        let recorder = tap.start().unwrap();
        let target = Target::Tcp(recorder.address().unwrap(), token.to_owned());
        let steering =
            Steering { stop: Arc::default(), compact: Arc::default(), control: Arc::default() };
        let mut link = Link::open(&target, &steering).unwrap();
        let mut live = Live::new(target.name(), "running program");
        while !live.is_new {
            if let Heard::Message(message) = link.next() {
                live.take(message).unwrap();
            }
        }
        // Nobody takes anything meanwhile; the program never waits for that. It tells more than the
        // system's buffers between the two hold; what comes slowly is let go of for its age.
        for _ in 0..300 {
            work(6_000);
            std::thread::sleep(Duration::from_millis(20));
        }
        let (mut ends, begin) = (0, Instant::now());
        let is_behind = |live: &Live| live.follow.lost() == 0;
        while is_behind(&live) || ends == 0 || begin.elapsed() < Duration::from_secs(2) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never caught up: {ends} ends");
            match link.next() {
                Heard::Message(message) => live.take(message).unwrap(),
                Heard::End(_) => {
                    ends += 1;
                    link = link.again(&target, &steering).expect("the program is still there");
                }
                Heard::Nothing | Heard::NotAsked(_) => {}
            }
        }
        let recording = live.recording();
        let missed: u64 = recording.gaps.iter().map(|gap| gap.lost).sum();
        assert!(missed > 10_000, "{missed} events missed");
        let (moment, stats) = (Moment::of(&recording, recording.end()), alloc.stats());
        assert_eq!(u64::from(moment.live_blocks), stats.total.blocks.current);
        assert_eq!(moment.reserved, stats.reserved.current);
        let mut inspector = crate::window::tests::empty();
        inspector.add(recording);
        let mut harness = crate::window::tests::harness(inspector, true, false);
        harness.run_steps(3);
        assert!(harness.query_all_by_label_contains("events were lost").count() > 0);
        assert_eq!(recorder.finish().unwrap().dropped, 0, "the program itself dropped some");
    }
}
