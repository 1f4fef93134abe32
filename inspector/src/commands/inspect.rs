//! `terrane inspect`: the window, or a picture of what it would show.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueHint;
use terrane_trace::live::sockets;

use crate::exit::BadInput;
use crate::progress;
use crate::window::{self, At, Coloring, Headless, Renderer, Shot, Source, Target, View};

/// Options of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recordings to open.
    #[arg(value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Draw a picture into this file (`-` for the output stream) instead of opening a window.
    #[arg(long, value_name = "PNG", value_hint = ValueHint::FilePath)]
    pub screenshot: Option<PathBuf>,
    /// The view in the picture; without it, the whole window.
    #[arg(long, requires = "screenshot")]
    pub view: Option<View>,
    /// The moment: PEAK, FAILURE, START, END or the number of an event; without it, the fatal
    /// failure if there is one, else the peak; of a running program the end.
    #[arg(long, value_name = "MOMENT", requires = "screenshot")]
    pub at: Option<At>,
    /// What `--view diff` compares with: a moment, as for `--at`; without it, one early in the run.
    #[arg(long, value_name = "MOMENT", requires = "screenshot")]
    pub before: Option<At>,
    /// The file of that moment, if it is another one; without a moment, its fatal failure or peak.
    #[arg(long, value_name = "FILE", requires = "screenshot", value_hint = ValueHint::FilePath)]
    pub before_file: Option<PathBuf>,
    /// The size of the picture in pixels.
    #[arg(long, value_name = "WxH", default_value = "1920x1080", value_parser = size)]
    pub size: (u32, u32),
    /// Pixels per point: 2 for screens with small pixels.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = scale)]
    pub scale: f32,
    /// The theme of the picture.
    #[arg(long, default_value = "dark")]
    pub theme: Theme,
    /// What colour stands for in the maps.
    #[arg(long, value_name = "BY", default_value = "size")]
    pub color: Coloring,
    /// Which device to show of files that tell of several; without it, the one with the longest
    /// history.
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// Look on at this running program of yours, by its process number or its name, or at one over
    /// TCP of this machine, such as the end of a tunnel (ADDRESS:PORT; the token is taken from the
    /// variable TERRANE_TOKEN). The control token, if there is one, is taken from TERRANE_CONTROL.
    #[arg(long, value_name = "PID|NAME|ADDRESS")]
    pub attach: Vec<String>,
    /// How long to look on at a program before its picture is drawn; its full state comes at once.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub watch: Duration,
    /// Print all commands and keys of the window as a table.
    #[arg(long)]
    pub keys: bool,
    /// What draws the picture.
    #[arg(long, default_value = "auto")]
    pub renderer: Renderer,
}

/// Dark or light.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Theme {
    /// Light on dark.
    Dark,
    /// Dark on light.
    Light,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let bad = || format!("`{text}` is no size: give WIDTHxHEIGHT in pixels, such as 1920x1080");
    let (width, height) = text.split_once('x').ok_or_else(bad)?;
    let side = |text: &str| text.parse::<u32>().map_err(|_| bad());
    let (width, height) = (side(width)?, side(height)?);
    if (200..=16_384).contains(&width) && (150..=16_384).contains(&height) {
        Ok((width, height))
    } else {
        Err(format!("{text}: from 200x150 to 16384x16384 pixels"))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("`{text}` is no number of seconds up to 3600"))?;
    Ok(Duration::from_secs_f64(seconds))
}

fn scale(text: &str) -> Result<f32, String> {
    let factor = text.parse().ok().filter(|factor| (0.5..=3.0).contains(factor));
    factor.ok_or_else(|| format!("`{text}` is no factor from 0.5 to 3"))
}

/// Whether a window can be opened.
pub fn has_display() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("DISPLAY") || set("WAYLAND_DISPLAY")
}

/// Opens the window.
///
/// # Errors
/// No display; no graphics driver.
pub fn window(files: Vec<PathBuf>) -> Result<()> {
    window::open((files, None), Vec::new())
}

/// The program that is meant.
fn target(text: &str) -> Result<Target> {
    if let Ok(at) = text.parse::<SocketAddr>() {
        let token = std::env::var("TERRANE_TOKEN").map_err(|_| {
            BadInput(
                "set TERRANE_TOKEN to the token that the program gave to `Tap::tcp`".to_owned(),
            )
        })?;
        return Ok(Target::Tcp(at, token));
    }
    let Ok(process) = text.parse::<u32>() else { return named(text) };
    let own = format!("{process}-");
    let is_its =
        |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&own));
    let missing = || {
        BadInput(format!(
            "process {process} shows no allocator: call `terrane::inspect(&alloc)?` in it (feature \
             `live`) and keep what it returns"
        ))
    };
    Ok(Target::Local(sockets().into_iter().find(is_its).ok_or_else(missing)?))
}

/// What a difference is to.
fn before(args: &Args) -> Option<(Option<PathBuf>, At)> {
    let file = args.before_file.clone();
    let is_said = file.is_some() || args.before.is_some();
    is_said.then(|| (file, args.before.unwrap_or(At::FirstLook)))
}

/// The one running program of that name.
fn named(name: &str) -> Result<Target> {
    let offered = window::offered();
    let mut its = offered.iter().filter(|one| one.program == name);
    let bad = match (its.next(), its.next()) {
        (Some(one), None) => return Ok(one.target.clone()),
        (Some(_), Some(_)) => "is the name of several programs; give a process number",
        (None, _) => {
            "is neither the number nor the name of a process that shows an allocator, nor \
             ADDRESS:PORT"
        }
    };
    let there: Vec<&str> = offered.iter().map(|one| one.text.as_str()).collect();
    let there = match there.is_empty() {
        true => "no program of yours shows one now".to_owned(),
        false => format!("there are: {}", there.join("; ")),
    };
    Err(BadInput(format!("`{name}` {bad}; {there}")).into())
}

/// Opens the window or draws the picture.
///
/// # Errors
/// Bad input; no display or driver; the picture's file cannot be written.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    if args.keys {
        return super::print(&window::manual());
    }
    let Some(target) = &args.screenshot else {
        let control = std::env::var("TERRANE_CONTROL").unwrap_or_default();
        let attached = args.attach.iter().map(|text| Ok((target(text)?, control.clone())));
        let files = (args.files.clone(), args.device);
        return window::open(files, attached.collect::<Result<_>>()?);
    };
    let source = match (args.files.as_slice(), args.attach.as_slice()) {
        ([file], []) => Source::File(file.clone(), args.device),
        ([], [program]) => Source::Program(self::target(program)?, args.watch),
        _ => return Err(BadInput("give one file or one program to draw".to_owned()).into()),
    };
    let first = if args.attach.is_empty() { At::FirstLook } else { At::End };
    let wanted = Headless {
        source,
        view: args.view,
        at: args.at.unwrap_or(first),
        before: before(args),
        coloring: args.color,
        shot: Shot {
            size: args.size,
            scale: args.scale,
            dark: args.theme == Theme::Dark,
            renderer: args.renderer,
        },
    };
    let picture = window::picture(&wanted)?;
    if target.as_os_str() == "-" {
        use std::io::Write as _;
        std::io::stdout().lock().write_all(&picture)?;
        return Ok(());
    }
    let fresh = target.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&fresh, picture)
        .and_then(|()| std::fs::rename(&fresh, target))
        .with_context(|| format!("writing {}", target.display()))?;
    progress::note(quiet, &format!("wrote {}", target.display()));
    Ok(())
}
