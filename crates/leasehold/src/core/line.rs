//! The decisions of a store about one key: who may have it, who waits, whose turn it is.
//!
//! The line is a row of *places*, oldest first. A place has a short life of its own, which limits
//! what a dead waiter costs the others. These functions only decide. The stores keep the rows, and
//! apply each decision in one atomic step.
//!
//! | key | living head of the line | answer to an ask | release by the owner |
//! |---|---|---|---|
//! | held by the asker | any | granted again, same fencing | – |
//! | has no room for the claim | nobody, or the asker | taken; takes or refreshes its place | – |
//! | has room for the claim | nobody, or the asker | granted; its place goes | freed, or kept |
//! | has room for the head | another that joined | handed to the head; decided again | the same |
//! | has no room for the head | another that joined | taken; takes or refreshes its place | freed |
//! | free | another that watches | granted, or retry | freed; the head is told |
//! | not held by one alone | hidden behind 8 dead places | taken, ask again at once | freed |
//!
//! [`Taken::admits`] says whether there is room. Nobody passes a place that waits longer, even if
//! there is room for the later claim. So a writer waits for one generation of readers, and small
//! claims do not starve a large one. The places that are granted together are therefore a run from
//! the front. After each grant, the next place gets the key too if it is due.
//!
//! With [`Wish::Wake`], a release always frees the key and tells the head. If that head only
//! watches, the store waits for it for 20 ms. Meanwhile a newcomer takes a place and must retry
//! soon.
//!
//! A release tells the head alone. If the head leaves the line instead of asking, the store tells
//! the next place, see [`wakes_next`].
//!
//! A strict Redis store treats a head that joined like one that watches. A hand-over would grant
//! the key without checking whether the server forgot its data.

use std::time::Duration;

use crate::core::claim::{Claim, Taken};
use crate::core::moment::Moment;

/// How long the store waits for a woken waiter. A newcomer retries after this time. A release to a
/// dead waiter delays others by at most this.
pub const GIVES_WAY_FOR: Duration = Duration::from_millis(20);

/// How many dead places one step removes at most, so that every step is short.
pub const REAPED_MAX: usize = 8;

/// How often one step hands a key over at most, to waiters that hold it together. If more of them
/// are due, the step tells the next one to ask.
pub const RUN_MAX: usize = 64;

/// The most places in a line. A further ask is answered `Unavailable`.
pub const PLACES_MAX: usize = 10_000;

/// How many places at the front of a line ask often. Places behind them are *far*. If the store
/// tells far waiters when they come near (`Capabilities::calls_up`), they ask rarely until then.
pub const NEAR: u32 = 32;

/// The pause of a far waiter between asks: this for each place ahead, up to the maximum.
const FAR_EACH: Duration = Duration::from_millis(50);
const FAR_MAX: Duration = Duration::from_mins(1);

/// Whether a place with `ahead` places before it is far from the front.
#[must_use]
pub const fn is_far(ahead: u32) -> bool {
    ahead >= NEAR
}

/// How long a far waiter pauses between asks.
#[must_use]
pub fn far_pause(ahead: u32) -> Duration {
    FAR_EACH.saturating_mul(ahead).min(FAR_MAX)
}

/// How long a place lives if its client wants `waiter_ttl`. On stores that call far waiters up, a
/// place outlives the pauses of its waiter.
#[must_use]
pub fn place_life(waiter_ttl: Duration, ahead: u32) -> Duration {
    if is_far(ahead) { waiter_ttl.max(3 * far_pause(ahead)) } else { waiter_ttl }
}

/// The role of a place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// The store may make its client the owner.
    Joined,
    /// The store wakes its client, which then asks for itself.
    Watching,
}

/// The first living place of a line, once the dead places before it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The line is empty.
    Nobody,
    /// A living place.
    Alive {
        /// Its role.
        stance: Stance,
        /// The claim of its client.
        claim: Claim,
    },
    /// One step dropped as many dead places as it may, and more dead places follow.
    Unexamined,
}

/// The front of a line: how many dead places to drop, and what follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// How many places at the front are dead, at most [`REAPED_MAX`].
    pub dead: usize,
    /// The first place after them.
    pub head: Head,
}

impl Front {
    /// The front of a line without places.
    pub const EMPTY: Self = Self { dead: 0, head: Head::Nobody };

    /// Whether the key must be handed to the head in addition to these holders.
    #[must_use]
    pub const fn is_due(self, taken: Taken) -> bool {
        matches!(self.head, Head::Alive { stance: Stance::Joined, claim } if taken.admits(claim))
    }
}

/// Looks at the first places of a line, oldest first. Each place comes with its end, its stance and
/// its claim. [`REAPED_MAX`] `+ 1` places are enough.
pub fn front(now: Moment, places: impl IntoIterator<Item = (Moment, Stance, Claim)>) -> Front {
    let mut dead = 0;
    for (expires, stance, claim) in places {
        if expires > now {
            return Front { dead, head: Head::Alive { stance, claim } };
        }
        if dead == REAPED_MAX {
            return Front { dead, head: Head::Unexamined };
        }
        dead += 1;
    }
    Front { dead, head: Head::Nobody }
}

/// The holders of a key, from the asker's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The asker is one of them.
    Mine,
    /// The asker is not one of them. They have this together.
    Others(Taken),
}

impl Holding {
    /// Nobody holds the key.
    pub const FREE: Self = Self::Others(Taken::Nothing);

    /// One other owner has the key alone.
    pub const TAKEN: Self = Self::Others(Taken::Alone);
}

/// The position of the asker, once its ask has taken or refreshed its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// In no line: the client does not wait.
    Outside,
    /// In a new place, while a woken waiter is awaited.
    New,
    /// In another place: an older one, or a new one while no woken waiter is awaited.
    Waiting,
    /// At the front of the line.
    Head,
}

impl Asker {
    /// Finds the position of an asker. `is_new` tells whether its place is new, and is `None` if it
    /// has no place. `is_awaited` tells whether the store waits for a woken waiter.
    #[must_use]
    pub const fn of(is_head: bool, is_new: Option<bool>, is_awaited: bool) -> Self {
        match is_new {
            _ if is_head => Self::Head,
            None => Self::Outside,
            Some(true) if is_awaited => Self::New,
            Some(_) => Self::Waiting,
        }
    }
}

/// The decision about an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskDecision {
    /// Grant it again, which repairs a lost reply. Never shortens the time left.
    GrantAgain,
    /// Grant it and remove the asker's place, if any.
    Grant,
    /// Make the head an owner, then decide again. The asker keeps or takes its place, if it joined.
    HandOver,
    /// Take or refresh the place and answer *taken*.
    Wait,
    /// Like `Wait`, but the asker retries in [`GIVES_WAY_FOR`], since the head may be about to ask.
    GiveWay,
    /// Like `Wait`, but the asker retries immediately, since dead places hide the head.
    WaitAndRetry,
}

/// Decides about an ask. If the asker wants a place, it was taken or refreshed before, so `front`
/// shows it alive.
#[must_use]
pub fn decide_ask(holding: Holding, claim: Claim, front: Front, asker: Asker) -> AskDecision {
    let Holding::Others(taken) = holding else { return AskDecision::GrantAgain };
    match (front.head, asker) {
        (Head::Nobody, _) | (_, Asker::Head) if taken.admits(claim) => AskDecision::Grant,
        // The hidden head may be due, even if the asker is not.
        (Head::Unexamined, _) if taken != Taken::Alone => AskDecision::WaitAndRetry,
        (Head::Alive { .. }, _) if asker != Asker::Head && front.is_due(taken) => {
            AskDecision::HandOver
        }
        // A release has woken the head, and its ask is under way. At a quorum, a newcomer in
        // between would split the votes. Only newcomers wait for a watcher. It may be dead, and
        // must not block the line for ever.
        (Head::Alive { stance: Stance::Watching, .. }, Asker::New) if taken == Taken::Nothing => {
            AskDecision::GiveWay
        }
        (Head::Alive { stance: Stance::Watching, .. }, _) if taken == Taken::Nothing => {
            AskDecision::Grant
        }
        _ => AskDecision::Wait,
    }
}

/// The wish of a releasing owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<K> {
    /// Give the key to the next in line. Free it if nobody waits.
    Free,
    /// Give it to the next in line. If nobody waits, the client keeps it on these terms.
    Keep(K),
    /// Free it in any case, also for clients that do not queue. Tell the next in line.
    Wake,
}

/// The decision about a release by the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseDecision<K> {
    /// Make the head an owner, and the places behind it as long as they are due.
    HandOver,
    /// End the lease. If the key is free now, tell the head, if there is one.
    Free,
    /// Nobody waits, so the owner keeps the key on its terms.
    Keep(K),
}

/// Decides about a release by an owner. `taken` is what the other owners have.
#[must_use]
pub fn decide_release<K>(taken: Taken, front: Front, wish: Wish<K>) -> ReleaseDecision<K> {
    match (front.head, wish) {
        (_, Wish::Wake) => ReleaseDecision::Free,
        _ if front.is_due(taken) => ReleaseDecision::HandOver,
        (Head::Nobody, Wish::Keep(keep)) => ReleaseDecision::Keep(keep),
        _ => ReleaseDecision::Free,
    }
}

/// Decides whether to tell the head that the key is free, after a waiter has left the line. A
/// release tells the head alone, so the next place learns of it only if the head leaves.
///
/// `was_head`: whether the waiter was the first living place. `taken` and `front`: the state after
/// each place that was due has got the key.
#[must_use]
pub fn wakes_next(was_head: bool, taken: Taken, front: Front) -> bool {
    was_head && taken == Taken::Nothing && matches!(front.head, Head::Alive { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use AskDecision::{GiveWay, Grant, GrantAgain, HandOver, Wait, WaitAndRetry};
    use Asker::{New, Outside, Waiting};
    use Claim::{Exclusive, Shared};
    use Holding::{Mine, Others};
    use Stance::{Joined, Watching};

    const FREE: Holding = Holding::FREE;
    const TAKEN: Holding = Holding::TAKEN;

    const fn alive(stance: Stance) -> Head {
        Head::Alive { stance, claim: Exclusive }
    }

    const fn joined(claim: Claim) -> Head {
        Head::Alive { stance: Joined, claim }
    }

    const fn permits(want: u32) -> Claim {
        Claim::Permits { want, of: 5 }
    }

    #[test]
    fn the_further_back_a_place_is_the_more_rarely_it_asks_and_it_outlives_each_pause() {
        // places ahead, pause in ms, life in ms of a place of 3 s
        let table = [
            (0, None, 3_000),
            (31, None, 3_000),
            (32, Some(1_600), 4_800),
            (400, Some(20_000), 60_000),
            (10_000, Some(60_000), 180_000),
            (u32::MAX, Some(60_000), 180_000),
        ];
        for (ahead, pause, life) in table {
            let paused = is_far(ahead).then(|| far_pause(ahead));
            assert_eq!(paused, pause.map(Duration::from_millis), "{ahead}");
            let lives = place_life(Duration::from_secs(3), ahead);
            assert_eq!(lives, Duration::from_millis(life), "{ahead}");
        }
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn dead_places_are_dropped_up_to_a_limit() {
        let line = |dead: usize, living: Option<Stance>| {
            front(
                at(10),
                [(at(10), Joined, Exclusive)]
                    .repeat(dead)
                    .into_iter()
                    .chain(living.map(|stance| (at(11), stance, Exclusive))),
            )
        };
        let table = [
            (0, None, Front { dead: 0, head: Head::Nobody }),
            (0, Some(Joined), Front { dead: 0, head: alive(Joined) }),
            (3, Some(Watching), Front { dead: 3, head: alive(Watching) }),
            (8, None, Front { dead: 8, head: Head::Nobody }),
            (8, Some(Joined), Front { dead: 8, head: alive(Joined) }),
            (9, Some(Joined), Front { dead: 8, head: Head::Unexamined }),
            (9, None, Front { dead: 8, head: Head::Unexamined }),
        ];
        for (dead, living, expected) in table {
            assert_eq!(line(dead, living), expected, "{dead} dead, then {living:?}");
        }
    }

    #[test]
    fn an_ask_is_never_granted_past_a_living_or_unexamined_place() {
        // holding, head, the asker, decision
        let table = [
            (Mine, Head::Nobody, Outside, GrantAgain),
            (Mine, alive(Joined), Outside, GrantAgain),
            (Mine, Head::Unexamined, Outside, GrantAgain),
            (TAKEN, Head::Nobody, Outside, Wait),
            (TAKEN, alive(Joined), Asker::Head, Wait),
            (TAKEN, alive(Watching), New, Wait),
            (TAKEN, Head::Unexamined, Outside, Wait),
            (FREE, Head::Nobody, Outside, Grant),
            (FREE, alive(Joined), Asker::Head, Grant),
            (FREE, alive(Joined), New, HandOver),
            (FREE, alive(Joined), Waiting, HandOver),
            (FREE, alive(Joined), Outside, HandOver),
            (FREE, alive(Watching), Asker::Head, Grant),
            (FREE, alive(Watching), New, GiveWay),
            (FREE, alive(Watching), Waiting, Grant),
            (FREE, alive(Watching), Outside, Grant),
            (FREE, Head::Unexamined, New, WaitAndRetry),
            (FREE, Head::Unexamined, Outside, WaitAndRetry),
        ];
        for (holding, head, asker, decision) in table {
            assert_eq!(
                decide_ask(holding, Exclusive, Front { dead: 0, head }, asker),
                decision,
                "{holding:?} {head:?} {asker:?}"
            );
        }
    }

    #[test]
    fn owners_that_share_a_key_are_granted_in_the_order_of_the_line() {
        let shared = Others(Taken::Shared);
        let some = |taken| Others(Taken::Permits(taken));
        // holding, claim, head, the asker, decision
        let table = [
            // Readers join other readers, unless a writer waits.
            (shared, Shared, Head::Nobody, Outside, Grant),
            (shared, Shared, joined(Shared), Asker::Head, Grant),
            (shared, Shared, joined(Shared), Outside, HandOver),
            (shared, Shared, joined(Exclusive), Outside, Wait),
            (shared, Shared, joined(Exclusive), New, Wait),
            (shared, Shared, Head::Unexamined, New, WaitAndRetry),
            (shared, Shared, alive(Watching), Outside, Wait),
            // Writers wait for readers, and readers for a writer.
            (shared, Exclusive, Head::Nobody, Outside, Wait),
            (shared, Exclusive, joined(Exclusive), Asker::Head, Wait),
            (shared, Exclusive, joined(Shared), New, HandOver),
            (shared, Exclusive, Head::Unexamined, New, WaitAndRetry),
            (TAKEN, Shared, joined(Shared), Asker::Head, Wait),
            (TAKEN, Shared, Head::Nobody, Outside, Wait),
            (FREE, Shared, joined(Exclusive), New, HandOver),
            (FREE, Shared, Head::Nobody, Outside, Grant),
            // Permits: nobody passes a large claim that waits.
            (some(3), permits(2), Head::Nobody, Outside, Grant),
            (some(3), permits(3), Head::Nobody, Outside, Wait),
            (some(3), permits(1), joined(permits(3)), New, Wait),
            (some(3), permits(1), joined(permits(2)), New, HandOver),
            (some(3), permits(2), joined(permits(2)), Asker::Head, Grant),
            (some(5), permits(1), Head::Unexamined, New, WaitAndRetry),
        ];
        for (holding, claim, head, asker, decision) in table {
            assert_eq!(
                decide_ask(holding, claim, Front { dead: 0, head }, asker),
                decision,
                "{holding:?} {claim:?} {head:?} {asker:?}"
            );
        }
    }

    #[test]
    fn a_release_beside_other_owners_hands_over_only_what_is_free() {
        // what the others have, head, decision
        let table = [
            (Taken::Shared, Head::Nobody, ReleaseDecision::Free),
            (Taken::Shared, joined(Exclusive), ReleaseDecision::Free),
            (Taken::Shared, joined(Shared), ReleaseDecision::HandOver),
            (Taken::Nothing, joined(Shared), ReleaseDecision::HandOver),
            (Taken::Nothing, joined(Exclusive), ReleaseDecision::HandOver),
            (Taken::Permits(3), joined(permits(2)), ReleaseDecision::HandOver),
            (Taken::Permits(3), joined(permits(3)), ReleaseDecision::Free),
        ];
        for (taken, head, decision) in table {
            let decided = decide_release::<()>(taken, Front { dead: 0, head }, Wish::Free);
            assert_eq!(decided, decision, "{taken:?} {head:?}");
        }
    }

    #[test]
    fn a_client_that_asks_is_the_head_or_has_a_place_or_none() {
        let table = [
            (true, None, true, Asker::Head),
            (true, Some(true), true, Asker::Head),
            (true, Some(false), true, Asker::Head),
            (false, None, true, Outside),
            (false, Some(true), true, New),
            (false, Some(true), false, Waiting),
            (false, Some(false), true, Waiting),
        ];
        for (is_head, is_new, is_awaited, asker) in table {
            let of = Asker::of(is_head, is_new, is_awaited);
            assert_eq!(of, asker, "{is_head} {is_new:?} {is_awaited}");
        }
    }

    #[test]
    fn the_next_place_is_told_only_if_the_head_left_and_the_key_is_free() {
        // whether the head left, what the owners have, head, whether it is told
        let table = [
            (true, Taken::Nothing, alive(Watching), true),
            (true, Taken::Nothing, alive(Joined), true),
            (true, Taken::Nothing, Head::Nobody, false),
            (true, Taken::Nothing, Head::Unexamined, false),
            (true, Taken::Alone, alive(Watching), false),
            (true, Taken::Shared, joined(Exclusive), false),
            (true, Taken::Permits(1), joined(permits(5)), false),
            (false, Taken::Nothing, alive(Watching), false),
            (false, Taken::Nothing, alive(Joined), false),
        ];
        for (was_head, taken, head, told) in table {
            let decided = wakes_next(was_head, taken, Front { dead: 0, head });
            assert_eq!(decided, told, "{was_head} {taken:?} {head:?}");
        }
    }

    #[test]
    fn a_release_hands_over_before_it_frees_or_keeps_unless_it_is_to_wake() {
        let table = [
            (Head::Nobody, Wish::Free, ReleaseDecision::Free),
            (Head::Nobody, Wish::Keep(7), ReleaseDecision::Keep(7)),
            (Head::Nobody, Wish::Wake, ReleaseDecision::Free),
            (alive(Joined), Wish::Free, ReleaseDecision::HandOver),
            (alive(Joined), Wish::Keep(7), ReleaseDecision::HandOver),
            (alive(Joined), Wish::Wake, ReleaseDecision::Free),
            (alive(Watching), Wish::Free, ReleaseDecision::Free),
            (alive(Watching), Wish::Keep(7), ReleaseDecision::Free),
            (alive(Watching), Wish::Wake, ReleaseDecision::Free),
            (Head::Unexamined, Wish::Free, ReleaseDecision::Free),
            (Head::Unexamined, Wish::Keep(7), ReleaseDecision::Free),
            (Head::Unexamined, Wish::Wake, ReleaseDecision::Free),
        ];
        for (head, wish, decision) in table {
            let decided = decide_release(Taken::Nothing, Front { dead: 0, head }, wish);
            assert_eq!(decided, decision, "{head:?} {wish:?}");
        }
    }
}
