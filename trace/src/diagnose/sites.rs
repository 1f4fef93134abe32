//! Who holds the memory: live bytes by the place in the program that asked for them.

use super::timeline::{reserved_before, walk};
use crate::Op;
use crate::snapshot::{Frame, FrameId, History, Snapshot, StackId};
use serde::Serialize;
use std::collections::HashMap;

/// What makes two blocks belong to the same site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SiteBy {
    /// The innermost frame.
    Top,
    /// The innermost frame that is not of an installed package or of Python itself.
    User,
    /// The source file of that frame.
    Module,
    /// The whole stack.
    Stack,
}

/// When to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// When active bytes are largest.
    Peak,
    /// After the last event.
    End,
    /// After so many events of the trace.
    After(usize),
}

/// Live bytes of one site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteRow {
    /// `file:line function`, a file, or a whole stack, innermost first.
    pub site: String,
    /// Bytes asked for.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Live bytes by site at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sites {
    /// Events of the trace before this moment.
    pub event: u64,
    /// All live bytes, freed and still in use included.
    pub bytes: u64,
    /// By bytes, largest first; sites with equal bytes by name.
    pub rows: Vec<SiteRow>,
    /// Bytes of blocks without any frame: C++ threads (autograd) and settings that record none.
    pub bytes_without_frames: u64,
    /// Bytes of blocks that were allocated before the history begins.
    pub bytes_from_earlier: u64,
}

/// Live bytes by site.
#[must_use]
pub fn sites(snapshot: &Snapshot, history: &History, moment: Moment, by: SiteBy) -> Sites {
    let events = history.trace.events();
    let event = match moment {
        Moment::End => events.len(),
        Moment::After(count) => count.min(events.len()),
        Moment::Peak => {
            let start = reserved_before(snapshot, history);
            // The first of equal peaks.
            let peak = walk(history, start).max_by_key(|p| (p.active, u64::MAX - p.event));
            peak.map_or(0, |point| point.event as usize)
        }
    };
    let mut live: HashMap<u32, u64> = HashMap::new();
    for event in &events[..event] {
        match event.op {
            Op::Alloc => _ = live.insert(event.block, event.bytes),
            Op::FreeRequested => {}
            Op::FreeCompleted => _ = live.remove(&event.block),
        }
    }
    let earlier = history.gaps.earlier_blocks;
    let mut names = Names { snapshot, by, known: HashMap::new() };
    let mut rows: HashMap<String, SiteRow> = HashMap::new();
    let mut sites = Sites {
        event: event as u64,
        bytes: live.values().sum(),
        rows: Vec::new(),
        bytes_without_frames: 0,
        bytes_from_earlier: 0,
    };
    for (block, bytes) in live {
        let stack = history.blocks.get(block as usize).and_then(|origin| origin.stack);
        match stack {
            None if u64::from(block) < earlier => sites.bytes_from_earlier += bytes,
            None => sites.bytes_without_frames += bytes,
            Some(stack) => {
                let site = names.of(stack).to_owned();
                let fresh = || SiteRow { site: site.clone(), bytes: 0, blocks: 0 };
                let row = rows.entry(site.clone()).or_insert_with(fresh);
                row.bytes += bytes;
                row.blocks += 1;
            }
        }
    }
    sites.rows = rows.into_values().collect();
    sites.rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    sites
}

/// What is live at the peak, by the program's own lines.
#[must_use]
pub fn peak(snapshot: &Snapshot, history: &History) -> Sites {
    peak_by(snapshot, history, SiteBy::User)
}

/// What is live at the peak.
#[must_use]
pub fn peak_by(snapshot: &Snapshot, history: &History, by: SiteBy) -> Sites {
    sites(snapshot, history, Moment::Peak, by)
}

/// Names of sites, made once for each stack.
pub(super) struct Names<'a> {
    pub snapshot: &'a Snapshot,
    pub by: SiteBy,
    pub known: HashMap<StackId, String>,
}

impl Names<'_> {
    pub(super) fn of(&mut self, stack: StackId) -> &str {
        let (snapshot, by) = (self.snapshot, self.by);
        self.known.entry(stack).or_insert_with(|| site_name(snapshot, stack, by))
    }
}

fn line(snapshot: &Snapshot, frame: Frame) -> String {
    let (file, name) = (snapshot.strings.get(frame.file), snapshot.strings.get(frame.name));
    match (frame.line, name) {
        (0, name) => format!("{file} {name}").trim_end().to_owned(),
        (line, name) => format!("{file}:{line} {name}").trim_end().to_owned(),
    }
}

impl Snapshot {
    /// The frames of a stack as `file:line function`, innermost first.
    #[must_use]
    pub fn stack_lines(&self, stack: StackId) -> Vec<String> {
        let frames = self.stacks.get(stack).iter().filter_map(|id| self.stacks.frame(*id));
        frames.map(|frame| line(self, frame)).collect()
    }
}

/// The name of the site that a stack belongs to.
#[must_use]
pub fn site_name(snapshot: &Snapshot, stack: StackId, by: SiteBy) -> String {
    let frames = snapshot.stacks.get(stack);
    let frame = |id: &FrameId| snapshot.stacks.frame(*id);
    let user = || frames.iter().filter_map(frame).find(|frame| is_user(snapshot, frame));
    let top = || frames.iter().find_map(frame);
    let line = |frame: Frame| line(snapshot, frame);
    match by {
        SiteBy::Top => top().map(line),
        SiteBy::User => user().or_else(top).map(line),
        SiteBy::Module => {
            user().or_else(top).map(|frame| snapshot.strings.get(frame.file).to_owned())
        }
        SiteBy::Stack => Some(snapshot.stack_lines(stack).join(" < ")),
    }
    .unwrap_or_default()
}

/// A frame of the program itself: a file that is not installed and is not of C++ or Python.
fn is_user(snapshot: &Snapshot, frame: &Frame) -> bool {
    let file = snapshot.strings.get(frame.file);
    let installed = ["site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>"];
    let native = ["??", ".cpp", ".cc", ".cu", ".h", ".so"];
    !installed.iter().any(|part| file.contains(part))
        && !native.iter().any(|end| file.ends_with(end))
        && !file.is_empty()
}
