//! The tables and functions of a store, and the migration that makes them.

use std::sync::Arc;

use super::connect::{Facts, PostgresConnector};
use super::error::{failure, is_refusal};
use super::url::schema;
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::sql::errors::{Said, Stage};
use crate::store::sql::url::Address;
use crate::store::sql::version::Build;
use crate::store::sql::{Engine as _, Migrated, version_before};

/// The versions of this build.
///
/// - 1: the first one. Its builds refuse every other version when they connect.
/// - 2: a renewal that must not wait says `kept`. On version 1, it would wait without any limit.
pub(super) const BUILD: Build = Build { version: 2, needs: 2, serves: 2 };

/// The tables. `script` adds to those of an older version what they lack.
const TABLES: &str = include_str!("sql/tables.sql");

/// The functions. Each one comes after those that it uses. Every migration replaces them.
const FUNCTIONS: [&str; 9] = [
    include_str!("sql/clock.sql"),
    include_str!("sql/holders.sql"),
    include_str!("sql/line.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/browse.sql"),
    include_str!("sql/clients.sql"),
];

/// The functions that clients call. They find names in `pg_catalog` only, because others may have
/// made functions of the same names in a schema that the user of the locks searches. See
/// <https://nvd.nist.gov/vuln/detail/CVE-2018-1058>.
const ENTRY_POINTS: [&str; 10] = [
    "acquire", "renew", "release", "inspect", "list", "evict", "revoke", "resize", "record",
    "purge",
];

/// Migrations wait for one another by this lock. The number is `Leasehol` in ASCII.
const MIGRATING: u64 = 0x4c65_6173_6568_6f6c;

/// The text with the schema of the URL in the place of `leasehold.`.
pub(super) fn in_schema(sql: &str, address: &Address) -> String {
    sql.replace("leasehold.", &format!("\"{}\".", schema(address).replace('"', "\"\"")))
}

/// The whole migration as one message, which the server runs as one transaction.
fn script(address: &Address) -> String {
    let name = schema(address).replace('\'', "''").replace('\\', "\\\\");
    // The second limit is short, because requests for locks queue behind a migration that waits for
    // a table.
    let begin = format!(
        "SELECT set_config('lock_timeout', '30s', true);
        SELECT pg_advisory_xact_lock({MIGRATING});
        SELECT set_config('lock_timeout', '5s', true);
        DO $migration$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = E'{name}') THEN
                EXECUTE format('CREATE SCHEMA %I', E'{name}');
            END IF;
        END $migration$;\n"
    );
    // `CREATE INDEX` and `ALTER TABLE` lock the table before they look whether the part is there.
    let added = format!(
        "DO $migration$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_indexes
                WHERE schemaname = E'{name}' AND indexname = 'shares_by_end') THEN
                {};
            END IF;
            IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_schema = E'{name}'
                AND table_name = 'meta' AND column_name = 'serves') THEN
                {};
            END IF;
        END $migration$;\n",
        in_schema("CREATE INDEX shares_by_end ON leasehold.shares (key, expires)", address),
        in_schema(
            "ALTER TABLE leasehold.meta ADD COLUMN serves integer NOT NULL DEFAULT 1",
            address
        )
    );
    // A newer build may have migrated while this migration waited.
    let no_newer = format!(
        "DO $migration$ BEGIN
            IF (SELECT version FROM leasehold.meta) > {} THEN
                RAISE EXCEPTION 'the tables are newer';
            END IF;
        END $migration$;\n",
        BUILD.version
    );
    let search = |function| {
        format!("ALTER FUNCTION leasehold.{function} SET search_path = pg_catalog, pg_temp;\n")
    };
    let search_paths: String = ENTRY_POINTS.map(search).concat();
    let end = format!(
        "UPDATE leasehold.meta SET version = {}, serves = {};",
        BUILD.version, BUILD.serves
    );
    let functions = [TABLES, &no_newer, &FUNCTIONS.join("\n")].join("\n");
    begin + &in_schema(&functions, address) + &added + &in_schema(&(search_paths + &end), address)
}

/// Makes the tables and functions of a store in the database and schema of the URL, or brings those
/// of an older version up to date.
///
/// Running it again changes nothing. Locks may be in use meanwhile, and [`Migrated`] says which
/// builds may go on. The user must own the schema, its tables and its functions, or be allowed to
/// create the schema (`GRANT CREATE ON DATABASE`). Users of locks need less:
///
/// ```sql
/// GRANT USAGE ON SCHEMA leasehold TO app;
/// GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app;
/// ```
///
/// # Errors
///
/// - [`Config`](ErrorKind::Config) for an invalid URL, a server before PostgreSQL 13, or tables of
///   a newer version.
/// - [`Denied`](ErrorKind::Denied) for a wrong password or a missing right.
/// - [`Unavailable`](ErrorKind::Unavailable) if the server cannot be reached, or another
///   transaction keeps a table for seconds. Nothing was changed; if the kind is
///   [`Unknown`](ErrorKind::Unknown), perhaps everything was.
///
/// # Cancel safety
///
/// The migration is done as a whole or not at all.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::postgres::migrate;
///
/// let done = migrate("postgres://owner:secret@db/app", SystemHost::shared()).await?;
/// println!("{} has tables of version {}", done.store, done.version);
/// # Ok(()) }
/// ```
pub async fn migrate(url: &str, host: Arc<dyn Host>) -> Result<Migrated, Error> {
    let connector = PostgresConnector::new(url)?;
    host.start()?;
    let migrating = async {
        let mut link = connector.log_in_within_limit(&host).await?;
        Facts::read(&mut link).await?.check()?;
        let before = version_before(connector.found(&mut link).await, BUILD)?;
        let Err(error) = link.ask(&script(&connector.address)).await else { return Ok(before) };
        if is_refusal(&error) {
            // Perhaps a newer build has migrated meanwhile. This error says so.
            version_before(connector.found(&mut link).await, BUILD)?;
        }
        Err(match failure(&error, Stage::Asking) {
            denied if denied.kind() == ErrorKind::Denied => may_not_create(&denied),
            error => error,
        })
    };
    // On the heap, because it is large.
    Migrated::by(&host, (connector.label(), BUILD), Box::pin(migrating)).await
}

/// The error for a user without the right to create the tables.
fn may_not_create(denied: &Error) -> Error {
    let message = "this user has no right to create the schema, its tables or its functions; \
                   nothing was changed; migrate as the owner of the database or of the schema";
    // Leave out the advice of the error, which is for users of locks.
    let said = std::error::Error::source(denied).and_then(|it| it.downcast_ref::<Said>());
    let text = said.map(|said| said.text.clone()).unwrap_or_default();
    Error::new(ErrorKind::Denied, message).with_source(Said::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sql::version::digest;

    #[test]
    fn each_function_that_a_client_calls_finds_names_of_postgres_alone() {
        let calls = include_str!("../sql/call.rs");
        let (calls, _tests) = calls.split_once("#[cfg(test)]").expect("it has tests");
        let called: Vec<_> = calls
            .split("Call::new(dialect, \"")
            .skip(1)
            .map(|rest| rest.split('"').next().expect("a name"))
            .collect();
        assert_eq!(called.len(), ENTRY_POINTS.len());
        assert!(called.iter().all(|name| ENTRY_POINTS.contains(name)), "{called:?}");
    }

    #[test]
    fn who_may_not_migrate_is_not_told_of_the_rights_of_users() {
        let source = Said::new("permission denied for database".to_owned());
        let denied = Error::new(ErrorKind::Denied, "`GRANT USAGE ON SCHEMA`").with_source(source);
        let refused = may_not_create(&denied);
        let cause = std::error::Error::source(&refused).expect("a cause").to_string();
        assert!(cause.contains("permission denied for database"), "{cause}");
        assert!(!refused.to_string().contains("GRANT") && !cause.contains("GRANT"), "{cause}");
    }

    #[test]
    fn functions_that_change_get_another_version() {
        let now = (BUILD.version, digest([TABLES].into_iter().chain(FUNCTIONS)));
        let advice = "the functions have changed: read `How the functions of a database change` in \
                      ARCHITECTURE.md, raise the version, and write both numbers here";
        assert_eq!(now, (2, 0xae35_1455_f99e_11c1), "{advice}");
    }

    #[test]
    fn a_migration_is_of_the_schema_of_the_url_alone() {
        let address =
            crate::store::postgres::url::parse("postgres://u@h/d?schema=a%22b%27").expect("a URL");
        let script = script(&address);
        assert!(!script.contains(" leasehold."), "another schema");
        assert!(script.contains("CREATE TABLE IF NOT EXISTS \"a\"\"b'\".locks"));
        assert!(script.contains("E'a\"b'''"));
    }
}
