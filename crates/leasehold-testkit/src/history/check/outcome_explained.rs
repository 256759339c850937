//! Errors and losses have a cause.

use leasehold::core::Moment;

use crate::history::event::{CallKind, Name, Outcome, Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Story};
use crate::history::window::Window;

/// `Failed` never happens. `Unavailable`, `Unknown`, `Lost` and a reported loss happen only if the
/// world was disturbed during the call or the window, or was in the aftermath of an earlier fault.
///
/// There are six exceptions:
///
/// - A client that knows another number of permits than the store gets `Failed`, once a client was
///   about to change that number. The change itself never fails.
/// - A server that refuses scripts to a user for want of a right makes its calls fail.
/// - A window with a limit is lost at its limit.
/// - The loss of an earlier window explains a `Lost` call of the same process and key: the loss
///   itself is judged.
/// - An eviction explains a loss.
/// - A wait with a limit may end between an acquire and its answer, which makes it `Unknown`. So
///   may a wait behind a release that keeps the lease for this client if nobody else waits.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        violations.extend(of_key.calls.iter().filter_map(|call| error(story, key, of_key, call)));
        violations.extend(of_key.windows.iter().filter_map(|window| loss(story, window)));
    }
    violations
}

fn violation(at: Moment, text: String) -> Option<Violation> {
    Some(Violation { invariant: Invariant::OutcomeExplained, at, text, promised: true })
}

fn error(story: &Story<'_>, key: &str, of_key: &OfKey<'_>, call: &Call) -> Option<Violation> {
    let (at, outcome) = call.returned?;
    let is_explained = match outcome {
        Outcome::Failed => {
            let may_know_another =
                call.kind != CallKind::Resize && of_key.permits.were_resized_by(at);
            may_know_another || story.weather.is_denied(call.called, at)
        }
        Outcome::Unavailable => !story.weather.is_calm(call.called, at),
        Outcome::Unknown => {
            !story.weather.is_calm(call.called, at) || gave_up_early(story, key, of_key, call, at)
        }
        Outcome::Lost => {
            let may_renew = matches!(call.kind, CallKind::Renew | CallKind::Release);
            // An operator may end a lease before it is downgraded, or before a release hands it
            // over.
            let explains = |window: &Window<'_>| {
                window.process == call.process
                    && was_lost(window, at)
                    && (may_renew || window.evicted.is_some())
            };
            of_key.windows.iter().any(explains) || !story.weather.is_calm(call.called, at)
        }
        _ => true,
    };
    if is_explained {
        return None;
    }
    violation(at, format!("{} ends in {outcome:?}, and nothing was wrong", call.name()))
}

/// Whether a wait with a limit ended within `slack` of its last acquire, or the history does not
/// contain that acquire. The time of an acquire is when the server carried it out, since it may
/// have waited there behind requests that waited for copies.
fn gave_up_early(
    story: &Story<'_>,
    key: &str,
    of_key: &OfKey<'_>,
    call: &Call,
    at: Moment,
) -> bool {
    let start = story.events.partition_point(|event| event.at < call.called);
    let meanwhile = story.events[start..].iter().take_while(|event| event.at <= at);
    let asks = meanwhile.filter_map(|event| match &event.what {
        What::Sent {
            process,
            request: Request::Ask { .. } | Request::Keep,
            key: of,
            token,
            ..
        } if *process == call.process && **of == *key => Some((event.at, token)),
        _ => None,
    });
    let is_late = |(sent, token): (Moment, &Name)| {
        let served = of_key.served.iter().find(|served| {
            let left = served.travelled.map(|travelled| served.at.minus(travelled));
            served.token == &**token && left == Some(sent)
        });
        let from = served.map_or(sent, |served| served.at);
        at.since(from) <= story.bounds.slack
    };
    let may_wait = matches!(call.kind, CallKind::Lock | CallKind::Start);
    may_wait && call.limit.is_some() && asks.last().is_none_or(is_late)
}

/// Whether a window ended without its holder's doing. A window that its holder gave up before
/// cannot be lost any more.
fn was_lost(window: &Window<'_>, at: Moment) -> bool {
    let ended = window.told.or(window.evicted).unwrap_or(window.until);
    ended <= at && window.gave_up.is_none_or(|gave_up| ended <= gave_up)
}

fn loss(story: &Story<'_>, window: &Window<'_>) -> Option<Violation> {
    let told = window.told?;
    // The hold began before the call returned the guard, so it may end a little earlier.
    let is_at_limit = window.limit.is_some_and(|limit| told + story.bounds.slack >= limit);
    let is_explained = is_at_limit || window.evicted.is_some();
    if is_explained || !story.weather.is_calm(window.called, told) {
        return None;
    }
    violation(told, format!("{} is lost, and nothing was wrong", window.name()))
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::OutcomeExplained;
    use crate::history::build::{ASK, JOIN, Tale, tale};
    use crate::history::event::CallKind::{self, Lock, Renew};
    use crate::history::event::Outcome::{Failed, Lost, Unavailable, Unknown};
    use crate::history::event::Request::{Evict, Keep};

    #[test]
    fn an_error_without_a_cause_is_found() {
        for outcome in [Unavailable, Unknown, Lost] {
            let tale = tale().tries(1).at(1.0).returns(1, outcome).at(100.0).fault("delay");
            tale.breaks(OutcomeExplained);
        }
    }

    #[test]
    fn an_error_during_or_shortly_after_a_fault_passes() {
        for outcome in [Unavailable, Unknown, Lost] {
            let tale = tale().tries(1).at(1.0).fault("delay").returns(1, outcome).heals();
            tale.at(3.0).tries(2).at(3.5).returns(2, outcome).passes();
        }
    }

    #[test]
    fn a_fault_that_stops_kills_or_forgets_is_a_cause_without_a_name() {
        let lost = |tale: Tale| tale.at(9.898).loses("A").passes();
        let held = || tale().takes(1, "A", 1, 9.898).at(5.0);
        lost(held().stops(2).at(6.0).resumes(2));
        lost(held().stops(2));
        lost(held().crashes(2));
        lost(held().forgets());
    }

    #[test]
    fn an_error_that_no_fault_explains_is_found() {
        tale().fault("delay").tries(1).returns(1, Failed).breaks(OutcomeExplained);
    }

    #[test]
    fn a_wait_that_elapses_between_an_ask_and_its_answer_passes_and_a_longer_one_is_found() {
        let ends = |limit, at: f64| {
            let tale = tale().calls(1, Lock, limit).sends(1, JOIN, "A").at(at);
            tale.returns(1, Unknown).at(100.0).fault("delay")
        };
        ends(Some(3.0), 0.4).passes();
        ends(Some(3.0), 1.0).breaks(OutcomeExplained);
        ends(None, 0.4).breaks(OutcomeExplained);
        let starts = tale().calls(1, CallKind::Start, Some(3.0)).sends(1, JOIN, "A").at(0.4);
        starts.returns(1, Unknown).at(100.0).fault("delay").passes();
        let served = |served: f64, at| {
            let tale = tale().calls(1, Lock, Some(3.0)).sends(1, JOIN, "A").at(served);
            let tale = tale.serves(JOIN, "A", "B", "B").at(at);
            tale.returns(1, Unknown).at(100.0).fault("delay")
        };
        served(0.7, 1.0).passes();
        served(0.1, 1.0).breaks(OutcomeExplained);
        let behind_a_release = |at| {
            let tale = tale().calls(1, Lock, Some(3.0)).sends(1, JOIN, "A").at(1.0);
            tale.sends(1, Keep, "A").at(at).returns(1, Unknown).at(100.0).fault("delay")
        };
        behind_a_release(1.3).passes();
        behind_a_release(2.0).breaks(OutcomeExplained);
    }

    #[test]
    fn a_failure_is_explained_by_another_number_of_permits() {
        let fails = |tale: Tale| tale.tries(1).at(2.0).returns(1, Failed).at(100.0);
        fails(tale().shares_keys()).fault("delay").breaks(OutcomeExplained);
        fails(tale().resizes(2)).passes();
        fails(tale()).resizes(2).breaks(OutcomeExplained);
    }

    #[test]
    fn a_change_of_the_number_of_permits_never_fails() {
        let tale = || tale().shares_keys().resizes(2).at(1.0).calls(1, CallKind::Resize, None);
        tale().returns(1, Failed).breaks(OutcomeExplained);
        tale().fault("scripts-denied").returns(1, Failed).heals().passes();
    }

    #[test]
    fn a_failure_is_explained_by_a_right_that_was_missing() {
        let fails = |at| {
            let tale = tale().fault("scripts-denied").at(2.0).heals().at(at).tries(1);
            tale.at(at + 0.1).returns(1, Failed)
        };
        fails(2.0).passes();
        fails(2.5).breaks(OutcomeExplained);
    }

    #[test]
    fn a_loss_at_the_limit_of_a_hold_passes_and_an_earlier_one_is_found() {
        let lost = |at| {
            let tale = tale().takes(1, "A", 1, 9.898).holds_until("A", 5.0);
            tale.extends("A", 5.0).at(at).loses("A")
        };
        lost(4.999).passes();
        lost(4.5).breaks(OutcomeExplained);
    }

    #[test]
    fn errors_and_losses_where_keys_are_shared_have_a_cause_too() {
        let lost = || tale().shares_keys().takes(1, "A", 1, 9.898).at(9.898).loses("A");
        lost().breaks(OutcomeExplained);
        lost().fault("delay").passes();
    }

    #[test]
    fn a_loss_without_a_cause_is_found() {
        tale().takes(1, "A", 1, 9.898).at(9.898).loses("A").breaks(OutcomeExplained);
    }

    #[test]
    fn a_loss_by_eviction_passes() {
        let tale = tale().takes(1, "A", 1, 9.898).serves(ASK, "A", "", "A");
        let tale = tale.at(1.0).serves(Evict, "A", "A", "").at(3.0).calls(1, Renew, Some(3.0));
        tale.returns(1, Lost).loses("A").passes();
    }

    #[test]
    fn a_loss_is_not_explained_by_a_window_that_was_given_up_long_ago() {
        let tale = tale().takes(1, "A", 1, 9.898).at(1.0).gives_up("A").at(20.0);
        let tale = tale.takes(1, "B", 2, 29.898).calls(1, Renew, Some(3.0)).at(21.0);
        tale.returns(1, Lost).gives_up("B").at(100.0).fault("delay").breaks(OutcomeExplained);
    }

    #[test]
    fn a_renewal_long_after_the_loss_is_explained_by_it() {
        let tale = tale().fault("partition").takes(1, "A", 1, 9.898).at(9.898).loses("A").heals();
        tale.at(99.0).calls(1, Renew, Some(3.0)).returns(1, Lost).passes();
    }
}
