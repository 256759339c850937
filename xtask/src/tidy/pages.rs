//! TRUST.md, BENCHMARKS.md, and the pages of rivals and of stores agree with the records, so nobody
//! edits a figure by hand.

use super::Finding;
use super::repository::Repository;
use crate::planted::{Bug, PLANTED};
use crate::{bench, trust};

/// TRUST.md is the output of `cargo xtask trust` for the records.
pub(super) fn the_page_of_trust_is_what_the_records_say(repository: &Repository) -> Vec<Finding> {
    // Another rule reports patches that cannot be read.
    let planted = repository.files().iter().filter_map(|file| {
        let name = file.path.strip_prefix(PLANTED)?.strip_prefix('/')?.strip_suffix(".patch")?;
        Bug::named(name, &file.text).ok()
    });
    let bugs: Vec<Bug> = planted.collect();
    let expected = trust::render(|path| text(repository, path), &bugs);
    compare(repository, trust::PAGE, expected, "cargo xtask trust")
}

/// BENCHMARKS.md is the output of `cargo xtask bench --render` for the records.
pub(super) fn the_page_of_benchmarks_is_what_the_records_say(
    repository: &Repository,
) -> Vec<Finding> {
    let expected = bench::render(|path| text(repository, path));
    compare(repository, bench::PAGE, expected, "cargo xtask bench --render")
}

/// The page that helps to choose a store is the output of `cargo xtask bench --render`, too.
pub(super) fn the_page_of_stores_is_what_the_record_says(repository: &Repository) -> Vec<Finding> {
    let expected = bench::render_choosing(|path| text(repository, path));
    compare(repository, bench::CHOOSING, expected, "cargo xtask bench --render")
}

/// The page of rivals and its pictures are the output of `cargo xtask bench --render`, too.
pub(super) fn the_page_of_rivals_is_what_the_record_says(repository: &Repository) -> Vec<Finding> {
    match bench::compared(|path| text(repository, path)) {
        Err(complaint) => vec![Finding::new(bench::COMPARED, 0, complaint)],
        Ok(files) => {
            let compare = |(path, text): &(String, String)| {
                compare(repository, path, Ok(text.clone()), "cargo xtask bench --render")
            };
            files.iter().flat_map(compare).collect()
        }
    }
}

fn text(repository: &Repository, path: &str) -> Option<String> {
    repository.file(path).map(|file| file.text.clone())
}

fn compare(
    repository: &Repository,
    page: &str,
    expected: Result<String, String>,
    command: &str,
) -> Vec<Finding> {
    let expected = match expected {
        Ok(expected) => expected,
        Err(complaint) => return vec![Finding::new(page, 0, complaint)],
    };
    let is = text(repository, page).unwrap_or_default();
    if is == expected {
        return Vec::new();
    }
    let is_same = |(is, should): &(&str, &str)| is == should;
    let line = is.lines().zip(expected.lines()).take_while(is_same).count() + 1;
    vec![Finding::new(page, line, format!("is not what the records say: run `{command}`"))]
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn a_page_that_was_changed_by_hand_is_found() {
        let good = trust::render(|_| None, &[]).expect("rendered");
        let (rule, page) = (the_page_of_trust_is_what_the_records_say, trust::PAGE);
        assert_finds(rule, &[(page, &good)], &[]);
        assert_finds(rule, &[(page, &with_a_word_in(&good, 3))], &["TRUST.md:3"]);
        assert_finds(rule, &[], &["TRUST.md:1"]);
        assert_finds(rule, &[(page, &good), ("trust/chaos.json", "{")], &["TRUST.md:0"]);
    }

    #[test]
    fn a_figure_of_a_rival_that_was_changed_by_hand_is_found() {
        let rule = the_page_of_rivals_is_what_the_record_says;
        let good = bench::compared(|_| None).expect("rendered");
        let (page, text) = (&*good[0].0, &*good[0].1);
        assert_finds(rule, &[(page, text)], &[]);
        assert_finds(rule, &[(page, &with_a_word_in(text, 1))], &[&at(page, 1)]);
        let files = [(page, text), ("bench/records/rivals.json", "{")];
        assert_finds(rule, &files, &[&at(page, 0)]);
    }

    fn at(page: &str, line: usize) -> String {
        format!("{page}:{line}")
    }

    /// The page as somebody left it who wrote a word into this line. It holds for any wording of
    /// the page.
    fn with_a_word_in(page: &str, line: usize) -> String {
        let mut lines: Vec<String> = page.split('\n').map(String::from).collect();
        lines[line - 1].push_str(" really");
        lines.join("\n")
    }

    #[test]
    fn a_cost_of_a_store_that_was_changed_by_hand_is_found() {
        let rule = the_page_of_stores_is_what_the_record_says;
        let good = bench::render_choosing(|_| None).expect("rendered");
        assert_finds(rule, &[(bench::CHOOSING, &good)], &[]);
        let changed = with_a_word_in(&good, 5);
        assert_finds(rule, &[(bench::CHOOSING, &changed)], &[&at(bench::CHOOSING, 5)]);
    }

    #[test]
    fn a_benchmark_that_was_changed_by_hand_is_found() {
        let good = bench::render(|_| None).expect("rendered");
        let (rule, page) = (the_page_of_benchmarks_is_what_the_records_say, bench::PAGE);
        assert_finds(rule, &[(page, &good)], &[]);
        assert_finds(rule, &[(page, &with_a_word_in(&good, 3))], &["BENCHMARKS.md:3"]);
        let files = [(page, good.as_str()), ("bench/records/hot.json", "{")];
        assert_finds(rule, &files, &["BENCHMARKS.md:0"]);
    }
}
