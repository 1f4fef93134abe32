//! Words that must not be in any file: marks of unfinished work, paths of one machine.

use super::Finding;
use super::tree::{Source, Tree};

/// Marks in Rust, shell and TOML files, machine paths in every file.
pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.files.iter().flat_map(|file| lines(file).chain(machine_paths(file))).collect()
}

// Spelled in pieces, so that this file does not find itself.
const MARKS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("HA", "CK"), concat!("XX", "X")];
const MACHINE: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Columns of a Rust line.
const COLUMNS_MAX: usize = 100;

/// Comments too long, which rustfmt leaves alone. (Long messages stay whole, to be searched for.)
pub fn columns(tree: &Tree) -> Vec<Finding> {
    let files = tree.rust.iter();
    files
        .flat_map(|file| {
            file.text.lines().enumerate().filter_map(|(index, line)| {
                let columns = line.chars().count();
                let over = columns > COLUMNS_MAX && line.trim_start().starts_with("//");
                let over = over && !line.contains("://");
                let message = format!("{columns} columns; the limit is {COLUMNS_MAX}");
                over.then(|| Finding::new(&file.path, index + 1, message))
            })
        })
        .collect()
}

fn lines(file: &Source) -> impl Iterator<Item = Finding> {
    let code = [".rs", ".toml", ".sh", ".wgsl", ".glsl", ".comp", ".cu", ".yml"];
    let code = code.iter().any(|end| file.path.ends_with(end)) || file.path == ".ci/run";
    let found = file.text.lines().enumerate().filter(move |_| code).filter_map(|(index, line)| {
        let mark = MARKS.into_iter().find(|mark| has_word(line, mark))?;
        let message = format!("{mark}: do it now, or open an issue and say what holds today");
        Some((index, message))
    });
    found.map(|(index, message)| Finding::new(&file.path, index + 1, message))
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

fn machine_paths(file: &Source) -> impl Iterator<Item = Finding> {
    file.text.lines().enumerate().filter_map(|(index, line)| {
        let path = MACHINE.into_iter().find(|path| names_machine(line, path))?;
        let message = format!("`{path}` is a path of one machine");
        Some(Finding::new(&file.path, index + 1, message))
    })
}

/// The path at its beginning, not as a later part of another path.
fn names_machine(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at]
            .ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_words() {
        for mark in MARKS {
            assert_eq!(
                found("core/src/units.rs", &format!("// a\n// {mark}(2026-01-01): b\n")),
                [2]
            );
            assert!(found("core/src/units.rs", &format!("// {mark}S\n")).is_empty());
        }
    }

    #[test]
    fn a_comment_of_more_than_a_hundred_columns_is_found_unless_it_is_a_link() {
        let text = format!(
            "// {}\n// {}\n// https://{}\n",
            "é".repeat(97),
            "x".repeat(98),
            "y".repeat(99)
        );
        let found = columns(&Tree::of(&[("core/src/units.rs", &text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn paths_of_one_machine_are_found_in_every_kind_of_file() {
        for path in MACHINE {
            assert_eq!(found("docs/a.md", &format!("See {path}x.\n")), [1]);
            assert!(found("docs/a.md", &format!("See docs{path}x.\n")).is_empty());
        }
    }
}
