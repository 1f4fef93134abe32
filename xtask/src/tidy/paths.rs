//! Every path that a Rust file names, made absolute: `use` trees unfolded, `self` and `super`
//! resolved, and `crate::…` inside macro calls found.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use super::tree::Rust;

/// One mention of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Segments, starting with `crate` or the name of another crate.
    pub path: Vec<String>,
    pub line: usize,
    /// Within `#[cfg(test)]`.
    pub test: bool,
    /// The leaf of a `use`, which may bring in a whole module.
    pub import: bool,
}

/// All paths of two or more segments in the file.
pub fn used(file: &Rust) -> Vec<Used> {
    let module = module_of(&file.path);
    let mut visitor = Visitor { module, tests: usize::from(file.is_test()), used: Vec::new() };
    visitor.visit_file(&file.syntax);
    visitor.used
}

/// The module path of a file below `src/`: `core/src/range/index.rs` is `range::index`.
pub fn module_of(path: &str) -> Vec<String> {
    let below = path.rsplit_once("src/").map_or(path, |(_, below)| below);
    let below = below.strip_suffix(".rs").unwrap_or(below);
    let mut module: Vec<String> = below.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

/// Whether the attributes say `#[cfg(test)]`.
pub fn is_cfg_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

struct Visitor {
    module: Vec<String>,
    /// How many enclosing items are test code.
    tests: usize,
    used: Vec<Used>,
}

impl Visitor {
    fn push(&mut self, segments: &[String], line: usize, import: bool) {
        let Some(path) = self.absolute(segments) else { return };
        if path.len() > 1 {
            self.used.push(Used { path, line, test: self.tests > 0, import });
        }
    }

    /// Resolve a leading `self` or `super`; other paths stay as they are.
    fn absolute(&self, segments: &[String]) -> Option<Vec<String>> {
        let first = segments.first()?;
        if first != "self" && first != "super" {
            return Some(segments.to_vec());
        }
        let mut module = self.module.clone();
        let mut rest = segments;
        while let [head, tail @ ..] = rest {
            match head.as_str() {
                "self" => {}
                "super" => {
                    module.pop();
                }
                _ => break,
            }
            rest = tail;
        }
        let root = std::iter::once("crate".to_owned());
        Some(root.chain(module).chain(rest.iter().cloned()).collect())
    }

    fn unfold(&mut self, tree: &UseTree, prefix: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.unfold(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Name(name) => self.leaf(prefix, &name.ident),
            UseTree::Rename(rename) => self.leaf(prefix, &rename.ident),
            UseTree::Glob(glob) => {
                self.push(&prefix.clone(), glob.star_token.span.start().line, true);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.unfold(tree, prefix);
                }
            }
        }
    }

    fn leaf(&mut self, prefix: &[String], ident: &syn::Ident) {
        let mut path = prefix.to_vec();
        if ident != "self" || path.is_empty() {
            path.push(ident.to_string());
        }
        self.push(&path, ident.span().start().line, true);
    }

    /// Paths in the tokens of a macro call, which syn does not parse.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.push(&std::mem::take(&mut path), line, false);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                }
                other => {
                    self.push(&std::mem::take(&mut path), line, false);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.push(&path, line, false);
    }
}

impl<'a> Visit<'a> for Visitor {
    fn visit_item(&mut self, item: &'a Item) {
        let test = usize::from(is_cfg_test(attributes(item)));
        self.tests += test;
        visit::visit_item(self, item);
        self.tests -= test;
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        let test = usize::from(is_cfg_test(&item.attrs));
        self.tests += test;
        visit::visit_impl_item_fn(self, item);
        self.tests -= test;
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.unfold(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |s| s.ident.span().start().line);
        self.push(&segments, line, false);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// The attributes of an item that tests may have.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    fn paths_in(path: &str, text: &str) -> Vec<String> {
        used(&Tree::of(&[(path, text)]).rust[0]).iter().map(|used| used.path.join("::")).collect()
    }

    #[test]
    fn use_trees_are_unfolded_and_super_is_resolved() {
        let text = "use crate::{units::Bytes, pool::{self, Pool}};\nuse super::Index;";
        let found = paths_in("core/src/range/class.rs", text);
        let expected =
            ["crate::units::Bytes", "crate::pool", "crate::pool::Pool", "crate::range::Index"];
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_in_expressions_types_and_macro_calls_are_found() {
        let text =
            "fn f(a: crate::pool::Pool) { assert!(crate::compact::plan(a) == std::fs::x()); }";
        let found = paths_in("core/src/units.rs", text);
        assert_eq!(found, ["crate::pool::Pool", "crate::compact::plan", "std::fs::x"]);
    }

    #[test]
    fn code_under_cfg_test_is_marked() {
        let text = "#[cfg(test)]\nmod tests { use crate::pool::Pool; }\nuse crate::id::Key;";
        let tree = Tree::of(&[("core/src/units.rs", text)]);
        let found: Vec<bool> = used(&tree.rust[0]).iter().map(|used| used.test).collect();
        assert_eq!(found, [true, false]);
    }
}
