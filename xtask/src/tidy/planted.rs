//! The bugs that are planted for the simulation to find.

use super::Finding;
use super::repository::Repository;
use crate::invariants;
use crate::planted::{Bug, PLANTED};

/// Every planted bug says which invariant must catch it, and its patch still applies: sources that
/// move on take their planted bugs along.
pub(super) fn planted_bugs_still_apply(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files().iter().filter(|file| file.path.starts_with(PLANTED)) {
        let name = file.path[PLANTED.len()..].trim_start_matches('/');
        let Some(name) = name.strip_suffix(".patch") else {
            findings.push(Finding::new(&file.path, 0, "is no patch"));
            continue;
        };
        let read = |path: &str| repository.file(path).map(|file| file.text.clone());
        let bug = Bug::named(name, &file.text).and_then(|bug| {
            bug.changes(read)?;
            Ok(bug)
        });
        match bug {
            Err(complaint) => findings.push(Finding::new(&file.path, 0, complaint)),
            Ok(bug) if !invariants::is_known(&bug.invariant) => {
                let message = format!("`{}` is no invariant", bug.invariant);
                findings.push(Finding::new(&file.path, 0, message));
            }
            Ok(_) => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn patches_that_do_not_apply_or_name_no_invariant_are_found() {
        let patch = |invariant: &str, from: &str| {
            format!(
                "Wrong.\n\nCaught by: {invariant}\n\n--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n\
                 -{from}\n+fn b() {{}}\n"
            )
        };
        let place = |name: &str| format!("{PLANTED}/{name}");
        let [good, stale, strange, other] =
            ["no-overlap--a.patch", "no-overlap--b.patch", "no-rule--c.patch", "x.md"].map(place);
        assert_finds(
            planted_bugs_still_apply,
            &[
                ("x.rs", "fn a() {}\n"),
                (&good, &patch("no-overlap", "fn a() {}")),
                (&stale, &patch("no-overlap", "fn z() {}")),
                (&strange, &patch("no-rule", "fn a() {}")),
                (&other, ""),
            ],
            &[
                "crates/leasehold-testkit/planted/no-overlap--b.patch:0",
                "crates/leasehold-testkit/planted/no-rule--c.patch:0",
                "crates/leasehold-testkit/planted/x.md:0",
            ],
        );
    }
}
