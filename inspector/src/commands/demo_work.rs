//! Kernels over blocks without pause: each round verifies what the round before wrote into a
//! block and writes something new.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use terrane_core::device::{Compute, Device, Region, StreamId, Ticket};
use terrane_core::{Allocator, Handle};

use crate::source::Opened;

/// Blocks of one submission: they can not move while it is open.
const TOGETHER: usize = 8;
/// Submissions whose checks have not been looked at, at most.
const AHEAD: usize = 32;

/// What the kernels did.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Rounds over all blocks that were completed.
    pub rounds: u64,
    /// Kernels submitted.
    pub kernels: u64,
    /// Bytes compared with their pattern.
    pub verified_bytes: u64,
    /// Words that differ from it.
    pub mismatches: u64,
    /// Host time of each submission, resolving and closing included.
    pub submit_us: Vec<u64>,
}

/// The program that computes.
pub struct Worker {
    device: std::sync::Arc<dyn Device>,
    alloc: Allocator,
    streams: [StreamId; 2],
    blocks: Vec<(Handle, u64)>,
    stopped: AtomicBool,
}

impl Worker {
    /// Over these blocks, each with its bytes.
    ///
    /// # Errors
    /// The device's.
    pub fn new(opened: &Opened, alloc: &Allocator, blocks: Vec<(Handle, u64)>) -> Result<Self> {
        let device = opened.device.clone();
        let streams =
            [device.create_stream(Default::default())?, device.create_stream(Default::default())?];
        let worker =
            Self { device, alloc: alloc.clone(), streams, blocks, stopped: AtomicBool::new(false) };
        for group in 0..worker.groups() {
            worker.submit(group, 0, None)?;
        }
        Ok(worker)
    }

    /// Live blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Ends the rounds after the present one.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Frees the blocks.
    ///
    /// # Errors
    /// None in a sound build.
    pub fn free(&self) -> Result<()> {
        self.blocks.iter().try_for_each(|(handle, _)| Ok(self.alloc.free(*handle)?))
    }

    fn groups(&self) -> usize {
        self.blocks.len().div_ceil(TOGETHER)
    }

    /// Rounds until it is stopped; at least one after that, so that everything that moved is
    /// verified where it is now.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self) -> Result<Rounds> {
        let mut rounds = Rounds::default();
        let mut tickets = VecDeque::new();
        loop {
            let last = self.stopped.load(Ordering::Relaxed);
            for group in 0..self.groups() {
                let begin = Instant::now();
                let ticket = self.submit(group, rounds.rounds + 1, Some(rounds.rounds))?;
                rounds.submit_us.push(begin.elapsed().as_micros() as u64);
                rounds.kernels += 2;
                tickets.extend(ticket.map(|ticket| (ticket, group)));
                while tickets.len() > AHEAD {
                    self.look(&mut rounds, tickets.pop_front())?;
                }
            }
            rounds.rounds += 1;
            if last {
                break;
            }
        }
        while !tickets.is_empty() {
            self.look(&mut rounds, tickets.pop_front())?;
        }
        Ok(rounds)
    }

    /// Verifies what the group holds, if it holds something, and writes the next round's.
    fn submit(&self, group: usize, next: u64, last: Option<u64>) -> Result<Option<Ticket>> {
        let compute = self.compute()?;
        let stream = self.streams[group % 2];
        let from = group * TOGETHER;
        let blocks = &self.blocks[from..(from + TOGETHER).min(self.blocks.len())];
        let mut submission = self.alloc.submit(stream);
        let mut regions = Vec::with_capacity(blocks.len());
        for (at, (handle, bytes)) in blocks.iter().enumerate() {
            let place = submission.resolve(*handle)?.place;
            regions.push(Region { place, bytes: *bytes, seed: (from + at) as u64 });
        }
        let of_round = |round: u64| -> Vec<Region> {
            let seeded = |r: &Region| Region { seed: r.seed | round << 32, ..*r };
            regions.iter().map(seeded).collect()
        };
        let ticket = last.map(|round| compute.verify(stream, &of_round(round))).transpose()?;
        submission.close_at(compute.fill_pattern(stream, &of_round(next))?);
        Ok(ticket)
    }

    fn look(&self, rounds: &mut Rounds, ticket: Option<(Ticket, usize)>) -> Result<()> {
        let Some((ticket, group)) = ticket else { return Ok(()) };
        self.alloc.wait(ticket.point, Duration::from_secs(60))?;
        rounds.mismatches += self.compute()?.take_report(ticket)?.iter().sum::<u64>();
        let blocks = self.blocks.iter().skip(group * TOGETHER).take(TOGETHER);
        rounds.verified_bytes += blocks.map(|(_, bytes)| bytes).sum::<u64>();
        Ok(())
    }

    fn compute(&self) -> Result<&dyn Compute> {
        self.device.compute().context("the device runs no kernels")
    }
}
