//! The commits that the records name are in the history of this repository.

use std::process::Command;

use super::Finding;
use super::repository::Repository;
use crate::step;

/// The directories of the records.
const RECORDS: [&str; 2] = ["trust/", "bench/records/"];

/// The commits of records that were made before the history was rewritten. A commit leaves this
/// list when its runs are repeated.
const REWRITTEN: [&str; 3] = ["36afe0eea9ca", "8a81abe77a19", "ca193d2e90e2"];

/// The least length of a commit in a record. A shorter one may be the beginning of another commit.
const COMMIT_MIN: usize = 7;

/// This file, for findings about the list.
const HERE: &str = "xtask/src/tidy/commits.rs";

/// Every record names a commit that led to the current one. So the sources that were tried can be
/// looked up. Finds nothing in a clone without the whole history.
pub(super) fn the_commits_of_records_are_in_the_history(repository: &Repository) -> Vec<Finding> {
    history().map_or_else(Vec::new, |history| judge(repository, &history, &REWRITTEN))
}

/// All commits that led to the current one, one a line. `None` if git does not know them all.
fn history() -> Option<String> {
    let git = |args: &[&str]| {
        step::output(Command::new("git").args(args).current_dir(crate::root())).ok()
    };
    let is_shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    if is_shallow.trim() == "false" { git(&["rev-list", "HEAD"]) } else { None }
}

fn judge(repository: &Repository, history: &str, rewritten: &[&str]) -> Vec<Finding> {
    let is_record = |path: &str| {
        path.ends_with(".json") && RECORDS.iter().any(|directory| path.starts_with(directory))
    };
    let records = repository.files().iter().filter(|file| is_record(&file.path));
    let named: Vec<_> = records
        .flat_map(|file| named(&file.text).map(move |(line, commit)| (&*file.path, line, commit)))
        .collect();
    let is_there = |commit: &str| {
        commit.len() >= COMMIT_MIN && history.lines().any(|line| line.starts_with(commit))
    };
    // A history that has none of them was imported as a whole, so it proves nothing.
    if !named.iter().any(|(_, _, commit)| is_there(commit)) {
        return Vec::new();
    }
    let lost = named.iter().filter(|(_, _, commit)| !is_there(commit));
    let mut findings: Vec<_> = lost
        .filter(|(_, _, commit)| !rewritten.contains(commit))
        .map(|(path, line, commit)| {
            let message = format!("`{commit}` is not in the history; repeat the run");
            Finding::new(path, *line, message)
        })
        .collect();
    let is_named = |commit: &str| named.iter().any(|(_, _, named)| *named == commit);
    for commit in rewritten.iter().filter(|commit| !is_named(commit)) {
        let message = format!("no record names `{commit}` any more; remove it from `REWRITTEN`");
        findings.push(Finding::new(HERE, 0, message));
    }
    findings
}

/// The commits that a record names, with the numbers of their lines. A mark for changes that were
/// not committed is left out.
fn named(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().zip(1..).flat_map(|(line, number)| {
        let rest = line.split("\"commit\":").skip(1);
        rest.filter_map(move |rest| {
            let (commit, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
            Some((number, commit.strip_suffix("-dirty").unwrap_or(commit)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY: &str = "aaaa1111cccc\nbbbb2222cccc\n";

    fn found(files: &[(&str, &str)], rewritten: &[&str]) -> Vec<String> {
        let findings = judge(&Repository::of(files), HISTORY, rewritten);
        findings.iter().map(|it| format!("{}:{} {}", it.path, it.line, it.message)).collect()
    }

    #[test]
    fn a_record_whose_commit_is_not_in_the_history_is_found() {
        let known = ("trust/a.json", "{\n \"commit\": \"aaaa1111\",\n \"minutes\": 3\n}\n");
        let dirty = ("trust/b.json", "{\"commit\":\"bbbb2222-dirty\"}");
        assert_eq!(found(&[known, dirty], &[]), [""; 0]);
        let lost = ("bench/records/c.json", "{\"a\": 1,\n\"commit\": \"dddd3333\"}");
        let pair = ("trust/d.json", "{\"commit\":\"aaaa1111\"},{\"commit\":\"eeee4444\"}");
        let page = ("docs/e.json", "{\"commit\": \"dddd3333\"}");
        assert_eq!(
            found(&[known, lost, pair, page], &[]),
            [
                "bench/records/c.json:2 `dddd3333` is not in the history; repeat the run",
                "trust/d.json:1 `eeee4444` is not in the history; repeat the run",
            ]
        );
    }

    #[test]
    fn a_record_with_a_part_of_a_commit_or_with_none_is_found() {
        let known = ("trust/a.json", "{\"commit\": \"aaaa1111\"}");
        let short = ("trust/b.json", "{\"commit\": \"bbbb22\"}");
        let empty = ("trust/c.json", "{\"commit\": \"\"}");
        let found = found(&[known, short, empty], &[]);
        assert!(
            found.len() == 2 && found.iter().all(|it| it.contains("repeat the run")),
            "{found:?}"
        );
    }

    #[test]
    fn a_commit_of_a_rewritten_history_is_excused_until_its_run_is_repeated() {
        let known = ("trust/a.json", "{\"commit\": \"aaaa1111\"}");
        let old = ("trust/b.json", "{\"commit\": \"dddd3333\"}");
        assert_eq!(found(&[known, old], &["dddd3333"]), [""; 0]);
        let stale = found(&[known], &["dddd3333"]);
        assert!(stale.len() == 1 && stale[0].contains("remove it"), "{stale:?}");
    }

    #[test]
    fn a_history_that_has_none_of_the_commits_proves_nothing() {
        assert_eq!(found(&[("trust/a.json", "{\"commit\": \"dddd3333\"}")], &[]), [""; 0]);
    }
}
