//! What must carry its reason: unsafe code and ignored tests.

use syn::visit::{self, Visit};
use syn::{Attribute, Meta};

use super::tree::{Rust, Tree};
use super::{Finding, layers};

/// Unsafe blocks and impls without a `// SAFETY:` above, or in files where none may stand.
pub fn unsafe_blocks(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.rust {
        let mut visitor = Unsafe(Vec::new());
        visitor.visit_file(&file.syntax);
        let lines: Vec<&str> = file.text.lines().collect();
        for line in visitor.0 {
            if !layers::may_be_unsafe(file) {
                let message = "unsafe stands only at the edge to a driver or the system";
                findings.push(Finding::new(&file.path, line, message));
            }
            if !has_reason(&lines, line) {
                let message = "unsafe without a `// SAFETY:` reason above it";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// Look upward from line `line` (from 1) through comments, attributes and the beginning of the
/// same statement.
fn has_reason(lines: &[&str], line: usize) -> bool {
    for text in lines.iter().take(line.saturating_sub(1)).rev() {
        let text = text.trim();
        if text.starts_with("//") {
            if text.contains("SAFETY:") {
                return true;
            }
        } else if text.is_empty() || text.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

struct Unsafe(Vec<usize>);

impl<'a> Visit<'a> for Unsafe {
    fn visit_expr_unsafe(&mut self, block: &'a syn::ExprUnsafe) {
        self.0.push(block.unsafe_token.span.start().line);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.0.push(token.span.start().line);
        }
        visit::visit_item_impl(self, item);
    }
}

/// `#[ignore]` without a text that says why and how to run it.
pub fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    tree.rust.iter().flat_map(ignored_in).collect()
}

fn ignored_in(file: &Rust) -> Vec<Finding> {
    let mut visitor = Ignored(Vec::new());
    visitor.visit_file(&file.syntax);
    let message = "ignored test without a reason: #[ignore = \"why, and how to run it\"]";
    visitor.0.into_iter().map(|line| Finding::new(&file.path, line, message)).collect()
}

struct Ignored(Vec<usize>);

impl<'a> Visit<'a> for Ignored {
    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if attribute.path().is_ident("ignore") && matches!(attribute.meta, Meta::Path(_)) {
            self.0.push(attribute.pound_token.span.start().line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsafe_lines(path: &str, text: &str) -> Vec<usize> {
        unsafe_blocks(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect()
    }

    const EDGE: &str = "vulkan-backend/src/lib.rs";

    #[test]
    fn an_unsafe_block_needs_its_reason_directly_above_its_statement() {
        let good = "fn f() {\n    // SAFETY: p is live.\n    let x =\n        unsafe { *p };\n}";
        assert!(unsafe_lines(EDGE, good).is_empty());
        assert_eq!(unsafe_lines(EDGE, "fn f() {\n    unsafe { g() };\n}"), [2]);
        let far = "fn f() {\n    // SAFETY: for g.\n    unsafe { g() };\n    unsafe { h() };\n}";
        assert_eq!(unsafe_lines(EDGE, far), [4]);
    }

    #[test]
    fn an_unsafe_impl_needs_a_reason_too() {
        assert_eq!(unsafe_lines(EDGE, "struct S;\nunsafe impl Send for S {}"), [2]);
    }

    #[test]
    fn unsafe_away_from_the_edge_is_found_even_with_a_reason() {
        let text = "fn f() {\n    // SAFETY: none needed.\n    unsafe { g() };\n}";
        assert_eq!(unsafe_lines("core/src/pool/mod.rs", text), [3]);
        assert!(unsafe_lines("core/tests/memory.rs", text).is_empty());
    }

    #[test]
    fn an_ignored_test_needs_a_reason() {
        let text = "#[test]\n#[ignore]\nfn a() {}\n#[test]\n#[ignore = \"needs a GPU\"]\nfn b() {}";
        let found = ignored_tests(&Tree::of(&[("tests/tests/a.rs", text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2]);
    }
}
