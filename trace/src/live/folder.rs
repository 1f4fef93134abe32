//! Where sockets are.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;

/// The folder of this user's sockets: in `XDG_RUNTIME_DIR`, else in the system's folder for
/// temporary files.
#[must_use]
pub fn folder() -> PathBuf {
    if let Some(run) = std::env::var_os("XDG_RUNTIME_DIR").filter(|run| !run.is_empty()) {
        return PathBuf::from(run).join("terrane");
    }
    // The owner of the process's own folder in /proc is the user.
    let user = std::fs::metadata("/proc/self").map_or(0, |meta| meta.uid());
    std::env::temp_dir().join(format!("terrane-{user}"))
}

/// Makes the folder, closed to others, and refuses one that somebody else made.
pub(super) fn make() -> io::Result<PathBuf> {
    let path = folder();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made?;
    let (meta, own) = (std::fs::metadata(&path)?, std::fs::metadata("/proc/self")?);
    if meta.uid() != own.uid() || meta.mode() & 0o077 != 0 {
        let text = format!("{} is open to others or not ours", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(path)
}

/// The sockets that are there, by name. Those of processes that ended without a word are
/// among them: connecting tells.
#[must_use]
pub fn sockets() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect();
    paths.sort();
    paths
}
