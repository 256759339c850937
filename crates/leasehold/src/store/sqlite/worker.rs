//! Runs jobs: at once on the caller's thread, or in batches on the store's thread.
//!
//! A lock or a release takes a few microseconds, much less than waking another thread. So the
//! caller runs its own job if nobody else uses the file, in this process or another. It never waits
//! for others, and hardly ever for the disk. The log is synced only when it starts from its
//! beginning again, which happens while opening and on the store's thread. (If another process has
//! just checkpointed the log, the next caller starts it again.)
//!
//! In all other cases, jobs queue for the store's thread. So do renewals, which come in large
//! numbers. So do all requests on the host's own thread, because it serves every client of the
//! process, and must not wait for a disk.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::{Notify, mpsc};

use super::ear::Ear;
use super::engine::Engine;
use super::step::AnyJob;
use crate::core::moment::Moment;
use crate::host::{Host, is_own_thread};

/// The most jobs in one transaction.
const BATCH_MAX: usize = 1_024;

/// The state that callers share with the store's thread.
pub(super) struct Desk {
    engine: Mutex<Engine>,
    /// How many jobs are queued without an answer. Direct calls must not overtake them.
    queued: AtomicUsize,
    /// Wakes the store's thread for work other than jobs.
    care: Notify,
}

impl Desk {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine: Mutex::new(engine), queued: AtomicUsize::new(0), care: Notify::new() }
    }

    /// Runs a job on this thread, if that needs no waiting. Otherwise returns it.
    pub(super) fn serve_at_once(
        &self,
        host: &dyn Host,
        job: Box<dyn AnyJob>,
    ) -> Option<Box<dyn AnyJob>> {
        if is_own_thread() {
            return Some(job);
        }
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(job),
        };
        // Check only under the engine's lock, because jobs that were queued earlier are answered by
        // then.
        if self.queued.load(Ordering::Acquire) > 0 {
            return Some(job);
        }
        let due = engine.look_due();
        let left = engine.serve_at_once(job);
        let is_sooner = engine.look_due().is_some_and(|now| due.is_none_or(|due| now < due));
        let needs_care = is_sooner || engine.needs_care(host.now());
        // Unlock first, or the store's thread would wake up only to wait for the engine.
        drop(engine);
        if needs_care {
            self.care.notify_one();
        }
        left
    }

    /// Counts a job that will be queued.
    pub(super) fn enter(&self) {
        self.queued.fetch_add(1, Ordering::AcqRel);
    }

    /// Subtracts jobs that were answered, or not queued after all.
    pub(super) fn leave(&self, jobs: usize) {
        self.queued.fetch_sub(jobs, Ordering::AcqRel);
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        // A job that panicked left its transaction open. The next job rolls it back.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events that wake the store's thread.
enum Event {
    Job(Box<dyn AnyJob>),
    Care,
    /// A bell rang: another process may have handed a key over.
    Rung,
    Closed,
}

/// Runs until every handle of the store is gone and every job is done.
pub(super) async fn work(
    host: Arc<dyn Host>,
    desk: Arc<Desk>,
    mut jobs: mpsc::Receiver<Box<dyn AnyJob>>,
) {
    let mut batch = Vec::new();
    let mut ear = Ear::default();
    loop {
        let look_due = {
            let mut engine = desk.engine();
            engine.give_ear(&mut ear);
            engine.look_due()
        };
        let mut is_rung = false;
        match next_event(&*host, &desk.care, &mut jobs, look_due, &ear).await {
            Event::Job(job) => batch.push(job),
            Event::Care => {}
            Event::Rung => is_rung = true,
            Event::Closed => return,
        }
        while batch.len() < BATCH_MAX
            && let Ok(job) = jobs.try_recv()
        {
            batch.push(job);
        }
        let count = batch.len();
        let mut engine = desk.engine();
        if count > 0 {
            engine.serve(&mut batch);
            desk.leave(count);
        }
        engine.look_if_due(is_rung);
        engine.take_care();
    }
}

async fn next_event(
    host: &dyn Host,
    care: &Notify,
    jobs: &mut mpsc::Receiver<Box<dyn AnyJob>>,
    look_due: Option<Moment>,
    ear: &Ear,
) -> Event {
    let looking = async {
        match look_due {
            Some(due) => host.sleep_until(due).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = ear.rung() => Event::Rung,
        job = jobs.recv() => job.map_or(Event::Closed, Event::Job),
        () = care.notified() => Event::Care,
        () = looking => Event::Care,
    }
}
