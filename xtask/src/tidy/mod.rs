//! `cargo xtask tidy`: the house style as a test. Each rule is a function from our files to what
//! breaks it, and each is itself tested on a planted fault.
//!
//! To extend: tables of layers and arrows are in `tables`, exceptions that must only shrink in
//! `ratchet`, a new rule is one function listed in `RULES`.

mod arrows;
mod conformance;
mod dead;
mod docs;
mod layers;
mod paths;
mod ratchet;
mod reasons;
mod shaders;
mod sizes;
mod tables;
mod text;
mod tree;

use std::fmt;

use anyhow::{Result, bail};

use crate::{metadata, shell};
pub use paths::{attributes, is_cfg_test};
use tree::Tree;

/// One broken rule, at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; 0 where the whole file is meant.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [(&str, Rule); 11] = [
    ("layers", layers::check),
    ("forbidden paths", layers::forbidden),
    ("files that nothing compiles", dead::check),
    ("sizes", sizes::check),
    ("columns", text::columns),
    ("reasons for unsafe", reasons::unsafe_blocks),
    ("reasons for ignored tests", reasons::ignored_tests),
    ("unfinished marks and machine paths", text::check),
    ("documents", docs::check),
    ("names in the life-of documents", docs::names),
    ("invariants", docs::invariants),
];

/// Check everything and list what was found.
pub fn run() -> Result<()> {
    let tree = Tree::load(&shell::root())?;
    let mut findings = tree.unreadable.clone();
    for (_, rule) in RULES {
        findings.extend(rule(&tree));
    }
    let packages = metadata::packages()?;
    findings.extend(arrows::direct(&packages));
    findings.extend(arrows::reachable(&packages)?);
    let records = conformance::check(&tree)?;
    findings.extend(records.findings);
    let shaders = shaders::check(&tree)?;
    findings.extend(shaders.findings);
    for note in records.notes.iter().chain(&shaders.notes) {
        println!("note: {note}");
    }
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} places break the house style", findings.len());
    }
    println!("tidy: {} files, {} rules, nothing found", tree.files.len(), RULES.len() + 4);
    Ok(())
}
