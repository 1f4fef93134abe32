//! Random work on several streams, against plain arrays of bytes.
//!
//! Every operation waits for exactly the earlier ones that touch the same bytes (of memory
//! objects, since pages are mapped twice); all else runs as the device likes. `TERRANE_SEED=n
//! cargo test -p terrane-core --features host random` runs one seed again.

use std::sync::Arc;
use std::time::Duration;

use super::*;

const PAGES: u64 = 4;
const STREAMS: usize = 4;

pub(super) struct Random(u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ x >> 31) % limit
    }
}

/// Seeds to run: the one of the environment, or a few.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("TERRANE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..count).collect(),
    }
}

struct Touch {
    memory: usize,
    start: u64,
    end: u64,
    write: bool,
    point: SyncPoint,
}

/// A window of a space that shows some bytes of a memory object: (memory, its first byte).
type Shown = (usize, u64);

struct World<'a> {
    device: &'a dyn Device,
    random: Random,
    streams: Vec<StreamId>,
    /// Bytes of memory objects: object 0 is the plain segment's, the others are pages.
    model: Vec<Vec<u8>>,
    plain: SpaceId,
    paged: SpaceId,
    pages: Vec<MemoryId>,
    page_bytes: u64,
    /// What each page-sized window of the paged space shows.
    windows: Vec<Option<usize>>,
    touches: Vec<Touch>,
    reads: Vec<(Ticket, Vec<u8>)>,
    reports: Vec<(Ticket, Vec<u64>)>,
    xor: KernelId,
}

/// Flips bits of every byte of its binding by the push byte.
fn xor_kernel() -> KernelSource {
    KernelSource::Host(host::HostKernel(Arc::new(|group| {
        let view = group.bindings[0];
        let mut bytes = vec![0; view.len() as usize];
        assert!(view.read(0, &mut bytes));
        for byte in &mut bytes {
            *byte ^= group.push[0];
        }
        assert!(view.write(0, &bytes));
    })))
}

impl<'a> World<'a> {
    fn new(device: &'a dyn Device, seed: u64) -> Self {
        let (paging, page_bytes) =
            (device.paging().unwrap(), device.caps().paging.unwrap().granularity);
        let class = ClassId(0);
        let spec =
            PlainSpec { class, bytes: page_bytes, exportable: false, priority: 0.5, name: "plain" };
        let mut world = Self {
            device,
            random: Random(seed),
            streams: (0..STREAMS)
                .map(|_| device.create_stream(StreamSpec::default()).unwrap())
                .collect(),
            model: vec![vec![0; page_bytes as usize]; 1 + PAGES as usize],
            plain: device.create_plain(&spec).unwrap().space,
            paged: paging.reserve(class, 2 * PAGES * page_bytes).unwrap().space,
            pages: (0..PAGES).map(|_| paging.create(class, page_bytes, false).unwrap()).collect(),
            page_bytes,
            windows: vec![None; 2 * PAGES as usize],
            touches: Vec::new(),
            reads: Vec::new(),
            reports: Vec::new(),
            xor: device.compute().unwrap().load(&xor_kernel()).unwrap(),
        };
        for window in 0..world.windows.len() {
            world.map(window, window % PAGES as usize);
        }
        for window in 0..=PAGES as usize {
            let (place, shown) = world.whole(window);
            world.fill(place, shown, world.page_bytes, window as u32);
        }
        world
    }

    /// Window 0 is the plain segment, the others are the paged space's.
    fn whole(&self, window: usize) -> (Place, Shown) {
        match window.checked_sub(1) {
            None => (Place { space: self.plain, offset: 0 }, (0, 0)),
            Some(at) => {
                let offset = at as u64 * self.page_bytes;
                (Place { space: self.paged, offset }, (1 + self.windows[at].unwrap(), 0))
            }
        }
    }

    /// A random range within one window; offset and bytes are multiples of `unit`.
    fn range(&mut self, unit: u64) -> (Place, Shown, u64) {
        let window = self.random.below(1 + self.windows.len() as u64) as usize;
        let (place, (memory, _)) = self.whole(window);
        let units = self.page_bytes / unit;
        let start = self.random.below(units);
        let most = (units - start).min(1 + self.random.below(4096));
        let bytes = (1 + self.random.below(most)) * unit;
        let offset = start * unit;
        (Place { offset: place.offset + offset, ..place }, (memory, offset), bytes)
    }

    /// A random stream, made to wait for all that touches the ranges.
    fn stream(&mut self, ranges: &[(Shown, u64, bool)]) -> StreamId {
        let stream = self.streams[self.random.below(STREAMS as u64) as usize];
        let points: Vec<SyncPoint> = self
            .touches
            .iter()
            .filter(|touch| {
                ranges.iter().any(|&((memory, start), bytes, write)| {
                    touch.memory == memory
                        && touch.start < start + bytes
                        && start < touch.end
                        && (touch.write || write)
                })
            })
            .map(|touch| touch.point)
            .collect();
        self.device.wait_on_stream(stream, &points).unwrap();
        stream
    }

    fn note(&mut self, point: SyncPoint, ranges: &[(Shown, u64, bool)]) {
        for &((memory, start), bytes, write) in ranges {
            self.touches.push(Touch { memory, start, end: start + bytes, write, point });
        }
    }

    fn bytes(&mut self, (memory, start): Shown, bytes: u64) -> &mut [u8] {
        &mut self.model[memory][start as usize..(start + bytes) as usize]
    }

    fn fill(&mut self, place: Place, shown: Shown, bytes: u64, word: u32) {
        let uses = [(shown, bytes, true)];
        let stream = self.stream(&uses);
        let point = self.device.fill(stream, place, bytes, word).unwrap();
        self.bytes(shown, bytes).chunks_mut(4).for_each(|w| w.copy_from_slice(&word.to_le_bytes()));
        self.note(point, &uses);
    }

    fn write(&mut self) {
        let (place, shown, bytes) = self.range(1);
        let data: Vec<u8> = (0..bytes).map(|_| self.random.below(256) as u8).collect();
        let uses = [(shown, bytes, true)];
        let stream = self.stream(&uses);
        let point = self.device.write(stream, place, &data).unwrap();
        self.bytes(shown, bytes).copy_from_slice(&data);
        self.note(point, &uses);
    }

    fn copy(&mut self, by_kernel: bool) {
        let unit = if by_kernel { 16 } else { 4 };
        let (from, source, bytes) = self.range(unit);
        let (to, target, most) = self.range(unit);
        let bytes = bytes.min(most);
        // The same bytes may be at both places, by two mappings.
        if source.0 == target.0 && source.1.abs_diff(target.1) < bytes {
            return;
        }
        let uses = [(source, bytes, false), (target, bytes, true)];
        let stream = self.stream(&uses);
        let ops = [CopyOp { from, to, bytes }];
        let point = if by_kernel {
            self.device.compute().unwrap().gather(stream, &ops)
        } else {
            self.device.copy(stream, &ops)
        };
        let data = self.bytes(source, bytes).to_vec();
        self.bytes(target, bytes).copy_from_slice(&data);
        self.note(point.unwrap(), &uses);
    }

    fn pattern(&mut self) {
        let (place, shown, bytes) = self.range(4);
        let seed = self.random.below(u64::MAX);
        let uses = [(shown, bytes, true)];
        let stream = self.stream(&uses);
        let region = Region { place, bytes, seed };
        let compute = self.device.compute().unwrap();
        let point = compute.fill_pattern(stream, &[region]).unwrap();
        for (index, word) in (0..).zip(self.bytes(shown, bytes).chunks_mut(4)) {
            word.copy_from_slice(&pattern::word(seed, index).to_le_bytes());
        }
        let verify = compute.verify(stream, &[region]).unwrap();
        self.note(point, &uses);
        self.note(verify.point, &[(shown, bytes, false)]);
        self.reports.push((verify, vec![0]));
    }

    fn checksum(&mut self) {
        let (place, shown, bytes) = self.range(4);
        let uses = [(shown, bytes, false)];
        let stream = self.stream(&uses);
        let region = Region { place, bytes, seed: 0 };
        let ticket = self.device.compute().unwrap().checksum(stream, &[region]).unwrap();
        let words = self.bytes(shown, bytes).chunks(4).map(|w| w.try_into().unwrap());
        let sum = pattern::checksum(words.map(u32::from_le_bytes).collect::<Vec<_>>());
        self.reports.push((ticket, vec![sum]));
        self.note(ticket.point, &uses);
    }

    fn dispatch(&mut self) {
        let (place, shown, bytes) = self.range(16);
        let uses = [(shown, bytes, true)];
        let stream = self.stream(&uses);
        let push = [self.random.below(256) as u8];
        let binding = Binding { place, bytes, access: Access::Write };
        let compute = self.device.compute().unwrap();
        let point = compute.dispatch(stream, self.xor, &[binding], &push, [1; 3]).unwrap();
        self.bytes(shown, bytes).iter_mut().for_each(|byte| *byte ^= push[0]);
        self.note(point, &uses);
    }

    fn read(&mut self) {
        let (place, shown, bytes) = self.range(1);
        let uses = [(shown, bytes, false)];
        let stream = self.stream(&uses);
        let ticket = self.device.read(stream, place, bytes).unwrap();
        let expected = self.bytes(shown, bytes).to_vec();
        self.reads.push((ticket, expected));
        self.note(ticket.point, &uses);
    }

    fn map(&mut self, window: usize, page: usize) {
        let at = Place { space: self.paged, offset: window as u64 * self.page_bytes };
        let (memory, bytes) = (self.pages[page], self.page_bytes);
        let op = MapOp { at, memory, memory_offset: 0, bytes };
        let bound = self.device.paging().unwrap().map(&[op], &[]).unwrap();
        self.await_all(bound);
        self.windows[window] = Some(page);
    }

    /// Shows another page in a window, once nothing uses it.
    fn remap(&mut self) {
        let window = self.random.below(self.windows.len() as u64) as usize;
        let page = self.random.below(PAGES) as usize;
        for stream in self.streams.clone() {
            let mark = self.device.mark(stream).unwrap();
            self.await_all(Some(mark));
        }
        let at = Place { space: self.paged, offset: window as u64 * self.page_bytes };
        let op = UnmapOp { at, bytes: self.page_bytes };
        let dropped = self.device.paging().unwrap().unmap(&[op], &[]).unwrap();
        self.await_all(dropped);
        self.map(window, page);
        self.touches.clear();
    }

    fn await_all(&self, point: Option<SyncPoint>) {
        if let Some(point) = point {
            assert_eq!(self.device.wait_any(&[point], Duration::from_secs(60)), Ok(true));
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0 => self.remap(),
            1..=5 => {
                let (place, shown, bytes) = self.range(4);
                let word = self.random.below(1 << 32) as u32;
                self.fill(place, shown, bytes, word);
            }
            6..=10 => self.write(),
            11..=17 => self.copy(false),
            18..=23 => self.copy(true),
            24..=27 => self.pattern(),
            28..=31 => self.checksum(),
            32..=35 => self.dispatch(),
            _ => self.read(),
        }
    }

    fn finish(mut self) {
        for window in 0..=self.windows.len() {
            let (place, shown) = self.whole(window);
            let uses = [(shown, self.page_bytes, false)];
            let stream = self.stream(&uses);
            let ticket = self.device.read(stream, place, self.page_bytes).unwrap();
            let expected = self.model[shown.0].clone();
            self.reads.push((ticket, expected));
        }
        for (ticket, expected) in std::mem::take(&mut self.reads) {
            self.await_all(Some(ticket.point));
            let found = self.device.take_read(ticket).unwrap();
            let differ = found.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!((found.len(), differ), (expected.len(), None), "{ticket:?}");
        }
        for (ticket, expected) in std::mem::take(&mut self.reports) {
            self.await_all(Some(ticket.point));
            assert_eq!(self.device.compute().unwrap().take_report(ticket).unwrap(), expected);
        }
    }
}

fn random_work_matches_the_model(device: &dyn Device, seed: u64, steps: usize) {
    println!("TERRANE_SEED={seed}");
    let mut world = World::new(device, seed);
    for _ in 0..steps {
        world.step();
    }
    world.finish();
}

#[test]
fn random_work_on_the_modelled_cuda_matches_plain_arrays() {
    for seed in seeds(3) {
        let rule = sim::Completion::Modelled;
        let device = sim::Sim::cuda().granularity(1 << 16).bytes(true).completion(rule).open();
        random_work_matches_the_model(&device, seed, 300);
        assert_eq!(device.violations(), []);
    }
}

#[test]
fn random_work_on_the_modelled_vulkan_matches_plain_arrays() {
    for seed in seeds(3) {
        let rule = sim::Completion::After(3_000);
        let device = sim::Sim::vulkan().bytes(true).completion(rule).open();
        random_work_matches_the_model(&device, seed, 300);
        assert_eq!(device.violations(), []);
    }
}

#[cfg(all(feature = "host", target_os = "linux"))]
#[test]
fn random_work_on_the_host_matches_plain_arrays() {
    for (seed, workers) in seeds(6).into_iter().zip([1, 2, 4, 8].into_iter().cycle()) {
        let device = host::Host::new().limit(64 << 20).workers(workers).open().unwrap();
        random_work_matches_the_model(&*device, seed, 400);
    }
}
