//! Snapshots in archives as `torch.save` writes them, and in those that other tools made of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write as _;
use std::ops::ControlFlow;

use terrane_trace::pickle::{PickleError, PickleReason};
use terrane_trace::snapshot::{ReadOptions, Snapshot, read_snapshot};

/// A member: what its header says of it, and its bytes.
#[derive(Clone, Default)]
struct Member {
    name: &'static str,
    flags: u16,
    method: u16,
    /// The sizes are in the header's extra fields.
    zip64: bool,
    /// What the header says where it says something else than the length.
    size: Option<u64>,
    data: Vec<u8>,
}

const SIZES_FOLLOW: u16 = 1 << 3;
const ENCRYPTED: u16 = 1;

fn zip(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Member { name, flags, method, zip64, size, data } in members {
        let packed = size.unwrap_or(data.len() as u64);
        // A field that nobody knows, then sizes: before packing and after.
        let extra = match zip64 {
            true => [
                &[0x46, 0x42, 3, 0, 9, 9, 9, 1, 0, 16, 0][..],
                &u64::MAX.to_le_bytes(),
                &packed.to_le_bytes(),
            ]
            .concat(),
            false => Vec::new(),
        };
        let short = if *zip64 { u32::MAX } else { packed as u32 };
        bytes.extend(b"PK\x03\x04\x2d\x00");
        for number in [*flags, *method, 0, 0, 0, 0] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [short, short] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [name.len() as u16, extra.len() as u16] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(name.as_bytes());
        bytes.extend(extra);
        bytes.extend(data);
    }
    bytes.extend(b"PK\x01\x02 and so on, a central directory follows");
    bytes
}

fn read(bytes: &[u8]) -> Result<Snapshot, PickleError> {
    read_snapshot(bytes, &ReadOptions::default(), &mut |_| ControlFlow::Continue(()))
}

/// `{"segments": [{"address": 4096, "total_size": 512}], "device_traces": []}`.
fn pickle() -> Vec<u8> {
    let mut bytes = b"\x80\x04}(\x8c\x08segments]}(\x8c\x07addressM\x00\x10".to_vec();
    bytes.extend(b"\x8c\x0atotal_sizeM\x00\x02ua\x8c\x0ddevice_traces]u.");
    bytes
}

fn is_whole(snapshot: &Snapshot) -> bool {
    let segments = snapshot.segments.iter().map(|segment| (segment.address, segment.total_bytes));
    segments.eq([(4096, 512)])
}

fn member(change: impl FnOnce(&mut Member)) -> Member {
    let mut member = Member { name: "archive/data.pkl", data: pickle(), ..Member::default() };
    change(&mut member);
    member
}

fn before(zip64: bool) -> Member {
    Member { name: "archive/version", zip64, data: b"3\n".to_vec(), ..Member::default() }
}

#[test]
fn the_pickle_is_read_however_its_sizes_are_told() {
    assert!(is_whole(&read(&pickle()).unwrap()));
    for zip64 in [false, true] {
        let stored = member(|m| m.zip64 = zip64);
        assert!(is_whole(&read(&zip(std::slice::from_ref(&stored))).unwrap()), "{zip64}");
        for skipped in [false, true] {
            let archive = zip(&[before(skipped), stored.clone()]);
            assert!(is_whole(&read(&archive).unwrap()), "{zip64} after {skipped}");
        }
    }
    // As PyTorch writes it: the header has no sizes yet.
    let streamed = member(|m| (m.flags, m.size) = (SIZES_FOLLOW, Some(0)));
    assert!(is_whole(&read(&zip(&[streamed, before(false)])).unwrap()));
}

#[test]
fn a_deflated_member_is_read_too() {
    let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&pickle()).unwrap();
    let packed = packer.finish().unwrap();
    let deflated = member(|m| (m.method, m.data) = (8, packed.clone()));
    assert!(is_whole(&read(&zip(&[before(false), deflated])).unwrap()));
    let cut = member(|m| (m.method, m.data) = (8, packed[..packed.len() / 2].to_vec()));
    assert!(read(&zip(&[cut])).is_err());
}

#[test]
fn an_archive_that_can_not_be_read_says_why_and_where() {
    let first = (30 + "archive/version".len() + 2) as u64;
    let cases = [
        (vec![member(|m| m.flags = ENCRYPTED)], 0, PickleReason::Shape("the archive is encrypted")),
        (
            vec![before(false), member(|m| m.method = 12)],
            first,
            PickleReason::Shape("the archive uses an unknown compression"),
        ),
        (
            vec![Member { flags: SIZES_FOLLOW, ..before(false) }, member(|_| ())],
            0,
            PickleReason::Shape("the archive does not begin with data.pkl"),
        ),
        (
            vec![before(false), before(true)],
            2 * first + 27,
            PickleReason::Shape("the archive has no member data.pkl"),
        ),
        (vec![Member { size: Some(9999), ..before(false) }], 0, PickleReason::Truncated),
        (vec![Member { size: Some(1 << 40), ..before(true) }], 0, PickleReason::Truncated),
    ];
    for (members, offset, reason) in cases {
        assert_eq!(read(&zip(&members)).unwrap_err(), PickleError { offset, reason });
    }
    // Sizes that are said to be in a field that is not there, or that is too short.
    let mut lost = zip(&[member(|m| m.zip64 = true)]);
    let field = 30 + "archive/data.pkl".len() + 7;
    lost[field] = 7;
    assert_eq!(read(&lost).unwrap_err().reason, PickleReason::Damaged);
    lost[field] = 1;
    lost[28] -= 8;
    assert_eq!(read(&lost).unwrap_err().reason, PickleReason::Damaged);
}
