//! The terms that observers see rise, and a leader that goes is soon followed by the next one.
//!
//! A leader is the holder of a lock. So other checks judge that no two lead at a time, and that the
//! terms of the leaders rise.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::core::Moment;

use super::no_lost_wake_up::{Gap, gaps};
use crate::history::bounds::Bounds;
use crate::history::event::Outcome;
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Story};
use crate::history::window::Window;

/// Checks two rules for each leader that an observer saw:
///
/// 1. Its term is not lower than a term that any process knew before the observer called. A process
///    knows its own term when it begins to lead, and the term of another one when it sees it.
/// 2. Its term is higher than the last term that the same observer saw, since an observer tells of
///    changes only.
///
/// A server that came back with other data may show a leader that has gone. So such a fault excuses
/// a violation if it met the time since the call that got the higher term.
pub(super) fn seen_terms_rise(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key, _) in elections(story) {
        let mut known: Vec<_> = led(of_key).chain(of_key.calls.iter().filter_map(seen)).collect();
        known.sort_by_key(|known| known.at);
        let mut known = known.into_iter().peekable();
        let mut highest: Option<Known> = None;
        let mut last: HashMap<u32, Known> = HashMap::new();
        for call in &of_key.calls {
            let (Some(sees), Some((observer, _))) = (seen(call), call.saw) else { continue };
            while let Some(next) = known.next_if(|next| next.at < call.called) {
                highest = highest.filter(|highest| highest.term > next.term).or(Some(next));
            }
            let higher = highest.filter(|highest| highest.term > sees.term);
            let told = last.insert(observer, sees).filter(|told| told.term >= sees.term);
            let Some(before) = higher.or(told) else { continue };
            violations.push(Violation {
                invariant: Invariant::SeenTermsRise,
                at: sees.at,
                text: format!(
                    "{} sees term {} of `{key}`, and term {} was known before",
                    call.name(),
                    sees.term,
                    before.term
                ),
                promised: story.weather.views_promised(before.called, sees.at),
            });
        }
    }
    violations
}

/// A term that a process knows.
#[derive(Clone, Copy)]
struct Known {
    term: u64,
    /// When the call began that got the term.
    called: Moment,
    /// From when on it is known.
    at: Moment,
}

fn led(of_key: &OfKey<'_>) -> impl Iterator<Item = Known> {
    of_key.windows.iter().filter_map(|window| {
        Some(Known { term: window.fence?, called: window.called, at: window.began })
    })
}

fn seen(call: &Call) -> Option<Known> {
    let (_, term) = call.saw?;
    call.returned.map(|(at, _)| Known { term, called: call.called, at })
}

/// After a resignation, the next candidate leads within `handed`, if there is one that runs. After
/// the death of a leader, it leads within the ttl, the lock delay and `handed`. A leader that dies
/// directly after its resignation may not have sent it.
///
/// Nothing must be wrong meanwhile, and no fault must have effects still, except that processes
/// died. Each candidate that gave up may have been the next one, and had to hand the lock on. This
/// takes `handed`. Each candidate that died may keep its place or a lease until that ends.
pub(super) fn leaders_are_followed(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key, ttl) in elections(story) {
        let kept = ttl + story.bounds.lock_delay;
        let vacant = |gap| Vacancy::of(story, of_key, gap, kept + Bounds::drift(kept));
        for vacancy in gaps(story, of_key).into_iter().filter_map(vacant) {
            let Some(by) = vacancy.overdue(story, of_key) else { continue };
            let span = vacancy.gap.span();
            violations.push(Violation {
                invariant: vacancy.judged_by,
                at: by,
                text: format!("`{key}` has a candidate and no leader for {span:?}"),
                promised: true,
            });
        }
    }
    violations
}

/// All elections, with the longest ttl of their leaders.
fn elections<'s, 'a>(
    story: &'s Story<'a>,
) -> impl Iterator<Item = (&'a str, &'s OfKey<'a>, Duration)> {
    let keys = story.keys.iter();
    keys.filter_map(|(key, of_key)| Some((*key, of_key, of_key.elects?)))
}

/// A span in which a candidate waits and nobody leads.
struct Vacancy {
    gap: Gap,
    /// How long the store keeps the lease of a leader that died.
    lease: Duration,
    /// From when on nothing must be wrong.
    from: Moment,
    /// From when on the next candidate can lead.
    free: Moment,
    judged_by: Invariant,
}

impl Vacancy {
    /// `None` if no leader has gone before, or if the last one lost its lease in another way.
    fn of(story: &Story<'_>, of_key: &OfKey<'_>, gap: Gap, lease: Duration) -> Option<Self> {
        let before = of_key.windows.iter().filter(|window| !window.is_empty());
        let before = before.filter(|window| window.end() <= gap.from);
        let last = before.max_by_key(|window| window.end())?;
        let gave_up = last.gave_up.filter(|at| *at < last.until && last.told.is_none());
        let (judged_by, from, free) = match (died(story, last), gave_up) {
            (Some(died), _) if died + lease < gap.from => {
                (Invariant::CrashIsTakenOver, gap.from, gap.from)
            }
            (Some(died), _) => (Invariant::CrashIsTakenOver, gap.from.min(died), died + lease),
            (None, Some(_)) => (Invariant::ResignationHandsOver, gap.from, gap.from),
            (None, None) => return None,
        };
        Some(Self { gap, lease, from, free, judged_by })
    }

    /// The moment by which somebody had to lead, if nobody did.
    fn overdue(&self, story: &Story<'_>, of_key: &OfKey<'_>) -> Option<Moment> {
        let handed = story.bounds.handed;
        let (gave_up, died) = self.gone(story, of_key);
        let by = self.free + handed * (1 + gave_up) + (self.lease + handed) * died;
        let is_judged = story.weather.is_calm_but_for_crashes(self.from, by);
        (self.gap.to > by && is_judged).then_some(by)
    }

    /// How many candidates gave up, and how many died, so that the lock may have gone to them.
    fn gone(&self, story: &Story<'_>, of_key: &OfKey<'_>) -> (u32, u32) {
        let (slack, aftermath) = (story.bounds.slack, story.bounds.aftermath());
        let (mut gave_up, mut dead) = (0, 0);
        for call in of_key.calls.iter().filter(|call| call.kind.waits()) {
            let ended = match call.returned {
                Some((_, Outcome::Granted)) => continue,
                returned => returned.map(|(at, _)| at),
            };
            let died = story.life(call.process).crashed.filter(|at| {
                let is_recent = self.free.minus(aftermath) <= *at && *at <= self.gap.to;
                is_recent && call.called <= *at && ended.is_none_or(|ended| *at <= ended + slack)
            });
            let is_met = |at: Moment| self.free.minus(slack) <= at && at <= self.gap.to;
            dead += u32::from(died.is_some());
            gave_up += u32::from(died.is_none() && ended.is_some_and(is_met));
        }
        (gave_up, dead)
    }
}

/// When the process of a leader died, if nobody knows whether it had resigned.
fn died(story: &Story<'_>, leader: &Window<'_>) -> Option<Moment> {
    if leader.told.is_some() {
        return None;
    }
    let resigned = leader.gave_up.map(|at| at + story.bounds.slack);
    leader.crashed.filter(|at| *at <= resigned.unwrap_or(leader.until))
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::{CrashIsTakenOver, ResignationHandsOver, SeenTermsRise};
    use crate::history::build::{Tale, tale};
    use crate::history::event::CallKind::Observe;
    use crate::history::event::Outcome::Dropped;

    fn observes(tale: Tale, observer: u32, term: u64) -> Tale {
        tale.calls(3, Observe, None).sees_leader(3, observer, term)
    }

    /// A leader of term 5, which an observer saw.
    fn seen() -> Tale {
        let tale = tale().elects(10.0).takes(1, "A", 5, 9.9).at(1.0);
        observes(tale, 1, 5).at(2.0)
    }

    /// The leader of term 5 was followed by that of term 7.
    fn followed() -> Tale {
        let tale = seen().gives_up("A").takes(2, "B", 7, 11.9).at(3.0);
        tale.gives_up("B").at(4.0)
    }

    #[test]
    fn an_observer_that_sees_a_term_twice_is_found() {
        observes(seen(), 2, 5).passes();
        observes(seen(), 1, 5).breaks(SeenTermsRise);
        let between = observes(followed(), 1, 7);
        observes(between.at(5.0), 1, 7).breaks(SeenTermsRise);
    }

    #[test]
    fn an_observer_that_sees_a_term_that_is_over_is_found() {
        observes(followed(), 1, 7).passes();
        observes(followed(), 2, 5).breaks(SeenTermsRise);
        // Nobody but another observer knows of the higher term.
        let other = observes(seen(), 2, 6).at(3.0);
        observes(other, 3, 5).breaks(SeenTermsRise);
    }

    #[test]
    fn an_observer_that_called_before_may_see_what_was_then() {
        let called = seen().calls(3, Observe, None).at(2.1).gives_up("A");
        let called = called.takes(2, "B", 7, 11.9).at(3.0).gives_up("B");
        called.sees_leader(3, 2, 5).passes();
    }

    #[test]
    fn a_leader_that_a_server_shows_again_is_excused() {
        let back = || followed().fault("restart-old").forgets().heals().at(5.0);
        observes(back(), 1, 5).breaks_unpromised(SeenTermsRise);
        let before = tale().fault("restart-old").heals().at(0.5).elects(10.0);
        let before = before.takes(1, "A", 5, 9.9).at(1.0);
        observes(observes(before, 1, 5).at(2.0), 1, 4).breaks(SeenTermsRise);
        observes(followed().fault("delay"), 2, 5).breaks(SeenTermsRise);
    }

    /// Two candidates, one of which leads.
    fn led(ttl: f64) -> Tale {
        tale().elects(ttl).takes(1, "A", 1, 9.9).at(2.0).locks(2).at(5.0)
    }

    fn leads_at(tale: Tale, at: f64) -> Tale {
        tale.at(at).gets(2, "B", 2, at + 9.9).at(at + 0.1).gives_up("B")
    }

    #[test]
    fn a_resignation_that_is_not_followed_at_once_is_found() {
        leads_at(led(10.0).gives_up("A"), 5.3).passes();
        leads_at(led(10.0).gives_up("A"), 5.5).breaks(ResignationHandsOver);
        leads_at(led(10.0).gives_up("A").fault("delay"), 5.5).passes();
        let lock = tale().takes(1, "A", 1, 9.9).at(2.0).locks(2).at(5.0).gives_up("A");
        leads_at(lock, 5.5).passes();
        led(10.0).gives_up("A").at(6.0).returns(2, Dropped).breaks(ResignationHandsOver);
    }

    #[test]
    fn a_candidate_that_gives_up_may_have_to_hand_the_lock_on() {
        let two = || led(10.0).locks(3).gives_up("A").returns(3, Dropped);
        leads_at(two(), 5.7).passes();
        leads_at(two(), 5.9).breaks(ResignationHandsOver);
    }

    #[test]
    fn a_candidate_that_died_may_keep_its_place_or_a_lease() {
        let two = || led(10.0).locks(3).crashes(3).at(5.1).gives_up("A");
        leads_at(two(), 15.9).passes();
        leads_at(two(), 16.1).breaks(ResignationHandsOver);
    }

    #[test]
    fn a_crash_that_is_taken_over_late_is_found() {
        leads_at(led(10.0).crashes(1), 15.4).passes();
        leads_at(led(10.0).crashes(1), 15.6).breaks(CrashIsTakenOver);
        leads_at(led(1.0).crashes(1), 6.3).passes();
        leads_at(led(1.0).crashes(1), 6.5).breaks(CrashIsTakenOver);
        leads_at(led(1.0).crashes(1).fault("delay"), 6.5).passes();
        led(10.0).crashes(1).at(20.0).returns(2, Dropped).breaks(CrashIsTakenOver);
    }

    #[test]
    fn a_candidate_that_comes_long_after_a_crash_leads_at_once() {
        let later = |at: f64| {
            let tale = tale().elects(1.0).takes(1, "A", 1, 9.9).at(5.0).crashes(1);
            leads_at(tale.at(15.0).locks(2), at)
        };
        later(15.3).passes();
        later(15.5).breaks(CrashIsTakenOver);
    }

    #[test]
    fn a_leader_that_dies_as_it_resigns_may_not_have_resigned() {
        let both = || led(10.0).gives_up("A").at(5.1).crashes(1);
        leads_at(both(), 15.5).passes();
        leads_at(both(), 15.7).breaks(CrashIsTakenOver);
    }
}
