//! The story of one acquisition for `tracing`: a span from the ask to the end of the guard, and
//! events in it.
//!
//! A story exists only if a subscriber listens. Otherwise an acquisition costs two reads of an
//! atomic, and nothing is measured or formatted.
//!
//! An event is told before its fields are recorded in the span. Otherwise a log line would have
//! them twice.
//!
//! No lock of the session is held while something is told, since a subscriber may use a guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tracing::field::{Empty, display};
use tracing::{Level, Span};

use super::Session;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::lease::Turn;
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::store::LeaseId;

/// The target of all events and spans about a lock, for filters.
pub(super) const TARGET: &str = "leasehold::lock";

/// The story of one acquisition.
pub(super) struct Story {
    span: Span,
    /// When the caller asked. After the grant, since when it holds the lock.
    since: Moment,
    renewals: AtomicU64,
}

/// How a guard ended.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Released,
    Dropped,
}

impl Ending {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Dropped => "dropped",
        }
    }
}

/// Tells something in the span of a story, if there is one.
pub(super) fn tell_in<T>(story: Option<&Story>, tell: impl FnOnce() -> T) -> T {
    match story {
        Some(story) => story.span.in_scope(tell),
        None => tell(),
    }
}

/// A span of time as a field.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The story of a caller that asks for a lock. Dropping it tells that the caller gave up.
pub(super) struct Asked<'a> {
    session: &'a Session,
    key: &'a Key,
    story: Option<Box<Story>>,
}

impl<'a> Asked<'a> {
    pub(super) fn begin(session: &'a Session, key: &'a Key) -> Self {
        let span = tracing::info_span!(
            target: TARGET,
            "lock",
            key = %key,
            token_hint = Empty,
            fence = Empty,
            waited_ms = Empty,
            held_ms = Empty,
            renewals = Empty,
            ended = Empty,
            reason = Empty,
        );
        let is_told = !span.is_disabled() || tracing::enabled!(target: TARGET, Level::WARN);
        let story = is_told
            .then(|| Box::new(Story { span, since: session.now(), renewals: AtomicU64::new(0) }));
        Self { session, key, story }
    }

    /// Does one step of the acquisition in its span.
    pub(super) fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        tell_in(self.story.as_deref(), step)
    }

    /// Tells how the ask ended. If the ask got a lease, its guard continues the story.
    pub(super) fn answered(
        mut self,
        answer: Result<Option<(&LeaseId, &Turn)>, &Error>,
    ) -> Option<Arc<Story>> {
        let mut story = self.story.take()?;
        let (key, now) = (self.key, self.session.now());
        let waited_ms = millis(now.since(story.since));
        match answer {
            Ok(Some((id, turn))) => {
                story.since = now;
                story.acquired(id, turn, waited_ms);
                return Some(Arc::from(story));
            }
            Ok(None) => story.gave_up("taken", waited_ms, || {
                tracing::debug!(target: TARGET, %key, waited_ms, "taken");
            }),
            Err(error) => story.gave_up("failed", waited_ms, || {
                tracing::debug!(target: TARGET, %key, waited_ms, %error, "not acquired");
            }),
        }
        None
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(story) = self.story.take() else { return };
        if self.session.was_forked() {
            // In a fork, the subscriber's mutexes may be locked for ever.
            return std::mem::forget(story);
        }
        let (key, waited_ms) = (self.key, millis(self.session.now().since(story.since)));
        story.gave_up("cancelled", waited_ms, || {
            tracing::debug!(target: TARGET, %key, waited_ms, "stopped waiting");
        });
    }
}

impl Story {
    /// Counts a confirmed renewal. Returns how many there were so far.
    pub(super) fn count_renewal(&self) -> u64 {
        self.renewals.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn acquired(&self, id: &LeaseId, turn: &Turn, waited_ms: u64) {
        let (token_hint, fence) = (id.owner.hint(), turn.fencing.map(display));
        // Later turns of a lease come from another task of this client, without a request.
        let from = if turn.number == 0 { "store" } else { "client" };
        self.span.in_scope(|| {
            tracing::debug!(
                target: TARGET, key = %id.key, token_hint, fence, waited_ms, from, "acquired"
            );
        });
        self.span.record("token_hint", token_hint);
        self.span.record("fence", &fence);
        self.span.record("waited_ms", waited_ms);
    }

    /// Tells that the call ended without a guard.
    fn gave_up(&self, ended: &'static str, waited_ms: u64, tell: impl FnOnce()) {
        self.span.in_scope(tell);
        self.span.record("waited_ms", waited_ms);
        self.span.record("ended", ended);
    }

    /// How long the guard has held the lock in milliseconds, and how often it was renewed.
    fn held(&self, now: Moment) -> (u64, u64) {
        (millis(now.since(self.since)), self.renewals.load(Ordering::Relaxed))
    }

    /// Tells that the guard ended, and records how.
    fn ended(&self, ended: &'static str, (held_ms, renewals): (u64, u64), tell: impl FnOnce()) {
        self.span.in_scope(tell);
        self.span.record("held_ms", held_ms);
        self.span.record("renewals", renewals);
        self.span.record("ended", ended);
    }

    /// Tells that a guard ended, and where its lease goes.
    pub(super) fn released(&self, id: &LeaseId, now: Moment, ending: Ending, lease: &str) {
        let (key, token_hint) = (&id.key, id.owner.hint());
        let (held_ms, renewals) = self.held(now);
        let ended = ending.as_str();
        self.ended(ended, (held_ms, renewals), || {
            tracing::debug!(
                target: TARGET, %key, token_hint, held_ms, renewals, ended, lease, "released"
            );
        });
    }

    /// Tells that the lease goes on without its guard.
    pub(super) fn detached(&self, id: &LeaseId, now: Moment) {
        let (key, token_hint) = (&id.key, id.owner.hint());
        let (held_ms, renewals) = self.held(now);
        self.ended("detached", (held_ms, renewals), || {
            tracing::debug!(target: TARGET, %key, token_hint, held_ms, renewals, "detached");
        });
    }

    /// Tells that a lease was lost, if that `is_news`.
    pub(super) fn lost(story: Option<&Self>, id: &LeaseId, now: Moment, lost: Lost, is_news: bool) {
        let (key, token_hint) = (&id.key, id.owner.hint());
        let held_so = story.map(|story| story.held(now));
        let (held_ms, renewals) = held_so.unzip();
        let tell = || {
            if is_news {
                let reason = display(lost);
                tracing::warn!(
                    target: TARGET, %key, token_hint, held_ms, renewals, reason, "lost"
                );
            }
        };
        match (story, held_so) {
            (Some(story), Some(held_so)) => {
                story.ended("lost", held_so, tell);
                story.span.record("reason", display(lost));
            }
            _ => tell(),
        }
    }
}
