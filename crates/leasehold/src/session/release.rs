//! A release that is on its way, and what becomes of it if nobody waits for the answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Session;
use crate::core::backoff::Backoff;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::random_u32;
use crate::store::{BoxAnswer, LeaseId, Otherwise, Released, Store};

/// A release that was submitted: the request is on its way. Ends with the first answer. Dropped
/// before, or ended without a clear answer, it is followed up in the background until the store
/// answers or would have let go by itself.
pub(crate) struct ReleaseInFlight {
    session: Arc<Session>,
    lease: LeaseId,
    keeps_until: Moment,
    answer: Option<BoxAnswer<Released>>,
}

impl ReleaseInFlight {
    /// Submits the release of `lease`, which the store would keep for `keeps_at_most` by itself.
    pub(crate) fn submit(session: Arc<Session>, lease: LeaseId, keeps_at_most: Duration) -> Self {
        session.registry.release_submitted();
        let keeps_until = session.now() + keeps_at_most;
        let answer: BoxAnswer<Released> =
            Box::pin(session.store.release(lease.clone(), Otherwise::Free));
        Self { session, lease, keeps_until, answer: Some(answer) }
    }

    fn follow_up(&self, answer: Option<BoxAnswer<Released>>) {
        let follow_up =
            FollowUp { lease: self.lease.clone(), keeps_until: self.keeps_until, answer };
        self.session.registry.follow_up(&self.session, follow_up);
    }
}

impl Future for ReleaseInFlight {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.answer.as_mut().expect("it is not polled after its end");
        let answer = std::task::ready!(answer.as_mut().poll(context));
        self.answer = None;
        match &answer {
            Err(error) if may_be_repeated(error) => self.follow_up(None),
            answer => self.session.registry.release_ended(ended_a_lease(answer)),
        }
        Poll::Ready(answer)
    }
}

impl Drop for ReleaseInFlight {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        // Often the answer is there already; then there is nothing to follow up.
        let looked = answer.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        match looked {
            Poll::Ready(Err(error)) if may_be_repeated(&error) => self.follow_up(None),
            Poll::Ready(answer) => self.session.registry.release_ended(ended_a_lease(&answer)),
            Poll::Pending => self.follow_up(Some(answer)),
        }
    }
}

/// A release that nobody waits for.
pub(super) struct FollowUp {
    lease: LeaseId,
    keeps_until: Moment,
    answer: Option<BoxAnswer<Released>>,
}

impl FollowUp {
    /// Repeats the release until it is answered, or until the store has let go by itself.
    pub(super) async fn finish(mut self, session: Arc<Session>) {
        let mut counted = Counted { session: Arc::clone(&session), released: false };
        // As long as a command of that ttl may take, so that a key is gone soon after the store
        // answers again, and a store that is gone for a day is not beaten all day.
        let longest = self.keeps_until.since(session.now()) / 4;
        let longest = longest.clamp(Duration::from_millis(25), Duration::from_secs(1));
        let mut pauses = Backoff { first: Duration::from_millis(10), longest }.delays();
        loop {
            let answer = match self.answer.take() {
                Some(answer) => answer,
                None => Box::pin(session.store.release(self.lease.clone(), Otherwise::Free)),
            };
            match answer.await {
                answer @ Ok(_) => {
                    counted.released = ended_a_lease(&answer);
                    return;
                }
                Err(error) if may_be_repeated(&error) && session.now() < self.keeps_until => {}
                Err(error) => {
                    let key = &self.lease.key;
                    tracing::warn!(%key, %error, "a release failed; the lease runs out by itself");
                    return;
                }
            }
            let pause = pauses.next(random_u32(&*session.host));
            session.host.sleep_until(session.now() + pause).await;
        }
    }
}

/// Counts a release as ended when it goes, however it goes.
struct Counted {
    session: Arc<Session>,
    released: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.session.registry.release_ended(self.released);
    }
}

/// Whether a lease ended, and not only a place in line, or nothing at all.
fn ended_a_lease(answer: &Result<Released, Error>) -> bool {
    matches!(answer, Ok(Released::Freed | Released::HandedOver | Released::Kept { .. }))
}

fn may_be_repeated(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
}
