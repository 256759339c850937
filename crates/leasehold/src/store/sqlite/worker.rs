//! Who carries jobs out, and where: at once on the caller's thread, or in batches on the store's.
//!
//! A lock and a release take a few microseconds each, several times less than it takes to wake
//! another thread. So a caller carries its own job out if nobody is at the file, neither here nor
//! in another process. It never waits for them, and hardly ever for the disk: the log is synced to
//! it only when it begins anew, which is done while opening and by the store's thread. (If another
//! process carried the log over just now, the next caller begins it anew.) In all other cases, for
//! renewals, which come many at once, and for all that is asked on the host's own thread, which
//! serves every client of the process and must wait for no disk, jobs queue for the store's thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::{Notify, mpsc};

use super::ear::Ear;
use super::engine::Engine;
use super::step::AnyJob;
use crate::core::moment::Moment;
use crate::host::{Host, is_own_thread};

/// How many jobs one transaction takes at most.
const BATCH_MAX: usize = 1_024;

/// What callers and the store's thread share.
pub(super) struct Desk {
    engine: Mutex<Engine>,
    /// How many jobs are queued and not answered. Who asks at once must not overtake them.
    queued: AtomicUsize,
    /// Wakes the store's thread for what is no job.
    care: Notify,
}

impl Desk {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine: Mutex::new(engine), queued: AtomicUsize::new(0), care: Notify::new() }
    }

    /// Carries a job out on this thread, if that takes no waiting; else gives it back.
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
        // Only looked at with the engine in hand: what was queued before this is then answered.
        if self.queued.load(Ordering::Acquire) > 0 {
            return Some(job);
        }
        let due = engine.look_due();
        let left = engine.serve_at_once(job);
        let is_sooner = engine.look_due().is_some_and(|now| due.is_none_or(|due| now < due));
        let needs_care = is_sooner || engine.needs_care(host.now());
        // Or the store's thread would wake up only to wait for the engine.
        drop(engine);
        if needs_care {
            self.care.notify_one();
        }
        left
    }

    /// Counts a job that is about to be queued.
    pub(super) fn enter(&self) {
        self.queued.fetch_add(1, Ordering::AcqRel);
    }

    /// Discounts jobs that were answered, or not queued after all.
    pub(super) fn leave(&self, jobs: usize) {
        self.queued.fetch_sub(jobs, Ordering::AcqRel);
    }

    fn engine(&self) -> MutexGuard<'_, Engine> {
        // A job that panicked has left its transaction, which the next one rolls back.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the store's thread wakes up for.
enum Event {
    Job(Box<dyn AnyJob>),
    Care,
    /// A bell rang: another process may have handed something over.
    Rung,
    Closed,
}

/// Serves until every handle of the store is gone and every job is done.
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
