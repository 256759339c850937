//! A client that is told *taken* was not alone.

use std::collections::HashMap;

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::{CallKind, Name, Outcome, ProcessId, Request, Standing, What};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Served, Stood, Story};

/// A `try_lock` that returns *taken* was right: at some moment of the call, another token owned the
/// key at the server or had a place in its line.
///
/// If the history shows that the server carried out an acquire of the call, that acquire decides.
/// It must have found or made another owner, or left the key to the line.
///
/// Where holders share keys, a refusal was right if others held the key or waited for it, since the
/// history does not say which share an acquire wants. So a reader that is refused although only
/// readers have the key is not found here.
///
/// This is checked only if the history contains the server's events and the token of the call is
/// clear. The token is clear if no other call of the process for the key was under way, or ended so
/// shortly before that it may still send.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let sent = asks_sent(story);
    let mut violations = Vec::new();
    let is_seen = |of_key: &OfKey<'_>| !of_key.served.is_empty() || !of_key.stood.is_empty();
    for (key, of_key) in story.keys.iter().filter(|(_, of_key)| is_seen(of_key)) {
        for call in &of_key.calls {
            let Some((at, Outcome::Taken)) = call.returned else { continue };
            if call.kind != CallKind::TryLock {
                continue;
            }
            let own = sent.get(&(call.process, *key)).map_or(&[][..], Vec::as_slice);
            let asked = Asked { of_key, call, until: at };
            if !asked.was_taken(story.bounds, own) && asked.is_alone(story.bounds) {
                let text = format!("{} is told that `{key}` is taken, and it is not", call.name());
                let invariant = Invariant::TakenIsTrue;
                violations.push(Violation { invariant, at, text, promised: true });
            }
        }
    }
    violations
}

/// When each process sent acquires for each key, and with which tokens.
type Sent<'a> = HashMap<(ProcessId, &'a str), Vec<(Moment, &'a str)>>;

fn asks_sent<'a>(story: &Story<'a>) -> Sent<'a> {
    let mut sent = Sent::new();
    for event in story.events {
        if let What::Sent { process, request: Request::Ask { .. }, key, token, .. } = &event.what {
            sent.entry((*process, key)).or_default().push((event.at, token));
        }
    }
    sent
}

/// The part of `all` between two moments, including both.
fn between<T>(all: &[T], at: impl Fn(&T) -> Moment, from: Moment, to: Moment) -> &[T] {
    let start = all.partition_point(|one| at(one) < from);
    let end = all.partition_point(|one| at(one) <= to);
    &all[start..end]
}

/// A call that was told *taken*.
struct Asked<'a, 's> {
    of_key: &'a OfKey<'s>,
    call: &'a Call,
    until: Moment,
}

impl<'s> Asked<'_, 's> {
    fn was_taken(&self, bounds: &Bounds, sent: &[(Moment, &'s str)]) -> bool {
        let mut own = between(sent, |(at, _)| *at, self.call.called, self.until).iter();
        let token = own.next().map(|(_, token)| *token);
        if own.any(|(_, other)| Some(*other) != token) {
            return true;
        }
        if !self.of_key.stood.is_empty() {
            return self.was_shared(token);
        }
        let of_call = |served: &&Served<'_>| {
            Some(served.token) == token && matches!(served.request, Request::Ask { .. })
        };
        let meanwhile = self.served(self.call.called);
        let mut answered = meanwhile.iter().filter(of_call).peekable();
        if answered.peek().is_some() {
            return answered.any(|served| match (served.before, served.after) {
                // The key is free. Either it is meant for a waiter in the line, or the refusal is
                // wrong.
                (None, None) => self.had_line(bounds, token),
                (before, after) => {
                    before.is_some_and(|owner| owner != served.token) || after != Some(served.token)
                }
            });
        }
        let is_other = |owner: Option<&str>| owner.is_some() && owner != token;
        meanwhile.iter().any(|served| is_other(served.before) || is_other(served.after))
            || self.had_owner(token)
            || self.had_line(bounds, token)
    }

    /// Whether others held the key or waited for it, where holders share it. A place whose time was
    /// just over counts too, and so does an opening of the line.
    fn was_shared(&self, token: Option<&str>) -> bool {
        let meanwhile = between(&self.of_key.stood, |one| one.at, self.call.called, self.until);
        let is_ask = |one: &Stood<'_>| matches!(one.request, Request::Ask { .. });
        let own: Vec<_> =
            meanwhile.iter().filter(|one| Some(one.token) == token && is_ask(one)).collect();
        let is_other = |name: &Name| Some(&**name) != token;
        let is_met = |standing: &Standing| {
            standing.is_open
                || standing.holders.iter().any(|(name, _)| is_other(name))
                || standing.line.iter().any(|(name, _)| is_other(name))
                || standing.expired.iter().any(|(name, _)| is_other(name))
        };
        if !own.is_empty() {
            return own.iter().any(|one| is_met(one.before) || is_met(one.after));
        }
        let before = self.of_key.stood.partition_point(|one| one.at < self.call.called);
        let last = before.checked_sub(1).map(|index| self.of_key.stood[index].after);
        meanwhile.iter().any(|one| is_met(one.before) || is_met(one.after))
            || last.is_some_and(is_met)
    }

    /// The requests that the server carried out from `since` until the call returned.
    fn served(&self, since: Moment) -> &[Served<'s>] {
        between(&self.of_key.served, |served| served.at, since, self.until)
    }

    /// Whether the key may have had another owner when the call began.
    fn had_owner(&self, token: Option<&str>) -> bool {
        let before = self.of_key.served.partition_point(|served| served.at < self.call.called);
        let last = before.checked_sub(1).map(|index| &self.of_key.served[index]);
        last.is_some_and(|last| {
            let ends = last.at + last.left + Bounds::drift(last.left);
            last.after.is_some() && last.after != token && ends >= self.call.called
        })
    }

    /// Whether another token may have had a place when the call began, or taken one since.
    fn had_line(&self, bounds: &Bounds, token: Option<&str>) -> bool {
        let life = bounds.waiter_ttl + Bounds::drift(bounds.waiter_ttl);
        let recent = self.served(self.call.called.minus(life));
        recent.iter().enumerate().any(|(index, served)| {
            let takes_place = matches!(served.request, Request::Ask { place: Some(_) });
            let left_again =
                recent[index..].iter().take_while(|s| s.at < self.call.called).any(|s| {
                    s.after == Some(served.token)
                        || matches!(s.request, Request::Release | Request::Keep)
                            && s.token == served.token
                });
            takes_place && Some(served.token) != token && !left_again
        })
    }

    /// Whether no other call of its process may have sent an acquire meanwhile.
    fn is_alone(&self, bounds: &Bounds) -> bool {
        let call = self.call;
        !self.of_key.calls.iter().any(|other| {
            let ended = other.returned.map(|(at, _)| at + bounds.queued);
            let is_other = other.process == call.process && other.id != call.id;
            is_other
                && (other.kind == CallKind::TryLock || other.kind.waits())
                && other.called <= self.until
                && ended.is_none_or(|ended| ended >= call.called)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::TakenIsTrue;
    use crate::history::build::{ASK, JOIN, Tale, tale};
    use crate::history::event::Outcome::{Taken, Unknown};
    use crate::history::event::Request::Release;
    use crate::history::event::{Share, Standing};

    /// The key was held and is free again. Then a client tries.
    fn free() -> Tale {
        let tale = tale().serves(ASK, "H", "", "H").at(1.0).serves(Release, "H", "H", "");
        tale.at(5.0).tries(1)
    }

    #[test]
    fn taken_for_an_error_is_found() {
        free().at(5.5).returns(1, Taken).breaks(TakenIsTrue);
    }

    #[test]
    fn taken_by_its_own_token_is_found() {
        let own = free().sends(1, ASK, "A").at(5.1).serves(ASK, "A", "", "A");
        own.serves(ASK, "A", "A", "A").at(5.5).returns(1, Taken).breaks(TakenIsTrue);
    }

    #[test]
    fn taken_of_a_server_that_grants_nothing_is_found() {
        let refused = |tale: Tale| {
            let tale = tale.sends(1, ASK, "A").at(5.1).serves(ASK, "A", "", "");
            tale.at(5.5).returns(1, Taken)
        };
        refused(free()).breaks(TakenIsTrue);
        let line = tale().serves(JOIN, "H", "", "H").at(4.0).serves(JOIN, "W", "H", "H");
        refused(line.serves(Release, "H", "H", "").at(5.0).tries(1)).passes();
    }

    #[test]
    fn taken_by_another_passes() {
        let asks = || free().sends(1, ASK, "A").at(5.1);
        asks().serves(ASK, "A", "H", "H").at(5.5).returns(1, Taken).passes();
        asks().serves(ASK, "A", "", "B").at(5.5).returns(1, Taken).passes();
        let tale = free().at(5.1).serves(ASK, "A", "H", "H").at(5.5).returns(1, Taken);
        tale.passes();
    }

    #[test]
    fn taken_by_the_holder_from_before_the_call_passes() {
        let tale = tale().serves(ASK, "H", "", "H").at(5.0).tries(1).at(5.5);
        tale.returns(1, Taken).passes();
        let line = crate::history::build::tale().serves(JOIN, "W", "", "").at(2.5).tries(1);
        line.at(5.5).returns(1, Taken).passes();
    }

    #[test]
    fn taken_by_a_lease_or_a_place_that_is_long_over_is_found() {
        let tale = tale().serves(JOIN, "H", "", "H").serves(JOIN, "W", "H", "H").at(10.2).tries(1);
        tale.at(10.5).returns(1, Taken).breaks(TakenIsTrue);
    }

    #[test]
    fn two_calls_of_a_process_that_meet_are_not_judged() {
        let tale = tale().fault("reset").tries(1).at(1.0).returns(1, Unknown);
        let tale = tale.at(1.5).tries(1).sends(1, ASK, "A").serves(ASK, "A", "", "A");
        tale.at(1.6).returns(1, Taken).passes();
    }

    #[test]
    fn taken_of_a_key_that_holders_share_is_true_only_if_another_holds_it_or_waits() {
        let stands = |holders: &[&str], line: &[&str]| {
            let all = |names: &[&str]| {
                names.iter().map(|name| ((*name).into(), Share::Reader)).collect::<Vec<_>>()
            };
            Standing { holders: all(holders), line: all(line), ..Standing::default() }
        };
        let refused = |stands: Standing| {
            let tale = tale().tries(1).sends(1, ASK, "A").at(0.1);
            tale.steps(ASK, "A", stands.clone(), stands).at(0.2).returns(1, Taken)
        };
        refused(stands(&[], &[])).breaks(TakenIsTrue);
        refused(stands(&["A"], &[])).breaks(TakenIsTrue);
        refused(stands(&["B"], &[])).passes();
        let waited = tale().tries(1).sends(1, ASK, "A").at(0.1);
        let waited = waited.steps(ASK, "A", stands(&[], &["B"]), stands(&["B"], &[]));
        waited.at(0.2).returns(1, Taken).passes();
        let unseen = |left: Standing| {
            let tale = tale().steps(ASK, "C", stands(&["C"], &[]), left).at(5.0).tries(1);
            tale.at(5.5).returns(1, Taken)
        };
        unseen(stands(&[], &[])).breaks(TakenIsTrue);
        unseen(stands(&["C"], &[])).passes();
    }

    #[test]
    fn an_answer_of_an_unseen_server_is_not_judged() {
        tale().tries(1).at(1.0).returns(1, Taken).passes();
    }
}
