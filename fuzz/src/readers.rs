//! What is fuzzed: each function takes any bytes and must come back, without a panic and within
//! the memory that its limits allow. Tests of terrane-trace run them over all kept inputs.

use std::io::{Cursor, Write as _};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use terrane_trace::diagnose::{
    Known, LeakOptions, OutOfMemoryMessage, SiteBy, explain, explain_log, leaks, peak_by, shortage,
    timeline,
};
use terrane_trace::export::{Encoding, csv, perfetto, pytorch};
use terrane_trace::file::TraceFile;
use terrane_trace::live::Client;
use terrane_trace::model::ModelSpec;
use terrane_trace::recording::{Point, Recording, read_recording};
use terrane_trace::snapshot::ReadOptions;

fn go(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn open(bytes: &[u8]) -> Option<Recording> {
    let mut options = ReadOptions::default();
    options.limits.memory_bytes = 64 << 20;
    options.limits.items = 1 << 20;
    match read_recording(bytes, &options, &mut go) {
        Ok(recording) => Some(recording),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            None
        }
    }
}

/// Most events of a history that is looked at more closely.
const EVENTS_MAX: usize = 2_000;

/// Whatever was read can be looked at and written again.
fn look(recording: &Recording) {
    let snapshot = &recording.snapshot;
    for history in &recording.histories {
        if history.trace.events().len() > EVENTS_MAX {
            continue;
        }
        let _ = timeline(snapshot, history, 10);
        let _ = peak_by(snapshot, history, SiteBy::User);
        let _ = leaks(snapshot, history, LeakOptions::default());
        let _ = shortage(snapshot, history);
        let _ = explain_log(history, None);
        if recording.format.is_pytorch() {
            let _ = explain(snapshot, history, Known::default());
        }
        let _ = csv(&history.trace, std::io::sink());
        let _ = perfetto(snapshot, &[history], std::io::sink());
    }
    let small =
        |history: &terrane_trace::snapshot::History| history.trace.events().len() <= EVENTS_MAX;
    if recording.histories.iter().all(small) {
        let _ = pytorch(recording, Encoding::Json, std::io::sink());
    }
}

/// Pickles and torch.save archives, plain and packed.
pub fn pickle(bytes: &[u8]) {
    let mut own;
    // Without this almost all inputs are refused at their first byte.
    let bytes = match bytes {
        [0x80 | b'P' | 0x1f | 0x28, ..] => bytes,
        _ => {
            own = vec![0x80, 4];
            own.extend_from_slice(bytes);
            &own
        }
    };
    open(bytes).iter().for_each(look);
}

/// Snapshots as JSON, dumps and reports.
pub fn json(bytes: &[u8]) {
    let mut own = vec![b'{'];
    own.extend_from_slice(bytes.strip_prefix(b"{").unwrap_or(bytes));
    open(&own).iter().for_each(look);
}

/// Recorded workloads and logs of RMM.
pub fn lines(bytes: &[u8]) {
    open(bytes).iter().for_each(look);
    let headers = ["t_us,op,block,size,stream\n", "Thread,Time,Action,Pointer,Size,Stream\n"];
    for header in headers {
        open(&[header.as_bytes(), bytes].concat()).iter().for_each(look);
    }
}

/// Our own trace files: as they are, and as a list of chunks whose checksums are made right.
pub fn own(bytes: &[u8]) {
    open(bytes).iter().for_each(look);
    let sealed = sealed(bytes);
    open(&sealed).iter().for_each(look);
    if let Ok(mut file) = TraceFile::new(Cursor::new(&sealed[..])) {
        let _ = file.texts();
        let _ = file.meta();
        for sequence in [0, 1, 100, u64::MAX] {
            let _ = file.state_at(sequence);
        }
    }
}

/// What a live connection may send.
pub fn wire(bytes: &[u8]) {
    for sent in [bytes.to_vec(), sealed(bytes)] {
        // What does not fit the socket's buffer would wait for a reader.
        let sent = &sent[..sent.len().min(64 << 10)];
        let Ok((mut theirs, ours)) = UnixStream::pair() else { return };
        let _ = theirs.write_all(sent);
        drop(theirs);
        let Ok(mut client) = Client::over(ours, Duration::from_secs(1)) else { continue };
        while let Ok(Some(_)) = client.receive() {}
    }
}

/// Texts of users: messages, models, places in a recording.
pub fn texts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(message) = OutOfMemoryMessage::find(&text) {
        let _ = message.verdict();
    }
    if let Ok(spec) = ModelSpec::parse(&text) {
        let again = ModelSpec::parse(&spec.to_string());
        assert!(again.is_ok_and(|again| again == spec), "{spec} is read as another");
    }
    let _ = text.parse::<Point>();
}

const CHUNK_BYTES: usize = 32;

/// A trace file of chunks given as `kind, count (2), first (2), length (2), body`: packed, with
/// sums that are right, so that what is behind the sums is reached.
fn sealed(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = b"\x89TERR\r\n\x1a".to_vec();
    file.extend_from_slice(&1_u32.to_le_bytes());
    let sum = crc(&[&file]);
    file.extend_from_slice(&sum.to_le_bytes());
    while let Some((head, rest)) = bytes.split_at_checked(7) {
        let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let length = usize::from(number(5)).min(rest.len());
        let (body, rest) = rest.split_at(length);
        bytes = rest;
        let Ok(packed) = zstd::bulk::compress(body, 1) else { return file };
        let mut chunk = [0; CHUNK_BYTES];
        chunk[..4].copy_from_slice(b"TRCK");
        chunk[4] = head[0] % 8;
        chunk[8..12].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        chunk[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        chunk[16..20].copy_from_slice(&u32::from(number(1)).to_le_bytes());
        chunk[20..28].copy_from_slice(&u64::from(number(3)).to_le_bytes());
        let sum = crc(&[&chunk[..CHUNK_BYTES - 4], &packed]);
        chunk[CHUNK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        file.extend_from_slice(&chunk);
        file.extend_from_slice(&packed);
    }
    file
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = flate2::Crc::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.sum()
}
