//! Small habits that reviews would otherwise repeat.

use super::Finding;
use super::repository::{LIBRARIES, Repository};
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

/// Merged code is finished.
pub(super) fn nothing_is_unfinished(repository: &Repository) -> Vec<Finding> {
    each_rust_file(repository, "", |source| {
        ["todo!", "unimplemented!", "dbg!"]
            .iter()
            .flat_map(|word| source.find(word).into_iter().map(move |(line, _)| (line, word)))
            .map(|(line, word)| (line, format!("`{word}` is left")))
            .collect()
    })
}

/// Tests wait for events, not for time. All tests run, and their names are sentences.
pub(super) fn tests_neither_sleep_nor_hide(repository: &Repository) -> Vec<Finding> {
    each_rust_file(repository, "", |source| {
        let mut found = Vec::new();
        for (line, in_test) in source.find("sleep(") {
            if in_test {
                found.push((line, "a test sleeps: wait for the event".to_owned()));
            }
        }
        for (line, _) in source.find("#[ignore") {
            found.push((line, "a test is ignored".to_owned()));
        }
        for function in source.functions() {
            if function.name.starts_with("test_") {
                let message = format!("`{}`: a test's name is a sentence", function.name);
                found.push((function.line, message));
            }
        }
        found
    })
}

/// Library code returns an error, or explains with `expect` why none can happen.
pub(super) fn library_code_does_not_unwrap(repository: &Repository) -> Vec<Finding> {
    let unwraps = |source: &Source| {
        let found = source.find(".unwrap()").into_iter().filter(|(_, in_test)| !in_test);
        found.map(|(line, _)| (line, "say why with `expect`, or return an error".into())).collect()
    };
    LIBRARIES.into_iter().flat_map(|library| each_rust_file(repository, library, unwraps)).collect()
}

/// Readers can look up every name: there are no globs except `use super::*` in tests.
pub(super) fn imports_name_what_they_import(repository: &Repository) -> Vec<Finding> {
    each_rust_file(repository, "", |source| {
        let globs = source.uses().into_iter().filter(|(_, _, path)| path.contains('*'));
        globs
            .filter(|(_, in_test, path)| !(*in_test && path == "super::*"))
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
    fn unfinished_code_is_found() {
        let text = "fn a() { todo!() }\n// todo!()\nfn b() { dbg!(1); unimplemented!() }";
        assert_finds(nothing_is_unfinished, &[("a.rs", text)], &["a.rs:1", "a.rs:3", "a.rs:3"]);
    }

    #[test]
    fn tests_that_sleep_hide_or_stutter_are_found() {
        let sleeping = "fn f() { sleep(1); }";
        assert_finds(
            tests_neither_sleep_nor_hide,
            &[
                ("crates/a/src/lib.rs", sleeping),
                ("crates/a/tests/b.rs", sleeping),
                ("crates/a/tests/c.rs", "#[test]\n#[ignore = \"slow\"]\nfn test_d() {}"),
                ("crates/a/tests/e.rs", "fn a_waiter_sleeps() {}"),
            ],
            &["crates/a/tests/b.rs:1", "crates/a/tests/c.rs:2", "crates/a/tests/c.rs:3"],
        );
    }

    #[test]
    fn unwraps_are_found_in_library_code_only() {
        let text =
            "fn a() { b.unwrap(); c.unwrap_or(d) }\n#[cfg(test)]\nmod t { fn e() { f.unwrap() } }";
        assert_finds(
            library_code_does_not_unwrap,
            &[("crates/leasehold/src/a.rs", text), ("crates/leasehold-cli/src/b.rs", text)],
            &["crates/leasehold/src/a.rs:1"],
        );
    }

    #[test]
    fn globs_are_found() {
        let text =
            "use a::*;\npub use b::{c::*, d};\n#[cfg(test)]\nmod t {\nuse super::*;\nuse e::*;\n}";
        assert_finds(
            imports_name_what_they_import,
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
