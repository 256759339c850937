//! The tables and procedures of a store, and the migration that makes them.

use std::sync::Arc;

use super::connect::{Facts, MysqlConnector};
use super::link::Link;
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::sql::errors::Stage;
use crate::store::sql::{Engine as _, Migrated, Row, version_before};

/// The version of the tables and procedures that this build makes and uses.
pub(super) const VERSION: u32 = 1;

/// The tables of version 1, which later versions change.
const TABLES: &str = include_str!("sql/tables.sql");

/// The procedures. They are replaced by every migration.
const PROCEDURES: [&str; 8] = [
    include_str!("sql/holders.sql"),
    include_str!("sql/line.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/browse.sql"),
    include_str!("sql/clients.sql"),
];

/// Migrations of a database wait this many seconds for one another, and for a table or procedure
/// that is in use.
const WAIT: u32 = 30;

/// The statements of a file, without comments.
fn statements(file: &str) -> impl Iterator<Item = String> {
    file.split("\n//\n").filter_map(|statement| {
        let lines = statement.lines().filter(|line| !line.trim_start().starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join("\n");
        (!sql.trim().is_empty()).then_some(sql)
    })
}

/// The name of the procedure that a statement makes.
fn procedure(statement: &str) -> Option<&str> {
    let rest = statement.trim_start().strip_prefix("CREATE PROCEDURE ")?;
    rest.split('(').next()
}

/// The statements that make a procedure again. MySQL has no statement that replaces one.
fn remade(name: &str, statement: &str, is_mariadb: bool) -> Vec<String> {
    if is_mariadb {
        return vec![statement.replacen("CREATE ", "CREATE OR REPLACE ", 1)];
    }
    vec![format!("DROP PROCEDURE IF EXISTS {name}"), statement.to_owned()]
}

/// Makes the tables and procedures of a store in the database of the URL, or brings those of an
/// older version up to date.
///
/// Running it again changes nothing. Locks may be in use meanwhile. On MySQL, a procedure of an
/// older build is missing for a moment while it is replaced. A request then is `Unavailable`, and
/// waiters go on waiting. MariaDB replaces it in one statement. The user must be allowed to create
/// tables and procedures. Users of locks need less:
///
/// ```sql
/// GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON app.* TO app;
/// ```
///
/// # Errors
///
/// - [`Config`](ErrorKind::Config) for an invalid URL, a server before MySQL 8.0 or MariaDB 10.6,
///   or tables of a newer version.
/// - [`Denied`](ErrorKind::Denied) for a wrong password or a missing right.
/// - [`Unavailable`](ErrorKind::Unavailable) or [`Unknown`](ErrorKind::Unknown) if the server
///   cannot be reached, or does not answer in two minutes. Run it again: it continues where it
///   stopped.
///
/// # Cancel safety
///
/// Each statement is done as a whole or not at all. Clients do not use tables of a lower version,
/// but those of the same version stay in use, with procedures of two builds. Run it again.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::mysql::migrate;
///
/// let done = migrate("mysql://owner:secret@db/app", SystemHost::shared()).await?;
/// println!("{} has tables of version {}", done.store, done.version);
/// # Ok(()) }
/// ```
pub async fn migrate(url: &str, host: Arc<dyn Host>) -> Result<Migrated, Error> {
    let connector = MysqlConnector::new(url)?;
    host.start()?;
    let migrating = async {
        let link = connector.log_in_within_limit(&host).await?;
        let facts = Facts::read(&link).await?;
        facts.check()?;
        let before = version_before(connector.version(&link).await, VERSION)?;
        make(&link, facts.is_mariadb()).await?;
        Ok(before)
    };
    // On the heap, because it is large.
    Migrated::by(&host, (connector.label(), VERSION), Box::pin(migrating)).await
}

/// Makes what is missing. Each statement is committed by itself, and the version is written last.
async fn make(link: &Link, is_mariadb: bool) -> Result<(), Error> {
    let ask = async |sql: &str| link.ask(sql, Stage::Asking).await.map_err(unfinished);
    ask(&format!("SET SESSION lock_wait_timeout = {WAIT}")).await?;
    let locked = ask(&format!(
        "SELECT GET_LOCK(CONCAT('leasehold ', LEFT(SHA2(DATABASE(), 256), 40)), {WAIT})"
    ))
    .await?;
    if locked.first().and_then(|row| row.first()?.as_deref()) != Some("1") {
        let message = "another migration of this database goes on; nothing was changed; try again \
                       when it has ended";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    for statement in statements(TABLES) {
        ask(&statement).await?;
    }
    for statement in PROCEDURES.into_iter().flat_map(statements) {
        let name = procedure(&statement).expect("the files have nothing but procedures");
        let made = ask(&format!(
            "SELECT routine_definition FROM information_schema.routines \
             WHERE routine_schema = DATABASE() AND routine_name = '{name}'"
        ))
        .await?;
        if !is_as(&statement, &made) {
            for part in remade(name, &statement, is_mariadb) {
                ask(&part).await?;
            }
        }
    }
    ask(&format!("UPDATE leasehold_meta SET version = GREATEST(version, {VERSION})")).await?;
    Ok(())
}

/// Whether a procedure is as its statement makes it. The server keeps the text of its body.
fn is_as(statement: &str, made: &[Row]) -> bool {
    let body = made.first().and_then(|row| row.first()?.as_deref());
    body.is_some_and(|body| !body.is_empty() && statement.trim_end().ends_with(body.trim_end()))
}

/// The error for a statement that the server refused.
fn unfinished(refused: Error) -> Error {
    let message = match refused.kind() {
        ErrorKind::Denied => {
            "this user has no right to create the tables or procedures; the migration is not \
             finished; migrate as a user with `CREATE`, `CREATE ROUTINE` and `ALTER ROUTINE` on \
             the database"
        }
        ErrorKind::Unavailable => {
            "a table or procedure is in use, or the server refused a statement; the migration is \
             not finished; run it again: it continues where it stopped"
        }
        _ => return refused,
    };
    Error::new(refused.kind(), message).with_source(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_procedure_is_never_missing_while_mariadb_replaces_it() {
        let statement = "CREATE PROCEDURE leasehold_a(b BIGINT)\nBEGIN\nEND";
        let at_once = remade("leasehold_a", statement, true);
        assert_eq!(at_once, ["CREATE OR REPLACE PROCEDURE leasehold_a(b BIGINT)\nBEGIN\nEND"]);
        let by_two = remade("leasehold_a", statement, false);
        assert_eq!(by_two, ["DROP PROCEDURE IF EXISTS leasehold_a", statement]);
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
