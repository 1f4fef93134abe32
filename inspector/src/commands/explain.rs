//! `terrane explain`: why memory ran out.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use terrane_trace::diagnose::{
    Chain, Class, Explanation, Known, MessageVerdict, Moment, OutOfMemoryMessage, Sidecar, SiteBy,
    Sites, explain, sites,
};
use terrane_trace::recording::Recording;
use terrane_trace::snapshot::History;

use super::failure::Failure;
use super::shared::{FileArgs, PartArgs, bad, bytes, history, open, show, until_failure};
use crate::exit::BadInput;
use crate::text::{Side, Table, counted};
use crate::units;

/// Options of `explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// With `-` as file, an out-of-memory message or a log is read from the input stream.
    #[command(flatten)]
    pub file: FileArgs,
    /// Bytes that the process may reserve (21.9GiB), where it is known: the file does not say it.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub limit: Option<u64>,
    /// Bytes of the whole GPU, where it is known.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub device_total: Option<u64>,
    #[command(flatten, next_help_heading = "Which failed request: the last of these")]
    pub part: PartArgs,
}

/// Longest log that is read.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// Prints why the last request failed.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    if args.file.file == Path::new("-") {
        if args.file.device.is_some() || !args.part.is_all() {
            let text = "a message tells of one request: leave --device, ranges and filters out";
            return Err(BadInput(text.to_owned()).into());
        }
        return message(args);
    }
    let recording = until_failure(open(&args.file, quiet)?, &args.part)?;
    let history = history(&recording, &args.file)?;
    let sidecar = Sidecar::beside(&args.file.file).map_err(BadInput)?;
    let beside = sidecar.as_ref().map(Sidecar::known).unwrap_or_default();
    let known = Known {
        limit: args.limit.or(beside.limit),
        device_total: args.device_total.or(beside.device_total),
    };
    match Failure::of(&recording, history, known).map_err(bad(&args.file))? {
        Some(found) => {
            let found = found.with_remedies(history);
            show(args.file.json, &found, || found.text(&args.file.file))
        }
        None => show(args.file.json, &Nothing { class: None, failures: 0 }, || {
            "Nothing failed: the recording has no request that ran out of memory.\n\
             `terrane peak` shows what its peak is made of, `terrane fit` which cards it fits.\n"
                .to_owned()
        }),
    }
}

#[derive(Serialize)]
struct Nothing {
    class: Option<Class>,
    failures: u64,
}

/// An explanation and, where memory was short whatever the allocator, who held it.
#[derive(Serialize)]
pub struct Explained {
    #[serde(flatten)]
    pub explanation: Explanation,
    /// Live bytes by site when the request failed; `null` where the verdict needs no cut.
    pub to_cut: Option<Sites>,
}

/// Explains the last failure of a history of PyTorch; `None` where nothing failed.
///
/// # Errors
/// A sentence about sizes that cannot exist.
pub fn explained(
    recording: &Recording,
    history: &History,
    known: Known,
) -> Result<Option<Explained>, String> {
    let snapshot = &recording.snapshot;
    let found = explain(snapshot, history, known).map_err(|reason| reason.to_string())?;
    Ok(found.map(|explanation| {
        let event = explanation.fault.event as usize;
        let short = matches!(explanation.class, Class::Capacity | Class::OtherProcess);
        let cut = || sites(snapshot, history, Moment::After(event), SiteBy::User);
        Explained { to_cut: short.then(cut), explanation }
    }))
}

/// The verdict in one or two sentences.
pub fn verdict(found: &Explanation) -> String {
    let chain = &found.chain;
    let asked = units::bytes(chain.asked);
    let short = units::bytes(found.short_bytes);
    match found.class {
        Class::Capacity => format!(
            "Capacity: what is live and the {asked} asked for need {short} more than there is. No \
             allocator and no setting helps: the peak has to shrink by {short}."
        ),
        Class::Fragmentation => format!(
            "Fragmentation: {} were reserved and free, in pieces too small for {asked}; the \
             largest is {}.",
            units::bytes(chain.free),
            units::bytes(chain.best_hole_with_pending)
        ),
        Class::Pending => format!(
            "Pending: a piece large enough for {asked} was freed, and other streams had not \
             finished with it."
        ),
        Class::OtherStream => format!(
            "Other stream: a free piece of {} was there for {asked}; it belongs to another \
             stream, and PyTorch never lends between streams.",
            units::bytes(chain.best_hole_other_stream)
        ),
        Class::UserLimit => format!(
            "User limit: the {asked} asked for exceed by themselves what the process allows \
             itself (set_per_process_memory_fraction); the GPU had room."
        ),
        Class::OtherProcess => format!(
            "Other process: {short} are missing, and memory outside of this process's PyTorch \
             holds at least as much."
        ),
        Class::AbsurdRequest => format!(
            "Absurd request: {asked} are more than the whole GPU. Look for a wrong shape at the \
             line below."
        ),
    }
}

/// The verdict, the chain of numbers and the remedy.
pub fn text(explained: &Explained, file: &Path) -> String {
    let found = &explained.explanation;
    let mut text = format!("{}\n\nWhat happened\n", verdict(found));
    // Writing to a String cannot fail.
    let _ = write!(text, "{}", happened(found));
    if !found.exact {
        text.push_str("  (An estimate: the replay does not make exactly the recorded segments.)\n");
    }
    let _ = write!(text, "\nWhat each way out would have given\n{}", ways_out(found));
    if found.survived.count > 0 {
        let _ = write!(text, "\n{}", survived(found));
    }
    if let Some(cut) = &explained.to_cut {
        let _ = write!(text, "\nWho held the memory\n{}", super::sites::table(cut, 8));
    }
    let _ = write!(text, "\n{}", remedies(found, file));
    text
}

fn happened(found: &Explanation) -> Table {
    let (chain, fault) = (&found.chain, &found.fault);
    let bytes = units::bytes;
    let mut table = Table::new(&[Side::Left, Side::Right, Side::Left]);
    let mut row =
        |what: &str, value: String, meaning: String| table.row([what.into(), value, meaning]);
    let end = if fault.fatal { "the run ended there" } else { "the program survived it" };
    let pool = if chain.large_pool { "large" } else { "small" };
    let message = format!(
        "{} in PyTorch's message: the segment it would have made ({pool} pool)",
        bytes(chain.segment_bytes)
    );
    row("asked for", bytes(chain.asked), message);
    let event = units::count(fault.event);
    row("", String::new(), format!("on stream {}, at event {event}; {end}", fault.stream));
    if let Some(site) = &fault.site {
        row("", String::new(), format!("by {site}"));
    }
    if let Some(top) = fault.top.as_ref().filter(|top| Some(*top) != fault.site.as_ref()) {
        row("", String::new(), format!("in {top}"));
    }
    let limit = &found.limit;
    let (value, why) = match (limit.given, limit.at_most) {
        (Some(given), _) => (bytes(given), "as given".to_owned()),
        (None, Some(most)) => (
            bytes(limit.at_least),
            format!("to {}: inferred, the file does not say; --limit sets it", bytes(most)),
        ),
        (None, None) => (bytes(limit.at_least), "at least: the file does not say".to_owned()),
    };
    row("limit", value, why);
    row("live", bytes(chain.allocated), "allocated by the program, after rounding".to_owned());
    row(
        "free",
        bytes(chain.free),
        format!("reserved and not allocated, in {}", counted(chain.holes, "hole", "holes")),
    );
    row(
        "largest hole",
        bytes(chain.best_hole_with_pending),
        "on this stream and in this pool".to_owned(),
    );
    row("driver's free", bytes(chain.device_free), "on the GPU at that moment".to_owned());
    if let Some(untracked) = found.untracked {
        row(
            "untracked",
            bytes(untracked),
            "of the GPU, outside of this process's PyTorch".to_owned(),
        );
    }
    table
}

/// Until when other streams used what was freed, as far as the file tells.
fn pending_until(chain: &Chain) -> String {
    match chain.pending_until_us {
        _ if chain.pending == 0 => String::new(),
        Some(us) => format!("; the last of them ended {} later", milliseconds(us)),
        None => "; when they ended is not in the file".to_owned(),
    }
}

/// Recorded microseconds as milliseconds.
fn milliseconds(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// Whose the hole is, and for how long.
fn held_until(chain: &Chain) -> String {
    chain.best_hole_stream.map_or_else(String::new, |stream| {
        format!("; stream {stream} keeps it until its whole segment is free and given back")
    })
}

fn ways_out(found: &Explanation) -> Table {
    let chain = &found.chain;
    let bytes = units::bytes;
    let enough = |is: bool| if is { "enough" } else { "not enough" }.to_owned();
    let mut table = Table::new(&[Side::Left, Side::Right, Side::Left]);
    table.row([
        "emptying the cache".to_owned(),
        bytes(chain.released),
        "given back before it failed: not enough".to_owned(),
    ]);
    table.row([
        "waiting for other streams".to_owned(),
        bytes(chain.pending),
        enough(chain.best_hole_with_pending >= chain.rounded) + &pending_until(chain),
    ]);
    let other = chain.best_hole_other_stream;
    table.row([
        "a hole of another stream".to_owned(),
        bytes(other),
        enough(other >= chain.rounded) + &held_until(chain),
    ]);
    let stolen = enough(chain.stealable >= chain.rounded);
    table.row(["whole free pages (expandable)".to_owned(), bytes(chain.stealable), stolen]);
    match chain.window {
        Some(window) => table.row([
            "moving live blocks".to_owned(),
            bytes(window.live_bytes),
            format!(
                "in {} stand in the cheapest place",
                counted(window.live_blocks, "block", "blocks")
            ),
        ]),
        None => table.row(["moving live blocks", "-", "no segment is long enough"]),
    }
    table
}

fn survived(found: &Explanation) -> String {
    let survived = &found.survived;
    let (largest, count) = (units::bytes(survived.largest), survived.count);
    let tops: Vec<String> =
        survived.tops.iter().take(3).map(|(top, count)| format!("{count} in {top}")).collect();
    let failures = counted(count, "earlier request failed", "earlier requests failed");
    format!(
        "{failures} and the program went on: trials of algorithms with a larger\nworkspace, as a \
         rule. The largest asked for {largest}; {}.\n",
        tops.join(", ")
    )
}

fn remedies(found: &Explanation, file: &Path) -> String {
    let Some(best) = found.remedies.first() else {
        let mut text = String::from("What helps\n");
        text.push_str(match found.class {
            Class::Capacity => {
                "  Less at once: a smaller batch, activation checkpointing, a lower precision, or \
                 freeing\n  what the table above shows before this point.\n"
            }
            Class::UserLimit => "  A higher memory fraction, or a smaller request.\n",
            Class::OtherProcess => "  See `nvidia-smi` for who else is on this GPU.\n",
            Class::AbsurdRequest => "  A correct shape.\n",
            _ => "  No setting that was replayed serves the request; see `terrane tune`.\n",
        });
        return text;
    };
    let mut text = String::from(
        "What helps (replayed with the same requests in the same order, as far as the recording \
         goes)\n",
    );
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  PYTORCH_CUDA_ALLOC_CONF={}", best.conf);
    let (peak, capacity) = (units::bytes(best.peak_reserved), units::bytes(best.capacity));
    let _ = writeln!(
        text,
        "  reserves at most {peak} of {capacity} and serves the request. Repeat it:"
    );
    let _ = writeln!(text, "  {}", best.command.replace("FILE", &quoted(file)));
    text
}

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[derive(Serialize)]
struct FromMessage {
    #[serde(flatten)]
    verdict: MessageVerdict,
    message: OutOfMemoryMessage,
}

/// Explains a message alone.
fn message(args: &Args) -> Result<()> {
    let mut log = Vec::new();
    std::io::stdin().lock().take(LOG_BYTES_MAX).read_to_end(&mut log)?;
    let log = String::from_utf8_lossy(&log);
    let Some(mut message) = OutOfMemoryMessage::find(&log) else {
        let text = "the input has no out-of-memory message (`Tried to allocate ...`)";
        return Err(BadInput(text.to_owned()).into());
    };
    message.allowed = args.limit.or(message.allowed);
    message.device_total = args.device_total.or(message.device_total);
    let found = FromMessage { verdict: message.verdict(), message };
    show(args.file.json, &found, || message_text(&found))
}

fn message_text(found: &FromMessage) -> String {
    let (message, verdict) = (&found.message, &found.verdict);
    let short = units::bytes(verdict.short_bytes);
    let sentence = match verdict.class {
        Some(Class::Capacity) => format!(
            "Capacity: what is live and the request need {short} more than there is. No allocator \
             helps: the peak has to shrink."
        ),
        Some(Class::Fragmentation) => "Fragmentation, most likely: enough is reserved and free, \
                                       in pieces too small."
            .to_owned(),
        Some(Class::OtherProcess) => {
            format!("Other process: {short} are missing, and others hold at least as much.")
        }
        Some(Class::UserLimit) => {
            "User limit: the request exceeds what the process allows itself.".to_owned()
        }
        Some(Class::AbsurdRequest) => {
            "Absurd request: it is larger than the whole GPU. Look for a wrong shape.".to_owned()
        }
        Some(Class::Pending | Class::OtherStream) | None => {
            "The message alone does not decide it.".to_owned()
        }
    };
    let mut table = Table::new(&[Side::Left, Side::Right]);
    for (what, value) in [
        ("asked for", message.asked),
        ("GPU", message.device_total),
        ("free on the GPU", message.device_free),
        ("used by this process", message.process_use),
        ("allowed", message.allowed),
        ("allocated by PyTorch", message.allocated),
        ("reserved, not allocated", message.unallocated),
        ("limit that applied", verdict.limit),
    ] {
        let value = value.map_or_else(|| "not said".to_owned(), units::bytes);
        table.row([what.to_owned(), value]);
    }
    format!(
        "{sentence}\n\n{table}\nA message cannot tell {}.\n`terrane howto pytorch` prints the \
         lines that record one.\n",
        verdict.cannot_tell
    )
}
