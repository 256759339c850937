//! What a store decides about one key: who may have it, who waits, whose turn it is.
//!
//! The line is a row of *places*, oldest first. A place has a short life of its own, so that a dead
//! waiter costs the others no more than that. These functions see only what decides: the stores
//! keep the rows, and apply the answer in one atomic step.
//!
//! | key | the living head of the line | an ask is answered | a release by the owner |
//! |---|---|---|---|
//! | held by the asker | any | granted again, same fencing | – |
//! | held by another | any | taken; takes or refreshes its place | – (not held) |
//! | free, or the owner's at release | nobody, or the asker | granted; its place goes | freed, or kept if asked so |
//! | the same | another who joined | the key is handed to the head; taken | handed over to the head; under [`Wish::Wake`] freed, and the head is told |
//! | the same | another who only watches | granted; but who comes while one that was woken is awaited takes a place, and is to ask again soon | freed; the head is told, and awaited for 20 ms |
//! | the same | hidden behind 8 dead places | taken, ask again at once | freed; any ask goes on from there |
//!
//! To a strict ask of Redis a head that joined is one that watches: what is handed over on other
//! terms would be granted without a look whether the server has forgotten.

use std::time::Duration;

use crate::core::moment::Moment;

/// For how long one who was woken is awaited, and after how long a newcomer asks again that gave
/// way to it. The longest that a release to the dead holds anybody up.
pub const GIVES_WAY_FOR: Duration = Duration::from_millis(20);

/// How many dead places one step removes at most, so that no step takes long.
pub const REAPED_MAX: usize = 8;

/// How many places a line has at most. An ask beyond is answered `Unavailable`.
pub const PLACES_MAX: usize = 10_000;

/// How many places at the front of a line ask often. Those behind them are *far*. In a store that
/// calls them up when they come near (`Capabilities::calls_up`), they ask rarely until then.
pub const NEAR: u32 = 32;

/// How rarely those ask who are far back, for each place ahead of theirs; and at the rarest.
const FAR_EACH: Duration = Duration::from_millis(50);
const FAR_MAX: Duration = Duration::from_mins(1);

/// Whether one with so many places ahead of its own is far from the front.
#[must_use]
pub const fn is_far(ahead: u32) -> bool {
    ahead >= NEAR
}

/// How long one does not ask who is far back, with so many places ahead of its own.
#[must_use]
pub fn far_pause(ahead: u32) -> Duration {
    FAR_EACH.saturating_mul(ahead).min(FAR_MAX)
}

/// How long a place lives that its client would have live for `waiter_ttl`, in a store that calls
/// up those who are far back: longer than they pause.
#[must_use]
pub fn place_life(waiter_ttl: Duration, ahead: u32) -> Duration {
    if is_far(ahead) { waiter_ttl.max(3 * far_pause(ahead)) } else { waiter_ttl }
}

/// What a place in the line is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// It may be made the owner.
    Joined,
    /// It is woken and asks for itself.
    Watching,
}

/// Who is at the front of a line, once the dead places before it are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The line is empty.
    Nobody,
    /// A living place of this stance.
    Alive(Stance),
    /// As many dead places as one step may drop stood before it.
    Unexamined,
}

/// The front of a line: how many dead places to drop, and who stands behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// How many places at the front are dead; at most [`REAPED_MAX`].
    pub dead: usize,
    /// Who comes after them.
    pub head: Head,
}

impl Front {
    /// The front of a line without places.
    pub const EMPTY: Self = Self { dead: 0, head: Head::Nobody };
}

/// Looks at the first places of a line, oldest first: when each ends, and its stance.
/// [`REAPED_MAX`] `+ 1` suffice.
pub fn front(now: Moment, places: impl IntoIterator<Item = (Moment, Stance)>) -> Front {
    let mut dead = 0;
    for (expires, stance) in places {
        if expires > now {
            return Front { dead, head: Head::Alive(stance) };
        }
        if dead == REAPED_MAX {
            return Front { dead, head: Head::Unexamined };
        }
        dead += 1;
    }
    Front { dead, head: Head::Nobody }
}

/// Whose a key is, seen by one who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Nobody's, or its lease has ended.
    Free,
    /// The asker's own.
    Mine,
    /// Another's.
    Others,
}

/// Where one who asks stands, once its ask has taken or refreshed the place that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// In no line: it does not wait.
    Outside,
    /// In a place that it had not before, while one who was woken is awaited.
    New,
    /// In a place, and nobody else is awaited or came before.
    Waiting,
    /// At the front, however long it has been there.
    Head,
}

impl Asker {
    /// By whether its place is the first, whether it is a new one, if it has any, and whether one
    /// who was woken is awaited.
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

/// What to do with an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskDecision {
    /// Grant it again: a lost reply is repaired by asking once more. Never shortens the time left.
    GrantAgain,
    /// Grant it; the asker's place, if any, goes.
    Grant,
    /// Make the head the owner; the asker keeps or takes its place, if it joined, and is told
    /// *taken*.
    HandOver,
    /// Only take or refresh the place: *taken*.
    Wait,
    /// As `Wait`, and ask again in [`GIVES_WAY_FOR`]: the head may be about to ask.
    GiveWay,
    /// As `Wait`, and ask again at once: the head is hidden behind dead places.
    WaitAndRetry,
}

/// Decides about an ask. The asker's own place, if it wants one, counts as taken or refreshed
/// already, so `front` shows it alive.
#[must_use]
pub fn decide_ask(holding: Holding, front: Front, asker: Asker) -> AskDecision {
    match (holding, front.head, asker) {
        (Holding::Mine, _, _) => AskDecision::GrantAgain,
        (Holding::Others, _, _) => AskDecision::Wait,
        (Holding::Free, Head::Unexamined, _) => AskDecision::WaitAndRetry,
        (Holding::Free, Head::Nobody, _) | (Holding::Free, _, Asker::Head) => AskDecision::Grant,
        (Holding::Free, Head::Alive(Stance::Joined), _) => AskDecision::HandOver,
        // A release has woken the head, whose ask is under way: at a quorum, one who comes in
        // between splits the votes. But a watcher can't be handed anything, and holding the key
        // back for it could block the line for ever.
        (Holding::Free, Head::Alive(Stance::Watching), Asker::New) => AskDecision::GiveWay,
        (Holding::Free, Head::Alive(Stance::Watching), _) => AskDecision::Grant,
    }
}

/// What an owner that releases would have of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<K> {
    /// That the key goes to who is next in line, and is free if nobody waits.
    Free,
    /// That it goes to who is next, and stays with its client, as it said, if nobody waits.
    Keep(K),
    /// That it is free in any case, for those too that stand in no line. Who is next is told.
    Wake,
}

/// What to do with a release by the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseDecision<K> {
    /// Make the head the owner.
    HandOver,
    /// End the lease; tell the head, if there is one, that the key may be free.
    Free,
    /// Nobody waits and the owner would rather keep it, as it said.
    Keep(K),
}

/// Decides about a release by the owner.
#[must_use]
pub fn decide_release<K>(front: Front, wish: Wish<K>) -> ReleaseDecision<K> {
    match (front.head, wish) {
        (_, Wish::Wake) => ReleaseDecision::Free,
        (Head::Alive(Stance::Joined), _) => ReleaseDecision::HandOver,
        (Head::Nobody, Wish::Keep(keep)) => ReleaseDecision::Keep(keep),
        (Head::Nobody | Head::Alive(Stance::Watching) | Head::Unexamined, _) => {
            ReleaseDecision::Free
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AskDecision::{GiveWay, Grant, GrantAgain, HandOver, Wait, WaitAndRetry};
    use Asker::{New, Outside, Waiting};
    use Holding::{Free, Mine, Others};
    use Stance::{Joined, Watching};

    #[test]
    fn the_further_back_a_place_is_the_more_rarely_it_asks_and_it_outlives_each_pause() {
        // how many are ahead, pause in ms, life in ms of a place of 3 s
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
                [(at(10), Joined)].repeat(dead).into_iter().chain(living.map(|s| (at(11), s))),
            )
        };
        let table = [
            (0, None, Front { dead: 0, head: Head::Nobody }),
            (0, Some(Joined), Front { dead: 0, head: Head::Alive(Joined) }),
            (3, Some(Watching), Front { dead: 3, head: Head::Alive(Watching) }),
            (8, None, Front { dead: 8, head: Head::Nobody }),
            (8, Some(Joined), Front { dead: 8, head: Head::Alive(Joined) }),
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
            (Mine, Head::Alive(Joined), Outside, GrantAgain),
            (Mine, Head::Unexamined, Outside, GrantAgain),
            (Others, Head::Nobody, Outside, Wait),
            (Others, Head::Alive(Joined), Asker::Head, Wait),
            (Others, Head::Alive(Watching), New, Wait),
            (Others, Head::Unexamined, Outside, Wait),
            (Free, Head::Nobody, Outside, Grant),
            (Free, Head::Alive(Joined), Asker::Head, Grant),
            (Free, Head::Alive(Joined), New, HandOver),
            (Free, Head::Alive(Joined), Waiting, HandOver),
            (Free, Head::Alive(Joined), Outside, HandOver),
            (Free, Head::Alive(Watching), Asker::Head, Grant),
            (Free, Head::Alive(Watching), New, GiveWay),
            (Free, Head::Alive(Watching), Waiting, Grant),
            (Free, Head::Alive(Watching), Outside, Grant),
            (Free, Head::Unexamined, New, WaitAndRetry),
            (Free, Head::Unexamined, Outside, WaitAndRetry),
        ];
        for (holding, head, asker, decision) in table {
            assert_eq!(
                decide_ask(holding, Front { dead: 0, head }, asker),
                decision,
                "{holding:?} {head:?} {asker:?}"
            );
        }
    }

    #[test]
    fn who_asks_is_the_head_or_has_a_place_or_none() {
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
    fn a_release_hands_over_before_it_frees_or_keeps_unless_it_is_to_wake() {
        let table = [
            (Head::Nobody, Wish::Free, ReleaseDecision::Free),
            (Head::Nobody, Wish::Keep(7), ReleaseDecision::Keep(7)),
            (Head::Nobody, Wish::Wake, ReleaseDecision::Free),
            (Head::Alive(Joined), Wish::Free, ReleaseDecision::HandOver),
            (Head::Alive(Joined), Wish::Keep(7), ReleaseDecision::HandOver),
            (Head::Alive(Joined), Wish::Wake, ReleaseDecision::Free),
            (Head::Alive(Watching), Wish::Free, ReleaseDecision::Free),
            (Head::Alive(Watching), Wish::Keep(7), ReleaseDecision::Free),
            (Head::Alive(Watching), Wish::Wake, ReleaseDecision::Free),
            (Head::Unexamined, Wish::Free, ReleaseDecision::Free),
            (Head::Unexamined, Wish::Keep(7), ReleaseDecision::Free),
            (Head::Unexamined, Wish::Wake, ReleaseDecision::Free),
        ];
        for (head, wish, decision) in table {
            let decided = decide_release(Front { dead: 0, head }, wish);
            assert_eq!(decided, decision, "{head:?} {wish:?}");
        }
    }
}
