//! `terrane export`: what was recorded, in forms that other tools read.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{ValueEnum, ValueHint};
use terrane_trace::diagnose::{Moment, SiteBy, sites};
use terrane_trace::export::{Encoding, csv, perfetto, pytorch, stacks};
use terrane_trace::recording::Recording;

use super::shared::{FileArgs, PartArgs, history, open, part};
use super::sites::{At, at};
use crate::exit::BadInput;
use crate::{picture, progress, units};

/// Options of `export`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// What to write.
    #[arg(long, value_enum)]
    pub format: Form,
    /// The file to write; `-` for the output stream.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// For stacks, svg and png: the moment: `peak`, `end`, or a place as in --from.
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = at)]
    pub at: At,
    /// Replace paths, names and annotations by tokens; findings stay the same.
    #[arg(long)]
    pub redact: bool,
}

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// PyTorch's memory snapshot, as a pickle: for PyTorch's own viewer.
    Pytorch,
    /// The same as JSON.
    PytorchJson,
    /// A trace for ui.perfetto.dev.
    Perfetto,
    /// The recorded workload: `t_us,op,block,size,stream`.
    Csv,
    /// Collapsed stacks with live bytes, for flame graphs.
    Stacks,
    /// A picture of the heap and of bytes over time.
    Svg,
    /// The same as pixels.
    Png,
}

/// Writes a recording in another form.
///
/// # Errors
/// Bad input; the system's.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let to_stdout = args.output == Path::new("-");
    if to_stdout && args.file.json {
        let text = "--json says what was written: give a file with --output, not `-`";
        return Err(BadInput(text.to_owned()).into());
    }
    let mut recording = open(&args.file, quiet)?;
    if args.redact {
        recording.redact();
    }
    let mut bytes = Vec::new();
    write(args, &mut recording, &mut bytes)?;
    if to_stdout {
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes)?;
        return Ok(out.flush()?);
    }
    save(&args.output, &bytes)?;
    if args.file.json {
        let shown = serde_json::json!({ "output": args.output, "bytes": bytes.len() });
        return super::print(&format!("{shown:#}\n"));
    }
    let size = units::bytes(bytes.len() as u64);
    progress::note(quiet, &format!("{}: {size}", args.output.display()));
    Ok(())
}

fn write(args: &Args, recording: &mut Recording, sink: &mut Vec<u8>) -> Result<()> {
    let encoding = match args.format {
        Form::Pytorch => Some(Encoding::Pickle),
        Form::PytorchJson => Some(Encoding::Json),
        _ => None,
    };
    if let Some(encoding) = encoding {
        if !args.part.is_all() {
            let text = "a snapshot is exported whole, as its segments hold every block: leave \
                        ranges and filters out, or export csv or perfetto";
            return Err(BadInput(text.to_owned()).into());
        }
        if let Some(device) = args.file.device {
            history(recording, &args.file)?;
            leave_only(recording, device);
        }
        return Ok(pytorch(recording, encoding, sink)?);
    }
    let recording = &*recording;
    let snapshot = &recording.snapshot;
    let whole = history(recording, &args.file)?;
    let cut = part(recording, whole, &args.part)?;
    let history = cut.as_ref().unwrap_or(whole);
    let moment = match &args.at {
        At::Peak => Moment::Peak,
        At::End => Moment::End,
        At::Place(place) => Moment::After(place.events(snapshot, history).map_err(BadInput)?),
    };
    let events = sites(snapshot, history, moment, SiteBy::Top).event as usize;
    match args.format {
        Form::Perfetto => perfetto(snapshot, &[history], sink)?,
        Form::Csv => csv(&history.trace, sink)?,
        Form::Stacks => stacks(snapshot, history, events, sink)?,
        Form::Svg => sink.extend_from_slice(picture::svg(recording, history, events)?.as_bytes()),
        Form::Png => sink.extend_from_slice(&picture::png(recording, history, events)?),
        Form::Pytorch | Form::PytorchJson => {}
    }
    Ok(())
}

/// Takes other devices out of a snapshot; their numbers stay.
fn leave_only(recording: &mut Recording, device: usize) {
    let snapshot = &mut recording.snapshot;
    snapshot.segments.retain(|segment| usize::try_from(segment.device) == Ok(device));
    for (other, trace) in snapshot.device_traces.iter_mut().enumerate() {
        if other != device {
            trace.clear();
        }
    }
    recording.histories.retain(|history| history.device == device);
}

/// Writes a file whole or not at all.
///
/// # Errors
/// The system's; [`BadInput`] for a folder that is not there.
pub fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(BadInput(format!("{}: there is no such folder", folder.display())).into());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let beside = path.with_file_name(name);
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    if written.is_err() {
        // Nothing more can be done about a leftover.
        let _ = std::fs::remove_file(&beside);
    }
    written.with_context(|| format!("writing {}", path.display()))
}
