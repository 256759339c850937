//! The connection, and how jobs are carried out on it: a batch in one transaction, one job alone by
//! one conditional statement where that is enough.

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
use super::turn::{Effect, Records, Turn};
use super::waits::Waits;
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::Hint;
use crate::store::sinks::Sinks;

/// After how many jobs the log is carried over into the file: some 10 MiB. SQLite would do it
/// inside the commit that happens to be due, and so make one caller wait for the disk.
const LOGGED_MAX: usize = 2_000;

/// From which length on a log that others left behind is carried over.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// The connection, and everything that belongs to it.
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
    /// How many jobs may have left something in the log.
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

    /// When to look for what others did; `None` while nobody waits.
    pub(super) fn look_due(&self) -> Option<Moment> {
        self.waits.due()
    }

    /// Whether there is more to do than to answer: what the store's thread is for.
    pub(super) fn needs_care(&self, now: Moment) -> bool {
        self.purge_at <= now || self.logged >= LOGGED_MAX || self.bells.has_new_pipe()
    }

    /// Lets the store's thread hear the bells of this handle.
    pub(super) fn give_ear(&mut self, ear: &mut Ear) {
        let listened = self.bells.new_pipe().map(|pipe| ear.listen(pipe?));
        if let Some(Err(cause)) = listened {
            self.bells.turn_off(&cause);
            self.waits.look_often(self.host.now());
        }
    }

    /// Carries a job out now, if that takes no waiting. Gives it back if another process has the
    /// file locked.
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

    /// Carries a batch out, and sends the answers once they are committed. Where another process
    /// keeps the file locked, each job waits as long as it may.
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
            let out_of_time = if failure.is_busy() { limit } else { Duration::MAX };
            waited = limit;
            let failed = batch.extract_if(.., |job| job.busy_limit() <= out_of_time);
            for job in failed {
                job.fail(failure.to_error(&self.label));
            }
        }
    }

    /// Tries to carry a batch out.
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
            // On its own, a statement that fails may have failed while it committed.
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
            // Whatever it says, nothing is kept of a transaction that was not committed; and if it
            // is still open, nothing more is done in it.
            let _ = self.leave_transaction();
            SqlFailure::new(error, stage)
        })
    }

    /// Rolls a transaction back that is still open. Also before each attempt: a job that panicked
    /// left its own, in which the next ones would be answered but never committed.
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
        self.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    /// A turn at the present moment: read when the file is ours, not when the job came.
    fn turn(&mut self) -> Turn<'_> {
        let Self { host, conn, records, effects, bells, .. } = self;
        Turn { conn, now: host.now(), wall: host.wall(), records, effects, bells }
    }

    /// Does what follows from a batch that is committed.
    fn deliver(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let now = self.host.now();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Mail(inbox, hint) => {
                    // Those who hold notice at their next renewal who waits for it.
                    if !matches!(hint, Hint::Wanted { .. }) && !self.sinks.has(&inbox) {
                        self.bells.ring(&inbox);
                    }
                    self.sinks.send(&inbox, hint);
                }
                Effect::Waits(key, waiting) => {
                    self.waits.waits(key, waiting, now, self.bells.is_on());
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

    /// Looks for what other processes did, if it is time to, or if a bell rang.
    pub(super) fn look_if_due(&mut self, is_rung: bool) {
        let now = self.host.now();
        if is_rung || self.waits.due().is_some_and(|due| due <= now) {
            for (inbox, hint) in self.waits.look(&self.conn, now) {
                self.sinks.send(&inbox, hint);
            }
            self.take_bells_down();
        }
    }

    /// Where nobody waits, no bell hangs.
    fn take_bells_down(&mut self) {
        if self.waits.is_empty() {
            self.bells.take_down();
        }
    }

    /// Forgets what is idle, and keeps the log short, if it is time to.
    pub(super) fn take_care(&mut self) {
        let now = self.host.now();
        if self.purge_at <= now {
            self.purge_at = now + purge::LOOK_EVERY;
            self.records.prune(now);
            // Nobody waits for it, and it makes nobody wait: if the file is locked, the next run
            // will do.
            self.busy.set(Duration::ZERO);
            match purge::run_if_due(&mut self.conn, now) {
                Ok(true) => self.bells.sweep(),
                Ok(false) => {}
                Err(cause) => tracing::debug!(%cause, "idle locks could not be purged"),
            }
        }
        if self.logged >= LOGGED_MAX {
            self.logged = 0;
            self.busy.set(Duration::ZERO);
            // The first write after it begins the log anew, and syncs it to the disk: that one is
            // ours, so that no caller waits for the disk on its own thread.
            let done = self
                .conn
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                .and_then(|()| self.execute("UPDATE meta SET opened = opened"));
            if let Err(cause) = done {
                tracing::debug!(%cause, "the log could not be carried over into the file");
            }
        }
    }
}
