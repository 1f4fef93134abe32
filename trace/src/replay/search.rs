//! Many replays of one workload: the smallest capacity that completes, and what the knobs of
//! paging trade against each other.

use serde::Serialize;
use terrane_core::pages::Policy as Pages;

use super::{Capacity, Options, Replay, ReplayError, Report, Target};
use crate::Trace;

/// The smallest capacity with which a workload completes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Smallest {
    /// Times the peak requested, to a thousandth.
    pub factor: f64,
    /// Bytes.
    pub capacity: u64,
    /// Replays that it took to find it.
    pub replays: u32,
    /// The report of the replay with that capacity.
    pub report: Report,
}

/// Thousandths of the peak requested that are never enough, and that are tried last.
const LOWEST: u64 = 500;
const HIGHEST: u64 = 16_000;

/// Finds the smallest capacity, in thousandths of the peak requested, with which no request
/// fails, by halving. `open` gives a new device for each replay.
///
/// # Errors
/// [`ReplayError::NoCapacity`] when even sixteen times the peak is not enough; as
/// [`Replay::run`].
pub fn find_capacity(
    name: &str,
    trace: &Trace,
    options: &Options,
    open: &mut dyn FnMut() -> Result<Target, ReplayError>,
) -> Result<Smallest, ReplayError> {
    let mut replays = 0;
    let mut completes = |thousandths: u64| {
        replays += 1;
        let mut options = options.clone();
        options.capacity = Capacity::Times(thousandths as f64 / 1e3);
        options.stop_at_failure = true;
        let report = Replay::new(name, trace, open()?, &options)?.run()?;
        Ok::<_, ReplayError>((report.failures == 0).then_some(report))
    };
    let (mut low, mut high, mut best) = (LOWEST, 1_000, None);
    while best.is_none() {
        match completes(high)? {
            Some(report) => best = Some((high, report)),
            None if high >= HIGHEST => return Err(ReplayError::NoCapacity),
            None => {
                low = high + 1;
                // In small steps at first: little more than the peak is the usual answer.
                high = (high + (high - 990).max(10)).min(HIGHEST);
            }
        }
    }
    while let Some((high, _)) = &best
        && low < *high
    {
        let middle = low.midpoint(*high);
        match completes(middle)? {
            Some(report) => best = Some((middle, report)),
            None => low = middle + 1,
        }
    }
    let (thousandths, report) = best.ok_or(ReplayError::NoCapacity)?;
    let capacity = report.capacity.unwrap_or(0);
    Ok(Smallest { factor: thousandths as f64 / 1e3, capacity, replays, report })
}

/// One setting of the knobs and what it gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The knob that differs from the defaults, and its value.
    pub setting: String,
    /// Peak of reserved bytes over peak of requested bytes.
    pub ratio: f64,
    /// Mapping after the first tenth of the events, over the recorded time.
    pub mapping_share: f64,
    /// Mapping over the whole run, in milliseconds.
    pub map_ms_total: f64,
    /// Pages made.
    pub pages_created: u64,
    /// Pages stolen.
    pub pages_stolen: u64,
    /// Requests refused.
    pub failures: u64,
    /// Whether nothing was refused, and no other row of which that is true is better in one of
    /// ratio and mapping and no worse in the other.
    pub on_frontier: bool,
}

/// Replays a workload with each knob of paging turned by itself, the defaults first.
///
/// # Errors
/// As [`Replay::run`].
pub fn sweep(
    name: &str,
    trace: &Trace,
    options: &Options,
    open: &mut dyn FnMut() -> Result<Target, ReplayError>,
    told: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Row>, ReplayError> {
    let settings = settings();
    let mut rows = Vec::with_capacity(settings.len());
    for (at, (setting, pages)) in settings.iter().enumerate() {
        told(at, settings.len());
        let mut options = options.clone();
        options.pages = Some(*pages);
        options.paging = Some(true);
        let report = Replay::new(name, trace, open()?, &options)?.run()?;
        rows.push(Row {
            setting: setting.clone(),
            ratio: report.ratio,
            mapping_share: report.map_ms_after_tenth / report.recorded_ms.max(f64::MIN_POSITIVE),
            map_ms_total: report.map_ms_total,
            pages_created: report.pages_created,
            pages_stolen: report.pages_stolen,
            failures: report.failures,
            on_frontier: false,
        });
    }
    mark_frontier(&mut rows);
    Ok(rows)
}

fn mark_frontier(rows: &mut [Row]) {
    // A row that refused requests had less to serve: it beats none.
    let serves = rows.iter().filter(|row| row.failures == 0);
    let points: Vec<(f64, f64)> = serves.map(|row| (row.ratio, row.mapping_share)).collect();
    for row in rows {
        let mine = (row.ratio, row.mapping_share);
        let beaten = points.iter().any(|other| {
            other.0 <= mine.0 && other.1 <= mine.1 && (other.0 < mine.0 || other.1 < mine.1)
        });
        row.on_frontier = !beaten && row.failures == 0;
    }
}

fn settings() -> Vec<(String, Pages)> {
    const MIB: u64 = 1 << 20;
    let base = Pages::default();
    let mut rows = vec![("default".to_owned(), base)];
    let mut add = |setting: String, pages: Pages| rows.push((setting, pages));
    for grading in [1, 2, 4, 16] {
        add(format!("grading {grading}"), Pages { grading, ..base });
    }
    for mib in [2, 4, 8, 32] {
        add(format!("large_page {mib} MiB"), Pages { large_page: mib * MIB, ..base });
    }
    for mib in [4, 6] {
        add(format!("small_page {mib} MiB"), Pages { small_page: mib * MIB, ..base });
    }
    for steal_permille in [0, 10, 20] {
        add(format!("steal_permille {steal_permille}"), Pages { steal_permille, ..base });
    }
    for slack_permille in [3, 10, 20] {
        add(format!("slack_permille {slack_permille}"), Pages { slack_permille, ..base });
    }
    for mib in [0, 20, 100] {
        add(format!("gap_bytes {mib} MiB"), Pages { gap_bytes: mib * MIB, ..base });
    }
    for mib in [8, 32] {
        add(format!("large {mib} MiB"), Pages { large: mib * MIB, ..base });
    }
    add("stale_max 0 (no stealing)".to_owned(), Pages { stale_max: 0, ..base });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_beaten_only_by_one_that_serves_everything() {
        let row = |ratio, mapping_share, failures| Row {
            setting: String::new(),
            ratio,
            mapping_share,
            map_ms_total: 0.0,
            pages_created: 0,
            pages_stolen: 0,
            failures,
            on_frontier: true,
        };
        let mut rows = [
            row(1.2, 0.1, 0),
            row(1.1, 0.2, 0),
            // Worse in one thing, no better in the other.
            row(1.2, 0.2, 0),
            // Equal ones do not beat each other.
            row(1.1, 0.2, 0),
            row(0.9, 0.0, 3),
        ];
        mark_frontier(&mut rows);
        assert_eq!(rows.map(|row| row.on_frontier), [true, true, false, true, false]);
    }
}
