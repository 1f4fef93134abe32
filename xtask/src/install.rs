//! What tests of the Vulkan backend need from the system, and getting it through apt.
//!
//! Nothing here is required: where a package cannot be had, the tests that need it report
//! themselves skipped. No version is pinned, since an update would make a pin uninstallable.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

/// A Debian package and what it is for.
struct Package {
    name: &'static str,
    why: &'static str,
    /// Take it from backports where that can be had.
    backported: bool,
}

const PACKAGES: [Package; 4] = [
    Package {
        name: "libvulkan1",
        why: "the Vulkan loader that finds the drivers",
        backported: false,
    },
    Package {
        name: "mesa-vulkan-drivers",
        why: "lavapipe, a Vulkan device on the CPU; the version in backports can page memory",
        backported: true,
    },
    Package {
        name: "vulkan-validationlayers",
        why: "checks every Vulkan call that a test makes",
        backported: false,
    },
    Package {
        name: "glslc",
        why: "compiles the committed shaders again, to compare them with their .spv",
        backported: false,
    },
];

const BACKPORTS: &str = "bookworm-backports";
const BACKPORTS_FILE: &str = "/etc/apt/sources.list.d/terrane-backports.sources";

/// Install what is missing, or say why not. Never fails: tests can run without any of it.
pub fn driver_packages() {
    if let Err(reason) = try_driver_packages() {
        println!("Going on without: {reason:#}.");
    }
}

/// Install one package by its name.
pub fn debian(name: &str) -> Result<()> {
    if !shell::on_path("apt-get") {
        bail!("there is no apt-get here; install an equivalent of {name} by hand");
    }
    let privilege = Privilege::find()?;
    shell::run(&mut privilege.apt(&["update"]))?;
    shell::run(&mut privilege.apt(&["install", "--yes", "--no-install-recommends", name]))
}

/// Whether all packages are installed, so that a test which finds no driver is at fault.
pub fn have_driver_packages() -> bool {
    PACKAGES.iter().all(|package| installed_version(package).is_some())
}

fn try_driver_packages() -> Result<()> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| wanted(package)).collect();
    if missing.is_empty() {
        println!("Vulkan driver, loader and validation layers are there: nothing to install.");
        return Ok(());
    }
    println!("Tests of the Vulkan backend need these Debian packages, not installed yet:");
    for package in &missing {
        println!("  {:<24} {}", package.name, package.why);
    }
    if !shell::on_path("apt-get") {
        bail!("there is no apt-get here; install their equivalents by hand");
    }
    let privilege = Privilege::find()?;
    let added = missing.iter().any(|package| package.backported) && add_backports(&privilege);
    shell::run(&mut privilege.apt(&["update"]))?;
    let backports = has_backports();
    if added && !backports {
        println!("{BACKPORTS} cannot be reached: taking it out again, using the stock driver.");
        shell::run(&mut privilege.command("rm", &["-f", BACKPORTS_FILE]))?;
    }
    let (late, stock): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|package| package.backported && backports);
    install(&privilege, &stock, &[])?;
    install(&privilege, &late, &["-t", BACKPORTS])
}

fn install(privilege: &Privilege, packages: &[&Package], options: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend_from_slice(options);
    args.extend(packages.iter().map(|package| package.name));
    shell::run(&mut privilege.apt(&args))
}

/// A package is wanted when it is not installed. A CI machine also trades a stock driver for the
/// one in backports; a person's machine keeps the driver it has.
fn wanted(package: &Package) -> bool {
    let Some(version) = installed_version(package) else {
        return true;
    };
    package.backported
        && !version.contains("~bpo")
        && codename().as_deref() == Some("bookworm")
        && std::env::var_os("CI").is_some()
}

fn installed_version(package: &Package) -> Option<String> {
    let args = ["-W", "-f=${Status} ${Version}", package.name];
    let output = Command::new("dpkg-query").args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.strip_prefix("install ok installed ").map(str::to_owned)
}

/// How commands run as root.
enum Privilege {
    Root,
    /// Through sudo; `true` when it may ask for a password.
    Sudo(bool),
}

impl Privilege {
    fn find() -> Result<Self> {
        let id = shell::output(Command::new("id").arg("-u"))?;
        if id.trim() == "0" {
            return Ok(Self::Root);
        }
        let may_ask = std::io::stdin().is_terminal();
        if !shell::on_path("sudo") {
            bail!("installing needs root, and there is no sudo");
        }
        if !may_ask && !shell::succeeds(Command::new("sudo").args(["-n", "true"])) {
            bail!("installing needs root, and sudo would ask for a password");
        }
        Ok(Self::Sudo(may_ask))
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        match self {
            Self::Root => shell::command(program, args),
            Self::Sudo(may_ask) => {
                let mut command = shell::command("sudo", if *may_ask { &[] } else { &["-n"] });
                command.arg("DEBIAN_FRONTEND=noninteractive").arg(program).args(args);
                command
            }
        }
    }

    fn apt(&self, args: &[&str]) -> Command {
        let mut command = self.command("apt-get", &["-q", "-o", "Acquire::Retries=1"]);
        command.env("DEBIAN_FRONTEND", "noninteractive").args(args);
        command
    }
}

/// Add the backports suite beside the machine's own Debian entry. True when we wrote the file.
fn add_backports(privilege: &Privilege) -> bool {
    if codename().as_deref() != Some("bookworm") || has_backports() {
        return false;
    }
    let Some(entry) = first_debian_entry() else {
        println!("No Debian entry found in the apt sources: using the stock driver.");
        return false;
    };
    let text = backports_source(&entry);
    println!("Adding {BACKPORTS} from {} as {BACKPORTS_FILE}", entry.uri);
    let temp = std::env::temp_dir().join(format!("terrane-backports-{}", std::process::id()));
    let placed = fs::write(&temp, text).is_ok()
        && shell::run(
            &mut privilege
                .command("install", &["-m", "0644", &temp.to_string_lossy(), BACKPORTS_FILE]),
        )
        .is_ok();
    // A temporary file left behind harms nothing, so a failure to remove it is not reported.
    let _ = fs::remove_file(&temp);
    placed
}

fn has_backports() -> bool {
    let args = ["madison", "mesa-vulkan-drivers"];
    let output = Command::new("apt-cache").args(args).output();
    output.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(BACKPORTS))
}

fn codename() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(line.trim_matches('"').to_owned())
}

/// Where this machine gets Debian from.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    uri: String,
    signed_by: Option<String>,
}

fn first_debian_entry() -> Option<Entry> {
    let mut files = vec!["/etc/apt/sources.list.d/debian.sources".into()];
    let mut others: Vec<_> = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .collect();
    others.sort();
    files.extend(others);
    files.push(Path::new("/etc/apt/sources.list").to_path_buf());
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| entry_in(&text))
}

/// The first entry for the suite `bookworm`, in either of apt's two formats.
fn entry_in(text: &str) -> Option<Entry> {
    text.split("\n\n").find_map(stanza_entry).or_else(|| text.lines().find_map(line_entry))
}

fn stanza_entry(stanza: &str) -> Option<Entry> {
    let field = |name: &str| {
        let values = stanza.lines().find_map(|line| line.strip_prefix(name))?;
        Some(values.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let suites = field("Suites:")?;
    if !suites.iter().any(|suite| suite == "bookworm") {
        return None;
    }
    let uri = field("URIs:")?.into_iter().next()?;
    Some(Entry { uri, signed_by: field("Signed-By:").and_then(|by| by.into_iter().next()) })
}

fn line_entry(line: &str) -> Option<Entry> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    let signed_by = options.split_whitespace().find_map(|word| word.strip_prefix("signed-by="));
    (suite == "bookworm")
        .then(|| Entry { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
}

fn backports_source(entry: &Entry) -> String {
    let key = entry.signed_by.as_deref();
    let key = key.unwrap_or("/usr/share/keyrings/debian-archive-keyring.gpg");
    format!(
        "Types: deb\nURIs: {}\nSuites: {BACKPORTS}\nComponents: main\nSigned-By: {key}\n",
        entry.uri
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backports_source_copies_the_machines_own_debian_entry() {
        let sources = "Types: deb\nURIs: http://mirror.example/security\nSuites: x-security\n\n\
                       Types: deb\n# snapshot\nURIs: http://mirror.example/debian\n\
                       Suites: bookworm bookworm-updates\nSigned-By: /keys/d.gpg\n";
        let entry = entry_in(sources).unwrap();
        assert_eq!(entry.uri, "http://mirror.example/debian");
        let text = backports_source(&entry);
        assert!(text.contains("URIs: http://mirror.example/debian\nSuites: bookworm-backports"));
        assert!(text.ends_with("Signed-By: /keys/d.gpg\n"));
    }

    #[test]
    fn one_line_entries_with_and_without_options_are_read() {
        let plain = entry_in("# old\ndeb http://a.example/debian bookworm main\n").unwrap();
        assert_eq!(plain, Entry { uri: "http://a.example/debian".into(), signed_by: None });
        let keyed = "deb [arch=amd64 signed-by=/k.gpg] http://b.example/debian bookworm main";
        assert_eq!(entry_in(keyed).unwrap().signed_by.as_deref(), Some("/k.gpg"));
        assert_eq!(entry_in("deb http://c.example/x sid main"), None);
    }
}
