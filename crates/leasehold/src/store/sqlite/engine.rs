//! The connection, and how it runs jobs: a batch in one transaction, a single job by one
//! conditional statement if that is enough.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::bells::Bells;
use super::busy::BusyLimit;
use super::ear::Ear;
use super::error::{SqlFailure, Stage};
use super::file::StoreFile;
use super::purge;
use super::step::AnyJob;
use super::turn::{Effect, Prepared as _, Records, Turn};
use super::waits::Waits;
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::{Hint, Sinks};

/// After how many jobs the log is checkpointed into the file. It then has some 10 MiB. SQLite
/// itself would do this inside a commit, and make the caller wait for the disk.
const LOGGED_MAX: usize = 2_000;

/// A left-over log of this length is checkpointed.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// The connection and its state.
pub(super) struct Engine {
    host: Arc<dyn Host>,
    conn: Connection,
    busy: BusyLimit,
    file: StoreFile,
    label: Arc<str>,
    sinks: Arc<Sinks>,
    records: Records,
    waits: Waits,
    bells: Bells,
    effects: Vec<Effect>,
    purge_at: Moment,
    /// How many jobs may have written to the log.
    logged: usize,
}

impl Engine {
    pub(super) fn new(
        host: Arc<dyn Host>,
        (conn, busy): (Connection, BusyLimit),
        file: StoreFile,
        label: Arc<str>,
        sinks: Arc<Sinks>,
    ) -> Self {
        let bells = Bells::new(file.belfry().clone(), host.has_threads());
        let logged = if file.log_bytes() > LOG_BYTES_MAX { LOGGED_MAX } else { 0 };
        Self {
            purge_at: host.now(),
            host,
            conn,
            busy,
            file,
            label,
            sinks,
            records: Records::default(),
            waits: Waits::default(),
            bells,
            effects: Vec::new(),
            logged,
        }
    }

    /// When to look for changes by other processes; `None` while nobody waits.
    pub(super) fn look_due(&self) -> Option<Moment> {
        self.waits.due()
    }

    /// Whether there is work for the store's thread besides requests.
    pub(super) fn needs_care(&self, now: Moment) -> bool {
        self.purge_at <= now || self.logged >= LOGGED_MAX || self.bells.has_new_pipe()
    }

    /// Makes the store's thread listen to the bells of this handle.
    pub(super) fn give_ear(&mut self, ear: &mut Ear) {
        let listened = self.bells.new_pipe().map(|pipe| ear.listen(pipe?));
        if let Some(Err(cause)) = listened {
            self.bells.turn_off(&cause);
            self.waits.look_often(self.host.now());
        }
    }

    /// Runs a job now if that needs no waiting. Returns it if another process has the file locked.
    pub(super) fn serve_at_once(&mut self, job: Box<dyn AnyJob>) -> Option<Box<dyn AnyJob>> {
        if !self.file.is_still_there() {
            job.fail(self.file.moved());
            return None;
        }
        let mut batch = [job];
        let done = self.attempt(&mut batch, Duration::ZERO);
        let [job] = batch;
        match done {
            Ok(()) => {
                self.deliver();
                job.finish();
                None
            }
            Err(failure) if failure.is_busy() => Some(job),
            Err(failure) => {
                job.fail(failure.to_error(&self.label));
                None
            }
        }
    }

    /// Runs a batch, and sends the answers after its commit. If another process has the file
    /// locked, each job waits as long as its limit allows. If a job fails, the others go on.
    pub(super) fn serve(&mut self, batch: &mut Vec<Box<dyn AnyJob>>) {
        if !self.file.is_still_there() {
            for job in batch.drain(..) {
                job.fail(self.file.moved());
            }
            return;
        }
        let mut waited = Duration::ZERO;
        while let Some(limit) = batch.iter().map(|job| job.busy_limit()).min() {
            let failure = match self.attempt(batch, limit.saturating_sub(waited)) {
                Ok(()) => {
                    self.deliver();
                    batch.drain(..).for_each(|job| job.finish());
                    return;
                }
                Err(failure) => failure,
            };
            // The failure may be about one row, which must not cost the leases of others.
            if batch.len() > 1 && failure.is_of_some_jobs() {
                let mut rest = batch.split_off(batch.len() / 2);
                self.serve(batch);
                self.serve(&mut rest);
                return;
            }
            let out_of_time = if failure.is_busy() { limit } else { Duration::MAX };
            waited = limit;
            let failed = batch.extract_if(.., |job| job.busy_limit() <= out_of_time);
            for job in failed {
                job.fail(failure.to_error(&self.label));
            }
        }
    }

    /// Tries to run a batch.
    fn attempt(
        &mut self,
        batch: &mut [Box<dyn AnyJob>],
        busy_limit: Duration,
    ) -> Result<(), SqlFailure> {
        self.busy.set(busy_limit);
        let done = self.try_once(batch);
        self.busy.is_over();
        done
    }

    fn try_once(&mut self, batch: &mut [Box<dyn AnyJob>]) -> Result<(), SqlFailure> {
        self.leave_transaction().map_err(|error| SqlFailure::new(error, Stage::Before))?;
        self.effects.clear();
        self.logged += batch.len();
        if let [job] = batch {
            // A single statement commits by itself, so it may have failed while it committed.
            let done = job
                .quick(&mut self.turn())
                .map_err(|error| SqlFailure::new(error, Stage::Commit))?;
            if done {
                return Ok(());
            }
        }
        let (result, stage) = match self.in_transaction(batch) {
            Ok(()) => (self.execute("COMMIT"), Stage::Commit),
            Err(error) => (Err(error), Stage::Before),
        };
        result.map_err(|error| {
            // An uncommitted transaction leaves nothing behind, after any error. Nothing more may
            // run in it if it is still open.
            let _ = self.leave_transaction();
            SqlFailure::new(error, stage)
        })
    }

    /// Rolls back an open transaction. Also runs before each attempt, because a job that panicked
    /// left its transaction open. Later jobs would be answered in it but never committed.
    fn leave_transaction(&self) -> rusqlite::Result<()> {
        if self.conn.is_autocommit() { Ok(()) } else { self.execute("ROLLBACK") }
    }

    fn in_transaction(&mut self, batch: &mut [Box<dyn AnyJob>]) -> rusqlite::Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        let mut turn = self.turn();
        for job in batch {
            if !job.quick(&mut turn)? {
                job.full(&mut turn)?;
            }
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.conn.run(sql, []).map(|_| ())
    }

    /// A turn at the present moment. The clock is read after the file is locked, not when the job
    /// came.
    fn turn(&mut self) -> Turn<'_> {
        let Self { host, conn, records, effects, bells, .. } = self;
        Turn { conn, now: host.now(), wall: host.wall(), records, effects, bells }
    }

    /// Applies the effects of a committed batch.
    fn deliver(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let now = self.host.now();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Mail(inbox, hint) => {
                    // Holders learn about waiters at their next renewal.
                    if !matches!(hint, Hint::Wanted { .. }) && !self.sinks.has(&inbox) {
                        self.bells.ring(&inbox);
                    }
                    self.sinks.send(&inbox, hint);
                }
                Effect::Waits(key, owner, place, seen) => {
                    self.waits.waits((key, owner), place, seen, now, self.bells.is_on());
                }
                Effect::Settled(key, owner) => self.waits.settled(&key, &owner),
                Effect::Recorded(client) => self.records.written(client, now),
                Effect::Evicted(key, owner, reason) => tracing::warn!(
                    key = %key,
                    token = owner.as_ref().map_or("", |owner| owner.hint()),
                    reason,
                    "a lease was ended by an operator"
                ),
            }
        }
        self.take_bells_down();
    }

    /// Looks for changes by other processes, if that is due or a bell rang.
    pub(super) fn look_if_due(&mut self, is_rung: bool) {
        let now = self.host.now();
        if is_rung || self.waits.due().is_some_and(|due| due <= now) {
            for (inbox, hint) in self.waits.look(&self.conn, now) {
                self.sinks.send(&inbox, hint);
            }
            self.take_bells_down();
        }
    }

    /// Removes the bells if nobody waits.
    fn take_bells_down(&mut self) {
        if self.waits.is_empty() {
            self.bells.take_down();
        }
    }

    /// Forgets idle locks and keeps the log short, when due.
    pub(super) fn take_care(&mut self) {
        let now = self.host.now();
        if self.purge_at <= now {
            self.purge_at = now + purge::LOOK_EVERY;
            self.records.prune(now);
            // Nobody waits for this and it makes nobody wait. If the file is locked, the next run
            // does it.
            self.busy.set(Duration::ZERO);
            match purge::run_if_due(&mut self.conn, now) {
                Ok(true) => self.bells.sweep(self.host.wall()),
                Ok(false) => {}
                Err(cause) => tracing::debug!(%cause, "idle locks could not be purged"),
            }
        }
        if self.logged >= LOGGED_MAX {
            self.logged = 0;
            self.busy.set(Duration::ZERO);
            // The first write after this starts a new log and syncs it to the disk. Do that write
            // here, so that no caller waits for the disk.
            let done = self
                .conn
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                .and_then(|()| self.execute("UPDATE meta SET opened = opened"));
            if let Err(cause) = done {
                tracing::debug!(%cause, "the write-ahead log could not be copied into the file");
            }
        }
    }
}
