//! Opens connections to the server of a URL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::connector::{Access, Connector, Opening};
use super::sentinel::Sentinels;
use super::terms::Terms;
use super::url::{Address, Endpoint};
use crate::core::error::Error;
use crate::store::net::{Tls, open_tcp, open_unix};

/// Opens connections to one Redis or Valkey server, or to the nodes of a cluster.
///
/// It uses RESP2, or RESP3 for messages if the server allows it. Besides the rights for the
/// requests of the store, it needs only these:
///
/// - `AUTH` for a login
/// - `SELECT` for a database other than 0
/// - `ROLE` if sentinels name the server
/// - `CLUSTER SLOTS`, `CLUSTER INFO` and `ASKING` for a cluster
/// - `HMGET` to learn whether the database is in strict mode; it also connects without this right
/// - `INFO` for a strict client, and for a majority of replicas
/// - `WAIT` or `WAITAOF` for copies
///
/// The addresses of a host name are tried one by one, in the order that the system returns. The
/// caller's time limit covers all of them.
///
/// | URL | server |
/// |---|---|
/// | `redis://[[user]:password@]host[:port][/db][?OPTIONS]` | TCP; default `:6379/0` |
/// | `rediss://…[?ca=PATH][&cert=PATH&key=PATH]` | the same with TLS (feature `tls`) |
/// | `redis+sentinel://[[user]:password@]host1,host2,host3/primary[/db]` | the current primary of that name |
/// | `redis+cluster://[[user]:password@]host1,host2` | the node of a cluster that has the slot of the lock |
/// | `unix:/path[?db=N][&OPTIONS]` | a socket of this machine |
/// | `unix://[user]:password@/path[?db=N]` | the same, with a login |
///
/// With TLS, the server's certificate must be for the host of the URL, and come from an authority
/// that the system trusts, or from one in the file `ca`. `cert` and `key` are for servers that want
/// a certificate of the client. All three are files in PEM form, with their full paths. Each new
/// connection uses their contents of that moment. `tls_name` replaces the host in the check.
///
/// User, password and path are percent-encoded. Options such as `?strict=yes` set the [`Terms`] on
/// which the server is used:
///
/// | option | meaning | for |
/// |---|---|---|
/// | `strict=yes` | a server that may have forgotten grants nothing new for 65 s | each client |
/// | `strict=no` | no such delay; a database that is switched to strict mode refuses the client | each client |
/// | `replicas=K`, `replicas=majority` | K replicas must confirm a grant | all clients |
/// | `fsync=yes` | a grant must be on disk | all clients |
/// | `confirm=yes` | a waiter asks before it believes a hand-over: one round trip | each client |
///
/// Without `strict`, the client is strict if the database is switched to strict mode, see
/// [`strict`](crate::strict).
#[derive(Clone)]
pub struct RedisConnector {
    address: Arc<Address>,
    server: Server,
}

/// Where streams are opened.
#[derive(Clone)]
enum Server {
    /// At the address of the URL.
    There(Option<Tls>),
    /// Wherever the sentinels say.
    Named(Sentinels, Option<Tls>),
    /// At the nodes of a cluster.
    Nodes(Option<Tls>),
}

impl RedisConnector {
    /// Reads a URL. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) for an invalid URL. The message says why, and never
    /// shows the password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let tls = address.tls.as_ref().map(Tls::new).transpose()?;
        let server = match &address.endpoint {
            Endpoint::Sentinel(address) => Server::Named(Sentinels::new(address)?, tls),
            Endpoint::Cluster(_) => Server::Nodes(tls),
            Endpoint::Tcp(..) | Endpoint::Unix(_) => Server::There(tls),
        };
        Ok(Self { address: Arc::new(address), server })
    }

    /// Whether both lead to one server, but to different databases of it.
    pub(crate) fn has_another_database_of(&self, other: &Self) -> bool {
        let (one, other) = (&self.address, &other.address);
        one.endpoint.is_of_one_server_with(&other.endpoint) && one.access.db != other.access.db
    }

    /// The terms of the URL.
    pub(crate) fn terms(&self) -> Terms {
        self.address.access.terms
    }

    /// The parts of the URL.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// The sentinels that name the server, if there are any.
    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.server {
            Server::Named(sentinels, _) => Some(sentinels),
            Server::There(_) | Server::Nodes(_) => None,
        }
    }

    /// A connector that checks certificates as if it were this much later. `None` without TLS.
    pub(super) fn ahead(&self, by: Duration) -> Option<Self> {
        let later = |tls: &Option<Tls>| tls.as_ref().map(|tls| tls.ahead(by));
        let server = match &self.server {
            Server::There(tls) => Server::There(Some(later(tls)?)),
            Server::Named(sentinels, tls) => Server::Named(sentinels.clone(), Some(later(tls)?)),
            Server::Nodes(tls) => Server::Nodes(Some(later(tls)?)),
        };
        Some(Self { address: Arc::clone(&self.address), server })
    }

    /// Uses these terms instead of those of the URL.
    #[must_use]
    pub fn on_terms(self, terms: Terms) -> Self {
        let mut address = Address::clone(&self.address);
        address.access.terms = terms;
        Self { address: Arc::new(address), ..self }
    }
}

impl fmt::Debug for RedisConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisConnector({})", self.address.label())
    }
}

impl Connector for RedisConnector {
    fn open(&self) -> Opening {
        let Self { address, server } = self.clone();
        Box::pin(async move {
            match (&server, &address.endpoint) {
                (Server::Named(sentinels, tls), _) => sentinels.open(tls.as_ref()).await,
                (Server::There(tls), Endpoint::Tcp(host, port)) => {
                    open_tcp(host, *port, tls.as_ref()).await
                }
                (Server::There(_), Endpoint::Unix(path)) => open_unix(path).await,
                (Server::Nodes(tls), Endpoint::Cluster(seeds)) => {
                    let (host, port) = &seeds[0];
                    open_tcp(host, *port, tls.as_ref()).await
                }
                (Server::There(_) | Server::Nodes(_), _) => unreachable!("each has its own"),
            }
        })
    }

    fn seeds(&self) -> Vec<(String, u16)> {
        match &self.address.endpoint {
            Endpoint::Cluster(seeds) => seeds.clone(),
            _ => Vec::new(),
        }
    }

    fn node(&self, host: &str, port: u16) -> Option<Arc<dyn Connector>> {
        let Server::Nodes(tls) = &self.server else { return None };
        let mut address = Address::clone(&self.address);
        address.endpoint = Endpoint::Tcp(host.to_owned(), port);
        Some(Arc::new(Self { address: Arc::new(address), server: Server::There(tls.clone()) }))
    }

    fn label(&self) -> String {
        self.address.label()
    }

    fn access(&self) -> Access {
        self.address.access.clone()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "these tests bring a server of their own")]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use futures_util::future::join_all;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::coop::has_budget_remaining;
    use tokio::task::{JoinHandle, consume_budget};

    use super::*;
    use crate::store::redis::codec::command::{Command, NoAnswer, Value};
    use crate::store::redis::wire::pipeline::{Pipeline, establish};

    /// A connection with running I/O, and the server's end of it.
    async fn connected() -> (Arc<Pipeline>, JoinHandle<()>, DuplexStream) {
        let (ours, mut server) = tokio::io::duplex(4096);
        let access = Access::default();
        let hello = async {
            let mut words = [0; 14 + 42];
            server.read_exact(&mut words).await.expect("a PING, and whether others are strict");
            server.write_all(b"+PONG\r\n*1\r\n$-1\r\n").await.expect("the client reads");
        };
        let (connected, ()) = tokio::join!(establish(Box::new(ours), &access), hello);
        let connected = connected.expect("it answers");
        (connected.pipeline, tokio::spawn(connected.mover), server)
    }

    /// Reads `count` times `ECHO` with a number, and returns the numbers.
    async fn read_echoes(server: &mut DuplexStream, count: usize) -> Vec<u64> {
        let mut text = Vec::new();
        while text.iter().filter(|byte| **byte == b'\n').count() < 5 * count {
            assert_ne!(server.read_buf(&mut text).await.expect("the client writes"), 0);
        }
        let text = String::from_utf8(text).expect("numbers");
        let numbers = text.split("\r\n").skip(4).step_by(5);
        numbers.map(|number| number.parse().expect("a number")).collect()
    }

    fn echo(number: u64) -> Command {
        Command::new("ECHO").number(number)
    }

    #[tokio::test]
    async fn requests_reach_the_server_in_the_order_of_submission_polled_or_not() {
        const COUNT: u64 = 10_000;
        let (pipeline, _io, mut server) = connected().await;
        let mut answers: Vec<_> = (0..COUNT).map(|number| pipeline.submit(&echo(number))).collect();
        // The last answer is awaited first.
        answers.reverse();
        let serve = async {
            let numbers = read_echoes(&mut server, 10_000).await;
            assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
            for number in numbers {
                let reply = format!(":{number}\r\n");
                server.write_all(reply.as_bytes()).await.expect("the client reads");
            }
        };
        let (answers, ()) = tokio::join!(join_all(answers), serve);
        for (answer, number) in answers.into_iter().zip((0..10_000).rev()) {
            assert_eq!(answer, Ok(Value::Int(number)));
        }
    }

    #[tokio::test]
    async fn a_task_that_has_used_up_its_turn_still_submits() {
        let (pipeline, _io, mut server) = connected().await;
        let unpolled = poll_fn(|cx| {
            while has_budget_remaining() {
                let _ = std::pin::pin!(consume_budget()).poll(cx);
            }
            let unpolled = [1, 2, 3].map(|number| pipeline.submit(&echo(number)));
            assert!(!has_budget_remaining(), "the turn of the task is over");
            Poll::Ready(unpolled)
        })
        .await;
        // Nobody polls the first three, so they are in the queue or lost.
        let _last = pipeline.submit(&echo(4));
        assert_eq!(read_echoes(&mut server, 4).await, [1, 2, 3, 4]);
        drop(unpolled);
    }

    #[tokio::test]
    async fn requests_can_be_submitted_outside_of_any_runtime() {
        let (pipeline, _io, mut server) = connected().await;
        let outside = Arc::clone(&pipeline);
        let submit = move || [1, 2].map(|number| outside.submit(&echo(number)));
        let answers = std::thread::spawn(submit).join().expect("no panic");
        assert_eq!(read_echoes(&mut server, 2).await, [1, 2]);
        server.write_all(b":1\r\n:2\r\n").await.expect("the client reads");
        assert_eq!(join_all(answers).await, [Ok(Value::Int(1)), Ok(Value::Int(2))]);
    }

    #[tokio::test]
    async fn a_connection_that_is_dropped_breaks_what_is_under_way_and_sends_nothing_more() {
        let (pipeline, io, mut server) = connected().await;
        let answer = pipeline.submit(&echo(1));
        read_echoes(&mut server, 1).await;
        io.abort();
        assert!(matches!(answer.await, Err(NoAnswer::Broken { .. })));
        let late = pipeline.submit(&echo(2)).await;
        assert!(matches!(late, Err(NoAnswer::NotSent { .. })), "{late:?}");
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.expect("the socket is closed");
        assert_eq!(rest, b"");
    }

    #[tokio::test]
    async fn each_answer_is_read_as_what_it_is() {
        let refused = |code: &str, text: &str| {
            Err(NoAnswer::Refused { code: code.to_owned(), text: text.to_owned() })
        };
        let bytes = |text: &[u8]| Value::Bytes(text.to_vec());
        let table = [
            ("$-1\r\n", Ok(Value::Nil)),
            ("*-1\r\n", Ok(Value::Nil)),
            (":-7\r\n", Ok(Value::Int(-7))),
            ("+OK\r\n", Ok(bytes(b"OK"))),
            ("+QUEUED\r\n", Ok(bytes(b"QUEUED"))),
            ("$4\r\na\r\nb\r\n", Ok(bytes(b"a\r\nb"))),
            ("*0\r\n", Ok(Value::Array(vec![]))),
            (
                "*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n+b\r\n",
                Ok(Value::Array(vec![
                    Value::Int(1),
                    Value::Array(vec![bytes(b"a"), Value::Nil]),
                    bytes(b"b"),
                ])),
            ),
            ("-READONLY You can't\r\n", refused("READONLY", "READONLY You can't")),
            ("-WEIRD\r\n", refused("WEIRD", "WEIRD")),
            ("*2\r\n:1\r\n*1\r\n-OOM no\r\n", refused("OOM", "OOM no")),
            (
                "-ERR unknown command 'X', with args beginning with: 'secret' \r\n",
                refused("ERR", "ERR unknown command 'X'"),
            ),
        ];
        let (pipeline, _io, mut server) = connected().await;
        for (reply, expected) in table {
            let answer = pipeline.submit(&echo(1));
            read_echoes(&mut server, 1).await;
            server.write_all(reply.as_bytes()).await.expect("the client reads");
            assert_eq!(answer.await, expected, "{reply:?}");
        }
    }

    #[tokio::test]
    async fn nonsense_ends_the_connection_and_breaks_all_that_is_under_way() {
        let table = [
            "HTTP/1.1 400 Bad Request\r\n",
            ":1x\r\n",
            "$3\r\nabcde\r\n",
            // RESP3, which was not asked for.
            "%1\r\n+a\r\n+b\r\n",
            "*1\r\n,1.5\r\n",
            &"*1\r\n".repeat(1000),
        ];
        for reply in table {
            let (pipeline, io, mut server) = connected().await;
            let answers = [pipeline.submit(&echo(1)), pipeline.submit(&echo(2))];
            read_echoes(&mut server, 2).await;
            server.write_all(reply.as_bytes()).await.expect("the client reads");
            for answer in join_all(answers).await {
                let is_broken = matches!(answer, Err(NoAnswer::Broken { .. }));
                assert!(is_broken, "{reply:?}: {answer:?}");
            }
            io.await.expect("no panic");
            let late = pipeline.submit(&echo(3)).await;
            assert!(matches!(late, Err(NoAnswer::NotSent { .. })), "{late:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_closes_breaks_what_is_under_way_in_the_middle_of_a_reply_or_before() {
        // The last reply announces more values than fit into memory.
        for reply in ["", "$10\r\nabc", ":1\r\n", ":1\r\n$5", "*4000000000000000000\r\n:1\r\n"] {
            let (pipeline, io, mut server) = connected().await;
            let _first = pipeline.submit(&echo(1));
            let answer = pipeline.submit(&echo(2));
            read_echoes(&mut server, 2).await;
            server.write_all(reply.as_bytes()).await.expect("the client reads");
            drop(server);
            let answer = answer.await;
            assert!(matches!(answer, Err(NoAnswer::Broken { .. })), "{reply:?}: {answer:?}");
            io.await.expect("no panic");
        }
    }

    /// Two votes of one server would make two holders.
    #[test]
    fn two_databases_of_one_server_are_known_however_the_server_is_named() {
        let connector = |url| RedisConnector::new(url).expect("a good URL");
        for (one, other, expected) in [
            ("redis://h/1", "redis://h:6379/2", true),
            ("redis://h/1", "redis://h/1", false),
            ("redis://h/1", "redis://h:1/2", false),
            ("redis://h/1", "redis://i/2", false),
            ("unix:/s?db=1", "unix:/s", true),
            ("unix:/s?db=1", "unix:/t", false),
            // One sentinel in common is enough, since it names one primary.
            ("redis+sentinel://a,b,c/main/1", "redis+sentinel://c,d/main/2", true),
            ("redis+sentinel://a,b/main/1", "redis+sentinel://a,b/main/1", false),
            ("redis+sentinel://a,b/main/1", "redis+sentinel://a,b/other/2", false),
            ("redis+sentinel://a,b/main/1", "redis+sentinel://c,d/main/2", false),
            ("redis+sentinel://a/main/1", "redis://a:26379/2", false),
        ] {
            let (first, second) = (connector(one), connector(other));
            assert_eq!(first.has_another_database_of(&second), expected, "{one} {other}");
            assert_eq!(second.has_another_database_of(&first), expected, "{other} {one}");
        }
    }
}
