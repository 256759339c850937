//! The task of a session: sends requests, reads answers, keeps the session alive, and reconnects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::connect::{Opened, ZookeeperConnector};
use super::error::Failure;
use super::frames::Frames;
use super::rpc::{Head, Ticket, close, ping, read_event, xid};
use super::session::{Item, Packet, Shared, gap_max, silence_max, stage};
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, Sleep, random_u32};

/// How many requests are sent at a time.
const BATCH_MAX: usize = 256;

/// How long the end of a session may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// After how long without a request a ping is sent.
fn step(timeout: Duration) -> Duration {
    gap_max(timeout) / 3
}

/// A new connection restarts the time of the session.
fn stood_still() -> End {
    End::Lost(Failure::Broken("this process stood still".to_owned()))
}

/// The task of a session.
pub(super) struct Driver {
    host: Arc<dyn Host>,
    connector: ZookeeperConnector,
    shared: Arc<Shared>,
    items: UnboundedReceiver<Item>,
    ticket: Ticket,
    timeout: Duration,
    /// The number of the server.
    number: usize,
    /// A request that waits for the next connection.
    held: Option<Packet>,
    /// The requests that were sent, in order.
    pending: VecDeque<(i32, Packet)>,
    last_xid: i32,
    /// The last change that an answer has shown.
    seen: i64,
    /// Whether this connection has brought an answer.
    is_answered: bool,
    delays: Delays,
}

/// Why a connection is of no use any more.
enum End {
    /// The store is gone.
    Closed,
    Lost(Failure),
}

/// When a connection was used.
struct Usage {
    sent: Moment,
    /// Since when an answer is due.
    due: Option<Moment>,
}

impl Drop for Driver {
    /// Also after a panic. The next request begins another session.
    fn drop(&mut self) {
        self.end();
    }
}

/// The error of a server that does not go on with the session. The URL has led to the ensemble
/// before, so waiters go on waiting, whatever one server says.
fn for_now(error: Error) -> Error {
    if error.is_retryable() {
        return error;
    }
    let message = format!("no server goes on with the session: {}", error.message());
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

impl Driver {
    pub(super) fn new(
        host: &Arc<dyn Host>,
        connector: ZookeeperConnector,
        opened: &Opened,
        (shared, items): (Arc<Shared>, UnboundedReceiver<Item>),
    ) -> Self {
        Self {
            host: Arc::clone(host),
            connector,
            shared,
            items,
            ticket: opened.ticket,
            timeout: opened.timeout,
            number: opened.number,
            held: None,
            pending: VecDeque::new(),
            last_xid: 0,
            seen: 0,
            is_answered: false,
            delays: Backoff::DEFAULT.delays(),
        }
    }

    pub(super) async fn run(mut self, opened: Opened) {
        let mut next = Some(opened);
        while let Some(opened) = next.take() {
            let usage = Usage { sent: opened.sent, due: None };
            match self.serve(opened.frames, usage).await {
                End::Closed => break,
                End::Lost(failure) => {
                    tracing::debug!(cause = ?failure, "a connection to ZooKeeper ended");
                    let cause = match failure {
                        Failure::Broken(cause) => cause,
                        other => format!("{other:?}"),
                    };
                    for (_, packet) in self.pending.drain(..) {
                        packet.end(Err(Failure::Broken(cause.clone())));
                    }
                }
            }
            next = self.reconnect().await;
            if next.is_some() {
                self.shared.connection.fetch_add(1, Ordering::AcqRel);
                self.shared.news().is_reconnected = true;
                self.shared.notify.notify_one();
            }
        }
    }

    /// The session is over.
    fn end(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.items.close();
        self.refuse_all(&Failure::SessionOver);
        for (_, packet) in self.pending.drain(..) {
            packet.end(Err(Failure::SessionOver));
        }
        self.shared.notify.notify_one();
    }

    /// Refuses all requests that wait to be sent. Returns whether the store is gone.
    fn refuse_all(&mut self, why: &Failure) -> bool {
        if let Some(packet) = self.held.take() {
            packet.end(Err(why.clone()));
        }
        loop {
            match self.items.try_recv() {
                Ok(Item::Ask(packet)) => packet.end(Err(why.clone())),
                Ok(Item::Close) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Goes on with the session at any server. `None` if it has ended.
    async fn reconnect(&mut self) -> Option<Opened> {
        let began = self.host.now();
        if std::mem::take(&mut self.is_answered) {
            self.delays.reset();
        } else {
            // A server that is too slow to connect to must not be kept busy with it.
            self.pause().await;
        }
        // The server is tried last now: it may be cut off, and still accept connections.
        self.number += 1;
        loop {
            if self.shared.is_closed.load(Ordering::Acquire) {
                return None;
            }
            let session = (Some(self.ticket), self.seen);
            let connected = self.connector.connect(&self.host, self.number, session).await;
            match connected.and_then(|opened| self.checked(opened)) {
                Ok(Some(opened)) => {
                    self.number = opened.number;
                    return Some(opened);
                }
                Ok(None) => {
                    tracing::warn!("a session of ZooKeeper has ended, and all its locks with it");
                    return None;
                }
                Err(error) => {
                    self.number += 1;
                    if self.refuse_all(&Failure::Unsent(for_now(error))) {
                        return None;
                    }
                    // Servers whose data was lost never say that it has ended.
                    if self.host.now().since(began) > 2 * self.timeout {
                        return None;
                    }
                    self.pause().await;
                }
            }
        }
    }

    fn pause(&mut self) -> Sleep {
        let pause = self.delays.next(random_u32(&*self.host));
        self.host.sleep_until(self.host.now() + pause)
    }

    /// Refuses a server that makes the session shorter: leases were granted for the longer time.
    fn checked(&self, opened: Option<Opened>) -> Result<Option<Opened>, Error> {
        match opened {
            Some(opened) if opened.timeout < self.timeout => {
                let message = format!(
                    "the server grants a session of {:?}, and another one granted {:?}; no request \
                     was sent; give all servers the same `tickTime` and `maxSessionTimeout`",
                    opened.timeout, self.timeout
                );
                tracing::warn!(server = opened.number, "{message}");
                Err(Error::new(ErrorKind::Unavailable, message))
            }
            opened => Ok(opened),
        }
    }

    /// Works on a connection until it is of no use any more.
    async fn serve(&mut self, mut frames: Frames, mut usage: Usage) -> End {
        let step = step(self.timeout);
        let mut tick = self.host.sleep_until(usage.sent + step);
        if let Some(held) = self.held.take()
            && let Err(end) = self.send(&mut frames, &mut usage, held).await
        {
            return end;
        }
        loop {
            let worked = tokio::select! {
                biased;
                message = frames.next() => {
                    usage.due = None;
                    message.and_then(|message| self.take(message)).map_err(End::Lost)
                }
                item = self.items.recv() => match item {
                    Some(Item::Ask(packet)) => self.send(&mut frames, &mut usage, packet).await,
                    Some(Item::Close) | None => {
                        self.say_goodbye(&mut frames).await;
                        Err(End::Closed)
                    }
                },
                () = &mut tick => self.tick(&mut frames, &mut usage, &mut tick).await,
            };
            if let Err(end) = worked {
                return end;
            }
            if usage.due.is_none() && !self.pending.is_empty() {
                usage.due = Some(self.host.now());
            }
        }
    }

    /// Sends a ping if it is time, and gives up a server that is silent.
    async fn tick(
        &self,
        frames: &mut Frames,
        usage: &mut Usage,
        tick: &mut Sleep,
    ) -> Result<(), End> {
        let (now, step) = (self.host.now(), step(self.timeout));
        self.check(usage, now)?;
        if now.since(usage.sent) >= step {
            let mut framed = Vec::new();
            ping().frame(&mut framed);
            usage.sent = now;
            usage.due.get_or_insert(now);
            self.write(frames, &framed).await?;
        }
        *tick = self.host.sleep_until(usage.sent + step);
        Ok(())
    }

    /// Checks that neither side has been silent for too long.
    fn check(&self, usage: &Usage, now: Moment) -> Result<(), End> {
        let limit = silence_max(self.timeout);
        if now.since(usage.sent) > gap_max(self.timeout) {
            return Err(stood_still());
        }
        if usage.due.is_some_and(|due| now.since(due) > limit) {
            return Err(End::Lost(Failure::Silent(limit)));
        }
        Ok(())
    }

    /// Sends a request, and those that wait behind it.
    async fn send(
        &mut self,
        frames: &mut Frames,
        usage: &mut Usage,
        first: Packet,
    ) -> Result<(), End> {
        let now = self.host.now();
        if let Err(end) = self.check(usage, now) {
            self.held = Some(first);
            return Err(end);
        }
        let (mut framed, mut next, mut is_closing) = (Vec::new(), Some(first), false);
        for _ in 0..BATCH_MAX {
            let Some(packet) = next.take() else { break };
            self.add(packet, &mut framed);
            match self.items.try_recv() {
                Ok(Item::Ask(packet)) => next = Some(packet),
                Ok(Item::Close) => is_closing = true,
                Err(_) => {}
            }
        }
        if let Some(packet) = next {
            self.add(packet, &mut framed);
        }
        // Nothing is sent if all their callers gave up.
        if !framed.is_empty() {
            usage.sent = now;
            usage.due.get_or_insert(now);
            self.write(frames, &framed).await?;
        }
        if is_closing {
            self.say_goodbye(frames).await;
            return Err(End::Closed);
        }
        Ok(())
    }

    /// Adds a request to those that are sent, unless its caller gave up.
    fn add(&mut self, packet: Packet, framed: &mut Vec<u8>) {
        let (from, to) = (stage::WAITS, stage::SENT);
        let begun = packet.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        if begun.is_ok() {
            // Numbers below zero have a meaning.
            self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
            packet.request.message(self.last_xid).frame(framed);
            self.pending.push_back((self.last_xid, packet));
        }
    }

    async fn write(&self, frames: &mut Frames, framed: &[u8]) -> Result<(), End> {
        let limit = silence_max(self.timeout);
        tokio::select! {
            biased;
            sent = frames.send(framed) => sent.map_err(End::Lost),
            () = self.host.sleep_until(self.host.now() + limit) => {
                Err(End::Lost(Failure::Silent(limit)))
            }
        }
    }

    /// Takes a message of the server.
    fn take(&mut self, mut message: Vec<u8>) -> Result<(), Failure> {
        let head = Head::read(&message)?;
        self.is_answered = true;
        self.seen = self.seen.max(head.zxid);
        let body = message.split_off(Head::LENGTH);
        match head.xid {
            xid::PING | xid::AUTH => {}
            xid::EVENT => {
                if let Some(path) = read_event(&body)? {
                    self.shared.news().gone.push(path);
                    self.shared.notify.notify_one();
                }
            }
            xid => {
                let packet = take_answered(&mut self.pending, xid).ok_or(Failure::Malformed)?;
                packet.end(if head.code == 0 {
                    Ok(body)
                } else {
                    Err(Failure::Refused(head.code))
                });
            }
        }
        Ok(())
    }

    /// Ends the session at the server.
    async fn say_goodbye(&mut self, frames: &mut Frames) {
        let mut framed = Vec::new();
        close().message(0).frame(&mut framed);
        let limit = self.host.sleep_until(self.host.now() + CLOSE_LIMIT);
        let saying = async {
            frames.send(&framed).await?;
            loop {
                let message = frames.next().await?;
                // The answers to all other requests come before.
                if Head::read(&message)?.xid == 0 {
                    return Ok(());
                }
                self.take(message)?;
            }
        };
        let said: Result<(), Failure> = tokio::select! {
            biased;
            said = saying => said,
            () = limit => Err(Failure::Silent(CLOSE_LIMIT)),
        };
        if let Err(failure) = said {
            tracing::debug!(cause = ?failure, "a session of ZooKeeper was left to its timeout");
        }
    }
}

/// The request that an answer is for. Requests are answered in order. If the first one is another,
/// it stays: its end by the end of the connection says that it may have taken effect.
fn take_answered<T>(pending: &mut VecDeque<(i32, T)>, xid: i32) -> Option<T> {
    let is_first = pending.front().is_some_and(|(sent, _)| *sent == xid);
    is_first.then(|| pending.pop_front().expect("there is a first one").1)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::host::SystemHost;
    use crate::store::zookeeper::rpc::exists;
    use crate::store::zookeeper::session::{Session, margin};

    #[test]
    fn an_answer_to_another_request_takes_none_away() {
        let mut pending = VecDeque::from([(1, "one"), (2, "two")]);
        assert_eq!(take_answered(&mut pending, 2), None);
        assert_eq!(pending.len(), 2);
        assert_eq!(take_answered(&mut pending, 1), Some("one"));
        assert_eq!(take_answered(&mut pending, 2), Some("two"));
        assert_eq!(take_answered(&mut pending, 3), None);
    }

    #[test]
    fn a_silent_connection_is_given_up_while_its_session_surely_lasts() {
        for seconds in [4, 8, 15, 60, 600] {
            let timeout = Duration::from_secs(seconds);
            // The silence may begin right after an answer, and end right before the look at it.
            let silence = silence_max(timeout) + 2 * step(timeout);
            assert!(silence < margin(timeout), "{timeout:?}: {silence:?}");
        }
    }
    /// The session may have ended meanwhile.
    #[tokio::test]
    async fn a_request_after_a_standstill_waits_for_the_next_connection() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let host = SystemHost::shared();
        let connector = ZookeeperConnector::new("zookeeper://127.0.0.1/a").expect("a URL");
        let (ticket, timeout) = (Ticket { id: 1, password: [0; 16] }, Duration::ZERO);
        // It was used when this machine started.
        let sent = Moment::from_nanos(0);
        let frames = Frames::new(Box::new(ours));
        let opened = Opened { frames, ticket, timeout, number: 0, sent };
        let (session, ends) = Session::new(&host, (ticket.id, timeout), "".into(), Arc::default());
        let mut driver = Driver::new(&host, connector, &opened, ends);
        let _asked = session.ask(exists("/a"), |_| Ok(()));
        let end = driver.serve(opened.frames, Usage { sent, due: None }).await;
        assert!(matches!(end, End::Lost(Failure::Broken(_))));
        assert!(driver.held.is_some(), "it waits");
        let mut arrived = Vec::new();
        theirs.read_to_end(&mut arrived).await.expect("it was closed");
        assert_eq!(arrived, b"");
    }
}
