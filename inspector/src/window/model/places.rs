//! Where in a program memory was asked for.

use std::collections::HashMap;

use terrane_trace::diagnose::{SiteBy, site_name};
use terrane_trace::snapshot::{Snapshot, StackId};

use super::NEVER;

/// Frames, innermost first, as indices into [`Places::frames`].
pub type Stack = Vec<u32>;

/// Call stacks and sites.
#[derive(Debug, Default)]
pub struct Places {
    /// Lines of the program, or what stands for them.
    pub sites: Vec<String>,
    /// Texts of frames: `file:line function`.
    pub frames: Vec<String>,
    /// Call stacks.
    pub stacks: Vec<Stack>,
    /// The site of each stack.
    site_of: Vec<u32>,
    known: HashMap<String, u32>,
    known_frames: HashMap<String, u32>,
    by_id: HashMap<StackId, u32>,
}

impl Places {
    /// Sites alone, without call stacks.
    #[cfg(test)]
    pub fn of_sites(sites: Vec<String>) -> Self {
        Self { sites, ..Self::default() }
    }

    /// The number of a site, made if it is new.
    pub fn site(&mut self, name: &str) -> u32 {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let number = self.sites.len() as u32;
        self.sites.push(name.to_owned());
        self.known.insert(name.to_owned(), number);
        number
    }

    /// Site and stack of a snapshot's stack.
    pub fn of(&mut self, snapshot: &Snapshot, stack: Option<StackId>) -> (u32, u32) {
        let Some(id) = stack else { return (self.site("no call stack"), NEVER) };
        if let Some(known) = self.by_id.get(&id) {
            return (self.site_of[*known as usize], *known);
        }
        let site = self.site(&site_name(snapshot, id, SiteBy::User));
        let frames = snapshot.stack_lines(id);
        let stack = frames.iter().map(|frame| self.frame(frame)).collect();
        let number = self.stacks.len() as u32;
        self.stacks.push(stack);
        self.site_of.push(site);
        self.by_id.insert(id, number);
        (site, number)
    }

    fn frame(&mut self, text: &str) -> u32 {
        if let Some(known) = self.known_frames.get(text) {
            return *known;
        }
        let number = self.frames.len() as u32;
        self.frames.push(text.to_owned());
        self.known_frames.insert(text.to_owned(), number);
        number
    }

    /// Forgets what only building needs.
    pub fn seal(&mut self) {
        self.known = HashMap::new();
        self.known_frames = HashMap::new();
        self.by_id = HashMap::new();
    }

    /// The texts of a stack's frames, innermost first.
    pub fn stack(&self, stack: u32) -> impl Iterator<Item = &str> {
        let frames = self.stacks.get(stack as usize).map(Vec::as_slice).unwrap_or_default();
        frames.iter().filter_map(|frame| self.frames.get(*frame as usize)).map(String::as_str)
    }
}

/// A frame or site without the folders before its file.
pub fn short(site: &str) -> &str {
    let path_end = site.find(':').unwrap_or(site.len());
    let start = site[..path_end].rfind('/').map_or(0, |slash| slash + 1);
    &site[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_site_keeps_file_line_and_function() {
        assert_eq!(short("/a/b/train.py:12 step"), "train.py:12 step");
        assert_eq!(short("no call stack"), "no call stack");
        assert_eq!(short("x.cu:3 operator/"), "x.cu:3 operator/");
    }
}
