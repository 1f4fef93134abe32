//! Lines and how often each was run, as `llvm-cov` exports them, without test code.
//!
//! `llvm-cov report` takes of each function the best of its copies (a crate is compiled once for
//! every set of features, a generic function once for every type). Here a line counts when any
//! copy ran it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::Span;
use syn::token::Brace;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, Item, Signature};

use crate::tidy;

/// A file that is counted.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Relative to the root.
    pub path: String,
    /// How often each line with code was run, without lines of tests.
    pub lines: BTreeMap<usize, u64>,
}

impl File {
    /// The first part of its path.
    pub fn folder(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Lines that were run.
    pub fn run(&self) -> usize {
        self.lines.values().filter(|count| **count > 0).count()
    }

    /// Lines that were not run, neighbours joined: `12` or `12-15`.
    pub fn missing(&self) -> Vec<String> {
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        let mut joins = false;
        for (&line, &count) in &self.lines {
            match ranges.last_mut() {
                // Lines without code between two that are missing do not part them.
                Some(last) if count == 0 && joins => *last = *last.start()..=line,
                _ if count == 0 => ranges.push(line..=line),
                _ => {}
            }
            joins = count == 0;
        }
        let show = |range: &RangeInclusive<usize>| match (range.start(), range.end()) {
            (start, end) if start == end => start.to_string(),
            (start, end) => format!("{start}-{end}"),
        };
        ranges.iter().map(show).collect()
    }
}

/// The files below `folders` of an export in lcov's format, in order of their paths.
pub fn files(lcov: &str, root: &Path, folders: &[&str]) -> Result<Vec<File>> {
    let mut read = parse(lcov, root);
    read.retain(|path, _| folders.iter().any(|folder| path.starts_with(&format!("{folder}/"))));
    let mut tests = BTreeSet::new();
    let mut files = Vec::new();
    for (path, mut lines) in read {
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        let code = TestCode::of(&path, &text).with_context(|| path.clone())?;
        lines.retain(|line, _| !code.lines.iter().any(|range| range.contains(line)));
        tests.extend(code.modules);
        files.push(File { path, lines });
    }
    let is_test = |path: &str| {
        let module = path.strip_suffix(".rs").unwrap_or(path);
        let mut parents = module.match_indices('/').map(|(at, _)| &module[..at]);
        tests.contains(module) || parents.any(|parent| tests.contains(parent))
    };
    files.retain(|file| !file.lines.is_empty() && !is_test(&file.path));
    Ok(files)
}

fn parse(lcov: &str, root: &Path) -> BTreeMap<String, BTreeMap<usize, u64>> {
    let mut files: BTreeMap<String, BTreeMap<usize, u64>> = BTreeMap::new();
    let mut path = String::new();
    for line in lcov.lines() {
        if let Some(file) = line.strip_prefix("SF:") {
            let file = Path::new(file);
            path = file.strip_prefix(root).unwrap_or(file).display().to_string();
        } else if let Some(data) = line.strip_prefix("DA:") {
            let mut numbers = data.split(',').map(str::parse::<u64>);
            if let (Some(Ok(line)), Some(Ok(count))) = (numbers.next(), numbers.next()) {
                let lines = files.entry(path.clone()).or_default();
                *lines.entry(line as usize).or_default() += count;
            }
        }
    }
    files
}

/// What of a file is compiled for tests only.
#[derive(Default)]
struct TestCode {
    lines: Vec<RangeInclusive<usize>>,
    /// Modules in files of their own: their paths without `.rs`.
    modules: Vec<String>,
    /// Where the file's own modules lie.
    folder: String,
}

impl TestCode {
    fn of(path: &str, text: &str) -> Result<Self> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = match name {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            _ => path.strip_suffix(".rs").unwrap_or(path).to_owned(),
        };
        let mut found = Self { folder, ..Self::default() };
        found.visit_file(&syn::parse_file(text)?);
        Ok(found)
    }

    fn leave_out(&mut self, from: Span, braces: &Brace) {
        self.lines.push(from.start().line..=braces.span.close().end().line);
    }

    fn leave_out_function(&mut self, signature: &Signature, block: &Block) {
        self.leave_out(signature.fn_token.span, &block.brace_token);
    }
}

impl<'a> Visit<'a> for TestCode {
    fn visit_item(&mut self, item: &'a Item) {
        if !tidy::is_cfg_test(tidy::attributes(item)) {
            return visit::visit_item(self, item);
        }
        match item {
            Item::Fn(function) => self.leave_out_function(&function.sig, &function.block),
            Item::Impl(block) => self.leave_out(block.impl_token.span, &block.brace_token),
            Item::Mod(module) => match &module.content {
                Some((braces, _)) => self.leave_out(module.mod_token.span, braces),
                None => self.modules.push(format!("{}/{}", self.folder, module.ident)),
            },
            _ => {}
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        if tidy::is_cfg_test(&function.attrs) {
            self.leave_out_function(&function.sig, &function.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_tests_is_left_out_and_copies_of_a_line_are_added_up() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("core/src/pool");
        std::fs::create_dir_all(&folder).unwrap();
        let text = "#[cfg(test)]\nmod check;\nfn a() {\n    b();\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        std::fs::write(folder.join("mod.rs"), text).unwrap();
        std::fs::write(folder.join("check.rs"), "fn d() {}\n").unwrap();
        std::fs::write(folder.join("checks.rs"), "fn e() {}\n").unwrap();
        let shown = folder.display();
        let lcov = format!(
            "SF:{shown}/check.rs\nDA:1,1\nend_of_record\n\
             SF:{shown}/checks.rs\nDA:1,1\nend_of_record\n\
             SF:{shown}/mod.rs\nDA:3,0\nDA:4,0\nDA:5,0\nDA:8,7\nend_of_record\n\
             SF:{shown}/mod.rs\nDA:3,2\nDA:4,0\nDA:5,0\nend_of_record\n\
             SF:/elsewhere/lib.rs\nDA:1,1\nend_of_record\n"
        );
        let files = files(&lcov, root.path(), &["core"]).unwrap();
        let lines = |path: &str, lines: &[(usize, u64)]| File {
            path: path.to_owned(),
            lines: lines.iter().copied().collect(),
        };
        assert_eq!(
            files,
            [
                lines("core/src/pool/checks.rs", &[(1, 1)]),
                lines("core/src/pool/mod.rs", &[(3, 2), (4, 0), (5, 0)]),
            ]
        );
        assert_eq!((files[1].run(), files[1].missing()), (1, vec!["4-5".to_owned()]));
    }

    #[test]
    fn missing_lines_are_parted_by_lines_that_were_run() {
        let lines = [(1, 0), (2, 1), (4, 0), (7, 0), (9, 3), (10, 0)].into_iter().collect();
        let file = File { path: "core/src/a.rs".to_owned(), lines };
        assert_eq!(file.missing(), ["1", "4-7", "10"]);
    }
}
