//! `cargo xtask tidy`: rules of this repository that neither clippy nor cargo-deny can check.
//!
//! The rules also run as the test `the_repository_is_tidy`, so that nobody can forget them. Each is
//! a function from the [`Repository`] to its findings, and has a test with a bad sample.

mod attacks;
mod codemap;
mod commits;
mod layers;
mod manifests;
mod names;
mod pages;
mod planted;
mod repository;
mod scripts;
mod size;

use std::fmt;

use repository::Repository;

type Rule = fn(&Repository) -> Vec<Finding>;

const RULES: &[Rule] = &[
    attacks::every_attack_names_tests_that_exist,
    codemap::every_source_file_is_in_the_codemap,
    commits::the_commits_of_records_are_in_the_history,
    layers::imports_point_inwards,
    layers::sqlite_lives_by_public_means,
    layers::the_command_uses_the_front_door,
    manifests::every_crate_takes_the_workspace_lints,
    manifests::every_dependency_has_a_reason,
    names::names_are_used_where_they_belong,
    pages::pages_are_what_the_records_say,
    planted::planted_bugs_name_what_catches_them,
    planted::planted_bugs_still_apply,
    scripts::scripts_have_headers,
    scripts::scripts_do_what_every_server_allows,
    size::lines_and_files_are_short,
];

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks the whole repository.
pub(crate) fn run() -> Result<(), String> {
    let repository = Repository::read(&crate::root())?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&repository)).collect();
    findings.sort();
    findings.dedup();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings")),
    }
}

/// Asserts the places that a rule finds: one `path:line` per finding, in order.
#[cfg(test)]
#[track_caller]
fn assert_finds(rule: Rule, files: &[(&str, &str)], expected: &[&str]) {
    let mut found = rule(&Repository::of(files));
    found.sort();
    let places: Vec<String> =
        found.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
    assert_eq!(places, expected, "{found:#?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        if let Err(complaint) = run() {
            panic!("{complaint}; see above, or run `cargo xtask tidy`");
        }
    }
}
