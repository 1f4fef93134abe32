//! Looking on at another process: what it does is seen, and neither side harms the other.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use egui_kittest::kittest::Queryable as _;
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::{Allocator, Request};
use terrane_trace::live::{Aim, Command, Compact, folder};

use super::*;
use crate::window::attach::Target;
use crate::window::run::Work;

const CONTROL: &str = "the-control-of-the-window-test";
const TOKEN: &str = "the-token-of-the-window-test";
/// Set in the process that is looked on at.
const IS_TARGET: &str = "TERRANE_TEST_TARGET";
/// What the process is told where it is to be faster than whoever looks on.
const BURSTS: &str = "bursts";
/// Blocks allocated in a burst, two events each.
const BURST: u64 = 20_000;
/// Events that it then keeps for whoever takes them.
const KEPT: u32 = 512;
/// Blocks live after a burst.
const HELD: usize = 50;
/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process that is looked on at, in this program's own executable. It allocates and frees until
/// it is killed, and says on which port it listens.
#[test]
#[ignore = "the other process of the tests in this file, which start it: cargo test -p terrane-inspector attached"]
fn target() {
    if std::env::var_os(IS_TARGET).is_none() {
        return;
    }
    let device = Sim::slabs().open().shared();
    let alloc = Allocator::new(device.clone()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let of_control = alloc.clone();
    let act = move |command| {
        if let Command::Compact(asked) = command {
            asked.run(&of_control).unwrap();
        }
    };
    let tap = terrane::tap(&alloc).socket().tcp("127.0.0.1:0".parse().unwrap(), TOKEN).unwrap();
    let recorder = tap.control(CONTROL, act).unwrap().start().unwrap();
    println!("\nlistens on {}", recorder.address().unwrap());
    if std::env::var(IS_TARGET).is_ok_and(|how| how == BURSTS) {
        bursts(&alloc, stream);
    }
    let mut live = std::collections::VecDeque::new();
    for number in 0_u64.. {
        let request = Request::new(4096 + number * 7919 % 60_000, stream);
        live.push_back(alloc.alloc(&request).unwrap().handle);
        if live.len() > 300 {
            // Every other one of the older half: holes that compaction closes.
            let at = (number as usize * 2) % 150;
            alloc.free(live.remove(at).unwrap()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Told faster than anybody can take it, with pauses in which all of it could be taken in.
fn bursts(alloc: &Allocator, stream: terrane_core::point::StreamId) -> ! {
    alloc.set_recorder(terrane_core::event::RecorderMode::Stream { capacity: KEPT });
    let mut live = std::collections::VecDeque::new();
    for number in 0_u64.. {
        live.push_back(alloc.alloc(&Request::new(4096 + number % 997, stream)).unwrap().handle);
        if live.len() > HELD {
            alloc.free(live.pop_front().unwrap()).unwrap();
        }
        if number % BURST == BURST - 1 {
            std::thread::sleep(Duration::from_secs(3));
        }
    }
    unreachable!("it is killed before")
}

/// A target that is killed when the test ends.
struct Program {
    child: Child,
    tcp: Target,
}

impl Program {
    fn start() -> Self {
        Self::start_as("1")
    }

    fn start_as(how: &str) -> Self {
        let mut command = Process::new(std::env::current_exe().unwrap());
        command.args(["window::tests::attached::target", "--exact", "--ignored", "--nocapture"]);
        command.env(IS_TARGET, how).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let found = lines.find_map(|line| Some(line.strip_prefix("listens on ")?.to_owned()));
        // What it prints later would otherwise end it.
        std::thread::spawn(move || lines.for_each(drop));
        let tcp = Target::Tcp(found.unwrap().parse().unwrap(), TOKEN.to_owned());
        Self { child, tcp }
    }

    fn local(&self) -> Target {
        Target::Local(folder().join(format!("{}-0.sock", self.child.id())))
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Window = Harness<'static, Inspector>;

fn window() -> Window {
    let mut harness = harness(Inspector::new(Settings::default(), None), true, false);
    harness.run_steps(2);
    harness
}

fn attach(harness: &mut Window, target: Target, control: &str) {
    let ctx = harness.ctx.clone();
    harness.state_mut().start_run(&ctx, Work::Attach(target, control.to_owned()));
}

/// Runs frames until something is so.
fn until(harness: &mut Window, what: &str, is_so: impl Fn(&mut Inspector) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        harness.run_steps(1);
        if is_so(harness.state_mut()) {
            return;
        }
        let said: Vec<&str> = harness.state().notices.iter().map(|n| n.text.as_str()).collect();
        assert!(Instant::now() < end, "never so: {what}; said: {said:?}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

fn events(inspector: &mut Inspector) -> usize {
    inspector.document().map_or(0, |document| document.recording.events.len())
}

#[test]
fn a_program_that_is_killed_and_started_again_is_followed_and_neither_harms_the_other() {
    let mut program = Program::start();
    let mut harness = window();
    attach(&mut harness, program.local(), CONTROL);
    until(&mut harness, "the state and then events come", |it| events(it) > 400);
    let seen = events(harness.state_mut());
    until(&mut harness, "it goes on", move |it| events(it) > seen + 200);
    let document = harness.state_mut().document().unwrap();
    let (recording, moment) = (Arc::clone(&document.recording), Arc::clone(&document.moment));
    assert!(recording.is_live && recording.facts.is_some(), "the diagnosis has its facts");
    assert!(moment.live_blocks >= 300 && moment.reserved >= moment.live, "{moment:?}");
    assert!(!recording.limits.is_empty(), "the device's figures came");
    // The button asks the program, which has given the token, for what the person wants within
    // limits, and the moves are seen.
    let asked = Compact { aim: Aim::Fragmentation(0), time_max_ms: 1_500, ..Compact::default() };
    harness.state_mut().document().unwrap().panels.compaction.asked = asked;
    harness.get_all_by_label("Compact now").next().unwrap().click();
    until(&mut harness, "blocks move", |it| !it.documents[0].recording.moves.is_empty());
    until(&mut harness, "the pass ends", |it| !it.documents[0].recording.passes.is_empty());
    let told = &harness.state().documents[0].recording.passes[0].asked;
    assert!(told.contains("at most 0.0 %; full speed; at most 1500 ms"), "{told}");
    // Killed: what it told stays, and the window says so.
    program.child.kill().unwrap();
    until(&mut harness, "its end is noticed", |it| it.runs.is_empty());
    let notice = harness.state().notices.last().unwrap();
    assert!(notice.text.contains("what it told stays"), "{}", notice.text);
    assert!(events(harness.state_mut()) > seen);
    // Started again: a file of its own beside the old one.
    let mut again = Program::start();
    attach(&mut harness, again.local(), "");
    until(&mut harness, "the new one is there", |it| it.documents.len() == 2 && events(it) > 100);
    assert!(!harness.state().runs[0].can_compact(), "no token, no command");
    // Let go: the program goes on and can be looked on at again.
    harness.state().runs[0].stop();
    until(&mut harness, "it let go", |it| it.runs.is_empty());
    assert!(again.is_running());
    attach(&mut harness, again.local(), "");
    let there = |it: &mut Inspector| it.documents.len() == 3 && events(it) > 0;
    until(&mut harness, "it is there again", there);
    let seen = events(harness.state_mut());
    until(&mut harness, "and has gone on", move |it| events(it) > seen + 100);
    assert!(again.is_running());
}

#[test]
fn over_tcp_the_token_decides_and_a_window_that_goes_harms_nobody() {
    let mut program = Program::start();
    let mut harness = window();
    let Target::Tcp(at, _) = program.tcp.clone() else { unreachable!("made so above") };
    attach(&mut harness, Target::Tcp(at, "not-the-token-of-the-test".to_owned()), "");
    until(&mut harness, "the wrong token is refused", |it| it.runs.is_empty());
    assert!(harness.state().notices.iter().any(|notice| notice.is_error));
    assert!(harness.state().documents.is_empty());
    attach(&mut harness, program.tcp.clone(), "");
    until(&mut harness, "events come", |it| events(it) > 400);
    drop(harness);
    let mut harness = window();
    attach(&mut harness, program.local(), "");
    until(&mut harness, "the program is there", |it| events(it) > 400);
    assert!(program.is_running());
}

#[test]
fn the_picker_lists_running_programs_and_attaches_to_the_one_chosen() {
    let program = Program::start();
    let mut harness = window();
    harness.get_by_label("Attach to a program…").click();
    let name = format!("Attach to {} ", program.child.id());
    let end = Instant::now() + PATIENCE;
    while harness.query_all_by_label_contains(&name).count() == 0 {
        assert!(Instant::now() < end, "{name} is not listed");
        harness.run_steps(1);
        std::thread::sleep(Duration::from_millis(30));
    }
    assert!(harness.query_all_by_label_contains("control token").count() > 0);
    // With many programs it may be below those that are in sight.
    harness.get_all_by_label_contains(&name).next().unwrap().scroll_to_me();
    harness.run_steps(30);
    harness.get_all_by_label_contains(&name).next().unwrap().click();
    until(&mut harness, "events come", |it| events(it) > 400);
    harness.run_steps(2);
    assert!(harness.query_all_by_label("Let go").count() > 0);
}

#[test]
fn two_programs_are_followed_at_once_and_the_end_of_one_is_nothing_to_the_other() {
    let (mut first, mut second) = (Program::start(), Program::start());
    let mut harness = window();
    attach(&mut harness, first.local(), "");
    until(&mut harness, "the first is there", |it| it.documents.len() == 1 && events(it) > 400);
    attach(&mut harness, second.local(), "");
    until(&mut harness, "the second is there", |it| it.documents.len() == 2 && events(it) > 400);
    let of = |it: &Inspector, at: usize| it.documents[at].recording.events.len();
    let names = |it: &Inspector, at: usize| it.documents[at].recording.name.clone();
    assert!(names(harness.state(), 0).contains(&first.child.id().to_string()));
    assert!(names(harness.state(), 1).contains(&second.child.id().to_string()));
    let seen = [of(harness.state(), 0), of(harness.state(), 1)];
    let go_on = move |it: &mut Inspector| (0..2).all(|at| of(it, at) > seen[at] + 100);
    until(&mut harness, "both go on", go_on);
    // One is killed: what it told stays, and the other goes on.
    first.child.kill().unwrap();
    until(&mut harness, "its end is noticed", |it| it.runs.len() == 1);
    let seen = [of(harness.state(), 0), of(harness.state(), 1)];
    until(&mut harness, "the other goes on", move |it| of(it, 1) > seen[1] + 200);
    assert_eq!(of(harness.state(), 0), seen[0]);
    // The document of the one that has ended is closed: nothing changes for the other.
    harness.state_mut().current = 0;
    let ctx = harness.ctx.clone();
    harness.state_mut().act(&ctx, crate::window::commands::Command::CloseFile);
    let seen = of(harness.state(), 0);
    until(&mut harness, "it still goes on", move |it| of(it, 0) > seen + 200);
    assert_eq!(harness.state().documents.len(), 1);
    // So is the other's: the program itself is not harmed, and can be looked on at again.
    harness.state_mut().act(&ctx, crate::window::commands::Command::CloseFile);
    harness.run_steps(3);
    assert!(harness.state().runs.is_empty() && harness.state().documents.is_empty());
    assert!(second.is_running());
    attach(&mut harness, second.local(), "");
    until(&mut harness, "it is there again", |it| it.documents.len() == 1 && events(it) > 100);
}

#[test]
fn events_that_a_program_had_to_drop_are_shown_and_the_heap_is_right_after_them() {
    let mut program = Program::start_as(BURSTS);
    let mut harness = window();
    attach(&mut harness, program.local(), "");
    let is_lossy =
        |it: &mut Inspector| it.document().is_some_and(|it| !it.recording.gaps.is_empty());
    until(&mut harness, "events are lost", is_lossy);
    harness.run_steps(2);
    assert!(harness.query_all_by_label_contains("events were lost").count() > 0, "it is said");
    // In a pause the heap is as the program has it: what is gone is gone, memory counts once.
    let is_right = |it: &mut Inspector| {
        it.go(crate::window::At::End);
        let Some(document) = it.document() else { return false };
        let (recording, moment) = (&document.recording, &document.moment);
        let told = moment.live_blocks as usize == HELD && moment.reserved < 64 << 20;
        told && recording.gaps.iter().map(|gap| gap.lost).sum::<u64>() > 1000
    };
    until(&mut harness, "the heap is right after the gap", is_right);
    assert!(program.is_running());
    // The document that is not shown is marked too.
    harness.state_mut().add(open(&data(STREAMS), &Progress::default()).unwrap());
    harness.run_steps(2);
    assert!(harness.query_all_by_label("events lost").count() == 1);
}
