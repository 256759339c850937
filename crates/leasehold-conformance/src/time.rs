//! The time of a case: virtual, or that of the machine.

use std::fmt;
use std::future::{Future, pending};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, SystemHost};

use crate::VirtualHost;

/// Each case runs with each of these seeds on virtual time. On real time it runs once.
pub const SEEDS: std::ops::Range<u64> = 0..3;

/// How late a hint, or the end of a lease, may be on virtual time. It is many times what the
/// slowest store needs to notice the actions of other clients.
pub const SLACK: Duration = Duration::from_millis(100);

/// How much real time a case may let pass on purpose. A case that needs more runs on virtual time
/// only.
pub const REAL_TIME_MAX: Duration = Duration::from_secs(30);

/// How long before the end of a lease a case still relies on the lease, in real time.
const REAL_EARLY: Duration = Duration::from_millis(100);

/// How long a store may take in real time to open a connection for hints, once a client waits.
const REAL_SETTLING: Duration = Duration::from_millis(300);

/// How much later than its ttl a lease may end on a store that counts whole seconds.
const COARSE: Duration = Duration::from_millis(1_100);

/// How late a hint may be in real time.
const REAL_HINT: Duration = Duration::from_secs(5);

/// The output of a task.
pub(crate) type Output<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The time of a case.
#[derive(Clone)]
pub(crate) enum Time {
    /// Nothing really sleeps.
    Virtual(Arc<VirtualHost>),
    /// The clocks of this machine.
    Real(Arc<RealTime>),
}

/// The clocks of this machine, and how long a case let them run.
pub(crate) struct RealTime {
    host: Arc<dyn Host>,
    runtime: tokio::runtime::Handle,
    began: Moment,
    is_coarse: bool,
    spent: Mutex<Spent>,
}

#[derive(Default)]
struct Spent {
    on_purpose: Duration,
    /// Why the case cannot go on.
    over: Option<&'static str>,
}

impl RealTime {
    /// Starts the time of a case. `is_coarse` tells that the store counts whole seconds.
    pub(crate) fn begin(runtime: tokio::runtime::Handle, is_coarse: bool) -> Arc<Self> {
        let host = SystemHost::shared();
        let began = host.now();
        Arc::new(Self { host, runtime, began, is_coarse, spent: Mutex::default() })
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        // The value is whole at every moment, even if a case panicked.
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// Why the case cannot go on, if it cannot.
    pub(crate) fn over(&self) -> Option<&'static str> {
        self.spent().over
    }

    /// How much later it is than the case intended: the time that requests and timers took.
    pub(crate) fn late(&self) -> Duration {
        self.host.now().since(self.began).saturating_sub(self.spent().on_purpose)
    }

    /// Ends the case.
    async fn end(&self, why: &'static str) {
        self.spent().over = Some(why);
        // The runner of the case sees `over` now, and drops this future.
        pending::<()>().await;
    }

    async fn pass(&self, span: Duration) {
        let passed = {
            let mut spent = self.spent();
            spent.on_purpose += span;
            spent.on_purpose
        };
        if passed > REAL_TIME_MAX {
            self.end("it lets more time pass than a case may in real time").await;
        }
        self.host.sleep_until(self.host.now() + span).await;
    }
}

impl Time {
    pub(crate) fn now(&self) -> Moment {
        self.host().now()
    }

    pub(crate) fn wall(&self) -> WallTime {
        self.host().wall()
    }

    pub(crate) fn random(&self, bytes: &mut [u8]) {
        self.host().random(bytes);
    }

    fn host(&self) -> &dyn Host {
        match self {
            Self::Virtual(host) => &**host,
            Self::Real(real) => &*real.host,
        }
    }

    pub(crate) async fn pass(&self, span: Duration) {
        match self {
            Self::Virtual(host) => host.advance(span).await,
            Self::Real(real) => real.pass(span).await,
        }
    }

    pub(crate) async fn settle(&self) {
        match self {
            Self::Virtual(host) => host.settle().await,
            Self::Real(real) => real.pass(REAL_SETTLING).await,
        }
    }

    /// Ends the case unless it runs on virtual time.
    pub(crate) async fn virtual_only(&self, why: &'static str) {
        if let Self::Real(real) = self {
            real.end(why).await;
        }
    }

    /// How much later than its ttl a lease may end.
    pub(crate) fn slack(&self) -> Duration {
        match self {
            Self::Real(real) if real.is_coarse => COARSE,
            _ => SLACK,
        }
    }

    /// Ends the case if the store counts whole seconds.
    pub(crate) async fn fine_only(&self, why: &'static str) {
        if let Self::Real(real) = self
            && real.is_coarse
        {
            real.end(why).await;
        }
    }

    /// `span`, or more on real time, which is never exact.
    pub(crate) fn early(&self, span: Duration) -> Duration {
        match self {
            Self::Virtual(_) => span,
            Self::Real(_) => span.max(REAL_EARLY),
        }
    }

    /// How late a hint may be.
    pub(crate) const fn hint_limit(&self) -> Duration {
        match self {
            Self::Virtual(_) => SLACK,
            Self::Real(_) => REAL_HINT,
        }
    }

    /// Starts a task.
    pub(crate) fn task<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Output<T> {
        match self {
            Self::Virtual(host) => Box::pin(host.task(task)),
            Self::Real(real) => {
                let task = real.runtime.spawn(task);
                Box::pin(async move {
                    task.await.unwrap_or_else(|failed| resume_unwind(failed.into_panic()))
                })
            }
        }
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Virtual(host) => host.fmt(f),
            Self::Real(real) => write!(f, "real time, {:?} late", real.late()),
        }
    }
}
