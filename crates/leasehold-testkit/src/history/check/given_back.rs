//! A client that gives up an acquisition releases what it may have got.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::core::Moment;

use super::said::Said;
use crate::history::event::{CallId, ProcessId, Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Story};

/// If the server gave an owner token the key or a place, and the token's call ended without a
/// window, then its process sends a release of the token at some time. The same holds for a lease
/// that the server kept on request, if it got no window after that.
///
/// The calls of a token are the calls that sent an acquire with it. A dropped waiter may leave its
/// token and place to another waiter of its process. So every call that waits when the last of the
/// token's calls ends may have the token. A token is not judged if the call of one of its requests
/// is unknown. Where holders share keys, the same holds for shares, but not for starts and counts:
/// these stay taken when their calls end.
///
/// A process that dies need not release anything. The same holds for a process that could send
/// nothing while the server would have kept the key or the place. So a token is judged only if its
/// process sent another acquire or release over the same connection early enough (see
/// [`Said::could_release`]).
///
/// The client need not release what four kinds of acquires took:
///
/// - an acquire that took effect after its call had ended;
/// - an acquire that a later one with the same token overtook over a new connection;
/// - the copy of an acquire that arrived twice;
/// - an acquire that was held back for longer than its lease or place would have lasted. After such
///   a delay, the client may assume that it was lost.
///
/// The same holds for a hand-over to the place that such an acquire took.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let sent = Sent::of(story);
    let given_up = sent.tokens.iter().filter(|(token, _)| !sent.settled.contains(**token));
    given_up
        .filter_map(|(token, asked)| {
            let of_key = story.keys.get(asked.key)?;
            if of_key.limit.is_some() || of_key.latch.is_some() || of_key.barrier.is_some() {
                return None;
            }
            let ended = asked.ended(of_key)?;
            let left = left(of_key, token, asked, ended)?;
            let (key, process) = (asked.key, asked.process.0);
            sent.said.could_release(&asked.process, ended, ended + left).then(|| Violation {
                invariant: Invariant::NoOrphan,
                at: ended + left / 2,
                text: format!("process {process} never gives `{key}` back that {token} asked for"),
                promised: true,
            })
        })
        .collect()
}

/// The acquires with a token, or the request that offered its lease to others.
struct Asked<'a> {
    process: ProcessId,
    key: &'a str,
    /// The calls that sent acquires. `None` stands for an acquire outside any call.
    by: BTreeSet<Option<CallId>>,
    /// When the lease was offered to others.
    kept: Option<Moment>,
}

impl Asked<'_> {
    fn calls<'s>(&'s self, of_key: &'s OfKey<'_>) -> impl Iterator<Item = &'s Call> {
        of_key.calls.iter().filter(|call| {
            self.by.contains(&Some(call.id))
                || call.process == self.process && self.kept.is_some_and(|at| is_open(call, at))
        })
    }

    /// When the last call that may have had the token ended. `None` if one of these calls never
    /// ends, or is unknown.
    fn ended(&self, of_key: &OfKey<'_>) -> Option<Moment> {
        let (mut ended, mut waits) = (None, false);
        for call in self.calls(of_key) {
            ended = ended.max(Some(call.returned?.0));
            waits |= call.kind.waits();
        }
        let mut ended = ended.filter(|_| !self.by.contains(&None))?;
        // Go through the calls in the order in which they began. A call that takes over a token
        // began before the earlier call ended.
        let others = of_key.calls.iter().filter(|call| call.process == self.process);
        for call in others.filter(|call| waits && call.kind.waits()) {
            if is_open(call, ended) {
                ended = ended.max(call.returned?.0);
            }
        }
        Some(ended)
    }
}

#[derive(Default)]
struct Sent<'a> {
    tokens: BTreeMap<&'a str, Asked<'a>>,
    /// Tokens that were released or got a window, and were not offered to others afterwards.
    settled: BTreeSet<&'a str>,
    /// When each process sent an acquire or a release.
    said: Said<ProcessId>,
}

impl<'a> Sent<'a> {
    fn of(story: &Story<'a>) -> Self {
        let mut sent = Self::default();
        for event in story.events {
            match &event.what {
                What::Granted { token, .. }
                | What::Served { request: Request::Release, token, .. }
                | What::Stood { request: Request::Release, token, .. } => {
                    sent.settled.insert(token);
                }
                What::Sent { process, call, request, key, token } => {
                    let new = || Asked { process: *process, key, by: BTreeSet::new(), kept: None };
                    match request {
                        Request::Ask { .. } => {
                            let asked = sent.tokens.entry(token).or_insert_with(new);
                            asked.by.insert(*call);
                        }
                        Request::Keep => {
                            sent.tokens.insert(token, Asked { kept: Some(event.at), ..new() });
                            sent.settled.remove(&**token);
                        }
                        Request::Release => {
                            sent.settled.insert(token);
                        }
                        Request::Renew | Request::Evict | Request::Downgrade | Request::Resize => {
                            continue;
                        }
                    }
                    sent.said.note(*process, event.at);
                }
                _ => {}
            }
        }
        sent
    }
}

fn is_open(call: &Call, at: Moment) -> bool {
    call.called <= at && call.returned.is_none_or(|(returned, _)| returned >= at)
}

/// One step of the server, as far as it concerns an owner token.
struct Step {
    at: Moment,
    request: Request,
    /// Whether the request is about the token.
    is_of_it: bool,
    /// Whether the token owned the key, or a share of it, before the step, and after it.
    was_owner: bool,
    is_owner: bool,
    /// How long that lease has left.
    left: Duration,
    travelled: Option<Duration>,
}

/// All steps of a key, in order.
fn steps<'s>(of_key: &'s OfKey<'_>, token: &'s str) -> impl Iterator<Item = Step> + 's {
    let served = of_key.served.iter().map(move |served| Step {
        at: served.at,
        request: served.request,
        is_of_it: served.token == token,
        was_owner: served.before == Some(token),
        is_owner: served.after == Some(token),
        left: served.left,
        travelled: served.travelled,
    });
    let stood = of_key.stood.iter().map(move |stood| Step {
        at: stood.at,
        request: match stood.request {
            // The ask was refused, for example because its client knows another number of permits.
            Request::Ask { .. } if !stood.after.waits(token) => Request::Ask { place: None },
            request => request,
        },
        is_of_it: stood.token == token,
        was_owner: stood.before.is_holder(token),
        is_owner: stood.after.is_holder(token),
        left: stood.after.left(token),
        travelled: stood.travelled,
    });
    // A key has steps of one kind only.
    served.chain(stood)
}

/// How long after `ended` the server keeps the key or the place by itself.
fn left(of_key: &OfKey<'_>, token: &str, asked: &Asked<'_>, ended: Moment) -> Option<Duration> {
    let (mut keeps_until, mut was_offered): (Option<Moment>, _) = (None, false);
    let (mut is_owed, mut latest_sent) = (true, None);
    let mut was_owner = false;
    for served in steps(of_key, token).take_while(|served| served.at <= ended) {
        let is_of_it = served.is_of_it;
        // The lease ended early, for example because the server's clock was stepped.
        if was_owner && !served.was_owner {
            keeps_until = None;
        }
        was_owner = served.is_owner;
        // No client gets the answer to a late or repeated acquire, so no client can release it.
        let is_ask = matches!(served.request, Request::Ask { .. });
        let is_heard = || asked.calls(of_key).any(|call| is_open(call, served.at));
        let lasts = match served.request {
            _ if served.is_owner && (is_of_it || !served.was_owner) => Some(served.left),
            Request::Ask { place } if is_of_it => place,
            _ => None,
        };
        if is_of_it && is_ask {
            let sent = served.travelled.map(|travelled| served.at.minus(travelled));
            let is_overtaken = sent < latest_sent;
            latest_sent = latest_sent.max(sent);
            let is_late = lasts.zip(served.travelled).is_some_and(|(lasts, took)| took >= lasts);
            let is_missed = sent.is_none() || is_overtaken || is_late || !is_heard();
            let is_in_time = !was_offered && !is_missed;
            is_owed = is_in_time || keeps_until.is_some_and(|until| served.at < until);
            if !is_in_time {
                continue;
            }
        }
        if !is_of_it && !is_owed {
            continue;
        }
        was_offered |= is_of_it && served.request == Request::Keep;
        keeps_until = match served.request {
            // A reader or an owner of permits may end while others stay.
            _ if served.was_owner && !served.is_owner => None,
            Request::Release | Request::Keep if is_of_it && lasts.is_none() => None,
            // The server forgot the lease, since it knows neither a lease nor a place of this
            // token.
            Request::Ask { .. } if is_of_it && lasts.is_none() => None,
            _ => keeps_until.max(lasts.map(|lasts| served.at + lasts)),
        };
    }
    Some(keeps_until?.since(ended))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::history::Invariant::NoOrphan;
    use crate::history::build::{ASK, JOIN, Tale, tale};
    use crate::history::event::CallKind::Lock;
    use crate::history::event::Outcome::{Dropped, Taken, Unknown, WaitElapsed};
    use crate::history::event::Request::{Keep, Release};
    use crate::history::event::{Share, Standing};

    /// A `try_lock` whose answer is lost.
    fn unanswered() -> Tale {
        let tale = tale().fault("reply-lost").tries(1).sends(1, ASK, "A");
        tale.serves(ASK, "A", "", "A").at(2.0).returns(1, Unknown).heals()
    }

    /// The process sends other requests, so it could have sent that release.
    fn goes_on(tale: Tale, at: f64) -> Tale {
        tale.at(at).sends(1, Release, "C").at(at + 1.5).sends(1, Release, "D")
    }

    /// A wait that is dropped while another client has the key.
    fn dropped() -> Tale {
        let tale = tale().fault("dropped-future").calls(1, Lock, None).sends(1, JOIN, "A");
        tale.serves(JOIN, "A", "B", "B").at(0.5).returns(1, Dropped).heals()
    }

    #[test]
    fn a_possible_grant_that_is_never_released_is_found() {
        goes_on(unanswered(), 2.1).breaks(NoOrphan);
    }

    #[test]
    fn a_lease_that_the_server_forgot_before_the_next_ask_is_owed_to_nobody() {
        let tale = tale().fault("reply-lost").tries(1).sends(1, ASK, "A");
        let tale = tale.serves(ASK, "A", "", "A").at(1.5).sends(1, ASK, "A");
        let tale = tale.serves(ASK, "A", "B", "B").at(2.0).returns(1, Taken).heals();
        goes_on(tale, 2.1).passes();
    }

    #[test]
    fn a_place_that_is_never_left_is_found() {
        goes_on(dropped(), 0.6).breaks(NoOrphan);
    }

    #[test]
    fn a_grant_that_is_released_in_the_end_passes() {
        goes_on(unanswered(), 2.1).sends(1, Release, "A").passes();
        goes_on(dropped().sends(1, Release, "A"), 0.6).passes();
    }

    /// The first of two waiting tasks sends the acquire and is dropped.
    fn left_to_another() -> Tale {
        let tale = tale().fault("dropped-future").calls(1, Lock, None).sends(1, JOIN, "A");
        let tale = tale.serves(JOIN, "A", "B", "B").also_calls(1, Lock).at(0.5);
        tale.returns_first(1, Dropped).heals()
    }

    /// A dropped waiter owes a release among readers too.
    #[test]
    fn a_share_or_a_place_among_shares_that_is_never_given_back_is_found() {
        let stands = |holders: &[&str], line: &[&str]| {
            let all = |names: &[&str], share| {
                names.iter().map(|name| ((*name).into(), share)).collect::<Vec<_>>()
            };
            let lefts = vec![Duration::from_secs(10); holders.len()];
            let (holders, line) = (all(holders, Share::Reader), all(line, Share::Alone));
            Standing { holders, lefts, line, ..Standing::default() }
        };
        let asked = |after: Standing| {
            let tale = tale().fault("dropped-future").calls(1, Lock, None).sends(1, JOIN, "A");
            let tale = tale.steps(JOIN, "A", stands(&["R"], &[]), after);
            tale.at(0.5).returns(1, Dropped).heals()
        };
        let (shared, waits) = (stands(&["R", "A"], &[]), stands(&["R"], &["A"]));
        goes_on(asked(shared.clone()), 0.6).breaks(NoOrphan);
        goes_on(asked(waits.clone()), 0.6).breaks(NoOrphan);
        goes_on(asked(waits).sends(1, Release, "A"), 0.6).passes();
        let ended = asked(shared).steps(Release, "B", stands(&["R"], &[]), stands(&["R"], &[]));
        goes_on(ended, 0.6).passes();
    }

    #[test]
    fn a_token_that_was_left_to_another_task_is_given_back_when_that_one_ends() {
        goes_on(left_to_another(), 0.6).passes();
        let ended = left_to_another().at(1.0).returns(1, Dropped);
        goes_on(ended, 1.1).breaks(NoOrphan);
    }

    /// The server kept a lease for another task of the client, and that task is dropped.
    fn kept_for_nobody() -> Tale {
        let tale = tale().fault("dropped-future").takes(1, "A", 1, 9.9).at(1.0).locks(1);
        let tale = tale.gives_up("A").sends(1, Keep, "A").at(1.1).serves(Keep, "A", "A", "A");
        tale.at(1.2).returns(1, Dropped).heals()
    }

    #[test]
    fn a_lease_that_is_kept_for_nobody_is_given_back() {
        goes_on(kept_for_nobody(), 2.0).breaks(NoOrphan);
        goes_on(kept_for_nobody().sends(1, Release, "A"), 2.0).passes();
        let handed_over = tale().fault("delay").takes(1, "A", 1, 9.9).at(1.0).locks(1);
        let handed_over = handed_over.gives_up("A").sends(1, Keep, "A").at(1.1);
        let handed_over = handed_over.serves(Keep, "A", "A", "B").at(1.2).returns(1, Dropped);
        goes_on(handed_over, 2.0).passes();
    }

    /// The clock of the server was stepped forward.
    #[test]
    fn a_lease_that_the_server_ended_early_is_not_owed() {
        let found = |owner| {
            let tale = tale().fault("clock-step-forward").takes(1, "A", 1, 9.9).at(1.0).locks(1);
            let tale = tale.gives_up("A").sends(1, Keep, "A").at(1.1).serves(Keep, "A", "A", "A");
            let tale = tale.at(1.15).serves(ASK, "B", owner, owner);
            goes_on(tale.at(1.2).returns(1, Dropped).heals(), 2.0)
        };
        found("A").breaks(NoOrphan);
        found("").passes();
    }

    #[test]
    fn a_client_that_dies_or_is_cut_off_owes_nothing() {
        unanswered().crashes(1).at(2.1).sends(2, Release, "C").passes();
        // Here, the process dies before it tries again. Below, the lease ends first.
        unanswered().at(2.1).sends(1, Release, "C").crashes(1).passes();
        goes_on(unanswered(), 7.9).passes();
    }

    #[test]
    fn an_ask_that_got_nothing_owes_nothing() {
        let taken = tale().tries(1).sends(1, ASK, "A").serves(ASK, "A", "B", "B");
        let taken = taken.at(0.1).returns(1, Taken);
        goes_on(taken, 0.2).passes();
    }

    #[test]
    fn an_ask_that_takes_effect_after_its_call_owes_nothing() {
        let late = tale().fault("late-request").tries(1).sends(1, ASK, "A").at(1.0);
        let late = late.returns(1, Unknown).at(1.1).serves(ASK, "A", "", "A").heals();
        goes_on(late, 1.2).passes();
    }

    /// The client waits on with another token.
    #[test]
    fn an_ask_that_was_held_back_for_as_long_as_it_would_have_lasted_owes_nothing() {
        let late = |at| {
            let tale = tale().fault("server-stop").locks(1).sends(1, ASK, "A");
            let tale = tale.at(at).serves(ASK, "A", "", "A").heals().at(at + 0.1);
            goes_on(tale.returns(1, WaitElapsed), at + 0.2)
        };
        late(9.0).breaks(NoOrphan);
        late(10.0).passes();
    }

    #[test]
    fn a_hand_over_to_the_place_of_a_late_ask_owes_nothing() {
        let joins = |at| {
            let tale = tale().fault("server-stop").locks(1).sends(1, JOIN, "A");
            let tale = tale.at(at).serves(JOIN, "A", "B", "B").heals();
            let tale = tale.at(at + 0.1).serves(Release, "B", "B", "A").at(at + 0.2);
            goes_on(tale.returns(1, WaitElapsed), at + 0.3)
        };
        joins(1.0).breaks(NoOrphan);
        joins(3.0).passes();
    }

    /// The client was told *taken*. The copy of its request came when the key was free again.
    #[test]
    fn a_request_that_arrives_twice_owes_nothing_for_its_copy() {
        let twice = |asks: u32| {
            let tale = tale().fault("duplicate").tries(1).sends(1, ASK, "A");
            let tale = if asks > 1 { tale.at(0.1).sends(1, ASK, "A") } else { tale };
            let tale = tale.at(0.2).serves(ASK, "A", "B", "B").serves(ASK, "A", "", "A");
            goes_on(tale.at(0.3).returns(1, Taken).heals(), 0.4)
        };
        twice(1).passes();
        twice(2).breaks(NoOrphan);
    }

    /// The first request came late, over an old connection. The client got the answer to the
    /// second.
    #[test]
    fn a_request_that_a_later_one_overtook_owes_nothing() {
        let retried = |first: f64, second: f64| {
            let tale = tale().fault("partition").tries(1).sends(1, ASK, "A").at(1.0);
            let tale = tale.sends(1, ASK, "A").at(1.1).serves(ASK, "A", "B", "B");
            let tale = tale.travelled(first).at(1.2).serves(ASK, "A", "", "A").travelled(second);
            goes_on(tale.at(1.3).returns(1, Taken).heals(), 1.4)
        };
        retried(0.1, 1.2).passes();
        retried(1.1, 0.2).breaks(NoOrphan);
    }

    #[test]
    fn another_call_of_the_same_process_is_not_taken_for_the_one_that_asked() {
        let late = tale().fault("late-request").tries(1).sends(1, ASK, "A");
        let late = late.also_calls(1, Lock).at(1.0).returns_first(1, Unknown);
        let late = late.at(1.1).serves(ASK, "A", "", "A").at(1.2).returns(1, Dropped).heals();
        goes_on(late, 1.3).passes();
    }
}
