//! The requests to etcd and its answers, as values.

use super::message::{Fields, Malformed, Message};

/// The most keys that a request reads in one range. A longer answer answers no request of
/// Leasehold.
pub(super) const KEYS_MAX: usize = 2_000;

/// The most ranges that a transaction reads.
const READS_MAX: usize = 4;

/// The most events in one message about a watch. A server sends up to about a thousand.
const EVENTS_MAX: usize = 10_000;

/// Adds to a list that a server fills. A short message must not take much memory.
fn push<T>(list: &mut Vec<T>, item: T, most: usize) -> Result<(), Malformed> {
    if list.len() == most {
        return Err(Malformed);
    }
    list.push(item);
    Ok(())
}

/// The beginning of each answer: the state that it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the last change. It rises with each change, over all keys.
    pub(super) revision: i64,
    /// The term of the leader. A new leader has a higher one.
    pub(super) term: i64,
    pub(super) member: i64,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut header = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (2, value) => header.member = value.number()?,
                (3, value) => header.revision = value.number()?,
                (4, value) => header.term = value.number()?,
                _ => {}
            }
        }
        Ok(header)
    }
}

/// A key with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kv {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The last change of the key.
    pub(super) modified: i64,
    /// The lease with which the key ends.
    pub(super) lease: i64,
}

impl Kv {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut kv = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, value) => kv.key = value.bytes()?.to_vec(),
                (3, value) => kv.modified = value.number()?,
                (5, value) => kv.value = value.bytes()?.to_vec(),
                (6, value) => kv.lease = value.number()?,
                _ => {}
            }
        }
        Ok(kv)
    }
}

/// The keys from one, and up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: Vec<u8>,
    /// The first key after the range; empty for a range of one key.
    pub(super) to: Vec<u8>,
}

impl Range {
    pub(super) const fn one(key: Vec<u8>) -> Self {
        Self { from: key, to: Vec::new() }
    }

    fn on(&self, message: Message, key: u32, end: u32) -> Message {
        let message = message.bytes(key, &self.from);
        if self.to.is_empty() { message } else { message.bytes(end, &self.to) }
    }
}

/// How the keys of a range are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The most keys in the answer; 0 for all.
    pub(super) limit: i64,
    /// Whether the oldest key comes first, instead of the smallest.
    pub(super) by_age: bool,
    /// Whether the answer has no values.
    pub(super) keys_only: bool,
}

/// Reads the keys of a range.
pub(super) fn range(range: &Range, reading: Reading) -> Message {
    let Reading { limit, by_age, keys_only } = reading;
    let (order, target) = if by_age { (1, 2) } else { (0, 0) };
    range
        .on(Message::default(), 1, 2)
        .number(3, limit)
        .number(5, order)
        .number(6, target)
        .flag(8, keys_only)
}

/// The keys of a range, and how many there are without the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranged {
    pub(super) header: Header,
    pub(super) kvs: Vec<Kv>,
    pub(super) count: i64,
}

impl Ranged {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut ranged = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, value) => ranged.header = Header::read(value.bytes()?)?,
                (2, value) => push(&mut ranged.kvs, Kv::read(value.bytes()?)?, KEYS_MAX)?,
                (4, value) => ranged.count = value.number()?,
                _ => {}
            }
        }
        Ok(ranged)
    }
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum If {
    /// No key of the range exists.
    Absent(Range),
    /// The key exists, and this change was its last.
    Modified(Vec<u8>, i64),
}

impl If {
    fn message(&self) -> Message {
        // Each compares for equality, which is the default.
        let by = |target, key: &[u8]| Message::default().number(2, target).bytes(3, key);
        match self {
            // A key that does not exist counts as made by the change 0.
            Self::Absent(range) => range.on(Message::default().number(2, 1), 3, 64),
            Self::Modified(key, revision) => by(2, key).number(6, *revision),
        }
    }
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Do {
    Read(Range, Reading),
    /// Writes a key that ends with the lease.
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lease: i64,
    },
    Delete(Vec<u8>),
}

impl Do {
    fn message(&self) -> Message {
        match self {
            Self::Read(keys, reading) => Message::default().message(1, &range(keys, *reading)),
            Self::Put { key, value, lease } => {
                let put = Message::default().bytes(1, key).bytes(2, value).number(3, *lease);
                Message::default().message(2, &put)
            }
            Self::Delete(key) => {
                let delete = Message::default().bytes(1, key);
                Message::default().message(3, &delete)
            }
        }
    }
}

/// A transaction: does `then` if all conditions hold, and `or_else` otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Txn {
    pub(super) when: Vec<If>,
    pub(super) then: Vec<Do>,
    pub(super) or_else: Vec<Do>,
}

impl Txn {
    pub(super) fn message(&self) -> Message {
        let mut message = Message::default();
        for condition in &self.when {
            message = message.message(1, &condition.message());
        }
        for operation in &self.then {
            message = message.message(2, &operation.message());
        }
        for operation in &self.or_else {
            message = message.message(3, &operation.message());
        }
        message
    }

    /// Whether the transaction only reads. The server does not log such a transaction.
    pub(super) fn only_reads(&self) -> bool {
        let mut operations = self.then.iter().chain(&self.or_else);
        operations.all(|operation| matches!(operation, Do::Read(..)))
    }
}

/// The answer to a transaction: which branch was taken, and what its reads found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TxnDone {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    /// The answers to the reads alone, in their order.
    pub(super) read: Vec<Ranged>,
}

impl TxnDone {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut done = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, value) => done.header = Header::read(value.bytes()?)?,
                (2, value) => done.succeeded = value.number()? != 0,
                (3, value) => {
                    for operation in Fields::of(value.bytes()?) {
                        if let (1, ranged) = operation? {
                            push(&mut done.read, Ranged::read(ranged.bytes()?)?, READS_MAX)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(done)
    }
}

/// Asks for a lease with this number, for this many seconds.
pub(super) fn lease_grant(id: i64, seconds: i64) -> Message {
    Message::default().number(1, seconds).number(2, id)
}

/// Names a lease, to renew it, revoke it, or ask for its time left.
pub(super) fn lease(id: i64) -> Message {
    Message::default().number(1, id)
}

/// The answer about a lease: a grant, a renewal, or its time left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseAnswer {
    pub(super) header: Header,
    /// In seconds. Zero or less if the lease is gone.
    pub(super) ttl: i64,
}

impl LeaseAnswer {
    /// Whether the lease was renewed by the leader of that term.
    pub(super) const fn is_confirmed_in(self, term: i64) -> bool {
        self.ttl > 0 && self.header.term == term
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut answer = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (1, value) => answer.header = Header::read(value.bytes()?)?,
                (3, value) => answer.ttl = value.number()?,
                _ => {}
            }
        }
        Ok(answer)
    }
}

/// Asks for a token of a user.
pub(super) fn authenticate(user: &str, password: &str) -> Message {
    Message::default().bytes(1, user.as_bytes()).bytes(2, password.as_bytes())
}

pub(super) fn read_token(bytes: &[u8]) -> Result<String, Malformed> {
    for field in Fields::of(bytes) {
        if let (2, value) = field? {
            return String::from_utf8(value.bytes()?.to_vec()).map_err(|_| Malformed);
        }
    }
    Err(Malformed)
}

/// The answer of a member about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) version: String,
    /// The member that leads; 0 if none does.
    pub(super) leader: i64,
    /// Alarms and other trouble.
    pub(super) errors: Vec<String>,
}

impl Status {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut status = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (2, value) => status.version = text(value.bytes()?),
                (4, value) => status.leader = value.number()?,
                (8, value) => status.errors.push(text(value.bytes()?)),
                _ => {}
            }
        }
        Ok(status)
    }
}

/// Begins a watch of this number: changes of some keys from a revision on.
pub(super) fn watch(number: i64, keys: &Range, revision: i64) -> Message {
    let create = keys.on(Message::default(), 1, 2).number(3, revision).number(7, number);
    Message::default().message(1, &create)
}

/// Ends a watch.
pub(super) fn unwatch(number: i64) -> Message {
    Message::default().message(2, &Message::default().number(1, number))
}

/// News of one watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) watch: i64,
    pub(super) is_created: bool,
    pub(super) is_cancelled: bool,
    /// The oldest revision that the server still has, if the watch began before it.
    pub(super) compacted: i64,
    pub(super) events: Vec<Event>,
}

/// A change of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) is_delete: bool,
    pub(super) kv: Kv,
}

impl News {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut news = Self::default();
        for field in Fields::of(bytes) {
            match field? {
                (2, value) => news.watch = value.number()?,
                (3, value) => news.is_created = value.number()? != 0,
                (4, value) => news.is_cancelled = value.number()? != 0,
                (5, value) => news.compacted = value.number()?,
                (11, value) => {
                    let mut event = Event::default();
                    for field in Fields::of(value.bytes()?) {
                        match field? {
                            (1, value) => event.is_delete = value.number()? == 1,
                            (2, value) => event.kv = Kv::read(value.bytes()?)?,
                            _ => {}
                        }
                    }
                    push(&mut news.events, event, EVENTS_MAX)?;
                }
                _ => {}
            }
        }
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller without an answer looks for the changes of its transaction.
    #[test]
    fn a_transaction_only_reads_if_neither_branch_writes() {
        let read = || Do::Read(Range::one(b"a".to_vec()), Reading::default());
        let put = || Do::Put { key: b"a".to_vec(), value: Vec::new(), lease: 1 };
        let delete = || Do::Delete(b"a".to_vec());
        for (then, or_else, only_reads) in [
            (vec![], vec![], true),
            (vec![read()], vec![read(), read()], true),
            (vec![read(), put()], vec![read()], false),
            (vec![delete()], vec![], false),
            (vec![read()], vec![delete(), read()], false),
        ] {
            let txn = Txn { when: Vec::new(), then, or_else };
            assert_eq!(txn.only_reads(), only_reads, "{txn:?}");
        }
    }

    #[test]
    fn a_renewal_is_confirmed_by_the_leader_of_its_term_and_while_the_lease_is_there() {
        for (ttl, renewed_in, term, is_confirmed) in
            [(5, 3, 3, true), (1, 3, 3, true), (0, 3, 3, false), (5, 3, 4, false), (5, 4, 3, false)]
        {
            let header = Header { term: renewed_in, ..Header::default() };
            let answer = LeaseAnswer { header, ttl };
            assert_eq!(answer.is_confirmed_in(term), is_confirmed, "{answer:?} in {term}");
        }
    }

    #[test]
    fn an_answer_with_more_than_was_asked_for_is_refused() {
        let of = |field, part: &Message, count: usize| {
            let parts = std::iter::repeat_n(part, count);
            parts.fold(Message::default(), |whole, part| whole.message(field, part))
        };
        let (empty, range) = (Message::default(), of(1, &Message::default(), 1));
        let ranged = |count| Ranged::read(of(2, &empty, count).as_bytes()).is_ok();
        let done = |count| TxnDone::read(of(3, &range, count).as_bytes()).is_ok();
        let news = |count| News::read(of(11, &empty, count).as_bytes()).is_ok();
        assert!(ranged(KEYS_MAX) && done(READS_MAX) && news(EVENTS_MAX));
        assert!(!ranged(KEYS_MAX + 1) && !done(READS_MAX + 1) && !news(EVENTS_MAX + 1));
    }
}
