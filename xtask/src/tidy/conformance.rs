//! Recorded runs of the conformance suite, docs/conformance/*.json: each belongs to a commit of
//! this history, and says by a hash which list of clauses it ran.

use anyhow::Result;
use serde_json::Value;

use super::Finding;
use super::tree::{Source, Tree};
use crate::shell;

const FOLDER: &str = "docs/conformance/";

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
        one(file, is_ancestor, &mut records);
    }
    Ok(records)
}

fn records_in(tree: &Tree) -> impl Iterator<Item = &Source> {
    tree.files.iter().filter(|file| file.path.starts_with(FOLDER) && file.path.ends_with(".json"))
}

fn is_ancestor(commit: &str) -> bool {
    shell::succeeds(&mut shell::command("git", &["merge-base", "--is-ancestor", commit, "HEAD"]))
}

fn one(file: &Source, is_ancestor: impl Fn(&str) -> bool, records: &mut Records) {
    let mut fail = |message: String| records.findings.push(Finding::new(&file.path, 0, message));
    let json: Value = match serde_json::from_str(&file.text) {
        Ok(json) => json,
        Err(error) => return fail(format!("no JSON: {error}")),
    };
    let Some(commit) = json["commit"].as_str() else {
        return fail("no key `commit`: which code was run?".to_owned());
    };
    let hexadecimal = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
    if !hexadecimal || !is_ancestor(commit) {
        fail(format!("commit {commit} is not in the history of HEAD: record the run again"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "0123456789012345678901234567890123456789";

    fn found(text: &str) -> Vec<String> {
        let file = Source { path: format!("{FOLDER}sim.json"), text: text.to_owned() };
        let mut records = Records::default();
        one(&file, |commit| commit == OURS, &mut records);
        records.findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_record_must_name_a_commit_of_this_history() {
        assert!(found(&format!("{{\"commit\":\"{OURS}\"}}")).is_empty());
        assert_eq!(found("{}").len(), 1);
        assert_eq!(found("{").len(), 1);
        assert_eq!(found("{\"commit\":\"HEAD\"}").len(), 1);
        assert_eq!(found(&format!("{{\"commit\":\"{}\"}}", OURS.replace('0', "f"))).len(), 1);
    }
}
