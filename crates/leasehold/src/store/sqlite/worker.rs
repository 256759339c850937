//! The task on the store's own thread: it takes jobs in batches, writes each batch in one
//! transaction, and watches for what other processes do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::mpsc;

use super::attention::{Attention, Rhythm};
use super::error::{SqlFailure, Stage};
use super::file::StoreFile;
use super::purge;
use super::step::{AnyJob, BUSY_LIMIT_MAX};
use super::turn::{Effect, Records, Turn};
use super::waits::Waits;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::Host;
use crate::store::{Hint, HintSink};

/// How many jobs one transaction takes at most.
const BATCH_MAX: usize = 1_024;

/// Where the hints of this process go.
#[derive(Default)]
pub(super) struct Sinks(Mutex<HashMap<ClientId, Weak<dyn HintSink>>>);

impl Sinks {
    pub(super) fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        self.lock().insert(inbox, sink);
    }

    fn send(&self, inbox: &ClientId, hint: Hint) {
        // Called without the lock: a sink may be what drops the last handle of a client.
        let sink = self.lock().get(inbox).and_then(Weak::upgrade);
        if let Some(sink) = sink {
            sink.hint(hint);
        }
    }

    fn prune(&self) {
        self.lock().retain(|_, sink| sink.strong_count() > 0);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Weak<dyn HintSink>>> {
        // The map is whole at every moment: it is changed by single insertions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker works with.
pub(super) struct Work {
    pub(super) host: Arc<dyn Host>,
    pub(super) conn: Connection,
    pub(super) file: StoreFile,
    pub(super) label: String,
    pub(super) jobs: mpsc::Receiver<Box<dyn AnyJob>>,
    pub(super) sinks: Arc<Sinks>,
    pub(super) attention: Arc<Attention>,
}

/// The task, and everything that it alone touches.
pub(super) struct Worker {
    work: Work,
    rhythm: Rhythm,
    records: Records,
    waits: Waits,
    effects: Vec<Effect>,
    busy_limit: Option<Duration>,
    purge_at: Moment,
}

/// What the worker wakes up for.
enum Event {
    Job(Box<dyn AnyJob>),
    Look,
    Closed,
}

impl Worker {
    pub(super) fn new(work: Work) -> Self {
        let purge_at = work.host.now();
        Self {
            work,
            rhythm: Rhythm::default(),
            records: Records::default(),
            waits: Waits::default(),
            effects: Vec::new(),
            busy_limit: None,
            purge_at,
        }
    }

    /// Serves until every handle of the store is gone and every job is done.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            match self.next_event().await {
                Event::Job(job) => batch.push(job),
                Event::Look => {}
                Event::Closed => return,
            }
            while batch.len() < BATCH_MAX
                && let Ok(job) = self.work.jobs.try_recv()
            {
                batch.push(job);
            }
            if !batch.is_empty() {
                self.rhythm.on_jobs(self.work.host.now(), batch.len());
                self.serve(&mut batch);
            }
            let now = self.work.host.now();
            self.rhythm.on_done(now);
            if self.waits.due().is_some_and(|due| due <= now) {
                self.look(now);
            }
            if self.purge_at <= now {
                self.purge(now);
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let Work { host, jobs, attention, .. } = &mut self.work;
        if let Some(job) = self.rhythm.await_job(&**host, jobs) {
            return Event::Job(job);
        }
        attention.set_awake(false);
        let job = match self.waits.due() {
            None => jobs.recv().await,
            Some(due) => tokio::select! {
                biased;
                job = jobs.recv() => job,
                () = host.sleep_until(due) => return Event::Look,
            },
        };
        attention.set_awake(true);
        job.map_or(Event::Closed, Event::Job)
    }

    /// Carries a batch out, and sends the answers once they are committed. Where another process
    /// keeps the file locked, each job waits as long as it may.
    fn serve(&mut self, batch: &mut Vec<Box<dyn AnyJob>>) {
        if !self.work.file.is_still_there() {
            for job in batch.drain(..) {
                job.fail(self.work.file.moved());
            }
            return;
        }
        let mut waited = Duration::ZERO;
        while let Some(limit) = batch.iter().map(|job| job.busy_limit()).min() {
            let failure = match self.attempt(batch, limit - waited) {
                Ok(()) => {
                    self.deliver();
                    batch.drain(..).for_each(|job| job.finish());
                    return;
                }
                Err(failure) => failure,
            };
            let out_of_time = if failure.is_busy() { limit } else { BUSY_LIMIT_MAX };
            waited = limit;
            let failed = batch.extract_if(.., |job| job.busy_limit() <= out_of_time);
            for job in failed {
                job.fail(failure.to_error(&self.work.label));
            }
        }
    }

    /// Tries to carry a batch out.
    fn attempt(
        &mut self,
        batch: &mut [Box<dyn AnyJob>],
        busy_limit: Duration,
    ) -> Result<(), SqlFailure> {
        self.set_busy_limit(busy_limit)?;
        self.effects.clear();
        if let [job] = batch {
            // On its own, a statement that fails may have failed while it committed.
            let done = job
                .quick(&mut turn(
                    &*self.work.host,
                    &self.work.conn,
                    &self.records,
                    &mut self.effects,
                ))
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
            if !self.work.conn.is_autocommit() {
                // Whatever it says, nothing is kept of a transaction that was not committed.
                let _ = self.execute("ROLLBACK");
            }
            SqlFailure::new(error, stage)
        })
    }

    fn in_transaction(&mut self, batch: &mut [Box<dyn AnyJob>]) -> rusqlite::Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        let mut turn = turn(&*self.work.host, &self.work.conn, &self.records, &mut self.effects);
        for job in batch {
            if !job.quick(&mut turn)? {
                job.full(&mut turn)?;
            }
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.work.conn.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    fn set_busy_limit(&mut self, limit: Duration) -> Result<(), SqlFailure> {
        if self.busy_limit != Some(limit) {
            self.work
                .conn
                .busy_timeout(limit)
                .map_err(|error| SqlFailure::new(error, Stage::Before))?;
            self.busy_limit = Some(limit);
        }
        Ok(())
    }

    /// Does what follows from a batch that is committed.
    fn deliver(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let now = self.work.host.now();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Mail(inbox, hint) => self.work.sinks.send(&inbox, hint),
                Effect::Waits(key, waiting) => self.waits.waits(key, waiting, now),
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
    }

    fn look(&mut self, now: Moment) {
        for (inbox, hint) in self.waits.look(&self.work.conn, now) {
            self.work.sinks.send(&inbox, hint);
        }
    }

    fn purge(&mut self, now: Moment) {
        self.purge_at = now + purge::LOOK_EVERY;
        self.records.prune(now);
        self.work.sinks.prune();
        // Nobody waits for it, and it makes nobody wait: if the file is locked, the next run will
        // do.
        let done = self.set_busy_limit(Duration::ZERO).and_then(|()| {
            purge::run_if_due(&mut self.work.conn, now)
                .map_err(|error| SqlFailure::new(error, Stage::Before))
        });
        if let Err(failure) = done {
            tracing::debug!(cause = %failure.cause, "idle locks could not be purged");
        }
    }
}

/// A turn at the present moment: read when the file is ours, not when the job came.
fn turn<'a>(
    host: &dyn Host,
    conn: &'a Connection,
    records: &'a Records,
    effects: &'a mut Vec<Effect>,
) -> Turn<'a> {
    Turn { conn, now: host.now(), wall: host.wall(), records, effects }
}
