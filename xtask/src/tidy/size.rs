//! Limits on the length of lines and files. Clippy measures functions.

use super::Finding;
use super::repository::Repository;

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 500;
const README_LINES_MAX: usize = 150;

/// Checks the lengths of lines and files, without a list of exceptions. rustfmt leaves long texts
/// and comments alone.
pub(super) fn lines_and_files_are_short(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files() {
        let lines = file.text.lines().count();
        if file.path == "README.md" && lines > README_LINES_MAX {
            let message = format!("{lines} lines, at most {README_LINES_MAX}: it is a door");
            findings.push(Finding::new(&file.path, lines, message));
        }
        let is_code = ["rs", "lua", "sql"].iter().any(|extension| file.is(extension));
        if !is_code && !file.is("toml") {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !is_unbreakable(line) {
                let message = format!("{columns} columns, at most {COLUMNS_MAX}");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
        if is_code && lines > FILE_LINES_MAX {
            let message = format!("{lines} lines, at most {FILE_LINES_MAX}: it has two concepts");
            findings.push(Finding::new(&file.path, lines, message));
        }
    }
    findings
}

/// Rows of tables, addresses, and the description in a manifest, which Cargo wants on one line.
fn is_unbreakable(line: &str) -> bool {
    let prose = line.trim_start().trim_start_matches(['/', '!', '-', '#']).trim_start();
    prose.starts_with('|') || line.contains("://") || line.starts_with("description = ")
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_found_and_one_that_just_fits_is_not() {
        let file = |lines: usize| "\n".repeat(lines);
        assert_finds(
            lines_and_files_are_short,
            &[
                ("fits.rs", &"x".repeat(100)),
                ("broad.rs", &"ä".repeat(101)),
                ("address.rs", &format!("// https://{}", "x".repeat(100))),
                ("table.rs", &format!("//! | {}", "x".repeat(100))),
                ("prose.md", &"x".repeat(101)),
                ("short.rs", &file(500)),
                ("tall.lua", &file(501)),
                ("README.md", &file(151)),
                ("crates/leasehold/README.md", &file(151)),
            ],
            &["README.md:151", "broad.rs:1", "tall.lua:501"],
        );
    }
}
