//! `cargo xtask loom`: every order of two threads at the allocator's lock.

use anyhow::Result;

use crate::shell;

/// Builds the allocator with loom's locks, in a folder of its own, and runs the models.
pub fn run() -> Result<()> {
    let args = ["test", "--release", "--package", "terrane-core", "--test", "orders"];
    let mut command = shell::cargo(&args);
    // Optimised, as thousands of orders are run; another folder, as every crate is built anew.
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_INCREMENTAL", "0");
    shell::run(command.env("CARGO_TARGET_DIR", shell::root().join("target/loom")))
}
