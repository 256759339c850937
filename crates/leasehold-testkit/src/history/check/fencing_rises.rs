//! Fencing tokens are unique and rise.

use std::collections::HashMap;

use leasehold::core::Moment;

use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story, Window};

/// Checks three rules for each key, on windows with a fencing token:
///
/// 1. No two windows have the same token.
/// 2. If the grant of A was made before the grant of B, A's token is lower. A's grant was made at
///    the latest when its owner token last became the owner at the server before A's window began
///    (if unknown: when the window began). B's grant was made at the earliest when its owner token
///    first became the owner (if unknown: when its call began).
/// 3. Without overlaps, tokens rise in the order of the windows. This applies only while no lease
///    was evicted or ended by a fault that is not covered: a grant that the server forgot may
///    arrive after the next one was over.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        let grants = grants(of_key);
        let mut found = Found { story, key, violations: &mut violations };
        are_unique(&grants, &mut found);
        rise_in_real_time(&grants, &mut found);
        rise_by_window(of_key, &grants, &mut found);
    }
    violations
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
    let mut owned: HashMap<&str, Vec<Moment>> = HashMap::new();
    for served in &of_key.served {
        if let Some(owner) = served.after.filter(|_| served.before != served.after) {
            owned.entry(owner).or_default().push(served.at);
        }
    }
    let with_fence = of_key.windows.iter().filter_map(|window| {
        let fence = window.fence?;
        let became = owned.get(window.token).map_or(&[][..], Vec::as_slice);
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

fn rise_by_window(of_key: &OfKey<'_>, grants: &[Grant<'_>], found: &mut Found<'_, '_>) {
    if of_key.windows.iter().any(|window| window.evicted.is_some()) {
        return;
    }
    let grants: Vec<_> = grants.iter().filter(|grant| !grant.window.is_empty()).collect();
    let pairs = || grants.windows(2).map(|pair| (pair[0], pair[1]));
    if pairs().any(|(first, second)| second.window.began < first.window.end()) {
        return;
    }
    for (first, second) in pairs().filter(|(first, second)| second.fence < first.fence) {
        let asked = first.window.called.min(second.window.called);
        let leases_hold = found.story.weather.windows_promised(asked, second.window.began);
        // The second rule has covered grants that were made later.
        if leases_hold && second.earliest <= first.latest {
            found.add(first, second, "though its window is the later one");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::FencingRises;
    use crate::history::build::{ASK, JOIN, tale};
    use crate::history::event::Request::Release;

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

    #[test]
    fn no_fault_of_the_table_excuses_it() {
        let tale = tale().takes(1, "A", 7, 9.9).fault("flushall").forgets().heals().at(1.0);
        let tale = tale.gives_up("A").at(2.0).takes(2, "B", 6, 9.9);
        tale.at(3.0).gives_up("B").breaks(FencingRises);
    }
}
