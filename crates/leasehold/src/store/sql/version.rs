//! Versions: which tables and functions a database has, and which builds may use them.
//!
//! A migration writes two numbers into the database: the version of its tables and functions, and
//! the oldest build that they serve. Every client reads both when it connects.
//!
//! | the database | a client of this build | a migration by this build |
//! |---|---|---|
//! | has no tables, or a first migration was cut off | is refused: migrate | makes them |
//! | is older than this build needs | is refused: migrate | brings it up to date |
//! | is older, but not too old | works | brings it up to date |
//! | is of the version of this build | works | renews the functions |
//! | is newer, and serves this build | works | is refused: nothing is to be done |
//! | is newer, and does not serve this build | is refused: use a newer build | is refused |
//! | has half a newer migration that does not serve this build | is refused | is refused |

use super::errors::MIGRATE;
use super::row::Row;
use crate::core::error::{Error, ErrorKind};

/// The versions of a build. A test of each engine fails if its functions change without them.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Build {
    /// The version of the tables and functions that this build makes.
    pub(in crate::store) version: u32,
    /// The oldest version of a database that this build can use.
    pub(in crate::store) needs: u32,
    /// The oldest build that can use the tables and functions that this build makes.
    pub(in crate::store) serves: u32,
}

/// The versions that a database says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Found {
    /// The version of its tables and functions; 0 if the first migration did not end.
    pub(in crate::store) version: u32,
    /// The oldest build that they serve.
    serves: u32,
}

impl Found {
    /// Reads all columns of the table `meta`. The statement names none of them, because a database
    /// of version 1 lacks the last one.
    pub(in crate::store) fn read(rows: &[Row]) -> Self {
        let number = |at: usize| rows.first()?.get(at)?.as_deref()?.parse().ok();
        Self { version: number(1).unwrap_or(0), serves: number(5).unwrap_or(1) }
    }
}

impl Build {
    /// Refuses a client of this build if it cannot use a database.
    pub(in crate::store) fn check(self, found: Found) -> Result<(), Error> {
        let (Found { version, serves }, Self { version: ours, needs, .. }) = (found, self);
        let message = if version == 0 {
            format!(
                "the first migration of this database did not end; no request was sent; {MIGRATE}"
            )
        } else if version < needs {
            format!(
                "the tables are of version {version}, and this build needs {needs}; no request was \
                 sent; {MIGRATE}"
            )
        } else if serves > ours {
            format!(
                "the tables are of version {version}, which serves builds from version {serves} \
                 on, and this build has {ours}; no request was sent; use a newer build"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Config, message))
    }

    /// Refuses a migration by this build to a database that is newer, or that has half a migration
    /// by a newer build and does not serve this one any more. Newer functions may have written rows
    /// that those of this build do not understand.
    pub(super) fn check_before(self, found: Found) -> Result<(), Error> {
        let (Found { version, serves }, ours) = (found, self.version);
        let advice = match (version > ours, serves > ours) {
            (false, false) => return Ok(()),
            (false, true) => {
                "a newer build began a migration that did not end; run it again with that build"
            }
            (true, true) => "use a newer build",
            (true, false) => "leave them as they are, because they serve this build too",
        };
        let message = format!(
            "the tables are of version {version}, and this build makes {ours}; nothing was \
             changed; {advice}"
        );
        Err(Error::new(ErrorKind::Config, message))
    }
}

/// A number that changes with the statements of some files, but not with their comments.
#[cfg(test)]
pub(in crate::store) fn digest<'a>(files: impl IntoIterator<Item = &'a str>) -> u64 {
    let lines = files.into_iter().flat_map(str::lines).map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with("--"));
    // FNV-1a. A line ends with a character that no line has.
    let bytes = code.flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: Build = Build { version: 5, needs: 3, serves: 2 };

    #[test]
    fn a_client_uses_a_database_that_is_new_enough_and_serves_it() {
        for ((version, serves), refusal) in [
            ((0, 1), Some("did not end; no request was sent; run `leasehold migrate")),
            ((2, 1), Some("of version 2, and this build needs 3; no request was sent; run `lease")),
            ((3, 1), None),
            ((4, 4), None),
            ((5, 2), None),
            ((6, 5), None),
            (
                (6, 6),
                Some("builds from version 6 on, and this build has 5; no request was sent; u"),
            ),
            ((99, 99), Some("use a newer build")),
            // A migration to version 6 began, and did not end.
            ((4, 6), Some("use a newer build")),
        ] {
            let refused = BUILD.check(Found { version, serves }).err();
            let text = refused.as_ref().map(Error::to_string).unwrap_or_default();
            assert_eq!(refused.is_some(), refusal.is_some(), "{version} {serves}: {text}");
            assert!(text.contains(refusal.unwrap_or_default()), "{version} {serves}: {text}");
            assert!(refused.is_none_or(|error| error.kind() == ErrorKind::Config));
        }
    }

    #[test]
    fn a_migration_never_replaces_newer_functions() {
        for ((version, serves), refusal) in [
            ((0, 1), None),
            ((1, 1), None),
            ((5, 2), None),
            ((6, 2), Some("nothing was changed; leave them as they are")),
            ((6, 6), Some("nothing was changed; use a newer build")),
            // A migration to version 6 began, and did not end.
            ((4, 6), Some("nothing was changed; a newer build began")),
        ] {
            let refused = BUILD.check_before(Found { version, serves }).err();
            let text = refused.as_ref().map(Error::to_string).unwrap_or_default();
            assert_eq!(refused.is_some(), refusal.is_some(), "{version} {serves}: {text}");
            assert!(text.contains(refusal.unwrap_or_default()), "{version} {serves}: {text}");
        }
    }

    #[test]
    fn a_database_of_version_1_does_not_say_which_builds_it_serves() {
        let row =
            |columns: &[&str]| -> Row { columns.iter().map(|it| Some((*it).into())).collect() };
        for (rows, version, serves) in [
            (vec![row(&["t", "1", "0", "", "0"])], 1, 1),
            (vec![row(&["1", "7", "0", "a", "0", "4"])], 7, 4),
            (vec![row(&["t", "7", "0", "a", "0", "4", "something new"])], 7, 4),
            (vec![], 0, 1),
        ] {
            assert_eq!(Found::read(&rows), Found { version, serves }, "{rows:?}");
        }
    }

    /// `Found::read` counts the columns.
    #[test]
    fn the_columns_of_the_versions_have_the_same_place_on_all_engines() {
        let columns = ["one", "version", "counter_floor", "purge_after", "purge_due", "serves"];
        for tables in
            [include_str!("../postgres/sql/tables.sql"), include_str!("../mysql/sql/tables.sql")]
        {
            let (_, meta) = tables.split_once("meta (\n").expect("the table is there");
            let (meta, _) = meta.split_once("\n)").expect("it ends");
            let lines = meta.lines().map(str::trim).filter(|line| !line.starts_with("--"));
            let names: Vec<_> = lines.map(|line| line.split(' ').next().expect("a name")).collect();
            assert_eq!(names, columns);
        }
    }

    #[test]
    fn a_digest_changes_with_a_statement_and_not_with_a_comment() {
        let of = |file| digest([file]);
        assert_eq!(of("-- a\nSELECT 1;\n"), of("-- b\n  -- c\n\n  SELECT 1;\n"));
        assert_ne!(of("SELECT 1;\n"), of("SELECT 2;\n"));
        assert_ne!(of("SELECT\n1;\n"), of("SELECT1;\n"));
    }
}
