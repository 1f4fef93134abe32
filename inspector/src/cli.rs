//! The command line.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use terrane_core::device::wrap::Common;
use terrane_trace::replay::{Capacity, Policy};

use crate::commands;
use crate::source::Choice;

/// One GPU memory allocator for CUDA and Vulkan, and what it does, made visible.
///
/// Exit codes: 0 success; 1 the work was done and found something wrong, or the device failed;
/// 2 bad input (arguments, or a file: then with line and reason).
#[derive(Debug, Parser)]
#[command(
    name = "terrane",
    version,
    propagate_version = true,
    max_term_width = 100,
    subcommand_precedence_over_arg = true
)]
pub struct Cli {
    /// No progress bars, no notes: only results and errors.
    #[arg(long, short, global = true, env = "TERRANE_QUIET", value_parser = clap::builder::FalseyValueParser::new())]
    pub quiet: bool,
    /// A file to look at: in a window where there is a display, else the verdict on it.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say why memory ran out, from a snapshot or (`explain -`) from the message alone.
    Explain(commands::explain::Args),
    /// Say what is in a file, and which of several ranks failed first.
    Info(commands::info::Args),
    /// Say when most memory was in use and who held it.
    Peak(commands::sites::PeakArgs),
    /// Say who holds memory at a moment, by line, file or stack.
    Sites(commands::sites::Args),
    /// Show bytes over time.
    Timeline(commands::timeline::Args),
    /// Say whether memory grows from step to step, and which line keeps it.
    Leaks(commands::leaks::Args),
    /// Tell all that is known about one block.
    Why(commands::why::Args),
    /// Replay the same requests through other allocators.
    Whatif(commands::whatif::Args),
    /// Find the setting of PyTorch's allocator that needs the least memory.
    Tune(commands::tune::Args),
    /// Show on which cards the program would run, and what to change.
    Fit(commands::fit::Args),
    /// Compare two recordings.
    Diff(commands::diff::Args),
    /// Check thresholds: exit code 1 when one is exceeded.
    Check(commands::check::Args),
    /// Write a recording in a form that other tools read.
    Export(commands::export::Args),
    /// Write one HTML file with the verdict, the picture and the tables.
    Report(commands::report::Args),
    /// Show the allocators of running programs.
    Top(commands::top::Args),
    /// Print the lines that make a program record a complete file.
    Howto(commands::howto::Args),
    /// Look at recordings in a window, or draw what it would show into a picture.
    #[cfg(feature = "gui")]
    Inspect(commands::inspect::Args),
    /// List the devices of this machine, what they can do, and which one would be chosen.
    Devices(DevicesArgs),
    /// Replay a recorded workload through the allocator and print one JSON object of figures.
    Replay(ReplayArgs),
    /// Serve a recorded training workload on the best device, verify every block, draw the heap.
    Demo(DemoArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Options of `devices`.
#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Run a short self-test on each device (at most 30 s in all).
    #[arg(long)]
    pub check: bool,
    /// Measure what the calls of each device cost (under 50 ms on CUDA) and print the table.
    #[arg(long)]
    pub calibrate: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Only this device.
    #[arg(long, value_name = "DEVICE", env = "TERRANE_DEVICE")]
    pub device: Option<Choice>,
}

/// Options of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// A recorded workload: CSV `t_us,op,block,size,stream`, plain or gzipped.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// best, host, sim[:cuda|vulkan|slabs], vulkan[:NAME] or cuda[:N].
    #[arg(long, value_name = "DEVICE", default_value = "sim", env = "TERRANE_DEVICE")]
    pub device: Choice,
    /// The allocator's limit: bytes (8589934592, 8GiB) or times the peak requested (1.05x).
    #[arg(long, value_name = "BYTES|TIMESx", default_value = "device", env = "TERRANE_CAPACITY")]
    pub capacity: Capacity,
    /// Divide every size by this; then the ratio says nothing about the workload.
    #[arg(long, value_name = "N", default_value = "1", env = "TERRANE_SCALE")]
    pub scale: NonZeroU64,
    /// When memory may be used again: `completed` (at the recorded completion of its free) or
    /// `wait` (at the request to free, behind a wait).
    #[arg(long, default_value = "completed", env = "TERRANE_POLICY")]
    pub policy: Policy,
    /// Flip one byte in N blocks after they were filled: all of them must be reported.
    #[arg(long, value_name = "N", default_value = "0")]
    pub corrupt: u64,
    /// Do not fill and verify blocks, even on a device that computes.
    #[arg(long)]
    pub no_contents: bool,
    /// Record the allocator into this file; `terrane FILE` reads it. With `flight:` before it only
    /// the last events are kept, and written when a request fails.
    #[arg(long, value_name = "FILE", env = "TERRANE_RECORD", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// Check the allocator's invariants every N events.
    #[arg(long, value_name = "N")]
    pub check_every: Option<NonZeroU64>,
    /// Guard mode: each block on memory of its own, on CUDA with an unmapped page after it, so that
    /// the device faults at an overrun and memory checkers see the blocks' bounds. Slow.
    #[arg(long)]
    pub guard: bool,
    /// Serve device memory page by page, or from plain segments; the device's default unless given.
    #[arg(long, value_name = "on|off", value_parser = on_off, env = "TERRANE_PAGING")]
    pub paging: Option<bool>,
    /// Show every device with the capabilities that all have in common, and count work as done when
    /// the recording says so: `placements` is then the same on all of them. Nothing is filled.
    #[arg(long, value_name = "slabs|pages", conflicts_with_all = COMMON_LEAVES_OUT)]
    pub common: Option<Common>,
    /// Find the smallest capacity, in thousandths of the peak requested, with which nothing fails.
    #[arg(long, conflicts_with_all = ["capacity", "sweep"])]
    pub find_capacity: bool,
    /// Warm the allocator by dry runs of the workload first: then the replay makes no driver call
    /// that gets or maps memory.
    #[arg(long)]
    pub warm: bool,
    /// Turn each knob of paging by itself; print what it reserves against what it maps.
    #[arg(long)]
    pub sweep: bool,
    /// Print the JSON object on one line.
    #[arg(long)]
    pub json: bool,
}

/// What would make devices differ, or needs more than they have in common.
const COMMON_LEAVES_OUT: [&str; 5] = ["corrupt", "guard", "paging", "find_capacity", "sweep"];

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}`: say on or off")),
    }
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// best, host, sim, vulkan[:NAME] or cuda[:N].
    #[arg(long, value_name = "DEVICE", default_value = "best", env = "TERRANE_DEVICE")]
    pub device: Choice,
    /// The folder for the picture and the report; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "terrane-demo", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Move live blocks together while kernels run on them without pause, with pictures before and
    /// after; no workload is replayed.
    #[arg(long, conflicts_with_all = ["trace", "scale"])]
    pub compact: bool,
    /// Another recorded workload instead of the one that is built in.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
    /// Divide every size by this; chosen to fit the device unless given.
    #[arg(long, value_name = "N", env = "TERRANE_SCALE")]
    pub scale: Option<NonZeroU64>,
    /// The size of the picture in pixels.
    #[arg(long, value_name = "WxH", default_value = "1600x1200", value_parser = size)]
    pub size: (u32, u32),
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let bad = || format!("`{text}` is no size: give WIDTHxHEIGHT in pixels, such as 1600x1200");
    let (width, height) = text.split_once('x').ok_or_else(bad)?;
    let side = |text: &str| text.parse().ok().filter(|side| (640..=16_384).contains(side));
    let range = || format!("{text}: each side is 640 to 16384 pixels");
    match (side(width), side(height)) {
        (Some(width), Some(height)) => Ok((width, height)),
        _ if width.parse::<u32>().is_ok() && height.parse::<u32>().is_ok() => Err(range()),
        _ => Err(bad()),
    }
}

/// Reads the arguments; help, version and bad arguments end the program with the code given.
pub fn parse() -> Result<Cli, ExitCode> {
    let parsed = Cli::try_parse().and_then(|cli| {
        // Said here: clap would take `terrane --quiet explain FILE` for the same mistake.
        if cli.file.is_some() && cli.command.is_some() {
            let text = "a file stands before the command: say `terrane COMMAND FILE`";
            return Err(Cli::command().error(ErrorKind::ArgumentConflict, text));
        }
        Ok(cli)
    });
    parsed.map_err(|error| {
        // Nothing is left to do if the terminal is gone.
        let _ = error.print();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
    })
}
