//! Hostile and unusual pickles, written opcode by opcode.

use super::{Arena, Fold, PickleError, PickleLimits, PickleReason, Pickled, Value, read};
use std::ops::ControlFlow;

struct Keep;

impl Fold for Keep {
    fn dict(&mut self, _: &Arena, _: &[Value]) -> Option<(u8, u32)> {
        None
    }
}

/// Takes over every dictionary.
struct Take;

impl Fold for Take {
    fn dict(&mut self, _: &Arena, pairs: &[Value]) -> Option<(u8, u32)> {
        Some((7, pairs.len() as u32))
    }
}

fn read_with(bytes: &[u8], limits: PickleLimits) -> Result<Pickled, PickleError> {
    read(bytes, limits, &mut Keep, &mut |_| ControlFlow::Continue(()), true)
}

/// Reads `body` as protocol 4, between PROTO and STOP.
fn read_body(body: &[u8]) -> Result<Pickled, PickleError> {
    let bytes = [b"\x80\x04", body, b"."].concat();
    read_with(&bytes, PickleLimits::default())
}

fn refused(body: &[u8]) -> (u64, PickleReason) {
    let error = read_body(body).unwrap_err();
    (error.offset, error.reason)
}

/// The value as text, containers spelled out up to `depth`.
fn show(pickled: &Pickled, value: Value, depth: u32) -> String {
    let arena = &pickled.arena;
    let join = |values: &[Value]| {
        let shown: Vec<String> = values.iter().map(|v| show(pickled, *v, depth - 1)).collect();
        shown.join(" ")
    };
    match value {
        _ if depth == 0 => "..".into(),
        Value::Text(text) => format!("'{}'", arena.strings.get(text)),
        Value::List(_) => format!("[{}]", join(arena.elements(value).unwrap())),
        Value::Tuple(_) => format!("({})", join(arena.elements(value).unwrap())),
        Value::Dict(_) => format!("{{{}}}", join(arena.pairs(arena.dict(value).unwrap()))),
        Value::Int(int) => int.to_string(),
        Value::Unsigned(unsigned) => format!("{unsigned}u"),
        other => format!("{other:?}"),
    }
}

fn shown(body: &[u8]) -> String {
    let pickled = read_body(body).unwrap();
    show(&pickled, pickled.root, 5)
}

#[test]
fn every_accepted_opcode_pushes_what_python_would() {
    for (body, expected) in [
        (&b"N"[..], "None"),
        (b"\x88", "Bool(true)"),
        (b"\x89", "Bool(false)"),
        (b"K\xff", "255"),
        (b"M\xff\xff", "65535"),
        (b"J\xff\xff\xff\xff", "-1"),
        (b"\x8a\x00", "0"),
        (b"\x8a\x01\xff", "-1"),
        (b"\x8a\x02\xff\x00", "255"),
        (b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"),
        (b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00", "18446744073709551615u"),
        (b"\x8b\x02\x00\x00\x00\x00\x80", "-32768"),
        (b"G\x3f\xf8\x00\x00\x00\x00\x00\x00", "Float(1.5)"),
        (b"\x8c\x02hi", "'hi'"),
        (b"X\x02\x00\x00\x00hi", "'hi'"),
        (b"\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi", "'hi'"),
        (b"U\x02hi", "'hi'"),
        (b"C\x02hi", "'hi'"),
        (b"]", "[]"),
        (b"]K\x01a", "[1]"),
        (b"](K\x01K\x02e", "[1 2]"),
        (b"(K\x01l", "[1]"),
        (b")", "()"),
        (b"K\x01\x85", "(1)"),
        (b"K\x01K\x02\x86", "(1 2)"),
        (b"K\x01K\x02K\x03\x87", "(1 2 3)"),
        (b"(K\x01t", "(1)"),
        (b"}", "{}"),
        (b"}K\x01K\x02s", "{1 2}"),
        (b"}(K\x01K\x02K\x03K\x04u", "{1 2 3 4}"),
        (b"(K\x01K\x02d", "{1 2}"),
        (b"]\x94h\x00a", "[[[[[..]]]]]"),
        (b"]q\x00K\x05r\x01\x00\x00\x00ah\x00", "[5]"),
        (b"\x95\x05\x00\x00\x00\x00\x00\x00\x00K\x01", "1"),
    ] {
        assert_eq!(shown(body), expected, "{body:?}");
    }
}

#[test]
fn what_the_file_stores_once_is_held_once() {
    // A list that holds itself twice, 60 levels deep: 2^60 elements if it were copied.
    let mut body = b"]\x94".to_vec();
    for level in 0..60u8 {
        body.extend([b']', 0x94, b'h', level, b'a', b'h', level, b'a']);
    }
    let pickled = read_body(&body).unwrap();
    assert_eq!(pickled.arena.sequences.len(), 61);
    assert_eq!(pickled.arena.sequences.iter().map(Vec::len).sum::<usize>(), 120);
}

#[test]
fn opcodes_that_plain_data_does_not_need_are_named_with_their_offset() {
    for (body, offset, name) in [
        (&b"cos\nsystem\n"[..], 2, "GLOBAL"),
        (b"K\x01\x8c\x02os\x8c\x06system\x93", 16, "STACK_GLOBAL"),
        (b"K\x01K\x02\x93", 6, "STACK_GLOBAL"),
        (b"K\x01)R", 5, "REDUCE"),
        (b"ctorch.jit._pickle\nbuild_intlist\n0", 35, "POP"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n", 2, "GLOBAL"),
        (b"}b", 3, "BUILD"),
        (b"(ios\nsystem\n", 3, "INST"),
        (b"\x81", 2, "NEWOBJ"),
        (b"\x82\x01", 2, "EXT1"),
        (b"Pid\n", 2, "PERSID"),
        (b"K\x01Q", 4, "BINPERSID"),
        (b"\x8f", 2, "EMPTY_SET"),
        (b"K\x012", 4, "DUP"),
        (b"I1\n", 2, "INT"),
        (b"\x97", 2, "NEXT_BUFFER"),
    ] {
        let (at, reason) = refused(body);
        let PickleReason::Refused { name: found, .. } = reason else { panic!("{reason:?}") };
        assert_eq!((at, found), (offset, name), "{body:?}");
    }
    assert_eq!(refused(b"\xff"), (2, PickleReason::UnknownOpcode(0xff)));
    let endless = [b"c".to_vec(), vec![b'a'; 1 << 20]].concat();
    assert!(matches!(refused(&endless).1, PickleReason::Refused { name: "GLOBAL", .. }));
}

#[test]
fn type_names_of_the_cpp_writer_yield_what_they_wrap() {
    let body = b"ctorch.jit._pickle\nrestore_type_tag\n}X\x03\x00\x00\x00Any\x86R";
    assert_eq!(shown(body), "{}");
}

#[test]
fn a_stack_that_is_too_short_or_of_the_wrong_type_is_refused() {
    for body in [
        &b""[..],
        b"a",
        b"K\x01a",
        b"(a",
        b"]((e",
        b"e",
        b"u",
        b"t",
        b"\x85",
        b"K\x01\x86",
        b"K\x01(\x85",
        b"\x94",
        b"s",
        b"}K\x01s",
        b"}(K\x01u",
        b"R",
        b"K\x01R",
    ] {
        let reason = refused(body).1;
        assert!(matches!(reason, PickleReason::Underflow(_)), "{body:?}: {reason:?}");
    }
    for body in [&b"K\x01K\x02a"[..], b"K\x01(K\x02e", b"](K\x01K\x02u", b"NK\x01K\x02s"] {
        let reason = refused(body).1;
        assert!(matches!(reason, PickleReason::WrongType { .. }), "{body:?}: {reason:?}");
    }
    assert_eq!(refused(b"h\x05").1, PickleReason::Memo(5));
    assert_eq!(refused(b"j\xff\xff\xff\xff").1, PickleReason::Memo(u32::MAX));
}

#[test]
fn a_pickle_cut_at_any_byte_is_refused_at_its_end() {
    let body = b"}\x94(\x8c\x03keyX\x02\x00\x00\x00hi\x8c\x01l](K\x01M\x01\x02J\x00\x00\x00\x01\
        \x8a\x03abcG\x00\x00\x00\x00\x00\x00\x00\x00euh\x00.";
    let whole = [b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00", &body[..]].concat();
    read_with(&whole, PickleLimits::default()).unwrap();
    for cut in 1..whole.len() {
        let error = read_with(&whole[..cut], PickleLimits::default()).unwrap_err();
        assert_eq!(error.reason, PickleReason::Truncated, "cut at {cut}");
        assert!(error.offset <= cut as u64, "cut at {cut}: {error}");
    }
}

#[test]
fn what_is_no_pickle_is_told_apart() {
    let reason = |bytes: &[u8]| read_with(bytes, PickleLimits::default()).unwrap_err().reason;
    assert_eq!(reason(b""), PickleReason::Empty);
    assert_eq!(reason(b"hello"), PickleReason::NotPickle);
    assert_eq!(reason(b"\x80\x01."), PickleReason::Protocol(1));
    assert_eq!(reason(b"\x80\x06."), PickleReason::Protocol(6));
    assert_eq!(reason(b"\x80\x04N.\x80\x04N."), PickleReason::Trailing);
}

#[test]
fn lengths_that_lie_cost_nothing() {
    for body in [
        &b"X\xff\xff\xff\x03abc"[..],
        b"\x8d\x00\x00\x00\x04\x00\x00\x00\x00abc",
        b"B\x00\x00\x00\x04abc",
    ] {
        assert_eq!(refused(body).1, PickleReason::Truncated, "{body:?}");
    }
    let reason = refused(b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc").1;
    assert!(matches!(reason, PickleReason::StringLength { bytes: u64::MAX, .. }), "{reason:?}");
    assert_eq!(refused(b"\x8b\xff\xff\xff\x7f").1, PickleReason::Integer(0x7fff_ffff));
    let ten = b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert_eq!(refused(ten).1, PickleReason::Integer(9));
    assert_eq!(refused(b"\x8c\x01\xff").1, PickleReason::Utf8);
}

#[test]
fn depth_items_and_memory_stop_at_their_limits() {
    let body = |bytes: Vec<u8>| [b"\x80\x04".to_vec(), bytes].concat();
    let limits = PickleLimits { depth: 10, items: 1000, ..Default::default() };
    let reason = |bytes| read_with(&body(bytes), limits).unwrap_err().reason;
    assert_eq!(reason(vec![b'('; 1 << 20]), PickleReason::Depth { limit: 10 });
    assert_eq!(reason(vec![b'N'; 1 << 20]), PickleReason::Items { limit: 1000 });
    let limits = PickleLimits { memory_bytes: 1 << 16, ..Default::default() };
    let reason = |bytes| read_with(&body(bytes), limits).unwrap_err().reason;
    let memory = PickleReason::Memory { limit: 1 << 16 };
    assert_eq!(reason(vec![b'N'; 1 << 20]), memory);
    assert_eq!(reason(vec![b']'; 1 << 20]), memory);
    assert_eq!(reason(vec![b'}'; 1 << 20]), memory);
    assert_eq!(reason([vec![b'N'], vec![0x94; 1 << 20]].concat()), memory);
    // Far memo numbers, all different.
    let far = (0..1u32 << 16).flat_map(|n| [vec![b'r'], (n * 7 + 9).to_le_bytes().to_vec()]);
    assert_eq!(reason([vec![b'N'], far.flatten().collect()].concat()), memory);
    let strings = (0..1u32 << 16).flat_map(|n| [vec![b'U', 4], n.to_le_bytes().to_vec()]);
    let ascii = strings.flatten().map(|byte| byte & 0x7f).collect();
    assert_eq!(reason(ascii), memory);
}

#[test]
fn a_dictionary_that_became_a_record_stays_one() {
    let take = |body: &[u8]| {
        let bytes = [b"\x80\x04", body, b"."].concat();
        let mut fold = Take;
        read(
            &bytes[..],
            PickleLimits::default(),
            &mut fold,
            &mut |_| ControlFlow::Continue(()),
            true,
        )
    };
    assert!(take(b"}(K\x01K\x02u").is_ok());
    let changed = take(b"}(K\x01K\x02uK\x01K\x02s").unwrap_err();
    assert_eq!((changed.offset, changed.reason), (13, PickleReason::Changed));
}

#[test]
fn no_sequence_of_opcodes_panics() {
    // Every pair and a spread of longer sequences of opcodes, with bytes they may eat.
    let all: Vec<u8> = (0..=255).collect();
    for &first in &all {
        for &second in &all {
            _ = read_body(&[first, second, 1, 0, 0, 0, second, first]);
        }
    }
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let useful = b"N\x88K]}()\x85\x86\x94hqaesul(td\x8c\x93R.";
    for round in 0..20_000 {
        let mut body = Vec::new();
        for _ in 0..24 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            body.push(useful[(state % useful.len() as u64) as usize]);
            if state & 0x300 == 0 {
                body.push((state >> 32) as u8 & 3);
            }
        }
        let outcome = std::panic::catch_unwind(|| read_body(&body).is_ok());
        assert!(outcome.is_ok(), "round {round} of the fixed sequence: {body:?}");
    }
}
