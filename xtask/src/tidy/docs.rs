//! Documents: one title each, links that lead somewhere, names that still exist.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{Source, Tree};

/// One H1 per document and no dead relative link.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in tree.documents() {
        let titles: Vec<usize> = prose(document)
            .filter(|(_, line)| line.starts_with("# "))
            .map(|(number, _)| number)
            .collect();
        match titles[..] {
            [_] => {}
            [] => findings.push(Finding::new(&document.path, 1, "no title (a line `# …`)")),
            [_, second, ..] => {
                findings.push(Finding::new(&document.path, second, "a second title (H1)"));
            }
        }
        for (number, line) in prose(document) {
            for target in links(line) {
                if let Some(message) = dead(tree, document, target) {
                    findings.push(Finding::new(&document.path, number, message));
                }
            }
        }
    }
    findings
}

/// Numbered lines outside fenced code.
fn prose(document: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    document.text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Targets of inline links, `](target)`, outside code spans.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let text = line.split('`').step_by(2);
    text.flat_map(|text| {
        text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    })
}

fn dead(tree: &Tree, document: &Source, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { document.path.clone() } else { join(&document.path, path) };
    if !tree.has(&path) {
        return Some(format!("dead link: there is no {path}"));
    }
    let linked = tree.documents().find(|other| other.path == path)?;
    let known = anchor.is_empty() || prose(linked).any(|(_, line)| anchor_of(line) == anchor);
    (!known).then(|| format!("dead link: {path} has no heading #{anchor}"))
}

/// A relative path, seen from the folder of a document.
fn join(document: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor that code hosts give a heading; empty for other lines.
fn anchor_of(line: &str) -> String {
    if !line.starts_with('#') {
        return String::new();
    }
    let title = line.trim_start_matches('#').trim();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Names in backticks in docs/life-of-*.md that are in no source file of ours.
pub fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stories = tree.documents().filter(|file| file.path.starts_with("docs/life-of-"));
    let stories: Vec<&Source> = stories.collect();
    if stories.is_empty() {
        return findings;
    }
    let known = identifiers(tree);
    for story in stories {
        for (number, line) in prose(story) {
            for span in line.split('`').skip(1).step_by(2) {
                if let Some(message) = gone(tree, &known, span) {
                    findings.push(Finding::new(&story.path, number, message));
                }
            }
        }
    }
    findings
}

fn gone(tree: &Tree, known: &BTreeSet<&str>, span: &str) -> Option<String> {
    if span.contains('/') && !span.contains(' ') {
        return (!tree.has(span)).then(|| format!("`{span}`: no such file"));
    }
    let name_like = |c: char| c.is_ascii_alphanumeric() || "_:.()&<>".contains(c);
    if !span.chars().all(name_like) {
        return None;
    }
    let names = span.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()));
    let missing = names.find(|name| !known.contains(name))?;
    Some(format!("`{span}`: no source of ours names `{missing}`"))
}

/// Every word of our Rust sources outside xtask.
fn identifiers(tree: &Tree) -> BTreeSet<&str> {
    let sources = tree.rust.iter().filter(|file| !file.path.starts_with("xtask/"));
    sources
        .flat_map(|file| file.text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')))
        .filter(|word| !word.is_empty())
        .collect()
}

const INVARIANTS: &str = "docs/invariants.md";

/// Ids like `INV-RANGE-3`: each in the sources is explained, each explained is in the sources.
pub fn invariants(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let document = tree.files.iter().find(|file| file.path == INVARIANTS);
    let explained: Vec<(usize, &str)> = document.into_iter().flat_map(ids).collect();
    let sources = tree.files.iter();
    let sources = sources.filter(|f| f.path.ends_with(".rs") && !f.path.starts_with("xtask/"));
    let mut used = BTreeSet::new();
    for file in sources {
        for (line, id) in ids(file) {
            used.insert(id);
            if !explained.iter().any(|(_, known)| *known == id) {
                let message = format!("{id} is not explained in {INVARIANTS}");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    for (line, id) in explained {
        if !used.contains(id) {
            let message = format!("no source checks {id}");
            findings.push(Finding::new(INVARIANTS, line, message));
        }
    }
    findings
}

fn ids(file: &Source) -> impl Iterator<Item = (usize, &str)> {
    file.text.lines().enumerate().flat_map(|(index, line)| {
        let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        words.filter(|word| is_id(word)).map(move |word| (index + 1, word))
    })
}

fn is_id(word: &str) -> bool {
    let Some((area, number)) = word.strip_prefix("INV-").and_then(|rest| rest.rsplit_once('-'))
    else {
        return false;
    };
    !area.is_empty() && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_document_has_one_title_and_code_does_not_count() {
        let one = "# A\n```sh\n# a comment\n```\n";
        assert_eq!(check(&Tree::of(&[("a.md", one)])), []);
        assert_eq!(lines(&check(&Tree::of(&[("a.md", "# A\n\n# B\n")]))), [3]);
        assert_eq!(lines(&check(&Tree::of(&[("a.md", "text\n")]))), [1]);
    }

    #[test]
    fn dead_links_and_dead_anchors_are_found() {
        let a = "# A\n[b](docs/b.md#two-words) [c](gone.md) [d](docs/b.md#gone) [e](#a)\n\
                 `[f](code.md)` [g](https://example.org)\n";
        let tree = Tree::of(&[("a.md", a), ("docs/b.md", "# B\n## Two words\n[a](../a.md)\n")]);
        let found = check(&tree);
        assert_eq!(lines(&found), [2, 2], "{found:?}");
    }

    #[test]
    fn names_that_left_the_sources_are_found_in_the_stories() {
        let story = "# Life\nFirst `Pool::find`, then `commit()`, then `Pool::vanished`.\n\
                     See `core/src/pool.rs` and `core/src/gone.rs`; run `cargo xtask demo`.\n";
        let tree = Tree::of(&[
            ("docs/life-of-an-allocation.md", story),
            ("core/src/pool.rs", "struct Pool;\nimpl Pool { fn find() {} fn commit() {} }"),
        ]);
        let found = names(&tree);
        assert_eq!(lines(&found), [2, 3], "{found:?}");
        assert!(found[0].message.contains("vanished"));
    }

    #[test]
    fn invariants_are_explained_and_checked_or_found() {
        let tree = Tree::of(&[
            (INVARIANTS, "# I\nINV-RANGE-1: a\nINV-RANGE-2: b\n"),
            ("core/src/range.rs", "// INV-RANGE-1 and\n// INV-RANGE-3\n"),
        ]);
        let found = invariants(&tree);
        assert_eq!(lines(&found), [2, 3], "{found:?}");
        assert!(found[0].message.contains("INV-RANGE-3"));
        assert!(found[1].message.contains("INV-RANGE-2"));
    }
}
