//! Who carries jobs out, and where: at once on the caller's thread, or in batches on the store's.
//!
//! A lock and a release take a few microseconds each, several times less than it takes to wake
//! another thread. So a caller carries its own job out if nobody is at the file, neither here nor
//! in another process: it never waits, not even for the disk, since nothing here is synced to it.
//! In all other cases, and for renewals, which come many at once, jobs queue for the store's
//! thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use tokio::sync::{Notify, mpsc};

use super::engine::Engine;
use super::step::AnyJob;
use crate::core::moment::Moment;
use crate::host::Host;

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
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(job),
        };
        // Only looked at with the engine in hand: what was queued before this is then answered.
        if self.queued.load(Ordering::Acquire) > 0 {
            return Some(job);
        }
        let watched = engine.look_due().is_some();
        let left = engine.serve_at_once(job);
        let needs_care = engine.needs_care(host.now()) || engine.look_due().is_some() != watched;
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
    Closed,
}

/// Serves until every handle of the store is gone and every job is done.
pub(super) async fn work(
    host: Arc<dyn Host>,
    desk: Arc<Desk>,
    mut jobs: mpsc::Receiver<Box<dyn AnyJob>>,
) {
    let mut batch = Vec::new();
    loop {
        let look_due = desk.engine().look_due();
        match next_event(&*host, &desk.care, &mut jobs, look_due).await {
            Event::Job(job) => batch.push(job),
            Event::Care => {}
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
        engine.look_if_due();
        engine.take_care();
    }
}

async fn next_event(
    host: &dyn Host,
    care: &Notify,
    jobs: &mut mpsc::Receiver<Box<dyn AnyJob>>,
    look_due: Option<Moment>,
) -> Event {
    let looking = async {
        match look_due {
            Some(due) => host.sleep_until(due).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        job = jobs.recv() => job.map_or(Event::Closed, Event::Job),
        () = care.notified() => Event::Care,
        () = looking => Event::Care,
    }
}
