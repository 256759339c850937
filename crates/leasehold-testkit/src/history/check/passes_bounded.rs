//! A client stops passing a lease among its tasks soon after others begin to wait.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::core::Moment;

use super::standing::{Place, Turns, places, turns};
use crate::history::bounds::Bounds;
use crate::history::event::{ProcessId, Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// How often, and for how long, a client may pass a lease on after it knows that others wait.
const PASSES_MAX: usize = 64;
const PASSING_MAX: Duration = Duration::from_millis(20);

/// While another place surely stands in the line of a key, a client must stop starting new windows
/// with the same owner token:
///
/// 1. After its process knows of a waiter, at most 64 more windows begin, all within 20 ms. The
///    process knows of a waiter from a hint that it gets while it has a window of the lease. A
///    process that got the lease by waiting knows it too, since others may stand behind it. The
///    time to read a message, and the time in which a process stands still, do not count.
/// 2. Without a hint, in calm weather, the client learns of the waiter from the second renewal at
///    the latest. So no window begins later than a third of the ttl, the tick that renewals share,
///    and 20 ms.
///
/// A place that expired or was left meanwhile demands nothing. The first window after the server
/// kept the lease for its owner is also exempt, since the server knows the line.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let hints = hints(story);
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        let turns = turns(of_key);
        if turns.iter().all(|turns| turns.windows.len() == 1) {
            continue;
        }
        let (places, taken) = (places(story, of_key), taken(of_key));
        for turns in turns.iter().filter(|turns| turns.windows.len() > 1) {
            let first = turns.windows[0];
            let hints = hints.get(&(first.process, *key)).map_or(&[][..], Vec::as_slice);
            let waited = taken.get(first.token).copied();
            let passing = Passing { story, key, turns, hints, waited };
            violations.extend(passing.too_long(&places));
        }
    }
    violations
}

/// When each process was told that another client waits, for each key.
fn hints<'a>(story: &Story<'a>) -> HashMap<(ProcessId, &'a str), Vec<Moment>> {
    let mut hints: HashMap<_, Vec<_>> = HashMap::new();
    for event in story.events {
        if let What::Hinted { process, key } = &event.what {
            hints.entry((*process, &**key)).or_default().push(event.at);
        }
    }
    hints
}

/// When each token was first told that another client owns the key.
fn taken<'a>(of_key: &OfKey<'a>) -> HashMap<&'a str, Moment> {
    let mut taken = HashMap::new();
    for served in &of_key.served {
        let is_ask = matches!(served.request, Request::Ask { place: Some(_) });
        if is_ask && served.after != Some(served.token) {
            taken.entry(served.token).or_insert(served.at);
        }
    }
    taken
}

struct Passing<'c, 's, 'a> {
    story: &'c Story<'a>,
    key: &'c str,
    turns: &'c Turns<'s, 'a>,
    hints: &'c [Moment],
    waited: Option<Moment>,
}

impl Passing<'_, '_, '_> {
    fn too_long(&self, places: &[Place<'_>]) -> Option<Violation> {
        let first = self.turns.windows[0];
        let last = self.turns.windows[self.turns.windows.len() - 1];
        let standing = places.iter().take_while(|place| place.entered < last.began);
        let standing = standing.filter(|place| place.until > first.began);
        standing.filter(|place| place.token != first.token).find_map(|place| {
            let later = self.turns.windows[1..].iter().enumerate();
            later
                .filter(|(_, window)| place.entered < window.began && window.began < place.until)
                .find_map(|(number, window)| self.judge(place, number + 1, window))
        })
    }

    /// Judges a window after the first one, while another place stands in the line.
    fn judge(&self, place: &Place<'_>, number: usize, window: &Window<'_>) -> Option<Violation> {
        let began = window.began;
        let since = place.entered.max(self.turns.windows[0].began);
        let life = self.story.life(window.process);
        let complaint = if let Some(told) = self.told(place, since, began) {
            let ran = life.ran(told, began);
            let before = self.turns.windows.partition_point(|window| window.began <= told);
            let passes = (number + 1).saturating_sub(before);
            let allowed = PASSING_MAX + Bounds::drift(PASSING_MAX) + self.story.bounds.wake;
            if ran > allowed {
                format!("{ran:?} after its process was told of {}", place.token)
            } else if passes > PASSES_MAX {
                format!("as pass {passes} since its process was told of {}", place.token)
            } else {
                return None;
            }
        } else {
            let waited = began.since(since);
            let is_calm = self.story.weather.is_calm(since, began);
            if waited <= self.renewed_within() || !is_calm || life.stood(since, began) {
                return None;
            }
            format!("{waited:?} after {} took its place", place.token)
        };
        Some(Violation {
            invariant: Invariant::PassesBounded,
            at: began,
            text: format!("`{}`: {} begins {complaint}", self.key, window.name()),
            promised: true,
        })
    }

    /// Since when the process of the turns surely knows of a waiter, if it does.
    fn told(&self, place: &Place<'_>, since: Moment, began: Moment) -> Option<Moment> {
        let next = self.hints.partition_point(|at| *at < since);
        let hint = self.hints.get(next).copied().filter(|at| *at < began);
        let first = self.turns.windows[0];
        let slack = self.story.bounds.slack;
        let has_waited = self.turns.is_handed
            && place.entered <= first.began
            && self.waited.is_some_and(|taken| {
                self.turns.from.since(taken) > slack && self.story.weather.is_calm(taken, began)
            });
        if has_waited { Some(first.began) } else { hint }
    }

    fn renewed_within(&self) -> Duration {
        let Bounds { ttl_max, slack, .. } = *self.story.bounds;
        let tick = (ttl_max / 30).min(Duration::from_millis(500));
        let span = ttl_max / 3 + tick + PASSING_MAX;
        span + Bounds::drift(span) + slack
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::PassesBounded;
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::Outcome::Dropped;
    use crate::history::event::Request::{Keep, Release};

    /// A holds the lock from 1 s on, and B takes a place at 2 s.
    fn waited_for() -> Tale {
        let tale = tale().at(1.0).locks(1).serves(JOIN, "A", "", "A").gets(1, "A", 1, 10.8);
        tale.at(2.0).locks(2).serves(JOIN, "B", "A", "A")
    }

    /// Passes A's lease on `times` times, every `every` seconds.
    fn passed(mut tale: Tale, from: f64, times: u32, every: f64) -> Tale {
        for turn in 0..times {
            tale = tale.at(from + every * f64::from(turn)).gives_up("A");
            tale = tale.takes(1, "A", 2 + u64::from(turn), 10.8);
        }
        tale
    }

    fn ends(tale: Tale, at: f64) -> Tale {
        let tale = tale.at(at).gives_up("A").serves(Release, "A", "A", "B");
        tale.gets(2, "B", 1_000, 15.0).at(at + 0.5).gives_up("B")
    }

    #[test]
    fn passes_without_end_pass_while_nobody_waits() {
        let tale = tale().locks(1).serves(JOIN, "A", "", "A").gets(1, "A", 1, 10.8);
        passed(tale, 0.5, 300, 0.03).gives_up("A").passes();
    }

    #[test]
    fn a_pass_later_than_20_ms_after_the_hint_is_found() {
        let late = |by| ends(passed(waited_for().at(2.1).hints(1), 2.1 + by, 1, 0.0), 2.2);
        late(0.022).passes();
        late(0.024).breaks(PassesBounded);
    }

    #[test]
    fn more_than_64_passes_after_the_hint_are_found() {
        let many = |times| ends(passed(waited_for().at(2.1).hints(1), 2.1001, times, 0.0001), 2.2);
        many(64).passes();
        many(65).breaks(PassesBounded);
    }

    #[test]
    fn without_a_hint_the_next_renewal_but_one_tells() {
        let late = |by: f64| {
            let tale = waited_for();
            let places = ["B"; 4].iter().zip(1..);
            let tale = places.fold(tale, |tale, (token, second)| {
                tale.at(2.0 + f64::from(second) - 0.5).serves(JOIN, token, "A", "A")
            });
            ends(passed(tale, 2.0 + by, 1, 0.0), 6.6)
        };
        late(3.6).passes();
        late(4.2).breaks(PassesBounded);
    }

    #[test]
    fn a_holder_that_waited_knows_that_others_wait() {
        let tale = |by| {
            let tale = tale().locks(3).serves(JOIN, "H", "", "H").gets(3, "H", 1, 9.8).locks(1);
            let tale = tale.at(1.0).serves(JOIN, "A", "H", "H").locks(2);
            let tale = tale.at(1.1).serves(JOIN, "B", "H", "H").at(2.0).gives_up("H");
            let tale = tale.serves(Release, "H", "H", "A").gets(1, "A", 2, 4.8);
            let tale = tale.at(2.0 + by).gives_up("A").takes(1, "A", 3, 4.8);
            ends(tale, 2.1)
        };
        tale(0.02).passes();
        tale(0.03).breaks(PassesBounded);
    }

    #[test]
    fn time_in_which_its_process_stood_still_does_not_count() {
        let tale = waited_for().fault("client-stop").at(2.1).hints(1).stops(1);
        ends(passed(tale.at(2.5).resumes(1), 2.51, 1, 0.0), 2.6).passes();
    }

    #[test]
    fn a_place_that_lapsed_or_a_server_that_kept_the_lease_demands_nothing() {
        let left = waited_for().at(2.1).hints(1).serves(Release, "B", "A", "A");
        passed(left.returns(2, Dropped), 2.2, 1, 0.0).at(2.3).gives_up("A").passes();
        let kept = waited_for().at(2.1).hints(1).serves(Release, "B", "A", "A").at(2.15);
        let kept = kept.returns(2, Dropped);
        let kept = passed(kept.serves(Keep, "A", "A", "A"), 2.2, 1, 0.0).at(2.21);
        let kept = kept.locks(3).serves(JOIN, "C", "A", "A");
        let kept = kept.at(2.22).gives_up("A").serves(Release, "A", "A", "C");
        kept.gets(3, "C", 99, 5.0).at(2.3).gives_up("C").passes();
    }
}
