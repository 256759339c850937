//! The faults that are covered, read from the table in GUARANTEES.md.

use std::sync::LazyLock;

const GUARANTEES: &str = include_str!("../../../../GUARANTEES.md");
const HEADING: &str = "## Which faults are covered";

/// The promises under a fault. Promises that are not named here hold under every fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// Windows never overlap.
    pub windows: bool,
    /// Leases stay, so windows lie inside them. This is promised wherever `windows` is, except at a
    /// strict server, which may lose leases but gives their keys to nobody else.
    pub leases: bool,
    /// Fencing tokens rise.
    pub fencing: bool,
}

static TABLE: LazyLock<Vec<(&str, Promised)>> =
    LazyLock::new(|| read(GUARANTEES).expect("GUARANTEES.md has a table of faults"));

/// The promises under faults of this kind; `None` if the table has no such row.
#[must_use]
pub fn promised(kind: &str) -> Option<Promised> {
    TABLE.iter().find(|(row, _)| *row == kind).map(|(_, promised)| *promised)
}

/// The kinds of faults, in the order of the table.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(kind, _)| *kind)
}

fn read(guarantees: &str) -> Result<Vec<(&str, Promised)>, String> {
    let (_, section) = guarantees.split_once(HEADING).ok_or("the heading is gone")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let header = cells(lines.next().ok_or("there is no table")?);
    if header.first() != Some(&"Fault") || header[2..] != COLUMNS {
        return Err(format!("other columns than expected: {header:?}"));
    }
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(read_row).collect()
}

/// The end of the names of faults at a strict server.
const STRICT: &str = "-strict";

const COLUMNS: [&str; 2] = ["Windows never overlap", "Fencing tokens rise"];

fn read_row(line: &str) -> Result<(&str, Promised), String> {
    let [kind, _, windows, fencing] = cells(line)[..] else {
        return Err(format!("not four cells: {line}"));
    };
    let kind = kind.strip_prefix('`').and_then(|kind| kind.strip_suffix('`'));
    let kind = kind.ok_or_else(|| format!("a kind without backticks: {line}"))?;
    let yes = |cell| match cell {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("neither yes nor no: {line}")),
    };
    let (windows, fencing) = (yes(windows)?, yes(fencing)?);
    Ok((kind, Promised { windows, leases: windows && !kind.ends_with(STRICT), fencing }))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_reads() {
        let rows = GUARANTEES.split(HEADING).nth(1).expect("the section");
        let rows = rows.split("\n## ").next().expect("its end").lines();
        let written = rows.filter(|line| line.starts_with("| `")).count();
        assert_eq!(kinds().count(), written);
        assert!(written >= 26, "{written} rows");
    }

    #[test]
    fn the_columns_are_what_they_say() {
        let promised = |kind| promised(kind).expect("a row");
        let (windows, leases, fencing) = (true, true, true);
        assert_eq!(promised("delay"), Promised { windows, leases, fencing });
        let strict = Promised { windows, leases: false, fencing };
        assert_eq!(promised("restart-empty-strict"), strict);
        let (windows, leases) = (false, false);
        assert_eq!(promised("restart-empty"), Promised { windows, leases, fencing });
        assert_eq!(super::promised("restart"), None);
    }

    #[test]
    fn a_table_that_does_not_read_is_an_error() {
        let table = |header: &str, row: &str| {
            format!("{HEADING}\n\n| Fault | What | {header} |\n|---|---|---|---|\n{row}\n\n## Next")
        };
        let header = "Windows never overlap | Fencing tokens rise";
        assert_eq!(read(&table(header, "| `a` | b | yes | no |")).map(|rows| rows.len()), Ok(1));
        for (header, row) in [
            (header, "| `a` | b | yes | maybe |"),
            (header, "| `a` | b | yes |"),
            (header, "| a | b | yes | no |"),
            ("Fencing tokens rise | Windows never overlap", "| `a` | b | yes | no |"),
        ] {
            assert!(read(&table(header, row)).is_err(), "{header}: {row}");
        }
        assert!(read("nothing").is_err());
    }
}
