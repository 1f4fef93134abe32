//! The allocator driven by bytes, with a naive list of what is live beside it.

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::sim::{Completion, Sim, SimDevice};
use terrane_core::device::{Access, Binding, Device, Place, StreamId, StreamSpec, SyncPoint};
use terrane_core::point::Points;
use terrane_core::{Allocator, Config, Handle, Limit, Pin, Request, Wait};

use super::ranges::Draw;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Bytes that are looked at.
const BYTES_MAX: usize = 2048;
/// Live blocks at most.
const LIVE_MAX: usize = 40;

/// A block that the list says is live.
#[derive(Clone, Copy)]
struct Live {
    handle: Handle,
    requested: u64,
    allocated: u64,
    stream: StreamId,
}

struct Driver {
    draw: Draw,
    sim: SimDevice,
    alloc: Allocator,
    /// The work of the last one completes by hand.
    streams: [StreamId; 3],
    live: Vec<Live>,
    pins: Vec<(Handle, Pin)>,
    /// Work that is not done, oldest first.
    open: Vec<SyncPoint>,
}

/// Whatever requests and frees the bytes say: no two live blocks overlap, alignments hold, nothing
/// is handed out before its points, counters are those of the list, nothing is left at the end.
pub fn allocator(bytes: &[u8]) {
    let bytes = bytes[..bytes.len().min(BYTES_MAX)].to_vec();
    let mut driver = Driver::new(Draw::Bytes(bytes.into_iter()));
    while !driver.draw.is_over() {
        driver.step();
        driver.compare();
    }
    driver.finish();
}

impl Driver {
    fn new(mut draw: Draw) -> Self {
        let model = match draw.below(3) {
            0 => Sim::cuda().granularity(256 * KIB),
            1 => Sim::vulkan(),
            _ => Sim::slabs(),
        };
        let sim = model.capacity(32 * MIB).open();
        let mut config = Config::for_device(sim.caps()).limit(Limit::Bytes(16 * MIB));
        config.paging = sim.caps().paging.is_some();
        // It would wait for work that completes by hand.
        config.compact_on_shortage = false;
        config.small_max = draw.pick(&[0, 4 * KIB]);
        let alloc = Allocator::with_config(sim.shared(), config).expect("an allocator");
        let streams = [(); 3].map(|()| sim.create_stream(StreamSpec::default()).expect("a stream"));
        sim.set_completion(streams[2], Completion::ByHand).expect("a stream of the model");
        Self { draw, sim, alloc, streams, live: vec![], pins: vec![], open: vec![] }
    }

    fn step(&mut self) {
        match self.draw.below(16) {
            0..6 => self.request(),
            6..9 => self.free(),
            9 => self.free_after(),
            10 => self.work(),
            11 => self.complete(),
            12 => self.move_some(),
            13 => self.hold(),
            14 => self.grow(),
            _ => {
                let keep = self.draw.pick(&[0, MIB, u64::MAX]);
                self.alloc.trim(keep).expect("a model gives back");
                self.alloc.maintain().expect("a model gives back");
            }
        }
    }

    fn request(&mut self) {
        if self.live.len() >= LIVE_MAX {
            return;
        }
        let unit = self.draw.pick(&[1, 512, 64 * KIB]);
        let bytes = (1 + self.draw.below(256)) * unit;
        let align = 1 << self.draw.below(9);
        let stream = self.draw.pick(&self.streams);
        let wait = self.draw.pick(&[Wait::Never, Wait::OnStream]);
        let request = Request::new(bytes, stream).wait(wait).align(align);
        let Ok(got) = self.alloc.alloc(&request) else { return };
        assert!(wait != Wait::Never || got.waits.is_empty(), "it may not wait");
        assert!(got.bytes >= bytes);
        let live = Live { handle: got.handle, requested: bytes, allocated: got.bytes, stream };
        let place = self.place(live);
        assert!(place.offset.is_multiple_of(align), "{place:?} is not aligned to {align}");
        self.sim.wait_on_stream(stream, got.waits.as_slice()).expect("points that are");
        self.live.push(live);
        self.use_block(live, stream);
    }

    /// Work on a block. The model objects where it is not ordered behind others' of its memory.
    fn use_block(&mut self, live: Live, stream: StreamId) {
        let mut submission = self.alloc.submit(stream);
        let block = submission.resolve(live.handle).expect("a live block");
        assert!(block.bytes >= live.requested);
        let binding = Binding { place: block.place, bytes: block.bytes, access: Access::Write };
        let point = self.sim.submit_using(stream, 0, &[binding]).expect("a stream of the model");
        submission.close_at(point);
        if stream == self.streams[2] {
            self.open.push(point);
        }
    }

    fn place(&self, live: Live) -> Place {
        self.alloc.info(live.handle).expect("a live block").place
    }

    fn any(&mut self) -> Option<usize> {
        let count = self.live.len() as u64;
        (count > 0).then(|| self.draw.below(count) as usize)
    }

    fn take_any(&mut self) -> Option<Live> {
        let at = self.any()?;
        let live = self.live.swap_remove(at);
        // Held blocks are freed when their guards go.
        self.pins.retain(|(handle, _)| *handle != live.handle);
        Some(live)
    }

    fn free(&mut self) {
        let Some(live) = self.take_any() else { return };
        self.alloc.free(live.handle).expect("a live block");
        assert!(self.alloc.free(live.handle).is_err(), "freed twice");
        assert!(self.alloc.pin(live.handle).is_err(), "held after its free");
    }

    fn free_after(&mut self) {
        let Some(live) = self.take_any() else { return };
        let point = self.sim.submit(self.streams[2], 0).expect("a stream of the model");
        self.open.push(point);
        self.alloc.free_after(live.handle, &Points::one(point)).expect("a live block");
    }

    /// Work of the block's own stream, which needs no waits of its own.
    fn work(&mut self) {
        let Some(at) = self.any() else { return };
        let live = self.live[at];
        self.use_block(live, live.stream);
    }

    fn complete(&mut self) {
        if !self.open.is_empty() {
            let at = self.draw.below(self.open.len() as u64) as usize;
            self.sim.complete(self.open[at]);
            self.open.drain(..=at);
        }
    }

    fn move_some(&mut self) {
        let bytes = (1 + self.draw.below(32)) * 64 * KIB;
        let goal = match self.draw.below(2) {
            0 => Goal::Contiguous { bytes, align: 1 },
            _ => Goal::Release { bytes },
        };
        let Ok(mut pass) = self.alloc.begin_pass(goal, Limits::NONE) else { return };
        if self.draw.below(4) > 0 {
            pass.submit().expect("a model copies");
            pass.poll().expect("a model copies");
        }
        pass.end_pass().expect("passes end");
    }

    fn hold(&mut self) {
        if self.pins.len() > 4 {
            drop(self.pins.remove(0));
            return;
        }
        let Some(at) = self.any() else { return };
        let handle = self.live[at].handle;
        self.pins.push((handle, self.alloc.pin(handle).expect("a live block")));
    }

    fn grow(&mut self) {
        let Some(at) = self.any() else { return };
        let live = self.live[at];
        let more = live.requested + 1 + self.draw.below(64) * 512;
        let Ok(waits) = self.alloc.grow(live.handle, more) else { return };
        let info = self.alloc.info(live.handle).expect("a live block");
        assert_eq!(info.requested, more);
        self.live[at] = Live { requested: more, allocated: info.allocated, ..live };
        self.sim.wait_on_stream(live.stream, waits.as_slice()).expect("points that are");
        self.use_block(self.live[at], live.stream);
    }

    /// The list and the allocator say the same.
    fn compare(&self) {
        self.alloc.check().expect("sound");
        let mut places: Vec<(Place, u64)> =
            self.live.iter().map(|&live| (self.place(live), live.allocated)).collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let [(first, bytes), (second, _)] = pair else { continue };
            let apart = first.space != second.space || first.offset + bytes <= second.offset;
            assert!(apart, "{first:?} of {bytes} bytes overlaps {second:?}");
        }
        for (handle, pin) in &self.pins {
            let place = self.alloc.info(*handle).expect("a held block").place;
            assert_eq!(pin.at().place, place, "moved under a guard");
        }
        let total = self.alloc.stats().total;
        let sum = |of: fn(&Live) -> u64| self.live.iter().map(of).sum::<u64>();
        assert_eq!(total.blocks.current, self.live.len() as u64);
        assert_eq!(total.requested.current, sum(|live| live.requested));
        assert_eq!(total.allocated.current, sum(|live| live.allocated));
        assert_eq!(self.sim.violations(), []);
    }

    fn finish(mut self) {
        self.pins.clear();
        self.sim.complete_all();
        for live in std::mem::take(&mut self.live) {
            self.alloc.free(live.handle).expect("a live block");
        }
        self.alloc.maintain().expect("a model gives back");
        self.alloc.trim(0).expect("a model gives back");
        self.alloc.check().expect("sound");
        assert_eq!(
            (self.alloc.stats().active.current, self.alloc.stats().reserved.current),
            (0, 0)
        );
        drop(self.alloc);
        assert_eq!((self.sim.memory_objects(), self.sim.mappings()), (0, 0), "left behind");
        assert_eq!(self.sim.violations(), []);
    }
}
