//! Our files: what git tracks or would track, read once, Rust files parsed.

use std::path::Path;

use anyhow::Result;

use super::Finding;
use crate::shell;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// Relative to the root, with forward slashes.
    pub path: String,
    pub text: String,
}

/// A Rust file and its syntax tree.
pub struct Rust {
    pub path: String,
    pub text: String,
    pub syntax: syn::File,
}

impl Rust {
    /// Whether the whole file is test or bench code, which layers do not bind.
    pub fn is_test(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        let folder = |name: &str| parts.iter().rev().skip(1).any(|part| *part == name);
        let crate_of_tests = parts.first() == Some(&"tests");
        crate_of_tests
            || folder("tests")
            || folder("benches")
            || folder("examples")
            || parts.last() == Some(&"tests.rs")
    }
}

/// Everything that the rules look at.
#[derive(Default)]
pub struct Tree {
    pub files: Vec<Source>,
    pub rust: Vec<Rust>,
    /// Files that are no text (pictures, recordings): only their paths matter.
    pub others: Vec<String>,
    /// Rust files that do not parse.
    pub unreadable: Vec<Finding>,
}

impl Tree {
    /// Read what `git ls-files` names, new files that are not ignored included.
    pub fn load(root: &Path) -> Result<Self> {
        let args = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
        let names = shell::output(&mut shell::command("git", &args))?;
        let mut tree = Self::default();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            match std::fs::read_to_string(root.join(name)) {
                Ok(text) => tree.add(name, text),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    tree.others.push(name.to_owned());
                }
                // Deleted but not yet committed: nothing to check.
                Err(_) => {}
            }
        }
        Ok(tree)
    }

    fn add(&mut self, path: &str, text: String) {
        if path.ends_with(".rs") {
            match syn::parse_file(&text) {
                Ok(syntax) => {
                    self.rust.push(Rust { path: path.to_owned(), text: text.clone(), syntax });
                }
                Err(error) => {
                    let line = error.span().start().line;
                    self.unreadable.push(Finding::new(path, line, format!("no Rust: {error}")));
                }
            }
        }
        self.files.push(Source { path: path.to_owned(), text });
    }

    /// A tree made of the given files, for tests of the rules.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, (*text).to_owned());
        }
        assert_eq!(tree.unreadable, [], "the planted files must parse");
        tree
    }

    /// The Markdown files.
    pub fn documents(&self) -> impl Iterator<Item = &Source> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    /// Whether a file, or a folder with a file in it, is at that path.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let paths = self.files.iter().map(|file| &file.path).chain(&self.others);
        paths.into_iter().any(|known| known == path || known.starts_with(&folder))
    }
}
