//! Recorded runs of the conformance suite, docs/conformance/*.json: each names the commit it ran,
//! which must be in this history. Whether the clauses have changed since is asked of git (the hash
//! of their folder then and now), so that a record cannot claim a list it did not run.

use anyhow::Result;
use serde_json::Value;

use super::Finding;
use super::tree::{Source, Tree};
use crate::shell;

const FOLDER: &str = "docs/conformance/";
const CLAUSES: &str = "tests/src/clauses";

/// What is wrong with the records, and what is merely old.
#[derive(Default)]
pub struct Records {
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
}

/// A record with no commit of ours fails; one of an older clause list is noted as stale.
pub fn check(tree: &Tree) -> Result<Records> {
    let mut records = Records::default();
    let files: Vec<&Source> = records_in(tree).collect();
    if files.is_empty() {
        return Ok(records);
    }
    let shallow = ["rev-parse", "--is-shallow-repository"];
    if shell::output(&mut shell::command("git", &shallow))?.trim() == "true" {
        records
            .notes
            .push("shallow clone: the commits of conformance records are not checked".into());
        return Ok(records);
    }
    for file in files {
        one(file, &Git, &mut records);
    }
    Ok(records)
}

/// What is asked of the history.
trait History {
    fn is_ancestor(&self, commit: &str) -> bool;
    /// The hash of the folder of clauses as of a commit.
    fn clauses(&self, commit: &str) -> Option<String>;
}

struct Git;

impl History for Git {
    fn is_ancestor(&self, commit: &str) -> bool {
        let args = ["merge-base", "--is-ancestor", commit, "HEAD"];
        shell::succeeds(&mut shell::command("git", &args))
    }

    fn clauses(&self, commit: &str) -> Option<String> {
        let folder = format!("{commit}:{CLAUSES}");
        let args = ["rev-parse", "--verify", "--quiet", &folder];
        shell::output(&mut shell::command("git", &args)).ok()
    }
}

fn records_in(tree: &Tree) -> impl Iterator<Item = &Source> {
    tree.files.iter().filter(|file| file.path.starts_with(FOLDER) && file.path.ends_with(".json"))
}

fn one(file: &Source, history: &impl History, records: &mut Records) {
    let mut fail = |message: String| records.findings.push(Finding::new(&file.path, 0, message));
    let json: Value = match serde_json::from_str(&file.text) {
        Ok(json) => json,
        Err(error) => return fail(format!("no JSON: {error}")),
    };
    let Some(commit) = json["commit"].as_str() else {
        return fail("no key `commit`: which code was run?".to_owned());
    };
    let hexadecimal = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
    if !hexadecimal || !history.is_ancestor(commit) {
        return fail(format!(
            "commit {commit} is not in the history of HEAD: record the run again"
        ));
    }
    if history.clauses(commit) != history.clauses("HEAD") {
        let path = &file.path;
        records.notes.push(format!("{path} is stale: the clauses have changed since {commit}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "0123456789012345678901234567890123456789";

    const OLDER: &str = "1123456789012345678901234567890123456789";

    struct Planted;

    impl History for Planted {
        fn is_ancestor(&self, commit: &str) -> bool {
            [OURS, OLDER].contains(&commit)
        }

        fn clauses(&self, commit: &str) -> Option<String> {
            Some(if commit == OLDER { "old" } else { "new" }.to_owned())
        }
    }

    fn checked(text: &str) -> Records {
        let file = Source { path: format!("{FOLDER}sim.json"), text: text.to_owned() };
        let mut records = Records::default();
        one(&file, &Planted, &mut records);
        records
    }

    #[test]
    fn a_record_must_name_a_commit_of_this_history() {
        let good = checked(&format!("{{\"commit\":\"{OURS}\"}}"));
        assert!(good.findings.is_empty() && good.notes.is_empty());
        let unknown = format!("{{\"commit\":\"{}\"}}", OURS.replace('0', "f"));
        for bad in ["{}", "{", "{\"commit\":\"HEAD\"}", &unknown] {
            assert_eq!(checked(bad).findings.len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_record_of_an_older_clause_list_is_noted_as_stale_and_does_not_fail() {
        let old = checked(&format!("{{\"commit\":\"{OLDER}\"}}"));
        assert!(old.findings.is_empty());
        assert!(old.notes[0].contains("stale"), "{:?}", old.notes);
    }
}
