//! The answer to a release says whether the lease lasted until then.

use leasehold::core::Moment;

use crate::history::event::{Outcome, Request};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Story};
use crate::history::window::Window;

/// `NotHeld` means that the lease was lost. So if nothing was wrong between the first request for
/// the lease and the answer, a release of a lease that its holder still had is never `NotHeld`.
///
/// `Released` means that the lease lasted until then. So it is wrong in two cases, in any
/// weather: if the holder had been told of the loss before, and if the first release of the token
/// that the server carried out did not find its lease. A later release proves nothing, since an
/// earlier one may have ended the lease, and its answer may have been lost. If the client passed
/// the lease to another task or kept it, the call returned before any release was carried out. Its
/// answer says only that the client relied on the lease.
///
/// A holder gives its window up in the moment in which it calls. A release is not judged if several
/// windows of its process ended in that moment.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        for call in &of_key.calls {
            let wrong = call.returned.and_then(|(at, outcome)| match outcome {
                Outcome::NotHeld => {
                    let ended = window_of(of_key, call)?;
                    not_held_for_nothing(story, ended, at).then_some((at, "nothing was wrong"))
                }
                Outcome::Released => Some((at, released_in_vain(of_key, call, at)?)),
                _ => None,
            });
            violations.extend(wrong.map(|(at, why)| Violation {
                invariant: Invariant::OutcomeExplained,
                at,
                text: format!("{} of `{key}` returns its answer, and {why}", call.name()),
                promised: true,
            }));
        }
    }
    violations
}

/// The windows that the process of a call gave up as it called.
fn ended<'s, 'a>(
    of_key: &'s OfKey<'a>,
    call: &'s Call,
) -> impl Iterator<Item = &'s Window<'a>> + 's {
    let is_it = |window: &&Window<'_>| {
        window.process == call.process && window.gave_up == Some(call.called)
    };
    of_key.windows.iter().filter(is_it)
}

/// The window that a release ends, if it is known.
fn window_of<'s, 'a>(of_key: &'s OfKey<'a>, call: &'s Call) -> Option<&'s Window<'a>> {
    let mut all = ended(of_key, call);
    let window = all.next()?;
    all.next().is_none().then_some(window)
}

fn not_held_for_nothing(story: &Story<'_>, window: &Window<'_>, at: Moment) -> bool {
    let is_cut_short = window.told.is_some() || window.evicted.is_some();
    let was_there = window.gave_up.is_some_and(|gave_up| gave_up < window.until);
    was_there && !is_cut_short && story.weather.is_calm(window.called, at)
}

/// Why a release should not have been told *released*, if it should not.
fn released_in_vain(of_key: &OfKey<'_>, call: &Call, returned: Moment) -> Option<&'static str> {
    if ended(of_key, call).next().is_none() {
        let of_it = |window: &&Window<'_>| window.process == call.process;
        let mut before = of_key.windows.iter().filter(of_it).filter(|w| w.began <= call.called);
        let is_told = |window: &Window<'_>| window.told.is_some_and(|told| told <= call.called);
        let mut open = of_key.windows.iter().filter(of_it).filter(|w| w.end() >= call.called);
        let is_lost = before.any(is_told) && open.next().is_none();
        return is_lost.then_some("its holder had been told of the loss");
    }
    let window = window_of(of_key, call)?;
    let (at, was_owner) = first_release(of_key, window.token)?;
    (at <= returned && !was_owner).then_some("the server had no such lease")
}

/// When the server first carried out a release of a token, and whether the token was an owner.
fn first_release(of_key: &OfKey<'_>, token: &str) -> Option<(Moment, bool)> {
    let ends = |request| matches!(request, Request::Release | Request::Downgrade | Request::Keep);
    let served = of_key.served.iter().find(|one| one.token == token && ends(one.request));
    let stood = of_key.stood.iter().find(|one| one.token == token && ends(one.request));
    let served = served.map(|one| (one.at, one.before == Some(token)));
    served.or_else(|| stood.map(|one| (one.at, one.before.is_holder(token))))
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::OutcomeExplained;
    use crate::history::build::{ASK, Tale, tale};
    use crate::history::event::Outcome::{NotHeld, Released};
    use crate::history::event::Request::{Evict, Release};
    use crate::history::event::{CallKind, Outcome, Share, Standing};

    /// Gives the lease up and calls `release`.
    fn leaves(tale: Tale) -> Tale {
        tale.at(2.0).gives_up("A").calls(1, CallKind::Release, Some(3.0)).sends(1, Release, "A")
    }

    fn held() -> Tale {
        tale().takes(1, "A", 1, 9.898).serves(ASK, "A", "", "A")
    }

    fn answers(tale: Tale, before: &str, outcome: Outcome) -> Tale {
        let tale = tale.at(2.1).serves(Release, "A", before, "").at(2.2).returns(1, outcome);
        tale.at(100.0)
    }

    #[test]
    fn a_lease_that_is_not_held_for_no_reason_is_found() {
        answers(leaves(held()), "A", NotHeld).fault("delay").breaks(OutcomeExplained);
        answers(leaves(held()), "A", Released).fault("delay").passes();
        let evicted = held().at(1.0).serves(Evict, "A", "A", "");
        answers(leaves(evicted), "", NotHeld).passes();
        answers(leaves(held().fault("flushall").forgets().heals()), "", NotHeld).passes();
    }

    #[test]
    fn a_lease_that_the_server_had_lost_and_that_is_released_is_found_in_any_weather() {
        let forgot = || held().fault("flushall").forgets().heals();
        answers(leaves(forgot()), "", Released).breaks(OutcomeExplained);
        // The first answer was lost.
        let again = leaves(held().fault("reply-lost")).at(2.05).serves(Release, "A", "A", "");
        answers(again, "", Released).passes();
    }

    #[test]
    fn a_lease_that_was_passed_on_while_the_server_had_lost_it_is_released() {
        let passed = held().fault("flushall").forgets().heals().at(2.0).gives_up("A");
        let passed = passed.calls(1, CallKind::Release, Some(3.0)).returns(1, Released);
        passed.at(3.0).sends(1, Release, "A").serves(Release, "A", "", "").passes();
    }

    #[test]
    fn a_lease_whose_loss_was_told_before_and_that_is_released_is_found() {
        let lost = |outcome| {
            let tale = tale().fault("partition").takes(1, "A", 1, 9.898).at(9.898).loses("A");
            let tale = tale.at(9.95).calls(1, CallKind::Release, Some(3.0));
            tale.at(9.96).returns(1, outcome)
        };
        lost(Released).breaks(OutcomeExplained);
        lost(NotHeld).passes();
    }

    #[test]
    fn a_share_that_the_server_had_lost_and_that_is_released_is_found() {
        let answered = |before: Standing| {
            let tale = tale().takes(1, "A", 1, 9.898).shares("A", Share::Reader);
            let tale = leaves(tale.fault("flushall").forgets().heals()).at(2.1);
            tale.steps(Release, "A", before, Standing::default()).at(2.2).returns(1, Released)
        };
        let holders = vec![("A".into(), Share::Reader)];
        answered(Standing { holders, ..Standing::default() }).passes();
        answered(Standing::default()).breaks(OutcomeExplained);
    }

    #[test]
    fn two_windows_that_end_in_one_moment_are_not_told_apart() {
        let reads = |token: &str, fence, tale: Tale| {
            tale.takes(1, token, fence, 9.898).shares(token, Share::Reader)
        };
        let both = reads("B", 2, reads("A", 1, tale())).at(2.0).gives_up("B");
        let both = leaves(both).returns(1, NotHeld).sends(1, Release, "B");
        both.at(100.0).passes();
    }
}
