//! Names replaced by tokens that tell nothing.

use super::Recording;
use crate::pickle::{Strings, Text};
use crate::snapshot::Frame;

const INSTALLED: [&str; 5] =
    ["site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>"];
const ENDINGS: [&str; 8] = [".py", ".cpp", ".cc", ".cu", ".h", ".so", ".rs", "??"];
const STEPS: [&str; 2] = ["Optimizer.step", "ProfilerStep"];

impl Recording {
    /// Replaces paths, function names, annotations and other texts of the program by tokens. The
    /// same text gives the same token in every file, and what findings depend on (installed or
    /// native code, step markers) stays, so findings are the same but for names. Who guesses a
    /// name can test the guess.
    pub fn redact(&mut self) {
        let snapshot = &mut self.snapshot;
        let old = std::mem::take(&mut snapshot.strings);
        let mut new = Strings::default();
        snapshot.stacks.rename(|frame| Frame {
            file: new.intern(&path(old.get(frame.file))),
            name: new.intern(&function(old.get(frame.name))),
            line: frame.line,
        });
        let mut noted = |text: &mut Text| *text = new.intern(&note(old.get(*text)));
        for annotation in &mut snapshot.annotations {
            noted(&mut annotation.name);
        }
        let traces = snapshot.device_traces.iter_mut().chain(&mut snapshot.host_traces);
        for entry in traces.flatten() {
            entry.metadata.iter_mut().for_each(&mut noted);
            entry.compile_context.iter_mut().for_each(&mut noted);
        }
        for annotation in &mut snapshot.annotations {
            // START and END: a word of the format.
            if let Some(stage) = &mut annotation.stage {
                *stage = new.intern(old.get(*stage));
            }
        }
        snapshot.strings = new;
        self.tags.values_mut().for_each(|tag| *tag = note(tag));
        if let Some(dump) = &mut self.dump {
            let ranges = dump.blocks.iter_mut().flat_map(|block| &mut block.ranges);
            for name in ranges.filter_map(|range| range.name.as_mut()) {
                *name = note(name);
            }
        }
    }
}

/// A source file's path.
fn path(path: &str) -> String {
    if path.is_empty() || path == "??" {
        return path.to_owned();
    }
    let installed = INSTALLED.iter().find(|part| path.contains(**part)).unwrap_or(&"");
    let ending = ENDINGS.iter().find(|end| path.ends_with(**end)).unwrap_or(&"");
    format!("{installed}{}{ending}", token(path))
}

/// A function's name.
fn function(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("f_{}", token(name)) }
}

/// An annotation or other text of the program.
fn note(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let step = STEPS.iter().find(|step| text.contains(**step)).unwrap_or(&"");
    format!("{step}#{}", token(text))
}

/// FNV-1a over the bytes, mixed once more so that near names are not near.
fn token(text: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    format!("{:012x}", (hash ^ (hash >> 33)) & 0xffff_ffff_ffff)
}
