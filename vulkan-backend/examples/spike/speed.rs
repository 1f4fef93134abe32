//! How fast: sparse against plain, kernel against copy command, and blocks above 4 GiB.

use std::error::Error;

use serde_json::json;
use terrane_core::device::{CopyOp, Device, Place, Region};
use terrane_vulkan::{OpenOptions, Part, Parts, Selector, Timed, open};

use crate::{Answer, GIB, KIB, MIB, Slabs, Spike};

impl Spike {
    pub fn sparse_against_plain(&self) -> Answer {
        let whole = 2 * GIB / self.shrink;
        let granularity = self.device.caps().paging.ok_or("the device can not page")?.granularity;
        let mut rows = Vec::new();
        let mut measure = |name: String, bytes: u64, from, to| -> Result<(), Box<dyn Error>> {
            let rate = |ns: f64, times: u64| (bytes * times) as f64 / ns;
            let region = Region { place: from, bytes, seed: 3 };
            let ops = [CopyOp { from, to, bytes }];
            let fill = self.best(Timed::FillPattern(&[region]))?;
            let gather = self.best(Timed::Gather(&ops))?;
            let wrong = self.mismatches(&[Region { place: to, ..region }])?;
            let copy = self.best(Timed::Copy(&ops))?;
            rows.push(json!({ "memory": name, "bytes": bytes, "wrong_words": wrong,
                "cold_fill_gb_s": rate(fill.cold_ns, 1), "fill_gb_s": rate(fill.ns, 1),
                "gather_gb_s": rate(gather.ns, 2), "copy_gb_s": rate(copy.ns, 2) }));
            Ok(())
        };
        let slabs = self.slabs(2 * whole, whole)?;
        let at = |space| Place { space, offset: 0 };
        measure("plain".into(), whole, at(slabs.spaces[0]), at(slabs.spaces[1]))?;
        drop(slabs);
        // The time of a bind grows faster than its number of pages, so fewer of the small ones.
        for (page, bytes) in [(granularity, whole / 4), ((2 * MIB).max(granularity), whole)] {
            let (a, b) = (self.paged(bytes, page)?, self.paged(bytes, page)?);
            measure(format!("sparse, pages of {page}"), bytes, at(a.space), at(b.space))?;
        }
        Ok(json!({ "rows": rows }))
    }

    pub fn gather_against_copy(&self) -> Answer {
        let (mut rows, mut single) = (Vec::new(), 0.0_f64);
        let bound = open(
            &Selector::Uuid(self.device.info().uuid.unwrap_or_default()),
            &OpenOptions {
                without: Parts::default().with(Part::BufferDeviceAddress),
                ..Default::default()
            },
        )?;
        let bound = Spike::new(bound)?;
        // The allocator's slabs are of 256 MiB.
        for (name, count, small, large, slab) in [
            ("one of 2 GiB", 1, 2 * GIB, 2 * GIB, 2 * GIB),
            ("65,536 of 64 KiB", 65_536, 64 * KIB, 64 * KIB, 256 * MIB),
            ("4,096 of 1 MiB", 4096, MIB, MIB, 256 * MIB),
            ("512 of 16 MiB", 512, 16 * MIB, 16 * MIB, 256 * MIB),
            ("10,000 of 64 KiB to 16 MiB", 10_000, 64 * KIB, 16 * MIB, 2 * GIB),
            ("10,000 of 64 KiB to 16 MiB", 10_000, 64 * KIB, 16 * MIB, 256 * MIB),
        ] {
            let count = if count == 1 { 1 } else { (count / self.shrink).max(8) };
            let shrink = if count == 1 { self.shrink } else { 1 };
            let sizes = sizes(count, small / shrink, large / shrink);
            let total: u64 = sizes.iter().sum();
            let slab = if count == 1 { slab / self.shrink } else { slab / self.shrink.min(8) };
            let mut row = json!({ "blocks": name, "count": count, "bytes": total, "slab": slab });
            for (kind, spike) in [("address", self), ("binding", &bound)] {
                let room = total + total / 8;
                let (from, to) = (spike.slabs(room, slab)?, spike.slabs(room, slab)?);
                let ops = place(&sizes, &from, &to)?;
                let seeds = |goal: bool| -> Vec<Region> {
                    let place = |op: &CopyOp| if goal { op.to } else { op.from };
                    (0..)
                        .zip(&ops)
                        .map(|(seed, op)| Region { place: place(op), bytes: op.bytes, seed })
                        .collect()
                };
                spike.compute()?.fill_pattern(spike.stream, &seeds(false))?;
                let rate = |ns: f64| 2.0 * total as f64 / ns;
                let best = spike.best(Timed::Gather(&ops))?;
                row[format!("gather_by_{kind}_gb_s")] = json!(rate(best.ns));
                row[format!("cold_gather_by_{kind}_gb_s")] = json!(rate(best.cold_ns));
                row[format!("gather_by_{kind}_wrong_words")] =
                    json!(spike.mismatches(&seeds(true))?);
                let copy = match kind {
                    "address" => rate(spike.best(Timed::Copy(&ops))?.ns),
                    _ => 0.0,
                };
                if kind == "address" {
                    row["copy_gb_s"] = json!(copy);
                }
                if count == 1 {
                    single = single.max(copy).max(rate(best.ns));
                }
                row[format!("gather_by_{kind}_of_fastest_single_copy")] =
                    json!(rate(best.ns) / single);
            }
            rows.push(row);
        }
        Ok(json!({ "rows": rows, "fastest_single_copy_gb_s": single }))
    }

    pub fn large_fill_and_verify(&self) -> Answer {
        let bytes = if self.shrink == 1 { 6 * GIB } else { 768 * MIB };
        let (a, b) = (self.paged(bytes, 2 * MIB)?, self.paged(bytes, 2 * MIB)?);
        let region = |space, seed| Region { place: Place { space, offset: 0 }, bytes, seed };
        let (from, to) = (region(a.space, 77), region(b.space, 77));
        let fill = self.best(Timed::FillPattern(&[from]))?;
        let sampled = self.sampled(&from)?;
        let wrong = self.mismatches(&[from])?;
        let mut ticket = self.compute()?.checksum(self.stream, &[from])?;
        self.wait(ticket.point)?;
        let before = self.compute()?.take_report(ticket)?;
        let op = [CopyOp { from: from.place, to: to.place, bytes }];
        let gather = self.best(Timed::Gather(&op))?;
        let moved = (self.mismatches(&[to])?, self.sampled(&to)?);
        ticket = self.compute()?.checksum(self.stream, &[to])?;
        self.wait(ticket.point)?;
        let after = self.compute()?.take_report(ticket)?;
        // One word changed anywhere must be found.
        let odd = Place { space: b.space, offset: bytes - 4 };
        self.device.fill(self.stream, odd, 4, 1)?;
        let found = self.mismatches(&[to])?;
        Ok(json!({
            "bytes": bytes, "fill_gb_s": bytes as f64 / fill.ns,
            "gather_gb_s": 2.0 * bytes as f64 / gather.ns,
            "wrong_words": wrong, "wrong_samples": sampled, "moved_wrong_words": moved.0,
            "moved_wrong_samples": moved.1, "checksums_equal": before == after,
            "one_changed_word_found": found == 1,
        }))
    }
}

/// Sizes spread evenly over the powers between two sizes, multiples of 16.
fn sizes(count: u64, small: u64, large: u64) -> Vec<u64> {
    let ratio = large as f64 / small as f64;
    let part = |i: u64| (i * 7919 % count) as f64 / count.max(2) as f64;
    (0..count).map(|i| (small as f64 * ratio.powf(part(i))) as u64 / 16 * 16).collect()
}

/// Copies of those sizes from slabs to slabs, the targets in the opposite order.
fn place(sizes: &[u64], from: &Slabs<'_>, to: &Slabs<'_>) -> Result<Vec<CopyOp>, &'static str> {
    let pack = |sizes: &mut dyn Iterator<Item = u64>, slabs: &Slabs<'_>| {
        let (mut slab, mut offset, mut places) = (0, 0, Vec::new());
        for bytes in sizes {
            if offset + bytes > slabs.bytes {
                (slab, offset) = (slab + 1, 0);
            }
            let space = *slabs.spaces.get(slab).ok_or("the slabs are too small")?;
            places.push(Place { space, offset });
            offset += bytes;
        }
        Ok(places)
    };
    let sources = pack(&mut sizes.iter().copied(), from)?;
    let mut targets = pack(&mut sizes.iter().rev().copied(), to)?;
    targets.reverse();
    let op = |((from, to), bytes)| CopyOp { from, to, bytes };
    Ok(sources.into_iter().zip(targets).zip(sizes.iter().copied()).map(op).collect())
}
