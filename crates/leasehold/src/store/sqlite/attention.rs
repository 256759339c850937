//! A moment of attention before sleep, on both sides of the thread boundary.
//!
//! Waking a thread that sleeps takes several times as long as a lock does. So where requests come
//! one by one and close together, the store's thread looks out for the next one for some
//! microseconds before it sleeps, and a caller whose request is the only one looks out for the
//! answer as long as the store's thread is awake. Both end soon, and neither happens in a process
//! that is idle or that sends many requests at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::core::moment::Moment;
use crate::host::Host;

/// How long either side looks out.
const LOOK_OUT: Duration = Duration::from_micros(50);

/// How close together requests come for which it is worth it: what a wake-up costs is in it.
const CLOSE: Duration = Duration::from_micros(200);

/// How often either side looks at most, whatever the clock says: in simulation it stands still.
const LOOKS_MAX: usize = 500;

/// How many times a processor is told to pause between two looks.
const PAUSES: usize = 4;

/// Whether the store's thread is awake.
#[derive(Debug, Default)]
pub(super) struct Attention {
    awake: AtomicBool,
}

impl Attention {
    /// Looks out for the answer to the only request, as long as the store's thread is awake.
    pub(super) fn await_answer<T>(
        &self,
        host: &dyn Host,
        answer: &mut oneshot::Receiver<T>,
    ) -> Option<T> {
        look_out(host, || match answer.try_recv() {
            Ok(answer) => Some(Some(answer)),
            Err(TryRecvError::Empty) if self.awake.load(Ordering::Relaxed) => None,
            Err(_) => Some(None),
        })
        .flatten()
    }

    /// The store's thread goes to sleep, or wakes up.
    pub(super) fn set_awake(&self, awake: bool) {
        self.awake.store(awake, Ordering::Relaxed);
    }
}

/// How close together requests come lately.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    done: Option<Moment>,
    is_close: bool,
}

impl Rhythm {
    /// A request came, alone or with others.
    pub(super) fn on_jobs(&mut self, now: Moment, count: usize) {
        self.is_close = count == 1 && self.done.is_some_and(|done| now.since(done) < CLOSE);
    }

    /// All that came is done.
    pub(super) fn on_done(&mut self, now: Moment) {
        self.done = Some(now);
    }

    /// Looks out for the next request, if it may come soon.
    pub(super) fn await_job<T>(&self, host: &dyn Host, jobs: &mut mpsc::Receiver<T>) -> Option<T> {
        if !self.is_close {
            return None;
        }
        look_out(host, || match jobs.try_recv() {
            Ok(job) => Some(Some(job)),
            Err(mpsc::error::TryRecvError::Empty) => None,
            Err(mpsc::error::TryRecvError::Disconnected) => Some(None),
        })
        .flatten()
    }
}

fn look_out<T>(host: &dyn Host, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    if is_single_core() {
        return look();
    }
    let until = host.now() + LOOK_OUT;
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return Some(found);
        }
        if host.now() >= until {
            return None;
        }
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
    }
    None
}

/// Whether there is but one processor: then nothing happens while one looks out.
fn is_single_core() -> bool {
    use std::sync::OnceLock;
    static SINGLE: OnceLock<bool> = OnceLock::new();
    *SINGLE.get_or_init(|| available_parallelism().is_ok_and(|cores| cores.get() == 1))
}
