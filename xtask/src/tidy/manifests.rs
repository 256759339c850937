//! Rules that the manifests of all crates share.

use super::Finding;
use super::repository::{File, Repository};

const REASONS: &str = "CONTRIBUTING.md";
const WORKSPACE: &str = "Cargo.toml";

fn manifests(repository: &Repository) -> impl Iterator<Item = &File> {
    repository.files().iter().filter(|file| file.path.ends_with("/Cargo.toml"))
}

/// Every crate has `[lints]`: without it, no lint checks the crate.
pub(super) fn every_crate_takes_the_workspace_lints(repository: &Repository) -> Vec<Finding> {
    manifests(repository)
        .filter(|file| !file.text.contains("[lints]\nworkspace = true\n"))
        .map(|file| Finding::new(&file.path, 1, "lacks `[lints] workspace = true`"))
        .collect()
}

/// Every dependency is declared once, in the workspace. It is used, and has a reason in
/// CONTRIBUTING.md. Every reason there has its dependency.
pub(super) fn every_dependency_has_a_reason(repository: &Repository) -> Vec<Finding> {
    let text = |path| repository.file(path).map(|file| file.text.as_str()).unwrap_or_default();
    let declared: Vec<_> = dependencies(text(WORKSPACE))
        .into_iter()
        .filter(|dependency| !dependency.value.contains("path ="))
        .collect();
    let reasons = reasons(text(REASONS));
    let mut used = Vec::new();
    let mut findings = Vec::new();
    for file in manifests(repository) {
        for dependency in dependencies(&file.text) {
            if !dependency.value.contains("workspace = true") {
                let message = format!("`{}` is not taken from the workspace", dependency.name);
                findings.push(Finding::new(&file.path, dependency.line, message));
            }
            used.push(dependency.name);
        }
    }
    for dependency in &declared {
        let name = dependency.name;
        if !used.contains(&name) {
            let message = format!("`{name}` is used by no crate");
            findings.push(Finding::new(WORKSPACE, dependency.line, message));
        } else if !reasons.iter().any(|(_, reason)| *reason == name) {
            let message = format!("`{name}` has no row in {REASONS}: why is it here?");
            findings.push(Finding::new(WORKSPACE, dependency.line, message));
        }
    }
    for (line, name) in reasons {
        if !declared.iter().any(|dependency| dependency.name == name) {
            let message = format!("`{name}` is no dependency of the workspace");
            findings.push(Finding::new(REASONS, line, message));
        }
    }
    findings
}

struct Dependency<'a> {
    line: usize,
    name: &'a str,
    value: &'a str,
}

/// The entries of all `[…dependencies]` sections, one line each.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut inside = false;
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if inside && line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            let (name, value) = line.split_at(end);
            found.push(Dependency { line: index + 1, name, value });
        }
    }
    found
}

/// The first cells of the table below the heading `## Dependencies`: line and name.
fn reasons(text: &str) -> Vec<(usize, &str)> {
    text.lines()
        .enumerate()
        .skip_while(|(_, line)| *line != "## Dependencies")
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter_map(|(index, line)| Some((index + 1, line.strip_prefix("| `")?.split('`').next()?)))
        .collect()
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
        let workspace = "[workspace.dependencies]\nown = { path = \"x\" }\ngood = \"1\"\n\
                         bare = \"1\"\nunused = \"1\"\n[profile.dev]\nopt-level = 1\n";
        let member = "[dependencies]\nown.workspace = true\ngood = { workspace = true }\n\
                      [dev-dependencies]\nbare.workspace = true\nprivate = \"1\"\n";
        let reasons = "## Dependencies\n| `good` | why |\n| `gone` | why |\n## Next\n| `no` |";
        assert_finds(
            every_dependency_has_a_reason,
            &[
                ("Cargo.toml", workspace),
                ("CONTRIBUTING.md", reasons),
                ("crates/a/Cargo.toml", member),
            ],
            &["CONTRIBUTING.md:3", "Cargo.toml:4", "Cargo.toml:5", "crates/a/Cargo.toml:6"],
        );
    }
}
