//! A client that gives up an acquisition releases what single nodes of a quorum granted.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::core::Moment;

use super::said::Said;
use crate::history::event::{CallId, ProcessId, Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, Story};

/// If a node granted an owner token the key, and the token never got a window, then its process
/// sends that node a release of the token at some time.
///
/// The calls of a token are the calls that sent an acquire with it, to any node. A dropped waiter
/// may leave its token to another task of its client. So a token is judged only after all calls of
/// its process for that key have ended, if they began before the last call of the token ended.
///
/// A process that dies, or cannot send anything to the node, owes nothing. So a token is judged
/// only if its process sent the node another request when it would have sent the release too: after
/// its calls had ended and the grant was made (see [`Said::could_release`]). If the network held an
/// acquire back for longer than its lease would have lasted, the client may take it for lost, and
/// need not release it. If the node has granted the key to another owner, there is nothing left to
/// release, because the node had evicted or forgotten the lease.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let sent = Sent::of(story);
    let mut judged = BTreeSet::new();
    let mut violations = Vec::new();
    for event in story.events {
        let What::GrantedAt { node, key, token, left } = &event.what else { continue };
        let (node, token) = (*node, &**token);
        if sent.held.contains(token) || sent.released.contains(&(node, token)) {
            continue;
        }
        let Some(asked) = sent.asked.get(token) else { continue };
        if asked.last_to(node).is_none_or(|sent| event.at.since(sent) >= *left) {
            continue;
        }
        let Some(ended) = asked.ended(story, key) else { continue };
        let until = event.at + *left;
        let half = event.at + *left / 2;
        if sent.granted_to_another(node, key, token, event.at, half) {
            continue;
        }
        let by = (asked.process, node);
        let says = sent.said.could_release(&by, ended.max(event.at), until);
        if says && judged.insert((node, token)) {
            let process = asked.process.0;
            violations.push(Violation {
                invariant: Invariant::NoOrphan,
                at: half,
                text: format!(
                    "process {process} never gives `{key}` back to node {node} that {token} got \
                     there"
                ),
                promised: true,
            });
        }
    }
    violations
}

/// The acquires with a token.
struct Asked {
    process: ProcessId,
    /// The calls that sent acquires. `None` stands for an acquire outside any call.
    by: BTreeSet<Option<CallId>>,
    /// When the last acquire was sent to each node.
    at: BTreeMap<u32, Moment>,
}

impl Asked {
    fn last_to(&self, node: u32) -> Option<Moment> {
        self.at.get(&node).copied()
    }

    /// When the last call that may have had the token ended. `None` if one of these calls never
    /// ends, or is unknown.
    fn ended(&self, story: &Story<'_>, key: &str) -> Option<Moment> {
        if self.by.contains(&None) {
            return None;
        }
        let calls = || {
            let calls = story.keys.get(key).into_iter().flat_map(|of_key| &of_key.calls);
            calls.filter(|call| call.process == self.process)
        };
        let returned = |call: &Call| call.returned.map(|(at, _)| at);
        let mut ended = Moment::default();
        for call in calls().filter(|call| self.by.contains(&Some(call.id))) {
            ended = ended.max(returned(call)?);
        }
        // Go through the calls in the order in which they began. A call that takes over a token
        // began before the earlier call ended.
        for call in calls() {
            if call.called <= ended {
                ended = ended.max(returned(call)?);
            }
        }
        Some(ended)
    }
}

#[derive(Default)]
struct Sent<'a> {
    asked: BTreeMap<&'a str, Asked>,
    /// Tokens that got a window.
    held: BTreeSet<&'a str>,
    /// Tokens that were released, by node.
    released: BTreeSet<(u32, &'a str)>,
    /// The owners to which each node granted each key, and when.
    granted: BTreeMap<(u32, &'a str), Vec<(Moment, &'a str)>>,
    /// When each process sent a node an acquire or a release.
    said: Said<(ProcessId, u32)>,
}

impl<'a> Sent<'a> {
    fn of(story: &Story<'a>) -> Self {
        let mut sent = Self::default();
        for event in story.events {
            match &event.what {
                What::Granted { token, .. } => {
                    sent.held.insert(token);
                }
                What::GrantedAt { node, key, token, .. } => {
                    sent.granted.entry((*node, key)).or_default().push((event.at, token));
                }
                What::SentTo { node, process, call, request, token, .. } => {
                    match request {
                        Request::Ask { .. } => {
                            let (by, at) = (BTreeSet::new(), BTreeMap::new());
                            let new = || Asked { process: *process, by, at };
                            let asked = sent.asked.entry(token).or_insert_with(new);
                            asked.by.insert(*call);
                            asked.at.insert(*node, event.at);
                        }
                        Request::Release => {
                            sent.released.insert((*node, token));
                        }
                        Request::Renew
                        | Request::Keep
                        | Request::Evict
                        | Request::Downgrade
                        | Request::Resize => continue,
                    }
                    sent.said.note((*process, *node), event.at);
                }
                _ => {}
            }
        }
        sent
    }

    /// Whether a node granted a key to another token after one moment and before another.
    fn granted_to_another(
        &self,
        node: u32,
        key: &str,
        token: &str,
        after: Moment,
        before: Moment,
    ) -> bool {
        let granted = self.granted.get(&(node, key)).map_or(&[][..], Vec::as_slice);
        let next = granted.partition_point(|(at, _)| *at < after);
        let mut later = granted[next..].iter().take_while(|(at, _)| *at < before);
        later.any(|(_, to)| *to != token)
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::NoOrphan;
    use crate::history::build::{ASK, Tale, tale};
    use crate::history::event::Outcome::Taken;
    use crate::history::event::Request::Release;

    /// A `try_lock` finds the key taken at two nodes. The grant of the third node comes too late.
    fn straggler() -> Tale {
        let tale = tale().tries(1).sends_to(0, 1, ASK, "A").sends_to(1, 1, ASK, "A");
        let tale = tale.sends_to(2, 1, ASK, "A").at(0.1).returns(1, Taken);
        tale.at(0.2).grants_at(2, "A")
    }

    /// Process 1 sends the node other requests, so it could have sent that release.
    fn goes_on(tale: Tale, node: u32, at: f64) -> Tale {
        let tale = tale.at(at).sends_to(node, 1, Release, "C");
        tale.at(at + 2.0).sends_to(node, 1, Release, "D")
    }

    #[test]
    fn a_vain_grant_that_is_never_given_back_at_its_node_is_found() {
        goes_on(straggler(), 2, 1.0).breaks(NoOrphan);
        let elsewhere = straggler().sends_to(1, 1, Release, "A");
        goes_on(elsewhere, 2, 1.0).breaks(NoOrphan);
    }

    #[test]
    fn a_grant_that_is_given_back_at_its_node_passes() {
        straggler().at(9.0).sends_to(2, 1, Release, "A").passes();
        goes_on(straggler(), 2, 1.0).sends_to(2, 1, Release, "A").passes();
    }

    #[test]
    fn a_node_that_granted_the_key_to_another_has_the_first_grant_no_more() {
        let then_to = |at, node| goes_on(straggler(), 2, 0.5).at(at).grants_at(node, "B");
        then_to(3.0, 2).passes();
        then_to(3.0, 1).breaks(NoOrphan);
        then_to(6.0, 2).breaks(NoOrphan);
    }

    #[test]
    fn an_ask_that_was_held_back_for_as_long_as_it_would_have_lasted_owes_nothing() {
        let late = |at| {
            let tale = tale().tries(1).sends_to(2, 1, ASK, "A").at(0.1).returns(1, Taken);
            goes_on(tale.at(at).grants_at(2, "A"), 2, at + 0.5)
        };
        late(9.0).breaks(NoOrphan);
        late(10.0).passes();
    }

    #[test]
    fn a_client_that_cannot_reach_the_node_or_is_still_busy_owes_nothing() {
        goes_on(straggler(), 1, 1.0).passes();
        goes_on(straggler(), 2, 6.0).passes();
        // The process dies before it tries again.
        straggler().at(1.0).sends_to(2, 1, Release, "C").crashes(1).passes();
        let waits = tale().locks(1).sends_to(2, 1, ASK, "A").grants_at(2, "A");
        let said = waits.at(0.1).sends_to(2, 1, Release, "C").at(0.4);
        said.sends_to(2, 1, Release, "D").passes();
    }
}
