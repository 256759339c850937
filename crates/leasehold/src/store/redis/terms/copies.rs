//! How many copies a grant needs before it counts. The store asks for them with a `WAIT` after the
//! command, on the same connection. While the server waits for copies, it serves no other request
//! of the connection. So commands that are sent together share one `WAIT` behind them all, if they
//! wait equally long.
//!
//! `WAIT` only waits for earlier writes of its own connection. On any other connection, and on a
//! new one, it would find no write and succeed at once. So the wire sends both commands under
//! one mutex, and their answers are read together.
//!
//! [`Spent`] has the tokens of grants that were released for lack of copies.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{Copies, Replicas};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::store::redis::IN_FLIGHT_MAX;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};
use crate::store::redis::error::{refusal, said};
use crate::store::redis::wire::known::Known;
use crate::store::redis::wire::pipeline::Pending;
use crate::unpoisoned::Unpoisoned;

/// The longest time to wait for copies. A probe behind such a request must wait that long too,
/// before it takes the server for silent.
pub(in crate::store::redis) const WITHIN_MAX: Duration = Duration::from_millis(500);

impl Copies {
    /// The confirmation that must follow a write with this `limit`; `None` if it needs no copies.
    pub(in crate::store::redis) fn confirmation(
        self,
        known: &Known,
        limit: Duration,
    ) -> Option<Confirmation> {
        let replicas = match self.replicas {
            Replicas::Count(count) => count.into(),
            // With such terms, every connection knows the number of replicas.
            Replicas::Majority => known.replicas().unwrap_or(1).div_ceil(2).max(1),
        };
        self.is_any().then_some(Confirmation { replicas, fsync: self.fsync, within: within(limit) })
    }
}

/// How long to wait for copies: half of this limit, or up to an eighth less. There are only a few
/// such spans, so that locks of almost the same ttl share one `WAIT`.
fn within(limit: Duration) -> Duration {
    let mut ms = WITHIN_MAX.as_millis();
    while ms > (limit / 2).as_millis() {
        ms -= ms.div_ceil(8);
    }
    Duration::from_millis(u64::try_from(ms).expect("half a second at most"))
}

/// The request for copies after a write. On one connection, only the spans differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Confirmation {
    replicas: u32,
    fsync: bool,
    within: Duration,
}

impl Confirmation {
    /// How long to wait for copies.
    pub(in crate::store::redis) const fn within(self) -> Duration {
        self.within
    }

    /// The command that waits for copies. `waited` is how long the server already waited for copies
    /// of the same writes.
    pub(in crate::store::redis) fn command(self, waited: Duration) -> Command {
        let left = self.within.saturating_sub(waited);
        // Zero would mean no limit.
        let ms = u64::try_from(left.as_millis()).expect("half a second at most").max(1);
        let command =
            if self.fsync { Command::new("WAITAOF").arg("1") } else { Command::new("WAIT") };
        command.number(self.replicas.into()).number(ms)
    }

    /// Reads the answer.
    fn verdict(self, answer: Result<Value, NoAnswer>) -> Result<Confirmed, NoAnswer> {
        let (local, replicas) = match answer {
            Ok(Value::Int(replicas)) if !self.fsync => (1, replicas),
            Ok(Value::Array(counts)) if self.fsync => match counts[..] {
                [Value::Int(local), Value::Int(replicas)] => (local, replicas),
                _ => return Ok(Err(strange())),
            },
            Ok(_) => return Ok(Err(strange())),
            Err(NoAnswer::Refused { code, text }) => {
                let kind = match refusal(&code, &text).kind() {
                    ErrorKind::Unknown => ErrorKind::Unavailable,
                    kind => kind,
                };
                let what = "the server refused to report the copies of the write".to_owned();
                let next = match (code.as_str(), self.fsync) {
                    ("NOPERM", true) => "allow the user `+waitaof`",
                    ("NOPERM", false) => "allow the user `+wait`",
                    _ => "see the cause",
                };
                return Ok(Err(Shortfall { kind, what, next, said: Some(text) }));
            }
            // The write was sent before, and nobody knows whether it arrived.
            Err(NoAnswer::NotSent { reason } | NoAnswer::Broken { reason }) => {
                return Err(NoAnswer::Broken { reason });
            }
        };
        let Self { replicas: wanted, within, .. } = self;
        if local < 1 {
            let what = format!("the server did not have the write on disk within {within:?}");
            let next = "check that `appendfsync always` is set and the disk keeps up";
            return Ok(Err(short(what, next)));
        }
        if replicas < i64::from(wanted) {
            let what =
                format!("only {replicas} of {wanted} replicas confirmed the write in {within:?}");
            return Ok(Err(short(what, "check that the replicas follow")));
        }
        Ok(Ok(()))
    }
}

fn short(what: String, next: &'static str) -> Shortfall {
    Shortfall { kind: ErrorKind::Unavailable, what, next, said: None }
}

fn strange() -> Shortfall {
    let what = "the server's answer about copies of the write is not understood".to_owned();
    short(what, "check that this is a Redis or Valkey server")
}

/// Whether there are enough copies.
pub(in crate::store::redis) type Confirmed = Result<(), Shortfall>;

/// The error of a write that has too few copies, or for which the server did not say how many.
#[derive(Debug)]
pub(in crate::store::redis) struct Shortfall {
    kind: ErrorKind,
    what: String,
    /// The advice to the user.
    next: &'static str,
    said: Option<String>,
}

impl Shortfall {
    /// The error for a grant that was released.
    pub(in crate::store::redis) fn granted(self) -> Error {
        let state = "; the grant was released; ";
        self.told("not granted: ", state, ", and try again")
    }

    /// The error for a grant that could not be released.
    pub(in crate::store::redis) fn left_behind(self, cause: Error) -> Error {
        let message = format!(
            "granted, but {}; the release is not confirmed; inspect the lock, or wait for one ttl",
            self.what
        );
        Error::new(ErrorKind::Unknown, message).with_source(cause)
    }

    /// The error for a renewal.
    pub(in crate::store::redis) fn renewed(self) -> Error {
        let state = "; the holder may act until its deadline, and the client retries until then; ";
        self.told("renewed on the server, but ", state, "")
    }

    /// The error for a lease that was kept under another token.
    pub(in crate::store::redis) fn kept(self) -> Error {
        self.told("kept for the next, but ", "; release both tokens, and ", "")
    }

    fn told(self, before: &str, state: &str, after: &str) -> Error {
        let message = [before, &self.what, state, self.next, after].concat();
        let error = Error::new(self.kind, message);
        match self.said {
            Some(text) => error.with_source(said(&text)),
            None => error,
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(in crate::store::redis) struct Reply {
    pub(in crate::store::redis) value: Value,
    /// Whether there are enough copies of the write. `Ok` if none were asked for.
    pub(in crate::store::redis) confirmed: Confirmed,
}

/// The answers to a command and to its request for copies, if there is one. A refused command needs
/// no copies.
pub(in crate::store::redis) struct Replying {
    answer: Pending,
    value: Option<Value>,
    confirming: Option<(Confirmation, Pending)>,
}

impl Replying {
    pub(in crate::store::redis) fn new(
        answer: Pending,
        confirming: Option<(Confirmation, Pending)>,
    ) -> Self {
        Self { answer, value: None, confirming }
    }
}

impl Future for Replying {
    type Output = Result<Reply, NoAnswer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.value.is_none() {
            this.value = Some(ready!(Pin::new(&mut this.answer).poll(cx))?);
        }
        let confirmed = match &mut this.confirming {
            Some((confirmation, answer)) => {
                confirmation.verdict(ready!(Pin::new(answer).poll(cx)))?
            }
            None => Ok(()),
        };
        let value = this.value.take().expect("it was just put there");
        Poll::Ready(Ok(Reply { value, confirmed }))
    }
}

/// How many tokens are remembered, the newest ones. If one `WAIT` falls short, the tokens of all
/// requests in flight are spent. Twice as many are remembered, so no token is forgotten before a
/// second such `WAIT`.
const SPENT_MAX: usize = 2 * IN_FLIGHT_MAX;

/// Tokens whose grants were released because there were too few copies, newest last. Such a release
/// may arrive late or twice. It would then end a newer grant of the same token, so the token must
/// not be used again.
///
/// A session then goes on with a fresh token. A quorum, though, asks each node with the same token
/// for as long as it waits. It also uses the token of the lease when it asks a node that lacks the
/// lease.
///
/// Only a fingerprint of 64 bits is kept of each. There are 2^17 of them at most, so another token
/// looks spent with odds of 1 to 2^47. Then an ask is refused without need, or a lease counts as
/// lost.
#[derive(Default)]
pub(in crate::store::redis) struct Spent {
    hasher: RandomState,
    tokens: Unpoisoned<Tokens>,
}

/// The fingerprints of pairs of a key and a token, oldest first in `order`.
#[derive(Default)]
struct Tokens {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Spent {
    pub(in crate::store::redis) fn add(&self, key: &Key, token: &OwnerToken) {
        let print = self.print(key, token);
        let mut spent = self.tokens.lock();
        if !spent.known.insert(print) {
            return;
        }
        spent.order.push_back(print);
        if spent.order.len() > SPENT_MAX
            && let Some(oldest) = spent.order.pop_front()
        {
            spent.known.remove(&oldest);
        }
    }

    /// The error if this token must not be used again for that key. `None` if it may be used.
    pub(in crate::store::redis) fn look(&self, key: &Key, token: &OwnerToken) -> Option<Error> {
        if !self.tokens.lock().known.contains(&self.print(key, token)) {
            return None;
        }
        let message = "the grant of this owner token was released, since it had too few copies; no \
                       request was sent; use a fresh token";
        Some(Error::new(ErrorKind::Unavailable, message).with_name(key.as_str()))
    }

    fn print(&self, key: &Key, token: &OwnerToken) -> u64 {
        self.hasher.hash_one((key, token))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    fn confirmation(copies: Copies, replicas: Option<u32>, limit_ms: u64) -> Option<Confirmation> {
        copies.confirmation(&Known::new(None, replicas), Duration::from_millis(limit_ms))
    }

    fn words(copies: Copies, replicas: Option<u32>, limit_ms: u64) -> String {
        let asked = confirmation(copies, replicas, limit_ms).expect("it is asked for");
        let command = asked.command(Duration::ZERO);
        let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        words.join(" ")
    }

    #[test]
    fn a_wait_for_copies_takes_at_most_half_of_the_limit_and_always_ends() {
        let of = Copies::new;
        assert_eq!(confirmation(Copies::default(), Some(5), 1_000), None);
        assert_eq!(words(of(Replicas::Count(2), false), None, 1_000), "WAIT 2 500");
        assert_eq!(words(of(Replicas::Count(1), false), None, 0), "WAIT 1 1");
        assert_eq!(words(of(Replicas::Count(1), false), None, 60_000), "WAIT 1 500");
        assert_eq!(words(of(Replicas::Count(0), true), None, 1_000), "WAITAOF 1 0 500");
        assert_eq!(words(of(Replicas::Count(3), true), None, 1_000), "WAITAOF 1 3 500");
    }

    #[test]
    fn copies_have_half_of_the_limit_or_up_to_an_eighth_less_and_few_spans_are_in_use() {
        let span = |limit| within(Duration::from_millis(limit)).as_millis();
        for (limit, expected) in [(25, 12), (225, 112), (500, 223), (999, 437), (1_000, 500)] {
            assert_eq!(span(limit), expected, "{limit}");
        }
        for limit in 0..=1_000 {
            let half = u128::from(limit / 2);
            assert!(span(limit) <= half && 8 * span(limit) >= 7 * half, "{limit}");
        }
        let spans: HashSet<_> = (25..=1_000).map(span).collect();
        assert!(spans.len() <= 30, "{spans:?}");
    }

    #[test]
    fn the_server_and_the_replicas_that_confirm_are_a_majority_of_all() {
        for replicas in 0..20 {
            let copies = Copies::new(Replicas::Majority, false);
            let asked = confirmation(copies, Some(replicas), 1_000).expect("it is asked for");
            assert!(2 * (asked.replicas + 1) > replicas + 1, "{replicas}: {asked:?}");
            let is_least = 2 * asked.replicas <= replicas + 1;
            assert!(asked.replicas == 1 || is_least, "{replicas}: {asked:?}");
            assert!(asked.replicas >= 1, "a primary on its own is not a majority of anything");
        }
    }

    fn said(text: &str) -> Result<Value, NoAnswer> {
        let code = text.split(' ').next().unwrap_or_default().to_owned();
        Err(NoAnswer::Refused { code, text: text.to_owned() })
    }

    #[test]
    fn too_few_copies_are_a_shortfall_whatever_the_server_says() {
        const REPLICAS: &str = "check that the replicas follow";
        const DISK: &str = "check that `appendfsync always` is set and the disk keeps up";
        const STRANGE: &str = "check that this is a Redis or Valkey server";
        let late = |says, next| Some((ErrorKind::Unavailable, says, next));
        let denied = |says, next| Some((ErrorKind::Denied, says, next));
        let (memory, disk) =
            (Copies::new(Replicas::Count(2), false), Copies::new(Replicas::Count(1), true));
        let counts =
            |local, replicas| Ok(Value::Array(vec![Value::Int(local), Value::Int(replicas)]));
        let noperm = "NOPERM this user has no permissions to run the 'wait' command";
        let table = [
            (memory, Ok(Value::Int(2)), None),
            (memory, Ok(Value::Int(3)), None),
            (memory, Ok(Value::Int(1)), late("only 1 of 2 replicas", REPLICAS)),
            (memory, Ok(Value::Nil), late("not understood", STRANGE)),
            (memory, counts(1, 2), late("not understood", STRANGE)),
            (memory, said(noperm), denied("refused to report", "allow the user `+wait`")),
            (memory, said("ERR oh"), late("refused to report", "see the cause")),
            (disk, counts(1, 1), None),
            (disk, counts(0, 1), late("not have the write on disk within 500ms", DISK)),
            (disk, counts(1, 0), late("only 0 of 1 replicas", REPLICAS)),
            (disk, Ok(Value::Int(1)), late("not understood", STRANGE)),
            (disk, said(noperm), denied("refused to report", "allow the user `+waitaof`")),
        ];
        for (copies, answer, expected) in table {
            let asked = confirmation(copies, None, 1_000).expect("it is asked for");
            let short = || asked.verdict(answer.clone()).expect("it is answered").err();
            assert_eq!(short().is_some(), expected.is_some(), "{answer:?}");
            let (Some(granted), Some((kind, says, next))) = (short(), expected) else { continue };
            let (renewed, kept) = (short().expect("again"), short().expect("again"));
            let granted = granted.granted();
            assert_eq!(granted.kind(), kind, "{answer:?}: {granted}");
            let text = granted.to_string();
            assert!(text.starts_with("not granted: ") && text.contains(says), "{text}");
            let end = format!("; the grant was released; {next}, and try again");
            assert!(text.ends_with(&end), "{text}");
            let text = renewed.renewed().to_string();
            let end = format!("until its deadline, and the client retries until then; {next}");
            assert!(text.contains(says) && text.ends_with(&end), "{text}");
            let text = kept.kept().to_string();
            let end = format!("; release both tokens, and {next}");
            assert!(text.contains(says) && text.ends_with(&end), "{text}");
        }
    }

    fn answered(answer: Result<Value, NoAnswer>) -> Pending {
        let (sender, pending) = oneshot::channel();
        sender.send(answer).expect("it is waited for");
        Pending(pending)
    }

    /// The write was sent before, so its outcome is unknown.
    #[test]
    fn a_connection_that_ends_before_both_are_answered_leaves_the_outcome_open() {
        let asked = confirmation(Copies::new(Replicas::Count(1), false), None, 1_000);
        let asked = asked.expect("it is asked for");
        let reason = || "it ended".to_owned();
        let ends = [NoAnswer::Broken { reason: reason() }, NoAnswer::NotSent { reason: reason() }];
        for end in ends {
            let confirming = Some((asked, answered(Err(end))));
            let reply = Replying::new(answered(Ok(Value::Int(1))), confirming);
            let reply = reply.now_or_never().expect("it has ended").map(|reply| reply.value);
            assert_eq!(reply, Err(NoAnswer::Broken { reason: reason() }));
        }
    }

    #[test]
    fn a_request_that_was_refused_does_not_wait_for_copies() {
        let asked = confirmation(Copies::new(Replicas::Count(1), false), None, 1_000);
        let mut senders = Vec::new();
        let mut waiting = || {
            let (sender, pending) = oneshot::channel();
            senders.push(sender);
            asked.map(|asked| (asked, Pending(pending)))
        };
        let reply = Replying::new(answered(said("NOSCRIPT no")), waiting());
        let reply = reply.now_or_never().expect("it is answered");
        assert!(matches!(reply, Err(NoAnswer::Refused { .. })), "{reply:?}");
        let reply = Replying::new(answered(Ok(Value::Int(1))), waiting());
        assert!(reply.now_or_never().is_none(), "a grant does");
    }

    #[test]
    fn the_last_tokens_are_remembered_for_their_key() {
        let token = |number: usize| OwnerToken::new(format!("token-{number}")).expect("a token");
        let [key, other] = ["a", "b"].map(|name| Key::new(name).expect("a name"));
        let spent = Spent::default();
        for number in 0..=SPENT_MAX {
            assert!(spent.look(&key, &token(number)).is_none(), "it is not spent yet");
            spent.add(&key, &token(number));
            let error = spent.look(&key, &token(number)).expect("it is");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(spent.look(&other, &token(number)).is_none(), "it is another lock");
        }
        assert!(spent.look(&key, &token(0)).is_none(), "it is forgotten");
        assert!(spent.look(&key, &token(1)).is_some(), "it is remembered");
    }
}
