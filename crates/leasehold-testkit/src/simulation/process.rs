//! One process of a simulation, with its own host. All hosts follow the common clock.
//!
//! | state | its tasks | its clock | its timers | what it sends |
//! |---|---|---|---|---|
//! | running | go on | runs, at a speed of its own | end | leaves |
//! | stopped | stand still | runs | end, and are seen when it goes on | – |
//! | suspended | stand still | runs | stand still too | – |
//! | dead | are dropped | – | – | nothing |

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, Sleep, Task};

use crate::VirtualHost;
use crate::history::event::ProcessId;
use crate::virtual_host::SeededRandom;

/// A process. It is the [`Host`] of the tasks that run in it. Clones are the same process.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    id: ProcessId,
    common: Arc<VirtualHost>,
    began: Moment,
    /// How much faster than the common clock its own clock runs, in millionths.
    faster_ppm: i64,
    state: Mutex<State>,
    random: Mutex<SeededRandom>,
}

struct State {
    standing: Option<Standing>,
    dead: bool,
    /// How long its timers have stood still so far.
    slept: Duration,
    waiting: Vec<Waker>,
    tasks: Vec<Weak<Slot>>,
}

/// Why a process stands still, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Stopped,
    Suspended(Moment),
}

type Slot = Mutex<Option<Task>>;

impl Process {
    /// A process that begins now. Its clock gains `faster_ppm` parts of a million.
    pub(super) fn new(
        id: ProcessId,
        common: &Arc<VirtualHost>,
        faster_ppm: i64,
        seed: u64,
    ) -> Self {
        Self::since(common.now(), id, common, faster_ppm, seed)
    }

    /// A process whose clock was right at `began`.
    fn since(
        began: Moment,
        id: ProcessId,
        common: &Arc<VirtualHost>,
        faster_ppm: i64,
        seed: u64,
    ) -> Self {
        let state = State {
            standing: None,
            dead: false,
            slept: Duration::ZERO,
            waiting: Vec::new(),
            tasks: Vec::new(),
        };
        Self(Arc::new(Inner {
            id,
            began,
            common: Arc::clone(common),
            faster_ppm,
            state: Mutex::new(state),
            random: Mutex::new(SeededRandom::new(seed)),
        }))
    }

    /// Another process of the same machine, with the same clock.
    pub(super) fn beside(&self, id: ProcessId, seed: u64) -> Self {
        let Inner { common, began, faster_ppm, .. } = &*self.0;
        Self::since(*began, id, common, *faster_ppm, seed)
    }

    /// Its number in the history.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.0.id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Stops the process, as SIGSTOP does.
    pub(super) fn stop(&self) {
        self.state().standing = Some(Standing::Stopped);
    }

    /// Puts the machine of the process to sleep.
    pub(super) fn suspend(&self) {
        let now = self.now();
        self.state().standing = Some(Standing::Suspended(now));
    }

    /// Lets the process go on.
    pub(super) fn resume(&self) {
        let now = self.now();
        let mut state = self.state();
        if let Some(Standing::Suspended(since)) = state.standing.take() {
            state.slept += now.since(since);
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Kills the process. Its tasks are dropped, and nothing that they do during the drop has an
    /// effect.
    pub(super) fn kill(&self) {
        let mut state = self.state();
        state.dead = true;
        state.waiting.clear();
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        for slot in tasks.iter().filter_map(Weak::upgrade) {
            let task = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(task);
        }
    }

    /// Converts a span of its own clock to the common clock.
    pub(super) fn on_common_clock(&self, span: Duration) -> Duration {
        scaled(span, 1_000_000, self.own_second())
    }

    /// How much its clock advances during a million parts of the common clock.
    fn own_second(&self) -> u64 {
        1_000_000_u64.saturating_add_signed(self.0.faster_ppm)
    }

    /// Its clock without the time during which its timers stood still.
    fn awake(&self) -> Moment {
        self.now().minus(self.state().slept)
    }

    /// The moment on the common clock when its own clock has advanced by `span`; never too early.
    fn common_after(&self, span: Duration) -> Moment {
        self.0.common.now() + self.on_common_clock(span) + Duration::from_nanos(2)
    }
}

fn scaled(span: Duration, by: u64, of: u64) -> Duration {
    let nanos = span.as_nanos() * u128::from(by) / u128::from(of);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl Host for Process {
    fn now(&self) -> Moment {
        let passed = self.0.common.now().since(self.0.began);
        self.0.began + scaled(passed, self.own_second(), 1_000_000)
    }

    fn wall(&self) -> WallTime {
        self.0.common.wall()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        let span = at.since(self.now());
        let at = self.awake() + span;
        let inner = self.0.common.sleep_until(self.common_after(span));
        Box::pin(Timer { process: self.clone(), at, inner })
    }

    fn spawn(&self, task: Task) {
        let mut state = self.state();
        if state.dead {
            drop(state);
            return drop(task);
        }
        let slot = Arc::new(Mutex::new(Some(task)));
        if state.tasks.len() == state.tasks.capacity() {
            state.tasks.retain(|task| task.strong_count() > 0);
        }
        state.tasks.push(Arc::downgrade(&slot));
        drop(state);
        self.0.common.spawn(Box::pin(Gated { process: self.clone(), slot }));
    }

    fn spawn_blocking(&self, _name: &str, task: Task) -> Result<(), Error> {
        self.spawn(task);
        Ok(())
    }

    fn may_block(&self) -> bool {
        false
    }

    fn random(&self, bytes: &mut [u8]) {
        self.0.random.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes);
    }
}

/// A task that stands still with its process.
struct Gated {
    process: Process,
    slot: Arc<Slot>,
}

impl Future for Gated {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.process.state();
        if state.dead {
            return Poll::Ready(());
        }
        if state.standing.is_some() {
            state.waiting.push(context.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        // Take the task out during the poll, because it may kill its own process.
        let taken = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = taken else { return Poll::Ready(()) };
        let polled = task.as_mut().poll(context);
        if polled.is_pending() && !self.process.is_dead() {
            *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        }
        polled
    }
}

/// A timer on a clock that stands still while the machine sleeps.
struct Timer {
    process: Process,
    at: Moment,
    inner: Sleep,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let awake = self.process.awake();
            if awake >= self.at {
                return Poll::Ready(());
            }
            if self.inner.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let left = self.at.since(self.process.awake());
            self.inner = self.process.0.common.sleep_until(self.process.common_after(left));
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({})", self.0.id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn process(faster_ppm: i64) -> (Arc<VirtualHost>, Process) {
        let common = VirtualHost::new(1);
        let process = Process::new(ProcessId(0), &common, faster_ppm, 1);
        (common, process)
    }

    /// Starts a task that sleeps for 1 s and runs `act` on its process after 100 ms. Returns how
    /// long the task slept on the common clock.
    fn waits(faster_ppm: i64, act: impl Fn(&Process), undo: impl Fn(&Process)) -> Duration {
        let (common, process) = process(faster_ppm);
        let began = common.now();
        let (timer, clock) = (process.sleep_until(process.now() + ms(1_000)), Arc::clone(&common));
        let ended = common.task({
            let process = process.clone();
            async move {
                let (done, ended) = tokio::sync::oneshot::channel();
                let task = async move {
                    timer.await;
                    let _gone = done.send(clock.now());
                };
                process.spawn(Box::pin(task));
                ended.await.expect("the process lives")
            }
        });
        common.run(async {
            common.advance(ms(100)).await;
            act(&process);
            common.advance(ms(5_000)).await;
            undo(&process);
            let waited = ended.await.since(began);
            common.drop_tasks();
            waited
        })
    }

    #[test]
    fn timers_end_when_the_own_clock_has_come_that_far() {
        let idle = |_: &Process| {};
        assert_eq!(waits(0, idle, idle).as_millis(), 1_000);
        // A second takes 990 ms on a clock that is 1 % fast, and 1,010 ms on a clock that is 1 %
        // slow.
        assert_eq!(waits(10_000, idle, idle).as_millis(), 990);
        assert_eq!(waits(-10_000, idle, idle).as_millis(), 1_010);
    }

    #[test]
    fn the_timers_of_a_stopped_process_go_on_and_those_of_a_sleeping_machine_do_not() {
        assert_eq!(waits(0, Process::stop, Process::resume).as_millis(), 5_100);
        assert_eq!(waits(0, Process::suspend, Process::resume).as_millis(), 6_000);
    }

    #[test]
    fn the_tasks_of_a_killed_process_are_dropped_at_once_and_start_none() {
        struct Dropped(Process, Arc<Mutex<bool>>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                *self.1.lock().expect("alone") = true;
                self.0.spawn(Box::pin(async { panic!("a task of a dead process runs") }));
            }
        }
        let (common, process) = process(0);
        let dropped = Arc::new(Mutex::new(false));
        let guard = Dropped(process.clone(), Arc::clone(&dropped));
        process.spawn(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(guard);
        }));
        common.run(common.settle());
        process.kill();
        assert!(*dropped.lock().expect("alone"));
        common.run(common.settle());
        common.drop_tasks();
    }
}
