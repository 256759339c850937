//! Names that code must not use in some places.

use super::Finding;
use super::repository::{LIBRARY, Repository, words};

/// Names that are banned in some places.
struct Ban {
    /// Whether the ban covers a path, in production code or in tests.
    covers: fn(path: &str, in_test: bool) -> bool,
    names: &'static [&'static str],
    why: &'static str,
}

const BANS: [Ban; 4] = [
    Ban {
        covers: |path, _| path.starts_with(CORE),
        names: &[
            "Instant",
            "SystemTime",
            "tokio",
            "rand",
            "getrandom",
            "async",
            "std::thread",
            "std::fs",
        ],
        why: "core takes time as an argument, and randomness as bytes",
    },
    Ban {
        covers: |path, in_test| !in_test && path != HOST && is_library(path),
        names: &[
            "tokio::spawn",
            "tokio::task",
            "tokio::time",
            "tokio::runtime",
            "Instant",
            "SystemTime",
            "thread::",
            "getrandom",
        ],
        why: "it comes from host.rs alone, so that the same code runs on virtual time",
    },
    Ban {
        covers: |_, in_test| in_test,
        names: &["sleep("],
        why: "a test waits for the event, not for time",
    },
    // Clippy finds the globs in imports that are not public.
    Ban {
        covers: |_, in_test| !in_test,
        names: &["::*;", "::*,", "{*,"],
        why: "a glob hides where names come from",
    },
];

const CORE: &str = "crates/leasehold/src/core/";
const HOST: &str = "crates/leasehold/src/host.rs";

/// Whether users add this code to their programs.
fn is_library(path: &str) -> bool {
    path.starts_with(LIBRARY) || path.starts_with("crates/leasehold-compat/src/")
}

/// Code uses the names that its place allows.
pub(super) fn names_are_used_where_they_belong(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, path) in repository.rust("") {
        for line in file.lines() {
            let bans = BANS.iter().filter(|ban| (ban.covers)(path, line.in_test));
            for (ban, name) in bans.flat_map(|ban| ban.names.iter().map(move |name| (ban, name))) {
                for _ in words(&line.code, name) {
                    findings.push(Finding::new(
                        path,
                        line.number,
                        format!("`{name}`: {}", ban.why),
                    ));
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
    fn only_the_host_and_tests_name_clocks_tasks_and_threads() {
        let naming =
            "fn f() { tokio::spawn(x); std::thread::yield_now() }\nuse std::time::Instant;";
        assert_finds(
            names_are_used_where_they_belong,
            &[
                ("crates/leasehold/src/core/line.rs", "async fn f() {\n // tokio\n tokio::x()\n}"),
                ("crates/leasehold/src/host.rs", naming),
                ("crates/leasehold/src/client.rs", naming),
                (
                    "crates/leasehold/src/guard.rs",
                    "#[cfg(test)]\nmod t {\n    use std::thread::Thread;\n}",
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
                "crates/leasehold/src/core/line.rs:1",
                "crates/leasehold/src/core/line.rs:3",
            ],
        );
    }

    #[test]
    fn sleeping_tests_and_public_globs_are_found() {
        assert_finds(
            names_are_used_where_they_belong,
            &[
                ("crates/a/src/lib.rs", "fn f() { sleep(1); }\npub use b::*;\n"),
                ("crates/a/tests/b.rs", "use super::*;\nfn f() { sleep(1); }"),
                ("crates/a/tests/e.rs", "fn a_waiter_sleeps() {}"),
            ],
            &["crates/a/src/lib.rs:2", "crates/a/tests/b.rs:2"],
        );
    }
}
