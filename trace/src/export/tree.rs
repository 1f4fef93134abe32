//! Nested data, written piece by piece: what a snapshot is made of.

use std::io;

/// Something that is written once and referred to after, where the form can refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shared {
    Stack(u32),
    Frame(u32),
}

/// A form of nested data.
pub(super) trait Tree {
    fn boolean(&mut self, value: bool) -> io::Result<()>;
    fn unsigned(&mut self, value: u64) -> io::Result<()>;
    fn signed(&mut self, value: i64) -> io::Result<()>;
    fn text(&mut self, value: &str) -> io::Result<()>;
    fn pair(&mut self, a: u64, b: u64) -> io::Result<()>;
    fn begin_list(&mut self) -> io::Result<()>;
    fn end_list(&mut self) -> io::Result<()>;
    fn begin_dict(&mut self) -> io::Result<()>;
    fn end_dict(&mut self) -> io::Result<()>;
    fn key(&mut self, key: &'static str) -> io::Result<()>;
    /// True when the object was written before and is referred to now.
    fn refer(&mut self, object: Shared) -> io::Result<bool>;
    /// The container that was just ended is this object.
    fn made(&mut self, object: Shared) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;

    fn entry(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.unsigned(value)
    }

    fn entry_text(&mut self, key: &'static str, value: &str) -> io::Result<()> {
        self.key(key)?;
        self.text(value)
    }
}
