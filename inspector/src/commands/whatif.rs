//! `terrane whatif`: what other allocators would have done with the same requests.

use std::str::FromStr;

use anyhow::Result;
use terrane_trace::diagnose::{Requests, Untracked, WhatIf, whatif, whatif_terrane};
use terrane_trace::model::{ModelSpec, Validation};
use terrane_trace::replay::{Capacity, Options, Policy};
use terrane_trace::snapshot::History;

use super::shared::{FileArgs, PartArgs, bad, card, cut, history, open, show, untracked, usable};
use crate::source;
use crate::text::{Side, Table};
use crate::units;

/// Options of `whatif`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// An allocator with options: pytorch, pytorch-expandable, bfc, cuda-async, rmm-pool,
    /// rmm-arena, vma or terrane, as in pytorch:max_split_size_mb=128. Give it several times to
    /// compare; all unless given.
    #[arg(long, alias = "model", value_name = "NAME[:KEY=VALUE,...]")]
    pub allocator: Vec<Allocator>,
    /// The most that may be reserved: bytes (24GiB) or times the peak requested (1.05x).
    #[arg(long, value_name = "BYTES|TIMESx", conflicts_with = "card")]
    pub capacity: Option<Capacity>,
    /// The same as a card's memory (24GB), less what is untracked.
    #[arg(long, value_name = "GB", value_parser = card)]
    pub card: Option<u64>,
    /// With --card: bytes of it that the program cannot have; `auto` assumes 1/64 and 512 MiB.
    #[arg(long, value_name = "auto|BYTES", default_value = "auto", value_parser = untracked)]
    pub untracked: Untracked,
}

/// An allocator to replay.
#[derive(Clone, Debug)]
pub enum Allocator {
    Model(ModelSpec),
    /// This project's own, on a simulated device.
    Terrane {
        name: String,
        device: source::Choice,
        policy: Policy,
    },
}

impl FromStr for Allocator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        if name != "terrane" {
            let spec = ModelSpec::parse(text).map_err(|error| match error {
                terrane_trace::model::SpecError::Model { .. } => format!("{error}, terrane"),
                error => error.to_string(),
            })?;
            return Ok(Self::Model(spec));
        }
        let device_of = |kind: &str| kind.parse::<source::Choice>().map_err(|e| e.to_string());
        let (mut device, mut policy) = (device_of("sim")?, Policy::Completed);
        for item in options.split(',').filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                Some(("reuse", value)) => policy = value.parse()?,
                Some(("device", kind @ ("cuda" | "vulkan" | "slabs"))) => {
                    device = device_of(&format!("sim:{kind}"))?;
                }
                _ => {
                    return Err(format!(
                        "`{item}` is no option of terrane; it takes reuse=completed|wait and \
                         device=cuda|vulkan|slabs"
                    ));
                }
            }
        }
        Ok(Self::Terrane { name: text.to_owned(), device, policy })
    }
}

/// Prints what the allocators would have done.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = cut(open(&args.file, quiet)?, &args.part)?;
    let history = history(&recording, &args.file)?;
    let peak = history.trace.figures().peak_requested;
    let (capacity, limit) = match (args.card, args.capacity) {
        (Some(card), _) => {
            let usable = usable(card, args.untracked);
            (Some(usable.bytes), usable.text)
        }
        (None, capacity) => match capacity.unwrap_or_default().bytes(peak) {
            Some(bytes) => (Some(bytes), crate::text::exact(bytes)),
            None => (None, "none".to_owned()),
        },
    };
    let requests = Requests::under(history, capacity).map_err(bad(&args.file))?;
    let allocators = if args.allocator.is_empty() { all()? } else { args.allocator.clone() };
    let mut found = Vec::new();
    for allocator in &allocators {
        found.push(one(&requests, history, allocator, capacity)?);
    }
    let text = || text(&found, &requests, &limit);
    match &found[..] {
        [only] => show(args.file.json, only, text),
        several => show(args.file.json, &several, text),
    }
}

/// What an allocator, by name, would have done with all requests under a limit.
///
/// # Errors
/// A name that is none, sizes that cannot exist, and the model's.
pub fn under(history: &History, name: &str, capacity: u64) -> Result<WhatIf> {
    let allocator: Allocator = name.parse().map_err(anyhow::Error::msg)?;
    one(&Requests::all(history)?, history, &allocator, Some(capacity))
}

fn all() -> Result<Vec<Allocator>> {
    let names = ModelSpec::NAMES.into_iter().chain(["terrane"]);
    names.map(|name| name.parse().map_err(anyhow::Error::msg)).collect()
}

fn one(
    requests: &Requests,
    history: &History,
    allocator: &Allocator,
    capacity: Option<u64>,
) -> Result<WhatIf> {
    match allocator {
        Allocator::Model(spec) => Ok(whatif(requests, history, spec, capacity)),
        Allocator::Terrane { name, device, policy } => {
            let opened = source::open(device)?;
            let mut options = Options::default();
            options.policy = *policy;
            options.contents = false;
            options.capacity = capacity.map_or(Capacity::Device, Capacity::Bytes);
            let replay = source::replay(&opened, "whatif", requests.trace(), &options)?;
            Ok(whatif_terrane(requests, name, replay)?)
        }
    }
}

fn text(found: &[WhatIf], requests: &Requests, limit: &str) -> String {
    let peak = requests.peak_requested();
    let mut table = Table::with_head(&[
        ("allocator", Side::Left),
        ("peak reserved", Side::Right),
        ("over requested", Side::Right),
        ("failures", Side::Right),
        ("retries", Side::Right),
        ("waits", Side::Right),
        ("validated", Side::Left),
    ]);
    for WhatIf {
        model,
        peak_reserved,
        failures,
        survived_failures,
        retries,
        waits,
        validation,
        ..
    } in found
    {
        let over = (*peak_reserved as f64 / peak.max(1) as f64 - 1.0) * 100.0;
        let survived = match survived_failures {
            0 => String::new(),
            count => format!(" (+{} survived)", units::count(*count)),
        };
        table.row([
            model.clone(),
            units::bytes(*peak_reserved),
            format!("{over:+.1} %"),
            format!("{}{survived}", units::count(*failures)),
            units::count(*retries),
            units::count(*waits),
            match validation {
                _ if model.starts_with("terrane") => "itself".to_owned(),
                Validation::Validated { within_percent: 0.0, .. } => "exact".to_owned(),
                Validation::Validated { within_percent, .. } => format!("to {within_percent} %"),
                Validation::NotValidated { .. } => "not validated".to_owned(),
            },
        ]);
    }
    let mut text = format!(
        "Peak requested: {}. Limit: {limit}.\nThe premise: the same requests in the same order, \
         as far as the recording goes.\n\n{table}\n",
        units::bytes(peak)
    );
    for WhatIf { model, validation, .. } in found {
        if model.starts_with("terrane") {
            text.push_str("  terrane: the allocator itself, on a model of the device\n");
            continue;
        }
        text.push_str(&format!("  {model}: {validation}\n"));
    }
    if found.iter().any(|found| found.survived_failures > 0) {
        text.push_str(
            "  survived: requests that failed in the recorded run too, after which it went on\n",
        );
    }
    text
}
