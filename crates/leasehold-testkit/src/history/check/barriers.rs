//! No party passes a barrier before all have arrived, and all pass soon after that.

use leasehold::core::Moment;

use super::latches::{noticed_within, sees_open};
use crate::history::event::{CallKind, Outcome, Standing};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Story};

/// A call that passes, or that is told that all have arrived, is right in two ways. By its end, as
/// many calls as there are parties have begun and may have counted. And if the history has the
/// steps of the server, the server has counted as many.
///
/// A call without an answer may have counted, and takes its count back at some time, so it may
/// count for ever here. No fault excuses a violation, since no fault adds a count.
pub(super) fn holds(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key, of) in all(story) {
        let mut begun: Vec<_> =
            arrivals(of_key).filter(|it| !is_refused(it)).map(|it| it.called).collect();
        begun.sort_unstable();
        let counted = of_key.stood.iter().find(|step| counts(step.after) >= of).map(|it| it.at);
        for (call, at) in arrivals(of_key).filter_map(|call| Some((call, passed(call)?))) {
            let maybe = begun.partition_point(|called| *called <= at);
            let is_counted = of_key.stood.is_empty() || counted.is_some_and(|since| since <= at);
            if maybe >= of && is_counted {
                continue;
            }
            violations.push(Violation {
                invariant: Invariant::BarrierHolds,
                at,
                text: format!("{} passes `{key}` before all {of} have arrived", call.name()),
                promised: true,
            });
        }
    }
    violations
}

/// In calm weather, a running party passes within one pause and one round trip after the last one
/// has arrived. A party that missed this moment in a fault passes in the next calm.
///
/// All have arrived from the moment at which the server has counted them, if it counts as many in
/// all later steps. If the history does not have the steps, they have arrived when the first of
/// them passes. A fault that ends leases early excuses a party if it met one of the counts.
pub(super) fn opens(story: &Story<'_>) -> Vec<Violation> {
    let patience = noticed_within(story.bounds);
    let mut violations = Vec::new();
    for (key, of_key, of) in all(story) {
        let Some(open) = opened(of_key, of) else { continue };
        let first = arrivals(of_key).map(|it| it.called).min().unwrap_or(open);
        for call in arrivals(of_key) {
            let ends = [call.returned.map(|(at, _)| at), story.life(call.process).crashed];
            let until = ends.into_iter().flatten().fold(story.end, Moment::min);
            let mut calm = story.weather.calm(open.max(call.called), until).into_iter();
            let Some((from, _)) = calm.find(|(from, to)| to.since(*from) > patience) else {
                continue;
            };
            violations.push(Violation {
                invariant: Invariant::BarrierOpens,
                at: from + patience,
                text: format!("{} still waits at `{key}`, and all have arrived", call.name()),
                promised: story.weather.lasting_promised(first, from + patience),
            });
        }
    }
    violations
}

/// All barriers, with the numbers of their parties.
fn all<'s, 'a>(story: &'s Story<'a>) -> impl Iterator<Item = (&'a str, &'s OfKey<'a>, usize)> {
    let keys = story.keys.iter();
    keys.filter_map(|(key, of_key)| Some((*key, of_key, of_key.barrier? as usize)))
}

fn arrivals<'s>(of_key: &'s OfKey<'_>) -> impl Iterator<Item = &'s Call> {
    of_key.calls.iter().filter(|call| call.kind == CallKind::Arrive)
}

/// When a call saw that all have arrived.
fn passed(call: &Call) -> Option<Moment> {
    call.returned.filter(|_| sees_open(call)).map(|(at, _)| at)
}

fn is_refused(call: &Call) -> bool {
    matches!(call.returned, Some((_, Outcome::Taken)))
}

/// How many parties the server counts.
fn counts(standing: &Standing) -> usize {
    standing.holders.iter().map(|(_, share)| share.permits() as usize).sum()
}

/// The moment from which all have arrived.
///
/// A party that passed is no proof if the history has the steps: the count of a call that failed
/// may have opened the barrier before the client took it back.
fn opened(of_key: &OfKey<'_>, of: usize) -> Option<Moment> {
    if of_key.stood.is_empty() {
        return arrivals(of_key).filter_map(passed).min();
    }
    let mut counted = None;
    for step in &of_key.stood {
        counted = (counts(step.after) >= of).then(|| counted.unwrap_or(step.at));
    }
    counted
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::{BarrierHolds, BarrierOpens};
    use crate::history::build::{ASK, Tale, tale};
    use crate::history::event::CallKind::Arrive;
    use crate::history::event::Outcome::{Dropped, Taken, Unknown};
    use crate::history::event::Request::Release;
    use crate::history::event::{Share, Standing};

    fn arrives(tale: Tale, process: u32) -> Tale {
        tale.calls(process, Arrive, None)
    }

    /// A barrier of two. One party has arrived at 1 s.
    fn one() -> Tale {
        arrives(tale().meets(2).at(1.0), 1)
    }

    /// Both have arrived, and the first one has passed at 2.1 s.
    fn opened() -> Tale {
        arrives(one().at(2.0), 2).at(2.1).remains(1, 0)
    }

    fn stands(tokens: &[&str]) -> Standing {
        let share = Share::Permits { want: 1, of: 2 };
        let holders = tokens.iter().map(|token| ((*token).into(), share)).collect();
        Standing { of: Some(2), holders, ..Standing::default() }
    }

    /// The server has counted these parties.
    fn counts(tale: Tale, before: &[&str], after: &[&str]) -> Tale {
        let token = *after.last().unwrap_or(&"A");
        tale.steps(ASK, token, stands(before), stands(after))
    }

    #[test]
    fn a_party_that_passes_before_all_have_arrived_is_found() {
        opened().at(2.2).remains(2, 0).passes();
        one().at(1.5).remains(1, 0).breaks(BarrierHolds);
        // The call that arrives later cannot explain it.
        let tale = arrives(one().at(1.5).remains(1, 0).at(1.6), 2);
        tale.at(1.7).remains(2, 0).breaks(BarrierHolds);
    }

    #[test]
    fn a_party_that_is_told_too_early_that_all_have_arrived_is_found() {
        arrives(opened().remains(2, 0), 3).remains_taken(3).passes();
        arrives(one(), 2).remains_taken(2).returns(1, Dropped).breaks(BarrierHolds);
    }

    #[test]
    fn a_party_that_passes_before_the_server_has_counted_all_is_found() {
        let counted = |tale| counts(counts(tale, &[], &["A"]), &["A"], &["A", "B"]);
        let both = || arrives(one().at(2.0), 2);
        counted(both()).at(2.1).remains(1, 0).remains(2, 0).passes();
        let early = counts(both(), &[], &["A"]).at(2.1).remains(1, 0).remains(2, 0);
        early.breaks(BarrierHolds);
        let early = counts(both(), &[], &["A"]).at(2.1).remains(1, 0).remains(2, 0).at(2.2);
        counts(early, &["A"], &["A", "B"]).breaks(BarrierHolds);
    }

    #[test]
    fn a_call_without_an_answer_may_have_counted() {
        for outcome in [Unknown, Dropped] {
            let tale = arrives(tale().meets(2).fault("reply-lost").at(1.0), 1).returns(1, outcome);
            arrives(tale, 2).at(1.5).remains(2, 0).passes();
        }
        let refused = arrives(tale().meets(2), 1).returns(1, Taken);
        arrives(refused, 2).at(1.5).remains(2, 0).breaks(BarrierHolds);
    }

    #[test]
    fn a_party_that_waits_on_although_all_have_arrived_is_found() {
        opened().at(3.4).remains(2, 0).passes();
        opened().at(3.6).remains(2, 0).breaks(BarrierOpens);
        opened().at(9.0).crashes(2).breaks(BarrierOpens);
        opened().at(2.5).crashes(2).at(9.0).passes();
    }

    #[test]
    fn all_wait_on_although_the_server_has_counted_them_is_found() {
        let waits = |until: f64| {
            let tale = counts(arrives(one().at(2.0), 2), &["A"], &["A", "B"]).at(until);
            tale.returns(1, Dropped).returns(2, Dropped)
        };
        waits(3.4).passes();
        waits(3.6).breaks(BarrierOpens);
        // The second count was taken back.
        let back = counts(arrives(one().at(2.0), 2), &["A"], &["A", "B"]).at(2.1);
        let back = back.steps(Release, "B", stands(&["A", "B"]), stands(&["A"])).at(9.0);
        back.returns(1, Dropped).returns(2, Dropped).passes();
    }

    #[test]
    fn a_party_waits_on_if_a_count_that_opened_the_barrier_is_taken_back() {
        // The third call fails. Its request arrives late, and the second party sees all counted.
        let lost = arrives(counts(one(), &[], &["A"]).fault("loss"), 3).returns(3, Unknown);
        let open = arrives(counts(lost.at(2.0), &["A"], &["A", "C"]), 2).at(2.1).remains(2, 0);
        let back = open.steps(Release, "C", stands(&["A", "C"]), stands(&["A"]));
        back.at(3.0).heals().at(60.0).returns(1, Dropped).passes();
    }

    #[test]
    fn a_party_that_missed_the_moment_in_a_fault_passes_in_the_next_calm() {
        // The aftermath of the fault is 18.134 s.
        let waits = |until: f64| opened().fault("loss").at(3.0).heals().at(until).remains(2, 0);
        waits(22.4).passes();
        waits(22.6).breaks(BarrierOpens);
    }

    #[test]
    fn counts_that_a_server_forgot_are_excused() {
        let forgotten = opened().fault("flushall").forgets().heals().at(60.0);
        forgotten.returns(2, Dropped).breaks_unpromised(BarrierOpens);
    }
}
