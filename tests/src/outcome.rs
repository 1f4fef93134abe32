//! What became of clauses, as text, JSON and JUnit.

use serde_json::{Value, json};
use terrane::core::device::DeviceInfo;

use crate::expected::{Expected, find};
use crate::{Clause, Ending, Verdict};

/// How a clause ended, once the known failures are taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// It holds.
    Passed,
    /// It does not, or it does though it should not.
    Failed,
    /// It does not, as is known.
    ExpectedFailure,
    /// It could not be tried.
    Skipped,
}

impl Count {
    /// The outcome in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::ExpectedFailure => "expected failure",
            Self::Skipped => "skipped",
        }
    }
}

/// One clause's outcome.
pub struct Row {
    /// The clause.
    pub clause: &'static Clause,
    /// What became of it.
    pub count: Count,
    /// Why; empty where it passed.
    pub reason: String,
    /// The line that runs it again.
    pub again: String,
    /// The device calls of a failure.
    pub calls: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
}

/// All outcomes on one device.
pub struct Report<'a> {
    /// The device.
    pub info: &'a DeviceInfo,
    /// The commit, if it was told.
    pub commit: Option<&'a str>,
    /// The seed.
    pub seed: u64,
    /// The clauses, in the order in which they ran.
    pub rows: Vec<Row>,
}

/// What a verdict counts as, and why.
pub fn judge(info: &DeviceInfo, verdict: &Verdict, expected: &[Expected]) -> (Count, String) {
    let row = find(expected, info, verdict.clause.id);
    match (&verdict.ending, row) {
        (Ending::Passed, None) => (Count::Passed, String::new()),
        (Ending::Passed, Some(row)) => {
            (Count::Failed, format!("it holds, though a failure is expected: {}", row.reason))
        }
        (Ending::Failed(text), None) => (Count::Failed, text.clone()),
        (Ending::Failed(text), Some(row)) => {
            (Count::ExpectedFailure, format!("{} ({text})", row.reason))
        }
        (Ending::Skipped(why), _) => (Count::Skipped, why.clone()),
    }
}

impl Report<'_> {
    /// How many clauses ended so.
    pub fn of(&self, wanted: Count) -> usize {
        self.rows.iter().filter(|row| row.count == wanted).count()
    }

    /// One JSON object.
    pub fn json(&self) -> Value {
        let clauses: Vec<Value> = self.rows.iter().map(clause).collect();
        json!({
            "device": self.info.name,
            "backend": self.info.backend,
            "driver": self.info.driver,
            "commit": self.commit,
            "seed": self.seed,
            "passed": self.of(Count::Passed),
            "failed": self.of(Count::Failed),
            "expected_failures": self.of(Count::ExpectedFailure),
            "skipped": self.of(Count::Skipped),
            "clauses": clauses,
        })
    }

    /// The XML that build servers read: expected failures are skipped there, with their reason.
    pub fn junit(&self) -> String {
        let (failed, skipped) = (self.of(Count::Failed), self.of(Count::Skipped));
        let skipped = skipped + self.of(Count::ExpectedFailure);
        let name = escape(&format!("{} ({})", self.info.name, self.info.driver));
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        xml += &format!(
            "<testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" \
             skipped=\"{skipped}\">\n",
            self.rows.len()
        );
        for row in &self.rows {
            xml += &case(row);
        }
        xml + "</testsuite>\n</testsuites>\n"
    }
}

fn clause(row: &Row) -> Value {
    let mut value = json!({
        "id": row.clause.id, "outcome": row.count.name(), "reason": row.reason,
    });
    if row.count == Count::Failed
        && let Some(fields) = value.as_object_mut()
    {
        fields.insert("sentence".into(), row.clause.sentence.into());
        fields.insert("blames".into(), format!("{:?}", row.clause.blames).to_lowercase().into());
        fields.insert("reference".into(), row.clause.reference.into());
        fields.insert("again".into(), row.again.clone().into());
        fields.insert("calls".into(), row.calls.clone().into());
    }
    value
}

fn case(row: &Row) -> String {
    let (area, _) = row.clause.id.split_once('.').unwrap_or((row.clause.id, ""));
    let open = format!(
        "<testcase classname=\"{area}\" name=\"{}\" time=\"{:.3}\"",
        escape(row.clause.id),
        row.seconds
    );
    let reason = escape(&row.reason);
    match row.count {
        Count::Passed => format!("{open}/>\n"),
        Count::Skipped | Count::ExpectedFailure => {
            format!("{open}><skipped message=\"{reason}\"/></testcase>\n")
        }
        Count::Failed => {
            let more =
                format!("{}\nagain: {}\n{}", row.clause.sentence, row.again, row.calls.join("\n"));
            let more = escape(&more);
            format!("{open}><failure message=\"{reason}\">{more}</failure></testcase>\n")
        }
    }
}

/// Text as XML has it; characters that XML has no way to write become spaces.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
