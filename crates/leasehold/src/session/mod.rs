//! What a client does behind the scenes: it asks and waits, renews what it holds, watches every
//! deadline, and cleans up.
//!
//! | file | what it is |
//! |---|---|
//! | `spec` | what one acquisition wants |
//! | `acquire` | one acquisition: at once, from the local line, or from the store |
//! | `local_line` | the tasks of this client that wait for one key, and the lease that they pass on |
//! | `asker` | speaking with the store on behalf of a local line |
//! | `leaving` | a lease that leaves: handed over, or this client's again |
//! | `attempt` | asking the store by one token, from the first ask to the lease, or to the place left |
//! | `wake` | how one who asks is woken |
//! | `held` | one lease that this client has, and the turns of its guards |
//! | `part` | what becomes of a lease when its guard ends: passed on, kept idle, released |
//! | `registry` | all leases that are held and all releases that are not confirmed |
//! | `driver` | the one future that renews, watches deadlines, and follows releases up |
//! | `rests` | how long a client keeps away from a key that it left to others |
//! | `release` | a release that is on its way, and what becomes of it if nobody waits for it |

mod acquire;
mod asker;
mod attempt;
mod driver;
mod held;
mod leaving;
mod local_line;
mod part;
mod registry;
mod release;
mod rests;
mod spec;
mod wake;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

pub(crate) use self::held::{Hold, lost_error};
pub(crate) use self::part::Parted;
pub(crate) use self::release::ReleaseInFlight;
pub(crate) use self::spec::{Spec, Wait};

use self::held::Held;
use self::local_line::{LocalLines, Told};
use self::registry::Registry;
use self::rests::Rests;
use self::wake::HandOver;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::process::Process;
use crate::store::{
    AnyStore, Capabilities, Claim, ClientRecord, Hint, HintSink, LeaseId, Otherwise, Store,
};

/// Somebody who can ask for locks: a client, or a mutex of one. When the last of them is gone, no
/// lease is kept idle any more.
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

/// How many grants that came for nobody are given back at a time. Hints can be forged, by whoever
/// may publish; beyond this a grant runs out by itself, after a waiter's short lease.
const GIVEN_BACK_MAX: usize = 256;

/// How long the store is taken to listen once it was asked to. It may have had no right to, and be
/// given it.
const LISTENS_FOR: Duration = Duration::from_secs(1);

/// What a client and its guards share. It lives as long as any of them.
pub(crate) struct Session {
    /// For hints, which come by reference.
    me: Weak<Self>,
    pub(crate) store: AnyStore,
    pub(crate) host: Arc<dyn Host>,
    /// Where it was opened. In a copy that a fork made no lock may be waited for: the thread that
    /// has it may not be there.
    process: Process,
    id: ClientId,
    record: Option<Arc<ClientRecord>>,
    registry: Registry,
    lines: LocalLines,
    rests: Rests,
    giving_back: Arc<Semaphore>,
    closed: AtomicBool,
    /// Whether nobody can ask for a lock any more: the last client and mutex are gone.
    unused: AtomicBool,
    /// Whether the store has a line in which it makes somebody the owner. If not, who waits is
    /// woken, and asks.
    has_line: bool,
    /// Whether the store tells those far back in a line when they come near.
    calls_up: bool,
    /// Whether the store gives back by itself what it granted in vain.
    gives_back: bool,
    /// When the store is to be asked for hints again, in nanoseconds.
    listens_again_at: AtomicU64,
    /// Tells those who wait that the session was closed.
    closing: Notify,
}

impl Session {
    /// Opens a session of the client `id`, which leaves `record` behind where it takes locks.
    pub(crate) fn open(
        store: AnyStore,
        host: Arc<dyn Host>,
        id: ClientId,
        record: Option<ClientRecord>,
    ) -> Arc<Self> {
        let Capabilities { line: has_line, gives_back, calls_up, .. } = store.capabilities();
        let session = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            store,
            host,
            process: Process::this(),
            id,
            record: record.map(Arc::new),
            registry: Registry::default(),
            lines: LocalLines::default(),
            rests: Rests::default(),
            giving_back: Arc::new(Semaphore::new(GIVEN_BACK_MAX)),
            closed: AtomicBool::new(false),
            unused: AtomicBool::new(false),
            has_line,
            calls_up,
            gives_back,
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

    pub(crate) const fn id(&self) -> &ClientId {
        &self.id
    }

    fn fresh_token(&self) -> OwnerToken {
        let mut random = [0; OwnerToken::RANDOM_BYTES];
        self.host.random(&mut random);
        OwnerToken::from_random(random, &self.id)
    }

    /// Whether this process opened it. If not, this is a copy that a fork made.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// Refuses to use a copy that a fork made.
    pub(crate) fn check_here(&self) -> Result<(), Error> {
        self.process.check()
    }

    /// Lets go of a copy that a fork made, without ending it when nobody has it any more: what is
    /// in it belongs to the process that opened it.
    pub(crate) fn leave_copy(self: &Arc<Self>) {
        std::mem::forget(Arc::clone(self));
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Submits the release of a token that nobody waits for, and follows it up: before this
    /// returns, the request is on its way. `spec` is what the token was for.
    fn release_in_background(self: &Arc<Self>, lease: LeaseId, spec: &Spec) {
        let keeps_at_most = spec.kept_ttl().get();
        drop(ReleaseInFlight::submit(Arc::clone(self), lease, spec.otherwise(), keeps_at_most));
    }

    /// Closes the session: nothing new is asked, who waits is told. Then waits for what is held to
    /// be released, and for releases to be confirmed, for `grace` at most. Returns how many were
    /// confirmed meanwhile and how many are left.
    pub(crate) async fn shut_down(self: &Arc<Self>, grace: Duration) -> (usize, usize) {
        if !self.is_here() {
            return (0, 0);
        }
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        let mut tasks = Vec::new();
        self.lines.with_each(|line| tasks.extend(line.take_tasks()));
        for task in tasks {
            let _gone = task.tell.send(Told::Failed(closed()));
        }
        let released_before = self.registry.released();
        self.end_all_idle();
        let until = self.now() + grace;
        let mut timer = self.host.sleep_until(until);
        loop {
            let drained = self.registry.drained();
            let mut drained = std::pin::pin!(drained);
            drained.as_mut().enable();
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
                // A stale or forged hint about a token that is in use is harmless: who waits asks
                // the store, and what is held stays held. A grant for nobody is given back: its
                // future was dropped.
                let ours = owner.client().is_some_and(|client| client == self.id);
                let handed_over = HandOver { ask_no, fencing };
                let has_come = self.lines.hand_over(&key, &owner, handed_over);
                // Nothing is handed over to who asks without waiting: it would give back what its
                // ask is granted at this moment.
                let is_tried = self.lines.with(&key, |line| line.tries > 0);
                if !has_come && ours && !is_tried && !self.registry.knows(&owner) {
                    self.give_back(key, owner);
                }
            }
            Hint::MaybeFree { key } => {
                self.lines.wake(&key);
            }
            Hint::Missed => {
                self.lines.wake_all();
                self.ask_whether_wanted();
            }
            Hint::Wanted { key } => self.on_wanted(&key),
        }
    }
}

impl Session {
    /// Another client waits for a key.
    fn on_wanted(&self, key: &Key) {
        let now = self.now();
        let lease = self.lines.with(key, |line| {
            line.was_wanted = line.lease.is_none() && (line.has_asker || line.tries > 0);
            line.lease.clone()
        });
        if let Some(lease) = lease {
            lease.want(now);
            // If it is idle, the driver gives it up: a hint must not call the store.
            self.registry.hurry(&lease);
        }
    }

    /// Others may have come without notice: leases that are passed on or kept idle are renewed,
    /// which tells whether somebody waits.
    fn ask_whether_wanted(&self) {
        let now = self.now();
        let mut leases = Vec::new();
        self.lines.with_each(|line| {
            let may_be_kept = |held: &&Arc<Held>| line.has_tasks() || held.life().is_idle();
            leases.extend(line.lease.as_ref().filter(may_be_kept).cloned());
        });
        for lease in leases {
            lease.life().renew_soon(now);
            self.registry.hurry(&lease);
        }
    }

    async fn until_closed(&self) {
        loop {
            let mut closing = std::pin::pin!(self.closing.notified());
            let is_closed = std::future::poll_fn(|cx| {
                // Looked at only once a closing would be noticed: one between the two is not
                // missed.
                let told = closing.as_mut().poll(cx);
                if self.check_open().is_err() { Poll::Ready(true) } else { told.map(|()| false) }
            });
            if is_closed.await {
                return;
            }
        }
    }

    /// Releases a grant that came for nobody. A hint must not call the store, so the host does it.
    fn give_back(&self, key: Key, owner: OwnerToken) {
        let Some(session) = self.me.upgrade() else { return };
        let Ok(permit) = Arc::clone(&self.giving_back).try_acquire_owned() else {
            return tracing::debug!(%key, "one of too many grants for nobody is left to run out");
        };
        tracing::debug!(%key, "a grant came for nobody and is given back");
        let lease = LeaseId { key, owner, claim: Claim::Exclusive };
        self.host.spawn(Box::pin(async move {
            // What is handed over is kept for no longer than a place in line.
            let keeps_at_most = Ttl::MAX.waiter_ttl().get();
            // What it was for is forgotten. Where others are to have their chance, the release of
            // its future, which came before, was to wake.
            let release = ReleaseInFlight::submit(session, lease, Otherwise::Free, keeps_at_most);
            let _followed_up = release.await;
            drop(permit);
        }));
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was shut down; nothing was asked, connect a new one")
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.store)
    }
}
