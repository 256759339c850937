//! TRUST.md, BENCHMARKS.md, and the pages of rivals and of stores agree with the records, so nobody
//! edits a figure by hand.

use super::Finding;
use super::repository::Repository;
use crate::planted::{Bug, PLANTED};
use crate::{bench, trust};

/// Each page is the output of its command for the records.
pub(super) fn pages_are_what_the_records_say(repository: &Repository) -> Vec<Finding> {
    let read = |path: &str| repository.file(path).map(|file| file.text.clone());
    // Another rule reports patches that cannot be read.
    let planted = repository.files().iter().filter_map(|file| {
        let name = file.path.strip_prefix(PLANTED)?.strip_prefix('/')?.strip_suffix(".patch")?;
        Bug::named(name, &file.text).ok()
    });
    let bugs: Vec<Bug> = planted.collect();
    let of_one = |page: &str, text: Result<String, String>| (page.to_owned(), text);
    let mut pages = vec![
        of_one(trust::PAGE, trust::render(read, &bugs)),
        of_one(bench::PAGE, bench::render(read)),
        of_one(bench::CHOOSING, bench::render_choosing(read)),
    ];
    match bench::compared(read) {
        Ok(files) => pages.extend(files.into_iter().map(|(path, text)| (path, Ok(text)))),
        Err(complaint) => pages.push(of_one(bench::COMPARED, Err(complaint))),
    }
    let finding = |(page, expected): (String, Result<String, String>)| {
        let (line, complaint) = match expected {
            Ok(expected) => (differing_line(&read(&page).unwrap_or_default(), &expected)?, None),
            Err(complaint) => (0, Some(complaint)),
        };
        let command = if page == trust::PAGE { "trust" } else { "bench --render" };
        let stale = || format!("is not what the records say: run `cargo xtask {command}`");
        Some(Finding::new(&page, line, complaint.unwrap_or_else(stale)))
    };
    pages.into_iter().filter_map(finding).collect()
}

/// The first line at which two texts differ.
fn differing_line(is: &str, should: &str) -> Option<usize> {
    let is_same = |(is, should): &(&str, &str)| is == should;
    (is != should).then(|| is.lines().zip(should.lines()).take_while(is_same).count() + 1)
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    /// A page, its text without records, and a record that it is rendered from.
    type Page = (String, String, &'static str);

    fn pages() -> Vec<Page> {
        let rendered = |text: Result<String, String>| text.expect("rendered");
        let (compared, text) = bench::compared(|_| None).expect("rendered").swap_remove(0);
        vec![
            (trust::PAGE.into(), rendered(trust::render(|_| None, &[])), "trust/chaos.json"),
            (bench::PAGE.into(), rendered(bench::render(|_| None)), "bench/records/hot.json"),
            (
                bench::CHOOSING.into(),
                rendered(bench::render_choosing(|_| None)),
                "bench/records/engines.json",
            ),
            (compared, text, "bench/records/rivals.json"),
        ]
    }

    #[test]
    fn a_page_that_was_changed_by_hand_or_has_no_readable_record_is_found() {
        let pages = pages();
        let whole: Vec<(&str, &str)> = pages.iter().map(|it| (&*it.0, &*it.1)).collect();
        assert_finds(pages_are_what_the_records_say, &whole, &[]);
        for (at, (page, text, record)) in pages.iter().enumerate() {
            let mut files = whole.clone();
            let changed = with_a_word_in(text, 2);
            files[at].1 = &changed;
            let found = format!("{page}:2");
            assert_finds(pages_are_what_the_records_say, &files, &[&found]);
            let mut files = whole.clone();
            files.push((record, "{"));
            let findings = pages_are_what_the_records_say(&Repository::of(&files));
            let is_found = findings.iter().any(|it| it.path == *page && it.line == 0);
            assert!(is_found, "{record}: {findings:?}");
        }
    }

    /// The page as somebody left it who wrote a word into this line.
    fn with_a_word_in(page: &str, line: usize) -> String {
        let mut lines: Vec<String> = page.split('\n').map(String::from).collect();
        lines[line - 1].push_str(" really");
        lines.join("\n")
    }
}
