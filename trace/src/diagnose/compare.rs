//! How two recordings differ.

use super::sites::{SiteBy, Sites, peak_by};
use super::timeline::timeline;
use crate::recording::Recording;
use serde::Serialize;
use std::collections::BTreeMap;

/// One number in both recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What is compared.
    pub what: &'static str,
    /// True for bytes, false for a count.
    pub is_bytes: bool,
    /// In the first.
    pub a: u64,
    /// In the second.
    pub b: u64,
}

/// A site's bytes at each recording's own peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteChange {
    /// The site.
    pub site: String,
    /// Bytes in the first.
    pub a: u64,
    /// Bytes in the second.
    pub b: u64,
}

/// How two recordings differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Figures, in a fixed order.
    pub figures: Vec<Change>,
    /// Settings of both, where they differ.
    pub settings: Option<(String, String)>,
    /// Sites whose bytes at the peak differ, largest difference first.
    pub sites: Vec<SiteChange>,
}

/// Compares the histories of a device in two recordings, the longest of each where none is named;
/// `None` where one has none.
#[must_use]
pub fn compare(
    a: &Recording,
    b: &Recording,
    device: Option<usize>,
    by: SiteBy,
) -> Option<Comparison> {
    let (first, second) = (facts(a, device, by)?, facts(b, device, by)?);
    let pairs = first.0.iter().zip(&second.0);
    let figures = pairs.map(|(a, b)| Change { what: a.0, is_bytes: a.1, a: a.2, b: b.2 });
    let conf = |recording: &Recording| recording.snapshot.settings.conf.clone().unwrap_or_default();
    let (conf_a, conf_b) = (conf(a), conf(b));
    Some(Comparison {
        figures: figures.collect(),
        settings: (conf_a != conf_b).then_some((conf_a, conf_b)),
        sites: site_changes(&first.1, &second.1),
    })
}

type Fact = (&'static str, bool, u64);

fn facts(recording: &Recording, device: Option<usize>, by: SiteBy) -> Option<(Vec<Fact>, Sites)> {
    let history = recording.history(device)?;
    let snapshot = &recording.snapshot;
    let figures = history.trace.figures();
    let line = timeline(snapshot, history, 1);
    let facts = vec![
        ("peak requested", true, figures.peak_requested),
        ("peak reserved", true, line.peak_reserved),
        ("largest request", true, figures.largest_bytes),
        ("allocated in all", true, figures.allocated_bytes),
        ("live at the end", true, figures.live_bytes_at_end),
        ("events", false, figures.events),
        ("blocks", false, figures.blocks),
        ("segments made", false, history.placed().count() as u64),
        ("requests that failed", false, history.attempts.len() as u64),
    ];
    Some((facts, peak_by(snapshot, history, by)))
}

fn site_changes(a: &Sites, b: &Sites) -> Vec<SiteChange> {
    let mut sites: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in &a.rows {
        sites.entry(&row.site).or_default().0 = row.bytes;
    }
    for row in &b.rows {
        sites.entry(&row.site).or_default().1 = row.bytes;
    }
    let mut changes: Vec<SiteChange> = sites
        .into_iter()
        .filter(|(_, (a, b))| a != b)
        .map(|(site, (a, b))| SiteChange { site: site.to_owned(), a, b })
        .collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.a.abs_diff(change.b)));
    changes
}
