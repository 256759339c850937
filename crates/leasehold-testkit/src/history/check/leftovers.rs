//! Keys that are left behind, and keys that would stay for ever.

use crate::history::event::{Event, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::Story;

/// After `Over`, no key is left except counters, the times of openings, and the records in which
/// clients describe themselves.
///
/// Only our keys are judged: locks that were called for, sent or served, and companion keys.
pub(super) fn no_orphan(story: &Story<'_>) -> Vec<Violation> {
    let after = story.events.iter().skip_while(|event| event.what != What::Over);
    let left_behind = after.filter_map(|event| {
        let name = our_key(story, event)?.0;
        let text = format!("`{name}` is left behind");
        (!may_stay(name)).then(|| violation(Invariant::NoOrphan, event, text))
    });
    left_behind.collect()
}

/// Every key of ours has an expiry at all times.
pub(super) fn nothing_immortal(story: &Story<'_>) -> Vec<Violation> {
    let immortal = story.events.iter().filter_map(|event| {
        let (name, is_immortal) = our_key(story, event)?;
        let text = format!("`{name}` has no end");
        (is_immortal && name != EPOCH).then(|| violation(Invariant::NothingImmortal, event, text))
    });
    immortal.collect()
}

fn violation(invariant: Invariant, event: &Event, text: String) -> Violation {
    Violation { invariant, at: event.at, text, promised: true }
}

/// The name of a key, if it is ours, and whether it lacks an expiry.
fn our_key<'a>(story: &Story<'a>, event: &'a Event) -> Option<(&'a str, bool)> {
    let What::Key { name, left } = &event.what else { return None };
    let is_ours = story.ours.contains(&**name) || name.contains(":lh:");
    is_ours.then(|| (&**name, left.is_none()))
}

fn may_stay(name: &str) -> bool {
    let ends = [":lh:fence", ":lh:t:fence", ":lh:open", ":lh:t:open"];
    ends.iter().any(|end| name.ends_with(end)) || name.contains(":lh:client:") || name == EPOCH
}

/// The only key that a strict server keeps for ever. It belongs to no lock.
const EPOCH: &str = ":lh:epoch";

#[cfg(test)]
mod tests {
    use crate::history::Invariant::{NoOrphan, NothingImmortal};
    use crate::history::build::{ASK, tale};

    #[test]
    fn a_key_that_is_left_behind_is_found() {
        for left in ["a", "{a}:lh:line", "a{b}:lh:t:places"] {
            let tale = tale().serves(ASK, "A", "", "A").at(60.0).over();
            tale.sees(left, Some(1.0)).breaks(NoOrphan);
        }
    }

    #[test]
    fn counters_records_and_the_keys_of_others_may_stay() {
        let tale = tale().serves(ASK, "A", "", "A").at(5.0).sees("a", Some(5.0));
        let tale = tale.sees("{a}:lh:line", Some(5.0)).at(60.0).over();
        let tale = tale.sees("{a}:lh:fence", Some(1.0)).sees("a{b}:lh:t:fence", Some(1.0));
        let tale = tale.sees("{a}:lh:open", Some(1.0)).sees("a{b}:lh:t:open", Some(1.0));
        tale.sees(":lh:client:x", Some(1.0)).sees("theirs", None).passes();
    }

    #[test]
    fn a_key_without_an_end_is_found() {
        for immortal in ["a", "{a}:lh:grant", "{a}:lh:fence", ":lh:client:x"] {
            let tale = tale().serves(ASK, "A", "", "A");
            tale.sees(immortal, None).breaks(NothingImmortal);
        }
        tale().serves(ASK, "A", "", "A").sees(":lh:epoch", None).passes();
    }

    #[test]
    fn a_key_that_ends_soon_passes() {
        tale().serves(ASK, "A", "", "A").sees("a", Some(0.0)).sees("theirs", None).passes();
    }
}
