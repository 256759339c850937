//! The places where code may name time, tasks and randomness.

use super::Finding;
use super::repository::{LIBRARIES, LIBRARY, Repository};

/// Core contains only types and decisions: it takes time as an argument, and randomness as bytes.
pub(super) fn core_is_pure(repository: &Repository) -> Vec<Finding> {
    const BANNED: [&str; 8] =
        ["Instant", "SystemTime", "tokio", "rand", "getrandom", "async", "std::thread", "std::fs"];
    let mut findings = Vec::new();
    for (file, name, source) in repository.rust(LIBRARY) {
        if !name.starts_with("core/") {
            continue;
        }
        for banned in BANNED {
            for (line, _) in source.find(banned) {
                findings.push(Finding::new(&file.path, line, format!("core names `{banned}`")));
            }
        }
        for (line, in_test, path) in source.uses() {
            let head = path.split(':').next().unwrap_or_default();
            let is_local = head.starts_with(char::is_uppercase);
            // `core/mod.rs` and tests import from sibling files.
            let is_sibling = repository.file(&format!("{LIBRARY}core/{head}.rs")).is_some();
            let is_pure = matches!(head, "std" | "crate" | "super" | "self");
            if !is_pure && !is_sibling && (!is_local || !in_test) {
                let message = format!("core imports `{head}`; it stands on std alone");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// Production code of the libraries gets time, tasks and randomness only from `host.rs`, so that
/// the same code runs on virtual time.
pub(super) fn time_tasks_and_randomness_come_from_the_host(
    repository: &Repository,
) -> Vec<Finding> {
    const BANNED: [&str; 8] = [
        "tokio::spawn",
        "tokio::task",
        "tokio::time",
        "tokio::runtime",
        "Instant",
        "SystemTime",
        "thread::",
        "getrandom",
    ];
    let mut findings = Vec::new();
    let files = LIBRARIES.into_iter().flat_map(|library| repository.rust(library));
    for (file, _, source) in files {
        if file.path == format!("{LIBRARY}host.rs") {
            continue;
        }
        for banned in BANNED {
            for (line, in_test) in source.find(banned) {
                if !in_test {
                    let message = format!("`{banned}` is named in host.rs only");
                    findings.push(Finding::new(&file.path, line, message));
                }
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
    fn core_names_nothing_but_std_and_itself() {
        assert_finds(
            core_is_pure,
            &[
                ("crates/leasehold/src/core/key.rs", "use std::fmt;\nuse crate::core::ttl::Ttl;"),
                ("crates/leasehold/src/core/mod.rs", "pub use key::Key;\nuse serde::Serialize;"),
                ("crates/leasehold/src/core/ttl.rs", "// Instant\nuse std::time::Instant;"),
                ("crates/leasehold/src/core/line.rs", "async fn f() {\n tokio::x() }"),
                ("crates/leasehold/src/store/mod.rs", "use serde::Serialize;"),
            ],
            &[
                "crates/leasehold/src/core/line.rs:1",
                "crates/leasehold/src/core/line.rs:2",
                "crates/leasehold/src/core/mod.rs:2",
                "crates/leasehold/src/core/ttl.rs:2",
            ],
        );
    }

    #[test]
    fn only_the_host_and_tests_name_clocks_tasks_and_threads() {
        let naming =
            "fn f() { tokio::spawn(x); std::thread::yield_now() }\nuse std::time::Instant;";
        assert_finds(
            time_tasks_and_randomness_come_from_the_host,
            &[
                ("crates/leasehold/src/host.rs", naming),
                ("crates/leasehold/src/client.rs", naming),
                (
                    "crates/leasehold/src/guard.rs",
                    "#[cfg(test)]\nmod t { use std::thread::Thread; }",
                ),
                ("crates/leasehold/src/lease.rs", "thread_local! {}"),
                ("crates/leasehold-cli/src/main.rs", naming),
                ("crates/leasehold-compat/src/host.rs", naming),
            ],
            &[
                "crates/leasehold-compat/src/host.rs:1",
                "crates/leasehold-compat/src/host.rs:1",
                "crates/leasehold-compat/src/host.rs:2",
                "crates/leasehold/src/client.rs:1",
                "crates/leasehold/src/client.rs:1",
                "crates/leasehold/src/client.rs:2",
            ],
        );
    }
}
