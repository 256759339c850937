//! Who gives an acquisition up gives back what single nodes of a quorum granted.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::core::Moment;

use super::said::Said;
use crate::history::event::{CallId, ProcessId, Request, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, Story};

/// An owner token that a node of a quorum gave the key, and that never got a window, is released
/// at that node: its process has sent a release by it there at some time.
///
/// The calls of a token are those that asked with it, at whatever node. One that waits and is
/// dropped may leave the token to another task of its client, so a token is judged only where all
/// calls of its process for that key that began before the last of its own ended have ended too.
///
/// A process owes nothing that dies, or cannot send anything to the node: a token is judged if its
/// process sent that node something else when it would have sent the release too, once its calls
/// had ended and the grant was there: see [`Said::could_release`]. An ask that the network
/// held back for longer than what it asked for would have lasted is nobody's fault: whoever gives
/// back for that long may take it for lost. Nor is anything left to be given back once the node has
/// granted the key to another: it had evicted it, or forgotten.
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

/// The asks by a token.
struct Asked {
    process: ProcessId,
    /// Which calls asked. `None` for what was sent in none.
    by: BTreeSet<Option<CallId>>,
    /// When each node was sent the last of them.
    at: BTreeMap<u32, Moment>,
}

impl Asked {
    fn last_to(&self, node: u32) -> Option<Moment> {
        self.at.get(&node).copied()
    }

    /// When the last call had surely ended that may have had the token. `None` if one of them never
    /// ends, or is not known.
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
        // By their beginnings: who takes over from one that took over began before that one ended.
        for call in calls() {
            if call.called <= ended {
                ended = ended.max(returned(call)?);
            }
        }
        Some(ended)
    }
}

/// What was sent.
#[derive(Default)]
struct Sent<'a> {
    asked: BTreeMap<&'a str, Asked>,
    /// Tokens that got a window.
    held: BTreeSet<&'a str>,
    /// Tokens that were released, by node.
    released: BTreeSet<(u32, &'a str)>,
    /// To whom each node granted each key, and when.
    granted: BTreeMap<(u32, &'a str), Vec<(Moment, &'a str)>>,
    /// When each process sent a node an ask or a release.
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
                        Request::Renew | Request::Keep | Request::Evict => continue,
                    }
                    sent.said.note((*process, *node), event.at);
                }
                _ => {}
            }
        }
        sent
    }

    /// Whether a node granted a key to another after one moment and before another.
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

    /// A try that is taken at two nodes. The third grants it, which is heard too late.
    fn straggler() -> Tale {
        let tale = tale().tries(1).sends_to(0, 1, ASK, "A").sends_to(1, 1, ASK, "A");
        let tale = tale.sends_to(2, 1, ASK, "A").at(0.1).returns(1, Taken);
        tale.at(0.2).grants_at(2, "A")
    }

    /// Process 1 sends the node other things, so that it could have sent that release.
    fn goes_on(tale: Tale, node: u32, at: f64) -> Tale {
        let tale = tale.at(at).sends_to(node, 1, Release, "C");
        tale.at(at + 2.0).sends_to(node, 1, Release, "D")
    }

    #[test]
    fn what_a_node_granted_in_vain_and_is_never_given_back_there_is_found() {
        goes_on(straggler(), 2, 1.0).breaks(NoOrphan);
        let elsewhere = straggler().sends_to(1, 1, Release, "A");
        goes_on(elsewhere, 2, 1.0).breaks(NoOrphan);
    }

    #[test]
    fn what_is_given_back_there_passes() {
        straggler().at(9.0).sends_to(2, 1, Release, "A").passes();
        goes_on(straggler(), 2, 1.0).sends_to(2, 1, Release, "A").passes();
    }

    #[test]
    fn what_the_node_has_granted_to_another_is_not_there_any_more() {
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
    fn who_cannot_reach_the_node_or_is_not_through_owes_nothing() {
        goes_on(straggler(), 1, 1.0).passes();
        goes_on(straggler(), 2, 6.0).passes();
        // It dies before it tries again.
        straggler().at(1.0).sends_to(2, 1, Release, "C").crashes(1).passes();
        let waits = tale().locks(1).sends_to(2, 1, ASK, "A").grants_at(2, "A");
        let said = waits.at(0.1).sends_to(2, 1, Release, "C").at(0.4);
        said.sends_to(2, 1, Release, "D").passes();
    }
}
