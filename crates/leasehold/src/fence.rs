//! Checks of [fencing tokens](crate::FencingToken) in the resource that a lock protects.
//!
//! A holder can be paused between its last check of the lock and its write. Only the resource can
//! refuse that late write: it remembers the highest token that it has seen, and refuses a lower
//! one. The check and the write must be one atomic step. This module has the SQL statements and the
//! Redis script for it. They go through the client of the database that you use already.
//!
//! | the data is | use |
//! |---|---|
//! | in one row, which can have one more column | [a column](#a-column-beside-the-data) |
//! | in several rows or tables of one database | [`sql`] in the transaction that writes |
//! | in Redis or Valkey | [`redis_script`] |
//!
//! Do not let the highest token expire, and do not reset it. Otherwise an old holder would pass the
//! check again. All tokens of one resource must come from one lock on one store.
//!
//! # A column beside the data
//!
//! One conditional `UPDATE` needs no helper:
//!
//! ```sql
//! ALTER TABLE account ADD COLUMN fence BIGINT NOT NULL DEFAULT 0; -- once
//! UPDATE account SET balance = :balance, fence = :fence
//!  WHERE id = :id AND fence <= :fence
//! ```
//!
//! If no row was changed, a later holder has written: stop, and do not trust what was read before.
//! `<=` lets one holder write several times. On MySQL, let the client report the rows that matched
//! (`CLIENT_FOUND_ROWS`). Otherwise a write that repeats the same values looks like a refused one.
//! `i64::from(token)` is the number for the database.

/// The highest token of each resource, in a table of its own. For SQLite and PostgreSQL.
pub mod sql {
    /// Makes the table of the highest tokens, if it is not there. SQLite and PostgreSQL.
    pub const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS leasehold_fences (\
         resource TEXT NOT NULL PRIMARY KEY, fence BIGINT NOT NULL)";

    /// Checks a token and records it, in one statement. Parameters: the resource, which is a text
    /// of your choice such as the name of the lock, and the token as a number (`i64::from(token)`).
    /// SQLite, and clients of PostgreSQL that number parameters as `$1`.
    ///
    /// One changed row means that the token is accepted. None means that a later holder has been
    /// here: roll back and stop.
    ///
    /// Run it first in the transaction that writes, and not behind a savepoint. Until the
    /// transaction ends, the row is locked, so no other holder passes the check. A rollback to an
    /// older savepoint would unlock it. An accepted holder finishes its writes before a later
    /// one begins, and a late one is refused.
    ///
    /// # Examples
    ///
    /// With the crate `rusqlite`:
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")] mod example {
    /// use leasehold::{FencingToken, fence::sql};
    /// use rusqlite::{Connection, Result, params};
    ///
    /// /// Returns whether the order was written.
    /// fn place(database: &mut Connection, token: FencingToken, order: &str) -> Result<bool> {
    ///     let transaction = database.transaction()?;
    ///     if transaction.execute(sql::RECORD, params!["orders", i64::from(token)])? == 0 {
    ///         return Ok(false); // A later holder was here. The transaction is rolled back.
    ///     }
    ///     transaction.execute("INSERT INTO orders VALUES (?1)", [order])?;
    ///     transaction.commit()?;
    ///     Ok(true)
    /// }
    ///
    /// pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut database = Connection::open_in_memory()?;
    ///     database.execute_batch(sql::CREATE_TABLE)?;
    ///     database.execute_batch("CREATE TABLE orders (text TEXT)")?;
    ///
    ///     let client = leasehold::Client::connect("memory:").await?;
    ///     let early = client.mutex("orders").lock().await?;
    ///     let paused = early.fencing_token().expect("this store counts");
    ///     let _released = early.release().await?;
    ///     let guard = client.mutex("orders").lock().await?;
    ///     let token = guard.fencing_token().expect("this store counts");
    ///
    ///     assert!(place(&mut database, token, "one")?);
    ///     assert!(place(&mut database, token, "two")?, "a holder may write several times");
    ///     assert!(!place(&mut database, paused, "late")?, "an earlier holder may not");
    ///     Ok(())
    /// }
    /// # }
    /// # #[cfg(feature = "sqlite")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> { example::run().await }
    /// # #[cfg(not(feature = "sqlite"))] fn main() {}
    /// ```
    pub const RECORD: &str = "INSERT INTO leasehold_fences (resource, fence) VALUES ($1, $2) \
         ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence \
         WHERE leasehold_fences.fence <= excluded.fence";
}

/// Checks a token in Redis. It compares digits, since a number of Lua has 53 bits only.
const CHECK: &str = "\
local seen, token = redis.call('GET', KEYS[1]), ARGV[1]
if not string.match(token, '^[1-9]%d*$') then
  return redis.error_reply('FENCE a fencing token is a number, not this text')
end
if seen and (#seen > #token or (#seen == #token and seen > token)) then
  return redis.error_reply('FENCED a later holder has written')
end
redis.call('SET', KEYS[1], token)
";

/// A Lua script for Redis or Valkey that checks a token, records it, and then does `body`, in one
/// atomic step.
///
/// `KEYS[1]` is a key for the highest token, which nothing else writes. `ARGV[1]` is the token in
/// decimal, as `token.to_string()` gives it. All further keys and arguments are those of `body`. In
/// a cluster, all keys need the same hash tag.
///
/// A text that is not a number is refused with the error `FENCE`. If a later holder has written,
/// the script fails with the error `FENCED`. In both cases `body` does not run: stop, and do not
/// trust what was read before. If `body` fails, the token stays recorded.
///
/// # Examples
///
/// A script that sets a value, for `EVAL script 2 account:7:fence account:7 TOKEN VALUE`:
///
/// ```
/// let script = leasehold::fence::redis_script("return redis.call('SET', KEYS[2], ARGV[2])");
/// assert!(script.contains("FENCED"));
/// assert!(script.ends_with("return redis.call('SET', KEYS[2], ARGV[2])"));
/// ```
#[must_use]
pub fn redis_script(body: &str) -> String {
    format!("{CHECK}{body}")
}
