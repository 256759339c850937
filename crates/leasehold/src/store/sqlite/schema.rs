//! How a file becomes a store, and how a store is opened.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::boot;
use super::busy::{self, BusyLimit};
use super::error::{SqlFailure, Stage, is_busy};
use super::file::{StoreFile, refused};
use super::gate::Gate;
use super::tables::{self, USER_VERSION};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, pause};

/// Marks a file as a Leasehold store: `LsHd`.
pub(super) const APPLICATION_ID: i32 = 0x4c73_4864;

/// How long opening waits in all for other processes that have the file locked.
const OPEN_BUSY_LIMIT: Duration = Duration::from_secs(1);

/// How often opening tries to switch to a write-ahead log while others open the file too.
const JOURNAL_TRIES_MAX: usize = 50;

/// How often a file is read before it counts as another program's.
const PROBE_TRIES_MAX: usize = 3;

/// The capacity of the cache of prepared statements. The store has fewer statements.
const STATEMENTS_MAX: usize = 64;

/// Opens a file that [`StoreFile::prepare`](super::file::StoreFile::prepare) has checked.
pub(super) fn open(
    file: &StoreFile,
    boot_id: &str,
    host: &Arc<dyn Host>,
) -> Result<(Connection, BusyLimit), Error> {
    let path = file.path();
    let until = busy::until(OPEN_BUSY_LIMIT);
    probe(path)?;
    refuse_lost_companions(file, until)?;
    let in_sql = |error| sql_error(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(in_sql)?;
    // Do this first, because processes that open a new file together already compete when they set
    // the journal mode.
    let gate = Gate::new(Arc::clone(host), file.belfry().clone());
    let busy = BusyLimit::install(&mut conn, gate).map_err(in_sql)?;
    busy.set_until(until);
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    bring_up_to_date(&mut conn, path, boot_id)?;
    set_journal(&mut conn).map_err(in_sql)?;
    conn.execute_batch(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF; PRAGMA cache_size = -2048;
         PRAGMA wal_autocheckpoint = 0;",
    )
    .map_err(in_sql)?;
    conn.pragma_update_and_check(None, "journal_size_limit", 4 << 20, |_| Ok(()))
        .map_err(in_sql)?;
    boot::enter(&mut conn, boot_id, &**host, &busy).map_err(in_sql)?;
    busy.is_over();
    Ok((conn, busy))
}

/// The state of a file before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The file must still be made a store.
    New,
    /// A store with the tables of an older version.
    Older(i32),
    Current,
}

/// The marks of a file.
struct Marks {
    application_id: i32,
    user_version: i32,
    tables: i64,
}

impl Marks {
    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        let application_id = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let user_version = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        // A marked file needs no further check.
        let tables = match application_id {
            0 => conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
            _ => 0,
        };
        Ok(Self { application_id, user_version, tables })
    }

    /// The state of the file. Refuses a file of another program or of a newer version.
    fn state(&self, path: &Path) -> Result<State, Error> {
        match (self.application_id, self.tables) {
            (APPLICATION_ID, _) if self.user_version > USER_VERSION => Err(refused(
                path,
                &format!(
                    "was written by a newer Leasehold (its tables are of version {}, this build \
                     knows {USER_VERSION}); use a newer build, or choose another path",
                    self.user_version
                ),
            )),
            (APPLICATION_ID, _) if self.user_version < USER_VERSION => {
                Ok(State::Older(self.user_version))
            }
            (APPLICATION_ID, _) => Ok(State::Current),
            (0, 0) => Ok(State::New),
            _ => Err(not_ours(path)),
        }
    }
}

fn not_ours(path: &Path) -> Error {
    refused(path, "is not a Leasehold store; choose another path")
}

/// Reads the marks of a file without locking it and without leaving files beside it, since it may
/// belong to another program. The marks of a store are in the file itself from its first moment,
/// see `bring_up_to_date`.
///
/// Without a lock, a file that others write to can look damaged. That is no reason to refuse it,
/// because opening it properly comes next.
///
/// A file that becomes a store at this moment can look foreign if it is read half before and half
/// after. So a file is read again before it is refused.
fn probe(path: &Path) -> Result<(), Error> {
    for _ in 1..PROBE_TRIES_MAX {
        if probe_once(path).is_ok() {
            return Ok(());
        }
        pause(Duration::from_millis(2));
    }
    probe_once(path)
}

fn probe_once(path: &Path) -> Result<(), Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let marks =
        Connection::open_with_flags(immutable_uri(path), flags).and_then(|conn| Marks::read(&conn));
    match marks {
        Ok(marks) => marks.state(path).map(|_| ()),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Err(not_ours(path)),
            Some(ErrorCode::DatabaseCorrupt) => Ok(()),
            _ => Err(sql_error(path, error)),
        },
    }
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri + "?immutable=1"
}

/// Makes sure that nobody uses the file if its log or its shared memory is missing. A process that
/// still has the file open would use the deleted files. It would not see our locks, and we would
/// not see its locks.
fn refuse_lost_companions(file: &StoreFile, until: Moment) -> Result<(), Error> {
    let mut tries = 0;
    while !file.has_companions() {
        match is_alone(file.path()) {
            Ok(()) => return Ok(()),
            // Another process may be about to make them.
            Err(error) if is_busy(&error) => {}
            Err(error) => return Err(sql_error(file.path(), error)),
        }
        if !busy::wait(tries, until) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "sqlite:{} is in use, but the -wal or -shm beside it is missing, so held locks \
                     cannot be seen; nothing was changed; stop every process that uses it",
                    file.path().display()
                ),
            ));
        }
        tries += 1;
    }
    Ok(())
}

/// Whether no other connection uses the file. A connection with a log holds a lock as long as it
/// lives, so only a single connection gets the exclusive lock.
fn is_alone(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::ZERO)?;
    conn.pragma_update(None, "locking_mode", "exclusive")?;
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Makes a new file a store, and changes the tables of an older version, in one transaction.
///
/// A new file has the old kind of journal at this moment. So the marks and tables are in the file
/// itself, where `probe` sees them, and not in a log beside it.
fn bring_up_to_date(conn: &mut Connection, path: &Path, boot_id: &str) -> Result<(), Error> {
    let in_sql = |error| sql_error(path, error);
    // In one transaction, because another process may make the tables between two separate
    // statements.
    let look = conn.transaction().map_err(in_sql)?;
    let state = Marks::read(&look).map_err(in_sql)?.state(path)?;
    drop(look);
    if state == State::Current {
        return Ok(());
    }
    let transaction =
        conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(in_sql)?;
    match Marks::read(&transaction).map_err(in_sql)?.state(path)? {
        State::New => transaction
            .pragma_update(None, "application_id", APPLICATION_ID)
            .and_then(|()| tables::make(&transaction, boot_id))
            .map_err(in_sql)?,
        State::Older(version) => tables::upgrade(&transaction, version).map_err(in_sql)?,
        State::Current => {}
    }
    transaction.commit().map_err(in_sql)
}

fn set_journal(conn: &mut Connection) -> rusqlite::Result<()> {
    for _ in 1..JOURNAL_TRIES_MAX {
        match conn.pragma_update(None, "journal_mode", "wal") {
            // Changing the journal mode does not wait for others, but a transaction does.
            Err(error) if is_busy(&error) => {
                conn.transaction_with_behavior(TransactionBehavior::Immediate)?.rollback()?;
            }
            done => return done,
        }
    }
    conn.pragma_update(None, "journal_mode", "wal")
}

fn sql_error(path: &Path, error: rusqlite::Error) -> Error {
    SqlFailure::new(error, Stage::Before).to_error(&format!("sqlite:{}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The connection that makes the tables first. It commits when the other one waits for it.
    static FIRST: Mutex<Option<Connection>> = Mutex::new(None);

    fn let_the_first_commit(_tries: i32) -> bool {
        let first = FIRST.lock().expect("whole").take();
        first.is_some_and(|first| first.execute_batch("COMMIT").is_ok())
    }

    #[test]
    fn a_file_that_another_process_makes_a_store_meanwhile_is_used_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("locks.db");
        let first = Connection::open(&path).expect("a file");
        first.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        first.pragma_update(None, "application_id", APPLICATION_ID).expect("it is new");
        tables::make(&first, "boot").expect("it is new");
        *FIRST.lock().expect("whole") = Some(first);
        let mut second = Connection::open(&path).expect("a file");
        second.busy_handler(Some(let_the_first_commit)).expect("it waits for nobody yet");
        bring_up_to_date(&mut second, &path, "boot").expect("the tables are made once");
        assert!(FIRST.lock().expect("whole").is_none(), "it waited");
        let marks = Marks::read(&second).expect("a store");
        assert_eq!(marks.state(&path).expect("a store"), State::Current);
    }
}
