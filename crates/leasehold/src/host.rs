//! The only way to time, tasks and randomness.
//!
//! Nothing else in this crate names a clock, a timer, a spawn, a thread or a source of random
//! numbers, so that the very same session and stores run on virtual time in a simulation. What
//! production uses is [`SystemHost`].

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::core::moment::{Moment, WallTime};

/// A future that a host runs to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that ends at a moment.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time, tasks and randomness.
pub trait Host: Send + Sync + 'static {
    /// The steady clock, which counts suspend.
    fn now(&self) -> Moment;

    /// The time of day. It may step; no lease depends on it.
    fn wall(&self) -> WallTime;

    /// Ends at or after `at`. May be late, never early; works in any async runtime, or none.
    fn sleep_until(&self, at: Moment) -> Sleep;

    /// Runs a task that never blocks, beside the caller's runtime.
    fn spawn(&self, task: Task);

    /// Runs a task that does network input and output: on the runtime of the caller if it is in
    /// one, so that an answer wakes no other thread, else beside it. It is dropped with that
    /// runtime. Default: as [`spawn`](Self::spawn).
    fn spawn_io(&self, task: Task) {
        self.spawn(task);
    }

    /// Runs a task that blocks in system calls between its awaits, on a thread of its own.
    fn spawn_blocking(&self, name: &str, task: Task);

    /// Fills `bytes` with unpredictable bytes.
    fn random(&self, bytes: &mut [u8]);
}

/// Four random bytes, for jitter.
pub(crate) fn random_u32(host: &dyn Host) -> u32 {
    let mut bytes = [0; 4];
    host.random(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Lets the other tasks of the caller's runtime go on, if it has not for long: for what may be done
/// again and again without having to wait.
pub(crate) async fn give_way() {
    tokio::task::coop::consume_budget().await;
}

/// Blocks the calling thread for about `span` of real time: for the wait for another process that
/// has a file locked, which no timer ends and no virtual clock shortens.
#[cfg(feature = "sqlite")]
#[allow(clippy::disallowed_methods, reason = "this is the host")]
pub(crate) fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Whether the calling thread is one of the host's own, on which the work of many is done: what
/// may wait for a disk is to be left to another one.
#[cfg(feature = "sqlite")]
pub(crate) fn is_own_thread() -> bool {
    OWN_RUNTIME.get()
}

/// The host of production: CLOCK_BOOTTIME, one small thread for all timers and drivers of the
/// process, started with the first need of it, and the random source of the operating system.
///
/// The thread is apart from every runtime of the user's, so that an executor that is blocked or
/// gone loses no lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl SystemHost {
    /// The host of this process.
    #[must_use]
    pub fn shared() -> Arc<dyn Host> {
        static HOST: OnceLock<Arc<SystemHost>> = OnceLock::new();
        HOST.get_or_init(|| Arc::new(Self)).clone()
    }
}

thread_local! {
    /// Whether this thread runs one of the host's own runtimes, whose timers are nearer than the
    /// shared thread's.
    static OWN_RUNTIME: Cell<bool> = const { Cell::new(false) };
}

impl Host for SystemHost {
    fn now(&self) -> Moment {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).expect("the time since boot is not negative");
        let nanos = u64::try_from(now.tv_nsec).expect("nanoseconds are not negative");
        Moment::from_nanos(seconds * 1_000_000_000 + nanos)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the host")]
    fn wall(&self) -> WallTime {
        // Before 1970 there were no leases: a clock that is that wrong reads as zero.
        let since_epoch =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        WallTime::from_unix_micros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the host")]
    fn sleep_until(&self, at: Moment) -> Sleep {
        let span = at.since(self.now());
        if OWN_RUNTIME.get() {
            return Box::pin(tokio::time::sleep(span));
        }
        let _entered = shared_runtime().enter();
        Box::pin(tokio::time::sleep(span))
    }

    fn spawn(&self, task: Task) {
        // What is done here is done for many at once: a driver takes the answers to thousands of
        // renewals in one go. Asked to let others go first after each 128, it would poll them all
        // again each time.
        shared_runtime().spawn(tokio::task::unconstrained(task));
    }

    #[allow(clippy::disallowed_methods, reason = "this is the host")]
    fn spawn_io(&self, task: Task) {
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(task)),
            Err(_) => self.spawn(task),
        }
    }

    fn spawn_blocking(&self, name: &str, task: Task) {
        run_on_thread(name, task);
    }

    fn random(&self, bytes: &mut [u8]) {
        RANDOM.with_borrow_mut(|buffer| buffer.fill(bytes));
    }
}

fn shared_runtime() -> &'static tokio::runtime::Handle {
    static SHARED: OnceLock<tokio::runtime::Handle> = OnceLock::new();
    SHARED.get_or_init(|| run_on_thread("leasehold", Box::pin(std::future::pending())))
}

/// Starts a thread with a runtime of its own, which lives until `task` ends.
fn run_on_thread(name: &str, task: Task) -> tokio::runtime::Handle {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the process may open the few descriptors that a runtime needs");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            OWN_RUNTIME.set(true);
            runtime.block_on(task);
        })
        .expect("the process may start one more thread");
    handle
}

thread_local! {
    static RANDOM: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer::EMPTY) };
}

/// Random bytes of the operating system, drawn in bulk: a system call per token would cost more
/// than the lock.
struct RandomBuffer {
    bytes: [u8; 1024],
    used: usize,
}

impl RandomBuffer {
    const EMPTY: Self = Self { bytes: [0; 1024], used: 1024 };

    fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.used == self.bytes.len() {
                getrandom::fill(&mut self.bytes).expect("the operating system has a random source");
                self.used = 0;
            }
            // Taken out, not copied: what was used as a secret must not stay behind.
            *byte = std::mem::take(&mut self.bytes[self.used]);
            self.used += 1;
        }
    }
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_never_given_twice() {
        let host = SystemHost;
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut bytes = [0; 16];
            host.random(&mut bytes);
            assert!(seen.insert(bytes));
        }
    }

    #[test]
    fn timers_end_outside_of_any_runtime_and_never_early() {
        let host = SystemHost;
        let at = host.now() + Duration::from_millis(20);
        run_to_end(host.sleep_until(at));
        assert!(host.now() >= at);
    }

    fn run_to_end(future: Sleep) {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = future;
        while future.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    }
}
