//! Collapsed stacks, for flame graphs.

use crate::snapshot::{History, Snapshot, StackId};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the bytes that are live after `events` events as `outermost;...;innermost bytes`, one
/// stack a line.
///
/// # Errors
/// The sink's.
pub fn stacks(
    snapshot: &Snapshot,
    history: &History,
    events: usize,
    mut sink: impl Write,
) -> io::Result<()> {
    let mut bytes: BTreeMap<Option<StackId>, u64> = BTreeMap::new();
    for (origin, life) in history.blocks.iter().zip(history.trace.lifetimes()) {
        if life.alloc < events && life.completed.is_none_or(|end| end >= events) {
            *bytes.entry(origin.stack).or_default() += life.bytes;
        }
    }
    for (stack, bytes) in bytes {
        let line = stack.map_or_else(|| "(no frames)".to_owned(), |id| line(snapshot, id));
        writeln!(sink, "{line} {bytes}")?;
    }
    sink.flush()
}

fn line(snapshot: &Snapshot, stack: StackId) -> String {
    let frames = snapshot.stacks.get(stack).iter().rev();
    let frames = frames.filter_map(|id| snapshot.stacks.frame(*id));
    let shown = frames.map(|frame| {
        let (file, name) = (snapshot.strings.get(frame.file), snapshot.strings.get(frame.name));
        let text = format!("{file}:{} {name}", frame.line);
        // The form's own separators.
        text.trim_end().replace(';', ",").replace('\n', " ")
    });
    shown.collect::<Vec<_>>().join(";")
}
