//! Asking a node again for a lease that it does not have, once a majority has granted it.
//!
//! A lease that few more than a majority have is lost to the next owner if few nodes forget it. So
//! a node that voted for another is asked again when that vote ends, and a node that lost the lease
//! when a majority has renewed it.
//!
//! A vote may end long before its time: a client that did not get a majority gives its votes back
//! after about a round trip. So the first pause is two round trips, and each is twice as long as
//! the one before.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use super::Shared;
use super::ballot::last_of;
use super::leases::Known;
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::Error;
use crate::core::token::FencingToken;
use crate::core::ttl::Ttl;
use crate::host::{Host, random_u32};
use crate::store::{Acquired, Ask, LeaseId, Line, Otherwise, Renewal, Store};

/// The shortest pause before a node is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl<S: Store> Shared<S> {
    /// Asks a node for a lease that it does not have, in the background, until the node has it, or
    /// does not answer, or the lease ends. `free_in`: when the vote for another ends at the latest;
    /// `None` if the node may be asked at once.
    ///
    /// A strict node that has just forgotten refuses the lease until its quarantine is over, since
    /// it cannot tell this ask from any other new one. That is safe, as a vote less always is.
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
        // Not on the runtime of the caller, who may block it: the next renewal leaves a node alone
        // that is being filled.
        self.host.spawn(Box::pin(filling.run(free_in)));
    }
}

/// The pauses between the asks. Renewals are no further apart than the longest.
fn pauses(round_trip: Duration, left: Duration) -> Delays {
    let longest = (left / 3).max(PAUSE_MIN);
    // The upper half of it is drawn from.
    let first = round_trip.saturating_mul(4).clamp(PAUSE_MIN * 2, longest.max(PAUSE_MIN * 2));
    Backoff { first, longest }.delays()
}

/// One node that is being asked for a lease. Between its asks it keeps no store alive.
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
                Some(Ok(Acquired::Taken { retry_in, .. })) => {
                    Some(retry_in.unwrap_or(Duration::MAX))
                }
                Some(Ok(Acquired::Quarantined(quarantine))) => Some(quarantine.left),
                Some(Ok(Acquired::Split { round_trip })) => Some(round_trip),
                // It is out of reach, which the next renewal finds out as well, or the lease ended.
                Some(Err(_)) | None => return,
            };
        }
    }

    /// Asks the node, if the lease is valid. `None` once the lease has ended.
    async fn ask(&self, shared: &Shared<S>) -> Option<Result<Acquired, Error>> {
        let (_, ttl) = self.valid(shared)?;
        let ask = Ask {
            key: self.lease.key.clone(),
            owner: self.lease.owner.clone(),
            claim: self.lease.claim,
            ttl,
            line: Line::Stand,
            note: None,
            reserve: 0,
        };
        self.answered(shared, shared.nodes[self.node].store.acquire(ask)).await
    }

    /// Has the node count as far as the others. Best effort: the next grant is higher all the same,
    /// by what the majority counts.
    async fn raise(&self, shared: &Shared<S>) {
        let Some((Known { fencing: Some(block), .. }, ttl)) = self.valid(shared) else { return };
        let renewal = Renewal {
            lease: self.lease.clone(),
            ttl,
            at_least: FencingToken::new(last_of(block)),
            reserve: 0,
            idle: false,
        };
        let answer = shared.nodes[self.node].store.renew(renewal);
        let _best_effort = self.answered(shared, answer).await;
    }

    /// What is known of the lease while it is valid, and how long the other nodes still keep it.
    fn valid(&self, shared: &Shared<S>) -> Option<(Known, Ttl)> {
        let now = shared.host.now();
        let known = shared.leases.valid(&self.lease.owner, now)?;
        Some((known, Ttl::new(known.kept_until.since(now)).ok()?))
    }

    /// The answer to a request, unless the lease ends first. Where a server forgot a script, the
    /// request may be sent once more while its answer is waited for.
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
                // It goes on, by this token: a release would spend it.
                return None;
            }
            // Its release may have been sent before the request was: so one is sent behind it.
            let store = &shared.nodes[self.node].store;
            drop(store.release(self.lease.clone(), Otherwise::Free));
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
