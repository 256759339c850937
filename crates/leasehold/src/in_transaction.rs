//! Locks that end with the caller's own transaction in PostgreSQL.
//!
//! If all that a lock protects is in one database, a transaction there is the better lock. It ends
//! when the work is committed or rolled back, so a late write is impossible. It needs no ttl, no
//! renewal and no fencing token. A lease is for work outside the database, and for work that lasts
//! longer than a transaction should.
//!
//! | the work | use |
//! |---|---|
//! | changes one row that is there | `SELECT … FOR UPDATE`, or [a version column](#the-optimistic-lock) |
//! | is rarely disturbed, or a person thinks between read and write | [a version column](#the-optimistic-lock) |
//! | makes a row that is not there yet, or changes several tables | [`LOCK`] |
//! | may be skipped if somebody does it already | [`TRY_LOCK`] |
//! | calls other systems, or lasts for more than a few seconds | a [`Mutex`](crate::Mutex) |
//!
//! The page *Lease or transaction* in `docs/` of the repository says more about the choice.
//!
//! [`LOCK`], [`LOCK_SHARED`] and [`TRY_LOCK`] are texts of SQL with one parameter, `$1`: the name,
//! as text. They work with each client library, also through PgBouncer in transaction mode, and
//! need no table and no migration.
//!
//! - **End**: the lock ends with the transaction, however that ends. If the client dies or its host
//!   is cut off, the server ends the transaction once it notices. Set `tcp_keepalives_idle` and
//!   `idle_in_transaction_session_timeout` so that it notices soon.
//! - **Savepoints**: take the lock in the outermost transaction. A rollback to a savepoint that is
//!   older than the lock ends the lock, while the transaction goes on. Nested transactions of
//!   frameworks, and `EXCEPTION` blocks of PL/pgSQL, are savepoints.
//! - **Wait**: `SET LOCAL lock_timeout = '2s'` bounds the wait of [`LOCK`]. After it, the
//!   statement fails with `55P03`, and the transaction has to be rolled back.
//! - **Isolation**: the transaction has to be `READ COMMITTED`, which is the default. In
//!   `REPEATABLE READ` and `SERIALIZABLE`, all statements see the database as it was when the
//!   first one began. That is before the wait ended, so the work of the last holder is not seen.
//! - **Several names**: lock them in one order everywhere. Otherwise two transactions can wait for
//!   each other, and the server ends one with `40P01` (deadlock).
//! - **Names**: a name becomes a number of 64 bits. If two names had the same number, one would
//!   wait for the other without need, but no lock would be granted twice. The locks have nothing to
//!   do with leases of the same name.
//!
//! # Examples
//!
//! An account gets its first and only invoice of the month:
//!
//! ```sql
//! BEGIN;
//! SET LOCAL lock_timeout = '2s';
//! SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('invoice:42', 7811060));
//! INSERT INTO invoice (account, month) SELECT 42, '2026-11'
//!  WHERE NOT EXISTS (SELECT FROM invoice WHERE account = 42 AND month = '2026-11');
//! COMMIT;
//! ```
//!
//! # The optimistic lock
//!
//! A column counts the changes of a row. A writer names the version that it has read, and changes
//! the row only if that version is still there. Nobody waits and nothing is held between the read
//! and the write, so it suits a form that a person fills in. Under contention, most attempts fail:
//! use a lock there.
//!
//! It works in each database. Here with SQLite:
//!
//! ```
//! # #[cfg(feature = "sqlite")] mod example {
//! use rusqlite::{Connection, Result, params};
//!
//! /// Returns whether the seats were sold. If not, somebody was faster: read again.
//! fn sell(database: &Connection, left: i64, version: i64) -> Result<bool> {
//!     let sql = "UPDATE seats SET free = ?1, version = version + 1 WHERE version = ?2";
//!     Ok(database.execute(sql, params![left, version])? == 1)
//! }
//!
//! pub fn run() -> Result<()> {
//!     let database = Connection::open_in_memory()?;
//!     database.execute_batch(
//!         "CREATE TABLE seats (free INTEGER NOT NULL, version INTEGER NOT NULL);
//!          INSERT INTO seats VALUES (10, 1);",
//!     )?;
//!     let read = || {
//!         let sql = "SELECT free, version FROM seats";
//!         database.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
//!     };
//!
//!     let (mine, theirs) = (read()?, read()?);
//!     assert!(sell(&database, mine.0 - 2, mine.1)?);
//!     assert!(!sell(&database, theirs.0 - 3, theirs.1)?, "they read an older version");
//!
//!     let again = read()?;
//!     assert!(sell(&database, again.0 - 3, again.1)?);
//!     assert_eq!(read()?.0, 5);
//!     Ok(())
//! }
//! # }
//! # #[cfg(feature = "sqlite")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> { Ok(example::run()?) }
//! # #[cfg(not(feature = "sqlite"))] fn main() {}
//! ```

// The number after each name keeps the locks apart from advisory locks of others.

/// Waits until nobody else has the name, and takes it until the transaction ends. Returns one row
/// without a value.
pub const LOCK: &str =
    "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 7811060))";

/// Waits until nobody has the name by [`LOCK`], and shares it until the transaction ends. Returns
/// one row without a value.
///
/// A transaction that shares a name and then asks for it by [`LOCK`] waits for all others that
/// share it. If two do so, the server ends one of them with `40P01` (deadlock).
pub const LOCK_SHARED: &str =
    "SELECT pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended($1, 7811060))";

/// Takes the name until the transaction ends if nobody else has it, and never waits. Returns one
/// row with one column, `granted`: true or false.
pub const TRY_LOCK: &str = "SELECT pg_catalog.pg_try_advisory_xact_lock(\
     pg_catalog.hashtextextended($1, 7811060)) AS granted";
