//! Replays a recorded workload through [`Pages`]. Nothing is reused before it was freed for good
//! in the recording, so no wait is ever needed; stale mappings are dropped after each request.

use std::fmt;
use std::path::PathBuf;

use super::cost::Cost;
use terrane_core::pages::{Backing, BlockId, ObjectId, Pages, Plan, Policy, Request, Room, Step};
use terrane_core::point::{Points, StreamId};
use terrane_core::units::Align;
use terrane_trace::{Limits, Op, Trace, open_csv};

pub const TRACES: [&str; 6] = [
    "bert_large_ckpt",
    "gpt2_varlen",
    "llm_serving",
    "lora_recompute_offload",
    "multistream",
    "resnet50_amp",
];

const GRANULE: u64 = 2 << 20;
/// Blocks start at multiples of this, and their sizes are rounded up to it.
const ROUNDING: u64 = 512;

pub fn trace(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).expect(name)
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Figures {
    pub name: &'static str,
    pub requested_peak: u64,
    pub reserved_peak: u64,
    pub mapping_us: f64,
    /// Mapping after the first tenth of the events, and after the first tenth of the time.
    pub late_us: f64,
    pub late_by_time_us: f64,
    pub late_bytes: u64,
    pub recorded_us: u64,
    pub pages: usize,
    pub steals: u64,
    pub completed: bool,
}

impl Figures {
    pub fn ratio(&self) -> f64 {
        self.reserved_peak as f64 / self.requested_peak as f64
    }

    pub fn share(&self) -> f64 {
        self.late_us / self.recorded_us as f64
    }

    pub fn us_per_gib(&self) -> f64 {
        self.late_us / (self.late_bytes as f64 / (1_u64 << 30) as f64)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} | {:.4} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {}",
            self.name,
            self.ratio(),
            self.share() * 100.0,
            self.late_by_time_us / self.recorded_us as f64 * 100.0,
            self.us_per_gib(),
            self.mapping_us / 1_000.0,
            self.pages,
            self.steals,
        )
    }
}

struct Replay {
    pages: Pages,
    cost: Cost,
    spent_us: f64,
    /// The part of it that went into steals and releases.
    stealing_us: f64,
    next_object: u64,
    steals: u64,
    capacity: Option<u64>,
}

impl Replay {
    fn alloc(&mut self, bytes: u64, now: u64) -> Option<BlockId> {
        let bytes = bytes.max(1).next_multiple_of(ROUNDING);
        let request = Request {
            bytes,
            align: Align::new(ROUNDING).unwrap(),
            stream: StreamId(0),
            may_wait: false,
        };
        let room = match self.capacity {
            None => self.pages.room(bytes, u64::MAX),
            Some(capacity) => {
                let left = capacity.saturating_sub(self.pages.usage().reserved);
                Room { before_stealing: left, at_most: left }
            }
        };
        let plan = self.pages.find(&request, now, room).ok()?;
        let before = self.stealing_us;
        let backings = self.perform(&plan);
        let reservation = self.pages.reserve(plan).unwrap();
        let block = reservation.block();
        let ticks = ((self.stealing_us - before) * 1_000.0) as u64;
        self.pages.commit(reservation, &backings, ticks, &Points::NONE).unwrap();
        for stale in self.pages.drop_stale(usize::MAX) {
            self.pages.unmapped(&stale).unwrap();
        }
        Some(block)
    }

    /// The memory objects that the device would make, and the time its calls would take, the
    /// unmapping that follows a steal included.
    fn perform(&mut self, plan: &Plan) -> Vec<Backing> {
        let mut backings = Vec::new();
        for step in &plan.steps {
            match *step {
                Step::Create { bytes, .. } => {
                    let object = ObjectId(self.next_object);
                    self.next_object += 1;
                    backings.push(Backing { object, object_bytes: bytes, offset: 0, bytes });
                    self.spent_us += self.cost.create(bytes) + self.cost.map(bytes);
                }
                Step::Steal { backing, .. } => {
                    self.steals += 1;
                    self.steal(self.cost.map(backing.bytes) + self.cost.unmap());
                }
                Step::Release { backing, .. } => {
                    self.steal(self.cost.unmap() + self.cost.release(backing.bytes));
                }
            }
        }
        backings
    }

    fn steal(&mut self, us: f64) {
        self.spent_us += us;
        self.stealing_us += us;
    }
}

fn requested_peak(trace: &Trace) -> u64 {
    let (mut live, mut peak) = (0, 0);
    for event in trace.iter() {
        match event.op {
            Op::Alloc => live += event.bytes,
            Op::FreeCompleted => live -= event.bytes,
            Op::FreeRequested => {}
        }
        peak = peak.max(live);
    }
    peak
}

/// Replays with CUDA's granularity. `capacity`, in parts of the peak requested, is a hard limit
/// under which pages are stolen only when it is reached.
pub fn replay(
    name: &'static str,
    trace: &Trace,
    policy: Policy,
    cost: Cost,
    capacity: Option<f64>,
) -> Figures {
    let requested = requested_peak(trace);
    let granule = Align::new(GRANULE).unwrap();
    let mut replay = Replay {
        pages: Pages::new(granule, 1 << 42, policy).unwrap(),
        cost,
        spent_us: 0.0,
        stealing_us: 0.0,
        next_object: 0,
        steals: 0,
        capacity: capacity.map(|factor| (requested as f64 * factor) as u64 / GRANULE * GRANULE),
    };
    let mut blocks: Vec<Option<BlockId>> = vec![None; trace.block_count() as usize];
    let recorded_us = trace.events().last().map_or(0, |event| event.time_us);
    let (mut early_us, mut early_by_time_us, mut late_bytes) = (0.0, 0.0, 0);
    let (mut completed, tenth) = (true, trace.events().len() / 10);
    for (step, event) in trace.iter().enumerate() {
        if step == tenth {
            early_us = replay.spent_us;
        }
        if event.time_us <= recorded_us / 10 {
            early_by_time_us = replay.spent_us;
        }
        match event.op {
            Op::Alloc => {
                let block = replay.alloc(event.bytes, event.time_us * 1_000);
                blocks[event.block as usize] = block;
                completed &= block.is_some();
                late_bytes += if step >= tenth { event.bytes } else { 0 };
            }
            Op::FreeCompleted => {
                if let Some(block) = blocks[event.block as usize].take() {
                    replay.pages.free(block, &Points::NONE, event.time_us).unwrap();
                }
            }
            Op::FreeRequested => {}
        }
        if !completed {
            break;
        }
    }
    replay.pages.check().unwrap();
    Figures {
        name,
        requested_peak: requested,
        reserved_peak: replay.pages.usage().reserved_peak,
        mapping_us: replay.spent_us,
        late_us: replay.spent_us - early_us,
        late_by_time_us: replay.spent_us - early_by_time_us,
        late_bytes,
        recorded_us,
        pages: replay.pages.usage().pages,
        steals: replay.steals,
        completed,
    }
}
