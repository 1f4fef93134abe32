//! Nested data as JSON.

use super::tree::{Shared, Tree};
use std::io::{self, Write};

pub(super) struct Json<W> {
    sink: W,
    /// Whether the container at hand is still empty, outermost first.
    fresh: Vec<bool>,
    after_key: bool,
}

impl<W: Write> Json<W> {
    pub fn new(sink: W) -> Self {
        Self { sink, fresh: Vec::new(), after_key: false }
    }

    fn separate(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.after_key) {
            return Ok(());
        }
        let is_first = self.fresh.last_mut().is_none_or(std::mem::take);
        if is_first { Ok(()) } else { self.sink.write_all(b",") }
    }

    fn begin(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.separate()?;
        self.fresh.push(true);
        self.sink.write_all(bracket)
    }

    fn end(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.fresh.pop();
        self.sink.write_all(bracket)
    }
}

impl<W: Write> Tree for Json<W> {
    fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.separate()?;
        write!(self.sink, "{value}")
    }

    fn unsigned(&mut self, value: u64) -> io::Result<()> {
        self.separate()?;
        write!(self.sink, "{value}")
    }

    fn signed(&mut self, value: i64) -> io::Result<()> {
        self.separate()?;
        write!(self.sink, "{value}")
    }

    fn text(&mut self, value: &str) -> io::Result<()> {
        self.separate()?;
        serde_json::to_writer(&mut self.sink, value).map_err(io::Error::from)
    }

    fn pair(&mut self, a: u64, b: u64) -> io::Result<()> {
        self.separate()?;
        write!(self.sink, "[{a},{b}]")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(b"[")
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(b"]")
    }

    fn begin_dict(&mut self) -> io::Result<()> {
        self.begin(b"{")
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.end(b"}")
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.text(key)?;
        self.after_key = true;
        self.sink.write_all(b":")
    }

    fn refer(&mut self, _: Shared) -> io::Result<bool> {
        Ok(false)
    }

    fn made(&mut self, _: Shared) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sink.write_all(b"\n")?;
        self.sink.flush()
    }
}
