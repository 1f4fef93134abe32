//! Lengths of functions and files, against the limits and today's exceptions.

use syn::visit::{self, Visit};
use syn::{Block, Signature};

use super::Finding;
use super::ratchet::{FILE_LINES_MAX, FUNCTION_LINES_MAX, LONG_FILES, LONG_FUNCTIONS};
use super::tree::{Rust, Tree};

/// What is over its limit, and exceptions that are no longer needed.
pub fn check(tree: &Tree) -> Vec<Finding> {
    check_against(tree, LONG_FUNCTIONS, LONG_FILES)
}

fn check_against(
    tree: &Tree,
    long_functions: &[(&str, &str, usize)],
    long_files: &[(&str, usize)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut over: Vec<(String, String, usize)> = Vec::new();
    for file in &tree.rust {
        for function in functions(file) {
            if function.lines > FUNCTION_LINES_MAX {
                over.push((file.path.clone(), function.name.clone(), function.lines));
                let excused = long_functions.iter().any(|(path, name, lines)| {
                    *path == file.path && *name == function.name && function.lines <= *lines
                });
                if !excused {
                    findings.push(function.finding(&file.path));
                }
            }
        }
        findings.extend(file_length(file, long_files));
    }
    for (path, name, lines) in long_functions {
        let current =
            over.iter().find(|(p, n, _)| p == path && n == name).map(|(_, _, lines)| *lines);
        if current.is_none_or(|current| current < *lines) {
            findings.push(slack(path, &format!("function {name}"), current));
        }
    }
    for (path, lines) in long_files {
        let current =
            tree.rust.iter().find(|file| file.path == *path).map(|file| file.text.lines().count());
        let current = current.filter(|current| *current > FILE_LINES_MAX);
        if current.is_none_or(|current| current < *lines) {
            findings.push(slack(path, "file", current));
        }
    }
    findings
}

fn file_length(file: &Rust, long_files: &[(&str, usize)]) -> Option<Finding> {
    let lines = file.text.lines().count();
    let excuse = long_files.iter().find(|(path, _)| *path == file.path).map(|(_, lines)| *lines);
    (lines > excuse.unwrap_or(FILE_LINES_MAX)).then(|| {
        let message = format!("{lines} lines; the limit is {FILE_LINES_MAX}: is it one thing?");
        Finding::new(&file.path, 0, message)
    })
}

fn slack(path: &str, what: &str, current: Option<usize>) -> Finding {
    let advice = current.map_or("remove".to_owned(), |lines| format!("lower to {lines}"));
    Finding::new(path, 0, format!("{advice} the exception for this {what} in xtask's ratchet"))
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

impl Function {
    fn finding(&self, path: &str) -> Finding {
        let Self { name, line, lines } = self;
        let message =
            format!("function {name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}");
        Finding::new(path, *line, message)
    }
}

fn functions(file: &Rust) -> Vec<Function> {
    let mut visitor = Visitor(Vec::new());
    visitor.visit_file(&file.syntax);
    visitor.0
}

struct Visitor(Vec<Function>);

impl Visitor {
    fn push(&mut self, signature: &Signature, body: &Block) {
        let line = signature.fn_token.span.start().line;
        let end = body.brace_token.span.close().end().line;
        let name = signature.ident.to_string();
        self.0.push(Function { name, line, lines: end + 1 - line });
    }
}

impl<'a> Visit<'a> for Visitor {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.push(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.push(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.push(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("impl S {{\n    fn long() {{\n{}    }}\n}}\n", "        x();\n".repeat(lines - 2))
    }

    fn found(
        text: &str,
        functions: &[(&str, &str, usize)],
        files: &[(&str, usize)],
    ) -> Vec<String> {
        let tree = Tree::of(&[("core/src/units.rs", text)]);
        check_against(&tree, functions, files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_function_of_seventy_lines_passes_and_one_more_does_not() {
        assert!(found(&function_of(70), &[], &[]).is_empty());
        let found = found(&function_of(71), &[], &[]);
        assert_eq!(found, ["core/src/units.rs:2: function long has 71 lines; the limit is 70"]);
    }

    #[test]
    fn an_excused_function_may_not_grow_and_its_excuse_must_shrink_with_it() {
        let excuse = |lines| [("core/src/units.rs", "long", lines)];
        assert!(found(&function_of(80), &excuse(80), &[]).is_empty());
        assert_eq!(found(&function_of(81), &excuse(80), &[]).len(), 1);
        assert!(found(&function_of(75), &excuse(80), &[])[0].contains("lower to 75"));
        assert!(found(&function_of(60), &excuse(80), &[])[0].contains("remove"));
    }

    #[test]
    fn a_long_file_is_found_unless_excused() {
        let text = "// line\n".repeat(501);
        assert_eq!(found(&text, &[], &[]).len(), 1);
        assert!(found(&text, &[], &[("core/src/units.rs", 501)]).is_empty());
        assert!(found("// line\n", &[], &[("core/src/units.rs", 501)])[0].contains("remove"));
    }
}
