//! Fencing tokens are unique and rise.

use std::collections::HashMap;

use leasehold::core::Moment;

use crate::history::event::Share;
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// Checks three rules for each key, on windows with a fencing token:
///
/// 1. No two windows have the same token.
/// 2. If the grant of A was made before the grant of B, A's token is lower. The latest moment of
///    A's grant is when A's owner token last became the owner at the server before A's window
///    began. If that is unknown, it is the beginning of the window. The earliest moment of B's
///    grant is when B's owner token first became the owner. If that is unknown, it is the beginning
///    of B's call.
/// 3. Tokens rise in the order of the windows that have their key alone, if one ends before the
///    other begins. This rule judges hand-overs in histories without the server's steps. There, the
///    call of a waiter always began before the window ahead of it.
///
/// The third rule has one exception. A grant that the server forgot may arrive after the next one
/// was over. So a pair is skipped if an operator ended the later lease, or if a fault that is not
/// covered met that lease after its request and before the other grant. Permits and readers are
/// left out, because the grant that was made first may arrive last.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        let grants = grants(of_key);
        let mut found = Found { story, key, violations: &mut violations };
        are_unique(&grants, &mut found);
        rise_in_real_time(&grants, &mut found);
        rise_by_window(&grants, &mut found);
    }
    violations
}

/// How many hand-overs the rules compare. A hand-over is two neighbouring windows of two clients,
/// the later of which was requested before the earlier one ended.
pub(in crate::history) fn hand_overs(story: &Story<'_>, of_key: &OfKey<'_>) -> usize {
    let grants = grants(of_key);
    let grants = alone(&grants);
    let pairs = grants.windows(2).map(|pair| (pair[0], pair[1]));
    let is_hand_over = |(first, second): &(&Grant<'_>, &Grant<'_>)| {
        first.window.process != second.window.process
            && second.window.called < first.window.end()
            && (first.latest < second.earliest || may_rise(story, first, second))
    };
    pairs.filter(is_hand_over).count()
}

struct Found<'a, 's> {
    story: &'a Story<'s>,
    key: &'a str,
    violations: &'a mut Vec<Violation>,
}

impl Found<'_, '_> {
    fn add(&mut self, first: &Grant<'_>, second: &Grant<'_>, why: &str) {
        let (one, other) = (first.window, second.window);
        let at = one.began.max(other.began);
        let (key, one, other) = (self.key, one.name(), other.name());
        let text =
            format!("`{key}`: {one} has {}, {other} has {}, {why}", first.fence, second.fence);
        let promised = self.story.weather.fencing_promised(at);
        let invariant = Invariant::FencingRises;
        self.violations.push(Violation { invariant, at, text, promised });
    }
}

/// A window with a fencing token.
struct Grant<'a> {
    window: &'a Window<'a>,
    fence: u64,
    /// The grant was made between these two moments.
    earliest: Moment,
    latest: Moment,
}

fn grants<'a>(of_key: &'a OfKey<'_>) -> Vec<Grant<'a>> {
    let with_fence = of_key.windows.iter().filter_map(|window| {
        let fence = window.fence?;
        let became = of_key.owned.get(window.token).map_or(&[][..], Vec::as_slice);
        let settled = became.iter().rev().find(|at| **at <= window.began);
        let earliest = became.first().copied().unwrap_or(window.called);
        let latest = settled.copied().unwrap_or(window.began);
        Some(Grant { window, fence, earliest, latest })
    });
    with_fence.collect()
}

fn are_unique(grants: &[Grant<'_>], found: &mut Found<'_, '_>) {
    let mut seen: HashMap<u64, &Grant<'_>> = HashMap::new();
    for grant in grants {
        if let Some(first) = seen.insert(grant.fence, grant) {
            found.add(first, grant, "which is the same");
        }
    }
}

fn rise_in_real_time(grants: &[Grant<'_>], found: &mut Found<'_, '_>) {
    let mut by_latest: Vec<_> = grants.iter().collect();
    by_latest.sort_by_key(|grant| grant.latest);
    let mut by_earliest: Vec<_> = grants.iter().collect();
    by_earliest.sort_by_key(|grant| grant.earliest);
    let mut settled = by_latest.into_iter().peekable();
    let mut highest: Option<&Grant<'_>> = None;
    for grant in by_earliest {
        while let Some(before) = settled.next_if(|before| before.latest < grant.earliest) {
            if highest.is_none_or(|highest| before.fence > highest.fence) {
                highest = Some(before);
            }
        }
        if let Some(highest) = highest.filter(|highest| highest.fence > grant.fence) {
            found.add(highest, grant, "though it was granted later");
        }
    }
}

fn rise_by_window(grants: &[Grant<'_>], found: &mut Found<'_, '_>) {
    let mut highest: Option<&Grant<'_>> = None;
    let mut last: Option<&Grant<'_>> = None;
    for grant in alone(grants) {
        let fell = |before: &&Grant<'_>| {
            // The second rule judges grants that were surely made later.
            before.fence > grant.fence
                && grant.earliest <= before.latest
                && may_rise(found.story, before, grant)
        };
        // Compare with the last grant too: a fault may excuse the highest one alone.
        if let Some(before) = [highest, last].into_iter().flatten().find(fell) {
            found.add(before, grant, "though its window is the later one");
        }
        last = Some(grant);
        highest = highest.filter(|highest| highest.fence > grant.fence).or(last);
    }
}

/// The grants of windows that exclude all others, and that a process relied on.
fn alone<'g, 'a>(grants: &'g [Grant<'a>]) -> Vec<&'g Grant<'a>> {
    let is_alone = |grant: &&Grant<'_>| grant.window.share == Share::Alone;
    grants.iter().filter(is_alone).filter(|grant| !grant.window.is_empty()).collect()
}

/// Whether the order of two windows shows the order of their grants.
fn may_rise(story: &Story<'_>, first: &Grant<'_>, second: &Grant<'_>) -> bool {
    let is_after = first.window.end() <= second.window.began && second.window.evicted.is_none();
    is_after && story.weather.windows_promised(second.earliest, first.latest)
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::FencingRises;
    use crate::history::build::{ASK, JOIN, Tale, tale};
    use crate::history::event::Request::{Evict, Release};
    use crate::history::event::{Share, Standing};
    use crate::history::summary;

    #[test]
    fn the_same_number_twice_is_found() {
        let tale = tale().takes(1, "A", 7, 9.9).at(1.0).gives_up("A").at(2.0);
        tale.takes(2, "B", 7, 9.9).at(3.0).gives_up("B").breaks(FencingRises);
    }

    #[test]
    fn the_same_number_on_another_key_passes() {
        let tale = tale().takes(1, "A", 7, 9.9).at(1.0).gives_up("A").on("b").at(2.0);
        tale.takes(2, "B", 7, 9.9).at(3.0).gives_up("B").passes();
    }

    #[test]
    fn a_number_that_falls_is_found() {
        let tale = tale().takes(1, "A", 7, 9.9).at(1.0).gives_up("A").at(2.0);
        tale.takes(2, "B", 6, 9.9).at(3.0).gives_up("B").breaks(FencingRises);
    }

    #[test]
    fn a_number_that_falls_over_a_longer_while_is_found() {
        let tale = tale().takes(1, "A", 7, 9.9).at(1.0).gives_up("A").at(2.0);
        let tale = tale.takes(2, "B", 8, 9.9).at(3.0).gives_up("B").at(4.0);
        tale.takes(2, "C", 6, 9.9).at(5.0).gives_up("C").breaks(FencingRises);
    }

    #[test]
    fn a_fall_between_a_call_that_waited_and_one_that_came_later_is_found() {
        let tale = tale().locks(2).takes(1, "A", 7, 9.9).at(1.0).gives_up("A").at(1.1);
        tale.gets(2, "B", 6, 9.9).at(3.0).gives_up("B").breaks(FencingRises);
    }

    #[test]
    fn a_fall_that_the_server_made_is_found_though_nobody_saw_the_first_window_begin() {
        let tale = tale().fault("delay").locks(1).locks(2).serves(ASK, "A", "", "A");
        let tale = tale.at(1.0).serves(Release, "A", "A", "").serves(ASK, "B", "", "B");
        let tale = tale.at(2.0).gets(2, "B", 6, 9.9).at(3.0).gives_up("B");
        tale.at(3.1).gets(1, "A", 7, 9.9).at(3.5).gives_up("A").breaks(FencingRises);
    }

    #[test]
    fn a_forgotten_grant_that_arrives_late_passes() {
        let tale = tale().locks(1).locks(2).serves(JOIN, "A", "", "A").fault("restart-empty");
        let tale = tale.forgets().at(0.5).heals().serves(JOIN, "B", "", "B").at(0.6);
        let tale = tale.gets(2, "B", 7, 9.9).at(3.0).gives_up("B").serves(Release, "B", "B", "");
        tale.at(3.1).gets(1, "A", 6, 9.9).at(3.5).gives_up("A").passes();
    }

    #[test]
    fn a_grant_that_may_have_been_made_before_the_other_began_passes() {
        let tale = tale().fault("flushall").locks(2).at(1.0).takes(1, "A", 7, 9.9).at(2.0);
        tale.gives_up("A").at(3.0).gets(2, "B", 6, 9.9).at(4.0).gives_up("B").passes();
    }

    /// The history has no steps of the server. B waits from the beginning.
    #[test]
    fn a_fall_at_a_hand_over_is_found_though_something_went_wrong_with_the_key_before() {
        let overlap = || {
            let tale = tale().takes(3, "X", 1, 9.9).fault("flushall").forgets().heals().at(0.1);
            let tale = tale.takes(4, "Y", 2, 9.9).at(0.2).gives_up("X").gives_up("Y").at(30.0);
            tale.locks(2).at(31.0)
        };
        let handed = |fence| {
            let tale = overlap().takes(1, "A", 7, 40.9).at(32.0).gives_up("A");
            tale.at(32.1).gets(2, "B", fence, 41.9).at(33.0).gives_up("B")
        };
        let falls = |tale: &Tale| {
            let all = tale.violations();
            all.iter().filter(|v| v.invariant == FencingRises && v.promised).count()
        };
        assert_eq!([falls(&handed(6)), falls(&handed(8))], [1, 0]);
        let evicted = overlap().serves(ASK, "Z", "", "Z").serves(Evict, "Z", "Z", "");
        let evicted = evicted.takes(1, "A", 7, 40.9).at(32.0).gives_up("A");
        assert_eq!(falls(&evicted.at(32.1).gets(2, "B", 6, 41.9).at(33.0).gives_up("B")), 1);
    }

    #[test]
    fn hand_overs_are_counted() {
        let compared = |tale: &Tale| summary(tale.events(), tale.bounds()).hand_overs;
        let first = || tale().locks(2).at(1.0).takes(1, "A", 7, 9.9).at(2.0);
        let handed = first().gives_up("A").gets(2, "B", 8, 9.9).at(3.0).gives_up("B");
        assert_eq!(compared(&handed), 1);
        // In these cases the later client called later, or a fault may have ended its lease, or the
        // first window goes on.
        assert_eq!(compared(&handed.takes(3, "C", 9, 9.9)), 1);
        let forgot = first().fault("flushall").forgets().heals();
        assert_eq!(compared(&forgot.gives_up("A").gets(2, "B", 8, 9.9)), 1);
        let forgot = tale().fault("flushall").locks(2).forgets().heals().takes(1, "A", 7, 9.9);
        assert_eq!(compared(&forgot.at(2.0).gives_up("A").gets(2, "B", 8, 9.9)), 0);
        assert_eq!(compared(&first().gets(2, "B", 8, 9.9)), 0);
    }

    #[test]
    fn permits_that_one_step_hands_over_have_different_numbers() {
        const ONE: Share = Share::Permits { want: 1, of: 2 };
        let stands = |holders: &[&str]| {
            let holders = holders.iter().map(|name| ((*name).into(), ONE)).collect();
            Standing { of: Some(2), holders, ..Standing::default() }
        };
        let handed = |a, b| {
            let tale = tale().locks(1).locks(2).at(1.0);
            let tale = tale.steps(Release, "W", stands(&["W"]), stands(&["A", "B"]));
            let tale = tale.gets(1, "A", a, 10.8).shares("A", ONE).gets(2, "B", b, 10.8);
            tale.shares("B", ONE).gives_up("A").gives_up("B")
        };
        handed(8, 7).passes();
        handed(7, 7).breaks(FencingRises);
        let later = |fence| {
            let tale = handed(7, 8).at(2.0).locks(3).at(2.1);
            let tale = tale.steps(JOIN, "C", stands(&[]), stands(&["C"]));
            tale.gets(3, "C", fence, 11.8).shares("C", ONE).gives_up("C")
        };
        later(9).passes();
        later(6).breaks(FencingRises);
    }

    #[test]
    fn no_fault_of_the_table_excuses_it() {
        let tale = tale().takes(1, "A", 7, 9.9).fault("flushall").forgets().heals().at(1.0);
        let tale = tale.gives_up("A").at(2.0).takes(2, "B", 6, 9.9);
        tale.at(3.0).gives_up("B").breaks(FencingRises);
    }
}
