//! A key that stays taken after its guard ended. The lease is renewed once more, so that it ends at
//! a given moment, and is then left alone.
//!
//! A renewal never shortens a lease and never revives one. So a repeated or late request can only
//! confirm what the first one did.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::held::Held;
use super::registry::Counted;
use super::story::{Ending, TARGET};
use super::{Session, lost_error};
use crate::core::backoff::Backoff;
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::LeaseState;
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::store::{BoxAnswer, Renewal, Renewed, Store, within};

/// A key that stays taken, until the store has confirmed it.
struct Keeping {
    session: Arc<Session>,
    held: Arc<Held>,
    /// When the lease ends.
    until: Moment,
    /// Until when the guard could rely on the lease.
    held_until: Moment,
    /// When the lease has surely ended if no request arrived.
    ended_by: Moment,
    /// Whether nobody uses the lock any more.
    idle: bool,
    /// Dropped last, so that a shutdown waits for the answer.
    _counted: Counted,
}

impl Session {
    /// Keeps the key of a lease taken until `until`. For this client, the lease has ended already.
    /// The request is submitted before this returns, and repeated in the background.
    pub(super) fn keep(
        self: &Arc<Self>,
        held: &Arc<Held>,
        until: Moment,
        ending: Ending,
    ) -> BoxAnswer<()> {
        let keeping = Keeping {
            session: Arc::clone(self),
            until,
            held_until: held.life().deadline(),
            ended_by: self.now() + held.keeps_at_most(),
            idle: true,
            held: Arc::clone(held),
            _counted: Counted::new(self),
        };
        let answer = keeping.submit();
        self.registry.let_go(held, self.now());
        self.forget_lease(held);
        let (tell, told) = oneshot::channel();
        self.host.spawn(Box::pin(async move {
            let kept = keeping.finish(answer).await;
            // The caller may be gone.
            let _untold = tell.send(kept);
        }));
        if let Some(story) = held.take_story() {
            story.released(&held.id, self.now(), ending, "kept");
        }
        Box::pin(async move { told.await.unwrap_or_else(|_| Err(not_confirmed(None))) })
    }

    /// Makes a detached lease last for a whole ttl, if it was handed over for a short time and not
    /// renewed since. Nobody else knows that it is short. Returns whether that is necessary.
    pub(super) fn lift(self: &Arc<Self>, held: &Arc<Held>) -> bool {
        let life = held.life();
        let (is_short, deadline) =
            (!life.is_lifted() && life.state() == LeaseState::Released, life.deadline());
        drop(life);
        if is_short {
            let keeping = Keeping {
                session: Arc::clone(self),
                until: self.now() + held.keeps_at_most(),
                held_until: deadline,
                ended_by: deadline,
                idle: false,
                held: Arc::clone(held),
                _counted: Counted::new(self),
            };
            let answer = keeping.submit();
            self.host.spawn(Box::pin(async move { drop(keeping.finish(answer).await) }));
        }
        is_short
    }
}

impl Keeping {
    /// Submits the request.
    fn submit(&self) -> BoxAnswer<Renewed> {
        let Self { session, held, until, idle, .. } = self;
        // Stores count whole milliseconds, and the key must not be free too early.
        let left = until.since(session.now()) + Duration::from_millis(1);
        let ttl = Ttl::nearest(left);
        let lease = held.id.clone();
        let renewal = Renewal { lease, ttl, at_least: None, reserve: 0, idle: *idle };
        let answer = session.store.renew(renewal);
        // The store's own limit suits the longer ttl, and would leave no time to repeat the
        // request.
        Box::pin(within(Arc::clone(&session.host), command_limit(held.spec.ttl), answer))
    }

    /// Repeats the request until the store answers, or until the lease has ended by itself.
    async fn finish(self, mut answer: BoxAnswer<Renewed>) -> Result<(), Error> {
        let Self { session, held, .. } = &self;
        let ttl = held.spec.ttl.get();
        let longest = (ttl / 10).min(Duration::from_secs(1));
        let mut pauses = Backoff { first: longest / 2, longest }.delays();
        let kept = loop {
            match answer.await {
                // After its deadline, a lease may have ended by itself, and its guard held it.
                Ok(Renewed::Lost) if session.now() < self.held_until => {
                    break Err(lost_error(Lost::NotOurs));
                }
                Ok(Renewed::Lost) => {
                    let message = "the lease ended before the store had confirmed that the lock \
                                   stays taken; the lock is free, or another client has it";
                    break Err(Error::new(ErrorKind::Unknown, message));
                }
                Ok(_) => break Ok(()),
                Err(error) if !error.is_retryable() || session.now() >= self.ended_by => {
                    break Err(not_confirmed(Some(error)));
                }
                Err(_) => {}
            }
            session.pause(&mut pauses).await;
            answer = self.submit();
        };
        // Only now may the store stop asking nodes that lost the lease for it again.
        session.store.let_go(&held.id);
        if let Err(error) = &kept {
            let key = &held.id.key;
            tracing::warn!(target: TARGET, %key, %error, "the lock may be free too early");
        }
        kept
    }
}

fn not_confirmed(cause: Option<Error>) -> Error {
    let kind = cause.as_ref().map_or(ErrorKind::Unknown, Error::kind);
    let error = Error::new(
        kind,
        "the store did not confirm that the lock stays taken; it may be free after one ttl; expect \
         that another client takes it early",
    );
    match cause {
        Some(cause) => error.with_source(cause),
        None => error,
    }
}
