//! The allowed imports between layers:
//! `core ← unpoisoned ← process ← host ← store ← session ← client, guard, lease, mutex`.

use super::Finding;
use super::repository::{LIBRARY, Repository, words};

/// The layers of the library, inner ones first. A layer may import itself and inner ones.
const ROOMS: [&str; 6] = ["core", "unpoisoned", "process", "host", "store", "session"];

/// Inner layers of the library do not import outer ones.
pub(super) fn imports_point_inwards(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, name) in repository.rust(LIBRARY) {
        let room = name.split(['/', '.']).next().unwrap_or_default();
        let Some(depth) = ROOMS.iter().position(|inner| *inner == room) else { continue };
        // In the main file of a layer, `super` is the root, which imports every layer.
        let is_top = name == format!("{room}.rs") || name == format!("{room}/mod.rs");
        for line in file.lines() {
            let mut found = |message: String| {
                findings.push(Finding::new(&file.path, line.number, message));
            };
            for at in words(&line.code, "crate::") {
                let head = name_at(&line.code[at + "crate::".len()..]);
                if !ROOMS[..=depth].contains(&head) {
                    found(format!("`{room}` must not know `crate::{head}`"));
                }
            }
            let leaves = is_top && !line.in_test && words(&line.code, "super::").next().is_some();
            if leaves || line.code.contains("super::super") {
                found("leave a layer through `crate::`, not through `super`".to_owned());
            }
            if let (0, Some(path)) = (depth, imported(&line.code)) {
                let head = name_at(path);
                let is_sibling = repository.file(&format!("{LIBRARY}core/{head}.rs")).is_some();
                let is_local = line.in_test && head.starts_with(char::is_uppercase);
                if !is_sibling && !is_local && !["std", "crate", "super", "self"].contains(&head) {
                    found(format!("core imports `{head}`; it may use std alone"));
                }
            }
        }
    }
    findings
}

/// The parts of the library that the SQLite store may name: the public modules, and in `store` the
/// public names in lower case. The other public names of `store` begin with a capital. For all of
/// them, the compiler checks this in `crates/leasehold/tests/outside/`.
const PUBLIC_TO_STORES: [&str; 4] = ["core", "host", "process", "store"];
const OF_THE_CONTRACT: [&str; 4] = ["errors", "matches_pattern", "sqlite", "within"];

/// The SQLite store is written as a user would write a store. It takes only public names from the
/// library.
pub(super) fn sqlite_lives_by_public_means(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, name) in repository.rust(LIBRARY) {
        let Some(name) = name.strip_prefix("store/sqlite/") else { continue };
        // This file belongs to the doctor.
        if name == "examine.rs" {
            continue;
        }
        for line in file.lines().into_iter().filter(|line| !line.in_test) {
            let mut found = |path: &str| {
                let message = format!("the SQLite store uses only public items, and not `{path}`");
                findings.push(Finding::new(&file.path, line.number, message));
            };
            for at in words(&line.code, "crate::") {
                let path = &line.code[at + "crate::".len()..];
                let head = name_at(path);
                let of_store = path.strip_prefix("store::").map(name_at).unwrap_or_default();
                let is_module = of_store.starts_with(char::is_lowercase);
                if !PUBLIC_TO_STORES.contains(&head) {
                    found(&format!("crate::{head}"));
                } else if is_module && !OF_THE_CONTRACT.contains(&of_store) {
                    found(&format!("crate::store::{of_store}"));
                }
            }
            if name == "mod.rs" && words(&line.code, "super::").next().is_some() {
                found("super");
            }
        }
    }
    findings
}

/// The command uses the library as every user does: by the names at the library's root, in `core`
/// and in the contract, but not by the modules of `core`.
pub(super) fn the_command_uses_the_front_door(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _) in repository.rust("crates/leasehold-cli/src/") {
        for line in file.lines().into_iter().filter(|line| !line.in_test) {
            for at in words(&line.code, "core::") {
                let (before, after) = line.code.split_at(at);
                let name = &after["core::".len()..];
                if !before.ends_with("leasehold::") || !name.starts_with(char::is_uppercase) {
                    let message = "import names, one by one, as `leasehold::core::Name`";
                    findings.push(Finding::new(&file.path, line.number, message));
                }
            }
        }
    }
    findings
}

/// The path that a line imports.
fn imported(code: &str) -> Option<&str> {
    let (before, path) = code.split_once("use ")?;
    (before.trim().is_empty() || before.trim().starts_with("pub")).then_some(path)
}

fn name_at(path: &str) -> &str {
    path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn inner_rooms_know_nothing_of_outer_ones() {
        assert_finds(
            imports_point_inwards,
            &[
                (
                    "crates/leasehold/src/core/key.rs",
                    "use crate::core::ttl::Ttl;\nuse crate::host::Host;",
                ),
                (
                    "crates/leasehold/src/store/mod.rs",
                    "use crate::{core::key::Key, session::Session};",
                ),
                (
                    "crates/leasehold/src/store/memory.rs",
                    "use super::Store;\nuse super::super::client;",
                ),
                (
                    "crates/leasehold/src/session/mod.rs",
                    "use crate::store::Store;\nuse super::Client;",
                ),
                (
                    "crates/leasehold/src/session/driver.rs",
                    "use crate::Guard;\n#[cfg(test)]\nmod t {\n    use super::*;\n}",
                ),
                ("crates/leasehold/src/client.rs", "use crate::{mutex, session};"),
                ("crates/leasehold/src/core/mod.rs", "pub use key::Key;\nuse serde::Serialize;"),
            ],
            &[
                "crates/leasehold/src/core/key.rs:2",
                "crates/leasehold/src/core/mod.rs:2",
                "crates/leasehold/src/session/driver.rs:1",
                "crates/leasehold/src/session/mod.rs:2",
                "crates/leasehold/src/store/memory.rs:2",
                "crates/leasehold/src/store/mod.rs:1",
            ],
        );
    }

    #[test]
    fn a_store_that_takes_what_others_cannot_is_found() {
        assert_finds(
            sqlite_lives_by_public_means,
            &[
                (
                    "crates/leasehold/src/store/sqlite/mod.rs",
                    "use super::limit::within;\nuse crate::store::{Ask, within};",
                ),
                (
                    "crates/leasehold/src/store/sqlite/turn.rs",
                    "use crate::store::sinks::Sinks;\nuse crate::store::errors::line_is_full;\n\
                     use crate::identity::Identity;\nuse super::engine;",
                ),
                ("crates/leasehold/src/store/redis/mod.rs", "use crate::store::sinks::Sinks;"),
            ],
            &[
                "crates/leasehold/src/store/sqlite/mod.rs:1",
                "crates/leasehold/src/store/sqlite/turn.rs:1",
                "crates/leasehold/src/store/sqlite/turn.rs:3",
            ],
        );
    }

    #[test]
    fn the_command_stays_out_of_the_inner_rooms() {
        assert_finds(
            the_command_uses_the_front_door,
            &[
                ("crates/leasehold-cli/src/main.rs", "use leasehold::{Client, core::lease::Lost};"),
                ("crates/leasehold-cli/src/ls.rs", "use leasehold::core::{Moment, key::Key};"),
                ("crates/leasehold-cli/src/run.rs", "use leasehold::{Client, store::Evicted};"),
            ],
            &["crates/leasehold-cli/src/ls.rs:1", "crates/leasehold-cli/src/main.rs:1"],
        );
    }
}
