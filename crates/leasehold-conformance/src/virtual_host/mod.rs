//! A host on virtual time: nothing really sleeps, and everything follows from a seed.

mod clock;
mod io;
#[cfg(test)]
mod io_tests;
mod joined;
mod random;
mod settle;
mod tasks;
#[cfg(test)]
mod tests;
mod timers;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::Error;
use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, Sleep, Task};

pub use self::clock::{UP_AT_START, unstepped_wall};
pub use self::io::Outside;
pub use self::joined::Joined;
pub use self::random::SeededRandom;

use self::clock::Clock;
use self::io::IoThread;
use self::settle::{Settle, Settling};
use self::tasks::{ROOT, Ready, TaskId, Tasks};
use self::timers::{Timers, VirtualSleep};

/// How many polls may happen at one moment before the host assumes an endless loop.
const POLLS_AT_ONE_MOMENT_MAX: u64 = 20_000_000;

/// How often something may arrive from outside at one moment before the host assumes an endless
/// loop.
const ARRIVALS_AT_ONE_MOMENT_MAX: u64 = 1_000_000;

/// A virtual machine: clocks, tasks on one thread, and random numbers.
///
/// Time stands still while any task can go on. If no task can go on, time jumps to the next timer.
/// The seed decides which task runs next, and every random byte. So the same seed gives the same
/// run, and another seed gives another interleaving. Wakers may come from other threads, but then
/// the run is not repeatable.
///
/// An [attached](Self::attach) outside is real and keeps up with virtual time. Time stands still
/// until everything on its way from there has arrived.
///
/// ```
/// use std::time::Duration;
/// use leasehold::host::Host;
/// use leasehold_conformance::VirtualHost;
///
/// let host = VirtualHost::new(7);
/// let before = host.now();
/// host.run(host.advance(Duration::from_secs(3600)));
/// assert_eq!(host.now().since(before), Duration::from_secs(3600));
/// ```
pub struct VirtualHost {
    seed: u64,
    shared: Arc<Shared>,
    running: AtomicBool,
    outsides: Mutex<Vec<Arc<dyn Outside>>>,
    io: IoThread,
}

struct Shared {
    state: Mutex<State>,
    ready: Arc<Ready>,
}

struct State {
    clock: Clock,
    timers: Timers,
    tasks: Tasks,
    settling: Vec<Settling>,
    /// Decides which task runs next. Separate from `bytes`, so that one more random token changes
    /// nothing else in a run.
    choices: SeededRandom,
    bytes: SeededRandom,
    polls_at_this_moment: u64,
    fingerprint: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A test may have panicked while it held the lock. Drops after that must not panic again.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VirtualHost {
    /// Creates a machine whose choices all follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        let mut seeds = SeededRandom::new(seed);
        let state = State {
            clock: Clock::new(),
            timers: Timers::default(),
            tasks: Tasks::default(),
            settling: Vec::new(),
            choices: SeededRandom::new(seeds.next_u64()),
            bytes: SeededRandom::new(seeds.next_u64()),
            polls_at_this_moment: 0,
            fingerprint: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), ready: Arc::default() });
        Arc::new(Self {
            seed,
            shared,
            running: AtomicBool::new(false),
            outsides: Mutex::default(),
            io: IoThread::default(),
        })
    }

    /// Attaches something real, which the tasks then talk to. Tasks with network input and output
    /// run on a thread of their own, and virtual time waits for everything on its way. The run is
    /// not repeatable any more.
    pub fn attach(&self, outside: Arc<dyn Outside>) {
        outside.time_is(self.now());
        self.outsides.lock().unwrap_or_else(PoisonError::into_inner).push(outside);
    }

    /// The seed of the machine.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// A hash of all scheduling decisions so far. Equal runs have equal fingerprints.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.shared.state().fingerprint
    }

    /// Runs `root` and all other tasks until `root` ends. The remaining tasks go on in the next
    /// run.
    ///
    /// # Panics
    ///
    /// - If all tasks wait and no timer is set.
    /// - If the tasks loop endlessly while time stands still.
    /// - If something outside does not answer.
    /// - If it is called inside itself.
    /// - If a task panics.
    ///
    /// The seed is printed then.
    pub fn run<T>(&self, root: impl Future<Output = T>) -> T {
        let _running = Running::begin(self);
        let mut root = pin!(root);
        let waker = self.shared.ready.waker(ROOT);
        self.shared.ready.add(ROOT);
        loop {
            match self.choose() {
                Some(ROOT) => {
                    if let Poll::Ready(output) =
                        root.as_mut().poll(&mut Context::from_waker(&waker))
                    {
                        self.shared.ready.remove(ROOT);
                        return output;
                    }
                }
                Some(id) => self.poll_task(id),
                None if self.something_came_in() => {}
                None => self.go_on_in_time(),
            }
        }
    }

    /// Ends when `span` has passed and no task can go on at that moment, so everything that was due
    /// is done. Between two runs: `host.run(host.advance(span))`.
    pub fn advance(&self, span: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        let sleep = self.sleep_until(self.now() + span);
        let settle = self.settle();
        async move {
            sleep.await;
            settle.await;
        }
    }

    /// Ends when no task can go on until time goes on.
    pub fn settle(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        Settle::new(Arc::clone(&self.shared))
    }

    /// Runs `task` concurrently with the other tasks. Await the returned value for its output, or
    /// drop the value and let the task go on.
    pub fn task<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Joined<T> {
        let (joined, task) = joined::join(task);
        self.spawn(Box::pin(task));
        joined
    }

    /// The output of `future` if it comes within `limit`, including the last moment.
    pub async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut timer = self.sleep_until(self.now() + limit);
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            timer.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// Puts the machine to sleep for `span`. Its steady clock and the time of day go on, but timers
    /// stand still.
    pub fn suspend(&self, span: Duration) {
        self.shared.state().clock.suspend(span);
        self.tell_the_time();
    }

    /// Steps the time of day by that many microseconds, forward or back.
    pub fn step_wall(&self, by_us: i64) {
        self.shared.state().clock.step_wall(by_us);
    }

    /// How many tasks there are, without the root and without those of network input and output.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.shared.state().tasks.count()
    }

    /// Drops every task, as the end of a process does. Tasks usually own a reference to their host,
    /// so this breaks the cycle at the end of a test.
    pub fn drop_tasks(&self) {
        // One round is not enough, because a drop may spawn tasks.
        for _ in 0..100 {
            let tasks = self.shared.state().tasks.take_all();
            let none = tasks.is_empty();
            drop(tasks);
            if !self.io.stop() && none {
                return;
            }
        }
    }

    fn choose(&self) -> Option<TaskId> {
        let mut guard = self.shared.state();
        let state = &mut *guard;
        let chosen = self.shared.ready.take(|ready| state.choices.below(ready))?;
        state.polls_at_this_moment += 1;
        assert!(
            state.polls_at_this_moment < POLLS_AT_ONE_MOMENT_MAX,
            "the tasks go in circles: {POLLS_AT_ONE_MOMENT_MAX} polls, and time stands still"
        );
        for number in [chosen.0, state.clock.now().as_nanos()] {
            // FNV-1a over numbers instead of bytes.
            state.fingerprint = (state.fingerprint ^ number).wrapping_mul(0x0100_0000_01b3);
        }
        Some(chosen)
    }

    fn poll_task(&self, id: TaskId) {
        let taken = self.shared.state().tasks.take(id);
        // A waker may outlive its task.
        let Some(mut task) = taken else { return };
        let waker = self.shared.ready.waker(id);
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.shared.state().tasks.put_back(id, task);
        }
    }

    fn outsides(&self) -> Vec<Arc<dyn Outside>> {
        self.outsides.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell_the_time(&self) {
        let now = self.now();
        self.outsides().iter().for_each(|outside| outside.time_is(now));
    }

    /// Waits for everything on its way from outside, if no task can go on. Returns whether a task
    /// can go on after that.
    fn something_came_in(&self) -> bool {
        let outsides = self.outsides();
        if outsides.is_empty() {
            return false;
        }
        let went_out = || outsides.iter().map(|outside| outside.went_out()).sum::<u64>();
        for _ in 0..ARRIVALS_AT_ONE_MOMENT_MAX {
            self.io.rest();
            let before = went_out();
            if self.shared.ready.is_empty() {
                outsides.iter().for_each(|outside| outside.settle());
                self.io.rest();
            }
            if !self.shared.ready.is_empty() {
                return true;
            }
            // No task has sent anything since everything arrived, so nothing can come.
            if went_out() == before {
                return false;
            }
        }
        panic!("the I/O tasks and the outside go in circles, and time stands still");
    }

    /// If no task can go on, wakes the tasks that waited for that, or jumps to the next timer.
    fn go_on_in_time(&self) {
        let mut state = self.shared.state();
        let settling = std::mem::take(&mut state.settling);
        if !settling.is_empty() {
            drop(state);
            settling.into_iter().for_each(Settling::tell);
            return;
        }
        let Some(next) = state.timers.next() else {
            let tasks = state.tasks.count();
            drop(state);
            panic!(
                "everybody waits and no timer is set: the root future and {tasks} tasks can never \
                 go on"
            );
        };
        let awake = state.clock.awake().max(next);
        state.clock.advance_to(awake);
        state.polls_at_this_moment = 0;
        let due = state.timers.take_due(awake);
        drop(state);
        self.tell_the_time();
        due.into_iter().for_each(std::task::Waker::wake);
    }
}

impl Host for VirtualHost {
    fn now(&self) -> Moment {
        self.shared.state().clock.now()
    }

    fn wall(&self) -> WallTime {
        self.shared.state().clock.wall()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        let at = self.shared.state().clock.timer_for(at);
        Box::pin(VirtualSleep::new(Arc::clone(&self.shared), at))
    }

    fn spawn(&self, task: Task) {
        let id = self.shared.state().tasks.add(task);
        self.shared.ready.add(id);
    }

    fn spawn_io(&self, task: Task) {
        if self.outsides().is_empty() {
            self.spawn(task);
        } else {
            self.io.spawn(task);
        }
    }

    fn spawn_blocking(&self, _name: &str, task: Task) -> Result<(), Error> {
        self.spawn(task);
        Ok(())
    }

    fn random(&self, bytes: &mut [u8]) {
        self.shared.state().bytes.fill(bytes);
    }
}

impl fmt::Debug for VirtualHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualHost(seed {}, at {:?})", self.seed, self.now())
    }
}

/// Allows only one run at a time. Prints the seed if the run ends in a panic.
struct Running<'a>(&'a VirtualHost);

impl<'a> Running<'a> {
    fn begin(host: &'a VirtualHost) -> Self {
        assert!(
            !host.running.swap(true, Ordering::AcqRel),
            "a virtual host runs one root at a time"
        );
        Self(host)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
        if std::thread::panicking() {
            eprintln!("the run of {:?} ended in a panic", self.0);
        }
    }
}
