//! What a file is, by its first bytes.

use super::OpenError;
use crate::input::unpack;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What a file looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    Own,
    Csv,
    Rmm,
    Pickle,
    Json,
    Unknown,
}

const FIRST_BYTES: u64 = 64;

pub(super) fn look(path: &Path) -> Result<Looks, OpenError> {
    let failed = |error: std::io::Error| OpenError::Io(error.kind());
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(OpenError::Io(std::io::ErrorKind::IsADirectory));
    }
    look_at(file)
}

pub(super) fn look_at(file: impl Read) -> Result<Looks, OpenError> {
    let failed = |error: std::io::Error| OpenError::Io(error.kind());
    let mut first = Vec::new();
    let unpacked = unpack(file).map_err(failed)?;
    // Damaged packing is told by the reader of whatever the part before it looks like.
    let read = unpacked.source.take(FIRST_BYTES).read_to_end(&mut first);
    match read {
        Err(error) if first.is_empty() => Err(failed(error)),
        _ if first.is_empty() => Err(OpenError::Empty),
        _ => Ok(looks(&first)),
    }
}

fn looks(first: &[u8]) -> Looks {
    let begins = |text: &str| {
        let known = text.len().min(first.len());
        first.starts_with(&text.as_bytes()[..known])
    };
    if first.starts_with(b"\x89TERR\r\n\x1a") {
        Looks::Own
    } else if matches!(first, [0x80, 2..=5, ..]) || first.starts_with(b"PK\x03\x04") {
        Looks::Pickle
    } else if begins("t_us,op,block,size,stream") {
        Looks::Csv
    } else if begins("Thread,Time,Action,Pointer,Size,Stream") {
        Looks::Rmm
    } else {
        let first = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first);
        match first.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{' | b'[') => Looks::Json,
            _ => Looks::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_their_first_bytes() {
        for (first, expected) in [
            (&b"\x80\x04\x95"[..], Looks::Pickle),
            (b"\x80\x09", Looks::Unknown),
            (b"\x89TERR\r\n\x1a\x01", Looks::Own),
            (b"PK\x03\x04....", Looks::Pickle),
            (b"t_us,op,block,size,stream\n", Looks::Csv),
            (b"Thread,Time,Action,Pointer,Size,Stream\n", Looks::Rmm),
            (b"  {\"a\":1}", Looks::Json),
            (b"[", Looks::Json),
            (b"\x7fELF", Looks::Unknown),
        ] {
            assert_eq!(looks(first), expected, "{first:?}");
        }
    }
}
