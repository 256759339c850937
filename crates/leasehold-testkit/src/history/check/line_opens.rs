//! A line that hands a key on stands aside now and then.

use std::time::Duration;

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::Request;
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Served, Story};

/// The longest time between two openings while a line hands a key on.
const OPENS_WITHIN: Duration = Duration::from_secs(2);

/// After a hand-over, the server keeps for about ten minutes when the line is to open.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(590);

/// In calm weather, a line does not hand a key on for longer than two seconds, from the first to
/// the last of its hand-overs, without leaving the key free in between. Clients of other libraries,
/// which poll, can take it only while it is free.
///
/// A hand-over is a release that gives the key to the next in line, or to the same client again.
/// The server decides on an opening in this step, so a long hold before it does not count. After a
/// hold of ten minutes, the server has forgotten when the line is to open.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    if story.bounds.opened.is_zero() {
        return Vec::new();
    }
    // The line of an election never stands aside, since other libraries have no terms.
    let keys = story.keys.iter().filter(|(_, of_key)| of_key.elects.is_none());
    keys.flat_map(|(key, of_key)| of_one_key(story, key, of_key)).collect()
}

fn of_one_key(story: &Story<'_>, key: &str, of_key: &OfKey<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let (mut first, mut last): (Option<Moment>, Option<Moment>) = (None, None);
    for served in &of_key.served {
        if served.before.is_none() || served.after.is_none() {
            first = None;
        } else if hands_on(served) {
            let pause = last.replace(served.at).map(|last| served.at.since(last));
            if pause.is_some_and(|pause| pause > FORGOTTEN_AFTER) {
                first = None;
            }
            let from = *first.get_or_insert(served.at);
            let span = served.at.since(from);
            if span > OPENS_WITHIN + Bounds::drift(OPENS_WITHIN)
                && story.weather.is_calm(from, served.at)
            {
                let text = format!("`{key}` is handed on for {span:?} and was never free");
                let (invariant, at) = (Invariant::LineOpens, served.at);
                violations.push(Violation { invariant, at, text, promised: true });
                // One violation is enough.
                break;
            }
        }
    }
    violations
}

/// Whether a request of the owner gave the key to another token.
fn hands_on(served: &Served<'_>) -> bool {
    let is_release = matches!(served.request, Request::Release | Request::Keep);
    is_release && served.before == Some(served.token)
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::LineOpens;
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::Request::Release;

    /// Two clients hand the key to each other every 0.4 s, this many times.
    fn handed_on(times: u32) -> Tale {
        let tale = tale().opens().serves(JOIN, "0", "", "0");
        (0..times).fold(tale, |tale, turn| {
            let (one, next) = (turn.to_string(), (turn + 1).to_string());
            let at = f64::from(turn + 1) * 0.4;
            let tale = tale.at(at - 0.1).serves(JOIN, &next, &one, &one).at(at);
            tale.serves(Release, &one, &one, &next)
        })
    }

    #[test]
    fn a_key_that_is_handed_on_for_too_long_is_found() {
        handed_on(6).passes();
        handed_on(7).breaks(LineOpens);
    }

    #[test]
    fn a_key_that_was_free_in_between_passes() {
        let tale = handed_on(5).at(2.3).serves(Release, "5", "5", "").at(2.4);
        let tale = tale.serves(JOIN, "8", "", "8").at(2.5).serves(JOIN, "9", "8", "8");
        tale.at(2.9).serves(Release, "8", "8", "9").passes();
    }

    #[test]
    fn one_long_hold_is_no_fault_of_the_line() {
        let tale = handed_on(2).at(1.0).serves(JOIN, "9", "2", "2");
        tale.at(60.0).serves(Release, "2", "2", "").passes();
    }

    #[test]
    fn holds_of_more_than_ten_minutes_begin_anew() {
        let tale = handed_on(2).at(700.0).serves(JOIN, "3", "2", "2").at(701.0);
        tale.serves(Release, "2", "2", "3").passes();
        let tale = handed_on(2).at(580.0).serves(JOIN, "3", "2", "2").at(581.0);
        tale.serves(Release, "2", "2", "3").breaks(LineOpens);
    }

    #[test]
    fn lines_that_never_open_are_not_judged() {
        handed_on(9).never_opens().passes();
        handed_on(9).elects(0.5).passes();
    }
}
