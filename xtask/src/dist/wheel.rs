//! A Python wheel with one program in it: a zip of a fixed layout (PEP 427), written here because
//! no Python is built.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use zip::write::SimpleFileOptions;

use super::needs::Needs;
use crate::shell;

/// The name on the package index, and of the program that it installs.
const NAME: &str = "terrane";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest C library that pip knows a name for; a static program runs on it.
const GLIBC_OLDEST: (u32, u32) = (2, 17);

/// Writes the wheel of a program into a folder and gives its path.
pub fn build(program: &Path, needs: &Needs, arch: &str, folder: &Path) -> Result<PathBuf> {
    let tags = tags(needs, arch);
    let path = folder.join(format!("{NAME}-{VERSION}-py3-none-{}.whl", tags.join(".")));
    let program = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let info = format!("{NAME}-{VERSION}.dist-info");
    let licence = |name: &str| fs::read(shell::root().join(name));
    let members = [
        (format!("{NAME}-{VERSION}.data/scripts/{NAME}"), 0o755, program),
        (format!("{info}/METADATA"), 0o644, metadata()?.into_bytes()),
        (format!("{info}/WHEEL"), 0o644, wheel(&tags).into_bytes()),
        (format!("{info}/licenses/LICENSE-APACHE"), 0o644, licence("LICENSE-APACHE")?),
        (format!("{info}/licenses/LICENSE-MIT"), 0o644, licence("LICENSE-MIT")?),
    ];
    let mut zip = zip::ZipWriter::new(fs::File::create(&path)?);
    // No date of today: the same program gives the same wheel.
    let options = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated)
        .last_modified_time(zip::DateTime::default());
    let mut record = String::new();
    for (name, mode, bytes) in &members {
        zip.start_file(name.as_str(), options.unix_permissions(*mode))?;
        zip.write_all(bytes)?;
        writeln!(record, "{name},sha256={},{}", digest(bytes)?, bytes.len())?;
    }
    let name = format!("{info}/RECORD");
    writeln!(record, "{name},,")?;
    zip.start_file(name, options.unix_permissions(0o644))?;
    zip.write_all(record.as_bytes())?;
    zip.finish()?;
    Ok(path)
}

/// Where pip may install it: a static program under every C library, others from the version on
/// that they need.
fn tags(needs: &Needs, arch: &str) -> Vec<String> {
    let (major, minor) = needs.glibc.unwrap_or(GLIBC_OLDEST).max(GLIBC_OLDEST);
    let mut tags = vec![format!("manylinux_{major}_{minor}_{arch}")];
    if needs.libraries.is_empty() {
        tags.push(format!("musllinux_1_1_{arch}"));
    }
    tags
}

fn metadata() -> Result<String> {
    let readme = fs::read_to_string(shell::root().join("docs/diagnosis.md"))?;
    Ok(format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {VERSION}\nSummary: Says why a program ran \
         out of GPU memory, from a PyTorch memory snapshot or the message alone\n\
         License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-APACHE\nLicense-File: \
         LICENSE-MIT\nRequires-Python: >=3.7\nDescription-Content-Type: text/markdown\n\n{readme}"
    ))
}

fn wheel(tags: &[String]) -> String {
    let mut text = String::from("Wheel-Version: 1.0\nGenerator: terrane xtask\n");
    text.push_str("Root-Is-Purelib: false\n");
    for tag in tags {
        text.push_str(&format!("Tag: py3-none-{tag}\n"));
    }
    text
}

/// SHA-256 in base 64 as RECORD has it: for URLs, without padding.
fn digest(bytes: &[u8]) -> Result<String> {
    let mut child = shell::command("sha256sum", &[])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .context("sha256sum (coreutils)")?;
    child.stdin.take().context("sha256sum has no input")?.write_all(bytes)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let hex = text.split_whitespace().next().unwrap_or_default().to_owned();
    let pairs = hex.as_bytes().chunks(2).map(String::from_utf8_lossy);
    let bytes: Result<Vec<u8>, _> = pairs.map(|pair| u8::from_str_radix(&pair, 16)).collect();
    Ok(base64(&bytes.context("sha256sum printed no number")?))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for at in 0..=chunk.len() {
            text.push(char::from(DIGITS[(word >> (18 - 6 * at)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(base64(b"\xfb\xff"), "-_8");
        assert_eq!(base64(b"light w"), "bGlnaHQgdw");
        // SHA-256 of nothing.
        assert_eq!(digest(b"").unwrap(), "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
    }

    #[test]
    fn a_wheel_has_the_program_its_metadata_and_a_record_of_each_member() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("terrane");
        fs::write(&program, b"#!/bin/sh\necho terrane\n").unwrap();
        let path = build(&program, &Needs::default(), "x86_64", folder.path()).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.ends_with("-py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl"));
        let mut zip = zip::ZipArchive::new(fs::File::open(&path).unwrap()).unwrap();
        let mut record = String::new();
        let info = format!("{NAME}-{VERSION}.dist-info");
        zip.by_name(&format!("{info}/RECORD")).unwrap().read_to_string(&mut record).unwrap();
        for at in 0..zip.len() {
            let mut member = zip.by_index(at).unwrap();
            let name = member.name().unwrap().into_owned();
            let line = record.lines().find(|line| line.starts_with(&format!("{name},")));
            let line = line.unwrap_or_else(|| panic!("no record of {name}"));
            let is_program = name.contains(".data/scripts/");
            assert_eq!(member.unix_mode().unwrap() & 0o111 != 0, is_program, "{name}");
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).unwrap();
            if !name.ends_with("RECORD") {
                let sum = format!("sha256={},{}", digest(&bytes).unwrap(), bytes.len());
                assert!(line.ends_with(&sum), "{line}");
            }
        }
        assert_eq!(record.lines().count(), zip.len());
    }

    #[test]
    fn a_program_bound_to_a_new_c_library_is_not_offered_to_old_ones() {
        let needs = Needs { glibc: Some((2, 34)), libraries: vec!["libc.so.6".to_owned()] };
        assert_eq!(tags(&needs, "aarch64"), ["manylinux_2_34_aarch64"]);
    }
}
