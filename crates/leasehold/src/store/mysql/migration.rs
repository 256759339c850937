//! The migration: it makes the tables and procedures of a store.

use std::sync::Arc;

use super::connect::{Facts, MysqlConnector};
use super::link::Link;
use super::schema::{BUILD, PROCEDURES, TABLES, procedure, statements};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::Said;
use crate::store::sql::errors::{Stage, said};
use crate::store::sql::version::Build;
use crate::store::sql::{Engine as _, Migrated, Row, version_before};

/// Migrations of a database wait this many seconds for one another, and for a procedure that is in
/// use.
const WAIT: u32 = 30;

/// How many seconds a migration waits for a table. Requests for locks queue behind it.
const TABLE_WAIT: u32 = 5;

/// Makes the tables and procedures of a store in the database of the URL, or brings those of an
/// older version up to date.
///
/// Running it again changes nothing. Locks may be in use meanwhile, and [`Migrated`] says which
/// builds may go on. On MySQL, a procedure of an older build is missing for a moment while it is
/// replaced. A request then is `Unavailable`, and waiters go on waiting. MariaDB replaces it in one
/// statement. The migration itself needs these rights:
///
/// ```sql
/// GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, CREATE ROUTINE, ALTER ROUTINE ON app.* TO owner;
/// ```
///
/// Users of locks need these:
///
/// ```sql
/// GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON app.* TO app;
/// ```
///
/// # Errors
///
/// - [`Config`](ErrorKind::Config) for an invalid URL, a server before MySQL 8.0 or MariaDB 10.6,
///   tables of a newer version, or half a migration by a newer build that does not serve this one.
/// - [`Denied`](ErrorKind::Denied) for a wrong password or a missing right.
/// - [`Unavailable`](ErrorKind::Unavailable) or [`Unknown`](ErrorKind::Unknown) if the server
///   cannot be reached, or does not answer in two minutes. Run it again: it continues where it
///   stopped.
///
/// # Cancel safety
///
/// Each statement is done as a whole or not at all. The version is written last. So after a
/// migration that was cut off, the database has the version of before, and procedures of both.
/// Clients that are connected go on. The builds that [`Migrated::serves`] leaves out cannot connect
/// any more, and the new build may have to wait for the end. So run it again.
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
        make(&connector, &link, facts.is_mariadb()).await
    };
    // On the heap, because it is large.
    Migrated::by(&host, (connector.label(), BUILD), Box::pin(migrating)).await
}

/// Makes what is missing. Returns the version before, if there was any. Each statement is committed
/// by itself.
async fn make(
    connector: &MysqlConnector,
    link: &Link,
    is_mariadb: bool,
) -> Result<Option<u32>, Error> {
    let ask = async |sql: &str| link.ask(sql, Stage::Migrating).await.map_err(unfinished);
    let Build { version, serves, .. } = BUILD;
    ask(&format!("SET SESSION lock_wait_timeout = {TABLE_WAIT}")).await?;
    let locked = ask(&format!(
        "SELECT GET_LOCK(CONCAT('leasehold ', LEFT(SHA2(DATABASE(), 256), 40)), {WAIT})"
    ))
    .await?;
    if locked.first().and_then(|row| row.first()?.as_deref()) != Some("1") {
        let message = "another migration of this database goes on; nothing was changed; try again \
                       when it has ended";
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    // Only now, because a newer build may have migrated while this migration waited.
    let before = version_before(connector.found(link).await, BUILD).map_err(advise)?;
    for statement in statements(TABLES) {
        ask(&statement).await?;
    }
    if ask(SERVES_COLUMN).await?.is_empty() {
        ask("ALTER TABLE leasehold_meta ADD COLUMN serves INT NOT NULL DEFAULT 1").await?;
    }
    // From here on, a client that the new procedures do not serve is refused when it connects.
    ask(&format!("UPDATE leasehold_meta SET serves = {serves}")).await?;
    ask(&format!("SET SESSION lock_wait_timeout = {WAIT}")).await?;
    for statement in PROCEDURES.into_iter().flat_map(statements) {
        let name = procedure(&statement).expect("the files have nothing but procedures");
        let made = ask(&format!(
            "SELECT routine_definition FROM information_schema.routines \
             WHERE routine_schema = DATABASE() AND routine_name = '{name}'"
        ))
        .await?;
        // The text that the server shows lacks the parameters. A procedure in which only they have
        // changed would look the same.
        if before != Some(version) || !is_as(&statement, &made) {
            for part in remade(name, &statement, is_mariadb) {
                ask(&part).await?;
            }
        }
    }
    ask(&format!("UPDATE leasehold_meta SET version = {version}")).await?;
    Ok(before)
}

/// Looks for the column of tables from version 2 on.
const SERVES_COLUMN: &str = "SELECT 1 FROM information_schema.columns \
    WHERE table_schema = DATABASE() AND table_name = 'leasehold_meta' AND column_name = 'serves'";

/// Whether a procedure is as its statement makes it. The server keeps the text of its body.
fn is_as(statement: &str, made: &[Row]) -> bool {
    let body = made.first().and_then(|row| row.first()?.as_deref());
    body.is_some_and(|body| !body.is_empty() && statement.trim_end().ends_with(body.trim_end()))
}

/// The error if the versions cannot be read.
fn advise(error: Error) -> Error {
    if error.kind() == ErrorKind::Denied { unfinished(error) } else { error }
}

/// The error for a statement that the server refused.
fn unfinished(refused: Error) -> Error {
    let message = match refused.kind() {
        ErrorKind::Denied => {
            "this user has no right to create the tables or procedures; the migration is not \
             finished; migrate as a user with `SELECT`, `INSERT`, `UPDATE`, `CREATE`, `ALTER`, \
             `CREATE ROUTINE` and `ALTER ROUTINE` on the database"
        }
        ErrorKind::Unavailable => {
            "a table or procedure is in use, or the server refused a statement; the migration is \
             not finished; remove the cause, then run it again: it continues where it stopped"
        }
        _ => return refused,
    };
    // Its message says in which state a lock is, and what a user of locks needs.
    let text = said(&refused).map_or_else(|| refused.to_string(), |said| said.text.clone());
    Error::new(refused.kind(), message).with_source(Said::new(text))
}

/// A procedure that a migration of MySQL makes for a moment.
const TRIED: &str = "leasehold_tried";

/// The statements that make a procedure again. MySQL has no statement that replaces one. So the
/// procedure is made under another name first, because a user may have the right to drop procedures
/// and not to create them. Then the old one stays.
fn remade(name: &str, statement: &str, is_mariadb: bool) -> Vec<String> {
    if is_mariadb {
        return vec![statement.replacen("CREATE ", "CREATE OR REPLACE ", 1)];
    }
    let drop = |name| format!("DROP PROCEDURE IF EXISTS {name}");
    let tried = statement.replacen(name, TRIED, 1);
    vec![drop(TRIED), tried, drop(TRIED), drop(name), statement.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_migration_does_not_say_what_users_of_locks_need() {
        let said = Said::new("CREATE ROUTINE command denied".to_owned());
        let denied = Error::new(ErrorKind::Denied, "`GRANT EXECUTE`").with_source(said);
        let refused = unfinished(denied);
        let cause = std::error::Error::source(&refused).expect("a cause").to_string();
        assert_eq!(cause, "the server said `CREATE ROUTINE command denied`");
        assert!(
            refused.message().contains("CREATE ROUTINE") && !cause.contains("GRANT"),
            "{cause}"
        );
    }

    #[test]
    fn a_procedure_is_never_missing_while_mariadb_replaces_it() {
        let statement = "CREATE PROCEDURE leasehold_a(b BIGINT)\nBEGIN\nEND";
        let at_once = remade("leasehold_a", statement, true);
        assert_eq!(at_once, ["CREATE OR REPLACE PROCEDURE leasehold_a(b BIGINT)\nBEGIN\nEND"]);
    }

    #[test]
    fn mysql_drops_no_procedure_before_it_has_made_a_copy_of_the_next_one() {
        let statement = "CREATE PROCEDURE leasehold_a(b BIGINT)\nBEGIN\nEND";
        let drops_copy = "DROP PROCEDURE IF EXISTS leasehold_tried";
        assert_eq!(
            remade("leasehold_a", statement, false),
            [
                drops_copy,
                "CREATE PROCEDURE leasehold_tried(b BIGINT)\nBEGIN\nEND",
                drops_copy,
                "DROP PROCEDURE IF EXISTS leasehold_a",
                statement,
            ]
        );
    }
}
