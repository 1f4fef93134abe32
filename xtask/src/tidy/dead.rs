//! Rust files that nothing compiles: their parent never declares them.

use std::collections::BTreeSet;

use syn::Item;

use super::Finding;
use super::tree::{Rust, Tree};

/// Files below a `src/` folder, or in a folder of tests, that no `mod` leads to.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let declared: BTreeSet<String> = tree.rust.iter().flat_map(declared_by).collect();
    let orphans = tree.rust.iter().filter(|file| !is_root(&file.path));
    let orphans = orphans.filter(|file| !declared.contains(&file.path));
    orphans.map(|file| Finding::new(&file.path, 0, "no `mod` leads to this file")).collect()
}

/// Files that cargo compiles by themselves.
fn is_root(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return true };
    let parent = folder.rsplit('/').next().unwrap_or(folder);
    let target = matches!(parent, "tests" | "benches" | "examples" | "bin" | "fuzz_targets");
    // `tests/src` is a package; `core/src/range/tests/` is a module.
    let target = target && !folder.trim_end_matches(parent).contains("src/") || parent == "bin";
    matches!(name, "lib.rs" | "main.rs" | "build.rs") || target
}

/// Paths that the file's `mod name;` items may mean.
fn declared_by(file: &Rust) -> Vec<String> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let stem = name.trim_end_matches(".rs");
    let own = is_root(&file.path) || stem == "mod";
    let folder = if own { folder.to_owned() } else { format!("{folder}/{stem}") };
    let mut paths = Vec::new();
    collect(&file.syntax.items, &folder, &mut paths);
    paths
}

fn collect(items: &[Item], folder: &str, paths: &mut Vec<String>) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        match &module.content {
            Some((_, items)) => collect(items, &format!("{folder}/{name}"), paths),
            None => {
                paths.push(format!("{folder}/{name}.rs"));
                paths.push(format!("{folder}/{name}/mod.rs"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_declaration_is_found() {
        let tree = Tree::of(&[
            ("core/src/lib.rs", "mod range;\npub mod units;\nmod inner { mod deep; }"),
            ("core/src/range/mod.rs", "mod find;\n#[cfg(test)]\nmod tests;"),
            ("core/src/range/find.rs", ""),
            ("core/src/range/tests/mod.rs", "mod random;"),
            ("core/src/range/tests/random.rs", ""),
            ("core/src/range/tests/forgotten.rs", ""),
            ("core/src/units.rs", "mod part;"),
            ("core/src/units/part.rs", ""),
            ("core/src/inner/deep.rs", ""),
            ("core/src/forgotten.rs", ""),
            ("core/tests/whole.rs", "mod common;"),
            ("core/tests/common/mod.rs", ""),
            ("tests/src/bin/conformance.rs", ""),
            ("examples/01_allocate.rs", ""),
        ]);
        let found = check(&tree);
        let found: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(found, ["core/src/range/tests/forgotten.rs", "core/src/forgotten.rs"]);
    }
}
