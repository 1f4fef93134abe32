//! Memory, order, pages and views.

use std::time::{Duration, Instant};

use ash::vk::{self, Handle};
use serde_json::json;
use terrane_core::device::{
    CopyOp, Device, HeapId, MapOp, MemoryKind, Place, Region, StreamSpec, SyncPoint, UnmapOp,
};

use crate::{Answer, GIB, KIB, MIB, Spike};

impl Spike {
    pub fn plain_segments(&self) -> Answer {
        let mut times = Vec::new();
        for bytes in [64 * KIB, 2 * MIB, 64 * MIB, 256 * MIB, GIB, 4 * GIB] {
            let bytes = (bytes / self.shrink).max(64 * KIB);
            let start = Instant::now();
            let slabs = self.slabs(bytes, bytes)?;
            let made = start.elapsed();
            drop(slabs);
            let released = start.elapsed() - made;
            times.push(json!({ "bytes": bytes, "create_us": made.as_secs_f64() * 1e6,
                               "release_us": released.as_secs_f64() * 1e6 }));
        }
        let mut heaps = Vec::new();
        for (i, heap) in (0_u8..).zip(&self.device.caps().heaps) {
            let now = self.device.heap_use(HeapId(i))?;
            heaps.push(format!("{heap:?} {now:?}"));
        }
        Ok(json!({ "times": times, "heaps": heaps }))
    }

    pub fn batched_submit(&self) -> Answer {
        let slabs = self.slabs(16 * MIB, 16 * MIB)?;
        let streams: Vec<_> = (0..4)
            .map(|_| self.device.create_stream(StreamSpec::default()))
            .collect::<Result<_, _>>()?;
        let place = |i: u64| Place { space: slabs.spaces[0], offset: i * 4096 };
        let start = Instant::now();
        let mut points = Vec::new();
        for i in 0..1000_u64 {
            points.push(self.device.fill(streams[(i % 4) as usize], place(i), 4096, i as u32)?);
        }
        let submitted = start.elapsed();
        for point in points.iter().rev().take(4) {
            self.wait(*point)?;
        }
        let done = start.elapsed();
        let ops: Vec<_> = (0..1000)
            .map(|i| CopyOp { from: place(i), to: place(2000 + i), bytes: 4096 })
            .collect();
        let start = Instant::now();
        let point = self.device.copy(self.stream, &ops)?;
        let batch = start.elapsed();
        self.wait(point)?;
        let ticket = self.device.read(self.stream, place(2999), 4)?;
        self.wait(ticket.point)?;
        let last = self.device.take_read(ticket)?;
        for stream in streams {
            self.device.retire_stream(stream)?;
        }
        Ok(json!({
            "submit_us": submitted.as_secs_f64() * 1e3, "done_ms": done.as_secs_f64() * 1e3,
            "batch_of_1000_copies_submit_us": batch.as_secs_f64() * 1e6,
            "right": last == 999_u32.to_le_bytes(),
        }))
    }

    pub fn wait_any(&self) -> Answer {
        let bytes = (4 * GIB / self.shrink).min(self.device.caps().max_plain_bytes);
        let slabs = self.slabs(bytes, bytes)?;
        let (slow, quick) = (
            self.device.create_stream(StreamSpec::default())?,
            self.device.create_stream(StreamSpec { high_priority: true, copy_only: false })?,
        );
        let region = Region {
            place: Place { space: slabs.spaces[0], offset: 0 },
            bytes: slabs.bytes,
            seed: 1,
        };
        let mut long = None;
        for _ in 0..50 {
            long = Some(self.compute()?.fill_pattern(slow, &[region])?);
        }
        let long = long.ok_or("no work")?;
        let other = self.slabs(MIB, MIB)?;
        let short = self.device.fill(quick, Place { space: other.spaces[0], offset: 0 }, MIB, 1)?;
        let start = Instant::now();
        let one = self.device.wait_any(&[long, short], Duration::from_secs(60))?;
        let first = start.elapsed();
        let short_done = self.device.reached(quick)? >= { short.value };
        let long_done = self.device.reached(slow)? >= { long.value };
        self.wait(long)?;
        let all = start.elapsed();
        self.device.retire_stream(slow)?;
        self.device.retire_stream(quick)?;
        Ok(json!({ "one": one, "first_us": first.as_secs_f64() * 1e6,
                   "short_done": short_done, "long_done": long_done,
                   "all_us": all.as_secs_f64() * 1e6 }))
    }

    pub fn paged_segment(&self) -> Answer {
        let caps = self.device.caps().paging.ok_or("the device can not page")?;
        let mut rows = Vec::new();
        for (total, page) in [
            (2 * MIB, 2 * MIB),
            (GIB, caps.granularity),
            (GIB, 2 * MIB),
            (GIB, 16 * MIB),
            (GIB, GIB),
        ] {
            let (total, page) =
                ((total / self.shrink).max(2 * MIB), (page / self.shrink).max(caps.granularity));
            let start = Instant::now();
            let paged = self.paged(total, page)?;
            let submitted = start.elapsed();
            self.wait(paged.ready)?;
            let bound = start.elapsed();
            let region =
                Region { place: Place { space: paged.space, offset: 0 }, bytes: total, seed: 9 };
            self.compute()?.fill_pattern(self.stream, &[region])?;
            let (wrong, sampled) = (self.mismatches(&[region])?, self.sampled(&region)?);
            rows.push(json!({ "bytes": total, "page": page, "binds": paged.maps.len(),
                              "submit_us": submitted.as_secs_f64() * 1e6,
                              "bound_us": bound.as_secs_f64() * 1e6,
                              "wrong_words": wrong, "wrong_samples": sampled }));
        }
        Ok(json!({ "rows": rows, "lone_rebinds_us": self.rebinds()? }))
    }

    /// The median time of unmapping and mapping one page of 2 MiB, waited for, and of 32 in a
    /// batch.
    fn rebinds(&self) -> Answer {
        let paged = self.paged(64 * MIB, 2 * MIB)?;
        self.wait(paged.ready)?;
        let mut medians = Vec::new();
        for pages in [1, 32] {
            let ops = &paged.maps[..pages];
            let drops: Vec<_> =
                ops.iter().map(|op| UnmapOp { at: op.at, bytes: op.bytes }).collect();
            let mut times = Vec::new();
            for _ in 0..51 {
                let start = Instant::now();
                let gone = self.paging()?.unmap(&drops, &[])?;
                let back = self.paging()?.map(ops, gone.as_slice())?.ok_or("no point")?;
                self.wait(back)?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            medians.push(times[25]);
        }
        Ok(json!(medians))
    }

    pub fn aliasing(&self) -> Answer {
        let page =
            self.device.caps().paging.ok_or("the device can not page")?.granularity.max(2 * MIB);
        let paging = self.paging()?;
        let paged = self.paged(4 * page, page)?;
        let class = self.device.caps().classes_of(MemoryKind::Device).next().ok_or("no memory")?;
        let memory = paging.create(class, page, false)?;
        let twice = paging.reserve(class, 2 * page)?.space;
        let other = self.device.create_stream(StreamSpec::default())?;
        let op = |n| MapOp {
            at: Place { space: twice, offset: n * page },
            memory,
            memory_offset: 0,
            bytes: page,
        };
        let un = |n| UnmapOp { at: Place { space: twice, offset: n * page }, bytes: page };
        let (mut wrong, start, mut before) = (0, Instant::now(), None::<SyncPoint>);
        for round in 0..200_u64 {
            let first = paging.map(&[op(0)], before.as_slice())?.ok_or("no point")?;
            self.device.wait_on_stream(self.stream, &[first])?;
            let region = Region { place: op(0).at, bytes: page, seed: round };
            let written = self.compute()?.fill_pattern(self.stream, &[region])?;
            let second = paging.map(&[op(1)], &[])?.ok_or("no point")?;
            self.device.wait_on_stream(other, &[written, second])?;
            let gone = paging.unmap(&[un(0)], &[written])?.ok_or("no point")?;
            self.device.wait_on_stream(other, &[gone])?;
            let ticket = self.compute()?.verify(other, &[Region { place: op(1).at, ..region }])?;
            self.wait(ticket.point)?;
            wrong += self.compute()?.take_report(ticket)?[0];
            before = paging.unmap(&[un(1)], &[ticket.point])?;
        }
        let elapsed = start.elapsed();
        if let Some(point) = before {
            self.wait(point)?;
        }
        paging.release(memory)?;
        paging.unreserve(twice)?;
        self.device.retire_stream(other)?;
        drop(paged);
        Ok(
            json!({ "rounds": 200, "wrong_words": wrong, "round_us": elapsed.as_secs_f64() * 1e6 / 200.0 }),
        )
    }

    pub fn view_object(&self) -> Answer {
        let page = self.device.caps().paging.map_or(64 * KIB, |p| p.granularity.max(64 * KIB));
        let target = self.slabs(16 * MIB, 16 * MIB)?;
        let mut results = Vec::new();
        let plain = self.slabs(16 * MIB, 16 * MIB)?;
        let paged = self.paged(16 * MIB, page);
        let mut places =
            vec![("plain", Place { space: plain.spaces[0], offset: 256 * 3 }, 4 * page)];
        if let Ok(paged) = &paged {
            places.push(("paged", Place { space: paged.space, offset: 3 * page }, 5 * page));
        }
        for (name, place, bytes) in places {
            let region = Region { place, bytes, seed: 5 };
            self.compute()?.fill_pattern(self.stream, &[region])?;
            let start = Instant::now();
            let view = self.device.create_view(place, bytes)?;
            let made = start.elapsed();
            let goal = Place { space: target.spaces[0], offset: 0 };
            let raw = self.device.raw(goal)?;
            // SAFETY: both buffers are alive until the wait below, and as large as the copy.
            let point = unsafe {
                self.device.record(self.stream, |device, commands| {
                    let copy = [vk::BufferCopy::default().size(bytes)];
                    let from = vk::Buffer::from_raw(view.0);
                    device.cmd_copy_buffer(commands, from, raw.buffer, &copy);
                })
            }?;
            self.wait(point)?;
            let wrong = self.mismatches(&[Region { place: goal, ..region }])?;
            self.device.destroy_view(view)?;
            results.push(json!({ "segment": name, "wrong_words": wrong,
                                 "create_us": made.as_secs_f64() * 1e6 }));
        }
        Ok(json!({ "results": results }))
    }
}
