//! The tables and procedures of a store, as statements.

use crate::store::sql::version::Build;

/// The versions of this build.
///
/// - 1: the first one. Its builds refuse every other version when they connect.
/// - 2: a renewal says whether it waits for its row, so the procedure has one argument more.
/// - 3: renewals go as a list, to a procedure that older databases lack.
pub(super) const BUILD: Build = Build { version: 3, needs: 3, serves: 2 };

/// The tables. The migration adds to those of an older version what they lack.
pub(super) const TABLES: &str = include_str!("sql/tables.sql");

/// The procedures. They are replaced by every migration.
pub(super) const PROCEDURES: [&str; 8] = [
    include_str!("sql/holders.sql"),
    include_str!("sql/line.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/browse.sql"),
    include_str!("sql/clients.sql"),
];

/// The statements of a file, without comments.
pub(super) fn statements(file: &str) -> impl Iterator<Item = String> {
    file.split("\n//\n").filter_map(|statement| {
        let lines = statement.lines().filter(|line| !line.trim_start().starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join("\n");
        (!sql.trim().is_empty()).then_some(sql)
    })
}

/// The name of the procedure that a statement makes.
pub(super) fn procedure(statement: &str) -> Option<&str> {
    let rest = statement.trim_start().strip_prefix("CREATE PROCEDURE ")?;
    rest.split('(').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sql::version::digest;

    #[test]
    fn procedures_that_change_get_another_version() {
        let now = (BUILD.version, digest([TABLES].into_iter().chain(PROCEDURES)));
        let advice = "the procedures have changed: read `How the functions of a database change` \
                      in ARCHITECTURE.md, raise the version, and write both numbers here";
        assert_eq!(now, (3, 0xae39_02d4_5046_4b30), "{advice}");
    }

    /// No test runs on the oldest servers. MySQL lacks the first four words, and its oldest server
    /// lacks the others.
    #[test]
    fn statements_have_no_words_that_some_servers_lack() {
        for statement in PROCEDURES.into_iter().chain([TABLES]).flat_map(statements) {
            for word in
                ["RETURNING", "OR REPLACE", "NOWAIT", "NEXTVAL", " EXCEPT ", "INTERSECT", " AS new"]
            {
                assert!(!statement.contains(word), "{word}: {statement}");
            }
        }
    }

    #[test]
    fn each_statement_of_a_file_is_found() {
        let tables: Vec<_> = statements(TABLES).collect();
        assert_eq!(tables.len(), 7);
        assert!(tables.iter().all(|it| !it.contains("--")));
        let names: Vec<_> = PROCEDURES
            .into_iter()
            .flat_map(statements)
            .map(|it| procedure(&it).expect("a procedure").to_owned())
            .collect();
        for step in ["acquire", "renew", "release", "inspect", "list", "evict", "revoke", "resize"]
        {
            assert!(names.contains(&format!("leasehold_{step}")), "{step}");
        }
        assert!(names.contains(&"leasehold_purge".to_owned()));
        assert!(names.contains(&"leasehold_record".to_owned()));
    }
}
