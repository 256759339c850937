//! Asks a node again for a lease that it does not have, once a majority has granted it.
//!
//! If barely a majority has a lease, the next owner can get it as soon as a few nodes forget it. So
//! a node that voted for another client is asked again when that vote ends. A node that lost the
//! lease is asked again when a majority has renewed it.
//!
//! A vote may end long before its time, because a client that got no majority releases its votes
//! after about one round trip. So the first pause is two round trips, and each pause is twice as
//! long as the one before.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use super::Shared;
use super::leases::Known;
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::Error;
use crate::core::token::FencingToken;
use crate::core::ttl::Ttl;
use crate::host::{Host, random_u32};
use crate::store::{Acquired, Afterwards, Ask, LeaseId, OnRelease, Renewal, Store, Why};

/// The shortest pause before a node is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl<S: Store> Shared<S> {
    /// Asks a node for a lease in the background until the node grants it, fails, or the lease
    /// ends. `free_in`: how long the node's vote for another client can last; `None` to ask at
    /// once.
    ///
    /// A strict node that has just forgotten its leases refuses this one until its quarantine ends.
    /// To the node, this is a new request like any other. The refusal is safe, because a missing
    /// vote is always safe.
    pub(super) fn fill(self: &Arc<Self>, lease: &LeaseId, node: usize, free_in: Option<Duration>) {
        let now = self.host.now();
        let Some(known) = self.leases.begin_filling(&lease.owner, node, now) else { return };
        let filling = Filling {
            shared: Arc::downgrade(self),
            host: Arc::clone(&self.host),
            lease: lease.clone(),
            node,
            pauses: pauses(self.nodes[node].round_trip(), known.kept_until.since(now)),
        };
        // This does not run on the runtime of the caller, because the caller may block that. The
        // next renewal skips a node that is being filled.
        self.host.spawn(Box::pin(filling.run(free_in)));
    }
}

/// The pauses between the requests. The longest is about the time between renewals.
fn pauses(round_trip: Duration, left: Duration) -> Delays {
    let longest = (left / 3).max(PAUSE_MIN);
    // `Backoff` draws from the upper half of this.
    let first = round_trip.saturating_mul(4).clamp(PAUSE_MIN * 2, longest.max(PAUSE_MIN * 2));
    Backoff { first, longest }.delays()
}

/// A node that is being asked for a lease. Between requests, it does not keep the store alive.
struct Filling<S> {
    shared: Weak<Shared<S>>,
    host: Arc<dyn Host>,
    lease: LeaseId,
    node: usize,
    pauses: Delays,
}

impl<S: Store> Filling<S> {
    async fn run(mut self, mut free_in: Option<Duration>) {
        loop {
            if let Some(free_in) = free_in {
                let pause = self.pauses.next(random_u32(&*self.host)).min(free_in).max(PAUSE_MIN);
                self.host.sleep_until(self.host.now() + pause).await;
            }
            let Some(shared) = self.shared.upgrade() else { return };
            free_in = match self.ask(&shared).await {
                Some(Ok(Acquired::Granted { .. })) => return self.raise(&shared).await,
                Some(Ok(Acquired::Refused(refusal))) => match refusal.why {
                    Why::TooFewCopies(_) => return,
                    _ if refusal.token == Afterwards::Spent => return,
                    _ => Some(refusal.retry_in.unwrap_or(Duration::MAX)),
                },
                // The next renewal also finds out that the node is down.
                Some(Err(_)) | None => return,
            };
        }
    }

    /// Asks the node, if the lease is valid. `None` once the lease has ended.
    async fn ask(&self, shared: &Shared<S>) -> Option<Result<Acquired, Error>> {
        let (_, ttl) = self.valid(shared)?;
        let LeaseId { key, owner, claim } = self.lease.clone();
        let ask = Ask::new(key, owner, claim, ttl);
        self.answered(shared, shared.nodes[self.node].store.acquire(ask)).await
    }

    /// Raises the node's counter to our last token. This is best effort, because a majority counts
    /// up to that token, so the next grant has a higher number anyway.
    async fn raise(&self, shared: &Shared<S>) {
        let Some((Known { fencing: Some(block), .. }, ttl)) = self.valid(shared) else { return };
        let at_least = FencingToken::new(block.last());
        let renewal = Renewal { at_least, ..Renewal::new(self.lease.clone(), ttl) };
        let answer = shared.nodes[self.node].store.renew(renewal);
        let _best_effort = self.answered(shared, answer).await;
    }

    /// The lease while it is valid, and how long the other nodes still keep it.
    fn valid(&self, shared: &Shared<S>) -> Option<(Known, Ttl)> {
        let now = shared.host.now();
        let known = shared.leases.valid(&self.lease.owner, now)?;
        Some((known, Ttl::new(known.kept_until.since(now)).ok()?))
    }

    /// The answer to a request, or `None` if the lease ends first. If a server forgot a script,
    /// polling the future may send the request once more.
    async fn answered<T>(
        &self,
        shared: &Shared<S>,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Option<Result<T, Error>> {
        let mut answer = pin!(answer);
        let has_ended = || shared.leases.known(&self.lease.owner).is_none();
        let answered = poll_fn(|context| match has_ended() {
            false => answer.as_mut().poll(context).map(Some),
            true => Poll::Ready(None),
        })
        .await;
        if has_ended() {
            if shared.leases.is_let_go(&self.lease.owner) {
                // The lease goes on without this client. A release would end it.
                return None;
            }
            // The release of the lease may have been sent before this request. Send another after
            // it.
            let store = &shared.nodes[self.node].store;
            drop(store.release(self.lease.clone(), OnRelease::Free));
            return None;
        }
        answered
    }
}

impl<S> Drop for Filling<S> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.leases.end_filling(&self.lease.owner, self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_begin_at_two_round_trips_and_double_up_to_a_third_of_the_lease() {
        let ms = Duration::from_millis;
        // round trip in ms, time left in ms, the shortest of the first three pauses and the longest
        for (round_trip, left, first, longest) in [
            (5, 10_000, [10, 20, 40], 3_333),
            (0, 10_000, [1, 2, 4], 3_333),
            (5_000, 3_000, [500, 500, 500], 1_000),
            (0, 3, [1, 1, 1], 1),
        ] {
            let mut low = pauses(ms(round_trip), ms(left));
            for expected in first {
                assert_eq!(low.next(0).max(PAUSE_MIN), ms(expected), "{round_trip} {left}");
            }
            let mut high = pauses(ms(round_trip), ms(left));
            let last = (0..20).map(|_| high.next(u32::MAX)).last().expect("some");
            assert_eq!(last.as_millis(), longest, "{round_trip} {left}");
        }
    }
}
