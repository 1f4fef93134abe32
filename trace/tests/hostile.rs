//! Damaged and hostile files: every reader gives an error or what it could read, and ends.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use terrane_trace::export::{Encoding, pytorch};
use terrane_trace::file::{HeapState, Meta, TraceWriter};
use terrane_trace::recording::{Recording, open_recording};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}

fn go(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Small sound files of every form.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let path = data.join("snapshots/leak_exponential.frames.pickle.gz");
    let recording: Recording = open_recording(&path, &mut go).unwrap();
    let mut files = Vec::new();
    for (name, encoding) in [("pickle", Encoding::Pickle), ("json", Encoding::Json)] {
        let mut bytes = Vec::new();
        pytorch(&recording, encoding, &mut bytes).unwrap();
        bytes.truncate(if name == "json" { 40_000 } else { bytes.len() });
        files.push((name, bytes));
    }
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    writer.keyframe(&HeapState::default()).unwrap();
    files.push(("own", writer.finish().unwrap()));
    files.push(("golden", std::fs::read(data.join("golden/trace.v1.terrane")).unwrap()));
    let csv =
        "t_us,op,block,size,stream\n1,a,0,1000,0\n2,a,1,3000000,1\n3,r,0,1000,0\n4,f,0,1000,0\n";
    files.push(("csv", csv.as_bytes().to_vec()));
    let rmm = "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x1000,256,0x0\n\
               1,10:00:00.000002,free,0x1000,256,0x0\n";
    files.push(("rmm", rmm.as_bytes().to_vec()));
    files.push(("packed", std::fs::read(path).unwrap()));
    files
}

/// A few bytes changed, cut out, doubled or put in.
fn damaged(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at + 1),
            3 => {
                let part = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let end = (at + random.below(16)).min(bytes.len() - 1);
                bytes.drain(at.min(end)..end);
            }
        }
    }
    bytes
}

#[test]
fn damaged_files_of_every_form_give_an_error_or_what_could_be_read() {
    let path = std::env::temp_dir().join(format!("terrane-hostile-{}", std::process::id()));
    for (name, sound) in samples() {
        let rounds = if sound.len() > 10_000 { 150 } else { 600 };
        let mut refused = 0;
        for seed in 1..=rounds {
            let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15) | 1);
            std::fs::write(&path, damaged(&sound, &mut random)).unwrap();
            match open_recording(&path, &mut go) {
                Err(error) => {
                    assert!(!error.to_string().is_empty(), "{name}, seed {seed}");
                    refused += 1;
                }
                Ok(recording) => {
                    // Whatever was read can be looked at.
                    for history in &recording.histories {
                        let _ = terrane_trace::diagnose::timeline(&recording.snapshot, history, 10);
                    }
                }
            }
        }
        assert!(refused > 0, "{name}: no damage was noticed in {rounds} rounds");
    }
    std::fs::remove_file(&path).unwrap();
}
