//! The server serves living waiters in the order of the line.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::{Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Served, Story};
use crate::history::weather::Weather;

/// When the key goes to a token, no place that is *surely earlier* in the line *surely lives*. A
/// token without a place comes after all places, so it must not get the key before them.
///
/// The line follows from the requests that the server carried out:
///
/// - An acquire that takes a place, and does not become the owner, takes or refreshes its place.
///   The place lives as long as the acquire said.
/// - A release, an eviction of the owner, or becoming the owner ends a place.
/// - A place *surely lives* if it has time left beyond the drift of clocks and a millisecond of
///   rounding.
/// - A place that may have expired before it was refreshed stands anywhere between its old position
///   and the end. So it is not *surely earlier* than a place in between.
/// - If the server forgets something, or its clock jumps, every place that was ever taken is in
///   doubt. It may be gone or back, at any position.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let hurts = hurts(story);
    let keys = story.keys.iter();
    keys.flat_map(|(key, of_key)| of_one_key(key, of_key, &hurts)).collect()
}

/// An event that puts places in doubt, and how many faults do so from then on.
type Hurt = (usize, usize);

fn hurts(story: &Story<'_>) -> Vec<Hurt> {
    let mut active: Vec<u32> = Vec::new();
    let mut hurts = Vec::new();
    for (number, event) in story.events.iter().enumerate() {
        match &event.what {
            What::FaultBegan { fault, kind } if Weather::hurts_places(kind) => active.push(*fault),
            What::FaultEnded { fault } if active.contains(fault) => {
                active.retain(|one| one != fault);
            }
            What::Forgot => {}
            _ => continue,
        }
        hurts.push((number, active.len()));
    }
    hurts
}

fn of_one_key(key: &str, of_key: &OfKey<'_>, hurts: &[Hurt]) -> Vec<Violation> {
    let mut line = Line::default();
    let mut hurts = hurts.iter().peekable();
    let mut violations = Vec::new();
    for served in &of_key.served {
        while let Some((number, active)) = hurts.next_if(|(number, _)| *number < served.number) {
            line.doubt(*number, *active > 0);
        }
        if let Some(passed) = line.follow(served) {
            let Served { request, token, at, .. } = served;
            let owner = served.after.unwrap_or_default();
            let text = format!("`{key}` goes to {owner} past {passed} ({request:?} by {token})");
            let invariant = Invariant::LineOrder;
            violations.push(Violation { invariant, at: *at, text, promised: true });
        }
    }
    violations
}

#[derive(Default)]
struct Line<'a> {
    /// Every place that was ever taken.
    places: HashMap<&'a str, Place>,
    /// The tokens whose places may surely live.
    living: Vec<&'a str>,
    is_hurt: bool,
}

struct Place {
    /// The numbers of two events, between which the place was taken.
    earliest: usize,
    latest: usize,
    sure_until: Moment,
    is_gone: bool,
}

impl<'a> Line<'a> {
    /// Follows one request. Returns the token of a place that was passed over.
    fn follow(&mut self, served: &Served<'a>) -> Option<&'a str> {
        match served.request {
            Request::Ask { place: Some(life) } if served.after != Some(served.token) => {
                self.enter(served, life);
            }
            Request::Release | Request::Keep => self.leave(served.token),
            Request::Evict if served.before == Some(served.token) => self.leave(served.token),
            // An eviction that came too late changes nothing.
            Request::Evict
            | Request::Ask { .. }
            | Request::Renew
            | Request::Downgrade
            | Request::Resize => {}
        }
        let owner = served.after.filter(|_| served.after != served.before)?;
        let passed = self.passed_by(owner, served);
        self.leave(owner);
        passed
    }

    fn passed_by(&mut self, owner: &str, served: &Served<'_>) -> Option<&'a str> {
        let place = self.places.get(owner).filter(|place| !place.is_gone);
        let position = place.map_or(served.number, |place| place.earliest);
        let places = &self.places;
        self.living.retain(|token| places[token].sure_until > served.at);
        let mut earlier = self.living.iter().filter(|token| places[*token].latest < position);
        earlier.next().copied()
    }

    fn enter(&mut self, served: &Served<'a>, life: Duration) {
        let number = served.number;
        let new = || Place {
            earliest: number,
            latest: number,
            sure_until: Moment::default(),
            is_gone: false,
        };
        let place = self.places.entry(served.token).or_insert_with(new);
        if place.is_gone {
            *place = new();
        } else if place.sure_until <= served.at {
            place.latest = number;
        }
        if !self.is_hurt {
            place.sure_until = place.sure_until.max(served.at + Bounds::surely(life));
            if !self.living.contains(&served.token) {
                self.living.push(served.token);
            }
        }
    }

    fn leave(&mut self, token: &str) {
        if let Some(place) = self.places.get_mut(token) {
            place.is_gone = true;
            self.living.retain(|one| *one != token);
        }
    }

    fn doubt(&mut self, number: usize, is_hurt: bool) {
        self.is_hurt = is_hurt;
        self.living.clear();
        for place in self.places.values_mut() {
            *place = Place {
                earliest: 0,
                latest: number,
                sure_until: Moment::default(),
                is_gone: false,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::LineOrder;
    use crate::history::build::{ASK, JOIN, Tale, tale};
    use crate::history::event::Request::{Evict, Release, Renew};

    /// H holds the lock. A and B wait in line, in this order.
    fn line() -> Tale {
        let tale = tale().serves(JOIN, "H", "", "H").at(1.0).serves(JOIN, "A", "H", "H");
        tale.at(1.5).serves(JOIN, "B", "H", "H").at(2.0)
    }

    #[test]
    fn a_release_that_passes_the_first_over_is_found() {
        line().serves(Release, "H", "H", "B").breaks(LineOrder);
        line().serves(Evict, "H", "H", "B").breaks(LineOrder);
    }

    #[test]
    fn barging_is_found() {
        line().serves(Release, "H", "H", "").serves(ASK, "C", "", "C").breaks(LineOrder);
        line().serves(Release, "H", "H", "").serves(JOIN, "C", "", "C").breaks(LineOrder);
        line().serves(JOIN, "B", "", "B").breaks(LineOrder);
    }

    #[test]
    fn a_place_that_is_refreshed_keeps_its_position() {
        let tale = line().at(3.5).serves(JOIN, "B", "H", "H").serves(JOIN, "A", "H", "H").at(6.0);
        tale.serves(Release, "H", "H", "B").breaks(LineOrder);
    }

    /// The operator saw A as the owner. Meanwhile another one has the key, and A waits again.
    #[test]
    fn an_eviction_that_came_too_late_ends_no_place() {
        let tale = line().serves(Evict, "A", "H", "H").at(2.5);
        tale.serves(Release, "H", "H", "A").passes();
        line().serves(Evict, "A", "H", "H").serves(Release, "H", "H", "B").breaks(LineOrder);
    }

    #[test]
    fn a_line_that_is_served_in_order_passes() {
        let tale = line().serves(Release, "H", "H", "A").serves(Renew, "A", "A", "A").at(2.5);
        let tale = tale.serves(JOIN, "C", "A", "A").serves(JOIN, "B", "A", "A").at(3.0);
        tale.serves(Release, "A", "A", "B").serves(JOIN, "D", "", "C").passes();
    }

    #[test]
    fn a_waiter_that_left_or_lapsed_may_be_passed_over() {
        line().serves(Release, "A", "H", "H").serves(Release, "H", "H", "B").passes();
        line().at(4.2).serves(Release, "H", "H", "B").passes();
        line().at(9.0).serves(Release, "H", "H", "").serves(ASK, "C", "", "C").passes();
    }

    #[test]
    fn a_place_that_may_have_lapsed_has_no_sure_position() {
        let tale = || line().at(3.98).serves(JOIN, "A", "H", "H").at(4.0);
        tale().serves(Release, "H", "H", "B").passes();
        tale().serves(Release, "H", "H", "A").passes();
    }

    #[test]
    fn a_place_that_was_left_and_taken_again_is_at_the_end() {
        let tale = || line().serves(Release, "A", "H", "H").serves(JOIN, "A", "H", "H");
        tale().serves(Release, "H", "H", "B").passes();
        tale().serves(Release, "H", "H", "A").breaks(LineOrder);
    }

    #[test]
    fn a_server_that_forgot_may_serve_its_earlier_waiters_in_any_order() {
        line().forgets().serves(JOIN, "B", "", "B").passes();
        let old = line().serves(Release, "B", "H", "H").forgets().serves(JOIN, "C", "H", "H");
        old.serves(Release, "H", "H", "B").passes();
        let new = line().forgets().serves(JOIN, "C", "H", "H").serves(JOIN, "D", "H", "H");
        new.serves(Release, "H", "H", "D").breaks(LineOrder);
    }

    #[test]
    fn a_place_that_is_taken_while_the_server_forgets_is_doubtful_and_a_later_one_is_not() {
        let tale = || {
            let tale = tale().serves(JOIN, "H", "", "H").fault("clock-step-forward");
            tale.serves(JOIN, "A", "H", "H").serves(JOIN, "B", "H", "H")
        };
        tale().serves(Release, "H", "H", "B").passes();
        tale().heals().serves(Release, "H", "H", "B").passes();
        let later = tale().heals().serves(JOIN, "C", "H", "H").serves(JOIN, "D", "H", "H");
        later.serves(Release, "H", "H", "D").breaks(LineOrder);
    }

    #[test]
    fn a_clock_that_jumps_or_a_full_server_makes_places_doubtful_and_other_faults_do_not() {
        let tale = |kind| line().fault(kind).serves(Release, "H", "H", "B");
        let steps = ["clock-step-forward", "clock-step-back"];
        let full = ["out-of-memory", "disk-full", "quota-full"];
        for kind in [&steps[..], &full, &["restart-old"]].concat() {
            tale(kind).passes();
        }
        tale("server-stop").breaks(LineOrder);
    }
}
