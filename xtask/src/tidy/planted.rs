//! The bugs that are planted for the simulation and the tests.

use super::Finding;
use super::repository::{Repository, words};
use crate::invariants;
use crate::planted::{Bug, Catcher, PLANTED};

/// Every planted bug still applies. A change of the sources must update their planted bugs.
pub(super) fn planted_bugs_still_apply(_: &Repository) -> Vec<Finding> {
    let root = crate::root();
    let apply = |bug: Bug| bug.apply(&root, &["--check"]).err();
    match Bug::read_all(&root) {
        // Another rule reports patches that cannot be read.
        Err(_) => Vec::new(),
        Ok(bugs) => bugs
            .into_iter()
            .filter_map(apply)
            .map(|complaint| Finding::new(PLANTED, 0, complaint))
            .collect(),
    }
}

/// Every planted bug names an existing invariant or test.
pub(super) fn planted_bugs_name_what_catches_them(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files().iter().filter(|file| file.path.starts_with(PLANTED)) {
        let name = file.path[PLANTED.len()..].trim_start_matches('/');
        let complaint = match name.strip_suffix(".patch").map(|name| Bug::named(name, &file.text)) {
            None => Some("is not a patch".to_owned()),
            Some(Err(complaint)) => Some(complaint),
            Some(Ok(bug)) => complaint(repository, &bug.catcher),
        };
        findings.extend(complaint.map(|complaint| Finding::new(&file.path, 0, complaint)));
    }
    findings
}

/// Checks that the catcher of a bug seems to exist. Only running the bug's trial shows whether the
/// test has exactly that path.
fn complaint(repository: &Repository, catcher: &Catcher) -> Option<String> {
    match catcher {
        Catcher::Invariant(name) if invariants::is_known(name) => None,
        Catcher::Invariant(name) => Some(format!("`{name}` is not an invariant")),
        Catcher::Test { package, path } => {
            let is_there = has_test(repository, package, path);
            (!is_there).then(|| format!("`{package}` has no test `{path}`"))
        }
    }
}

/// The suite for stores, whose cases become tests of other packages.
const SUITE: &str = "crates/leasehold-conformance/src/";

/// Whether a package, or the suite for stores, has the name of the test in its sources.
///
/// It cannot check more, since the shared suites turn the names of their cases into functions.
pub(super) fn has_test(repository: &Repository, package: &str, path: &str) -> bool {
    let name = path.rsplit("::").next().unwrap_or(path);
    let directories = [format!("crates/{package}/"), format!("{package}/"), SUITE.to_owned()];
    repository.files().iter().any(|file| {
        directories.iter().any(|directory| file.path.starts_with(directory))
            && file.is("rs")
            && words(&file.text, name).next().is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn patches_that_name_nothing_that_catches_them_are_found() {
        let patch = |invariant: &str| {
            format!("Wrong.\n\nCaught by: {invariant}\n\n--- a/x.rs\n+++ b/x.rs\n")
        };
        let place = |name: &str| format!("{PLANTED}/{name}");
        let [good, misnamed, strange, other] =
            ["no-overlap--a.patch", "no-overlap--b.patch", "no-rule--c.patch", "x.md"].map(place);
        let [tested, untested, homeless] =
            ["test--a.patch", "test--b.patch", "test--c.patch"].map(place);
        assert_finds(
            planted_bugs_name_what_catches_them,
            &[
                ("crates/p/tests/it.rs", "#[test]\nfn it_bites() {}\n"),
                (&tested, &patch("test p tests::it_bites")),
                (&untested, &patch("test p tests::it_bit")),
                (&homeless, &patch("test q tests::it_bites")),
                (&good, &patch("no-overlap")),
                (&misnamed, &patch("line-order")),
                (&strange, &patch("no-rule")),
                (&other, ""),
            ],
            &[
                "crates/leasehold-testkit/planted/no-overlap--b.patch:0",
                "crates/leasehold-testkit/planted/no-rule--c.patch:0",
                "crates/leasehold-testkit/planted/test--b.patch:0",
                "crates/leasehold-testkit/planted/test--c.patch:0",
                "crates/leasehold-testkit/planted/x.md:0",
            ],
        );
    }
}
