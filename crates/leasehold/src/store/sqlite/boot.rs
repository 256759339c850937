//! Compares the clock of a file with our clock, and adapts the file after a restart.
//!
//! Moments count from the boot of the machine. The clock of a file continues if two things hold.
//! Nothing in the file is later than now. Also, its boot id is ours, or its boot began at the same
//! time as ours. The beginning matters for containers that show their own boot id. All processes of
//! one kernel agree on it: the wall clock less the steady clock, which moves only if the wall clock
//! is set.
//!
//! Both possible mistakes are harmless:
//!
//! - The clock continues and we think it does not: living leases keep at least the time they had,
//!   and waiters take new places. Then the file has our boot id.
//! - The clock does not continue and we think it does: all its holders are dead. Their leases end
//!   on our clock within their ttl, since nothing was granted later than now.

use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

use super::busy::BusyLimit;
use super::lock_row::SHARED;
use super::numbers::{sql_moment, sql_span, sql_wall};
use crate::core::error::{Error, ErrorKind};
use crate::core::ttl::Ttl;
use crate::host::Host;

/// How far apart, in µs, two processes of one boot may see its begin. Covers reading two clocks one
/// after the other, and a leap second. A restart takes longer.
const BEGAN_TOLERANCE: u64 = 2_000_000;

/// The id of this boot of the machine. It changes when the steady clock restarts.
pub(super) fn boot_id() -> Result<String, Error> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
        Error::new(
            ErrorKind::Unavailable,
            "the system does not identify its boots (/proc/sys/kernel/random/boot_id), so leases \
             from before a restart would look alive; no request was sent; mount /proc",
        )
        .with_source(error)
    })?;
    Ok(id.trim().to_owned())
}

/// A clock: ours or that of a file.
#[derive(Clone, Debug)]
struct Clock {
    boot_id: String,
    /// When the boot began, in µs of the wall clock. May be before 1970 if that clock is wrong.
    began: i64,
    /// The latest moment in the file, or now for our clock.
    latest: i64,
}

impl Clock {
    fn ours(boot_id: &str, host: &dyn Host) -> Self {
        let (now, wall) = (sql_moment(host.now()), sql_wall(host.wall()));
        Self { boot_id: boot_id.to_owned(), began: wall - now / 1_000, latest: now }
    }

    /// Reads the clock of a file. Looks at all its moments only if something differs from `ours`.
    fn of_file(conn: &Connection, ours: &Self) -> rusqlite::Result<Self> {
        const META: &str = "SELECT boot_id, boot_began, opened FROM meta";
        const LATEST: &str = "SELECT max(
            ifnull((SELECT max(max(touched, expires - ?1)) FROM locks), 0),
            ifnull((SELECT max(expires - ?1) FROM shares), 0),
            ifnull((SELECT max(expires - ?1) FROM places), 0))";
        let mut clock = conn.query_row(META, [], |row| {
            Ok(Self { boot_id: row.get(0)?, began: row.get(1)?, latest: row.get(2)? })
        })?;
        if clock.boot_id != ours.boot_id || !clock.began_with(ours) {
            let longest = sql_span(Ttl::LONGEST_KEPT.get());
            let latest = conn.query_row(LATEST, [longest], |row| row.get(0))?;
            clock.latest = clock.latest.max(latest);
        }
        Ok(clock)
    }

    /// Whether `ours` is the same clock at a later moment.
    fn goes_on_as(&self, ours: &Self) -> bool {
        let same_boot =
            self.boot_id == ours.boot_id || self.began.abs_diff(ours.began) <= BEGAN_TOLERANCE;
        same_boot && self.latest <= ours.latest
    }

    fn began_with(&self, ours: &Self) -> bool {
        self.began.abs_diff(ours.began) <= BEGAN_TOLERANCE
    }

    /// Writes our clock into the file.
    fn note(&self, conn: &Connection) -> rusqlite::Result<()> {
        const SQL: &str = "UPDATE meta SET boot_id = ?1, boot_began = ?2, opened = ?3";
        conn.execute(SQL, params![self.boot_id, self.began, self.latest]).map(|_| ())
    }
}

/// Writes our clock into the file. Adapts the file first if its clock is not ours.
///
/// This is the first write of the connection, which syncs a new log to the disk. So it happens here
/// and not in the first lock. If the file has our clock already, this does not wait for another
/// process that has the file locked, because the caller may only want to read.
pub(super) fn enter(
    conn: &mut Connection,
    boot_id: &str,
    host: &dyn Host,
    busy: &BusyLimit,
) -> rusqlite::Result<()> {
    // Read the file before our clock, so that no moment in the file looks later than our clock.
    let file = Clock::of_file(conn, &Clock::ours(boot_id, host))?;
    let ours = Clock::ours(boot_id, host);
    if file.goes_on_as(&ours) {
        busy.set(Duration::ZERO);
        if let Err(cause) = ours.note(conn) {
            tracing::debug!(%cause, "could not record in the file that it is in use");
        }
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let file = Clock::of_file(&transaction, &ours)?;
    let ours = Clock::ours(boot_id, host);
    if !file.goes_on_as(&ours) {
        start_anew(&transaction, file.latest, ours.latest, sql_wall(host.wall()))?;
    }
    ours.note(&transaction)?;
    transaction.commit()
}

/// Carries a file over from an earlier boot. Its leases run out on our clock, and its waiters are
/// removed. Every counter is raised above the numbers of writes that a power loss may have undone.
///
/// A lease keeps the time it had left at `latest`, the last known moment of the earlier boot. So a
/// lease that had ended stays ended. If the clock continued after all, no lease is shortened, since
/// `latest` is not later than now.
fn start_anew(conn: &Connection, latest: i64, now: i64, wall: i64) -> rusqlite::Result<()> {
    conn.execute(
        "UPDATE locks SET version = version + 1, touched = ?1,
            expires = ?1 + max(0, min(ttl, expires - ?3)),
            counter = CASE counter WHEN 0 THEN 0 ELSE max(counter, ?2) END",
        params![now, wall, latest],
    )?;
    conn.execute(
        "UPDATE shares SET expires = ?1 + max(0, min(ttl, expires - ?2))",
        params![now, latest],
    )?;
    conn.execute(
        "UPDATE locks SET expires = ifnull(
                (SELECT max(expires) FROM shares WHERE shares.key = locks.key), ?1)
            WHERE owner = ?2",
        params![now, SHARED],
    )?;
    conn.execute("DELETE FROM places", [])?;
    conn.execute("UPDATE clients SET seen = ?1", params![now])?;
    conn.execute(
        "UPDATE meta SET counter_floor = max(counter_floor, ?1), purge_due = 0,
            purge_after = '', clients_after = NULL",
        params![wall],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_continues_only_on_the_same_kernel() {
        const HOUR: i64 = 3_600_000_000;
        let file = Clock { boot_id: "one".to_owned(), began: 0, latest: 1_000 };
        let table = [
            ("one", 0, 1_000, true, "the same process again"),
            ("one", HOUR, 2_000, true, "the wall clock was set"),
            ("two", 1_999_999, 2_000, true, "a container with a boot id of its own"),
            ("two", -1_999_999, 1_000, true, "a container, and a leap second"),
            ("two", HOUR, 2_000, false, "a restart"),
            ("two", 0, 999, false, "a restart of a machine that always begins in 1970"),
            ("one", HOUR, 999, false, "a restart of a container that always shows one id"),
        ];
        for (boot_id, began, latest, goes_on, what) in table {
            let ours = Clock { boot_id: boot_id.to_owned(), began, latest };
            assert_eq!(file.goes_on_as(&ours), goes_on, "{what}");
        }
    }
}
