//! Arrows between modules: what a file may name.

use super::Finding;
use super::paths::{self, Used};
use super::tables::{BACKEND_MAY_USE, BACKENDS, CORE_LAYERS, FORBIDDEN, Forbidden, UNSAFE_WITHIN};
use super::tree::{Rust, Tree};

const CORE: &str = "core/src/";

/// Layers inside core, and what backends name of core.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.rust {
        if file.path.starts_with(CORE) {
            core_file(file, &mut findings);
        }
        if BACKENDS.iter().any(|folder| file.path.starts_with(folder)) {
            backend_file(file, &mut findings);
        }
    }
    findings
}

fn layer_of(module: &str) -> Option<usize> {
    CORE_LAYERS.iter().position(|layer| layer.contains(&module))
}

fn core_file(file: &Rust, findings: &mut Vec<Finding>) {
    let module = paths::module_of(&file.path);
    // The root re-exports everything.
    let Some(own) = module.first() else { return };
    let Some(layer) = layer_of(own) else {
        let message = format!("module `{own}` has no layer: add it to xtask/src/tidy/tables.rs");
        findings.push(Finding::new(&file.path, 0, message));
        return;
    };
    for used in shipped(file).filter(|used| used.path[0] == "crate") {
        let target = &used.path[1];
        let message = match layer_of(target) {
            Some(other) if other > layer => {
                format!("`{own}` is in layer {layer} and must not use `{target}` of layer {other}")
            }
            Some(_) => continue,
            None => format!("`crate::{target}`: name the module it is defined in"),
        };
        findings.push(Finding::new(&file.path, used.line, message));
    }
}

fn backend_file(file: &Rust, findings: &mut Vec<Finding>) {
    for used in shipped(file).filter(|used| used.path[0] == "terrane_core") {
        let target = used.path[1].as_str();
        if !BACKEND_MAY_USE.contains(&target) {
            let allowed = BACKEND_MAY_USE.join(", ");
            let message = format!("a backend may not use `terrane_core::{target}`, only {allowed}");
            findings.push(Finding::new(&file.path, used.line, message));
        }
    }
}

/// Paths outside test code.
fn shipped(file: &Rust) -> impl Iterator<Item = Used> {
    paths::used(file).into_iter().filter(|used| !used.test)
}

/// Paths that a folder must not name.
pub fn forbidden(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.rust {
        let rules: Vec<&Forbidden> = FORBIDDEN.iter().filter(|rule| rule.binds(file)).collect();
        if rules.is_empty() {
            continue;
        }
        for used in shipped(file) {
            for rule in rules.iter().filter(|rule| rule.matches(&used)) {
                let message = format!("`{}`: {}", used.path.join("::"), rule.why);
                findings.push(Finding::new(&file.path, used.line, message));
            }
        }
    }
    findings
}

impl Forbidden {
    fn binds(&self, file: &Rust) -> bool {
        file.path.starts_with(self.within)
            && !self.except.iter().any(|except| file.path.starts_with(except))
    }

    /// The path or something below it; or an import of the module that holds it, through which it
    /// could be named unseen.
    fn matches(&self, used: &Used) -> bool {
        let below = used.path.iter().zip(self.path).filter(|(a, b)| a == b).count();
        let whole = below == self.path.len();
        let holder = used.import && below == used.path.len() && below > 1;
        whole || holder
    }
}

/// Whether `unsafe` may stand in that file at all.
pub fn may_be_unsafe(file: &Rust) -> bool {
    file.is_test() || UNSAFE_WITHIN.iter().any(|folder| file.path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<(&str, usize)> {
        findings.iter().map(|f| (f.path.as_str(), f.line)).collect()
    }

    #[test]
    fn an_upward_arrow_in_core_is_found_and_downward_ones_are_not() {
        let tree = Tree::of(&[
            ("core/src/range/mod.rs", "use crate::units::Bytes;\nuse crate::pool::Pool;"),
            ("core/src/pool/mod.rs", "use crate::range::Index;\nuse crate::pending::Queue;"),
            ("core/src/lib.rs", "pub use crate::allocator::Allocator;"),
        ]);
        assert_eq!(lines(&check(&tree)), [("core/src/range/mod.rs", 2)]);
    }

    #[test]
    fn an_upward_arrow_through_super_or_a_macro_is_found() {
        let tree = Tree::of(&[
            ("core/src/range/mod.rs", "use super::pool::Pool;"),
            ("core/src/units.rs", "fn f() {\n    debug_assert!(crate::stats::ok());\n}"),
        ]);
        let expected = [("core/src/range/mod.rs", 1), ("core/src/units.rs", 2)];
        assert_eq!(lines(&check(&tree)), expected);
    }

    #[test]
    fn tests_inside_core_may_look_upward() {
        let text = "#[cfg(test)]\nmod tests {\n    use crate::device::sim::SimDevice;\n}";
        assert_eq!(check(&Tree::of(&[("core/src/range/mod.rs", text)])), []);
    }

    #[test]
    fn re_exports_and_unknown_modules_are_named() {
        let tree = Tree::of(&[
            ("core/src/pool/mod.rs", "use crate::Bytes;"),
            ("core/src/novel.rs", "//! New."),
        ]);
        assert_eq!(lines(&check(&tree)), [("core/src/pool/mod.rs", 1), ("core/src/novel.rs", 0)]);
    }

    #[test]
    fn a_backend_that_reaches_past_the_contract_is_found() {
        let text = "use terrane_core::device::Device;\nuse terrane_core::{units, pool::Pool};";
        let found = check(&Tree::of(&[("vulkan-backend/src/lib.rs", text)]));
        assert_eq!(lines(&found), [("vulkan-backend/src/lib.rs", 2)]);
        assert_eq!(check(&Tree::of(&[("vulkan-backend/tests/it.rs", text)])), []);
    }

    #[test]
    fn clocks_and_files_in_core_are_found_outside_the_host_device() {
        let text =
            "use std::time::{Duration, Instant};\nuse std::time;\nfn f() { std::fs::read(\"\"); }";
        let found = forbidden(&Tree::of(&[("core/src/pending.rs", text)]));
        let places: Vec<usize> = found.iter().map(|f| f.line).collect();
        assert_eq!(places, [1, 2, 2, 3], "{found:?}");
        assert_eq!(forbidden(&Tree::of(&[("core/src/device/host/mod.rs", text)])), []);
    }

    #[test]
    fn the_inspector_may_name_terrane_in_its_source_folder_only() {
        let text = "use terrane::devices;";
        let tree =
            Tree::of(&[("inspector/src/view.rs", text), ("inspector/src/source/live.rs", text)]);
        assert_eq!(lines(&forbidden(&tree)), [("inspector/src/view.rs", 1)]);
    }
}
