//! The codemap in ARCHITECTURE.md is complete, and everything in it exists.

use super::Finding;
use super::repository::{LIBRARY, Repository, first_cells};

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Codemap";

/// Every file of the library has exactly one row in the codemap, and every row has a file.
pub(super) fn every_source_file_is_in_the_codemap(repository: &Repository) -> Vec<Finding> {
    let Some(document) = repository.file(DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 0, "is missing")];
    };
    let listed = first_cells(&document.text, HEADING);
    let mut findings = Vec::new();
    for (at, (line, name)) in listed.iter().enumerate() {
        if listed[..at].iter().any(|(_, earlier)| earlier == name) {
            findings.push(Finding::new(DOCUMENT, *line, format!("`{name}` is listed twice")));
        }
        let exists = repository.files().iter().any(|file| {
            let path = file.path.strip_prefix(LIBRARY).unwrap_or(&file.path);
            path == *name || (name.ends_with('/') && path.starts_with(name))
        });
        if !exists {
            findings.push(Finding::new(DOCUMENT, *line, format!("`{name}` does not exist")));
        }
    }
    for file in repository.files() {
        let Some(name) = file.path.strip_prefix(LIBRARY) else { continue };
        if !listed.iter().any(|(_, listed)| *listed == name) {
            let says = file.text.lines().next().and_then(|line| line.strip_prefix("//! "));
            let row = format!("| `{name}` | {} |", says.unwrap_or("what it is"));
            let message = format!("is not in the codemap of {DOCUMENT}; add: {row}");
            findings.push(Finding::new(&file.path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    #[test]
    fn missing_doubled_and_superfluous_rows_are_found() {
        let map = "| `no.rs` |\n## Codemap\n| `core/key.rs` | names |\n| `gone.rs` | x |\n\
                   | `xtask/` | y |\n| `nothing/` | z |\n| `core/key.rs` | w |\n## Next\n| `no.rs` |";
        assert_finds(
            every_source_file_is_in_the_codemap,
            &[
                ("ARCHITECTURE.md", map),
                ("crates/leasehold/src/core/key.rs", ""),
                ("crates/leasehold/src/core/ttl.rs", ""),
                ("xtask/src/main.rs", ""),
            ],
            &[
                "ARCHITECTURE.md:4",
                "ARCHITECTURE.md:6",
                "ARCHITECTURE.md:7",
                "crates/leasehold/src/core/ttl.rs:1",
            ],
        );
        assert_finds(every_source_file_is_in_the_codemap, &[], &["ARCHITECTURE.md:0"]);
    }
}
