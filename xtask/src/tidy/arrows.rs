//! Arrows between packages: what each may depend on, directly and in the end.

use anyhow::Result;

use super::Finding;
use super::tables::{ARROWS, GPU_OR_UI, NO_GPU_OR_UI};
use crate::metadata::Package;
use crate::shell;

/// Direct dependencies on our own packages. Dev-dependencies are free: they ship in nothing.
pub fn direct(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            findings.push(finding(&package.name, "is in no row of ARROWS in xtask's tables"));
            continue;
        };
        let shipped = package.dependencies.iter().filter(|(_, kind)| kind != "dev");
        for (name, _) in shipped {
            let ours = packages.iter().any(|other| other.name == *name);
            if ours && !allowed.contains(&name.as_str()) {
                findings.push(finding(&package.name, &format!("must not depend on {name}")));
            }
        }
    }
    findings
}

/// Packages that must reach no GPU or UI crate, asked of cargo's resolver.
pub fn reachable(packages: &[Package]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for name in NO_GPU_OR_UI.iter().filter(|name| packages.iter().any(|p| p.name == **name)) {
        let args = ["tree", "--quiet", "--package", name, "--edges", "normal,build"];
        let shape = ["--all-features", "--prefix", "none", "--format", "{p}"];
        let tree = shell::output(shell::cargo(&args).args(shape))?;
        findings.extend(reached(name, &tree));
    }
    Ok(findings)
}

fn reached(package: &str, tree: &str) -> Vec<Finding> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let bad = names.filter(|name| is_gpu_or_ui(name));
    bad.map(|name| finding(package, &format!("must not reach the GPU or UI crate {name}")))
        .collect()
}

fn is_gpu_or_ui(name: &str) -> bool {
    GPU_OR_UI.iter().any(|begin| {
        name.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    })
}

fn finding(package: &str, message: &str) -> Finding {
    Finding::new(&format!("package {package}"), 0, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, &str)]) -> Package {
        let owned = |(name, kind): &(&str, &str)| ((*name).to_owned(), (*kind).to_owned());
        Package {
            name: name.to_owned(),
            features: std::collections::BTreeMap::new(),
            dependencies: dependencies.iter().map(owned).collect(),
            targets: Vec::new(),
        }
    }

    #[test]
    fn a_dependency_against_the_arrows_is_found_but_not_for_tests() {
        let packages = [
            package("terrane-core", &[("terrane-trace", "normal"), ("terrane-tests", "dev")]),
            package("terrane-trace", &[("terrane-core", "normal"), ("csv", "normal")]),
            package("terrane-tests", &[]),
        ];
        let found = direct(&packages);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            found[0].to_string(),
            "package terrane-core:0: must not depend on terrane-trace"
        );
    }

    #[test]
    fn a_package_without_a_row_is_found() {
        assert_eq!(direct(&[package("terrane-novel", &[])]).len(), 1);
    }

    #[test]
    fn gpu_and_ui_crates_are_known_by_their_names() {
        let tree =
            "terrane-core v0.1.0\nash v0.38.0\nwgpu-hal v30.0.2\nashpd v0.9.0\nnagare v1.0.0\n";
        let found = reached("terrane-core", tree);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
