//! The tables of a store: how they are made, and how those of an older version are changed.

use rusqlite::Connection;

/// The version of the tables. A file with a newer version is refused.
pub(super) const USER_VERSION: i32 = 3;

/// The tables of version 1.
///
/// - Moments are nanoseconds of the steady clock of the boot in `meta`.
/// - `since_wall` and `boot_began` are microseconds of the wall clock. `opened` is the moment of
///   the last opening, see `boot`.
/// - `version` rises with every change of a lock and with every new place in its line.
/// - A `counter` of 0 is unused. It begins at the wall clock or at `counter_floor`, the highest
///   counter of forgotten locks.
/// - For a lock without an owner, `expires` is the time until which newcomers give way to a woken
///   waiter.
pub(super) const FIRST: &str = "
CREATE TABLE locks (
    key TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    counter INTEGER NOT NULL,
    owner TEXT,
    expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    since_wall INTEGER NOT NULL,
    fence_first INTEGER,
    fence_count INTEGER,
    why TEXT,
    idle INTEGER NOT NULL,
    touched INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE places (
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    owner TEXT NOT NULL,
    stance INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    handed_ttl INTEGER NOT NULL,
    reserve INTEGER NOT NULL,
    ask_no INTEGER NOT NULL,
    inbox TEXT NOT NULL,
    why TEXT,
    since_wall INTEGER NOT NULL,
    PRIMARY KEY (key, seq),
    UNIQUE (key, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE clients (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    user TEXT NOT NULL,
    command TEXT NOT NULL,
    seen INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    boot_id TEXT NOT NULL,
    boot_began INTEGER NOT NULL,
    opened INTEGER NOT NULL,
    counter_floor INTEGER NOT NULL,
    purge_due INTEGER NOT NULL,
    purge_after TEXT NOT NULL,
    clients_after TEXT
) STRICT;
";

/// The addition of version 2: holders that share a key.
///
/// - While holders share a key, the `owner` of the lock is `lock_row::SHARED`, and its `expires` is
///   the end of the last of their leases. So statements for one holder alone find the key taken. A
///   process of version 1 that has the file open does too.
/// - `permits` is how many permits there are, if the key is a semaphore. `taken` is the sum of the
///   permits in `shares`, ended leases included.
/// - `claim` is 0 for the whole key, -1 for a share of it, or a number of permits.
const SHARES: &str = "
ALTER TABLE locks ADD COLUMN permits INTEGER;
ALTER TABLE locks ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;
ALTER TABLE places ADD COLUMN claim INTEGER NOT NULL DEFAULT 0;
CREATE TABLE shares (
    key TEXT NOT NULL,
    owner TEXT NOT NULL,
    claim INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    since_wall INTEGER NOT NULL,
    fence_first INTEGER,
    fence_count INTEGER,
    why TEXT,
    PRIMARY KEY (key, owner)
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_by_end ON shares (key, expires);
";

/// The addition of version 3: requests to holders to let go, as `at_us|by|reason`.
///
/// - `revoked` of a lock is for the owner in `revoked_owner`, which may be gone. So no statement
///   that ends a lease has to clear it. A grant clears it, because a client may use the same owner
///   token again.
/// - `revoked` of a share goes with its row.
const REVOCATIONS: &str = "
ALTER TABLE locks ADD COLUMN revoked_owner TEXT;
ALTER TABLE locks ADD COLUMN revoked TEXT;
ALTER TABLE shares ADD COLUMN revoked TEXT;
";

/// Makes the tables in a new file, inside a transaction.
pub(super) fn make(conn: &Connection, boot_id: &str) -> rusqlite::Result<()> {
    conn.execute_batch(FIRST)?;
    conn.execute("INSERT INTO meta VALUES (1, ?1, 0, 0, 0, 0, '', NULL)", [boot_id])?;
    upgrade(conn, 1)
}

/// Changes tables of that version into those of [`USER_VERSION`], inside a transaction. Keeps
/// everything that is in them.
pub(super) fn upgrade(conn: &Connection, from: i32) -> rusqlite::Result<()> {
    if from < 2 {
        conn.execute_batch(SHARES)?;
    }
    if from < 3 {
        conn.execute_batch(REVOCATIONS)?;
    }
    conn.pragma_update(None, "user_version", USER_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of all tables of a file.
    fn columns(file: &Connection) -> Vec<String> {
        const SQL: &str = "SELECT tables.name || '.' || columns.name
            FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
            WHERE tables.type = 'table' ORDER BY 1";
        let mut statement = file.prepare(SQL).expect("it is SQL");
        let columns = statement.query_map([], |row| row.get(0)).expect("there are some");
        columns.collect::<rusqlite::Result<_>>().expect("names")
    }

    #[test]
    fn tables_of_each_version_become_those_of_a_new_file() {
        let open = || Connection::open_in_memory().expect("a file");
        let new = open();
        make(&new, "boot").expect("it is empty");
        for from in 1..=USER_VERSION {
            let old = open();
            for (version, tables) in [(1, FIRST), (2, SHARES), (3, REVOCATIONS)] {
                if version <= from {
                    old.execute_batch(tables).expect("it has those of the version before");
                }
            }
            upgrade(&old, from).expect("they are changed");
            assert_eq!(columns(&old), columns(&new), "{from}");
            let version = old.pragma_query_value(None, "user_version", |row| row.get(0));
            let version: i32 = version.expect("a number");
            assert_eq!(version, USER_VERSION, "{from}");
        }
    }
}
