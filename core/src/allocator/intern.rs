//! Numbers for names and call sites.

use std::collections::HashMap;
use std::panic::Location;

/// Call sites by number, from 1. A small cache in front makes a repeated site one comparison.
#[derive(Debug)]
pub(crate) struct Sites {
    sites: Vec<&'static Location<'static>>,
    numbers: HashMap<(&'static str, u32, u32), u32>,
    /// By the low bits of the location's address: the address and the number.
    cache: Box<[(usize, u32); CACHE]>,
}

const CACHE: usize = 256;

/// A location is at least 16 bytes, so the low four bits tell nothing.
const fn slot_of(address: usize) -> usize {
    (address >> 4) % CACHE
}

impl Sites {
    pub fn new() -> Self {
        Self { sites: Vec::new(), numbers: HashMap::new(), cache: Box::new([(0, 0); CACHE]) }
    }

    /// The number of a site that was asked for a short while ago.
    #[inline(always)]
    pub fn known(&self, site: &'static Location<'static>) -> Option<u32> {
        let address = std::ptr::from_ref(site).addr();
        let &(known, number) = self.cache.get(slot_of(address))?;
        (known == address).then_some(number)
    }

    /// The number of a site, and whether it is new.
    pub fn number(&mut self, site: &'static Location<'static>) -> (u32, bool) {
        let address = std::ptr::from_ref(site).addr();
        let before = self.sites.len();
        let next = u32::try_from(before + 1).unwrap_or(0);
        let key = (site.file(), site.line(), site.column());
        let number = *self.numbers.entry(key).or_insert(next);
        let new = number == next;
        if new {
            self.sites.push(site);
        }
        self.cache[slot_of(address)] = (address, number);
        (number, new)
    }

    /// File and line of a site.
    pub fn text(&self, number: u32) -> String {
        match self.sites.get((number as usize).wrapping_sub(1)) {
            Some(site) => format!("{}:{}", site.file(), site.line()),
            None => String::from("(unknown)"),
        }
    }
}

/// Texts by number, from 1; 0 is the empty text.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Names {
    /// The number of a text, and whether it is new. 0 also when 2^32 texts are known.
    pub fn number(&mut self, name: &str) -> (u32, bool) {
        if name.is_empty() {
            return (0, false);
        }
        if let Some(&number) = self.numbers.get(name) {
            return (number, false);
        }
        let Ok(number) = u32::try_from(self.names.len() + 1) else { return (0, false) };
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        (number, true)
    }

    /// The text of a number.
    pub fn text(&self, number: u32) -> &str {
        self.names.get((number as usize).wrapping_sub(1)).map_or("", |name| name)
    }
}
