//! A lease that nobody uses is given up in time.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::core::Moment;

use super::standing::{Place, places, places_among_shares};
use crate::history::bounds::Bounds;
use crate::history::event::{Request, Standing, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// How long a client may take to tell the store that it keeps a lease without a guard, and to learn
/// of a waiter. This is the cost of a hint that came before the client had the lease.
const SHOWN_WITHIN: Duration = Duration::from_millis(110);

/// Checks leases whose window was given up and whose key was not left taken. In calm weather, the
/// next window begins, or the release or offer is sent, within the time for which the client may
/// keep the lease, plus `slack`. If another place surely stands in the line, this happens within
/// the time of a hint and its effects.
///
/// Checked only if the history contains sent requests, and only for running processes. Where
/// holders share keys, only writers are kept without a guard. Readers and permits are released at
/// once.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let sent = ends_sent(story);
    let mut violations = Vec::new();
    let is_seen = |of_key: &OfKey<'_>| !of_key.served.is_empty() || !of_key.stood.is_empty();
    for (key, of_key) in story.keys.iter().filter(|(_, of_key)| is_seen(of_key)) {
        let mut places = None;
        for idle in idles(of_key, &sent) {
            let idle = Idle { ends: idle.ends.into_iter().chain(idle.lost(of_key)).min(), ..idle };
            let due = idle.from + story.slowly(idle.window.keeps) + story.bounds.slack;
            violations.extend(idle.late(story, key, idle.from, due, "its client may keep it"));
            if idle.until(story) <= idle.from + hinted_within(story.bounds) {
                continue;
            }
            let places = places.get_or_insert_with(|| match of_key.stood.len() {
                0 => self::places(story, of_key),
                _ => places_among_shares(story, of_key),
            });
            let standing = places.iter().take_while(|place| place.entered < idle.until(story));
            let standing = standing.filter(|place| place.token != idle.window.token);
            violations
                .extend(standing.map(|place| idle.unanswered(story, key, place)).find_map(|v| v));
        }
    }
    violations
}

fn hinted_within(bounds: &Bounds) -> Duration {
    SHOWN_WITHIN + bounds.slack * 2 + bounds.wanted
}

impl Story<'_> {
    /// How long a span may last on the slowest clock.
    fn slowly(&self, span: Duration) -> Duration {
        span + Bounds::drift(span)
    }
}

/// For each owner token: when its release, or the offer of its lease, was sent.
type Sent<'a> = HashMap<&'a str, Vec<Moment>>;

fn ends_sent<'a>(story: &Story<'a>) -> Sent<'a> {
    let mut sent = Sent::new();
    for event in story.events {
        let (What::Sent { request, token, .. }
        | What::Served { request, token, .. }
        | What::Stood { request, token, .. }) = &event.what
        else {
            continue;
        };
        if matches!(request, Request::Release | Request::Keep | Request::Downgrade) {
            sent.entry(token).or_default().push(event.at);
        }
    }
    sent
}

/// A lease between two windows.
struct Idle<'s, 'a> {
    window: &'s Window<'a>,
    from: Moment,
    /// `None` if it never ends.
    ends: Option<Moment>,
}

fn idles<'s, 'a>(of_key: &'s OfKey<'a>, sent: &Sent<'a>) -> Vec<Idle<'s, 'a>> {
    let mut began: HashMap<&str, Vec<Moment>> = HashMap::new();
    for window in &of_key.windows {
        began.entry(window.token).or_default().push(window.began);
    }
    let next = |all: &HashMap<&'a str, Vec<Moment>>, token: &str, from: Moment| {
        let all = all.get(token)?;
        all.get(all.partition_point(|at| *at < from)).copied()
    };
    let given_up = of_key
        .windows
        .iter()
        .filter(|window| window.told.is_none() && window.evicted.is_none() && !window.is_empty())
        .filter(|window| !window.is_left_taken);
    let idles = given_up.filter_map(|window| {
        let from = window.gave_up.filter(|from| *from < window.until)?;
        let ends = [next(&began, window.token, from), next(sent, window.token, from)];
        Some(Idle { window, from, ends: ends.into_iter().flatten().min() })
    });
    idles.collect()
}

impl Idle<'_, '_> {
    /// When the server first showed that the lease was gone.
    fn lost(&self, of_key: &OfKey<'_>) -> Option<Moment> {
        let owner = Some(self.window.token);
        let later = of_key.served.partition_point(|served| served.at < self.from);
        let mut later = of_key.served[later..].iter();
        let lost = later.find(|served| served.before != owner || served.after != owner);
        let token = self.window.token;
        let later = of_key.stood.partition_point(|stood| stood.at < self.from);
        let mut shared = of_key.stood[later..].iter();
        let is_gone = |before: &Standing, after: &Standing| {
            !before.is_holder(token) || !after.is_holder(token)
        };
        let gone = shared.find(|stood| is_gone(stood.before, stood.after));
        let gone = gone.map(|one| one.at);
        lost.map(|one| one.at).or(gone)
    }

    fn until(&self, story: &Story<'_>) -> Moment {
        let crashed = self.window.crashed.unwrap_or(story.end);
        self.ends.unwrap_or(story.end).min(crashed)
    }

    /// The violation of a lease that is kept beyond `due`, if it was calm from `since` on.
    fn late(
        &self,
        story: &Story<'_>,
        key: &str,
        since: Moment,
        due: Moment,
        why: &str,
    ) -> Option<Violation> {
        let is_late = self.until(story) > due;
        let life = story.life(self.window.process);
        let is_judged = story.weather.is_calm(since, due) && !life.stood(since, due);
        (is_late && is_judged).then(|| Violation {
            invariant: Invariant::WantedAnswered,
            at: due,
            text: format!(
                "`{key}`: the lease of {} is kept for {:?} with no guard, longer than {why}",
                self.window.name(),
                self.until(story).since(self.from)
            ),
            promised: true,
        })
    }

    /// The violation of a lease that is kept although another place stands in the line.
    fn unanswered(&self, story: &Story<'_>, key: &str, place: &Place<'_>) -> Option<Violation> {
        let since = self.from.max(place.entered);
        let due = since + hinted_within(story.bounds);
        let why = format!("{} waits", place.token);
        (due < place.until).then(|| self.late(story, key, place.entered, due, &why)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::WantedAnswered;
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::Request::{Keep, Release};
    use crate::history::event::{Share, Standing};

    /// A gives up at 1 s, and may be kept for 5 s more.
    fn idle() -> Tale {
        let tale = tale().locks(1).serves(JOIN, "A", "", "A").gets(1, "A", 1, 9.9).at(1.0);
        tale.keeps("A", 5.0).gives_up("A")
    }

    #[test]
    fn a_lease_kept_for_too_long_is_found() {
        let ends = |at| idle().at(at).sends(1, Release, "A").at(20.0).tries(9);
        ends(6.4).passes();
        ends(6.5).breaks(WantedAnswered);
        idle().at(9.0).over().breaks(WantedAnswered);
    }

    #[test]
    fn a_lease_that_may_not_be_kept_is_released_or_passed_on_at_once() {
        let tale = || tale().locks(1).serves(JOIN, "A", "", "A").gets(1, "A", 1, 9.9).at(1.0);
        let ends = |at| tale().gives_up("A").at(at).sends(1, Release, "A").at(9.0).tries(9);
        ends(1.4).passes();
        ends(1.5).breaks(WantedAnswered);
        let passed = tale().gives_up("A").takes(1, "A", 2, 9.9).at(2.0).gives_up("A");
        passed.sends(1, Keep, "A").at(9.0).tries(9).passes();
    }

    /// B waits from 2 s on, and gets the key when A is released.
    fn wanted(at: f64) -> Tale {
        let tale = idle().at(2.0).calls(2, crate::history::event::CallKind::TryLock, None);
        let tale = tale.serves(JOIN, "B", "A", "A").at(at).sends(1, Release, "A");
        tale.serves(Release, "A", "A", "B").gets(2, "B", 2, 15.0).at(6.0).gives_up("B")
    }

    #[test]
    fn a_lease_that_is_kept_though_another_waits_is_found() {
        wanted(2.9).sends(2, Release, "B").passes();
        wanted(3.0).sends(2, Release, "B").breaks(WantedAnswered);
    }

    /// A writer gives up at 1 s, and may be kept for 5 s more. A reader waits from 2 s on.
    #[test]
    fn a_writer_that_is_kept_though_a_reader_waits_is_found() {
        let stands = |line: &[&str]| {
            let line = line.iter().map(|name| ((*name).into(), Share::Reader)).collect();
            let holders = vec![("A".into(), Share::Alone)];
            Standing { holders, line, ..Standing::default() }
        };
        let kept = |at| {
            let tale = tale().takes(1, "A", 1, 9.9).shares("A", Share::Alone).at(1.0);
            let tale = tale.keeps("A", 5.0).gives_up("A").at(2.0);
            let tale = tale.steps(JOIN, "B", stands(&[]), stands(&["B"])).at(at - 0.01);
            let tale = tale.steps(JOIN, "B", stands(&["B"]), stands(&["B"])).at(at);
            tale.sends(1, Release, "A").at(9.0)
        };
        kept(2.9).passes();
        kept(3.0).breaks(WantedAnswered);
    }

    #[test]
    fn a_reader_that_is_not_given_back_is_found() {
        let ends = |at| {
            let tale = tale().shares_keys().takes(1, "A", 1, 9.9).shares("A", Share::Reader);
            tale.at(1.0).gives_up("A").at(at).sends(1, Release, "A").at(9.0).tries(9)
        };
        ends(1.4).passes();
        ends(1.5).breaks(WantedAnswered);
    }

    #[test]
    fn a_lease_that_was_lost_meanwhile_is_kept_by_nobody() {
        let tale = idle().at(2.0).serves(Release, "C", "", "").at(9.0);
        tale.tries(9).passes();
    }

    #[test]
    fn trouble_excuses_it_and_so_does_a_process_that_stands_still() {
        let tale = idle().fault("partition").at(9.0).heals().sends(1, Release, "A");
        tale.at(12.0).tries(9).passes();
        let tale = idle().fault("client-stop").stops(1).at(8.0).resumes(1);
        tale.sends(1, Release, "A").heals().at(12.0).tries(9).passes();
        idle().crashes(1).at(12.0).tries(9).passes();
    }
}
