//! Compiled shaders: a `.spv` beside its `.comp` has to be what the compiler makes of it. Another
//! version of the compiler writes other words for the same shader, so the source names the one it
//! was built by and only that one can tell.

use anyhow::Result;

use super::Finding;
use super::tree::{Source, Tree};
use crate::shell;

/// The lines of a shader that say how it was built.
const BUILD: &str = "// Build: glslc ";
const BUILT_BY: &str = "// Built by: ";

/// What is wrong with the shaders, and which could not be compared.
#[derive(Default)]
pub struct Shaders {
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
}

/// How a shader was built.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    /// Options of the compiler.
    options: Vec<String>,
    /// The name and version that the compiler gives itself.
    version: String,
}

/// Builds every shader again and compares.
pub fn check(tree: &Tree) -> Result<Shaders> {
    let mut shaders = Shaders::default();
    let installed = version()?;
    for file in tree.files.iter().filter(|file| file.path.ends_with(".comp")) {
        let recipe = match recipe(file) {
            Ok(recipe) => recipe,
            Err(finding) => {
                shaders.findings.push(finding);
                continue;
            }
        };
        if let Some(note) = incomparable(&file.path, &recipe, installed.as_deref()) {
            shaders.notes.push(note);
            continue;
        }
        shaders.findings.extend(compare(file, &recipe)?);
    }
    Ok(shaders)
}

fn recipe(file: &Source) -> Result<Recipe, Finding> {
    let line = |start: &str| file.text.lines().find_map(|line| line.strip_prefix(start));
    let (Some(build), Some(by)) = (line(BUILD), line(BUILT_BY)) else {
        let message = format!("no lines `{BUILD}` and `{BUILT_BY}`: how was it compiled?");
        return Err(Finding::new(&file.path, 0, message));
    };
    let options = build.split_whitespace().take_while(|word| word.starts_with('-'));
    let version: Vec<&str> = by.split_whitespace().take(2).collect();
    Ok(Recipe { options: options.map(str::to_owned).collect(), version: version.join(" ") })
}

/// The first line of `glslc --version`, or `None` where it is not installed.
fn version() -> Result<Option<String>> {
    if !shell::on_path("glslc") {
        return Ok(None);
    }
    let text = shell::output(&mut shell::command("glslc", &["--version"]))?;
    Ok(text.lines().next().map(|line| line.trim().to_owned()))
}

fn incomparable(path: &str, recipe: &Recipe, installed: Option<&str>) -> Option<String> {
    let wanted = &recipe.version;
    match installed {
        None => Some(format!("{path} is not compared with its .spv: glslc is not installed")),
        Some(version) if version != wanted => Some(format!(
            "{path} is not compared with its .spv: it was built by {wanted}, here is {version}"
        )),
        Some(_) => None,
    }
}

fn compare(file: &Source, recipe: &Recipe) -> Result<Option<Finding>> {
    let compiled = format!("{}.spv", file.path.trim_end_matches(".comp"));
    let scratch = std::env::temp_dir().join(format!("terrane-shader-{}.spv", std::process::id()));
    let mut command = shell::command("glslc", &[]);
    command.args(&recipe.options).arg(&file.path).arg("-o").arg(&scratch);
    let built = shell::output(&mut command).and_then(|_| Ok(std::fs::read(&scratch)?));
    let _ = std::fs::remove_file(&scratch);
    let message = match (built, std::fs::read(shell::root().join(&compiled))) {
        (Err(error), _) => format!("does not compile: {error}"),
        (_, Err(_)) => format!("{compiled} is missing: build it as the first lines say"),
        (Ok(built), Ok(committed)) => match differs(&built, &committed) {
            Some(at) => format!("{compiled} differs from byte {at} on: build it again"),
            None => return Ok(None),
        },
    };
    Ok(Some(Finding::new(&file.path, 0, message)))
}

/// The first byte in which two files differ.
fn differs(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    common.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "#version 450\n// Build: glslc --target-env=x -O a.comp -o a.spv\n\
                        // Built by: shaderc 1.2-3 (more words)\n";

    fn source(text: &str) -> Source {
        Source { path: "kernels/a.comp".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_shader_says_how_and_by_what_it_was_built() {
        let recipe = recipe(&source(GOOD)).unwrap();
        assert_eq!(recipe.options, ["--target-env=x", "-O"]);
        assert_eq!(recipe.version, "shaderc 1.2-3");
        let silent = source("#version 450\nvoid main() {}\n");
        assert!(super::recipe(&silent).is_err());
    }

    #[test]
    fn another_compiler_or_none_is_noted_and_does_not_fail() {
        let recipe = recipe(&source(GOOD)).unwrap();
        assert!(incomparable("a.comp", &recipe, None).unwrap().contains("not installed"));
        assert!(incomparable("a.comp", &recipe, Some("shaderc 2")).unwrap().contains("shaderc 2"));
        assert_eq!(incomparable("a.comp", &recipe, Some("shaderc 1.2-3")), None);
    }

    #[test]
    fn a_changed_byte_and_a_missing_end_are_found() {
        assert_eq!(differs(b"same", b"same"), None);
        assert_eq!(differs(b"same", b"sane"), Some(2));
        assert_eq!(differs(b"same", b"sam"), Some(3));
    }
}
