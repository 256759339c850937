//! Finds the primary by asking sentinels, and notices when they name another one.
//!
//! Each new connection asks all sentinels. Among the answers, the one with the highest
//! configuration epoch counts: sentinels raise it with each failover. The server must then say that
//! it is a primary (`ROLE`, in the handshake).
//!
//! An open connection ends when the sentinels name another server. One task of each connector
//! listens for `+switch-master` at every sentinel, and asks all of them when it hears that, or when
//! [`ASK_EVERY`] has passed. So a client that can still reach an old primary leaves it.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/sentinel-clients/>

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, oneshot, watch};

use super::codec::command::Command;
use super::codec::{self, Frame, Reader};
use super::connector::{Access, Connector, Opening, Stream, write_all};
use super::error::{Said, refusal};
use super::hints::listen::subscribe;
use super::sockets::open_tcp;
use super::tls::Tls;
use super::url::{SentinelAddress, host_and_port_text};
use super::wire::handshake::handshake;
use crate::core::error::{Error, ErrorKind};
use crate::host::SystemHost;
use crate::store::within;

/// How long one sentinel may take to answer.
const ASK_LIMIT: Duration = Duration::from_millis(500);

/// How long the others are waited for when a majority has answered.
const GRACE: Duration = Duration::from_millis(20);

/// How often the sentinels are asked while a connection is open, beside their messages.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// The pause before a sentinel is listened to again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The longest answer of a sentinel, in bytes. The usual one has 1 KB.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The channel on which sentinels announce a new primary.
const SWITCHED: &str = "+switch-master";

/// The sentinels of one URL.
#[derive(Clone)]
pub(super) struct Sentinels {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Vec<Node>,
    primary: String,
    /// What the sentinels said last.
    named: watch::Sender<Option<Named>>,
    /// Ends the task that listens when this is dropped.
    listening: OnceLock<oneshot::Sender<Infallible>>,
}

/// One sentinel.
#[derive(Clone)]
struct Node {
    host: String,
    port: u16,
    access: Access,
    tls: Option<Tls>,
}

/// The server that a sentinel names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    host: String,
    port: u16,
    epoch: u64,
}

/// The answer of one sentinel.
#[derive(Debug)]
enum Answer {
    Named(Named),
    /// It knows no primary of this name.
    Unknown,
    Failed(Error),
}

impl Sentinels {
    /// # Errors
    ///
    /// `Config` if the sentinels need TLS and this build has none.
    pub(super) fn new(address: &SentinelAddress) -> Result<Self, Error> {
        let SentinelAddress { sentinels, access, tls, primary } = address;
        let tls = tls.as_ref().map(Tls::new).transpose()?;
        let node = |(host, port): &(String, u16)| Node {
            host: host.clone(),
            port: *port,
            access: access.clone(),
            tls: tls.clone(),
        };
        let shared = Shared {
            nodes: sentinels.iter().map(node).collect(),
            primary: primary.clone(),
            named: watch::Sender::new(None),
            listening: OnceLock::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens a stream to the primary. It fails when the sentinels name another server.
    ///
    /// # Errors
    ///
    /// `Unavailable` if no sentinel answers, or the primary cannot be reached; `Config` if the
    /// sentinels do not know it; `Denied` if they want another login.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes everything that it has opened.
    pub(super) async fn open(&self, tls: Option<&Tls>) -> Result<Box<dyn Stream>, Error> {
        let mut named = self.shared.named.subscribe();
        let Named { host, port, .. } = self.shared.ask().await?;
        self.shared.listen();
        let opened = open_tcp(&host, port, tls).await;
        let stream = opened.map_err(|error| error.at(&host_and_port_text(&host, port)))?;
        let switched = async move {
            let is_other = |named: &Option<Named>| {
                named.as_ref().is_some_and(|named| (&named.host, named.port) != (&host, port))
            };
            if named.wait_for(is_other).await.is_err() {
                // The connector is gone, so nobody listens any more.
                pending::<()>().await;
            }
        };
        Ok(Box::new(UntilSwitched { stream, switched: Box::pin(switched) }))
    }
}

impl Shared {
    /// Asks all sentinels, and keeps what they name.
    async fn ask(&self) -> Result<Named, Error> {
        let host = SystemHost::shared();
        let mut asked: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(async |node| {
                let answer = within(SystemHost::shared(), ASK_LIMIT, node.ask(&self.primary)).await;
                (node, answer.unwrap_or_else(Answer::Failed))
            })
            .collect();
        let mut answers = Vec::with_capacity(self.nodes.len());
        let mut grace = None;
        loop {
            let answer = match &mut grace {
                None => asked.next().await,
                Some(grace) => tokio::select! {
                    biased;
                    answer = asked.next() => answer,
                    () = grace => break,
                },
            };
            let Some(answer) = answer else { break };
            answers.push(answer);
            let is_told = |(_, answer): &&(_, Answer)| !matches!(answer, Answer::Failed(_));
            if grace.is_none() && answers.iter().filter(is_told).count() > self.nodes.len() / 2 {
                grace = Some(host.sleep_until(host.now() + GRACE));
            }
        }
        let last = self.named.borrow().clone();
        let said = answers.iter().map(|(_, answer)| answer);
        let Some(named) = decide(said, self.nodes.len(), last.as_ref()) else {
            return Err(self.not_named(&answers));
        };
        self.named.send_if_modified(|last| {
            let is_new = last.as_ref() != Some(&named);
            *last = Some(named.clone());
            is_new
        });
        Ok(named)
    }

    /// The error if no sentinel names a server.
    fn not_named(&self, answers: &[(&Node, Answer)]) -> Error {
        let primary = self.primary.escape_debug();
        if answers.iter().any(|(_, answer)| matches!(answer, Answer::Unknown)) {
            let message = format!(
                "the sentinels know no primary `{primary}`; no request was sent; correct the name \
                 in the URL (`SENTINEL MASTERS` lists them)"
            );
            return Error::new(ErrorKind::Config, message);
        }
        let failed = || {
            answers.iter().filter_map(|(node, answer)| match answer {
                Answer::Failed(error) => Some((node, error)),
                _ => None,
            })
        };
        let said: Vec<_> =
            failed().map(|(node, error)| format!("{}: {error}", node.name())).collect();
        // A mistake of the user hides behind sentinels that are down.
        let kinds = [ErrorKind::Denied, ErrorKind::Config];
        let kind = kinds.into_iter().find(|kind| failed().any(|(_, error)| error.kind() == *kind));
        let message = format!(
            "no sentinel names the primary `{primary}`; no request was sent; see what they say: {}",
            said.join(" | ")
        );
        Error::new(kind.unwrap_or(ErrorKind::Unavailable), message)
    }

    /// Starts the task that listens, once.
    fn listen(self: &Arc<Self>) {
        self.listening.get_or_init(|| {
            let (alive, ended) = oneshot::channel();
            let (shared, nodes) = (Arc::downgrade(self), self.nodes.clone());
            SystemHost::shared().spawn(Box::pin(async move {
                tokio::select! {
                    _ended = ended => {}
                    () = listen(shared, nodes) => {}
                }
            }));
            alive
        });
    }
}

/// What counts among the answers. `last` is what counted before. An older epoch than that counts
/// only if a majority has answered: the sentinels may have been set up anew.
fn decide<'a>(
    answers: impl Iterator<Item = &'a Answer> + Clone,
    sentinels: usize,
    last: Option<&Named>,
) -> Option<Named> {
    let told = answers.clone().filter(|answer| !matches!(answer, Answer::Failed(_))).count();
    let named = answers.filter_map(|answer| match answer {
        Answer::Named(named) => Some(named),
        _ => None,
    });
    // Of equal ones, the first that has answered.
    let newest = named.reduce(|best, next| if next.epoch > best.epoch { next } else { best })?;
    match last {
        Some(last) if newest.epoch < last.epoch && told <= sentinels / 2 => Some(last.clone()),
        _ => Some(newest.clone()),
    }
}

/// Asks all sentinels when one of them announces another primary, and from time to time.
async fn listen(shared: Weak<Shared>, nodes: Vec<Node>) {
    let host = SystemHost::shared();
    let announced = Notify::new();
    let asking = async {
        while let Some(shared) = shared.upgrade() {
            if let Err(error) = shared.ask().await {
                tracing::debug!(%error, "the sentinels do not name a primary");
            }
            drop(shared);
            let again = host.sleep_until(host.now() + ASK_EVERY);
            tokio::select! {
                () = announced.notified() => {}
                () = again => {}
            }
        }
    };
    tokio::select! {
        () = asking => {}
        _never = join_all(nodes.iter().map(|node| node.listen(&announced))) => {}
    }
}

impl Node {
    fn name(&self) -> String {
        host_and_port_text(&self.host, self.port)
    }

    /// Asks for the primary of this name.
    async fn ask(&self, primary: &str) -> Result<Answer, Error> {
        let mut stream = open_tcp(&self.host, self.port, self.tls.as_ref()).await?;
        handshake(&mut *stream, &self.access).await?;
        let mut words = Vec::new();
        codec::write(&Command::new("SENTINEL").arg("MASTER").arg(primary), &mut words);
        write_all(&mut *stream, &words).await.map_err(gone)?;
        let mut reader = Reader::of_short(ANSWER_BYTES_MAX);
        let frame = loop {
            if let Some(frame) = reader.take().map_err(|_refused| no_sentinel(""))? {
                break frame;
            }
            if !poll_fn(|cx| reader.poll_read(&mut *stream, cx)).await.map_err(gone)? {
                return Err(gone(io::ErrorKind::UnexpectedEof.into()));
            }
        };
        match frame {
            Frame::Array(fields) => {
                named(&fields).map(Answer::Named).ok_or_else(|| no_sentinel(""))
            }
            Frame::Error(text) if text.contains("No such master") => Ok(Answer::Unknown),
            Frame::Error(text) if text.contains("unknown command") => Err(no_sentinel(&text)),
            Frame::Error(text) => Err(refusal(codec::code(&text), &text)),
            _ => Err(no_sentinel("")),
        }
    }

    /// Notifies at each announcement, as long as the sentinel can be reached.
    async fn listen(&self, announced: &Notify) {
        let host = SystemHost::shared();
        loop {
            let opened = within(SystemHost::shared(), ASK_LIMIT, subscribe(self)).await;
            if let Ok(mut subscriber) = opened {
                let mut adding = pin!(subscriber.channels.add(SWITCHED));
                let added = loop {
                    tokio::select! {
                        biased;
                        added = &mut adding => break added.is_ok(),
                        news = subscriber.messages.next() => if news.is_none() { break false },
                    }
                };
                // Something may have been announced before.
                announced.notify_one();
                while added && subscriber.messages.next().await.is_some() {
                    announced.notify_one();
                }
            }
            host.sleep_until(host.now() + LISTEN_AGAIN).await;
        }
    }
}

impl Connector for Node {
    fn open(&self) -> Opening {
        let Self { host, port, tls, .. } = self.clone();
        Box::pin(async move { open_tcp(&host, port, tls.as_ref()).await })
    }

    fn label(&self) -> String {
        self.name()
    }

    fn access(&self) -> Access {
        self.access.clone()
    }
}

/// Reads the answer to `SENTINEL MASTER`: names and values in turn.
fn named(fields: &[Frame]) -> Option<Named> {
    let text = |name: &str| {
        let value = fields.chunks_exact(2).find_map(|pair| match pair {
            [Frame::Bytes(field), Frame::Bytes(value)] if field == name.as_bytes() => Some(value),
            _ => None,
        });
        str::from_utf8(value?).ok()
    };
    let host = text("ip").filter(|host| !host.is_empty())?.to_owned();
    let port = text("port")?.parse().ok().filter(|port| *port != 0)?;
    Some(Named { host, port, epoch: text("config-epoch")?.parse().ok()? })
}

fn no_sentinel(text: &str) -> Error {
    let message = "this is no sentinel; no request was sent; write `redis://` for a server, or \
                   correct host and port in the URL (sentinels usually have port 26379)";
    let error = Error::new(ErrorKind::Config, message);
    if text.is_empty() { error } else { error.with_source(Said::new(text)) }
}

fn gone(cause: io::Error) -> Error {
    let message = "the sentinel ended the connection before it answered; no request was sent";
    Error::new(ErrorKind::Unavailable, message).with_source(cause)
}

/// A stream that fails when the sentinels name another server.
struct UntilSwitched {
    stream: Box<dyn Stream>,
    switched: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Stream for UntilSwitched {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.switched.as_mut().poll(cx).is_ready() {
            self.switched = Box::pin(std::future::ready(()));
            return Poll::Ready(Err(io::Error::other("the sentinels named another primary")));
        }
        self.stream.poll_read(cx, into)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_as(host: &str, epoch: u64) -> Named {
        Named { host: host.to_owned(), port: 6379, epoch }
    }

    #[test]
    fn the_highest_epoch_counts_and_an_older_one_only_with_a_majority() {
        let a = |epoch| Answer::Named(named_as("a", epoch));
        let b = |epoch| Answer::Named(named_as("b", epoch));
        let failed = || Answer::Failed(gone(io::ErrorKind::UnexpectedEof.into()));
        // The answers of three sentinels, what counted before, and what counts now.
        let table = [
            (vec![], None, None),
            (vec![failed(), failed(), failed()], Some(named_as("a", 1)), None),
            (vec![Answer::Unknown, failed()], None, None),
            (vec![a(1), b(2), a(1)], None, Some(named_as("b", 2))),
            (vec![b(2), a(1), failed()], None, Some(named_as("b", 2))),
            (vec![a(1)], None, Some(named_as("a", 1))),
            (vec![a(1), b(1)], None, Some(named_as("a", 1))),
            (vec![Answer::Unknown, a(1)], None, Some(named_as("a", 1))),
            // The sentinel that announced b is silent.
            (vec![a(1), failed(), failed()], Some(named_as("b", 2)), Some(named_as("b", 2))),
            // Set up anew.
            (vec![a(0), a(0), failed()], Some(named_as("b", 9)), Some(named_as("a", 0))),
            (vec![b(3)], Some(named_as("a", 2)), Some(named_as("b", 3))),
        ];
        for (answers, last, expected) in table {
            let decided = decide(answers.iter(), 3, last.as_ref());
            assert_eq!(decided, expected, "{answers:?} after {last:?}");
        }
    }

    #[test]
    fn an_answer_names_a_server_only_if_it_is_whole() {
        let fields = |fields: &[&str]| -> Vec<Frame> {
            fields.iter().map(|field| Frame::Bytes(field.as_bytes().to_vec())).collect()
        };
        let whole = ["name", "m", "ip", "::1", "port", "7", "flags", "master", "config-epoch", "3"];
        let expected = Named { host: "::1".to_owned(), port: 7, epoch: 3 };
        assert_eq!(named(&fields(&whole)), Some(expected));
        for (at, wrong) in [(3, ""), (5, "0"), (5, "65536"), (5, "x"), (9, "-1"), (9, ""), (2, "x")]
        {
            let mut torn = whole;
            torn[at] = wrong;
            assert_eq!(named(&fields(&torn)), None, "{torn:?}");
        }
        assert_eq!(named(&fields(&whole[..9])), None);
        assert_eq!(named(&[]), None);
    }
}
