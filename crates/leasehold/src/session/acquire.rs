//! One acquisition, from the first ask to the lease, or to the place left.

use std::future::pending;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::waiting::Presence;
use super::{Held, Session, closed};
use crate::core::acquire::{Acquisition, NextAsk};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::lease::LeaseLife;
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, OwnerToken};
use crate::core::ttl::Ttl;
use crate::host::random_u32;
use crate::store::{Acquired, Ask, Claim, LeaseId, Line, Note, Store};

/// What is wanted, and how.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) key: Key,
    pub(crate) claim: Claim,
    pub(crate) ttl: Ttl,
    pub(crate) lock_delay: Duration,
    pub(crate) why: Option<Arc<str>>,
    pub(crate) fencing: bool,
}

/// How long to wait for one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    Until(Moment),
    ForEver,
}

impl Spec {
    /// What the store is asked to keep.
    pub(crate) fn kept_ttl(&self) -> Ttl {
        self.ttl.with_delay(self.lock_delay)
    }
}

impl Session {
    /// Takes what `spec` says, or waits for it. `None` only without waiting: it is taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and gives back a grant that is on its way.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        spec: &Spec,
        wait: Wait,
    ) -> Result<Option<Arc<Held>>, Error> {
        self.check_open()?;
        if wait == Wait::No {
            return Attempt::begin(self, spec, None).run(wait).await;
        }
        let presence = Presence::join(self, &spec.key);
        let elapsed = self.sleep(wait);
        let turn = tokio::select! {
            biased;
            turn = presence.turn() => turn,
            () = elapsed => return Err(wait_elapsed()),
            () = self.until_closed() => return Err(closed()),
        };
        Attempt::begin(self, spec, Some((presence, turn))).run(wait).await
    }

    async fn sleep(&self, wait: Wait) {
        match wait {
            Wait::Until(at) => self.host.sleep_until(at).await,
            Wait::No | Wait::ForEver => pending().await,
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
}

/// One acquisition under way. Dropped before it has its lease, it releases its token: whatever the
/// store granted, or will grant to an ask that is on its way, is given back, and the place in line
/// is left.
struct Attempt<'a> {
    session: &'a Arc<Session>,
    spec: &'a Spec,
    owner: OwnerToken,
    decisions: Acquisition,
    /// The task's presence, and its right to ask; none if it does not wait.
    waiting: Option<(Presence, OwnedSemaphorePermit)>,
    wake: Option<Arc<Notify>>,
    /// Whether the store may know the token.
    known: bool,
    /// Why the store could not be asked the last time, if it could not.
    outage: Option<Error>,
    /// Goes last: what this leaves behind is a lease or a release by then.
    _asking: Asking,
}

/// Counts an acquisition as under way for as long as it is there.
struct Asking(Arc<Session>);

impl Asking {
    fn new(session: &Arc<Session>) -> Self {
        session.registry.asking_began();
        Self(Arc::clone(session))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.registry.asking_ended();
    }
}

impl<'a> Attempt<'a> {
    fn begin(
        session: &'a Arc<Session>,
        spec: &'a Spec,
        waiting: Option<(Presence, OwnedSemaphorePermit)>,
    ) -> Self {
        let asking = Asking::new(session);
        let owner = session.fresh_token();
        let wake = waiting.as_ref().map(|(presence, _)| presence.ask_as(owner.clone()));
        let decisions = Acquisition::new(spec.ttl, waiting.is_some());
        Self {
            session,
            spec,
            owner,
            decisions,
            waiting,
            wake,
            known: false,
            outage: None,
            _asking: asking,
        }
    }

    async fn run(mut self, wait: Wait) -> Result<Option<Arc<Held>>, Error> {
        let session = Arc::clone(self.session);
        // Now that this counts as under way: either it sees a shutdown, or the shutdown sees it.
        session.check_open()?;
        let mut elapsed = std::pin::pin!(session.sleep(wait));
        let mut closed_meanwhile = std::pin::pin!(session.until_closed());
        loop {
            let sent = self.session.now();
            let ask = self.ask();
            let known_before = std::mem::replace(&mut self.known, true);
            let answer = tokio::select! {
                biased;
                answer = self.session.store.acquire(ask) => answer,
                () = &mut elapsed => return Err(self.elapsed()),
                () = &mut closed_meanwhile => return Err(closed()),
            };
            let now = self.session.now();
            self.session.registry.settle(self.session);
            match (self.conclude(now, sent, known_before, &answer), answer) {
                (NextAsk::Hold, Ok(Acquired::Granted { fencing })) => {
                    return Ok(Some(self.hold(sent, fencing)));
                }
                (NextAsk::Hold, _) => unreachable!("only a grant is held"),
                (NextAsk::Now, _) => {}
                (NextAsk::At(at), _) => {
                    tokio::select! {
                        biased;
                        () = &mut elapsed => return Err(self.elapsed()),
                        () = &mut closed_meanwhile => return Err(closed()),
                        () = self.hint() => {}
                        () = self.session.host.sleep_until(at) => {}
                    }
                }
                (NextAsk::GiveUp, Ok(Acquired::Taken { .. })) => {
                    tracing::debug!(key = %self.spec.key, "taken");
                    return Ok(None);
                }
                (NextAsk::GiveUp, Ok(Acquired::Granted { .. })) => {
                    return Err(too_slow(self.spec.ttl));
                }
                (NextAsk::GiveUp, Err(error)) => return Err(error),
            }
        }
    }

    /// Draws the conclusions from an answer to the ask that left at `sent`.
    fn conclude(
        &mut self,
        now: Moment,
        sent: Moment,
        known_before: bool,
        answer: &Result<Acquired, Error>,
    ) -> NextAsk {
        self.outage = answer.as_ref().err().cloned();
        match answer {
            Ok(Acquired::Granted { .. }) => self.decisions.on_granted(now, sent),
            Ok(Acquired::Taken { retry_in, .. }) => {
                // Who does not wait takes no place, so there is nothing to give back.
                self.known = self.waiting.is_some();
                self.decisions.on_taken(now, *retry_in)
            }
            Err(error) => {
                if error.kind() != ErrorKind::Unknown {
                    self.known = known_before;
                }
                let next =
                    self.decisions.on_failed(now, error.kind(), random_u32(&*self.session.host));
                if let NextAsk::At(at) = next {
                    let retry_in = at.since(now);
                    let key = &self.spec.key;
                    tracing::warn!(%key, %error, ?retry_in, "the store could not be asked");
                }
                next
            }
        }
    }

    /// The time to wait is over: taken is one thing, a store that cannot be asked another.
    fn elapsed(&mut self) -> Error {
        match self.outage.take() {
            Some(outage) => outage,
            None if self.decisions.is_answered() => wait_elapsed(),
            None => Error::new(
                ErrorKind::Unknown,
                "the store did not answer in the whole time to wait; whatever it may still grant \
                 is given back, look whether it is there",
            ),
        }
    }

    fn ask(&mut self) -> Ask {
        let ask_no = self.decisions.ask();
        let Spec { key, claim, ttl, lock_delay, why, fencing } = self.spec;
        let line = match &self.waiting {
            None => Line::Stand,
            Some(_) => Line::Join {
                waiter_ttl: ttl.waiter_ttl(),
                handed_ttl: ttl.waiter_ttl().with_delay(*lock_delay),
                ask_no,
                inbox: self.session.id.clone(),
            },
        };
        let client = self.session.record.clone();
        let note = (client.is_some() || why.is_some()).then(|| Note { client, why: why.clone() });
        Ask {
            key: key.clone(),
            owner: self.owner.clone(),
            claim: *claim,
            ttl: self.spec.kept_ttl(),
            line,
            note,
            reserve: u32::from(*fencing),
        }
    }

    async fn hint(&self) {
        match &self.wake {
            Some(wake) => wake.notified().await,
            None => pending().await,
        }
    }

    /// The lease is ours: the driver takes care of it from now on.
    fn hold(mut self, sent: Moment, fencing: Option<FencingBlock>) -> Arc<Held> {
        let life = LeaseLife::granted(sent, self.spec.ttl, fencing);
        let held = Held::new(self.lease_id(), self.spec.kept_ttl(), life);
        self.session.registry.adopt(self.session, Arc::clone(&held));
        self.known = false;
        tracing::debug!(
            key = %self.spec.key,
            fence = fencing.map(|block| block.first.get()),
            "granted"
        );
        held
    }

    fn lease_id(&self) -> LeaseId {
        LeaseId { key: self.spec.key.clone(), owner: self.owner.clone(), claim: self.spec.claim }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some((presence, _)) = &self.waiting {
            // Before the turn passes to the next task, which then asks under its own token.
            presence.stop_asking();
        }
        if self.known {
            self.session.release_in_background(self.lease_id(), self.spec.kept_ttl().get());
        }
    }
}

fn wait_elapsed() -> Error {
    Error::new(
        ErrorKind::WaitElapsed,
        "another held the lock for the whole time to wait; nothing was taken, \
         wait longer or come back later",
    )
}

fn too_slow(ttl: Ttl) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the store answers too slowly for a ttl of {ttl:?}; nothing is held, use a longer ttl"
        ),
    )
}
