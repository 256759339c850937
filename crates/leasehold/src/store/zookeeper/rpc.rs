//! The requests to ZooKeeper and its answers, as values.

use super::jute::{Malformed, Message, Reader};
use crate::store::net::Effect;

/// The numbers of the requests.
mod kind {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const SET_DATA: i32 = 5;
    pub(super) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    /// The children of a node with its own numbers.
    pub(super) const GET_CHILDREN: i32 = 12;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const AUTH: i32 = 100;
    pub(super) const CLOSE: i32 = -11;
}

/// The numbers of messages that answer no request of a step.
pub(super) mod xid {
    pub(in crate::store::zookeeper) const EVENT: i32 = -1;
    pub(in crate::store::zookeeper) const PING: i32 = -2;
    pub(in crate::store::zookeeper) const AUTH: i32 = -4;
}

/// All rights.
const ALL: i32 = 31;

/// Any version of a node.
const ANY: i32 = -1;

/// The event of a node that was deleted.
const DELETED: i32 = 2;

/// The clients that may use the nodes that a store makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acl {
    Everybody,
    /// Every client with this login.
    Creator,
}

/// The kind of node that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The node stays until somebody deletes it.
    Lasting,
    /// The node ends by itself once its children are gone.
    Container,
    /// The node ends with its session. The server appends a number to its name.
    Numbered,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    kind: i32,
    body: Message,
    pub(super) effect: Effect,
}

impl Request {
    fn reads(kind: i32, body: Message) -> Self {
        Self { kind, body, effect: Effect::Nothing }
    }

    fn changes(kind: i32, body: Message) -> Self {
        Self { kind, body, effect: Effect::Changes }
    }

    /// Appends the request and its number, `xid`, to `into`.
    pub(super) fn frame(&self, xid: i32, into: &mut Vec<u8>) {
        self.body.frame_behind(&[xid, self.kind], into);
    }
}

/// Makes a node. Answered by its path.
pub(super) fn create(path: &str, data: &[u8], acl: Acl, node: Node) -> Request {
    let (kind, flags) = match node {
        Node::Lasting => (kind::CREATE, 0),
        Node::Numbered => (kind::CREATE, 3),
        Node::Container => (kind::CREATE_CONTAINER, 4),
    };
    let (scheme, id) = match acl {
        Acl::Everybody => ("world", "anyone"),
        Acl::Creator => ("auth", ""),
    };
    let body = Message::default().text(path).bytes(data);
    Request::changes(kind, body.int(1).int(ALL).text(scheme).text(id).int(flags))
}

pub(super) fn delete(path: &str) -> Request {
    Request::changes(kind::DELETE, Message::default().text(path).int(ANY))
}

/// A change that fails. Below this node, it deletes a node that nobody makes, with a version that
/// no node has.
pub(super) fn fail_below(path: &str) -> Request {
    let path = format!("{path}/nobody");
    Request::changes(kind::DELETE, Message::default().text(&path).int(i32::MIN))
}

/// Writes the data of a node if it still has this version. Answered by its [`Stat`].
pub(super) fn set_data(path: &str, data: &[u8], version: i32) -> Request {
    Request::changes(kind::SET_DATA, Message::default().text(path).bytes(data).int(version))
}

/// Several changes, all of them or none.
pub(super) fn multi(changes: &[Request]) -> Request {
    let mut body = Message::default();
    for change in changes {
        body = body.int(change.kind).flag(false).int(ANY).then(&change.body);
    }
    Request::changes(kind::MULTI, body.int(-1).flag(true).int(ANY))
}

/// Answered by the [`Stat`] of a node.
pub(super) fn exists(path: &str) -> Request {
    Request::reads(kind::EXISTS, Message::default().text(path).flag(false))
}

/// Answered by the data of a node, and its [`Stat`].
pub(super) fn get_data(path: &str) -> Request {
    Request::reads(kind::GET_DATA, Message::default().text(path).flag(false))
}

/// Answered by the names of the children of a node, and its [`Stat`]. `watches`: an event is sent
/// when the node is deleted, or has other children.
pub(super) fn children(path: &str, watches: bool) -> Request {
    Request::reads(kind::GET_CHILDREN, Message::default().text(path).flag(watches))
}

/// Makes the next read at least as new as the leader's state when this request arrived there.
pub(super) fn sync(path: &str) -> Request {
    Request::reads(kind::SYNC, Message::default().text(path))
}

/// Ends the session, and deletes its nodes.
pub(super) fn close() -> Request {
    Request::changes(kind::CLOSE, Message::default())
}

pub(super) fn ping() -> Message {
    Message::default().int(xid::PING).int(kind::PING)
}

/// A login with the scheme `digest`.
pub(super) fn login(user: &str, password: &str) -> Message {
    let secret = format!("{user}:{password}");
    let head = Message::default().int(xid::AUTH).int(kind::AUTH);
    head.int(0).text("digest").text(&secret)
}

/// A session, as a client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) id: i64,
    pub(super) password: [u8; 16],
}

/// Begins a session, or goes on with one.
pub(super) fn connect(ticket: Option<Ticket>, seen: i64, timeout_ms: i32) -> Message {
    let Ticket { id, password } = ticket.unwrap_or(Ticket { id: 0, password: [0; 16] });
    let head = Message::default().int(0).long(seen).int(timeout_ms).long(id);
    // A server without a majority is of no use.
    head.bytes(&password).flag(false)
}

/// The answer to [`connect`]: the session and its timeout in milliseconds. `None` if it has ended.
pub(super) fn read_connected(answer: &[u8]) -> Result<Option<(Ticket, u32)>, Malformed> {
    let mut reader = Reader::new(answer);
    let (0, timeout, id) = (reader.int()?, reader.int()?, reader.long()?) else {
        return Err(Malformed);
    };
    let password = reader.bytes()?.try_into().map_err(|_| Malformed)?;
    let timeout = u32::try_from(timeout).map_err(|_| Malformed)?;
    Ok((timeout > 0).then_some((Ticket { id, password }, timeout)))
}

/// The head of each answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) xid: i32,
    /// The last change that the server knew.
    pub(super) zxid: i64,
    /// The code of an error, or zero.
    pub(super) code: i32,
}

impl Head {
    /// How many bytes it has.
    pub(super) const LENGTH: usize = 16;

    pub(super) fn read(answer: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(answer);
        Ok(Self { xid: reader.int()?, zxid: reader.long()?, code: reader.int()? })
    }
}

/// The path of a node that an event says is gone. `None` for other events.
pub(super) fn read_event(body: &[u8]) -> Result<Option<String>, Malformed> {
    let mut reader = Reader::new(body);
    let (kind, _state) = (reader.int()?, reader.int()?);
    let path = reader.text()?;
    Ok((kind == DELETED).then(|| path.to_owned()))
}

/// The numbers of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// The change that made it.
    pub(super) created: i64,
    /// The last change of its data.
    pub(super) modified: i64,
    /// The time of that change by the clock of the leader, in milliseconds since 1970.
    pub(super) modified_ms: i64,
    /// How often its data was written since it was made.
    pub(super) version: i32,
    /// For an ephemeral node: the session with which it is deleted. Otherwise zero.
    pub(super) session: i64,
    pub(super) children: i32,
    /// The last change of its children.
    pub(super) children_changed: i64,
}

impl Stat {
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        Self::read_from(&mut Reader::new(body))
    }

    fn read_from(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (created, modified, _created_ms) = (reader.long()?, reader.long()?, reader.long()?);
        let (modified_ms, version) = (reader.long()?, reader.int()?);
        let (_of_children, _of_rights) = (reader.int()?, reader.int()?);
        let (session, _length, children) = (reader.long()?, reader.int()?, reader.int()?);
        let children_changed = reader.long()?;
        Ok(Self { created, modified, modified_ms, version, session, children, children_changed })
    }
}

/// The answer to [`children`].
pub(super) fn read_children(body: &[u8]) -> Result<(Vec<String>, Stat), Malformed> {
    let mut reader = Reader::new(body);
    Ok((reader.texts()?, Stat::read_from(&mut reader)?))
}

/// The answer to [`get_data`].
pub(super) fn read_data(body: &[u8]) -> Result<(Vec<u8>, Stat), Malformed> {
    let mut reader = Reader::new(body);
    Ok((reader.bytes()?.to_vec(), Stat::read_from(&mut reader)?))
}

/// The answer to [`create`].
pub(super) fn read_path(body: &[u8]) -> Result<String, Malformed> {
    Reader::new(body).text().map(str::to_owned)
}

/// The answer to [`multi`] of which the first change makes a node: its path, or the code of the
/// change that failed.
pub(super) fn read_multi(body: &[u8]) -> Result<Result<String, i32>, Malformed> {
    let mut reader = Reader::new(body);
    let mut path = None;
    loop {
        let (kind, is_end, _code) = (reader.int()?, reader.flag()?, reader.int()?);
        if is_end {
            return path.map(Ok).ok_or(Malformed);
        }
        match kind {
            kind::CREATE => path = Some(reader.text()?.to_owned()),
            kind::DELETE => {}
            // If one operation fails, the earlier ones have the code 0, and the later ones have -2.
            -1 => match reader.int()? {
                0 | -2 => {}
                code => return Ok(Err(code)),
            },
            _ => return Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.frame(&mut bytes);
        bytes.split_off(4)
    }

    /// A caller without an answer looks for the changes of its request.
    #[test]
    fn each_request_says_whether_it_changes_locks() {
        let made = create("/a", b"", Acl::Everybody, Node::Numbered);
        for (request, effect) in [
            (made.clone(), Effect::Changes),
            (create("/a", b"", Acl::Creator, Node::Container), Effect::Changes),
            (delete("/a"), Effect::Changes),
            (fail_below("/a"), Effect::Changes),
            (set_data("/a", b"", 1), Effect::Changes),
            (multi(&[made, delete("/b")]), Effect::Changes),
            (close(), Effect::Changes),
            (exists("/a"), Effect::Nothing),
            (get_data("/a"), Effect::Nothing),
            (children("/a", true), Effect::Nothing),
            (sync("/a"), Effect::Nothing),
        ] {
            assert_eq!(request.effect, effect, "{request:?}");
        }
    }

    #[test]
    fn a_session_reads_back_and_one_that_has_ended_does_not() {
        let answer = |version, timeout| {
            let answer = Message::default().int(version).int(timeout).long(7);
            framed(&answer.bytes(&[1; 16]).flag(false))
        };
        let ticket = Ticket { id: 7, password: [1; 16] };
        assert_eq!(read_connected(&answer(0, 4_000)), Ok(Some((ticket, 4_000))));
        assert_eq!(read_connected(&answer(0, 0)), Ok(None));
        assert_eq!(read_connected(&answer(1, 4_000)), Err(Malformed), "another protocol");
        assert_eq!(read_connected(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(Malformed));
    }

    #[test]
    fn several_changes_are_answered_by_a_path_or_by_the_code_that_failed() {
        let end = |message: Message| framed(&message.int(-1).flag(true).int(-1));
        let made = Message::default().int(kind::CREATE).flag(false).int(0).text("/a");
        let done = made.int(kind::DELETE).flag(false).int(0);
        assert_eq!(read_multi(&end(done)), Ok(Ok("/a".to_owned())));
        let failed = |codes: [i32; 2]| {
            let each = codes.into_iter();
            each.fold(Message::default(), |it, code| it.int(-1).flag(false).int(code).int(code))
        };
        assert_eq!(read_multi(&end(failed([0, -101]))), Ok(Err(-101)));
        assert_eq!(read_multi(&end(failed([-110, -2]))), Ok(Err(-110)));
        assert_eq!(read_multi(&end(failed([0, -2]))), Err(Malformed));
    }

    #[test]
    fn only_the_end_of_a_node_is_an_event() {
        let event = |kind| framed(&Message::default().int(kind).int(3).text("/a"));
        assert_eq!(read_event(&event(DELETED)), Ok(Some("/a".to_owned())));
        assert_eq!(read_event(&event(-1)), Ok(None));
    }
}
