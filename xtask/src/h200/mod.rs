//! `cargo xtask h200`: what needs an NVIDIA GPU, which CI has not. Builds one bundle that can be
//! carried to such a machine, runs it where there is a GPU, and turns what came out into records.

mod bundle;
mod record;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::shell;

/// Options of `cargo xtask h200`.
#[derive(Args)]
pub struct Options {
    /// Only build the bundle, into this folder; its `run.sh OUT` runs everything in one call.
    #[arg(long, value_name = "DIR")]
    bundle: Option<PathBuf>,
    /// Only write the records of a run elsewhere: the folder OUT of `run.sh`, or OUT.tar.gz.
    #[arg(long, value_name = "OUT")]
    record: Option<PathBuf>,
    /// Write the records there instead of docs/conformance.
    #[arg(long, value_name = "DIR", default_value = "docs/conformance")]
    into: PathBuf,
}

/// Builds, runs and records, or one of these.
pub fn run(options: &Options) -> Result<()> {
    if let Some(out) = &options.record {
        return record::write(&unpacked(out)?, &options.into);
    }
    let default = shell::root().join("target/h200");
    let folder = options.bundle.as_ref().unwrap_or(&default);
    bundle::build(folder)?;
    if options.bundle.is_some() {
        println!("Carry {} to the GPU and run its run.sh there.", folder.display());
        return Ok(());
    }
    if !shell::on_path("nvidia-smi") {
        bail!(
            "there is no NVIDIA driver here: carry {} to a machine that has one, run its run.sh, \
             and bring back what it wrote for `cargo xtask h200 --record`",
            folder.display()
        );
    }
    let out = folder.join("out");
    let script = folder.join("run.sh");
    shell::run(&mut shell::command(&script, &[&out.to_string_lossy()]))?;
    record::write(&out, &options.into)
}

/// The folder of a run, unpacked beside its archive if that was given.
fn unpacked(out: &Path) -> Result<PathBuf> {
    if out.is_dir() {
        return Ok(out.to_owned());
    }
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(stem) = name.strip_suffix(".tar.gz") else {
        bail!("{} is neither a folder nor a .tar.gz", out.display());
    };
    let parent = std::env::temp_dir().join(format!("terrane-h200-{}", std::process::id()));
    std::fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    let to = parent.to_string_lossy().into_owned();
    let from = std::path::absolute(out)?.to_string_lossy().into_owned();
    shell::run(&mut shell::command("tar", &["-xzf", &from, "-C", &to]))?;
    Ok(parent.join(stem))
}
