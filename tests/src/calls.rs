//! The device calls of a clause, few enough to read.

use std::sync::{Arc, Mutex, PoisonError};

use terrane_core::device::calls::Call;
use terrane_core::device::wrap::Logged;

/// Calls that are kept of one clause.
pub(crate) const KEPT: usize = 1 << 16;
/// Lines that are shown of them: the last ones.
const SHOWN: usize = 40;

/// Where a clause's calls are left. Clones share it.
#[derive(Clone, Default)]
pub struct CallLog(Arc<Mutex<Option<Arc<Logged>>>>);

impl CallLog {
    /// No calls yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn watch(&self, device: Arc<Logged>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(device);
    }

    /// The calls so far, oldest first: calls of one kind in a row are one line, and only the last
    /// lines are given.
    pub fn lines(&self) -> Vec<String> {
        let device = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(device) = device else { return Vec::new() };
        reduced(device.calls().log())
    }
}

fn reduced(calls: &[Call]) -> Vec<String> {
    let rows = calls.chunk_by(|a, b| a.kind == b.kind && a.error == b.error);
    let mut lines: Vec<String> = rows.map(line).collect();
    let more = lines.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.drain(..more);
        lines.insert(0, format!("({more} lines before these)"));
    }
    lines
}

fn line(row: &[Call]) -> String {
    let Some(first) = row.first() else { return String::new() };
    let mut line = first.kind.name().to_owned();
    if row.len() > 1 {
        line += &format!(" x{}", row.len());
    }
    let bytes: u64 = row.iter().map(|call| call.bytes).sum();
    if bytes > 0 {
        line += &format!(", {bytes} bytes");
    }
    if let Some(error) = first.error {
        line += &format!(": {error}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrane_core::device::DeviceError;
    use terrane_core::device::calls::CallKind;

    #[test]
    fn calls_of_one_kind_are_one_line_and_the_last_lines_stay() {
        let call = |kind, error| Call { kind, at_ns: 0, ns: 0, items: 1, bytes: 8, error };
        let mut calls = vec![call(CallKind::Fill, None); 3];
        calls.push(call(CallKind::Fill, Some(DeviceError::Lost)));
        calls.push(call(CallKind::Mark, None));
        let lost = format!("fill, 8 bytes: {}", DeviceError::Lost);
        assert_eq!(reduced(&calls), ["fill x3, 24 bytes", &lost, "mark, 8 bytes"]);
        let many: Vec<Call> = (0..100)
            .map(|n| call(if n % 2 == 0 { CallKind::Fill } else { CallKind::Copy }, None))
            .collect();
        let lines = reduced(&many);
        assert_eq!((lines.len(), lines[0].as_str()), (41, "(60 lines before these)"));
    }
}
