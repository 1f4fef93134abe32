//! `cargo xtask`: set-up, tests, benches and releases.

fn main() {}
