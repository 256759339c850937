//! The allowed imports between layers:
//! `core ← process ← host ← store ← session ← client, guard, lease, mutex`.

use super::Finding;
use super::repository::{LIBRARY, Repository};

/// The layers ("rooms") of the library, inner ones first. A layer may import itself and inner ones.
const ROOMS: [&str; 5] = ["core", "process", "host", "store", "session"];

/// Inner layers of the library do not import outer ones.
pub(super) fn imports_point_inwards(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, name, source) in repository.rust(LIBRARY) {
        let room = name.split(['/', '.']).next().unwrap_or_default();
        let Some(depth) = ROOMS.iter().position(|inner| *inner == room) else { continue };
        for (line, _, head) in source.heads("crate::") {
            if !ROOMS[..=depth].contains(&head.as_str()) {
                let message = format!("`{room}` must not know `crate::{head}`");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
        // In the main file of a layer, `super` is the root, which imports every layer.
        let is_top = name == format!("{room}.rs") || name == format!("{room}/mod.rs");
        for (line, in_test, head) in source.heads("super::") {
            if (is_top && !in_test) || head == "super" {
                let message = "leave a room through `crate::`, not through `super`";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// The command uses the library as every user does: by the names at its root, in `core`, and in the
/// contract, and not through the modules of `core`.
pub(super) fn the_command_uses_the_front_door(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _, source) in repository.rust("crates/leasehold-cli/src/") {
        for (line, in_test, head) in source.heads("leasehold::core::") {
            if !in_test && head.starts_with(char::is_lowercase) {
                let message = format!("the command reaches into `leasehold::core::{head}`");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
        for (line, _, path) in source.uses() {
            if path.starts_with("leasehold::{") && path.contains("core::") {
                let message = "import `leasehold::core` by itself, so that it can be checked";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
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
                    "use crate::Guard;\n#[cfg(test)]\nmod t { use super::*; }",
                ),
                ("crates/leasehold/src/client.rs", "use crate::{mutex, session};"),
            ],
            &[
                "crates/leasehold/src/core/key.rs:2",
                "crates/leasehold/src/session/driver.rs:1",
                "crates/leasehold/src/session/mod.rs:2",
                "crates/leasehold/src/store/memory.rs:2",
                "crates/leasehold/src/store/mod.rs:1",
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
