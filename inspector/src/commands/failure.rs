//! Why memory ran out, whatever kind of file says so.

use std::path::Path;

use serde::Serialize;
use terrane_trace::diagnose::{
    Class, Known, LogShortage, Moment, Served, Shortage, SiteBy, Sites, explain_log, shortage,
    sites,
};
use terrane_trace::recording::{Format, Recording};
use terrane_trace::snapshot::History;

use super::explain::{self, Explained};
use crate::text::{Side, Table, counted};
use crate::units;

/// The last failure of a recording, explained.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Failure {
    /// From a snapshot of PyTorch.
    Pytorch(Box<Explained>),
    /// From a trace of ours.
    Own(Own),
    /// From a log without addresses.
    Log(LogShortage),
}

/// A failure in a trace of ours, and who held the memory.
#[derive(Serialize)]
pub struct Own {
    #[serde(flatten)]
    shortage: Shortage,
    /// Live bytes by site when the request failed; `null` where the verdict needs no cut.
    to_cut: Option<Sites>,
    /// Ways to run our allocator that serve every request under what there was.
    served_by: Vec<Served>,
}

impl Failure {
    /// Explains the last failure of a history; `None` where nothing failed.
    ///
    /// # Errors
    /// A sentence about sizes that cannot exist.
    pub fn of(
        recording: &Recording,
        history: &History,
        known: Known,
    ) -> Result<Option<Self>, String> {
        if recording.format.is_pytorch() {
            let found = explain::explained(recording, history, known)?;
            return Ok(found.map(|found| Self::Pytorch(Box::new(found))));
        }
        if recording.format == Format::Terrane {
            let snapshot = &recording.snapshot;
            return Ok(shortage(snapshot, history).map(|shortage| {
                let moment = Moment::After(shortage.event as usize);
                let cut = || sites(snapshot, history, moment, SiteBy::User);
                let to_cut = (shortage.class == Class::Capacity).then(cut);
                Self::Own(Own { shortage, to_cut, served_by: Vec::new() })
            }));
        }
        let found = explain_log(history, known.limit).map_err(|reason| reason.to_string())?;
        Ok(found.map(Self::Log))
    }

    /// The same with what helps, where that takes replays of the whole history.
    pub fn with_remedies(mut self, history: &History) -> Self {
        if let Self::Own(own) = &mut self
            && own.shortage.class != Class::Capacity
        {
            own.served_by = served_by_ours(history, &own.shortage);
        }
        self
    }

    /// Events of the trace before it.
    pub fn event(&self) -> usize {
        let event = match self {
            Self::Pytorch(found) => found.explanation.fault.event,
            Self::Own(found) => found.shortage.event,
            Self::Log(found) => found.event,
        };
        usize::try_from(event).unwrap_or(usize::MAX)
    }

    /// Requests that failed in the whole recording.
    pub fn failures(&self) -> u64 {
        match self {
            Self::Pytorch(found) => found.explanation.failures,
            Self::Own(found) => found.shortage.failures,
            Self::Log(found) => found.failures,
        }
    }

    /// Who held the memory, where the verdict needs it to be cut.
    #[cfg(feature = "gui")]
    pub fn to_cut(&self) -> Option<&Sites> {
        match self {
            Self::Pytorch(found) => found.to_cut.as_ref(),
            Self::Own(found) => found.to_cut.as_ref(),
            Self::Log(_) => None,
        }
    }

    /// The numbers behind the verdict, where those are not PyTorch's.
    #[cfg(feature = "gui")]
    pub fn numbers(&self) -> Vec<Number> {
        match self {
            Self::Pytorch(_) => Vec::new(),
            Self::Own(found) => own_numbers(&found.shortage),
            Self::Log(found) => log_numbers(found),
        }
    }

    /// What was replayed and serves every request, where that is not a setting of PyTorch's.
    #[cfg(feature = "gui")]
    pub fn served_by(&self) -> &[Served] {
        match self {
            Self::Pytorch(_) => &[],
            Self::Own(found) => &found.served_by,
            Self::Log(found) => &found.served_by,
        }
    }

    /// The verdict in one or two sentences.
    pub fn verdict(&self) -> String {
        match self {
            Self::Pytorch(found) => explain::verdict(&found.explanation),
            Self::Own(found) => own_verdict(&found.shortage),
            Self::Log(found) => log_verdict(found),
        }
    }

    /// The verdict, the numbers behind it and what helps.
    pub fn text(&self, file: &Path) -> String {
        match self {
            Self::Pytorch(found) => explain::text(found, file),
            Self::Own(found) => own_text(found, file),
            Self::Log(found) => log_text(found, file),
        }
    }
}

/// The settings of our allocator that a program can choose, each replayed.
fn served_by_ours(history: &History, shortage: &Shortage) -> Vec<Served> {
    let capacity = shortage.reserved.saturating_add(shortage.left);
    let replayed = ["terrane", "terrane:reuse=wait"].map(|model| {
        let found = super::whatif::under(history, model, capacity).ok()?;
        let command = format!("terrane whatif FILE --allocator {model} --capacity {capacity}");
        let (model, peak_reserved) = (model.to_owned(), found.peak_reserved);
        let is_served = found.failures + found.survived_failures == 0;
        is_served.then_some(Served { model, peak_reserved, capacity, command })
    });
    replayed.into_iter().flatten().collect()
}

fn own_verdict(found: &Shortage) -> String {
    let (asked, short) = (units::bytes(found.asked), units::bytes(found.short_bytes));
    match found.class {
        Class::Capacity => format!(
            "Capacity: what is live and the {asked} asked for need {short} more than there is. No \
             allocator helps: the peak has to shrink by {short}."
        ),
        Class::Pending => format!(
            "Pending: there is room for {asked} once the work ends that still uses freed blocks."
        ),
        _ => format!("Fragmentation: there is room for {asked}, in pieces too small."),
    }
}

/// What a number is, its bytes, and what it means.
pub type Number = (&'static str, u64, String);

fn own_numbers(found: &Shortage) -> Vec<Number> {
    let event = units::count(found.event);
    vec![
        ("asked for", found.asked, format!("on stream {}, at event {event}", found.stream)),
        ("live", found.live, "asked for by live blocks".to_owned()),
        ("pending", found.pending, "freed, and work still uses it".to_owned()),
        ("reserved", found.reserved, "memory objects".to_owned()),
        ("left", found.left, "below the limit, and free on the device".to_owned()),
    ]
}

fn table_of(numbers: Vec<Number>) -> Table {
    let mut table = Table::new(&[Side::Left, Side::Right, Side::Left]);
    for (what, value, meaning) in numbers {
        table.row([what.to_owned(), units::bytes(value), meaning]);
    }
    table
}

fn own_text(own: &Own, file: &Path) -> String {
    let found = &own.shortage;
    let table = table_of(own_numbers(found));
    let failures = counted(found.failures, "request failed", "requests failed");
    let verdict = own_verdict(found);
    let mut text =
        format!("{verdict}\n\n{table}\n{failures} in the recording; this is the last.\n");
    if let Some(cut) = &own.to_cut {
        text.push_str(&format!("\nWho held the memory\n{}", super::sites::table(cut, 8)));
        return text;
    }
    text.push_str(&helps(&own.served_by, file));
    text
}

/// What was replayed and serves every request.
fn helps(served_by: &[Served], file: &Path) -> String {
    let mut text = String::from(
        "\nWhat helps (replayed with the same requests in the same order, as far as the recording \
         goes)\n",
    );
    if served_by.is_empty() {
        text.push_str("  Nothing that was replayed serves every request.\n");
    }
    for served in served_by {
        let (peak, capacity) = (units::bytes(served.peak_reserved), units::bytes(served.capacity));
        let command = served.command.replace("FILE", &explain::quoted(file));
        text.push_str(&format!(
            "  {} serves every request and reserves at most {peak} of {capacity}. Repeat it:\n  \
             {command}\n",
            served.model
        ));
    }
    text
}

fn log_verdict(found: &LogShortage) -> String {
    let (asked, live) = (units::bytes(found.asked), units::bytes(found.live));
    let short = units::bytes(found.short_bytes);
    match found.class {
        Some(Class::Capacity) => format!(
            "Capacity: what is live and the {asked} asked for need {short} more than the limit. \
             No allocator helps: the peak has to shrink by {short}."
        ),
        Some(_) if found.limit.is_none() => format!(
            "Fragmentation, or a pool's limit: {live} were live when {asked} were asked for, and \
             more than both was live at another moment, so the memory was there."
        ),
        Some(_) => format!(
            "Fragmentation: {live} were live when {asked} were asked for, which the limit allows."
        ),
        None => format!(
            "Not decided: {live} were live when {asked} were asked for, more than ever at once, \
             and a log does not say the limit. `--limit BYTES` sets it."
        ),
    }
}

fn log_numbers(found: &LogShortage) -> Vec<Number> {
    let event = units::count(found.event);
    let at_least = || "at least: so much was live once; --limit sets it".to_owned();
    let (limit, meaning) = match found.limit {
        Some(limit) => (limit, "as given".to_owned()),
        None => (found.limit_at_least, at_least()),
    };
    vec![
        ("asked for", found.asked, format!("on stream {}, at event {event}", found.stream)),
        ("live", found.live, "asked for by blocks that were not freed".to_owned()),
        ("limit", limit, meaning),
    ]
}

fn log_text(found: &LogShortage, file: &Path) -> String {
    let table = table_of(log_numbers(found));
    let failures = counted(found.failures, "request failed", "requests failed");
    let verdict = log_verdict(found);
    let mut text = format!("{verdict}\n\n{table}\n{failures} in the log; this is the last.\n");
    text.push_str("A log says neither where blocks lie nor what was reserved.\n");
    if found.class != Some(Class::Fragmentation) {
        return text;
    }
    text.push_str(&helps(&found.served_by, file));
    text
}
