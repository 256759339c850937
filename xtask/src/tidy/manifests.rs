//! Rules that the manifests of all crates share.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Finding;
use super::repository::{Repository, first_cells};
use crate::step;

const REASONS: &str = "CONTRIBUTING.md";
const HEADING: &str = "## Dependencies";

/// Every crate has `[lints]`. Without this section, no lint checks the crate.
pub(super) fn every_crate_takes_the_workspace_lints(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.files().iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests
        .filter(|file| !file.text.contains("[lints]\nworkspace = true\n"))
        .map(|file| Finding::new(&file.path, 1, "lacks `[lints] workspace = true`"))
        .collect()
}

/// Every dependency has a reason in CONTRIBUTING.md, and every reason there has its dependency.
pub(super) fn every_dependency_has_a_reason(repository: &Repository) -> Vec<Finding> {
    let text = repository.file(REASONS).map(|file| file.text.as_str()).unwrap_or_default();
    match dependencies() {
        Ok(used) => compare(&used, &first_cells(text, HEADING)),
        Err(complaint) => vec![Finding::new("Cargo.toml", 0, complaint)],
    }
}

/// The crates that the workspace takes from elsewhere.
fn dependencies() -> Result<BTreeSet<String>, String> {
    let metadata = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata = step::output(step::cargo().args(metadata))?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| format!("cannot read `cargo metadata`: {error}"))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = list(&metadata["packages"]).into_iter();
    let all = packages.flat_map(|package| list(&package["dependencies"]));
    let foreign = all.filter(|dependency| !dependency["source"].is_null());
    Ok(foreign.filter_map(|dependency| Some(dependency["name"].as_str()?.to_owned())).collect())
}

fn compare(used: &BTreeSet<String>, reasons: &[(usize, &str)]) -> Vec<Finding> {
    let without_reason = used.iter().filter(|name| !reasons.iter().any(|(_, it)| it == name));
    let without_reason = without_reason.map(|name| {
        let message = format!("`{name}` has no row in {REASONS}: why is it here?");
        Finding::new("Cargo.toml", 0, message)
    });
    let superfluous = reasons.iter().filter(|(_, name)| !used.contains(*name));
    let superfluous = superfluous.map(|(line, name)| {
        Finding::new(REASONS, *line, format!("`{name}` is not a dependency of the workspace"))
    });
    without_reason.chain(superfluous).collect()
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn a_crate_without_lints_is_found() {
        assert_finds(
            every_crate_takes_the_workspace_lints,
            &[
                ("Cargo.toml", ""),
                ("crates/a/Cargo.toml", "[lints]\nworkspace = true\n"),
                ("crates/b/Cargo.toml", "[package]\n"),
            ],
            &["crates/b/Cargo.toml:1"],
        );
    }

    #[test]
    fn dependencies_and_reasons_that_miss_each_other_are_found() {
        let used = ["bare", "good"].map(str::to_owned).into();
        let text = "## Dependencies\n| `good` | why |\n| `gone` | why |\n## Next\n| `no` |";
        let found = compare(&used, &first_cells(text, HEADING));
        let places: Vec<_> = found.iter().map(|it| (it.path.as_str(), it.line)).collect();
        assert_eq!(places, [("Cargo.toml", 0), ("CONTRIBUTING.md", 3)]);
        assert!(dependencies().expect("cargo knows them").contains("serde_json"));
    }
}
