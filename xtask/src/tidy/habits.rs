//! Small habits that reviews would otherwise repeat.

use super::Finding;
use super::repository::Repository;
use super::source::Source;

fn each_rust_file(
    repository: &Repository,
    prefix: &str,
    find: impl Fn(&Source) -> Vec<(usize, String)>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _, source) in repository.rust(prefix) {
        for (line, message) in find(source) {
            findings.push(Finding::new(&file.path, line, message));
        }
    }
    findings
}

/// Tests wait for events, not for time.
pub(super) fn tests_do_not_sleep(repository: &Repository) -> Vec<Finding> {
    each_rust_file(repository, "", |source| {
        let found = source.find("sleep(").into_iter().filter(|(_, in_test)| *in_test);
        found.map(|(line, _)| (line, "a test sleeps: wait for the event".to_owned())).collect()
    })
}

/// Readers can look up every name. Clippy finds the other globs, but lets public ones be.
pub(super) fn public_imports_name_what_they_import(repository: &Repository) -> Vec<Finding> {
    each_rust_file(repository, "", |source| {
        let uses = source.uses().into_iter().filter(|(_, _, path)| path.contains('*'));
        uses.filter(|(_, _, path)| path != "super::*")
            .map(|(line, _, path)| (line, format!("`use {path}` hides where names come from")))
            .collect()
    })
}

/// A script's header names its arguments and its replies.
pub(super) fn scripts_have_headers(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files().iter().filter(|file| file.is("lua")) {
        let header: String = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        for part in ["KEYS", "ARGV", "repl"] {
            if !header.contains(part) {
                let message = format!("the header does not say `{part}`");
                findings.push(Finding::new(&file.path, 1, message));
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
    fn tests_that_sleep_are_found() {
        let sleeping = "fn f() { sleep(1); }";
        assert_finds(
            tests_do_not_sleep,
            &[
                ("crates/a/src/lib.rs", sleeping),
                ("crates/a/tests/b.rs", sleeping),
                ("crates/a/tests/e.rs", "fn a_waiter_sleeps() {}"),
            ],
            &["crates/a/tests/b.rs:1"],
        );
    }

    #[test]
    fn globs_are_found() {
        let text =
            "use a::*;\npub use b::{c::*, d};\n#[cfg(test)]\nmod t {\nuse super::*;\nuse e::*;\n}";
        assert_finds(
            public_imports_name_what_they_import,
            &[("a.rs", text)],
            &["a.rs:1", "a.rs:2", "a.rs:6"],
        );
    }

    #[test]
    fn scripts_without_a_header_are_found() {
        assert_finds(
            scripts_have_headers,
            &[
                (
                    "a.lua",
                    "-- a.lua: does it.\n-- KEYS[1] lock  ARGV[1] owner  reply: 1 | 0\nreturn 1",
                ),
                ("b.lua", "return KEYS[1] -- ARGV, reply"),
            ],
            &["b.lua:1", "b.lua:1", "b.lua:1"],
        );
    }
}
