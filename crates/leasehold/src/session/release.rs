//! A release that was sent, with or without a caller that waits for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Session;
use super::left_over::Noted;
use super::story::TARGET;
use crate::core::backoff::Backoff;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::store::{BoxAnswer, LeaseId, OnRelease, Released, Store};

/// A release that was submitted. Ends with the first answer. If it is dropped earlier, or the
/// answer is unclear, the driver follows it up. That ends when the store answers, or when the lease
/// has ended by itself.
pub(crate) struct ReleaseInFlight(Option<FollowUp>);

impl ReleaseInFlight {
    /// Submits the release of `lease`. Without it, the store would keep the lease for
    /// `keeps_at_most`.
    pub(crate) fn submit(
        session: Arc<Session>,
        lease: LeaseId,
        on_release: OnRelease,
        keeps_at_most: Duration,
    ) -> Self {
        let mut release = FollowUp::unsent(session, lease, on_release, keeps_at_most);
        release.answer = Some(release.send());
        Self(Some(release))
    }

    /// The next ask of this client for the key is sent after this release, even if its answer is
    /// lost.
    pub(super) fn noted(mut self) -> Self {
        self.0.iter_mut().for_each(FollowUp::note);
        self
    }

    /// Notes that a guard relied on the lease until this release.
    pub(super) fn by_holder(mut self) -> Self {
        self.0.iter_mut().for_each(|follow_up| follow_up.by_holder = true);
        self
    }

    /// Looks for the answer, and leaves the rest to the driver.
    fn look(&mut self, context: &mut Context<'_>) -> Poll<Result<Released, Error>> {
        let follow_up = self.0.as_mut().expect("nobody looks after the end");
        let answer = follow_up.answer.as_mut().expect("its answer was not taken yet");
        let answer = std::task::ready!(answer.as_mut().poll(context));
        follow_up.answer = None;
        match &answer {
            Err(error) if may_be_repeated(error) => {
                follow_up.by_holder = false;
                follow_up.note();
                self.leave_to_the_driver();
            }
            answer => {
                if let Ok(answer) = answer {
                    follow_up.tell(answer);
                }
                follow_up.counted.released = ended_a_lease(answer);
                self.0 = None;
            }
        }
        Poll::Ready(answer)
    }

    fn leave_to_the_driver(&mut self) {
        if let Some(follow_up) = self.0.take() {
            let session = Arc::clone(&follow_up.counted.session);
            session.registry.follow_up(&session, follow_up);
        }
    }
}

impl Future for ReleaseInFlight {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(context)
    }
}

impl Drop for ReleaseInFlight {
    fn drop(&mut self) {
        if let Some(follow_up) = &self.0
            && !follow_up.counted.session.is_here()
        {
            return std::mem::forget(self.0.take());
        }
        // If the answer is there already, nothing is left to follow up.
        if self.0.is_some() && self.look(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.leave_to_the_driver();
        }
    }
}

/// A release in the background.
pub(super) struct FollowUp {
    lease: LeaseId,
    on_release: OnRelease,
    keeps_until: Moment,
    answer: Option<BoxAnswer<Released>>,
    /// Whether a guard relied on the lease until now, and no earlier request could release it.
    by_holder: bool,
    /// Set while the lease counts as left over: from the first failure on, or from the beginning.
    noted: Option<Noted>,
    counted: Releasing,
}

impl FollowUp {
    /// A release whose request is not sent yet. It is skipped if the lease ends before its turn
    /// comes.
    pub(super) fn unsent(
        session: Arc<Session>,
        lease: LeaseId,
        on_release: OnRelease,
        keeps_at_most: Duration,
    ) -> Self {
        let keeps_until = session.now() + keeps_at_most;
        let counted = Releasing::new(session);
        let (answer, by_holder, noted) = (None, false, None);
        Self { lease, on_release, keeps_until, answer, by_holder, noted, counted }
    }

    /// The shard of the store that it goes to.
    pub(super) fn shard(&self) -> u64 {
        self.counted.session.store.shard(&self.lease.key)
    }

    fn send(&self) -> BoxAnswer<Released> {
        let store = &self.counted.session.store;
        store.release(self.lease.clone(), self.on_release.clone())
    }

    /// Notes that the lease may be left at the store until a repetition is answered.
    fn note(&mut self) {
        let Self { lease, on_release, counted, .. } = &*self;
        if self.noted.is_none() {
            self.noted = Some(Noted::new(&counted.session, lease, on_release));
        }
    }

    fn tell(&self, answer: &Released) {
        let (key, token_hint) = (&self.lease.key, self.lease.owner.hint());
        if self.by_holder && *answer == Released::NotHeld {
            tracing::warn!(target: TARGET, %key, token_hint, "lost before its release");
        } else {
            tracing::debug!(%key, token_hint, ?answer, "release answered");
        }
    }

    /// Handles the answer if it is there already. Returns whether nothing is left to do.
    pub(super) fn settle(&mut self) -> bool {
        let Some(answer) = &mut self.answer else { return false };
        let Poll::Ready(answer) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        else {
            return false;
        };
        self.answer = None;
        self.conclude(&answer)
    }

    /// Handles an answer. Returns whether nothing is left to do.
    fn conclude(&mut self, answer: &Result<Released, Error>) -> bool {
        self.counted.released = ended_a_lease(answer);
        let error = match answer {
            Ok(answer) => {
                self.tell(answer);
                return true;
            }
            Err(error) => error,
        };
        // This request may have ended the lease, so the next answer tells nothing of the holder.
        self.by_holder = false;
        if may_be_repeated(error) && self.counted.session.now() < self.keeps_until {
            self.note();
            return false;
        }
        let key = &self.lease.key;
        tracing::warn!(
            target: TARGET, %key, %error, "a release failed; the lease runs out by itself"
        );
        true
    }

    /// Repeats the release until the store answers, or until the lease has ended by itself.
    pub(super) async fn finish(mut self) {
        let session = Arc::clone(&self.counted.session);
        if self.answer.is_none() && session.now() >= self.keeps_until {
            return;
        }
        // The pauses grow up to a quarter of the remaining time, between 25 ms and 1 s. So a key is
        // freed soon after an outage, and an outage of a day does not mean constant retries.
        let longest = self.keeps_until.since(session.now()) / 4;
        let longest = longest.clamp(Duration::from_millis(25), Duration::from_secs(1));
        let mut pauses = Backoff { first: Duration::from_millis(10), longest }.delays();
        loop {
            let answer = self.answer.take().unwrap_or_else(|| self.send());
            if self.conclude(&answer.await) {
                return;
            }
            session.pause(&mut pauses).await;
        }
    }
}

/// Counts a release as under way while it exists, however it ends.
struct Releasing {
    session: Arc<Session>,
    released: bool,
}

impl Releasing {
    fn new(session: Arc<Session>) -> Self {
        session.registry.release_submitted();
        Self { session, released: false }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.session.registry.release_ended(self.released);
    }
}

/// Whether a release that failed in this way is repeated. The server may have lost the rights of
/// this client for a while, and the lease is still there when they are back.
pub(super) fn may_be_repeated(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::Denied
}

/// Whether the answer ended a lease, and not only a place in line.
fn ended_a_lease(answer: &Result<Released, Error>) -> bool {
    matches!(answer, Ok(Released::Freed | Released::HandedOver | Released::Kept { .. }))
}
