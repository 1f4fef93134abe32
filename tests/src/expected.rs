//! Failures that are known and understood, as data. A clause that passes in spite of its row is
//! a failure: the row has to go.

use terrane_core::device::DeviceInfo;

/// One known failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Part of the device's name, or its backend.
    pub device: String,
    /// Part of the driver's text; empty for any.
    pub driver: String,
    /// The clause.
    pub clause: String,
    /// Why it fails there, and what would have to change.
    pub reason: String,
}

/// The rows that belong to the suite.
const OURS: &str = include_str!("../data/expected.csv");

/// The rows of a text: `device,driver,clause,reason` a line, the reason with any commas.
///
/// # Errors
/// The first line that is no row, names no clause, or gives no reason to speak of.
pub fn parse(text: &str) -> Result<Vec<Expected>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(row).collect()
}

fn row(line: &str) -> Result<Expected, String> {
    let mut parts = line.splitn(4, ',').map(|part| part.trim().to_owned());
    let (Some(device), Some(driver), Some(clause), Some(reason)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("`{line}` is not device,driver,clause,reason"));
    };
    if crate::clauses::find(&clause).is_none() {
        return Err(format!("`{line}`: no such clause"));
    }
    if device.is_empty() || reason.len() < 20 {
        return Err(format!("`{line}`: a device and a reason are needed"));
    }
    Ok(Expected { device, driver, clause, reason })
}

/// The rows of the suite.
///
/// # Errors
/// As [`parse`].
pub fn ours() -> Result<Vec<Expected>, String> {
    parse(OURS)
}

/// The row for a clause on a device.
pub fn find<'a>(rows: &'a [Expected], info: &DeviceInfo, clause: &str) -> Option<&'a Expected> {
    rows.iter().find(|row| {
        row.clause == clause
            && (info.name.contains(&row.device) || info.backend == row.device)
            && info.driver.contains(&row.driver)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_ours_names_a_clause_and_says_why() {
        assert_eq!(ours().map(drop), Ok(()));
    }

    #[test]
    fn a_row_without_a_clause_or_a_reason_is_refused() {
        assert!(parse("sim,,caps.names,the model is named by nobody, as it happens").is_ok());
        for wrong in [
            "sim,,caps.names",
            "sim,,caps.nothing,a reason that is long enough",
            "sim,,caps.names,no",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
