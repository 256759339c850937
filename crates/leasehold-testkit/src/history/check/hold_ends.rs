//! A hold with a limit ends at its limit.

use std::time::Duration;

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::Request;
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// How much longer than its limit a lease may last because of whole milliseconds: the shortest ttl
/// that a client may ask for, and the rounding of a server.
const ROUNDED: Duration = Duration::from_millis(10 + 1);

/// The holder of a window with a limit relies on it no longer than until then, whatever the store
/// answers. A key that is left taken may stay taken for longer, since nobody works under it.
///
/// The lease also ends by itself at about that time, even if its client can send nothing any more.
/// So no renewal makes it last beyond the limit, except for the margin between clocks, the lock
/// delay and the time that the renewal was on its way. A renewal that a client submits while it
/// connects may also wait for the connection. A step that may be a copy of an earlier request ends
/// the judgment of its lease, since nobody knows when that request was sent.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        for window in of_key.windows.iter().filter(|window| !window.is_left_taken) {
            let Some(limit) = window.limit else { continue };
            if window.until > limit + story.bounds.wake {
                violations.push(Violation {
                    invariant: Invariant::HoldEnds,
                    at: window.until,
                    text: format!("{} of `{key}` has its limit at {limit:?}", window.name()),
                    promised: true,
                });
            }
            let late = renewals(of_key, window).find_map(|step| step.beyond(story, limit));
            violations.extend(late.map(|(at, beyond)| Violation {
                invariant: Invariant::HoldEnds,
                at,
                text: format!(
                    "{} of `{key}` has its limit at {limit:?}, and a renewal makes its lease last \
                     for {beyond:?} longer",
                    window.name()
                ),
                promised: true,
            }));
        }
    }
    violations
}

/// A renewal of a lease, as the server carried it out.
struct Renewal {
    at: Moment,
    /// How long the lease has left.
    left: Duration,
    /// The longest time that a request for the lease was on its way until now.
    travelled: Duration,
}

impl Renewal {
    /// When the server carried it out, and by how much the lease outlasts its limit.
    fn beyond(&self, story: &Story<'_>, limit: Moment) -> Option<(Moment, Duration)> {
        let Bounds { ttl_max, lock_delay, queued, slack, .. } = *story.bounds;
        let from = self.at.minus(ttl_max + lock_delay);
        let waited = if story.weather.is_calm(from, self.at) { slack } else { queued };
        let drift = Bounds::drift(ttl_max) + Bounds::drift(self.left);
        let latest = limit + lock_delay + drift + self.travelled + waited + ROUNDED;
        let ends = self.at + self.left;
        (ends > latest).then(|| (self.at, ends.since(limit)))
    }
}

/// The renewals of the lease of a window, until a copy of a request comes.
fn renewals<'s>(
    of_key: &'s OfKey<'_>,
    window: &'s Window<'_>,
) -> impl Iterator<Item = Renewal> + 's {
    let owner = Some(window.token);
    let of_lease = of_key.served.iter().filter(move |step| step.token == window.token);
    let alone = of_lease.filter(move |step| step.after == owner);
    let alone = alone.map(|step| (step.at, step.request, step.left, step.travelled));
    let of_lease = of_key.stood.iter().filter(move |step| step.token == window.token);
    let shared = of_lease.filter(|step| step.after.is_holder(step.token));
    let shared =
        shared.map(|step| (step.at, step.request, step.after.left(step.token), step.travelled));
    // A key has steps of one kind only.
    let steps = alone.chain(shared).map_while(|(at, request, left, travelled)| {
        travelled.map(|travelled| (at, request, left, travelled))
    });
    let latest = steps.scan(Duration::ZERO, |longest, (at, request, left, travelled)| {
        *longest = travelled.max(*longest);
        Some((request, Renewal { at, left, travelled: *longest }))
    });
    latest.filter(|(request, _)| *request == Request::Renew).map(|(_, renewal)| renewal)
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::HoldEnds;
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::Request::Renew;

    /// The hold of A must end at 15 s.
    fn limited() -> Tale {
        let tale = tale().locks(1).sends(1, JOIN, "A").serves(JOIN, "A", "", "A");
        tale.gets(1, "A", 1, 9.9).holds_until("A", 15.0)
    }

    #[test]
    fn a_hold_that_goes_on_beyond_its_limit_is_found() {
        let relies = |until| limited().at(6.0).extends("A", until).at(14.0).gives_up("A");
        relies(15.0).passes();
        relies(15.1).breaks(HoldEnds);
    }

    #[test]
    fn a_key_that_is_left_taken_has_no_limit() {
        let tale = limited().at(6.0).extends("A", 14.9).leaves_taken("A").extends("A", 30.0);
        tale.at(14.0).gives_up("A").passes();
    }

    /// The server keeps a renewed lease for 10 s.
    #[test]
    fn a_renewal_that_makes_a_lease_outlast_its_limit_is_found() {
        let renews = |at| {
            let tale = limited().at(at).sends(1, Renew, "A").serves(Renew, "A", "A", "A");
            tale.at(9.0).gives_up("A")
        };
        renews(5.5).passes();
        renews(5.9).breaks(HoldEnds);
    }

    #[test]
    fn a_renewal_may_be_late_by_the_time_that_it_travelled() {
        let renews = |sent, at| {
            let tale = limited().at(sent).sends(1, Renew, "A").at(at);
            tale.serves(Renew, "A", "A", "A").at(9.0).gives_up("A")
        };
        renews(5.4, 6.5).passes();
        renews(5.8, 6.5).breaks(HoldEnds);
    }

    #[test]
    fn a_renewal_that_waited_for_its_connection_passes() {
        let renews = |at| {
            let tale = limited().fault("delay").at(at).sends(1, Renew, "A");
            tale.serves(Renew, "A", "A", "A").heals().at(9.0).gives_up("A")
        };
        renews(6.1).passes();
        renews(6.5).breaks(HoldEnds);
    }

    #[test]
    fn nobody_judges_a_lease_after_a_copy_of_a_request() {
        let tale = limited().at(5.0).serves(Renew, "A", "A", "A");
        tale.at(7.0)
            .sends(1, Renew, "A")
            .serves(Renew, "A", "A", "A")
            .at(9.0)
            .gives_up("A")
            .passes();
    }
}
