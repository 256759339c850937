//! Holders that share a key: readers, and owners of permits.
//!
//! Histories of worlds with such holders have no [`What::Served`], which has only one owner.
//! Instead, the server tells who held and waited before and after each request ([`What::Stood`]).
//! So these checks replace those that read `Served`.

use std::collections::BTreeSet;

use leasehold::core::Moment;

use crate::history::event::{Event, Name, Request, Share, Standing, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::Story;
use crate::history::window::Window;

/// How many dead places one step may skip. If more dead places stand before the head, the step need
/// not serve it.
const REAPED_MAX: usize = 8;

/// Whether the shares of these holders fit together: one holder alone, or readers, or permits up to
/// their number.
fn fit(shares: &[Share]) -> bool {
    let has = |kind: fn(&Share) -> bool| shares.iter().any(kind);
    let taken: u32 = shares.iter().map(|share| share.permits()).sum();
    let of = shares.iter().map(|share| share.of()).max().unwrap_or_default();
    let kinds = [
        has(|share| matches!(share, Share::Alone)),
        has(|share| matches!(share, Share::Reader)),
        has(|share| matches!(share, Share::Permits { .. })),
    ];
    let one_kind = kinds.iter().filter(|has| **has).count() <= 1;
    one_kind && (!kinds[0] || shares.len() == 1) && taken <= of
}

/// At every instant, the open windows of a key fit together: a writer excludes everybody, and the
/// holders of permits never use more than there are. If clients change the number of permits, the
/// highest number counts that held since the last of the open windows was asked for. Its grant made
/// sure that all of them fit. So nothing is granted after the number was lowered, until the sum
/// fits.
pub(super) fn windows_fit(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        let mut open: Vec<&Window<'_>> = Vec::new();
        for window in of_key.windows.iter().filter(|window| !window.is_empty()) {
            open.retain(|before| before.end() > window.began);
            open.push(window);
            let asked = open.iter().map(|window| window.called).max().unwrap_or(window.began);
            let of = of_key.permits.most(asked, window.began);
            let highest = of_key.permits.highest();
            let shares: Vec<_> = open
                .iter()
                .map(|window| match of {
                    Some(of) => window.share.of_exactly(of),
                    None => window.share.of_at_least(highest),
                })
                .collect();
            if fit(&shares) {
                continue;
            }
            let names: Vec<_> =
                open.iter().map(|window| format!("{} {:?}", window.name(), window.share)).collect();
            let called = open.iter().map(|window| window.called).min().unwrap_or(window.began);
            violations.push(Violation {
                invariant: Invariant::NoOverlap,
                at: window.began,
                text: format!("`{key}` is in {} at a time", names.join(", ")),
                promised: story.weather.windows_promised(called, window.began),
            });
            open.pop();
        }
    }
    violations
}

/// One request, with the holders and waiters before and after it.
struct Step<'a> {
    at: Moment,
    request: Request,
    key: &'a str,
    token: &'a Name,
    before: &'a Standing,
    after: &'a Standing,
}

impl<'a> Step<'a> {
    fn read(event: &'a Event) -> Option<Self> {
        let What::Stood { request, key, token, before, after, .. } = &event.what else {
            return None;
        };
        Some(Self { at: event.at, request: *request, key, token, before, after })
    }

    /// The holders that were not there before.
    fn added(&self) -> impl Iterator<Item = &'a (Name, Share)> {
        let before: BTreeSet<_> = self.before.holders.iter().map(|(token, _)| token).collect();
        self.after.holders.iter().filter(move |(token, _)| !before.contains(token))
    }

    /// How many dead places were ahead of a waiter before the step. They are in front of the line,
    /// or behind other waiters that the step may have served.
    fn dead_before(&self, waiter: &Name) -> usize {
        let line = &self.before.line;
        let place = line.iter().position(|(token, _)| token == waiter).unwrap_or(line.len());
        self.before.expired.iter().filter(|(_, ahead)| *ahead <= place).count()
    }

    fn holds(standing: &Standing, token: &Name) -> bool {
        standing.holders.iter().any(|(holder, _)| holder == token)
    }

    fn violation(&self, invariant: Invariant, text: &str) -> Violation {
        let Self { request, key, token, before, after, .. } = self;
        let text = format!("{request:?} of `{key}` by {token}: {text}: {before:?}, then {after:?}");
        Violation { invariant, at: self.at, text, promised: true }
    }
}

/// The server's own state must fit together too, even if the clients believe otherwise. Nobody is
/// counted twice, and no grant goes beyond the number of permits. Holders may have more permits
/// than there are only if the number was lowered while they had them.
pub(super) fn shares_fit(story: &Story<'_>) -> Vec<Violation> {
    each(story, Invariant::SharesFit, |step| {
        let holders = &step.after.holders;
        let tokens: BTreeSet<_> = holders.iter().map(|(token, _)| token).collect();
        if tokens.len() < holders.len() {
            return Some("a holder is counted twice");
        }
        let of = step.after.of.unwrap_or_default();
        let shares: Vec<_> = holders.iter().map(|(_, share)| share.of_exactly(of)).collect();
        let is_new = step.added().next().is_some();
        (is_new && !fit(&shares)).then_some("what the holders have does not fit together")
    })
}

/// No client is granted a key before a place that waits longer. So readers do not starve a writer,
/// and small claims of permits do not starve a large claim.
pub(super) fn nobody_passes(story: &Story<'_>) -> Vec<Violation> {
    each(story, Invariant::LineOrder, |step| {
        let line = &step.before.line;
        let passes = |added: &Name| {
            let is_heir =
                step.request == Request::Downgrade && line.iter().all(|(token, _)| token != added);
            if is_heir {
                return false;
            }
            let living = line.iter().position(|(token, _)| token == added);
            // The place of the asker may be among the dead ones, until this ask revives it.
            let own = step.before.expired.iter().find(|(token, _)| added == token);
            let revived = own.filter(|_| added == step.token).map(|(_, ahead)| *ahead);
            let place = living.or(revived).unwrap_or(line.len());
            line[..place].iter().any(|(token, _)| {
                step.after.line.iter().any(|(waiting, _)| waiting == token) && token != step.token
            })
        };
        step.added().any(|(token, _)| passes(token)).then_some("it passes one that waits longer")
    })
}

/// After each ask and each request that ends something, the first living place has been served if
/// there is room for it. So no permit is lost by a crash, and a woken waiter is really served. An
/// ask that names another number of permits is refused, and serves nobody. While the line stands
/// aside for other libraries, the key stays free.
pub(super) fn the_head_is_served(story: &Story<'_>) -> Vec<Violation> {
    each(story, Invariant::NoLostWakeUp, |step| {
        let after = step.after;
        let (head, share) = after.line.first()?;
        // A holder that is granted its own lease again changes nothing for others.
        let again =
            matches!(step.request, Request::Ask { .. }) && Step::holds(step.before, step.token);
        let hidden = step.dead_before(head).max(after.dead) > REAPED_MAX;
        let may_be_refused = matches!(step.request, Request::Ask { .. })
            && !Step::holds(after, step.token)
            && story.keys.get(step.key).is_some_and(|of_key| of_key.permits.highest() > 0);
        let is_open = after.is_open && after.holders.is_empty();
        if again || may_be_refused || step.request == Request::Renew || hidden || is_open {
            return None;
        }
        let of = after.of.unwrap_or_default();
        let share = share.of_exactly(of);
        // After the number was lowered, a claim may be above it for ever.
        let shares: Vec<_> = after.holders.iter().map(|(_, share)| *share).chain([share]).collect();
        let taken: u32 = shares.iter().map(|share| share.permits()).sum();
        let has_room = fit(&shares) && taken <= of.max(u32::from(share.permits() == 0));
        has_room.then_some("there is room for the first waiter")
    })
}

/// A release or a change of the number ends nobody else's lease, and a renewal makes no holder.
pub(super) fn others_stay(story: &Story<'_>) -> Vec<Violation> {
    let ends = |step: &Step<'_>| {
        let gone = step.before.holders.iter().any(|(token, _)| {
            (token != step.token || matches!(step.request, Request::Renew | Request::Resize))
                && !Step::holds(step.after, token)
        });
        gone.then_some("it ends the lease of another")
    };
    let mut violations = each(story, Invariant::ReleaseRemovesNothing, ends);
    violations.extend(each(story, Invariant::RenewalNeverResurrects, |step| {
        let is_new = step.request == Request::Renew && step.added().next().is_some();
        is_new.then_some("a renewal makes a holder")
    }));
    violations
}

/// A writer that becomes a reader leaves no gap: it shares the key in the same step, and no other
/// client has it alone in between.
pub(super) fn no_gap(story: &Story<'_>) -> Vec<Violation> {
    each(story, Invariant::NoGap, |step| {
        let had = step
            .before
            .holders
            .iter()
            .any(|(token, share)| token == step.token && *share == Share::Alone);
        if step.request != Request::Downgrade || !had {
            return None;
        }
        let shares = step.added().any(|(_, share)| *share == Share::Reader);
        let is_alone = step.after.holders.iter().any(|(_, share)| *share == Share::Alone);
        (!shares || is_alone).then_some("the key was not shared in that step")
    })
}

fn each(
    story: &Story<'_>,
    invariant: Invariant,
    wrong: impl Fn(&Step<'_>) -> Option<&'static str>,
) -> Vec<Violation> {
    let steps = story.events.iter().filter_map(Step::read);
    steps.filter_map(|step| wrong(&step).map(|text| step.violation(invariant, text))).collect()
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::{
        LineOrder, NoGap, NoLostWakeUp, NoOverlap, ReleaseRemovesNothing, RenewalNeverResurrects,
        SharesFit,
    };
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::Request::{Downgrade, Evict, Release, Renew, Resize};
    use crate::history::event::Share::{Alone, Permits, Reader};
    use crate::history::event::{Share, Standing};

    const fn two(want: u32) -> Share {
        Permits { want, of: 2 }
    }

    fn stands(holders: &[(&str, Share)], line: &[(&str, Share)]) -> Standing {
        let named = |all: &[(&str, Share)]| {
            all.iter().map(|(name, share)| ((*name).into(), *share)).collect()
        };
        let of = holders.iter().chain(line).map(|(_, share)| share.of()).max();
        let (holders, line) = (named(holders), named(line));
        Standing { of, holders, line, ..Standing::default() }
    }

    fn windows(shares: &[Share]) -> Tale {
        let mut tale = tale().steps(JOIN, "X", stands(&[], &[]), stands(&[], &[]));
        for (share, (process, name)) in shares.iter().zip((1..).zip(["A", "B", "C"])) {
            tale = tale.takes(process, name, u64::from(process), 9.9).shares(name, *share);
        }
        shares.iter().zip(["A", "B", "C"]).fold(tale, |tale, (_, name)| tale.gives_up(name))
    }

    #[test]
    fn windows_that_do_not_fit_together_are_found() {
        for shares in [&[Reader, Alone][..], &[Alone, Reader], &[two(1), two(1), two(1)]] {
            let tale = shares.iter().zip(["A", "B", "C"]).zip(1..).fold(
                tale().steps(JOIN, "X", stands(&[], &[]), stands(&[], &[])),
                |tale, ((share, name), process)| {
                    tale.takes(process, name, u64::from(process), 9.9).shares(name, *share)
                },
            );
            tale.at(5.0).breaks(NoOverlap);
        }
        windows(&[Reader, Reader, Reader]).passes();
        windows(&[two(1), two(1)]).passes();
    }

    /// A client has two of three permits from 1 s on. At 2 s, their number is changed to one.
    fn lowered() -> Tale {
        let tale = tale().at(1.0).takes(1, "A", 1, 9.9).shares("A", Permits { want: 2, of: 3 });
        tale.at(2.0).resized(9, 1)
    }

    #[test]
    fn a_permit_beyond_a_lowered_number_is_found() {
        let one = Permits { want: 1, of: 3 };
        let tale = lowered().at(3.0).takes(2, "B", 2, 12.9).shares("B", one);
        tale.at(4.0).gives_up("A").gives_up("B").breaks(NoOverlap);
        let tale = lowered().at(3.0).gives_up("A").sends(1, Release, "A");
        let tale = tale.takes(2, "B", 2, 12.9).shares("B", one);
        tale.at(4.0).gives_up("B").passes();
    }

    #[test]
    fn a_permit_that_was_asked_for_before_the_number_was_lowered_is_kept() {
        let (two, one) = (Permits { want: 2, of: 3 }, Permits { want: 1, of: 3 });
        let tale = tale().at(1.0).takes(1, "A", 1, 9.9).shares("A", two);
        let tale = tale.at(1.9).locks(2).at(2.0).resized(9, 1);
        let tale = tale.at(2.1).gets(2, "B", 2, 11.9).shares("B", one);
        tale.at(4.0).gives_up("A").gives_up("B").passes();
    }

    #[test]
    fn a_permit_of_a_number_that_may_have_been_raised_passes() {
        let one = Permits { want: 1, of: 3 };
        let raises = |tale: Tale| {
            let tale = tale.at(3.0).takes(2, "B", 2, 12.9).shares("B", one);
            tale.at(4.0).gives_up("A").gives_up("B")
        };
        raises(lowered().at(2.5).resizes(3)).passes();
        raises(lowered().at(2.5).resized(9, 3)).passes();
        raises(lowered().at(2.5).resizes(2)).breaks(NoOverlap);
    }

    #[test]
    fn a_share_that_an_operator_ended_blocks_no_client() {
        let evicts = |token: &str, after| {
            let tale = tale().steps(JOIN, "X", stands(&[], &[]), stands(&[], &[]));
            let tale = tale.takes(1, "A", 1, 9.9).shares("A", Reader).at(2.0);
            let tale = tale.steps(Evict, token, stands(&[("A", Reader)], &[]), after);
            let tale = tale.at(3.0).takes(2, "B", 2, 12.9).shares("B", Alone);
            tale.at(4.0).gives_up("A").gives_up("B")
        };
        evicts("A", stands(&[], &[])).passes();
        evicts("Z", stands(&[("A", Reader)], &[])).breaks(NoOverlap);
    }

    #[test]
    fn a_server_that_keeps_too_much_is_found() {
        let to = |after| tale().steps(JOIN, "B", stands(&[("A", Reader)], &[]), after);
        to(stands(&[("A", Reader), ("B", Reader), ("B", Reader)], &[])).breaks(SharesFit);
        to(stands(&[("A", Reader), ("B", Alone)], &[])).breaks(SharesFit);
        to(stands(&[("A", Reader), ("B", Reader)], &[])).passes();
        let before = stands(&[("A", two(2))], &[]);
        tale()
            .steps(JOIN, "B", before, stands(&[("A", two(2)), ("B", two(1))], &[]))
            .breaks(SharesFit);
    }

    #[test]
    fn a_client_that_passes_an_older_waiter_is_found() {
        let before = || stands(&[("A", Reader)], &[("W", Alone), ("R", Reader)]);
        let passed = stands(&[("A", Reader), ("R", Reader)], &[("W", Alone)]);
        tale().steps(JOIN, "R", before(), passed).breaks(LineOrder);
        tale().steps(JOIN, "R", before(), before()).passes();
    }

    #[test]
    fn a_head_that_is_left_waiting_is_found() {
        let left = stands(&[("A", Reader)], &[("R", Reader)]);
        tale()
            .steps(Release, "B", stands(&[("A", Reader), ("B", Reader)], &[("R", Reader)]), left)
            .breaks(NoLostWakeUp);
        let free = stands(&[], &[("W", Alone)]);
        tale()
            .steps(Release, "B", stands(&[("B", Reader)], &[("W", Alone)]), free)
            .breaks(NoLostWakeUp);
        let full = || stands(&[("A", two(1))], &[("L", two(2))]);
        tale().steps(JOIN, "L", full(), full()).passes();
        let room = stands(&[("A", two(1))], &[("S", two(1))]);
        tale().steps(JOIN, "S", stands(&[("A", two(1))], &[]), room).breaks(NoLostWakeUp);
    }

    #[test]
    fn a_head_that_may_know_another_number_of_permits_is_not_served_by_its_own_ask() {
        let stands = || stands(&[], &[("S", two(1))]);
        tale().resizes(2).steps(JOIN, "S", stands(), stands()).passes();
        tale().resizes(2).steps(Release, "T", stands(), stands()).breaks(NoLostWakeUp);
    }

    /// The dead places may be behind a waiter that the step served.
    #[test]
    fn a_head_behind_more_dead_places_than_a_step_skips_may_wait() {
        let stepped = |dead: usize| {
            let mut before = stands(&[], &[("S", Reader), ("R", Reader)]);
            before.expired = (0..dead).map(|number| (format!("D{number}").into(), 1)).collect();
            let after = stands(&[("S", Reader)], &[("R", Reader)]);
            tale().steps(JOIN, "S", before, after)
        };
        stepped(8).breaks(NoLostWakeUp);
        stepped(9).passes();
    }

    #[test]
    fn a_client_that_ends_or_makes_leases_of_others_is_found() {
        let both = || stands(&[("A", Reader), ("B", Reader)], &[]);
        let one = || stands(&[("A", Reader)], &[]);
        tale().steps(Release, "C", both(), one()).breaks(ReleaseRemovesNothing);
        tale().steps(Resize, "", both(), one()).breaks(ReleaseRemovesNothing);
        tale().steps(Release, "B", both(), one()).passes();
        tale().steps(Renew, "B", one(), both()).breaks(RenewalNeverResurrects);
    }

    #[test]
    fn a_downgrade_with_a_gap_is_found() {
        let before = || stands(&[("A", Alone)], &[("W", Alone)]);
        let handed = stands(&[("W", Alone)], &[]);
        tale().steps(Downgrade, "A", before(), handed).breaks(NoGap);
        let shared = stands(&[("H", Reader)], &[("W", Alone)]);
        tale().steps(Downgrade, "A", before(), shared).passes();
    }
}
