//! The background work of a client: it asks and waits, renews its leases, watches every deadline,
//! and cleans up.
//!
//! | file | purpose |
//! |---|---|
//! | `spec` | the settings of an acquisition |
//! | `acquire` | one acquisition: at once, from the local line, or from the store |
//! | `lines` | the lines of tasks inside this client, by key, and the tasks that ask for them |
//! | `asker` | talks to the store for a local line |
//! | `leaving` | a lease that is handed over, or granted to this client again |
//! | `attempt` | one token: from the first ask to the lease, or until it leaves the line |
//! | `rooms` | how many requests for a lock are under way at a time |
//! | `errors` | the errors of acquisitions that end without a lease |
//! | `wake` | wakes an asking task |
//! | `held` | a lease of this client |
//! | `hold` | a guard's turn with a lease, which is then passed on, kept idle or released |
//! | `keeping` | a key that stays taken until a moment after its guard ended |
//! | `registry` | all leases that are held, and all releases without confirmation |
//! | `driver` | the future that renews leases, watches deadlines and follows releases up |
//! | `left_over` | leases that a failed release may have left, which end before the next request |
//! | `rests` | how long a client stays away from a key that it left to others |
//! | `release` | a release that was sent, with or without a caller that waits for it |
//! | `story` | the span and the events of one acquisition, for `tracing` |

mod acquire;
mod asker;
mod attempt;
mod driver;
mod errors;
mod held;
mod hold;
mod keeping;
mod leaving;
mod left_over;
mod lines;
mod registry;
mod release;
mod rests;
mod rooms;
mod spec;
mod story;
mod wake;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

pub(crate) use self::errors::{UNANSWERED, wait_elapsed};
pub(crate) use self::hold::{Hold, Parted, lost_error};
pub(crate) use self::spec::{Spec, Wait};

use self::asker::Told;
use self::held::Held;
use self::left_over::LeftOver;
use self::lines::Lines;
use self::registry::Registry;
use self::release::ReleaseInFlight;
use self::rests::Rests;
use self::rooms::Rooms;
use self::wake::HandOver;
use crate::core::backoff::Delays;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::host::{Host, Sleep, random_u32};
use crate::process::{OnlyHere, Process};
use crate::store::{
    AnyStore, Capabilities, Claim, ClientRecord, Hint, HintSink, LeaseId, OnRelease, Store,
};

/// A client, or a mutex of it: both can ask for locks. When the last user is dropped, the session
/// keeps no lease idle any more.
#[derive(Debug)]
pub(crate) struct User(Arc<Session>);

impl User {
    pub(crate) fn new(session: Arc<Session>) -> Arc<Self> {
        Arc::new(Self(session))
    }

    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if !self.0.is_here() {
            return self.0.leave_copy();
        }
        self.0.unused.store(true, Ordering::Release);
        self.0.end_all_idle();
    }
}

/// How many grants without a waiter the client releases at a time. There is a limit because anyone
/// who may publish can forge hints. Further grants run out by themselves after the short lease of a
/// waiter.
const GIVEN_BACK_MAX: usize = 256;

/// How long the session assumes that the store listens after a request to do so. Then it asks
/// again, since the store may have lacked the right, and may get it later.
const LISTENS_FOR: Duration = Duration::from_secs(1);

/// The state that a client and its guards share. It lives as long as any of them.
pub(crate) struct Session {
    /// For hints, which arrive by `&self` and may need the `Arc`.
    me: Weak<Self>,
    pub(crate) store: AnyStore,
    pub(crate) host: Arc<dyn Host>,
    /// The process that opened the session. A forked copy must not wait for a mutex, because the
    /// thread that holds the mutex may not exist there.
    process: Process,
    id: ClientId,
    record: Option<Arc<ClientRecord>>,
    registry: Registry,
    lines: Lines,
    rests: Rests,
    left_over: LeftOver,
    rooms: Rooms,
    giving_back: Arc<Semaphore>,
    closed: AtomicBool,
    /// Whether the last client and mutex are gone, so nobody can ask for a lock any more.
    unused: AtomicBool,
    /// Whether the store hands keys over to a line. If not, it wakes waiters, and they ask.
    has_line: bool,
    /// Whether a waiter can have a place at the store, if only to be woken. If not, it polls.
    can_queue: bool,
    /// Whether the store tells waiters far back in a line when they come near.
    calls_up: bool,
    /// Whether the store opens keys now and then for clients outside the line.
    opens: bool,
    /// When to ask the store for hints again, in nanoseconds.
    listens_again_at: AtomicU64,
    /// Tells waiters that the session was closed.
    closing: Notify,
}

impl Session {
    /// Opens a session of client `id`. It stores `record` with the locks that it takes.
    pub(crate) fn open(
        store: AnyStore,
        host: Arc<dyn Host>,
        id: ClientId,
        record: Option<ClientRecord>,
    ) -> Arc<Self> {
        let Capabilities { line: has_line, watching, calls_up, opens, .. } = store.capabilities();
        let session = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            store,
            host,
            process: Process::this(),
            id,
            record: record.map(Arc::new),
            registry: Registry::default(),
            lines: Lines::default(),
            rests: Rests::default(),
            left_over: LeftOver::default(),
            rooms: Rooms::default(),
            giving_back: Arc::new(Semaphore::new(GIVEN_BACK_MAX)),
            closed: AtomicBool::new(false),
            unused: AtomicBool::new(false),
            has_line,
            can_queue: has_line || watching,
            calls_up,
            opens,
            listens_again_at: AtomicU64::new(0),
            closing: Notify::new(),
        });
        let sink: Arc<dyn HintSink> = session.clone();
        session.store.watch(&session.id, Arc::downgrade(&sink));
        session
    }

    pub(crate) fn now(&self) -> Moment {
        self.host.now()
    }

    pub(crate) fn sleep_until(&self, at: Moment) -> Sleep {
        self.host.sleep_until(at)
    }

    /// Waits for the next of these delays.
    pub(crate) fn pause(&self, delays: &mut Delays) -> Sleep {
        self.sleep_until(self.now() + delays.next(random_u32(&*self.host)))
    }

    pub(crate) const fn id(&self) -> &ClientId {
        &self.id
    }

    /// How this client describes itself, if it does.
    pub(crate) fn record(&self) -> Option<&ClientRecord> {
        self.record.as_deref()
    }

    /// Whether a waiter can have a place at the store.
    pub(crate) const fn can_queue(&self) -> bool {
        self.can_queue
    }

    /// Whether the store opens keys now and then for clients outside the line.
    pub(crate) const fn opens(&self) -> bool {
        self.opens
    }

    /// How a release treats a key whose settings are not known. A lock without companion keys has
    /// no line.
    pub(crate) fn usual_release(&self, claim: Claim) -> OnRelease {
        if self.opens && claim != Claim::Plain { OnRelease::Open } else { OnRelease::Free }
    }

    fn fresh_token(&self) -> OwnerToken {
        let mut random = [0; OwnerToken::RANDOM_BYTES];
        self.host.random(&mut random);
        OwnerToken::from_random(random, &self.id)
    }

    /// Whether this process opened the session. If not, a fork copied it.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Whether a fork copied the session, as far as can be told without a system call.
    pub(crate) fn was_forked(&self) -> bool {
        self.process.was_forked()
    }

    /// Refuses to use a copy of a fork.
    pub(crate) fn check_here(&self) -> Result<(), Error> {
        self.process.check()
    }

    /// A future that runs only in the process that opened the session.
    pub(crate) fn only_here<T>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> OnlyHere<T> {
        OnlyHere::new(&self.process, Box::pin(future))
    }

    /// Keeps a copy of a fork from being dropped, because its content belongs to the process that
    /// opened it.
    pub(crate) fn leave_copy(self: &Arc<Self>) {
        std::mem::forget(Arc::clone(self));
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Submits the release of a lease and follows it up without a caller. The request is sent
    /// before this returns. `spec` tells how the lease was acquired.
    fn release_in_background(self: &Arc<Self>, lease: LeaseId, spec: &Spec) {
        let keeps_at_most = spec.kept_ttl().get();
        drop(ReleaseInFlight::submit(Arc::clone(self), lease, spec.on_release(), keeps_at_most));
    }

    /// Submits the release of a token that may have a lease, or only a place in line.
    fn give_up(self: &Arc<Self>, lease: LeaseId, spec: &Spec) -> ReleaseInFlight {
        let keeps_at_most = spec.kept_for_an_ask();
        ReleaseInFlight::submit(Arc::clone(self), lease, spec.on_release(), keeps_at_most)
    }

    /// Closes the session, so that nobody can ask any more, and tells the waiters. Then it waits at
    /// most `grace` until all leases are released and all releases are confirmed. Returns how many
    /// leases were released meanwhile, and how many leases, releases and acquisitions are left.
    pub(crate) async fn shut_down(self: &Arc<Self>, grace: Duration) -> (usize, usize) {
        if !self.is_here() {
            return (0, 0);
        }
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        let mut tasks = Vec::new();
        self.lines.with_each(|line| tasks.extend(line.tasks.take_tasks()));
        for task in tasks {
            let _gone = task.send(Told::Failed(closed_meanwhile()));
        }
        let released_before = self.registry.released();
        self.end_all_idle();
        let until = self.now() + grace;
        let mut timer = self.host.sleep_until(until);
        loop {
            // Create this before the check below, so that no end in between is missed.
            let drained = self.registry.drained();
            self.registry.look_now();
            if self.registry.outstanding() == 0 {
                break;
            }
            tokio::select! {
                biased;
                () = drained => {}
                () = &mut timer => break,
            }
        }
        (self.registry.released() - released_before, self.registry.outstanding())
    }
}

impl HintSink for Session {
    fn hint(&self, hint: Hint) {
        match hint {
            Hint::Granted { key, owner, fencing, ask_no } => {
                // A stale or forged hint about a token in use is harmless. A waiter asks the store,
                // and a held lease stays held. The client releases a grant whose future was
                // dropped.
                let ours = owner.client().is_some_and(|client| client == self.id);
                let handed_over = HandOver { owner: owner.clone(), ask_no, fencing };
                let has_come = self.lines.hand_over(&key, handed_over);
                // The store hands nothing over to a task that does not wait. Releasing here could
                // end the grant that the task's ask receives at this moment.
                let is_tried = self.lines.with(&key, |line| line.tries > 0);
                if !has_come && ours && !is_tried && !self.registry.knows(&owner) {
                    self.give_back(key, owner);
                }
            }
            Hint::MaybeFree { key } => {
                self.lines.wake(&key);
            }
            Hint::CalledUp { key, owner } => self.lines.call_up(&key, &owner),
            Hint::Missed => {
                self.lines.wake_all();
                self.ask_whether_wanted();
            }
            Hint::Wanted { key } => self.on_wanted(&key),
        }
    }
}

impl Session {
    /// Handles a hint that another client waits for a key.
    fn on_wanted(&self, key: &Key) {
        let now = self.now();
        if let Some(lease) = self.lines.with(key, |line| line.want()) {
            lease.want(now);
            // If the lease is idle, the driver releases it, since a hint must not call the store.
            self.registry.hurry(&lease);
        }
    }

    /// Renews the leases that are passed on or kept idle. The answers tell whether other clients
    /// have queued without notice.
    fn ask_whether_wanted(&self) {
        let now = self.now();
        let mut leases = Vec::new();
        self.lines.with_each(|line| {
            let may_be_kept = |held: &&Arc<Held>| line.tasks.has_tasks() || held.life().is_idle();
            leases.extend(line.tasks.lease().filter(may_be_kept).cloned());
        });
        for lease in leases {
            lease.life().renew_soon(now);
            self.registry.hurry(&lease);
        }
    }

    pub(crate) async fn until_closed(&self) {
        // Create this before the check below, so that no closing in between is missed.
        let closing = self.closing.notified();
        if self.check_open().is_ok() {
            closing.await;
        }
    }

    /// Releases a grant that nobody waits for. The host does it, since a hint must not call the
    /// store.
    fn give_back(&self, key: Key, owner: OwnerToken) {
        let Some(session) = self.me.upgrade() else { return };
        let Ok(permit) = Arc::clone(&self.giving_back).try_acquire_owned() else {
            return tracing::debug!(%key, "an unwanted grant is left to run out, since too many are \
                                          being released");
        };
        tracing::debug!(%key, "a grant that nobody waits for is released");
        let lease = LeaseId { key, owner, claim: Claim::Exclusive };
        self.host.spawn(Box::pin(async move {
            // A handed-over key is kept at most as long as a place in line, and its lock delay.
            let keeps_at_most = Ttl::MAX.waiter_ttl().with_delay(Ttl::MAX.get()).get();
            // The spec is not known here, so this is the usual release, which may wake nobody. With
            // `Coexist::On`, the dropped future has already sent a release that woke the waiters.
            let on_release = session.usual_release(lease.claim);
            let release = ReleaseInFlight::submit(session, lease, on_release, keeps_at_most);
            let _followed_up = release.await;
            drop(permit);
        }));
    }
}

/// The error for a call of a client that was shut down before.
fn closed() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the client was shut down; no request was sent; connect a new one",
    )
}

/// The error for a call that waited when its client was shut down.
pub(crate) fn closed_meanwhile() -> Error {
    Error::new(
        ErrorKind::Closed,
        "the client was shut down while this call waited; nothing is held; connect a new one",
    )
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.store)
    }
}
