//! The tables and procedures of a store, and the migration that makes them.

use std::sync::Arc;

use super::connect::{Facts, MysqlConnector};
use super::link::Link;
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::sql::errors::{Stage, check_before};
use crate::store::sql::{Engine as _, Migrated};

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

/// Migrations of a database wait so many seconds for one another.
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

/// Makes the tables and procedures of a store in the database of the URL, or brings those of an
/// older version up to date.
///
/// Running it again changes nothing. If the procedures are as they should be, locks may be in use
/// meanwhile. If they are of an older build, requests may fail for a moment. The user must be
/// allowed to create tables and procedures. Users of locks need less:
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
///   cannot be reached. Run it again: it goes on where it ended.
///
/// # Cancel safety
///
/// A migration that was not finished is not used. Run it again.
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
        let link = connector.log_in(&host).await?;
        Facts::read(&link).await?.check()?;
        let before = match connector.version(&link).await {
            Ok(version) => Some(version),
            // There is no such table.
            Err(error) if error.kind() == ErrorKind::Config => None,
            Err(error) => return Err(error),
        };
        check_before(before, VERSION)?;
        make(&link).await.map_err(|error| match error.kind() {
            ErrorKind::Denied => may_not_create(&error),
            _ => error,
        })?;
        Ok(Migrated::new(connector.label(), before.filter(|before| *before > 0), VERSION))
    };
    migrating.await.map_err(|error| error.at(&connector.label()))
}

/// Makes what is missing. Each statement is committed by itself, and the version is written last.
async fn make(link: &Link) -> Result<(), Error> {
    let ask = async |sql: &str| link.ask(sql, Stage::Asking).await;
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
        if !is_made(link, name, &statement).await? {
            ask(&format!("DROP PROCEDURE IF EXISTS {name}")).await?;
            ask(&statement).await?;
        }
    }
    ask(&format!("UPDATE leasehold_meta SET version = GREATEST(version, {VERSION})")).await?;
    Ok(())
}

/// Whether a procedure is there, as this build makes it. The server keeps the text of its body.
async fn is_made(link: &Link, name: &str, statement: &str) -> Result<bool, Error> {
    let rows = link
        .ask(
            &format!(
                "SELECT routine_definition FROM information_schema.routines \
                 WHERE routine_schema = DATABASE() AND routine_name = '{name}'"
            ),
            Stage::Asking,
        )
        .await?;
    let body = rows.first().and_then(|row| row.first()?.as_deref());
    Ok(body.is_some_and(|body| !body.is_empty() && statement.trim_end().ends_with(body.trim_end())))
}

/// The error for a user who may not create the tables.
fn may_not_create(denied: &Error) -> Error {
    let message = "this user may not create the tables or procedures; the migration is not \
                   finished; migrate as a user with `CREATE`, `CREATE ROUTINE` and `ALTER ROUTINE` \
                   on the database";
    Error::new(ErrorKind::Denied, message).with_source(denied.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

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
