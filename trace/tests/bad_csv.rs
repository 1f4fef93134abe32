//! Traces that must be refused, each with its line and its reason.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use flate2::{Compression, write::GzEncoder};
use std::{io::Write, path::Path};
use terrane_trace::{Field, Limits, ReadError, Reason, open_csv, read_csv};

const HEADER: &str = "t_us,op,block,size,stream\n";

fn read(rows: &str) -> Result<u64, ReadError> {
    read_bytes(format!("{HEADER}{rows}").as_bytes())
}

fn read_bytes(bytes: &[u8]) -> Result<u64, ReadError> {
    read_csv(bytes, Limits::default()).map(|trace| trace.figures().events)
}

fn refused(rows: &str) -> (u64, Reason) {
    let error = read(rows).unwrap_err();
    (error.line, error.reason)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_missing_file_says_so() {
    let error = open_csv(Path::new("/no/such/trace.csv"), Limits::default()).unwrap_err();
    assert_eq!(error.reason, Reason::Io(std::io::ErrorKind::NotFound));
}

#[test]
fn an_empty_file_is_told_from_one_with_no_event() {
    let empty = ReadError { line: 1, reason: Reason::Empty };
    assert_eq!(read_bytes(b""), Err(empty));
    assert_eq!(read_bytes(&gzip(b"")), Err(empty));
    assert_eq!(refused(""), (2, Reason::NoEvents));
}

#[test]
fn what_is_no_trace_is_refused_at_its_first_line() {
    let not_traces: [&[u8]; 6] =
        [b"time,op\n", b"\x80\x04\x95", b"PK\x03\x04abc\n", b"\n", &[0; 5000], b"x"];
    for bytes in not_traces {
        let refusal = Err(ReadError { line: 1, reason: Reason::Header });
        assert_eq!(read_bytes(bytes), refusal, "{bytes:?}");
    }
}

#[test]
fn each_malformed_row_names_its_line_and_column() {
    let good = "1,a,7,512,0\n";
    for (row, reason) in [
        ("1,a,8,512", Reason::Columns { found: 4 }),
        ("", Reason::Columns { found: 1 }),
        ("1,a,8,512,0,0", Reason::Columns { found: 6 }),
        ("x,a,8,512,0", Reason::NotANumber(Field::Time)),
        ("1,a,-8,512,0", Reason::NotANumber(Field::Block)),
        ("1,a,8,5e2,0", Reason::NotANumber(Field::Size)),
        ("1,a,8,,0", Reason::NotANumber(Field::Size)),
        ("1,a,8,512, 0", Reason::NotANumber(Field::Stream)),
        ("18446744073709551616,a,8,512,0", Reason::OutOfRange(Field::Time)),
        ("1,a,8,9223372036854775808,0", Reason::OutOfRange(Field::Size)),
        ("1,a,8,512,4294967296", Reason::OutOfRange(Field::Stream)),
        ("1,alloc,8,512,0", Reason::UnknownOp),
        ("1,a,8,0,0", Reason::ZeroSize { block: 8 }),
        ("1,a,7,512,0", Reason::DuplicateAlloc { block: 7 }),
        ("1,r,8,512,0", Reason::UnknownBlock { block: 8 }),
        ("1,f,8,512,0", Reason::UnknownBlock { block: 8 }),
        ("1,f,7,512,0", Reason::NeverRequested { block: 7 }),
        ("1,r,7,513,0", Reason::SizeMismatch { block: 7, allocated: 512, freed: 513 }),
        ("1,r,7,512,2", Reason::StreamMismatch { block: 7, allocated: 0, freed: 2 }),
    ] {
        assert_eq!(refused(&format!("{good}{row}\n2,a,9,1,0\n")), (3, reason), "{row}");
    }
}

#[test]
fn a_block_is_freed_once() {
    let freed = "1,a,7,512,0\n2,r,7,512,0\n";
    let twice = Reason::RequestedTwice { block: 7 };
    assert_eq!(refused(&format!("{freed}3,r,7,512,0\n")), (4, twice));
    let again = refused(&format!("{freed}3,f,7,512,0\n3,f,7,512,0\n"));
    assert_eq!(again, (5, Reason::UnknownBlock { block: 7 }));
    assert_eq!(read(&format!("{freed}3,f,7,512,0\n4,a,7,4,1\n")), Ok(4), "its number is free");
}

#[test]
fn a_file_cut_anywhere_within_a_line_is_refused_there() {
    let whole = format!("{HEADER}1,a,7,512,0\n22,r,7,512,0\n22,f,7,512,0\n");
    for cut in 0..whole.len() {
        let head = &whole[..cut];
        let lines = head.matches('\n').count() as u64;
        let outcome = read_bytes(head.as_bytes());
        let at_a_line_end = head.is_empty() || head.ends_with('\n');
        match outcome {
            Ok(events) => assert!(at_a_line_end && events == lines - 1, "cut at {cut}"),
            Err(e) if at_a_line_end => {
                assert!(matches!(e.reason, Reason::Empty | Reason::NoEvents), "cut at {cut}");
            }
            Err(e) => assert_eq!((e.line, e.reason), (lines + 1, Reason::TruncatedLine)),
        }
    }
}

#[test]
fn a_gzip_file_cut_anywhere_is_refused() {
    let whole = gzip(format!("{HEADER}1,a,7,512,0\n22,r,7,512,0\n").as_bytes());
    assert_eq!(read_bytes(&whole), Ok(2));
    for cut in 2..whole.len() {
        let error = read_bytes(&whole[..cut]).unwrap_err();
        assert_eq!(error.reason, Reason::PackedTruncated, "cut at {cut}");
    }
}

#[test]
fn no_single_damaged_byte_of_a_gzip_file_is_read_as_another_trace() {
    let rows: String = (0..40).map(|n| format!("{n},a,{n},{},{}\n", 512 + n * n, n % 3)).collect();
    let whole = gzip(format!("{HEADER}{rows}").as_bytes());
    let expected = read_csv(&whole[..], Limits::default()).unwrap();
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x10;
        // Bytes of the gzip header that carry no content may change without harm.
        if let Ok(trace) = read_csv(&damaged[..], Limits::default()) {
            assert_eq!(trace, expected, "byte {position}");
        }
    }
}

#[test]
fn members_of_a_gzip_file_are_read_on_and_trailing_bytes_are_refused() {
    let mut joined = gzip(format!("{HEADER}1,a,7,512,0\n").as_bytes());
    joined.extend(gzip(b"2,r,7,512,0\n"));
    assert_eq!(read_bytes(&joined), Ok(2));
    joined.extend(b"trailing bytes here");
    assert_eq!(read_bytes(&joined).unwrap_err().reason, Reason::PackedCorrupt);
}

#[test]
fn endless_lines_and_too_many_events_stop_at_their_limit() {
    let endless = "1".repeat(1 << 20);
    assert_eq!(refused(&endless), (2, Reason::LineTooLong { limit: 256 }));
    let rows = format!("{HEADER}1,a,1,4,0\n1,a,2,4,0\n1,a,3,4,0\n");
    let error = read_csv(rows.as_bytes(), Limits { events: 2 }).unwrap_err();
    assert_eq!((error.line, error.reason), (4, Reason::TooManyEvents { limit: 2 }));
}

#[test]
fn sizes_that_cannot_all_exist_are_refused() {
    let huge = i64::MAX;
    let rows = format!("1,a,1,{huge},0\n1,a,2,{huge},0\n1,a,3,{huge},0\n");
    assert_eq!(refused(&rows), (4, Reason::TotalOverflow));
}

#[test]
fn time_going_backwards_is_raised_and_counted() {
    let rows = format!("{HEADER}9,a,1,4,0\n7,a,2,4,0\n9,a,3,4,0\n");
    let trace = read_csv(rows.as_bytes(), Limits::default()).unwrap();
    assert_eq!(trace.clock_reversals(), 1);
    assert!(trace.iter().all(|event| event.time_us == 9));
}

#[test]
fn carriage_returns_are_tolerated() {
    assert_eq!(read_bytes(b"t_us,op,block,size,stream\r\n1,a,1,4,0\r\n"), Ok(1));
}

#[test]
fn every_message_says_where_and_what_next() {
    let shown = read("1,a,7,512,0\n1,r,7,513,0\n").unwrap_err().to_string();
    assert_eq!(shown, "line 3: block 7 was allocated with 512 bytes and is freed with 513");
}
