//! Time, tasks and randomness, all behind one trait.
//!
//! Nothing else in this crate uses a clock, a timer, a thread, a spawn or a random source. So a
//! simulation can run the same session and stores on virtual time. Production uses [`SystemHost`].

#[cfg(test)]
pub(crate) mod on_event;
pub(crate) mod shielded;

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use self::shielded::Shielded;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::{Moment, WallTime};
use crate::process::{OnlyHere, PerProcess};

/// A future that a host runs to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future that ends at a moment.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time, tasks and randomness.
pub trait Host: Send + Sync + 'static {
    /// The steady clock, which counts suspend.
    fn now(&self) -> Moment;

    /// The time of day. It may step, so no lease depends on it.
    fn wall(&self) -> WallTime;

    /// Starts the base of timers and tasks, such as a thread, unless it runs already. A client
    /// calls this before it opens a store, so that nothing fails later. Default: there is nothing
    /// to start.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the process cannot start a thread, or cannot open the
    /// descriptors that a runtime needs.
    fn start(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Ends at or after `at`, never early. Works in any async runtime, or without one.
    fn sleep_until(&self, at: Moment) -> Sleep;

    /// Runs a task that never blocks, outside the caller's runtime. Never panics. A host that
    /// cannot run the task drops it. A [started](Self::start) host never does.
    fn spawn(&self, task: Task);

    /// Runs a task that does network input and output. It runs on the caller's runtime, if there is
    /// one. Then an answer wakes no other thread, and the task is dropped with that runtime.
    /// Default: as [`spawn`](Self::spawn).
    fn spawn_io(&self, task: Task) {
        self.spawn(task);
    }

    /// Runs a task on its own thread. The task may block in system calls between its awaits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if no thread can start. The task was dropped.
    fn spawn_blocking(&self, name: &str, task: Task) -> Result<(), Error>;

    /// Whether [`spawn_blocking`](Self::spawn_blocking) gives the task a real thread, on which it
    /// may wait for a pipe or another process. Default: no, as in a simulation.
    fn has_threads(&self) -> bool {
        false
    }

    /// Whether a thread may block for a while, to wait for another process. Default: yes. A
    /// simulation runs all its processes on one thread, so blocking would wait for ever.
    fn may_block(&self) -> bool {
        true
    }

    /// Fills `bytes` with unpredictable bytes. A copy of this process draws other bytes.
    fn random(&self, bytes: &mut [u8]);
}

/// Four random bytes, for jitter.
pub(crate) fn random_u32(host: &dyn Host) -> u32 {
    let mut bytes = [0; 4];
    host.random(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Lets other tasks of the caller's runtime run, if this task has run for long. For calls that may
/// run in a loop without ever waiting.
pub(crate) async fn give_way() {
    tokio::task::coop::consume_budget().await;
}

/// Blocks the calling thread for about `span` of real time. Use it to wait for another process that
/// has a file locked, since no timer ends that wait and no virtual clock shortens it. It is for a
/// store with a thread of its own, if the host [may block](Host::may_block).
#[allow(clippy::disallowed_methods, reason = "this is the host")]
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Whether this thread can enter a runtime. It cannot once its thread-locals of tokio are gone. A
/// guard in a `thread_local!` may be dropped after them.
fn may_enter() -> bool {
    !tokio::runtime::Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// Whether the calling thread is the host's own. That thread works for many leases, so it must
/// leave anything that may wait for a disk to another thread.
#[must_use]
pub fn is_own_thread() -> bool {
    OWN_RUNTIME.get()
}

/// The host of production. It uses CLOCK_BOOTTIME, the random source of the operating system, and
/// one small thread for all timers and drivers of the process. The first client starts the thread.
///
/// The thread is separate from the user's runtimes, so a blocked or dropped executor loses no
/// lease. The child of a fork has its own thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl SystemHost {
    /// The host of this process.
    #[must_use]
    pub fn shared() -> Arc<dyn Host> {
        static HOST: PerProcess<Arc<SystemHost>> = PerProcess::new();
        HOST.own().clone()
    }
}

thread_local! {
    /// Whether this thread runs a runtime of the host. Its own timers are then closer than those of
    /// the shared thread.
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
        // A clock before 1970 is wrong and reads as zero.
        let since_epoch =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        WallTime::from_unix_micros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }

    fn start(&self) -> Result<(), Error> {
        if OWN_RUNTIME.get() { Ok(()) } else { shared_runtime().map(drop) }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the host")]
    fn sleep_until(&self, at: Moment) -> Sleep {
        let span = at.since(self.now());
        if OWN_RUNTIME.get() {
            return Box::pin(tokio::time::sleep(span));
        }
        match shared_runtime() {
            Ok(runtime) if may_enter() => {
                let _entered = runtime.enter();
                let sleep = tokio::time::sleep(span);
                Box::pin(async move { Shielded::new(pin!(sleep)).await })
            }
            Ok(_) => Box::pin(sleep_elsewhere(at)),
            // This happens only if the caller never started the host.
            Err(_) => Box::pin(watch_clock_until(at)),
        }
    }

    fn spawn(&self, task: Task) {
        // A driver handles the answers to thousands of renewals in one go. With tokio's budget of
        // 128 polls it would have to poll them all again each time.
        match shared_runtime() {
            Ok(runtime) => drop(runtime.spawn(tokio::task::unconstrained(task))),
            Err(error) => tracing::error!(%error, "a background task cannot run"),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the host")]
    fn spawn_io(&self, task: Task) {
        match tokio::runtime::Handle::try_current() {
            // A fork may copy the caller's runtime. Both processes then share its connections.
            Ok(runtime) => drop(runtime.spawn(OnlyHere::with_socket(task))),
            Err(_) => self.spawn(task),
        }
    }

    fn spawn_blocking(&self, name: &str, task: Task) -> Result<(), Error> {
        run_on_thread(name, task).map(drop)
    }

    fn has_threads(&self) -> bool {
        true
    }

    fn random(&self, bytes: &mut [u8]) {
        // Never draw ahead, since a fork would copy the bytes, and both processes would use them.
        getrandom::fill(bytes).expect("the operating system has a random source");
    }
}

/// The runtime of the host's thread.
#[derive(Default)]
struct SharedRuntime {
    handle: OnceLock<tokio::runtime::Handle>,
    starting: Mutex<()>,
}

/// Starts the host's thread, unless this process has it already.
fn shared_runtime() -> Result<&'static tokio::runtime::Handle, Error> {
    static SHARED: PerProcess<SharedRuntime> = PerProcess::new();
    let shared = SHARED.own();
    if let Some(handle) = shared.handle.get() {
        return Ok(handle);
    }
    let _starting = shared.starting.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = shared.handle.get() {
        return Ok(handle);
    }
    let handle = run_on_thread("leasehold", Box::pin(std::future::pending()))?;
    Ok(shared.handle.get_or_init(|| handle))
}

/// Runs a future on the calling thread. Its connections and timers live on the host's thread.
///
/// # Errors
///
/// [`ErrorKind::Config`] in the context of an async runtime and in the destructor of a
/// thread-local, [`ErrorKind::Unavailable`] if the host's thread cannot start. The future was
/// dropped.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    if !may_enter() {
        return Err(Error::new(
            ErrorKind::Config,
            "this thread is ending, so it can run no call that blocks; no request was sent; \
             make the call before the thread ends",
        ));
    }
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(Error::new(
            ErrorKind::Config,
            "this thread is in the context of an async runtime, which a call that blocks could \
             stop; no request was sent; use `.await` instead, or `Handle::current().block_on` on a \
             thread of `spawn_blocking`",
        ));
    }
    Ok(shared_runtime()?.block_on(future))
}

/// Starts a thread with its own runtime, which lives until `task` ends.
fn run_on_thread(name: &str, task: Task) -> Result<tokio::runtime::Handle, Error> {
    let (give, take) = mpsc::sync_channel::<tokio::runtime::Runtime>(1);
    // Start the thread first. If it cannot start, no runtime has to be dropped, which panics in an
    // async context.
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let Ok(runtime) = take.recv() else { return };
        OWN_RUNTIME.set(true);
        runtime.block_on(task);
    });
    thread.map_err(|cause| no_thread("start one more thread", "-u", cause))?;
    let runtime = check_descriptors()
        .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
        .map_err(|cause| {
            no_thread("open the descriptors that a timer thread needs", "-n", cause)
        })?;
    let handle = runtime.handle().clone();
    if let Err(mpsc::SendError(runtime)) = give.send(runtime) {
        runtime.shutdown_background();
    }
    Ok(handle)
}

/// The most descriptor pairs that a new runtime takes.
const DESCRIPTOR_PAIRS: usize = 4;

/// Checks that a runtime can be built. Some of its parts panic when descriptors run out.
fn check_descriptors() -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..DESCRIPTOR_PAIRS).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

fn no_thread(what: &str, limit: &str, cause: io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the process cannot {what} ({cause}); no request was sent; raise its limits (`ulimit \
             {limit}`) or end other work"
        ),
    )
    .with_source(cause)
}

/// Sleeps until `at`. This thread is ending, so another thread makes the timer at its first poll.
async fn sleep_elsewhere(at: Moment) {
    poll_fn(|context| {
        if OWN_RUNTIME.get() || may_enter() || SystemHost.now() >= at {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    if SystemHost.now() < at {
        SystemHost.sleep_until(at).await;
    }
}

/// Ends at or after `at`, without a timer. It asks to be polled again all the time.
async fn watch_clock_until(at: Moment) {
    poll_fn(|context| {
        if SystemHost.now() >= at {
            return Poll::Ready(());
        }
        std::thread::yield_now();
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Does blocking `work`, such as resolving a host name, on its own thread.
///
/// # Errors
///
/// If the thread cannot start.
#[cfg(feature = "_net")]
pub(crate) async fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let work = move || drop(tell.send(work()));
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    told.await.unwrap_or_else(|_| Err(io::Error::other("the thread for this work has ended")))
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake};

    use super::shielded::panicking_waker;
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

    #[test]
    fn timers_end_after_a_waker_of_a_caller_has_panicked() {
        let host = SystemHost;
        let mut first = host.sleep_until(host.now() + Duration::from_millis(5));
        let panics = panicking_waker();
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        run_to_end(host.sleep_until(host.now() + Duration::from_millis(50)));
        run_to_end(first);
    }

    fn run_to_end(future: Sleep) {
        struct Unpark(std::thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = future;
        let began = SystemHost.now();
        while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            assert!(
                SystemHost.now().since(began) < Duration::from_secs(60),
                "no timer of this process ends"
            );
            std::thread::park_timeout(Duration::from_secs(60));
        }
    }
}
