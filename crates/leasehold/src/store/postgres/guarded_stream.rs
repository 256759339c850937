//! A stream that fails before its server can fill the memory, or read a password that others can
//! read too.
//!
//! The client of the database takes a whole message into memory, however long the message says it
//! is. It keeps each setting that the server names, and sends the password if the server asks for
//! it. So this stream follows the messages that arrive, and counts their bytes:
//!
//! | messages | bytes at most |
//! |---|---|
//! | one of any kind | 1 MiB |
//! | settings of the server (`S`) | 1 MiB in all |
//! | notices (`N`) between two answers | 1 MiB |
//! | notifications (`A`) between two answers | 64 MiB |
//! | one answer | 8 MiB |

use std::io;
use std::task::{Context, Poll, ready};

use crate::store::net::Stream;

const MIB: usize = 1024 * 1024;
const MESSAGE_MAX: usize = MIB;
const SETTINGS_MAX: usize = MIB;
const NOTICES_MAX: usize = MIB;

/// The client of the database keeps no notifications. But while they come without a pause, it looks
/// at nothing else.
const NOTIFICATIONS_MAX: usize = 64 * MIB;

/// A value of a row takes up to seven times as much memory as in its message. The longest answer of
/// the functions has less than 1 MiB.
const ANSWER_MAX: usize = 8 * MIB;

/// The error for a server that asks for the password while others can listen.
pub(super) const NOT_PRIVATE: &str = "the server wants to see the password, and the connection is \
                                      not encrypted; no request was sent; write `sslmode=require` \
                                      or `sslmode=verify-full`, or let `pg_hba.conf` say \
                                      `scram-sha-256`";

const MALFORMED: &str = "the server sent bytes that are not the protocol of PostgreSQL";

const TOO_MUCH: &str = "the server sent more bytes than this client accepts in an answer";

/// A stream from a server of PostgreSQL.
pub(super) struct GuardedStream {
    inner: Box<dyn Stream>,
    messages: Messages,
}

impl GuardedStream {
    /// Guards a stream on which nothing but an answer about TLS has come. `is_private` says that
    /// nobody can listen.
    pub(super) fn new(inner: Box<dyn Stream>, is_private: bool) -> Self {
        Self { inner, messages: Messages { is_private, ..Messages::default() } }
    }
}

impl Stream for GuardedStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let count = ready!(self.inner.poll_read(cx, into))?;
        let followed = self.messages.follow(&into[..count]);
        let refused = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        Poll::Ready(followed.map(|()| count).map_err(refused))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }
}

/// The messages that have arrived.
#[derive(Default)]
struct Messages {
    is_private: bool,
    /// The first bytes of the message that begins: its tag and its length, and for a login its
    /// kind.
    head: Vec<u8>,
    /// How many bytes of a message are still to come.
    left: usize,
    settings: usize,
    notices: usize,
    notifications: usize,
    answer: usize,
}

impl Messages {
    /// Follows the next bytes. An error says why they must not be used.
    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.left > 0 {
                let inside = self.left.min(bytes.len());
                self.left -= inside;
                bytes = &bytes[inside..];
                continue;
            }
            self.head.push(*first);
            bytes = rest;
            match self.head[..] {
                [tag, a, b, c, d] if tag != b'R' => self.begin(tag, [a, b, c, d])?,
                // 3 asks for the password itself. Other kinds mix it with something.
                [b'R', _, _, _, _, 0, 0, 0, 3] if !self.is_private => return Err(NOT_PRIVATE),
                [b'R', a, b, c, d, _, _, _, _] => self.begin(b'R', [a, b, c, d])?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Begins a message, once its first bytes have come.
    fn begin(&mut self, tag: u8, length: [u8; 4]) -> Result<(), &'static str> {
        // The length does not include the tag.
        let length = u32::from_be_bytes(length) as usize;
        let known = self.head.len() - 1;
        if length < known || length > MESSAGE_MAX {
            return Err(MALFORMED);
        }
        self.left = length - known;
        self.head.clear();
        let (all, most) = match tag {
            b'S' => (&mut self.settings, SETTINGS_MAX),
            b'N' => (&mut self.notices, NOTICES_MAX),
            b'A' => (&mut self.notifications, NOTIFICATIONS_MAX),
            _ => (&mut self.answer, ANSWER_MAX),
        };
        *all += length;
        if *all > most {
            return Err(TOO_MUCH);
        }
        // The server is ready for the next request.
        if tag == b'Z' {
            (self.notices, self.notifications, self.answer) = (0, 0, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::core::error::{Error, ErrorKind};
    use crate::store::postgres::link::Link;
    use crate::store::postgres::url;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("a short one").to_be_bytes();
        [&[tag], &length[..], body].concat()
    }

    /// The answer of a server that wants no password.
    fn admission() -> Vec<u8> {
        [message(b'R', &[0; 4]), message(b'Z', b"I")].concat()
    }

    async fn logged_in(stream: impl Stream, is_private: bool) -> Result<Link, Error> {
        let address = url::parse("postgres://anna:secret@h/locks").expect("a URL");
        let stream = GuardedStream::new(Box::new(stream), is_private);
        Link::log_in(Box::new(stream), &address).await
    }

    /// How many bytes a server can send to a client that it has logged in and that asks nothing.
    async fn taken_from_a_server_that_repeats(bytes: &[u8]) -> usize {
        let (stream, mut server) = tokio::io::duplex(64 * 1024);
        let client = async {
            // The bytes may come before the client knows that it is admitted.
            let Ok(mut link) = logged_in(stream, true).await else { return };
            while let Some(Ok(_)) = poll_fn(|cx| link.wire.poll_message(cx)).await {}
        };
        let serve = async move {
            let _login = server.read(&mut [0; 1024]).await.expect("its name");
            server.write_all(&admission()).await.expect("it listens");
            let mut sent = 0;
            while sent < 4 * NOTIFICATIONS_MAX && server.write_all(bytes).await.is_ok() {
                sent += bytes.len();
            }
            sent
        };
        tokio::join!(client, serve).1
    }

    #[tokio::test]
    async fn a_hostile_server_cannot_fill_the_memory_of_a_client_that_asks_nothing() {
        let endless = [b'D', 0x7f, 0xff, 0xff, 0xff];
        let setting = message(b'S', &[&[b'x'; 30_000][..], b"\0a\0"].concat());
        let notice = message(b'N', b"SNOTICE\0C00000\0Mhello\0\0");
        let notification = message(b'A', b"\0\0\0\0channel\0text\0");
        for (bytes, most) in [
            (&endless.repeat(10_000), MESSAGE_MAX),
            (&setting, SETTINGS_MAX),
            (&notice, NOTICES_MAX * 2),
            (&notification.repeat(1_000), NOTIFICATIONS_MAX * 2),
        ] {
            let tag = char::from(bytes[0]);
            let taken = taken_from_a_server_that_repeats(bytes).await;
            assert!(taken < most + 256 * 1024, "{taken} bytes of `{tag}`");
        }
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_refused() {
        let (stream, mut server) = tokio::io::duplex(64 * 1024);
        let client = async {
            let mut link = logged_in(stream, true).await.expect("the server admits it");
            link.ask("SELECT 1").await.map(drop).map_err(|error| format!("{error:?}"))
        };
        let column = [b"\0\x01?\0".as_slice(), &[0; 18]].concat();
        let rows = message(b'D', &[0, 1, 0xff, 0xff, 0xff, 0xff]).repeat(1_000);
        let serve = async move {
            let _login = server.read(&mut [0; 1024]).await.expect("its name");
            server.write_all(&admission()).await.expect("it listens");
            let _query = server.read(&mut [0; 1024]).await.expect("its question");
            server.write_all(&message(b'T', &column)).await.expect("it listens");
            for _ in 0..10 * ANSWER_MAX / rows.len() {
                let _is_gone = server.write_all(&rows).await;
            }
        };
        let (answer, ()) = tokio::join!(client, serve);
        assert!(answer.expect_err("it has no end").contains(TOO_MUCH));
    }

    #[tokio::test]
    async fn a_text_that_is_no_utf_8_is_an_error() {
        let (stream, mut server) = tokio::io::duplex(64 * 1024);
        let client = async {
            let mut link = logged_in(stream, true).await.expect("the server admits it");
            link.ask("SELECT 1").await.map(drop)
        };
        let column = [b"\0\x01?\0".as_slice(), &[0; 18]].concat();
        let answer = [
            message(b'T', &column),
            message(b'D', &[0, 1, 0, 0, 0, 1, 0xff]),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ];
        let serve = async {
            let _login = server.read(&mut [0; 1024]).await.expect("its name");
            server.write_all(&admission()).await.expect("it listens");
            let _query = server.read(&mut [0; 1024]).await.expect("its question");
            server.write_all(&answer.concat()).await.expect("it listens");
        };
        tokio::join!(client, serve).0.expect_err("it is not text");
    }

    /// The bytes that a client sends after its name, if the server asks for the password itself.
    async fn sent_in_the_clear(is_private: bool) -> (Vec<u8>, Option<Error>) {
        let (stream, mut server) = tokio::io::duplex(10_000);
        let client = async { logged_in(stream, is_private).await.err() };
        let serve = async {
            let _login = server.read(&mut [0; 1024]).await.expect("its name");
            server.write_all(&message(b'R', &[0, 0, 0, 3])).await.expect("it listens");
            let mut sent = [0; 64];
            let count = server.read(&mut sent).await.expect("it says more, or goes");
            if count > 0 {
                server.write_all(&admission()).await.expect("it listens");
            }
            sent[..count].to_vec()
        };
        let (failed, sent) = tokio::join!(client, serve);
        (sent, failed)
    }

    #[tokio::test]
    async fn a_password_is_shown_to_a_server_only_if_nobody_can_listen() {
        let (sent, failed) = sent_in_the_clear(true).await;
        assert!(sent.ends_with(b"secret\0") && failed.is_none(), "{failed:?}");
        let (sent, failed) = sent_in_the_clear(false).await;
        assert_eq!(sent, b"");
        let failed = failed.expect("it is refused");
        assert_eq!((failed.kind(), failed.message()), (ErrorKind::Denied, NOT_PRIVATE));
    }

    #[test]
    fn messages_are_told_apart_however_their_bytes_arrive() {
        let half = vec![b'x'; NOTICES_MAX / 2];
        let (notice, end) = (message(b'N', &half), message(b'Z', b"I"));
        let fine = [&admission(), &*notice, &end, &notice, &end].concat();
        let too_much = [&admission(), &*notice, &notice, &end].concat();
        let clear = message(b'R', &[0, 0, 0, 3]);
        for (bytes, expected) in [
            (&fine, Ok(())),
            (&too_much, Err(TOO_MUCH)),
            (&clear, Err(NOT_PRIVATE)),
            (&message(b'R', &[0, 0]), Err(MALFORMED)),
            (&b"HTTP/1.1 400 Bad Request\r\n".to_vec(), Err(MALFORMED)),
        ] {
            for size in [1, 2, 3, 5, 7, 4_096, bytes.len()] {
                let mut messages = Messages::default();
                // A message that is too short ends with the next one.
                let bytes = [&bytes[..], &end, &end].concat();
                let followed = bytes.chunks(size).try_for_each(|part| messages.follow(part));
                assert_eq!(followed, expected, "{size} bytes at a time");
            }
        }
    }
}
