//! One connection: packets, the login, and one request after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf};

use super::login::{self, CACHING};
use super::packet::{Bytes, Greeting, Malformed, Results, Said, Taken, flag};
use crate::core::error::Error;
use crate::store::net::{self, Io};
use crate::store::sql::Row;
use crate::store::sql::url::Address;

/// The longest packet and the longest answer. Those of the procedures are far shorter.
const PACKET_BYTES_MAX: usize = 1024 * 1024;
const ANSWER_BYTES_MAX: usize = 32 * PACKET_BYTES_MAX;

/// The number of `utf8mb4`.
const CHARSET: u8 = 45;

/// The command that runs a text of SQL.
const QUERY: u8 = 3;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The server refused it, and the connection goes on.
    Said(Said),
    /// The connection had ended before.
    Unsent,
    /// The connection failed, or the server sent something that is not the protocol.
    Broken(String),
    /// TLS failed. With TLS 1.3, a server judges the certificate of a client after the handshake.
    Tls(Error),
    /// The server wants a way to log in that this client lacks, or the password itself over an
    /// unencrypted connection.
    Login(&'static str),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if let Some(refused) = net::failure(&error) {
            return Self::Tls(refused);
        }
        Self::Broken(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed it".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Self {
        Self::Broken("the server sent bytes that are not the protocol of MySQL".to_owned())
    }
}

/// Reads a packet. Returns its number and its body.
pub(super) async fn read_packet(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(u8, Vec<u8>), Failure> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    if length > PACKET_BYTES_MAX {
        return Err(Malformed.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((head[3], body))
}

/// Writes a packet.
pub(super) async fn write_packet(
    stream: &mut (impl AsyncWrite + Unpin),
    number: u8,
    body: &[u8],
) -> Result<(), Failure> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    if body.len() > PACKET_BYTES_MAX {
        return Err(Failure::Broken("the request is too long".to_owned()));
    }
    let head = [length[0], length[1], length[2], number];
    stream.write_all(&[&head, body].concat()).await?;
    stream.flush().await?;
    Ok(())
}

/// The packet that asks for TLS. It is also the beginning of the login.
pub(super) fn flags_and_limits(flags: u32) -> Vec<u8> {
    let limit = u32::try_from(PACKET_BYTES_MAX).unwrap_or(u32::MAX);
    let mut packet = [flags.to_le_bytes(), limit.to_le_bytes()].concat();
    packet.push(CHARSET);
    packet.extend_from_slice(&[0; 23]);
    packet
}

/// The abilities that this client tells the server.
pub(super) const FLAGS: u32 = flag::LONG_PASSWORD
    | flag::LONG_FLAG
    | flag::WITH_DATABASE
    | flag::PROTOCOL_41
    | flag::TRANSACTIONS
    | flag::SECURE
    | flag::MULTI_STATEMENTS
    | flag::MULTI_RESULTS
    | flag::PLUGINS;

/// A connection that is logged in.
pub(super) struct Conn {
    /// Buffered, since an answer has a packet for each column.
    stream: BufReader<Io>,
    /// Whether the connection ended, or a request was given up in the middle. A broken connection
    /// is not used again.
    is_broken: bool,
}

impl Conn {
    /// Logs in. `is_private` says that nobody can listen.
    pub(super) async fn log_in(
        stream: Io,
        address: &Address,
        (greeting, number, is_private): (&Greeting, u8, bool),
    ) -> Result<Self, Failure> {
        let mut stream = BufReader::new(stream);
        let password = address.password.as_deref().unwrap_or_default().as_bytes();
        let known = login::answer(&greeting.plugin, password, &greeting.nonce);
        let plugin = if known.is_some() { &*greeting.plugin } else { login::NATIVE };
        let known = known.or_else(|| login::answer(plugin, password, &greeting.nonce));
        let known = known.unwrap_or_default();
        let flags = if number > 1 { FLAGS | flag::TLS } else { FLAGS };
        let mut packet = flags_and_limits(flags);
        packet.extend_from_slice(address.user.as_bytes());
        packet.push(0);
        packet.push(u8::try_from(known.len()).unwrap_or(0));
        packet.extend_from_slice(&known);
        for text in [&*address.database, plugin] {
            packet.extend_from_slice(text.as_bytes());
            packet.push(0);
        }
        write_packet(&mut stream, number, &packet).await?;
        let mut plugin = plugin.to_owned();
        loop {
            let (number, packet) = read_packet(&mut stream).await?;
            let number = number.wrapping_add(1);
            match *packet.first().ok_or(Malformed)? {
                0 => return Ok(Self { stream, is_broken: false }),
                0xff => return Err(Failure::Said(Said::read(&packet)?)),
                // The server wants another plugin, and says what to mix the password with.
                0xfe if packet.len() > 1 => {
                    let mut bytes = Bytes(&packet[1..]);
                    plugin = String::from_utf8_lossy(bytes.until_zero()).into_owned();
                    let nonce = bytes.0.strip_suffix(&[0]).unwrap_or(bytes.0);
                    let answer = login::answer(&plugin, password, nonce);
                    let answer = answer.ok_or(Failure::Login(NO_PLUGIN))?;
                    write_packet(&mut stream, number, &answer).await?;
                }
                // The server knows the password from before.
                1 if packet[1..] == [3] => {}
                // The server wants to see the password itself.
                1 if packet[1..] == [4] && plugin == CACHING => {
                    if !is_private {
                        return Err(Failure::Login(NOT_PRIVATE));
                    }
                    write_packet(&mut stream, number, &[password, &[0]].concat()).await?;
                }
                _ => return Err(Failure::Login(NO_PLUGIN)),
            }
        }
    }

    /// Asks, and waits for the rows.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        let mut all = Vec::new();
        self.ask_all(sql, |rows| all.extend(rows)).await?;
        Ok(all)
    }

    /// Asks several things, separated by semicolons, and waits for all answers. `answer` takes the
    /// rows of one after the other. A connection whose request was given up is broken.
    pub(super) async fn ask_all(
        &mut self,
        sql: &str,
        answer: impl FnMut(Vec<Row>),
    ) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_broken, true) {
            return Err(Failure::Unsent);
        }
        let asked = self.ask_on(sql, answer).await;
        self.is_broken = asked.as_ref().is_err_and(Failure::ends_connection);
        asked
    }

    async fn ask_on(&mut self, sql: &str, mut answer: impl FnMut(Vec<Row>)) -> Result<(), Failure> {
        write_packet(&mut self.stream, 0, &[&[QUERY], sql.as_bytes()].concat()).await?;
        let (mut results, mut bytes) = (Results::default(), 0);
        loop {
            let (_, packet) = read_packet(&mut self.stream).await?;
            bytes += packet.len();
            if bytes > ANSWER_BYTES_MAX {
                return Err(Malformed.into());
            }
            match results.take(&packet)? {
                Taken::Part => {}
                Taken::Answer { rows, is_last } => {
                    answer(rows);
                    if is_last {
                        return Ok(());
                    }
                }
                Taken::Refusal(said) => return Err(Failure::Said(said)),
            }
        }
    }

    /// Ready when the connection has ended. A server says nothing unless it is asked.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_broken {
            return Poll::Ready(());
        }
        let mut byte = [0];
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte));
        self.is_broken = read.is_ready();
        read.map(drop)
    }
}

const NO_PLUGIN: &str = "the server requires a login method for this user that this build does not \
                         have; no request was sent; use a user with `mysql_native_password` or \
                         `caching_sha2_password`";

const NOT_PRIVATE: &str = "the server wants to see the password, and the connection is not \
                           encrypted; no request was sent; write `sslmode=require` or \
                           `sslmode=verify-full`";

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::DuplexStream;

    use super::*;

    const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

    /// A client with the password `secret` logs in at a server that `serve` plays. Returns what
    /// `serve` returns, and why the login failed.
    async fn logged_in<T>(
        is_private: bool,
        serve: impl AsyncFnOnce(DuplexStream) -> T,
    ) -> (T, Option<Failure>) {
        let (stream, server) = tokio::io::duplex(10_000);
        let address =
            crate::store::mysql::url::parse("mysql://anna:secret@h/locks").expect("a URL");
        let (nonce, plugin) = (vec![7; 20], CACHING.to_owned());
        let greeting = Greeting { flags: 0, nonce, plugin };
        let client = async {
            let io = Io(Box::new(stream));
            Conn::log_in(io, &address, (&greeting, 1, is_private)).await.err()
        };
        tokio::join!(serve(server), client)
    }

    /// The packet that a client sends after its name if the server asks for the password itself.
    async fn sent_in_the_clear(is_private: bool) -> (Option<Vec<u8>>, Option<Failure>) {
        let serve = async |mut server: DuplexStream| {
            let _login = read_packet(&mut server).await.expect("its name");
            write_packet(&mut server, 2, &[1, 4]).await.expect("it listens");
            let sent = read_packet(&mut server).await.ok();
            if sent.is_some() {
                write_packet(&mut server, 4, OK).await.expect("it listens");
            }
            sent.map(|(_, packet)| packet)
        };
        logged_in(is_private, serve).await
    }

    #[tokio::test]
    async fn a_password_is_shown_to_a_server_only_if_nobody_can_listen() {
        let (sent, failed) = sent_in_the_clear(true).await;
        assert_eq!(sent.as_deref(), Some(&b"secret\0"[..]));
        assert!(failed.is_none(), "{failed:?}");
        let (sent, failed) = sent_in_the_clear(false).await;
        assert_eq!(sent, None);
        assert!(matches!(failed, Some(Failure::Login(NOT_PRIVATE))), "{failed:?}");
    }

    /// A connection that is logged in, and its server.
    fn connected() -> (Conn, DuplexStream) {
        let (stream, server) = tokio::io::duplex(10_000);
        (Conn { stream: BufReader::new(Io(Box::new(stream))), is_broken: false }, server)
    }

    /// Its transaction may still be open on the connection, and keep rows locked.
    #[tokio::test]
    async fn a_connection_is_used_again_after_a_refusal_and_not_after_a_step_that_was_cut_off() {
        for (code, goes_on) in [(1205_u16, true), (1317, false), (3024, false)] {
            let (mut conn, mut server) = connected();
            let serving = async move {
                let refusal = [&[0xff][..], &code.to_le_bytes(), b"#HY000no"].concat();
                for answer in [&refusal[..], OK].into_iter().take(1 + usize::from(goes_on)) {
                    read_packet(&mut server).await.expect("a request");
                    write_packet(&mut server, 1, answer).await.expect("it listens");
                }
            };
            let asking = async { (conn.ask("SELECT 1").await, conn.ask("SELECT 2").await) };
            let ((), (refused, next)) = tokio::join!(serving, asking);
            assert!(matches!(refused, Err(Failure::Said(_))), "{refused:?}");
            if goes_on {
                assert_eq!(next.expect("answered"), Vec::<Row>::new());
            } else {
                assert!(matches!(next, Err(Failure::Unsent)), "{code}: {next:?}");
            }
        }
    }

    /// The answer of the first request would be taken for that of the next one.
    #[tokio::test]
    async fn a_connection_whose_request_was_given_up_takes_no_other_one() {
        let (mut conn, server) = connected();
        assert!(conn.ask("SELECT 1").now_or_never().is_none(), "it has no answer");
        drop(server);
        let next = conn.ask("SELECT 2").await;
        assert!(matches!(next, Err(Failure::Unsent)), "{next:?}");
    }

    /// Servers end the nonce with a zero, which is not part of it.
    #[tokio::test]
    async fn a_server_that_wants_another_plugin_gets_the_password_mixed_with_its_new_nonce() {
        let nonce = b"abcdefghijklmnopqrst";
        let serve = async |mut server: DuplexStream| {
            let _login = read_packet(&mut server).await.expect("its name");
            let wanted = [b"\xfemysql_native_password\0", &nonce[..], b"\0"].concat();
            write_packet(&mut server, 2, &wanted).await.expect("it listens");
            let (_, answer) = read_packet(&mut server).await.expect("it answers");
            write_packet(&mut server, 4, OK).await.expect("it listens");
            answer
        };
        let (answer, failed) = logged_in(false, serve).await;
        assert_eq!(Some(answer), login::answer(login::NATIVE, b"secret", nonce));
        assert!(failed.is_none(), "{failed:?}");
    }
}
