//! Requests that wait together, as one message.
//!
//! Requests that come while a message is under way wait for its answer, and are then sent together.
//! That saves a round trip for each of them. On PostgreSQL, a message is also one transaction, and
//! so are the renewals of a message on MySQL. A server writes each commit to its disk, which takes
//! milliseconds. With one commit for each renewal, a client could keep no more than some hundred
//! leases.
//!
//! A step locks the row of its key until the commit. All clients send the steps of a message in the
//! order of their keys, so two messages never wait for each other. If one step is refused, the
//! server does not carry out the other steps of its transaction, nor the steps after it. The caller
//! of the refused step gets the error, and the other steps are sent again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::errors::strange;
use super::row::{Answer, Row};
use crate::core::error::Error;
use crate::core::key::Key;

/// The most requests in one message.
pub(in crate::store) const SIZE_MAX: usize = 100;

/// How much of SQL one message has at most, unless a single request is longer.
const SQL_BYTES_MAX: usize = 256 * 1024;

/// The most looks in one message. Each may have a long answer, and a client takes at most 8 MiB.
const LOOKS_MAX: usize = 8;

/// After a message that took longer, the next one has fewer requests. Until a message ends, none of
/// its callers has an answer, and its rows stay locked.
const SLOW: Duration = Duration::from_millis(200);

/// A message that took less time is followed by one with up to twice as many requests.
const FAST: Duration = Duration::from_millis(50);

/// The requests of one message that have no answer yet, in the order in which they are sent.
pub(in crate::store) struct Batch(VecDeque<Request>);

impl Batch {
    /// The requests as SQL.
    pub(in crate::store) fn sql(&self) -> String {
        let texts: Vec<_> = self.0.iter().map(|request| &*request.sql).collect();
        texts.join(";")
    }

    /// The entries of one list, if the requests are [`Listed`](Work::Listed).
    #[cfg(any(feature = "mysql", test))]
    pub(in crate::store) fn list(&self) -> Option<Vec<&str>> {
        let are_entries = self.0.iter().all(|it| matches!(it.work, Work::Listed(_)));
        are_entries.then(|| self.0.iter().map(|it| &*it.sql).collect())
    }

    /// Tells the caller of the first request its answer.
    pub(in crate::store) fn answer(&mut self, rows: Vec<Row>) {
        if let Some(request) = self.0.pop_front() {
            drop(request.reply.send(Ok(rows)));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A request on its way.
pub(super) struct Request {
    pub(super) sql: String,
    pub(super) work: Work,
    pub(super) stage: Arc<Sending>,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// The kind of a request. It decides which others may be in its message.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Locks the row of this key, and no other. Shares a message with other steps.
    Step(Key),
    /// A step that is an entry of a list. Shares one call with other such steps.
    Listed(Key),
    /// Locks nothing. Shares a message only with other looks. Its answer may be long, and a client
    /// that does not read it would keep the rows of all steps of the message locked.
    Look,
    /// Anything else. Has a message of its own.
    Alone,
}

impl Work {
    const fn goes_with(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Step(_), Self::Step(_))
                | (Self::Listed(_), Self::Listed(_))
                | (Self::Look, Self::Look)
        )
    }
}

/// How far a request is.
#[derive(Default)]
pub(super) struct Sending(AtomicU8);

impl Sending {
    const QUEUED: u8 = 0;
    const SENT: u8 = 1;
    /// The server rolled it back, and it waits to be sent again.
    const ROLLED_BACK: u8 = 2;
    const TAKEN_BACK: u8 = 3;

    /// Marks the request as sent. Returns whether it was still in a queue.
    pub(super) fn is_sent_now(&self) -> bool {
        let sent = |stage| matches!(stage, Self::QUEUED | Self::ROLLED_BACK).then_some(Self::SENT);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, sent).is_ok()
    }

    /// Takes the request back, because its caller gives up. It is not sent any more. Returns where
    /// it was.
    pub(super) fn take_back(&self) -> Whereabouts {
        match self.0.swap(Self::TAKEN_BACK, Ordering::AcqRel) {
            Self::QUEUED => Whereabouts::Queue,
            Self::ROLLED_BACK => Whereabouts::QueueAgain,
            _ => Whereabouts::Server,
        }
    }

    /// Notes that the server rolled the request back. It is in a queue again, unless its caller
    /// gave up.
    fn was_rolled_back(&self) {
        let (from, to) = (Self::SENT, Self::ROLLED_BACK);
        // If the caller gave up, the request stays taken back.
        let _given_up = self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Where a request was when its caller gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// The request was never sent.
    Queue,
    /// The request was sent, and may have taken effect.
    Server,
    /// The server had rolled it back because of another request.
    QueueAgain,
}

/// Takes the requests of the next message from the queue, in the order of their keys. Requests
/// about one key keep their order. Requests that their callers took back are left out.
pub(super) fn take(queue: &mut VecDeque<Request>, size: usize) -> Batch {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(next) = queue.front() {
        bytes += next.sql.len();
        let fits = batch.last().is_none_or(|last: &Request| {
            let most = if last.work == Work::Look { size.min(LOOKS_MAX) } else { size };
            let has_room = batch.len() < most && bytes <= SQL_BYTES_MAX;
            has_room && next.work.goes_with(&last.work)
        });
        if !fits {
            break;
        }
        let Some(request) = queue.pop_front() else { break };
        if request.stage.is_sent_now() {
            batch.push(request);
        }
    }
    batch.sort_by(|one, other| one.work.cmp(&other.work));
    Batch(batch.into())
}

/// How many requests the next message may have, after one of up to `size` requests. `took`: how
/// long that one took beyond a round trip. `is_done`: whether it was carried out.
pub(super) fn next_size(size: usize, took: Duration, is_done: bool) -> usize {
    if took > SLOW && !is_done {
        // The message may have waited for a row while it had locked other rows. Its requests are
        // sent again, one by one at first.
        1
    } else if took > SLOW {
        (size / 2).max(1)
    } else if took < FAST {
        (size * 2).min(SIZE_MAX)
    } else if is_done {
        (size + 1).min(SIZE_MAX)
    } else {
        size
    }
}

/// Why requests of a message have no answer.
pub(in crate::store) struct Refused {
    /// Which request was refused, counted from zero. For a list this is its first entry, since the
    /// server does not say which one it refused.
    pub(in crate::store) at: usize,
    /// Why the request was refused, and whether it may have changed something.
    pub(in crate::store) error: Error,
    /// Whether it is certain that the other requests changed nothing.
    pub(in crate::store) spares_others: bool,
    /// Whether the connection is of no use any more.
    pub(in crate::store) ends_connection: bool,
}

/// The work that is left after a message has ended.
pub(super) struct Over {
    /// The requests to send again. It is certain that another request kept them from being carried
    /// out.
    pub(super) again: Vec<Request>,
    /// Whether the message was carried out.
    pub(super) is_done: bool,
    /// Whether the connection is of no use any more.
    pub(super) ends_connection: bool,
}

/// Ends a message. Tells the callers without an answer why they have none.
pub(super) fn end(ended: Result<(), Refused>, label: &str, batch: Batch) -> Over {
    let mut left = Vec::from(batch.0);
    let Err(Refused { at, error, spares_others, ends_connection }) = ended else {
        tell(left, &strange("not one answer for each request").at(label));
        return Over { again: Vec::new(), is_done: true, ends_connection: false };
    };
    let error = error.at(label);
    let mut again = Vec::new();
    if spares_others && left.len() > 1 {
        // If the commit was refused, `at` is behind the last step.
        let refused = left.remove(at.min(left.len() - 1));
        again = std::mem::replace(&mut left, vec![refused]);
        // These requests may wait for long, and their callers may give up meanwhile.
        again.iter().for_each(|request| request.stage.was_rolled_back());
    }
    tell(left, &error);
    Over { again, is_done: false, ends_connection }
}

/// Tells the callers of all these requests the same error.
fn tell(requests: Vec<Request>, error: &Error) {
    for request in requests {
        drop(request.reply.send(Err(error.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sql: &str, key: Option<&str>) -> Request {
        let (reply, _nobody) = oneshot::channel();
        let work = key.map_or(Work::Alone, |name| Work::Step(Key::new(name).expect("a key")));
        Request { sql: sql.to_owned(), work, stage: Arc::default(), reply }
    }

    fn listed(sql: &str, name: &str) -> Request {
        Request { work: Work::Listed(Key::new(name).expect("a key")), ..request(sql, None) }
    }

    fn look() -> Request {
        Request { work: Work::Look, ..request("look", None) }
    }

    #[test]
    fn a_message_is_a_list_if_all_its_requests_are_entries() {
        let list =
            |requests: [Request; 2]| take(&mut requests.into(), 100).list().map(|it| it.join(" "));
        assert_eq!(list([listed("1", "b"), listed("2", "a")]).as_deref(), Some("2 1"));
        assert_eq!(list([request("1", Some("b")), request("2", Some("a"))]), None);
    }

    fn taken(requests: Vec<Request>, size: usize) -> (Vec<String>, usize) {
        let mut queue = VecDeque::from(requests);
        let batch = take(&mut queue, size);
        (batch.0.into_iter().map(|it| it.sql).collect(), queue.len())
    }

    #[test]
    fn a_message_is_in_the_order_of_keys_and_each_key_keeps_its_order() {
        let queue = [("1", "b"), ("2", "a"), ("3", "b"), ("4", "a")];
        let requests = queue.map(|(sql, key)| request(sql, Some(key)));
        assert_eq!(
            taken(requests.into(), 100),
            (["2", "4", "1", "3"].map(str::to_owned).into(), 0)
        );
    }

    #[test]
    fn a_message_ends_at_its_size_at_its_bytes_and_at_a_request_that_does_something_else() {
        let long = "x".repeat(SQL_BYTES_MAX);
        let a = || request("1", Some("a"));
        let alone = || request("2", None);
        for (requests, size, (count, left)) in [
            (vec![a(), a(), a()], 2, (2, 1)),
            (vec![a(), alone(), a()], 100, (1, 2)),
            (vec![alone(), a()], 100, (1, 1)),
            (vec![a(), request(&long, Some("b"))], 100, (1, 1)),
            (vec![request(&long, Some("b")), a()], 100, (1, 1)),
            (vec![look(), look(), a(), look()], 100, (2, 2)),
            (vec![a(), look(), look()], 100, (1, 2)),
            (vec![alone(), look()], 100, (1, 1)),
            ((0..20).map(|_| look()).collect(), 100, (LOOKS_MAX, 20 - LOOKS_MAX)),
            (vec![look(), look()], 1, (1, 1)),
            (vec![listed("1", "a"), listed("2", "b"), a()], 100, (2, 1)),
            (vec![a(), listed("1", "a")], 100, (1, 1)),
            (vec![], 100, (0, 0)),
        ] {
            let (batch, rest) = taken(requests, size);
            assert_eq!((batch.len(), rest), (count, left));
        }
    }

    #[test]
    fn a_request_that_was_taken_back_is_not_sent() {
        let gone = request("1", Some("a"));
        assert_eq!(gone.stage.take_back(), Whereabouts::Queue);
        let sent = request("2", Some("b"));
        let stage = Arc::clone(&sent.stage);
        assert_eq!(taken(vec![gone, sent], 100), (vec!["2".to_owned()], 0));
        assert_eq!(stage.take_back(), Whereabouts::Server);
    }

    #[test]
    fn a_request_that_was_rolled_back_with_others_is_sent_again_unless_its_caller_gave_up() {
        let queue = ["a", "b", "c", "d"].map(|key| request(key, Some(key)));
        let batch = take(&mut queue.into(), 100);
        assert_eq!(batch.0[3].stage.take_back(), Whereabouts::Server);
        let error = Error::new(crate::core::error::ErrorKind::Unavailable, "the row is locked");
        let refused = |spares_others| {
            let error = error.clone();
            Err(Refused { at: 1, error, spares_others, ends_connection: false })
        };
        let again = end(refused(true), "here", batch).again;
        assert_eq!(again.iter().map(|it| &*it.sql).collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(again[0].stage.take_back(), Whereabouts::QueueAgain);
        assert_eq!(again.iter().filter(|it| it.stage.is_sent_now()).count(), 1, "c");
        assert_eq!(again[1].stage.take_back(), Whereabouts::Server);
        assert!(end(refused(false), "here", Batch(again.into())).again.is_empty());
    }

    /// A commit may be refused, after all steps were carried out.
    #[test]
    fn a_refused_commit_is_the_refusal_of_the_last_step_and_the_others_are_sent_again() {
        for (at, again, refused) in [(0, "b c", "a"), (2, "a b", "c"), (3, "a b", "c")] {
            let mut told = Vec::new();
            let queue = ["a", "b", "c"].map(|key| {
                let (reply, answer) = oneshot::channel();
                told.push((key, answer));
                Request { reply, ..request(key, Some(key)) }
            });
            let batch = take(&mut queue.into(), 100);
            let error = Error::new(crate::core::error::ErrorKind::Unavailable, "the disk is full");
            let over = end(
                Err(Refused { at, error, spares_others: true, ends_connection: false }),
                "here",
                batch,
            );
            let sent: Vec<_> = over.again.iter().map(|it| &*it.sql).collect();
            assert_eq!(sent.join(" "), again, "{at}");
            told.retain_mut(|(_, answer)| answer.try_recv().is_ok());
            let told: Vec<_> = told.into_iter().map(|(key, _)| key).collect();
            assert_eq!(told, [refused], "{at}");
        }
    }

    #[test]
    fn messages_to_a_slow_server_become_shorter_and_then_longer_again() {
        let ms = Duration::from_millis;
        for (size, took, is_done, next) in [
            (100, ms(10), true, 100),
            (100, ms(100), true, 100),
            (100, ms(300), true, 50),
            (1, ms(300), true, 1),
            (1, ms(100), true, 2),
            (2, ms(190), true, 3),
            (1, ms(10), true, 2),
            (64, ms(10), true, 100),
            (100, ms(300), false, 1),
            (100, ms(60), false, 100),
        ] {
            assert_eq!(next_size(size, took, is_done), next, "{size} {took:?} {is_done}");
        }
    }
}
