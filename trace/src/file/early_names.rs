//! Names that a recorder tells before the events that use them.

use super::texts::{Text, TextKind};
use std::collections::{HashMap, HashSet};
use terrane_core::Allocator;

/// Names to be told. Sites of blocks that were there when a full state was taken: the allocator
/// tells their texts, not their numbers. And tags, each once.
#[derive(Default)]
pub(super) struct EarlySites {
    numbers: HashMap<String, u32>,
    /// Sites and tags that were named.
    sites: HashSet<u32>,
    tags: HashSet<u16>,
    pub new: Vec<Text>,
}

impl EarlySites {
    /// The number of a site's text.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = EARLY + self.numbers.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.new.push(Text { kind: TextKind::Site, number, text: text.to_owned() });
        number
    }

    /// Names the sites that were not named yet: a look at the allocator's lock each.
    pub fn name_sites(&mut self, alloc: &Allocator, sites: impl IntoIterator<Item = u32>) {
        let mut last = 0;
        for number in sites {
            // Mostly the same one over and over.
            if number != last && number != 0 && self.sites.insert(number) {
                let (kind, text) = (TextKind::Site, alloc.site_text(number));
                self.new.push(Text { kind, number, text });
            }
            last = number;
        }
    }

    /// Names the tags that were not named yet.
    pub fn name_tags(&mut self, alloc: &Allocator, tags: impl IntoIterator<Item = u16>) {
        for number in tags {
            if number != 0 && self.tags.insert(number) {
                let (kind, text) = (TextKind::Tag, alloc.tag_text(number));
                self.new.push(Text { kind, number: u32::from(number), text });
            }
        }
    }
}

/// Numbers for sites of blocks that were there before recording began; the allocator's own
/// numbers never come near.
const EARLY: u32 = 1 << 31;
