//! The licences, versions and sources of all dependencies.
//!
//! deny.toml says what is allowed. cargo-deny reads it if it is installed; these rules read the
//! same lists everywhere. Versions and sources come from the lock file, so they cover every
//! platform. Licences come from `cargo metadata`, so they cover only this platform.

use std::process::Command;

use serde_json::Value;

use super::Finding;
use super::license::is_allowed;
use super::repository::Repository;
use crate::step;

const POLICY: &str = "deny.toml";
const LOCK: &str = "Cargo.lock";

/// Checks all dependencies against deny.toml.
pub(super) fn licences_versions_and_sources_are_allowed(repository: &Repository) -> Vec<Finding> {
    let text = |path| repository.file(path).map(|file| file.text.as_str()).unwrap_or_default();
    let policy = Policy::read(text(POLICY));
    let mut findings = unallowed_versions(text(LOCK), &policy);
    match metadata() {
        Ok(metadata) => findings.extend(unallowed_licences(&metadata, &policy)),
        Err(complaint) => findings.push(Finding::new(LOCK, 1, complaint)),
    }
    findings
}

/// The dependency tree of this platform, according to the lock file.
fn metadata() -> Result<Value, String> {
    let rustc = step::output(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("`rustc -vV` names no host")?;
    let ask = |offline: &[&str]| {
        let metadata = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host];
        step::output(step::cargo().args(metadata).args(offline))
    };
    // After a build everything is here. Before one, cargo has to download.
    let text = ask(&["--offline"]).or_else(|_| ask(&[]))?;
    serde_json::from_str(&text).map_err(|error| format!("cannot read `cargo metadata`: {error}"))
}

/// The permissions in deny.toml.
struct Policy {
    licences: Vec<String>,
    /// `name@version` of crates that may appear in a second version.
    doubles: Vec<String>,
}

impl Policy {
    fn read(text: &str) -> Self {
        let list = |key: &str| {
            let start = text.find(&format!("\n{key} = ["));
            let list = start.and_then(|start| text[start..].split("\n]").next());
            list.unwrap_or_default().lines().skip(2).map(str::trim).collect::<Vec<_>>()
        };
        let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
        let entries = |key: &str| {
            let lines = list(key).into_iter().filter(|line| !line.starts_with('#'));
            lines.filter_map(quoted).collect()
        };
        Self { licences: entries("allow"), doubles: entries("skip") }
    }
}

struct Locked<'a> {
    line: usize,
    name: &'a str,
    version: &'a str,
    source: Option<&'a str>,
}

fn locked(lock: &str) -> Vec<Locked<'_>> {
    let mut packages: Vec<Locked<'_>> = Vec::new();
    for (index, line) in lock.lines().enumerate() {
        if line == "[[package]]" {
            packages.push(Locked { line: index + 1, name: "", version: "", source: None });
        }
        let (Some(package), Some((key, value))) = (packages.last_mut(), line.split_once(" = "))
        else {
            continue;
        };
        let value = value.trim_matches('"');
        match key {
            "name" => package.name = value,
            "version" => package.version = value,
            "source" => package.source = Some(value),
            _ => {}
        }
    }
    packages
}

fn unallowed_versions(lock: &str, policy: &Policy) -> Vec<Finding> {
    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
    let packages = locked(lock);
    let is_skipped = |package: &Locked<'_>| {
        policy.doubles.contains(&format!("{}@{}", package.name, package.version))
    };
    let mut findings = Vec::new();
    for package in &packages {
        let name = package.name;
        let is_double = packages.iter().any(|other| {
            other.name == name && other.version != package.version && !is_skipped(other)
        });
        if is_double && !is_skipped(package) {
            let message = format!("`{name}` is there twice, also as {}", package.version);
            findings.push(Finding::new(LOCK, package.line, message));
        }
        if package.source.is_some_and(|source| source != CRATES_IO) {
            let message = format!("`{name}` does not come from crates.io");
            findings.push(Finding::new(LOCK, package.line, message));
        }
    }
    for double in &policy.doubles {
        let is_there =
            |package: &Locked<'_>| format!("{}@{}", package.name, package.version) == *double;
        if !packages.iter().any(is_there) {
            findings.push(Finding::new(
                POLICY,
                1,
                format!("`{double}` is no longer there: unskip it"),
            ));
        }
    }
    findings
}

fn unallowed_licences(metadata: &Value, policy: &Policy) -> Vec<Finding> {
    let used: Vec<&Value> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|node| &node["id"])
        .collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut findings = Vec::new();
    let mut checked = 0;
    for package in packages.filter(|package| used.contains(&&package["id"])) {
        checked += 1;
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_allowed(licence, &policy.licences) {
            let name = package["name"].as_str().unwrap_or_default();
            let message = format!("`{name}` has the licence {licence:?}, which {POLICY} lacks");
            findings.push(Finding::new(LOCK, 1, message));
        }
    }
    if checked == 0 {
        findings.push(Finding::new(LOCK, 1, "`cargo metadata` named no package"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
[licenses]
allow = [
    # "GPL-3.0" is not
    "MIT",
]

[bans]
skip = [
    { crate = "syn@1.0.0", reason = "old macros" },
]
"#;

    fn package(name: &str, version: &str, source: &str) -> String {
        format!(
            "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{source}\"\n\n"
        )
    }

    #[test]
    fn the_policy_is_what_deny_toml_says() {
        let policy = Policy::read(DENY);
        assert_eq!(policy.licences, ["MIT"]);
        assert_eq!(policy.doubles, ["syn@1.0.0"]);
    }

    #[test]
    fn unknown_doubles_and_foreign_sources_are_found() {
        let here = "registry+https://github.com/rust-lang/crates.io-index";
        let messages = |lock: &str| -> Vec<String> {
            let findings = unallowed_versions(lock, &Policy::read(DENY));
            findings.into_iter().map(|finding| finding.message).collect()
        };
        let skipped = package("syn", "1.0.0", here) + &package("syn", "2.0.0", here);
        assert_eq!(messages(&skipped), Vec::<String>::new());
        let double = skipped.clone() + &package("syn", "3.0.0", here);
        assert_eq!(messages(&double).len(), 2, "both that are not skipped");
        let foreign = skipped + &package("own", "1.0.0", "git+https://example.org/own");
        assert_eq!(messages(&foreign), ["`own` does not come from crates.io"]);
        assert_eq!(messages(""), ["`syn@1.0.0` is no longer there: unskip it"]);
    }

    #[test]
    fn licences_that_are_not_allowed_are_found_where_the_crate_is_used() {
        let metadata = serde_json::json!({
            "packages": [
                { "id": "1", "name": "good", "license": "MIT OR GPL-3.0" },
                { "id": "2", "name": "bad", "license": "GPL-3.0" },
                { "id": "3", "name": "none", "license": null },
                { "id": "4", "name": "elsewhere", "license": "GPL-3.0" },
            ],
            "resolve": { "nodes": [{ "id": "1" }, { "id": "2" }, { "id": "3" }] },
        });
        let findings = unallowed_licences(&metadata, &Policy::read(DENY));
        let messages: Vec<_> = findings.iter().map(|finding| &finding.message).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].starts_with("`bad`"));
        assert!(messages[1].starts_with("`none`"));
        assert_eq!(unallowed_licences(&Value::Null, &Policy::read(DENY)).len(), 1);
    }
}
