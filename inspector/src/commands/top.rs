//! `terrane top`: the allocators of running programs, a line each.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use terrane_core::units::Bytes;
use terrane_trace::live::{Aim, Client, Command, Compact, Message, Status, sockets};

use crate::exit::BadInput;
use crate::text::{Side, Table, percent};
use crate::units;

/// Options of `top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this process.
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
    /// An allocator that is offered over TCP of this machine, such as the end of a tunnel; the
    /// token is taken from the variable TERRANE_TOKEN.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "process")]
    pub tcp: Option<SocketAddr>,
    /// Only allocators on a device with this text in its name.
    #[arg(long, value_name = "TEXT")]
    pub device: Option<String>,
    /// First ask the programs to move live blocks together. Those do so that gave a control token,
    /// which is taken from the variable TERRANE_CONTROL.
    #[arg(long)]
    pub compact: bool,
    /// What the moves are to reach: room:BYTES, release:BYTES, release:all or
    /// fragmentation:PERCENT.
    #[arg(long, value_name = "GOAL", default_value = "fragmentation:5", value_parser = aim, requires = "compact")]
    pub goal: Aim,
    /// The most bytes moved; unless given, there is no limit.
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "compact")]
    pub bytes: Option<u64>,
    /// The most blocks moved; unless given, there is no limit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "compact")]
    pub moves: Option<u64>,
    /// The longest that moves are begun, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "2000", value_parser = clap::value_parser!(u64).range(1..=Compact::TIME_MAX_MS), requires = "compact")]
    pub time: u64,
    /// As fast as the device can, or a few copies at a time beside other work.
    #[arg(long, default_value = "full", requires = "compact")]
    pub mode: Speed,
    /// Print once and end.
    #[arg(long)]
    pub once: bool,
    /// Print JSON, once.
    #[arg(long)]
    pub json: bool,
    /// Seconds between two tables.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub every: u32,
}

/// How fast a pass goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Speed {
    /// As fast as the device can.
    Full,
    /// Beside other work.
    Background,
}

/// Reads a goal; sizes as people write them.
fn aim(text: &str) -> Result<Aim, String> {
    let plain = match text.split_once(':') {
        Some((word, size)) if word != "fragmentation" && size != "all" => {
            format!("{word}:{}", bytes(size)?)
        }
        _ => text.to_owned(),
    };
    plain.parse()
}

/// Reads a size that is not 0.
fn bytes(text: &str) -> Result<u64, String> {
    let Bytes(bytes) = text.parse::<Bytes>().map_err(|error| format!("{error:?}"))?;
    if bytes == 0 { Err("a limit of 0 bytes lets nothing be moved".to_owned()) } else { Ok(bytes) }
}

impl Args {
    /// The pass that is asked for.
    fn asked(&self) -> Compact {
        Compact {
            aim: self.goal,
            bytes_max: self.bytes.unwrap_or(u64::MAX),
            moves_max: self.moves.unwrap_or(u64::MAX),
            time_max_ms: self.time,
            background: matches!(self.mode, Speed::Background),
        }
    }
}

/// An allocator of a running program.
#[derive(Serialize)]
struct Line {
    process: u32,
    program: String,
    device: String,
    #[serde(flatten)]
    status: Status,
    fragmentation: f64,
    untracked: Option<u64>,
}

/// Where tokens are looked for: an argument would be seen by everybody on the machine.
const TOKEN: &str = "TERRANE_TOKEN";
const CONTROL: &str = "TERRANE_CONTROL";

/// How long an allocator may take to tell its first figures: they come every half second.
const PATIENCE: Duration = Duration::from_secs(2);

/// Prints the allocators that can be looked at.
///
/// # Errors
/// [`BadInput`] when there is none.
pub fn run(args: &Args) -> Result<()> {
    if args.json || args.once || args.compact {
        let lines = lines(args)?;
        return super::shared::show(args.json, &lines, || table(&lines));
    }
    loop {
        let text = table(&lines(args)?);
        // On a terminal the table stays in its place.
        let clear = if std::io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
        super::print(&format!("{clear}{text}"))?;
        std::thread::sleep(Duration::from_secs(args.every.into()));
    }
}

fn lines(args: &Args) -> Result<Vec<Line>> {
    let control = args.compact.then(|| token(CONTROL, "control")).transpose()?;
    let control = control.as_deref().map(|token| (args.asked(), token));
    if let Some(at) = args.tcp {
        let token = token(TOKEN, "tcp")?;
        let refused = |why: String| BadInput(format!("{at}: {why}"));
        let client = Client::connect_tcp(at, &token, PATIENCE);
        let client = client.map_err(|error| refused(error.to_string()))?;
        let silent = || refused("it tells nothing; is the token right?".to_owned());
        return Ok(vec![line(client, control).ok_or_else(silent)?]);
    }
    let is_asked = |path: &PathBuf| match args.process {
        Some(process) => process_of(path) == Some(process),
        None => true,
    };
    let lines: Vec<Line> = sockets()
        .iter()
        .filter(|path| is_asked(path))
        .filter_map(|path| local(path, control))
        .collect();
    if let Some(device) = &args.device
        && !lines.is_empty()
    {
        let lines: Vec<Line> = lines.into_iter().filter(|it| it.device.contains(device)).collect();
        let missing = || BadInput(format!("no program shows an allocator on `{device}`"));
        return if lines.is_empty() { Err(missing().into()) } else { Ok(lines) };
    }
    if lines.is_empty() {
        let text = "no program shows its allocator: call `terrane::inspect(&alloc)?` in it \
                    (feature `live`) and keep what it returns";
        return Err(BadInput(text.to_owned()).into());
    }
    Ok(lines)
}

/// A token from the environment.
fn token(variable: &str, method: &str) -> Result<String> {
    let missing =
        || format!("set {variable} to the token that the program gave to `Tap::{method}`");
    Ok(std::env::var(variable).map_err(|_| BadInput(missing()))?)
}

fn process_of(path: &Path) -> Option<u32> {
    path.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}

/// What the allocator behind a socket tells; `None` for a process that ended.
fn local(path: &Path, control: Option<(Compact, &str)>) -> Option<Line> {
    line(Client::connect(path, PATIENCE).ok()?, control)
}

fn line(mut client: Client, control: Option<(Compact, &str)>) -> Option<Line> {
    if let Some((asked, token)) = control {
        client.ask(Command::Compact(asked), token).ok()?;
    }
    let end = Instant::now() + PATIENCE;
    let mut meta = None;
    while Instant::now() < end {
        match client.receive().ok()?? {
            Message::Meta(found) => meta = Some(found),
            Message::Status(status) => {
                let meta = meta.unwrap_or_default();
                return Some(Line {
                    process: meta.process,
                    program: meta.program,
                    device: meta.device,
                    fragmentation: status.fragmentation(),
                    untracked: status.untracked(),
                    status,
                });
            }
            _ => {}
        }
    }
    None
}

fn table(lines: &[Line]) -> String {
    let mut table = Table::with_head(&[
        ("process", Side::Right),
        ("program", Side::Left),
        ("device", Side::Left),
        ("live", Side::Right),
        ("in use", Side::Right),
        ("reserved", Side::Right),
        ("of GPU", Side::Right),
        ("fragmented", Side::Right),
        ("untracked", Side::Right),
        ("blocks", Side::Right),
    ]);
    for line in lines {
        let status = &line.status;
        table.row([
            line.process.to_string(),
            line.program.clone(),
            line.device.clone(),
            units::bytes(status.allocated),
            units::bytes(status.active),
            units::bytes(status.reserved),
            percent(status.reserved, status.heap_total),
            format!("{:.0} %", line.fragmentation * 100.0),
            line.untracked.map_or_else(|| "-".to_owned(), units::bytes),
            units::count(status.blocks),
        ]);
    }
    table.to_string()
}
