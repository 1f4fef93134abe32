//! Nested data as a pickle of protocol 4. Texts, stacks and frames are stored once.

use super::tree::{Shared, Tree};
use std::collections::HashMap;
use std::io::{self, Write};

pub(super) struct Pickle<W> {
    sink: W,
    /// Numbers given by MEMOIZE so far.
    memoized: u32,
    texts: HashMap<Box<str>, u32>,
    objects: HashMap<Shared, u32>,
    /// Open containers: for a list the elements since its last APPENDS, `None` for a dictionary.
    open: Vec<Option<u32>>,
}

/// Elements that readers hold on their stack at once.
const BATCH: u32 = 1000;
const MARK: &[u8] = b"(";
const APPENDS: &[u8] = b"e";
const SETITEMS: &[u8] = b"u";
const MEMOIZE: &[u8] = b"\x94";

impl<W: Write> Pickle<W> {
    pub fn new(mut sink: W) -> io::Result<Self> {
        sink.write_all(b"\x80\x04")?;
        let (texts, objects) = (HashMap::new(), HashMap::new());
        Ok(Self { sink, memoized: 0, texts, objects, open: Vec::new() })
    }

    /// To be called before each value.
    fn element(&mut self) -> io::Result<()> {
        if let Some(Some(count)) = self.open.last_mut() {
            *count += 1;
            if *count > BATCH {
                *count = 1;
                self.sink.write_all(APPENDS)?;
                self.sink.write_all(MARK)?;
            }
        }
        Ok(())
    }

    fn memoize(&mut self) -> io::Result<u32> {
        self.sink.write_all(MEMOIZE)?;
        self.memoized += 1;
        Ok(self.memoized - 1)
    }

    fn recall(&mut self, number: u32) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(byte) => self.sink.write_all(&[b'h', byte]),
            Err(_) => {
                self.sink.write_all(b"j")?;
                self.sink.write_all(&number.to_le_bytes())
            }
        }
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        if let Some(number) = self.texts.get(text).copied() {
            return self.recall(number);
        }
        let length = text.len();
        match u8::try_from(length) {
            Ok(byte) => self.sink.write_all(&[0x8c, byte])?,
            Err(_) => {
                self.sink.write_all(b"\x8d")?;
                self.sink.write_all(&(length as u64).to_le_bytes())?;
            }
        }
        self.sink.write_all(text.as_bytes())?;
        let number = self.memoize()?;
        self.texts.insert(text.into(), number);
        Ok(())
    }

    fn number(&mut self, value: u64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(value) {
            return self.sink.write_all(&[b'K', byte]);
        }
        if let Ok(word) = u16::try_from(value) {
            self.sink.write_all(b"M")?;
            return self.sink.write_all(&word.to_le_bytes());
        }
        if let Ok(word) = i32::try_from(value) {
            self.sink.write_all(b"J")?;
            return self.sink.write_all(&word.to_le_bytes());
        }
        // LONG1: as many bytes as the number needs, one of them for the sign.
        let bytes = value.to_le_bytes();
        let used = 8 - value.leading_zeros() as usize / 8;
        let sign = usize::from(bytes[used - 1] & 0x80 != 0);
        self.sink.write_all(&[0x8a, (used + sign) as u8])?;
        self.sink.write_all(&bytes[..used])?;
        self.sink.write_all(&[0][..sign])
    }
}

impl<W: Write> Tree for Pickle<W> {
    fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.element()?;
        self.sink.write_all(if value { b"\x88" } else { b"\x89" })
    }

    fn unsigned(&mut self, value: u64) -> io::Result<()> {
        self.element()?;
        self.number(value)
    }

    fn signed(&mut self, value: i64) -> io::Result<()> {
        self.element()?;
        match (u64::try_from(value), i32::try_from(value)) {
            (Ok(value), _) => self.number(value),
            (Err(_), Ok(word)) => {
                self.sink.write_all(b"J")?;
                self.sink.write_all(&word.to_le_bytes())
            }
            (Err(_), Err(_)) => {
                self.sink.write_all(b"\x8a\x08")?;
                self.sink.write_all(&value.to_le_bytes())
            }
        }
    }

    fn text(&mut self, value: &str) -> io::Result<()> {
        self.element()?;
        self.string(value)
    }

    fn pair(&mut self, a: u64, b: u64) -> io::Result<()> {
        self.element()?;
        self.number(a)?;
        self.number(b)?;
        self.sink.write_all(b"\x86")
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.element()?;
        self.open.push(Some(0));
        self.sink.write_all(b"]")?;
        self.sink.write_all(MARK)
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.open.pop();
        self.sink.write_all(APPENDS)
    }

    fn begin_dict(&mut self) -> io::Result<()> {
        self.element()?;
        self.open.push(None);
        self.sink.write_all(b"}")?;
        self.sink.write_all(MARK)
    }

    fn end_dict(&mut self) -> io::Result<()> {
        self.open.pop();
        self.sink.write_all(SETITEMS)
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.string(key)
    }

    fn refer(&mut self, object: Shared) -> io::Result<bool> {
        let Some(number) = self.objects.get(&object).copied() else { return Ok(false) };
        self.element()?;
        self.recall(number)?;
        Ok(true)
    }

    fn made(&mut self, object: Shared) -> io::Result<()> {
        let number = self.memoize()?;
        self.objects.insert(object, number);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.sink.write_all(b".")?;
        self.sink.flush()
    }
}
