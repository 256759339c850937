//! The tables and functions of a store, and the script that makes them.

use super::url::schema;
use crate::store::sql::url::Address;
use crate::store::sql::version::Build;

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
pub(super) fn script(address: &Address) -> String {
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
    fn functions_that_change_get_another_version() {
        let now = (BUILD.version, digest([TABLES].into_iter().chain(FUNCTIONS)));
        let advice = "the functions have changed: read `How the functions of a database change` in \
                      ARCHITECTURE.md, raise the version, and write both numbers here";
        assert_eq!(now, (2, 0xbb63_da79_4336_d025), "{advice}");
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
