//! Failures that are known and understood, as data. A clause that passes in spite of its row is
//! a failure: the row has to go.

use terrane_core::device::DeviceInfo;

/// One known failure.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Part of the device's name, or its backend.
    pub device: &'static str,
    /// Part of the driver's text; empty for any.
    pub driver: &'static str,
    /// The clause.
    pub clause: &'static str,
    /// Why it fails there, and what would have to change.
    pub reason: &'static str,
}

/// The rows.
pub const EXPECTED: &[Expected] = &[];

/// The row for a clause on a device.
pub fn expected(info: &DeviceInfo, clause: &str) -> Option<&'static Expected> {
    EXPECTED.iter().find(|row| {
        row.clause == clause
            && (info.name.contains(row.device) || info.backend == row.device)
            && info.driver.contains(row.driver)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_clause_and_says_why() {
        for row in EXPECTED {
            assert!(crate::clauses::find(row.clause).is_some(), "{row:?}");
            assert!(!row.device.is_empty() && row.reason.len() > 20, "{row:?}");
        }
    }
}
