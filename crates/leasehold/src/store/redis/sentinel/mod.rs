//! Finds the primary by asking sentinels, and notices when they name another primary.
//!
//! Each new connection asks the sentinels at once. The answer with the highest configuration epoch
//! counts, because sentinels raise the epoch with each failover. The server must then say that it
//! is a primary (`ROLE`, in the handshake).
//!
//! An open connection ends when the sentinels name another server. One task of each connector
//! listens at every sentinel for the [channels](node) of a failover. It asks all sentinels when it
//! hears of a failover, or when [`ASK_EVERY`] has passed. So a client that can still reach an old
//! primary leaves it.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/sentinel-clients/>

mod decision;
mod node;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, oneshot, watch};

use self::decision::{Answer, Named, decide};
use self::node::Node;
use super::connector::{Connector, Stream};
use super::place::Place;
use super::url::SentinelAddress;
use crate::core::error::{Error, ErrorKind};
use crate::host::shielded::run_again;
use crate::host::{SystemHost, Task};
use crate::store::net::{Tls, host_and_port_text, open_tcp};
use crate::store::within;

/// How long one sentinel may take to answer, with the connection and the login.
const ASK_LIMIT: Duration = Duration::from_secs(1);

/// How long a new connection waits for further answers after one has named a server.
const GRACE: Duration = Duration::from_millis(50);

/// How often the sentinels are asked while a connection is open, in addition to their messages.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// The shortest time between two questions to the sentinels, however often they announce something.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The sentinels of one URL.
#[derive(Clone)]
pub(super) struct Sentinels {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Vec<Node>,
    primary: String,
    /// The last answer of the sentinels.
    last: watch::Sender<Last>,
    /// How many asks have begun.
    asks: AtomicU64,
    /// Ends the task that listens when this is dropped.
    listening: OnceLock<oneshot::Sender<Infallible>>,
}

/// The server that counts now, and the highest number of an ask that was judged.
#[derive(Debug, Default)]
struct Last {
    ask: u64,
    named: Option<Named>,
}

/// How long to ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until somebody names a server, and [`GRACE`] longer.
    Short,
    /// Until all have answered, or had [`ASK_LIMIT`] for it.
    Full,
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
            last: watch::Sender::default(),
            asks: AtomicU64::new(0),
            listening: OnceLock::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Each sentinel, and the name of the primary.
    pub(super) fn watchers(&self) -> Vec<(&dyn Connector, &str)> {
        let primary = self.shared.primary.as_str();
        self.shared.nodes.iter().map(|node| (node as &dyn Connector, primary)).collect()
    }

    /// Opens a stream to the primary. The stream fails when the sentinels name another server.
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
        self.shared.listen();
        loop {
            // Subscribe before asking, so that no announcement is missed.
            let last = self.shared.last.subscribe();
            let place = self.shared.ask(Patience::Short).await?.place;
            let (host, port) = place.clone();
            let mut switched = Box::pin(is_left(last, place));
            let opened = tokio::select! {
                biased;
                // The host of an old primary may be silent.
                () = &mut switched => continue,
                opened = open_tcp(&host, port, tls) => opened,
            };
            let stream = opened.map_err(|error| error.at(&host_and_port_text(&host, port)))?;
            return Ok(Box::new(UntilSwitched { stream, switched }));
        }
    }
}

/// Ends when the sentinels name another server than this one.
async fn is_left(mut last: watch::Receiver<Last>, place: Place) {
    let is_other = |last: &Last| last.named.as_ref().is_some_and(|named| named.place != place);
    if last.wait_for(is_other).await.is_err() {
        // The connector is gone, so nobody listens any more.
        pending::<()>().await;
    }
}

impl Shared {
    /// Asks all sentinels, and keeps what they name.
    async fn ask(&self, patience: Patience) -> Result<Named, Error> {
        let host = SystemHost::shared();
        let number = self.asks.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.last.borrow().named.clone();
        let mut asked: FuturesUnordered<_> =
            self.nodes.iter().map(|node| self.hear(node)).collect();
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
            let is_enough = patience == Patience::Short && answer.1.is_no_older_than(last.as_ref());
            answers.push(answer);
            if is_enough && grace.is_none() {
                grace = Some(host.sleep_until(host.now() + GRACE));
            }
        }
        let (asked, said): (Vec<_>, Vec<_>) = answers.into_iter().unzip();
        self.keep(number, &said).ok_or_else(|| self.not_named(&asked, &said, last.is_some()))
    }

    /// Keeps what the sentinels named in the ask with this number. Returns what is kept now. If
    /// this ask waited for a silent sentinel, a later ask may have been faster. The answer of the
    /// later ask stays, unless this ask has heard of a newer epoch.
    fn keep(&self, number: u64, said: &[Answer]) -> Option<Named> {
        let (mut kept, mut left) = (None, None);
        self.last.send_if_modified(|last| {
            let before = last.named.clone();
            kept = decide(said.iter(), self.nodes.len(), before.as_ref());
            let Some(named) = &kept else { return false };
            let is_newer = before.as_ref().is_none_or(|before| named.epoch > before.epoch);
            if last.ask > number && !is_newer {
                kept = before;
                return false;
            }
            last.ask = last.ask.max(number);
            let is_other = before.as_ref() != Some(named);
            last.named = Some(named.clone());
            left = before.filter(|before| before.place != named.place);
            is_other
        });
        // The new primary must count first, because a log subscriber may panic.
        if let (Some(from), Some(to)) = (&left, &kept) {
            let (from, to) = (&from.place, &to.place);
            tracing::info!(?from, ?to, "the sentinels name another primary");
        }
        kept
    }

    /// The answer of one sentinel, or why there is none.
    async fn hear<'a>(&self, node: &'a Node) -> (&'a Node, Answer) {
        let answer = match within(SystemHost::shared(), ASK_LIMIT, node.ask(&self.primary)).await {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::Unknown => {
                let message = format!("it does not answer within {ASK_LIMIT:?}");
                Answer::Failed(Error::new(ErrorKind::Unavailable, message))
            }
            Err(error) => Answer::Failed(error),
        };
        (node, answer)
    }

    /// The error if no sentinel names a server. It is final only if most sentinels know no such
    /// server, and no sentinel has named one before.
    fn not_named(&self, asked: &[&Node], said: &[Answer], named_before: bool) -> Error {
        let primary = self.primary.escape_debug();
        let most = |kind: Option<ErrorKind>| {
            let is_it = |answer: &&Answer| match (answer, kind) {
                (Answer::Unknown, None) => true,
                (Answer::Failed(error), Some(kind)) => error.kind() == kind,
                _ => false,
            };
            !named_before && said.iter().filter(is_it).count() > self.nodes.len() / 2
        };
        if most(None) {
            let message = format!(
                "the sentinels know no primary `{primary}`; no request was sent; correct the name \
                 in the URL (`SENTINEL MASTERS` lists them)"
            );
            return Error::new(ErrorKind::Config, message);
        }
        let said = asked.iter().zip(said).map(|(node, answer)| match answer {
            Answer::Failed(error) => format!("{}: {error}", node.name()),
            _ => format!("{}: it knows no such primary", node.name()),
        });
        let said: Vec<_> = said.collect();
        let kinds = [ErrorKind::Denied, ErrorKind::Config];
        let kind = kinds.into_iter().find(|kind| most(Some(*kind)));
        let message = format!(
            "no sentinel names the primary `{primary}`; no request was sent; see what they say \
             (their login is `?sentinel_password=` in the URL): {}",
            said.join(" | ")
        );
        Error::new(kind.unwrap_or(ErrorKind::Unavailable), message)
    }

    /// Starts the task that listens, once.
    fn listen(self: &Arc<Self>) {
        self.listening.get_or_init(|| {
            let (alive, ended) = oneshot::channel();
            let (shared, nodes) = (Arc::downgrade(self), self.nodes.clone());
            let primary = self.primary.clone();
            let begin = move || -> Task {
                Box::pin(listen(Weak::clone(&shared), nodes.clone(), primary.clone()))
            };
            let host = SystemHost::shared();
            let listening = run_again(Arc::clone(&host), begin);
            host.spawn(Box::pin(async move {
                tokio::select! {
                    _ended = ended => {}
                    () = listening => {}
                }
            }));
            alive
        });
    }
}

/// Asks all sentinels when one of them announces another primary, and from time to time.
async fn listen(shared: Weak<Shared>, nodes: Vec<Node>, primary: String) {
    let host = SystemHost::shared();
    let announced = Notify::new();
    let asking = async {
        while let Some(shared) = shared.upgrade() {
            if let Err(error) = shared.ask(Patience::Full).await {
                tracing::debug!(%error, "the sentinels do not name a primary");
            }
            drop(shared);
            let asked = host.now();
            host.sleep_until(asked + ASK_AGAIN).await;
            let again = host.sleep_until(asked + ASK_EVERY);
            tokio::select! {
                () = announced.notified() => {}
                () = again => {}
            }
        }
    };
    tokio::select! {
        () = asking => {}
        _never = join_all(nodes.iter().map(|node| node.listen(&primary, &announced))) => {}
    }
}

/// A stream that fails when the sentinels name another server.
struct UntilSwitched {
    stream: Box<dyn Stream>,
    switched: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Stream for UntilSwitched {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        // Answers that have arrived still count.
        if let Poll::Ready(read) = self.stream.poll_read(cx, into) {
            return Poll::Ready(read);
        }
        ready!(self.switched.as_mut().poll(cx));
        self.switched = Box::pin(std::future::ready(()));
        Poll::Ready(Err(io::Error::other("the sentinels named another primary")))
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
    use std::fmt;
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use tokio::io::AsyncWriteExt as _;
    use tracing::field::Field;
    use tracing::{Event, Subscriber};

    use super::*;
    use crate::host::on_event::OnEvent;
    use crate::host::shielded::panic_quietly;
    use crate::store::redis::connector::Access;

    /// Three sentinels that watch over this primary. Nobody listens there.
    fn shared(primary: &str) -> Arc<Shared> {
        let address = SentinelAddress {
            sentinels: vec![("127.0.0.1".to_owned(), 1); 3],
            access: Access::default(),
            tls: None,
            primary: primary.to_owned(),
        };
        Sentinels::new(&address).expect("no TLS").shared
    }

    fn named(host: &str, epoch: u64) -> Named {
        Named { place: (host.to_owned(), 1), epoch }
    }

    /// A subscriber that panics at the first event of this file with this text, and tells the test
    /// of others.
    fn broken_at(text: &'static str) -> (impl Subscriber, mpsc::Receiver<()>) {
        let (others, told) = mpsc::channel();
        let has_panicked = AtomicBool::new(false);
        let broken = OnEvent(move |event: &Event<'_>| {
            let mut said = String::new();
            event.record(&mut |_: &Field, value: &dyn fmt::Debug| {
                said.push_str(&format!("{value:?} "));
            });
            if !event.metadata().target().ends_with("::sentinel") || !said.contains(text) {
                return;
            }
            if !has_panicked.swap(true, Ordering::SeqCst) {
                panic_quietly();
            }
            // The test may be over.
            let _gone = others.send(());
        });
        (broken, told)
    }

    #[test]
    fn another_primary_counts_although_the_log_panics_when_it_is_told() {
        let shared = shared("main");
        let keep = |number, host: &str, epoch| {
            let answer = || Answer::Named(named(host, epoch));
            shared.keep(number, &[answer(), answer()])
        };
        keep(1, "old-primary", 1).expect("named");
        let last = shared.last.subscribe();
        let (broken, _others) = broken_at("new-primary");
        let kept = tracing::subscriber::with_default(broken, || {
            catch_unwind(AssertUnwindSafe(|| keep(2, "new-primary", 2)))
        });
        assert!(kept.is_err(), "the log panics");
        assert!(last.has_changed().expect("it lives"));
        assert_eq!(last.borrow().named, Some(named("new-primary", 2)));
    }

    /// Otherwise a client stays at an old primary that it can still reach.
    #[test]
    fn sentinels_are_asked_again_although_the_log_has_panicked() {
        let limit = Duration::from_secs(60);
        let (broken, asked_again) = broken_at("a-primary-that-nobody-names");
        let (tell, told) = mpsc::channel();
        // The sentinels are asked on this thread. The subscriber stays on it, and ignores events
        // without this text.
        SystemHost::shared().spawn(Box::pin(async move {
            std::mem::forget(tracing::subscriber::set_default(broken));
            tell.send(()).expect("the test waits");
        }));
        told.recv_timeout(limit).expect("the host runs");
        let shared = shared("a-primary-that-nobody-names");
        shared.listen();
        asked_again.recv_timeout(limit).expect("the task goes on");
    }

    #[test]
    fn an_ask_that_ends_after_a_later_one_counts_only_by_a_newer_epoch() {
        let shared = shared("main");
        // This many of the three sentinels name a server.
        let keep_from = |sentinels, number, host, epoch| {
            let answer = || Answer::Named(named(host, epoch));
            let said: Vec<_> = std::iter::repeat_with(answer).take(sentinels).collect();
            let kept = shared.keep(number, &said).expect("named");
            assert_eq!(shared.last.borrow().named.as_ref(), Some(&kept));
            (kept.place.0, kept.epoch)
        };
        let keep = |number, host, epoch| keep_from(2, number, host, epoch);
        let is = |host: &str, epoch| (host.to_owned(), epoch);
        assert_eq!(keep(1, "p", 1), is("p", 1));
        assert_eq!(keep(3, "q", 2), is("q", 2));
        assert_eq!(keep(2, "p", 1), is("q", 2), "it began before");
        assert_eq!(keep(5, "p", 3), is("p", 3));
        // A slow sentinel was the first to hear of a failover.
        assert_eq!(keep_from(1, 4, "q", 4), is("q", 4), "a newer epoch counts");
        assert_eq!(keep_from(1, 6, "p", 3), is("q", 4), "one of three is not most of them");
        assert!(shared.keep(7, &[Answer::Unknown]).is_none());
    }

    #[test]
    fn why_no_primary_is_named_is_final_only_if_most_sentinels_say_so() {
        use ErrorKind::{Config, Denied, Unavailable};
        let shared = shared("main");
        let asked: Vec<_> = shared.nodes.iter().collect();
        // what the sentinels say (`None`: they know no such primary), whether one was named before
        for (said, named_before, kind) in [
            ([None, None, Some(Unavailable)], false, Config),
            ([None, Some(Unavailable), Some(Unavailable)], false, Unavailable),
            ([None, None, None], true, Unavailable),
            ([Some(Denied), Some(Denied), None], false, Denied),
            ([Some(Denied), Some(Unavailable), None], false, Unavailable),
            ([Some(Denied), Some(Denied), Some(Denied)], true, Unavailable),
            ([Some(Config), Some(Denied), Some(Config)], false, Config),
        ] {
            let answer = |said: Option<ErrorKind>| match said {
                None => Answer::Unknown,
                Some(kind) => Answer::Failed(Error::new(kind, "it is so")),
            };
            let error = shared.not_named(&asked, &said.map(answer), named_before);
            assert_eq!(error.kind(), kind, "{said:?} {named_before}: {error}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_came_before_another_primary_was_named_counts() {
        let (ours, mut server) = tokio::io::duplex(64);
        server.write_all(b"+OK").await.expect("there is room");
        let switched = Box::pin(std::future::ready(()));
        let mut stream = UntilSwitched { stream: Box::new(ours), switched };
        let mut bytes = [0; 8];
        let read = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await;
        assert_eq!(read.expect("it came before"), 3);
        for _ in 0..2 {
            let read = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await;
            let error = read.expect_err("another primary was named");
            assert!(error.to_string().contains("named another primary"), "{error}");
        }
    }
}
