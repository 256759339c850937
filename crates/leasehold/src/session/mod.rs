//! What a client does behind the scenes: it asks and waits, renews what it holds, watches every
//! deadline, and cleans up.
//!
//! | file | what it is |
//! |---|---|
//! | `acquire` | one acquisition, from the first ask to the lease, or to the place left |
//! | `held` | one lease that is held, shared by its guard and the driver |
//! | `registry` | all leases that are held and all releases that are not confirmed |
//! | `driver` | the one future that renews, watches deadlines, and follows releases up |
//! | `release` | a release that is on its way, and what becomes of it if nobody waits for it |
//! | `waiting` | the tasks of this client that wait for a key, and the hints that wake them |

mod acquire;
mod driver;
mod held;
mod registry;
mod release;
mod waiting;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

pub(crate) use self::acquire::{Spec, Wait};
pub(crate) use self::held::{Held, lost_error};
pub(crate) use self::release::ReleaseInFlight;

use self::registry::Registry;
use self::waiting::Waiting;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::{AnyStore, Claim, ClientRecord, Hint, HintSink, LeaseId, Store};

/// How many grants that came for nobody are given back at a time. Hints can be forged, by whoever
/// may publish; beyond this a grant runs out by itself, after a waiter's short lease.
const GIVEN_BACK_MAX: usize = 256;

/// What a client and its guards share. It lives as long as any of them.
pub(crate) struct Session {
    /// For hints, which come by reference.
    me: Weak<Self>,
    pub(crate) store: AnyStore,
    pub(crate) host: Arc<dyn Host>,
    id: ClientId,
    record: Option<Arc<ClientRecord>>,
    registry: Registry,
    waiting: Waiting,
    giving_back: Arc<Semaphore>,
    closed: AtomicBool,
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
        let session = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            store,
            host,
            id,
            record: record.map(Arc::new),
            registry: Registry::default(),
            waiting: Waiting::default(),
            giving_back: Arc::new(Semaphore::new(GIVEN_BACK_MAX)),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        });
        let sink: Arc<dyn HintSink> = session.clone();
        session.store.watch(&session.id, Arc::downgrade(&sink));
        session
    }

    pub(crate) fn now(&self) -> Moment {
        self.host.now()
    }

    fn fresh_token(&self) -> OwnerToken {
        let mut random = [0; OwnerToken::RANDOM_BYTES];
        self.host.random(&mut random);
        OwnerToken::from_random(random, &self.id)
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(closed()) } else { Ok(()) }
    }

    /// Submits the release of a token that nobody waits for, and follows it up: before this
    /// returns, the request is on its way. `keeps_at_most` is how long the store would keep the key
    /// or place by itself.
    pub(crate) fn release_in_background(self: &Arc<Self>, lease: LeaseId, keeps_at_most: Duration) {
        drop(ReleaseInFlight::submit(Arc::clone(self), lease, keeps_at_most));
    }

    /// Closes the session: nothing new is asked, who waits is told. Then waits for what is held to
    /// be released, and for releases to be confirmed, for `grace` at most. Returns how many were
    /// confirmed meanwhile and how many are left.
    pub(crate) async fn shut_down(self: &Arc<Self>, grace: Duration) -> (usize, usize) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        let released_before = self.registry.released();
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
            Hint::Granted { key, owner, .. } => {
                // A stale or forged hint about a token that is in use is harmless: who waits asks
                // the store, and what is held stays held. A grant for nobody is given back: its
                // future was dropped.
                let ours = owner.client().is_some_and(|client| client == self.id);
                let wanted = self.waiting.wake(&key, Some(&owner)) || self.registry.knows(&owner);
                if ours && !wanted {
                    self.give_back(key, owner);
                }
            }
            Hint::MaybeFree { key } => {
                self.waiting.wake(&key, None);
            }
            Hint::Missed => self.waiting.wake_all(),
            // Nothing is passed on or kept idle yet, so nothing is to be given up.
            Hint::Wanted { .. } => {}
        }
    }
}

impl Session {
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
            let _followed_up = ReleaseInFlight::submit(session, lease, keeps_at_most).await;
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
