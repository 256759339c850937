//! Tasks with real network input and output, on a thread of their own, and the outside that they
//! talk to.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Task;
use tokio::runtime::Runtime;

/// How long such tasks may run in real time before the test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Something real that the tasks of a [`VirtualHost`](super::VirtualHost) talk to. Its answers take
/// real time, but no virtual time.
pub trait Outside: Send + Sync + 'static {
    /// Blocks until everything that was on its way has arrived and its waiters have been woken.
    /// Panics if something does not arrive within a limited time.
    fn settle(&self);

    /// A number that grows whenever something goes out.
    fn went_out(&self) -> u64;

    /// Tells the outside the virtual time.
    fn time_is(&self, now: Moment);
}

/// The thread of these tasks. It starts with the first task.
#[derive(Debug, Default)]
pub(super) struct IoThread {
    runtime: Mutex<Option<Runtime>>,
    turns: Arc<Turns>,
}

impl IoThread {
    pub(super) fn spawn(&self, task: Task) {
        let turn = Arc::new(Turn { turns: Arc::clone(&self.turns), state: Mutex::default() });
        turn.wake_by_ref();
        let task = IoTask { task: Some(task), turn };
        self.runtime().get_or_insert_with(start).spawn(task);
    }

    /// Blocks until every task waits for the outside or for time.
    ///
    /// # Panics
    ///
    /// If a task panicked, or if the tasks do not stop running.
    pub(super) fn rest(&self) {
        let limit = |state: &mut TurnsState| state.busy > 0 && state.panic.is_none();
        let rested = self.turns.rested.wait_timeout_while(self.turns.state(), PATIENCE, limit);
        let (mut state, waited) = rested.unwrap_or_else(PoisonError::into_inner);
        if let Some(panic) = state.panic.take() {
            drop(state);
            resume_unwind(panic);
        }
        let busy = state.busy;
        drop(state);
        assert!(!waited.timed_out(), "{busy} turns of I/O tasks do not end within {PATIENCE:?}");
    }

    /// Drops every task. Returns whether there may have been any.
    pub(super) fn stop(&self) -> bool {
        let runtime = self.runtime().take();
        let ran = runtime.is_some();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(PATIENCE);
        }
        ran
    }

    fn runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        // The last owner may be one of its own tasks, which cannot wait for itself.
        if let Some(runtime) = self.runtime().take() {
            runtime.shutdown_background();
        }
    }
}

fn start() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("virtual host I/O")
        .enable_all()
        .build()
        .expect("the process may start one more thread")
}

/// How many tasks were woken or are being polled.
#[derive(Debug, Default)]
struct Turns {
    state: Mutex<TurnsState>,
    rested: Condvar,
}

#[derive(Debug, Default)]
struct TurnsState {
    busy: usize,
    panic: Option<Box<dyn Any + Send>>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, TurnsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.state().busy += 1;
    }

    fn end(&self) {
        let mut state = self.state();
        state.busy -= 1;
        if state.busy == 0 {
            self.rested.notify_all();
        }
    }

    fn panicked(&self, panic: Box<dyn Any + Send>) {
        self.state().panic.get_or_insert(panic);
        self.rested.notify_all();
    }
}

/// The turns of one task, and its waker. The task counts as busy from the call that wakes it.
#[derive(Debug)]
struct Turn {
    turns: Arc<Turns>,
    state: Mutex<TurnState>,
}

#[derive(Debug, Default)]
struct TurnState {
    woken: bool,
    over: bool,
    waker: Option<Waker>,
}

impl Turn {
    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, waker: &Waker) {
        self.turns.begin();
        let mut state = self.state();
        if std::mem::take(&mut state.woken) {
            self.turns.end();
        }
        let before = state.waker.replace(waker.clone());
        drop(state);
        drop(before);
    }

    fn is_over(&self) {
        let mut state = self.state();
        state.over = true;
        if std::mem::take(&mut state.woken) {
            self.turns.end();
        }
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.state();
        if state.over {
            return;
        }
        if !std::mem::replace(&mut state.woken, true) {
            self.turns.begin();
        }
        let waker = state.waker.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct IoTask {
    task: Option<Task>,
    turn: Arc<Turn>,
}

impl Future for IoTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let turn = Arc::clone(&self.turn);
        turn.begin(context.waker());
        let waker = Waker::from(Arc::clone(&turn));
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let Some(task) = &mut self.task else { return Poll::Ready(()) };
            let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                // Drop the task inside the turn, so that the tasks that it wakes count before the
                // turn ends.
                self.task = None;
            }
            polled
        }));
        let polled = polled.unwrap_or_else(|panic| {
            turn.turns.panicked(panic);
            Poll::Ready(())
        });
        turn.turns.end();
        polled
    }
}

impl Drop for IoTask {
    fn drop(&mut self) {
        self.turn.is_over();
    }
}
