//! What `cargo metadata` says about our own packages: the one source for feature and target lists.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// One package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name as in its manifest.
    pub name: String,
    /// Feature name to the features and dependencies it turns on.
    pub features: BTreeMap<String, Vec<String>>,
    /// Direct dependencies: name and kind (`normal`, `dev` or `build`).
    pub dependencies: Vec<(String, String)>,
    /// Targets such as examples and benches.
    pub targets: Vec<Target>,
}

/// One target of a package.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name as given to `--example`, `--bench` or `--bin`.
    pub name: String,
    /// First kind: `lib`, `bin`, `example`, `bench`, `test`.
    pub kind: String,
    /// Features that the target needs.
    pub required_features: Vec<String>,
}

impl Package {
    /// Names of the targets of one kind.
    pub fn targets_of(&self, kind: &str) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |target| target.kind == kind)
    }
}

/// Our packages, by name.
pub fn packages() -> Result<Vec<Package>> {
    let args = ["metadata", "--format-version", "1", "--no-deps", "--quiet"];
    let text = shell::output(&mut shell::cargo(&args))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Package>> {
    let json: Value = serde_json::from_str(text).context("cargo metadata printed no JSON")?;
    let packages = json["packages"].as_array().context("cargo metadata: no packages")?;
    let mut packages: Vec<Package> = packages.iter().map(package).collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn package(json: &Value) -> Package {
    let dependencies = list(&json["dependencies"])
        .map(|dep| (string(&dep["name"]), dep["kind"].as_str().unwrap_or("normal").to_owned()))
        .collect();
    let features = json["features"].as_object().map(|map| {
        map.iter().map(|(name, on)| (name.clone(), list(on).map(string).collect())).collect()
    });
    let targets = list(&json["targets"]).map(target).collect();
    Package {
        name: string(&json["name"]),
        features: features.unwrap_or_default(),
        dependencies,
        targets,
    }
}

fn target(json: &Value) -> Target {
    Target {
        name: string(&json["name"]),
        kind: list(&json["kind"]).next().map(string).unwrap_or_default(),
        required_features: list(&json["required-features"]).map(string).collect(),
    }
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn string(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}
