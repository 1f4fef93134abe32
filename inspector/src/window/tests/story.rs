//! Runs of our own allocator on modelled devices, recorded into trace files: the same every time.

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::point::StreamId;

use terrane_core::{Allocator, Handle, MemoryKind, Pin, Request, Tag};
use terrane_trace::file::{Meta, Recorder};

use super::*;

const MIB: u64 = 1 << 20;

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        (self.0 >> 33) % below
    }
}

/// An allocator on a modelled device, recorded into a file.
struct Stage {
    sim: SimDevice,
    alloc: Allocator,
    dice: Dice,
    /// What holds blocks until the recording is over.
    guards: Vec<Pin>,
}

impl Stage {
    fn on(sim: Sim) -> Self {
        let sim = sim.open();
        let alloc = Allocator::new(sim.shared()).unwrap();
        Self { sim, alloc, dice: Dice(7), guards: Vec::new() }
    }

    fn stream(&self) -> StreamId {
        self.alloc.device().create_stream(StreamSpec::default()).unwrap()
    }

    #[track_caller]
    fn block(&self, bytes: u64, stream: StreamId, tag: Tag) -> Handle {
        self.block_of(MemoryKind::Device, bytes, stream, tag)
    }

    #[track_caller]
    fn block_of(&self, kind: MemoryKind, bytes: u64, stream: StreamId, tag: Tag) -> Handle {
        self.alloc.alloc(&Request::new(bytes, stream).tag(tag).kind(kind)).unwrap().handle
    }

    /// Work that uses blocks and takes so many microseconds.
    fn work(&self, stream: StreamId, us: u64, blocks: &[Handle]) {
        let mut submission = self.alloc.submit(stream);
        for block in blocks {
            submission.resolve(*block).unwrap();
        }
        let point = self.sim.submit(stream, us * 1000).unwrap();
        submission.close_at(point);
    }

    /// Lets time pass, and the allocator see what is done.
    fn pass(&self, us: u64) {
        self.sim.advance(us * 1000);
        self.alloc.maintain().unwrap();
    }
}

/// A trace file, gone with its folder.
pub struct Told {
    _folder: tempfile::TempDir,
    /// Where it is.
    pub path: PathBuf,
}

impl Told {
    pub fn recording(&self) -> Recording {
        open(&self.path, &Progress::default()).unwrap()
    }
}

/// Runs something with a recorder.
fn recorded(name: &str, stage: &mut Stage, run: impl FnOnce(&mut Stage)) -> Told {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.terrane"));
    let recorder = Recorder::attach(&stage.alloc, &path, Meta::default()).unwrap();
    run(stage);
    recorder.finish().unwrap();
    Told { _folder: folder, path }
}

/// Steps of training with layers of other sizes each time, on a device that pages: pages are taken
/// from holes. Gradients are sent by a stream of their own, inputs are copied by a third.
pub fn training() -> Told {
    let mut stage = Stage::on(Sim::cuda().capacity(2 << 30));
    recorded("training", &mut stage, |stage| {
        let [compute, send, copy] = [(); 3].map(|()| stage.stream());
        let names = ["weights", "activations", "gradients", "inputs"];
        let [weights, activations, gradients, inputs] =
            names.map(|name| stage.alloc.tag(name).unwrap());
        let layers: Vec<Handle> =
            (0..12).map(|layer| stage.block((8 + layer % 5 * 6) * MIB, compute, weights)).collect();
        for _ in 0..6 {
            step(stage, [compute, send, copy], &layers, [activations, gradients, inputs]);
        }
    })
}

fn step(
    stage: &mut Stage,
    [compute, send, copy]: [StreamId; 3],
    layers: &[Handle],
    [activations, gradients, inputs]: [Tag; 3],
) {
    let bytes = (4 + stage.dice.below(24)) * MIB;
    let input = stage.block_of(MemoryKind::Upload, bytes, copy, inputs);
    stage.work(copy, 300, &[input]);
    let mut made = Vec::new();
    for layer in layers {
        let bytes = (3 + stage.dice.below(40)) * MIB;
        let out = stage.block(bytes, compute, activations);
        stage.work(compute, 250, &[*layer, input, out]);
        made.push(out);
        stage.pass(180);
    }
    stage.alloc.free(input).unwrap();
    for layer in layers.iter().rev() {
        let bytes = (2 + stage.dice.below(30)) * MIB;
        let gradient = stage.block(bytes, compute, gradients);
        let out = made.pop().unwrap();
        stage.work(compute, 400, &[*layer, out, gradient]);
        // Sent behind the work that made it, and freed before it is sent.
        stage.work(send, 900, &[gradient]);
        stage.alloc.free(gradient).unwrap();
        stage.alloc.free(out).unwrap();
        stage.pass(260);
    }
    stage.pass(2_000);
}

/// A server's cache on a device that cannot page: answers of all sizes come and go, and now and
/// then live blocks are moved together, but for those that are held.
pub fn serving() -> Told {
    let mut stage = Stage::on(Sim::slabs().capacity(1 << 30));
    recorded("serving", &mut stage, |stage| {
        let stream = stage.stream();
        let [cache, scratch] = ["cache", "scratch"].map(|name| stage.alloc.tag(name).unwrap());
        let mut live: Vec<Handle> = Vec::new();
        for turn in 0..4 {
            for number in 0..120 {
                let (bytes, tag) = match stage.dice.below(5) {
                    0 => (MIB + stage.dice.below(3 * MIB), scratch),
                    _ => (64 * 1024 + stage.dice.below(MIB), cache),
                };
                // Some are used by others, who keep their addresses.
                let request = Request::new(bytes, stream).tag(tag);
                let request = request.movable(number % 23 != 5).raw_handle(number % 29 == 7);
                live.push(stage.alloc.alloc(&request).unwrap().handle);
                if live.len() > 80 {
                    let gone = stage.dice.below(live.len() as u64) as usize;
                    stage.alloc.free(live.swap_remove(gone)).unwrap();
                }
                stage.pass(50);
            }
            if turn == 0 {
                // Lent to somebody who works on them for long.
                let lent: Vec<Handle> = live.iter().copied().step_by(9).collect();
                live.retain(|block| !lent.contains(block));
                let guards = lent.into_iter().map(|block| stage.alloc.pin(block).unwrap());
                stage.guards.extend(guards);
            }
            // Holes everywhere, which the pass closes.
            for _ in 0..30 {
                let gone = stage.dice.below(live.len() as u64) as usize;
                let block = live.swap_remove(gone);
                stage.alloc.free(block).unwrap();
            }
            let mut limits = Limits::NONE;
            limits.moves = 24;
            stage.alloc.compact(Goal::Fragmentation { below: 0.02 }, limits).unwrap();
            stage.pass(1_000);
        }
    })
}

#[test]
fn the_runs_have_what_their_pictures_are_to_show() {
    let training = training().recording();
    assert!(!training.stale.is_empty(), "no page was taken from a hole");
    assert!(training.work.len() > 100 && !training.pending.is_empty());
    let work_waits = training.waits.iter().filter(|wait| wait.by_work).count();
    assert!(work_waits > 20, "{work_waits} waits");
    let done = training.work.iter().filter(|work| work.done < training.end()).count();
    assert!(done > 100, "{done} are known to be done");
    assert_eq!(training.tags, ["", "weights", "activations", "gradients", "inputs"]);
    let kinds: std::collections::BTreeSet<String> =
        training.blocks.iter().map(|block| training.kind(block.kind)).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["device memory", "upload memory"]);
    let serving = serving().recording();
    assert!(serving.moves.len() > 20, "{} moves", serving.moves.len());
    let at = serving.end();
    let held = |number: &u32| serving.blocks[*number as usize].is_there(at);
    let there = (0..serving.blocks.len() as u32).filter(held);
    let holds: std::collections::BTreeSet<&str> =
        there.map(|number| serving.hold(number, at).text()).collect();
    let expected = ["held in place", "its raw handle is kept", "made not to move", "movable"];
    assert_eq!(holds.into_iter().collect::<Vec<_>>(), expected);
    assert!(serving.passes.iter().any(|pass| !pass.refused.is_empty()), "{:?}", serving.passes);
}
