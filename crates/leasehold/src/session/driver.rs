//! The future that renews every lease of a session, watches every deadline, and follows releases
//! up.
//!
//! It runs outside the user's runtime, so a blocked or dropped executor loses no lease. It ends
//! after a second without work, and the next lease starts it again.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::Session;
use super::held::Held;
use super::registry::{Counted, Due, RELEASES_MAX};
use super::release::FollowUp;
use super::story::{TARGET, millis, tell_in};
use crate::core::error::Error;
use crate::core::lease::LeaseState;
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::validity::command_limit;
use crate::host::random_u32;
use crate::store::{Renewed, Store, within};

/// How many renewals of a shard wait for an answer at a time, each with its limit. If 100 000
/// leases were renewed at the same time, most renewals would queue past their limit, be repeated,
/// and be late for ever. With answers after 50 ms, this many still make 20 000 a second.
const RENEWALS_MAX: usize = 1_024;

/// The answer to a renewal.
struct Answer {
    held: Arc<Held>,
    shard: u64,
    sent: Moment,
    renewed: Result<Renewed, Error>,
}

/// Work that is done.
enum Done {
    Renewal(Answer),
    /// A release, at this shard.
    Release(u64),
}

/// Work under way.
type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// Marks that a driver is at work. If it is dropped early, another driver takes over, so that the
/// leases stay watched. The cause may be a panic in a store or in a tracing subscriber, or the end
/// of its host.
struct Driving {
    session: Arc<Session>,
    has_begun: bool,
    is_done: bool,
}

impl Drop for Driving {
    fn drop(&mut self) {
        if !self.is_done {
            self.session.registry.driver_is_gone(&self.session, self.has_begun);
        }
    }
}

async fn drive(mut driving: Driving) {
    driving.has_begun = true;
    let session = Arc::clone(&driving.session);
    let mut work: FuturesUnordered<Work> = FuturesUnordered::new();
    let mut renewals = Renewals::default();
    let mut releasing = BTreeMap::new();
    let mut idle_since = session.now();
    loop {
        let (now, is_busy) = (session.now(), !work.is_empty());
        let plan = session.registry.plan(now, &mut releasing, is_busy, &mut idle_since);
        // Tell holders first. They must learn of it even if a store or a subscriber panics next.
        for (held, _) in plan.duties.iter().filter(|(_, due)| matches!(due, Due::Lost(_))) {
            held.tell();
        }
        for (held, due) in plan.duties {
            match due {
                Due::Renew => renewals.add(session.store.shard(&held.id.key), held),
                Due::Lost(lost) => session.tell_lost(&held, lost),
                Due::GiveUp => session.end_if_idle(&held),
            }
        }
        renewals.send(|shard, held| work.push(renewal(&session, shard, held)));
        for (shard, follow_up) in plan.follow_ups {
            work.push(Box::pin(follow_up.finish().map(move |()| Done::Release(shard))));
        }
        let Some(next) = plan.next else {
            driving.is_done = true;
            return;
        };
        let mut timer = session.host.sleep_until(next);
        tokio::select! {
            biased;
            Some(done) = work.next() => session.take_done(&mut renewals, &mut releasing, done),
            () = session.registry.wake() => {}
            () = &mut timer => {}
        }
        // Take everything else that arrived before looking for due work again.
        while let Some(Some(done)) = work.next().now_or_never() {
            session.take_done(&mut renewals, &mut releasing, done);
        }
    }
}

/// The renewals that are due and those under way, by the shard that they go to. A renewal at a
/// silent shard takes its full time limit. So each shard has its own limit on renewals under way.
#[derive(Default)]
struct Renewals {
    shards: BTreeMap<u64, Shard>,
    /// How many renewals were ever due. Distinguishes leases with the same deadline.
    added: u64,
}

/// The renewals of one shard.
#[derive(Default)]
struct Shard {
    /// The renewals that are due, by deadline. The most urgent one goes first.
    due: BTreeMap<(Moment, u64), Arc<Held>>,
    under_way: usize,
}

impl Renewals {
    fn add(&mut self, shard: u64, held: Arc<Held>) {
        let deadline = held.life().deadline();
        self.added += 1;
        self.shards.entry(shard).or_default().due.insert((deadline, self.added), held);
    }

    /// Sends as many renewals as the limits allow.
    fn send(&mut self, mut send: impl FnMut(u64, Arc<Held>)) {
        for (number, shard) in &mut self.shards {
            while let Some(held) = shard.next() {
                send(*number, held);
            }
        }
        self.shards.retain(|_, shard| shard.under_way > 0 || !shard.due.is_empty());
    }

    fn answered(&mut self, shard: u64) {
        let shard = self.shards.get_mut(&shard);
        shard.expect("a shard with renewals under way is kept").under_way -= 1;
    }
}

impl Shard {
    /// The next renewal to send, if the limits allow one.
    fn next(&mut self) -> Option<Arc<Held>> {
        while self.under_way < RENEWALS_MAX {
            let (_, held) = self.due.pop_first()?;
            // The lease may have been lost, released, or renewed by its holder meanwhile.
            if held.life().is_renewing() {
                self.under_way += 1;
                return Some(held);
            }
        }
        None
    }
}

/// Submits a renewal at once and returns the future of its answer.
fn renewal(session: &Session, shard: u64, held: Arc<Held>) -> Work {
    let sent = session.now();
    let answer = session.store.renew(held.renewal(sent));
    let ttl = held.spec.ttl;
    if held.spec.lock_delay.is_zero() {
        return Box::pin(async move {
            Done::Renewal(Answer { held, shard, sent, renewed: answer.await })
        });
    }
    // The store's own limit includes the lock delay. It would leave no time to retry.
    let answer = within(Arc::clone(&session.host), command_limit(ttl), answer);
    Box::pin(async move { Done::Renewal(Answer { held, shard, sent, renewed: answer.await }) })
}

/// Tells that a renewal was confirmed or failed, and how much of the lease is `left`.
fn tell_renewal(held: &Held, left: Duration, failure: Option<&Error>) {
    let (story, key) = (held.story(), &held.id.key);
    let renewals = match failure {
        None => story.as_ref().map(|story| story.count_renewal()),
        Some(_) => None,
    };
    tell_in(story.as_deref(), || {
        let left_ms = millis(left);
        match failure {
            None => tracing::trace!(target: TARGET, %key, left_ms, renewals, "renewed"),
            Some(error) => {
                tracing::warn!(target: TARGET, %key, left_ms, %error, "a renewal failed");
            }
        }
    });
}

/// Tells that the holder was asked to let go.
fn tell_revoked(held: &Held) {
    let (story, key) = (held.story(), &held.id.key);
    let Some(revoked) = held.revocation() else { return };
    tell_in(story.as_deref(), || {
        let (by, reason) = (&*revoked.by, &*revoked.reason);
        tracing::warn!(target: TARGET, %key, by, reason, "the holder was asked to let go");
    });
}

impl Session {
    /// Starts the driver. The registry does so when there is work and no driver.
    pub(super) fn start_driver(self: &Arc<Self>) {
        let session = Arc::clone(self);
        let driving = Driving { session, has_begun: false, is_done: false };
        self.host.spawn(Box::pin(drive(driving)));
    }

    /// Handles finished work: the answer to a renewal, or the end of a release.
    fn take_done(
        self: &Arc<Self>,
        renewals: &mut Renewals,
        releasing: &mut BTreeMap<u64, usize>,
        done: Done,
    ) {
        match done {
            Done::Renewal(Answer { held, shard, sent, renewed }) => {
                renewals.answered(shard);
                self.on_renewal(&held, sent, renewed.as_ref());
            }
            Done::Release(shard) => {
                *releasing.get_mut(&shard).expect("it was counted when it began") -= 1;
                releasing.retain(|_, under_way| *under_way > 0);
            }
        }
    }

    /// Handles the answer to a renewal that left at `sent`. Returns whether the answer counted.
    pub(crate) fn on_renewal(
        self: &Arc<Self>,
        held: &Arc<Held>,
        sent: Moment,
        renewed: Result<&Renewed, &Error>,
    ) -> bool {
        let mut is_asked = false;
        let mut life = held.life();
        // Read it under the lock. Otherwise another task could see the deadline pass, and then this
        // answer would count by an older moment.
        let now = self.now();
        let (counted, lost) = match renewed {
            Ok(Renewed::Renewed { fencing, wanted, revoked, .. }) => {
                is_asked = revoked.as_ref().is_some_and(|revoked| held.revoke(revoked));
                if is_asked {
                    life.revoke();
                }
                held.note_wanted(*wanted);
                let wanted = *wanted || held.spec.others_wait_unseen();
                // A lease without fencing may be answered with the token of another grant, as in
                // `Spec::as_wanted`.
                let fencing = fencing.filter(|_| held.spec.fencing);
                (life.on_renewed(now, sent, fencing, wanted), false)
            }
            Ok(Renewed::Lost) => (false, life.on_lost()),
            Err(_) => {
                life.on_unanswered(now, random_u32(&*self.host));
                (false, false)
            }
        };
        let (state, left) = (life.state(), life.left(now));
        // Unlock before any log message, since a subscriber may use the guard.
        drop(life);
        let is_ours = !matches!(state, LeaseState::Lost(_) | LeaseState::Released);
        if is_asked && is_ours {
            held.tell();
            tell_revoked(held);
        }
        if counted || renewed.is_err() && is_ours {
            tell_renewal(held, left, renewed.err());
        }
        match state {
            _ if is_ours => {
                self.registry.reschedule(held);
            }
            LeaseState::Lost(_) if lost => self.tell_lost(held, Lost::NotOurs),
            // The store renewed a lease that its holder was told is lost, so release it.
            LeaseState::Lost(lost)
                if renewed.is_ok_and(|renewed| *renewed != Renewed::Lost)
                    && !held.stays_for_delay(lost) =>
            {
                self.release_in_background(held.id.clone(), &held.spec);
            }
            _ => {}
        }
        counted
    }

    /// Takes care of a new lease from now on. The tasks of this client may pass it on, unless each
    /// of them asks alone.
    pub(super) fn take_over(self: &Arc<Self>, held: &Arc<Held>) {
        // Do this first. If the driver found that the lease is lost before the tasks know the
        // lease, they would wait for it for ever.
        if !held.spec.asks_alone() {
            let now = self.now();
            self.lines.with(&held.id.key, |line| {
                if line.enter(held) {
                    held.want(now);
                }
            });
        }
        self.registry.adopt(self, Arc::clone(held));
    }

    /// Tells the holder that the lease was lost. Releases the token, in case the store still keeps
    /// it, unless the lock delay covers a guard that has not ended. Its end releases the token.
    pub(super) fn tell_lost(self: &Arc<Self>, held: &Arc<Held>, lost: Lost) {
        held.tell();
        if held.stays_for_delay(lost) {
            held.note_kept(Counted::new(self));
        } else if lost.is_by_our_clock() {
            // Submit it before the lease is forgotten, so that a shutdown always sees one of the
            // two.
            self.release_lost(held);
        }
        self.registry.forget(held);
        self.forget_lease(held);
        held.tell_loss(held.take_story().as_deref(), self.now(), lost);
    }

    /// Releases a lease whose deadline passed: at once, or queued behind many other releases.
    fn release_lost(self: &Arc<Self>, held: &Held) {
        if self.registry.unconfirmed() < RELEASES_MAX {
            return self.release_in_background(held.id.clone(), &held.spec);
        }
        let on_release = held.spec.on_release();
        let unsent =
            FollowUp::unsent(Arc::clone(self), held.id.clone(), on_release, held.keeps_at_most());
        self.registry.follow_up(self, unsent);
    }
}
