//! A spent token is not used again.

use std::collections::{HashMap, HashSet};

use leasehold::core::Moment;

use crate::history::event::{ProcessId, Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::Story;
use crate::history::window::Window;

/// After a release of a token was sent, no acquire or renewal with it is sent, and no window begins
/// with it. The same holds after a holder was told that its window is lost, and does not rely on it
/// again.
///
/// A request to keep a lease also spends the token, until the server has kept the lease. Then the
/// client may renew it and begin windows again. It never sends another acquire with it, even if it
/// missed the answer.
///
/// In a quorum, requests to different nodes are judged apart. A release to one node spends the
/// token for that node, and for windows everywhere. A loss spends it for all nodes. But an acquire
/// that should bring the lease back to a node may be sent as late as a renewal.
///
/// Acquires and releases share a connection, so they are sent in the order of their submission.
/// Renewals have their own connection, and two connections have no common order. A renewal that was
/// submitted earlier may wait for its connection and be sent later. So a renewal may come up to
/// `queued` late, or up to `slack` in calm weather.
///
/// Where holders share keys, the server tells who holds a key instead, and a lease was kept if its
/// owner is still a holder. If the history of such a world has no steps of the server, an offer
/// spends nothing. The token of a writer that becomes a reader is spent like a released one.
///
/// An acquire may also wait for its connection while the key is handed to its token and that lease
/// is lost. Then it belongs to no call when it is sent, and may be as late as a renewal.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut spent: HashMap<&str, Spent> = HashMap::new();
    let mut left_at: HashMap<&str, Spent> = HashMap::new();
    let mut at_nodes: HashMap<(u32, &str), Spent> = HashMap::new();
    let mut offered: HashMap<&str, Spent> = HashMap::new();
    let mut released: HashSet<&str> = HashSet::new();
    let is_blind = story.is_shared && !story.sees_steps();
    let mut violations = Vec::new();
    for event in story.events {
        match &event.what {
            What::ToldLost { window } => {
                let token = story.window(*window).token;
                spent.entry(token).or_insert(Spent { at: event.at, how: LOST, is_kept: false });
            }
            What::Granted { window, token, .. } => {
                let left = spent.get(&**token).filter(|spent| spent.how == RELEASED);
                let left = left.or_else(|| left_at.get(&**token));
                let left = left.or_else(|| offered.get(&**token).filter(|left| !left.is_kept));
                violations.extend(left.map(|left| begun(story.window(*window), left)));
            }
            What::Served { request: Request::Keep, token, before, after, .. }
                if before == after && before.as_ref() == Some(token) =>
            {
                offered.entry(token).and_modify(|offered| offered.is_kept = true);
            }
            What::Stood { request: Request::Keep, token, before, after, .. }
                if before.is_holder(token) && after.is_holder(token) =>
            {
                offered.entry(token).and_modify(|offered| offered.is_kept = true);
            }
            What::Sent { request: Request::Keep, .. } if is_blind => {}
            What::Sent { request: Request::Keep, token, .. } => {
                let how = "it was offered to others";
                offered.insert(token, Spent { at: event.at, how, is_kept: false });
            }
            What::Extended { window, .. } => {
                violations.extend(relied_on_again(story.window(*window), event.at));
            }
            What::SentTo { node, request: Request::Release, token, .. } => {
                let released = || Spent { at: event.at, how: RELEASED, is_kept: false };
                at_nodes.entry((*node, token)).or_insert_with(released);
                left_at.entry(token).or_insert_with(released);
            }
            What::SentTo { node, process, request, token, .. } => {
                let lost = spent.get(&**token);
                let spent = at_nodes.get(&(*node, &**token)).or(lost);
                let (process, request, at) = (*process, *request, event.at);
                let sent = Sent { process, request, token, at, may_be_late: true };
                violations.extend(spent.and_then(|spent| used(story, &sent, spent)));
            }
            What::Sent { request: Request::Release | Request::Downgrade, token, .. } => {
                released.insert(token);
                spent.entry(token).or_insert(Spent { at: event.at, how: RELEASED, is_kept: false });
            }
            What::Sent { process, call, request, token, .. } => {
                let is_ask = matches!(request, Request::Ask { .. });
                let offered = offered.get(&**token).filter(|left| is_ask || !left.is_kept);
                let spent = spent.get(&**token).or(offered);
                let may_be_late = call.is_none() && !released.contains(&**token);
                let (process, request, at) = (*process, *request, event.at);
                let sent = Sent { process, request, token, at, may_be_late };
                violations.extend(spent.and_then(|spent| used(story, &sent, spent)));
            }
            _ => {}
        }
    }
    violations
}

const LOST: &str = "its lease was lost";
const RELEASED: &str = "its release was sent";

struct Spent {
    at: Moment,
    how: &'static str,
    /// Whether the server kept the lease for its owner.
    is_kept: bool,
}

fn begun(window: &Window<'_>, left: &Spent) -> Violation {
    let (since, how) = (window.began.since(left.at), left.how);
    Violation {
        invariant: Invariant::SpentToken,
        at: window.began,
        text: format!("{} begins {since:?} after {how}", window.name()),
        promised: true,
    }
}

fn relied_on_again(window: &Window<'_>, at: Moment) -> Option<Violation> {
    let told = window.told.filter(|told| *told < at)?;
    Some(Violation {
        invariant: Invariant::SpentToken,
        at,
        text: format!("{} was told lost at {told:?} and is held again", window.name()),
        promised: true,
    })
}

struct Sent<'a> {
    process: ProcessId,
    request: Request,
    token: &'a str,
    at: Moment,
    /// Whether this may be an ask that was submitted long before, because it is for one of several
    /// nodes, or belongs to no call.
    may_be_late: bool,
}

fn used(story: &Story<'_>, sent: &Sent<'_>, spent: &Spent) -> Option<Violation> {
    let Sent { process, request, token, at, .. } = *sent;
    let may_have_waited = match request {
        Request::Ask { .. } => sent.may_be_late && spent.how == LOST,
        Request::Renew => true,
        Request::Release
        | Request::Keep
        | Request::Evict
        | Request::Downgrade
        | Request::Resize => return None,
    };
    let since = story.life(process).ran(spent.at, at);
    let is_calm = story.weather.is_calm(spent.at, at);
    let waits = if is_calm { story.bounds.slack } else { story.bounds.queued };
    if may_have_waited && since <= waits {
        return None;
    }
    let how = spent.how;
    Some(Violation {
        invariant: Invariant::SpentToken,
        at,
        text: format!("process {} sends {request:?} by {token}, {since:?} after {how}", process.0),
        promised: true,
    })
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::SpentToken;
    use crate::history::build::{ASK, JOIN, tale};
    use crate::history::event::Request::{Downgrade, Keep, Release, Renew};
    use crate::history::event::{Share, Standing};

    #[test]
    fn an_ask_after_the_release_is_found() {
        let tale = tale().sends(1, ASK, "A").sends(1, Release, "A");
        tale.at(0.5).sends(1, JOIN, "A").breaks(SpentToken);
    }

    #[test]
    fn a_renewal_long_after_the_release_is_found() {
        tale().sends(1, Release, "A").at(3.3).sends(1, Renew, "A").breaks(SpentToken);
    }

    #[test]
    fn a_renewal_after_the_loss_is_found() {
        let tale = tale().fault("partition").takes(1, "A", 1, 9.898).at(9.898).loses("A");
        tale.at(13.2).sends(1, Renew, "A").breaks(SpentToken);
    }

    #[test]
    fn requests_before_the_release_and_releases_themselves_pass() {
        let tale = tale().sends(1, ASK, "A").sends(1, Renew, "A").sends(1, Release, "A");
        tale.at(0.5).sends(1, Release, "A").sends(1, ASK, "B").passes();
    }

    #[test]
    fn an_ask_right_behind_the_release_is_found_in_any_weather() {
        let tale = tale().fault("reset").sends(1, Release, "A");
        tale.sends(1, ASK, "A").breaks(SpentToken);
    }

    #[test]
    fn a_window_that_is_held_again_after_its_loss_is_found() {
        let tale = tale().fault("client-stop").takes(1, "A", 1, 9.898).at(9.0).loses("A");
        tale.at(9.1).extends("A", 12.0).breaks(SpentToken);
    }

    #[test]
    fn a_renewal_behind_the_release_is_found_where_nothing_waits() {
        tale().sends(1, Release, "A").at(0.5).sends(1, Renew, "A").breaks(SpentToken);
    }

    #[test]
    fn a_renewal_that_waited_for_its_connection_passes() {
        let tale = tale().fault("reset").sends(1, Release, "A");
        tale.at(0.5).sends(1, Renew, "A").passes();
    }

    #[test]
    fn a_token_that_was_kept_is_used_on_and_never_asked_with() {
        let kept = || {
            let tale = tale().takes(1, "A", 1, 9.898).at(1.0).gives_up("A").sends(1, Keep, "A");
            tale.at(1.1).serves(Keep, "A", "A", "A")
        };
        kept().at(1.2).takes(1, "A", 2, 10.8).at(3.0).sends(1, Renew, "A").gives_up("A").passes();
        kept().at(1.2).sends(1, ASK, "A").breaks(SpentToken);
        kept().sends(1, Release, "A").at(1.2).sends(1, ASK, "A").breaks(SpentToken);
    }

    #[test]
    fn a_token_that_was_offered_and_is_not_known_to_be_kept_is_spent() {
        let offered = || {
            let tale = tale().takes(1, "A", 1, 9.898).at(1.0).gives_up("A");
            tale.sends(1, Keep, "A").at(1.5)
        };
        offered().sends(1, Renew, "A").breaks(SpentToken);
        offered().takes(1, "A", 2, 9.898).at(2.0).gives_up("A").breaks(SpentToken);
        offered().serves(Keep, "A", "A", "B").sends(1, Renew, "A").breaks(SpentToken);
    }

    #[test]
    fn a_share_that_was_kept_is_used_on_and_one_that_was_handed_over_is_spent() {
        let stands = |holder: &str| {
            let holders = vec![(holder.into(), Share::Alone)];
            Standing { holders, ..Standing::default() }
        };
        let kept = |by: &str| {
            let tale = tale().takes(1, "A", 1, 9.898).at(1.0).gives_up("A").sends(1, Keep, "A");
            tale.at(1.1).steps(Keep, "A", stands("A"), stands(by)).at(1.6)
        };
        kept("A").sends(1, Renew, "A").passes();
        kept("B").sends(1, Renew, "A").breaks(SpentToken);
        kept("A").sends(1, ASK, "A").breaks(SpentToken);
    }

    #[test]
    fn an_offer_in_a_world_whose_server_is_not_seen_spends_nothing() {
        let tale = tale().takes(1, "A", 1, 9.898).shares("A", Share::Reader).at(1.0);
        tale.gives_up("A").sends(1, Keep, "A").at(1.2).sends(1, Renew, "A").passes();
    }

    #[test]
    fn a_writer_that_became_a_reader_has_spent_its_token() {
        let tale = tale().takes(1, "A", 1, 9.898).shares("A", Share::Alone).at(1.0);
        let tale = tale.gives_up("A").sends(1, Downgrade, "A").at(1.5);
        tale.sends(1, Renew, "A").breaks(SpentToken);
    }

    #[test]
    fn a_window_that_begins_after_the_release_is_found() {
        let tale = tale().takes(1, "A", 1, 9.898).at(1.0).gives_up("A").sends(1, Release, "A");
        tale.takes(1, "A", 2, 9.898).at(2.0).gives_up("A").breaks(SpentToken);
    }

    #[test]
    fn a_node_of_a_quorum_that_was_not_told_of_the_release_may_be_asked_and_another_not() {
        let split = || tale().sends_to(0, 1, ASK, "A").sends_to(1, 1, ASK, "A");
        let split = || split().sends_to(0, 1, Release, "A");
        split().sends_to(1, 1, Release, "A").sends_to(0, 1, ASK, "B").passes();
        split().at(0.1).sends_to(1, 1, ASK, "A").passes();
        split().at(0.1).sends_to(0, 1, ASK, "A").breaks(SpentToken);
        split().at(0.1).takes(1, "A", 1, 9.898).gives_up("A").breaks(SpentToken);
    }

    #[test]
    fn an_ask_that_waited_for_its_connection_while_its_lease_came_and_was_lost_passes() {
        let lost = || {
            let tale = tale().fault("client-stop").takes(1, "A", 1, 9.898);
            tale.at(9.898).loses("A")
        };
        // No call sends it: the task that makes the connection does.
        lost().sends(1, JOIN, "A").sends(1, Release, "A").passes();
        lost().at(11.5).sends(1, JOIN, "A").breaks(SpentToken);
        lost().sends(1, Release, "A").sends(1, JOIN, "A").breaks(SpentToken);
        lost().locks(1).sends(1, JOIN, "A").breaks(SpentToken);
    }

    #[test]
    fn a_lost_lease_that_a_node_is_given_back_is_found() {
        let lost = |queued| {
            let tale = tale().fault("partition").takes(1, "A", 1, 9.898).at(9.898).loses("A");
            tale.at(9.898 + queued).sends_to(2, 1, ASK, "A")
        };
        lost(0.5).passes();
        lost(1.5).breaks(SpentToken);
    }
}
