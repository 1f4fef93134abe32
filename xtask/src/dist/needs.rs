//! What a program needs of the system: read from its dynamic symbols and libraries.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::shell;

/// What a program needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The newest version of glibc that a symbol is bound to; `None` without glibc.
    pub glibc: Option<(u32, u32)>,
    /// Shared libraries that the loader must find.
    pub libraries: Vec<String>,
}

impl Needs {
    /// Asks objdump.
    pub fn of(program: &Path) -> Result<Self> {
        if !shell::on_path("objdump") {
            bail!("objdump is missing (Debian: apt-get install binutils)");
        }
        let path = program.to_string_lossy();
        let headers = shell::output(&mut shell::command("objdump", &["-p", &path]))?;
        Ok(Self::parse(&headers))
    }

    /// Reads what `objdump -p` printed: `NEEDED` lines, and the versions under `Version
    /// References`.
    fn parse(headers: &str) -> Self {
        let mut needs = Self::default();
        for line in headers.lines() {
            let mut words = line.split_whitespace();
            let (first, last) = (words.next(), words.next_back());
            match (first, last) {
                (Some("NEEDED"), Some(library)) => needs.libraries.push(library.to_owned()),
                (_, Some(name)) => needs.glibc = needs.glibc.max(glibc(name)),
                _ => {}
            }
        }
        needs
    }
}

/// The version in `GLIBC_2.34` or `GLIBC_2.2.5`.
fn glibc(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.glibc, self.libraries.as_slice()) {
            (None, []) => f.write_str("needs no library of the system, only Linux"),
            (glibc, libraries) => {
                if let Some((major, minor)) = glibc {
                    write!(f, "needs glibc {major}.{minor} or newer; ")?;
                }
                write!(f, "libraries: {}", libraries.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
Dynamic Section:
  NEEDED               libgcc_s.so.1
  NEEDED               libc.so.6
  INIT                 0x0000000000001000

Version References:
  required from libgcc_s.so.1:
    0x0d696912 0x00 05 GCC_4.2.0
  required from libc.so.6:
    0x0d696914 0x00 04 GLIBC_2.4
    0x069691b4 0x00 03 GLIBC_2.34
    0x09691a75 0x00 02 GLIBC_2.2.5
";

    #[test]
    fn the_newest_version_of_glibc_and_the_libraries_are_told() {
        let needs = Needs::parse(PRINTED);
        assert_eq!(needs.glibc, Some((2, 34)));
        assert_eq!(
            needs.to_string(),
            "needs glibc 2.34 or newer; libraries: libgcc_s.so.1, libc.so.6"
        );
    }

    #[test]
    fn a_static_program_needs_nothing() {
        let needs = Needs::parse("terrane:     file format elf64-x86-64\n\nProgram Header:\n");
        assert_eq!(needs, Needs::default());
        assert!(needs.to_string().contains("only Linux"));
    }

    #[test]
    fn this_very_program_is_read() {
        let own = std::env::current_exe().unwrap();
        if !shell::on_path("objdump") {
            println!("skipped: no objdump");
            return;
        }
        let needs = Needs::of(&own).unwrap();
        let is_static = needs.libraries.is_empty();
        assert_eq!(needs.glibc.is_none(), is_static, "{needs}");
    }
}
