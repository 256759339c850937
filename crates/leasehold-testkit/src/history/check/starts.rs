//! In each period, no more work starts than the limit allows.

use std::collections::{BTreeMap, HashMap};

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::{CallId, CallKind, Outcome, Share, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, Story};

/// In no span that is a little shorter than the period, there are more grants of starts than the
/// limit. Only the starts that a call reported count. The clocks of client and server may differ,
/// so the span is shorter than the period by this difference.
///
/// A start is granted when the server lists a token of its call among the holders. If the history
/// does not say so, the start is granted at some time while its call is open.
///
/// A fault that ends leases early excuses starts only if it met one of them.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let limited = story.keys.iter().filter(|(_, of_key)| of_key.limit.is_some());
    let limited: Vec<_> = limited.collect();
    if limited.is_empty() {
        return Vec::new();
    }
    let grants = Grants::of(story);
    let mut violations = Vec::new();
    for (key, of_key) in limited {
        let Some((most, per)) = of_key.limit else { continue };
        let per = per.saturating_sub(Bounds::drift(per));
        let mut starts: Vec<_> =
            of_key.calls.iter().filter_map(|call| grants.start(call)).collect();
        starts.sort_unstable_by_key(|start| start.latest);
        for (last, start) in starts.iter().enumerate() {
            let within =
                starts[..=last].iter().filter(|one| start.latest.since(one.earliest) < per);
            let within: Vec<_> = within.collect();
            if within.len() <= most as usize {
                continue;
            }
            let called = within.iter().map(|one| one.called).min().unwrap_or(start.called);
            violations.push(Violation {
                invariant: Invariant::StartsLimited,
                at: start.latest,
                text: format!("`{key}` has {} starts of {most} within {per:?}", within.len()),
                promised: story.weather.lasting_promised(called, start.latest),
            });
            // After the first surplus start, later ones say nothing new.
            break;
        }
    }
    violations
}

/// A start that was granted.
struct Start {
    called: Moment,
    /// Its grant is between these two moments.
    earliest: Moment,
    latest: Moment,
}

/// When tokens were granted, and the tokens of each call.
#[derive(Default)]
struct Grants<'a> {
    granted: HashMap<&'a str, Vec<Moment>>,
    tokens: BTreeMap<CallId, Vec<&'a str>>,
}

impl<'a> Grants<'a> {
    fn of(story: &Story<'a>) -> Self {
        let mut grants = Self::default();
        for event in story.events {
            match &event.what {
                What::Sent { call: Some(call), token, .. } => {
                    grants.tokens.entry(*call).or_default().push(token);
                }
                What::Stood { before, after, .. } => {
                    let is_new =
                        |token: &str| before.holders.iter().all(|(had, _)| **had != *token);
                    for (token, share) in &after.holders {
                        if matches!(share, Share::Permits { .. }) && is_new(token) {
                            grants.granted.entry(token).or_default().push(event.at);
                        }
                    }
                }
                _ => {}
            }
        }
        grants
    }

    /// The start that a call reported.
    fn start(&self, call: &Call) -> Option<Start> {
        let (returned, Outcome::Done) = call.returned? else { return None };
        if call.kind != CallKind::Start {
            return None;
        }
        let tokens = self.tokens.get(&call.id).map_or(&[][..], Vec::as_slice);
        let moments = tokens.iter().filter_map(|token| self.granted.get(token)).flatten().copied();
        let seen = moments.filter(|at| *at <= returned);
        let (earliest, latest) = seen.fold((returned, call.called), |(earliest, latest), at| {
            (earliest.min(at), latest.max(at))
        });
        // No step of the server shows this start.
        let (earliest, latest) =
            if latest < earliest { (call.called, returned) } else { (earliest, latest) };
        Some(Start { called: call.called, earliest, latest })
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::StartsLimited;
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::CallKind::Start;
    use crate::history::event::Outcome::{Done, Unknown};
    use crate::history::event::{Share, Standing};

    fn limited() -> Tale {
        tale().limits(2, 1.0)
    }

    /// A start whose grant nobody saw, within these moments.
    fn starts(tale: Tale, process: u32, from: f64, to: f64) -> Tale {
        tale.at(from).calls(process, Start, None).at(to).returns(process, Done)
    }

    fn granted(tale: Tale, process: u32, token: &str, at: f64) -> Tale {
        let share = Share::Permits { want: 1, of: 2 };
        let of = Some(2);
        let before = || Standing { of, ..Standing::default() };
        let after = Standing { holders: vec![(token.into(), share)], ..before() };
        tale.sends(process, JOIN, token).at(at).steps(JOIN, token, before(), after)
    }

    #[test]
    fn one_start_too_many_is_found() {
        let two = || starts(starts(limited(), 1, 0.0, 0.1), 1, 0.2, 0.3);
        two().passes();
        starts(two(), 2, 0.8, 0.9).breaks(StartsLimited);
        starts(two(), 2, 0.8, 1.1).passes();
        // The clocks may differ by 12 ms.
        starts(two(), 2, 0.8, 0.995).passes();
    }

    #[test]
    fn a_start_counts_from_its_grant_if_that_is_known() {
        let start = |tale: Tale, process, token, called: f64, at: f64| {
            let tale = tale.at(called).calls(process, Start, None);
            granted(tale, process, token, at).at(at + 0.1).returns(process, Done)
        };
        let two = || start(start(limited(), 1, "A", 0.0, 1.0), 1, "B", 1.1, 1.2);
        start(two(), 2, "C", 1.35, 1.8).breaks(StartsLimited);
        start(two(), 2, "C", 1.35, 2.1).passes();
    }

    #[test]
    fn a_call_that_fails_starts_nothing() {
        let two = starts(starts(limited(), 1, 0.0, 0.1), 1, 0.2, 0.3).fault("delay");
        two.calls(2, Start, None).at(0.4).returns(2, Unknown).passes();
    }

    #[test]
    fn starts_that_a_server_forgot_are_excused() {
        let two = || starts(starts(limited(), 1, 0.0, 0.1), 1, 0.2, 0.3);
        let forgotten = two().fault("flushall").forgets().heals();
        starts(forgotten, 2, 0.8, 0.9).breaks_unpromised(StartsLimited);
        let before = limited().fault("flushall").forgets().heals();
        let again = starts(starts(before, 1, 0.1, 0.2), 1, 0.3, 0.4);
        starts(again, 2, 0.8, 0.9).breaks(StartsLimited);
    }
}
