//! One planted bug: a patch, with the information in its name and its header.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::step;

/// The directory of the patches.
pub(crate) const PLANTED: &str = "crates/leasehold-testkit/planted";

/// The first word of a patch's name if a test must catch the bug.
const TEST: &str = "test";

/// The invariant or the test that must catch a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Catcher {
    /// An invariant of the checker, in the simulation.
    Invariant(String),
    /// One test: `cargo test -p PACKAGE PATH -- --exact` runs it.
    Test { package: String, path: String },
}

impl Catcher {
    /// Reads the text after `Caught by: `, if the name of the file begins with `kind`.
    fn read(kind: &str, text: &str) -> Result<Self, &'static str> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            [TEST, package, path] if kind == TEST => {
                Ok(Self::Test { package: (*package).to_owned(), path: (*path).to_owned() })
            }
            [..] if kind == TEST => Err("it does not say `Caught by: test PACKAGE TEST_PATH`"),
            [invariant] if *invariant == kind => Ok(Self::Invariant(kind.to_owned())),
            _ => Err("its name and its header name different invariants"),
        }
    }
}

/// One planted bug.
#[derive(Debug)]
pub(crate) struct Bug {
    /// The name of its file: the invariant or `test`, two dashes, and what is wrong.
    pub(crate) name: String,
    /// The check that must catch it.
    pub(crate) catcher: Catcher,
    /// The defect: the first paragraph of the header.
    pub(crate) wrong: String,
    /// The project in which the defect was seen, if any.
    pub(crate) seen_in: Option<String>,
    /// A digest of the change. It stays the same if the change moves to another place of its file.
    pub(crate) digest: String,
}

/// A digest of the lines that a patch removes and adds, and of the names of their files.
fn digest_of(diff: &str) -> String {
    let changed = diff.lines().filter(|line| line.starts_with(['-', '+']));
    let hash = changed.fold(Sha256::new(), |hash, line| hash.chain_update(line).chain_update("\n"));
    hash.finalize().iter().take(6).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Bug {
    /// Reads the bug in the file of that name.
    pub(crate) fn named(name: &str, text: &str) -> Result<Self, String> {
        let complaint = |what: &str| format!("{PLANTED}/{name}.patch: {what}");
        let (kind, _) = name
            .split_once("--")
            .ok_or_else(|| complaint("it is not called INVARIANT--WHAT or test--WHAT"))?;
        let (header, diff) =
            text.split_once("--- a/").ok_or_else(|| complaint("there is no diff in it"))?;
        let paragraphs: Vec<String> = header
            .split("\n\n")
            .map(|paragraph| paragraph.lines().collect::<Vec<_>>().join(" "))
            .filter(|paragraph| !paragraph.is_empty())
            .collect();
        let [wrong, about @ ..] = paragraphs.as_slice() else {
            return Err(complaint("it does not say what is wrong"));
        };
        let last = about.last().map_or("", |last| last);
        let (seen_in, caught_by) = last
            .split_once("Caught by: ")
            .ok_or_else(|| complaint("it does not say `Caught by: INVARIANT`"))?;
        let catcher = Catcher::read(kind, caught_by).map_err(complaint)?;
        let seen_in = seen_in.trim().strip_prefix("Seen in: ").map(str::to_owned);
        Ok(Self {
            name: name.to_owned(),
            catcher,
            wrong: wrong.clone(),
            seen_in,
            digest: digest_of(diff),
        })
    }

    /// Reads all bugs below `root`, sorted by name.
    pub(crate) fn read_all(root: &Path) -> Result<Vec<Self>, String> {
        let directory = root.join(PLANTED);
        let complaint =
            |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
        let mut bugs = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(complaint)? {
            let path = entry.map_err(complaint)?.path();
            if path.extension().is_some_and(|extension| extension == "patch") {
                let text = std::fs::read_to_string(&path).map_err(complaint)?;
                let name = path.file_stem().expect("it has an extension").to_string_lossy();
                bugs.push(Self::named(&name, &text)?);
            }
        }
        bugs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bugs)
    }

    /// Runs `git apply` with `flags` on its patch, in the repository at `root`.
    pub(crate) fn apply(&self, root: &Path, flags: &[&str]) -> Result<(), String> {
        let patch = format!("{PLANTED}/{}.patch", self.name);
        let mut git = Command::new("git");
        git.arg("apply").args(flags).arg(&patch).current_dir(root);
        let applied = step::output(&mut git).map(drop);
        applied.map_err(|error| format!("{patch} does not apply any more: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/x.rs\n+++ b/x.rs\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn a_bug_says_what_is_wrong_and_where_it_was_seen() {
        let text = format!("It is\nwrong.\n\nSeen in: some lock\n1.0\nCaught by: a-rule\n\n{DIFF}");
        let bug = Bug::named("a-rule--what", &text).expect("a bug");
        assert_eq!(bug.catcher, Catcher::Invariant("a-rule".to_owned()));
        assert_eq!(bug.wrong, "It is wrong.");
        assert_eq!(bug.seen_in.as_deref(), Some("some lock 1.0"));
    }

    #[test]
    fn a_bug_may_name_a_test_that_must_catch_it() {
        let text = format!("Wrong.\n\nCaught by: test leasehold\ncore::ttl::tests::a\n\n{DIFF}");
        let bug = Bug::named("test--what", &text).expect("a bug");
        let (package, path) = ("leasehold".to_owned(), "core::ttl::tests::a".to_owned());
        assert_eq!(bug.catcher, Catcher::Test { package, path });
    }

    #[test]
    fn a_digest_changes_with_the_change_and_not_with_its_place() {
        let digest = |diff: &str| {
            let text = format!("Wrong.\n\nCaught by: a-rule\n\n{diff}");
            Bug::named("a-rule--what", &text).expect("a bug").digest
        };
        let moved = DIFF.replace("@@ -1 +1 @@", "@@ -7,2 +9,2 @@ fn f()\n context");
        assert_eq!(digest(DIFF), digest(&moved));
        for other in [DIFF.replace("+b", "+c"), DIFF.replace("-a\n", ""), DIFF.replace("x.rs", "y")]
        {
            assert_ne!(digest(DIFF), digest(&other), "{other}");
        }
    }

    #[test]
    fn a_bug_that_nothing_must_catch_is_refused() {
        let table = [
            ("a-rule", "Wrong.\n\nCaught by: a-rule\n\n"),
            ("a-rule--x", ""),
            ("a-rule--x", "Wrong.\n\n"),
            ("a-rule--x", "Wrong.\n\nCaught by: another\n\n"),
            ("a-rule--x", "Wrong.\n\nCaught by: test leasehold a\n\n"),
            ("test--x", "Wrong.\n\nCaught by: a-rule\n\n"),
            ("test--x", "Wrong.\n\nCaught by: test leasehold\n\n"),
        ];
        for (name, header) in table {
            let refused = Bug::named(name, &format!("{header}{DIFF}"));
            assert!(refused.is_err(), "{name} {header:?}");
        }
    }
}
