//! The record of the bugs that were tried. Each run adds to it, so that a run may try only a few
//! bugs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::Bug;

/// The schema of the record.
pub(crate) const SCHEMA: &str = "leasehold.trust.planted.v2";

/// The record in a file.
#[derive(Debug)]
pub(super) struct Kept {
    /// `None` if nothing is kept.
    path: Option<PathBuf>,
    /// The latest entry of each bug, by its name.
    entries: BTreeMap<String, Value>,
}

impl Kept {
    /// Reads the present content of the file. Drops the entries of bugs that are gone.
    pub(super) fn read(path: Option<&Path>, root: &Path) -> Result<Self, String> {
        let mut kept = Self { path: path.map(Path::to_owned), entries: BTreeMap::new() };
        let Some(path) = path.filter(|path| path.exists()) else { return Ok(kept) };
        let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
        let record: Value = serde_json::from_str(&text).map_err(|error| fail(&error))?;
        if record["schema"] != SCHEMA {
            return Err(fail(&format!("it is no {SCHEMA}")));
        }
        let bugs = Bug::read_all(root)?;
        let names = |entry: &&Value| bugs.iter().any(|bug| entry["patch"] == *bug.name);
        let entries = record["bugs"].as_array().into_iter().flatten().filter(names);
        kept.entries.extend(entries.map(|entry| (name_of(entry), entry.clone())));
        Ok(kept)
    }

    /// Adds the entry of a bug, and writes the file.
    pub(super) fn note(&mut self, entry: Value) -> Result<(), String> {
        self.entries.insert(name_of(&entry), entry);
        let Some(path) = &self.path else { return Ok(()) };
        let bugs: Vec<_> = self.entries.values().collect();
        let text = serde_json::to_string_pretty(&json!({ "schema": SCHEMA, "bugs": bugs }));
        let text = text.expect("a record is plain JSON") + "\n";
        std::fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

fn name_of(entry: &Value) -> String {
    entry["patch"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::bug::PLANTED;
    use super::*;

    #[test]
    fn a_run_adds_to_the_record_and_bugs_that_are_gone_leave_it() {
        let root = std::env::temp_dir().join(format!("xtask-kept-{}", std::process::id()));
        std::fs::create_dir_all(root.join(PLANTED)).expect("a folder");
        for name in ["x--a", "x--b"] {
            let text = "Wrong.\n\nCaught by: x\n\n--- a/x\n+++ b/x\n";
            std::fs::write(root.join(PLANTED).join(format!("{name}.patch")), text).expect("a file");
        }
        let path = root.join("record.json");
        let entry = |name: &str, commit: &str| json!({ "patch": name, "commit": commit });
        let mut first = Kept::read(Some(&path), &root).expect("there is none yet");
        for name in ["x--gone", "x--b", "x--a"] {
            first.note(entry(name, "1")).expect("written");
        }
        let mut second = Kept::read(Some(&path), &root).expect("read");
        second.note(entry("x--b", "2")).expect("written");
        let text = std::fs::read_to_string(&path).expect("written");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(record["bugs"], json!([entry("x--a", "1"), entry("x--b", "2")]));
        std::fs::write(&path, "{}").expect("a file");
        Kept::read(Some(&path), &root).expect_err("of another kind");
        std::fs::remove_dir_all(&root).expect("it is ours");
    }
}
