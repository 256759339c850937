//! The task of a session: sends requests, reads answers, keeps the session alive, and reconnects.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::connect::{Opened, ZookeeperConnector};
use super::error::Failure;
use super::frames::{Frame, Frames};
use super::rpc::{Head, Ticket, close, ping, read_event, xid};
use super::session::{Caller, Item, Packet, Shared, gap_max, silence_max};
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, Sleep, random_u32};
use crate::store::net::for_now;

/// How many requests are sent at a time.
const BATCH_MAX: usize = 256;

/// How long a request may take. It is longer than the limit of any request of the contract.
const ASK_LIMIT: Duration = Duration::from_millis(1_500);

/// The longest pause between two looks for requests that take longer than [`ASK_LIMIT`].
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the end of a session may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// How long the client sends no request before it sends a ping.
fn step(timeout: Duration) -> Duration {
    gap_max(timeout) / 3
}

/// The end of a connection because this process stood still. A new one restarts the time of the
/// session.
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
    /// The requests that wait to be sent, before the items.
    waiting: VecDeque<Item>,
    /// The requests that were sent, in order. `None` if the caller was told that there is no answer
    /// in time.
    pending: VecDeque<(i32, Option<Caller>)>,
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
    /// Ends the session, even after a panic. The next request begins another one.
    fn drop(&mut self) {
        self.end();
    }
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
            waiting: VecDeque::new(),
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
                    self.end_pending(&failure.of_others());
                }
            }
            next = self.reconnect().await;
            if next.is_some() {
                self.shared.connection.fetch_add(1, Ordering::AcqRel);
                self.shared.board.add(|news| news.are_watches_lost = true);
            }
        }
    }

    /// Notes that the session is over.
    fn end(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.items.close();
        self.refuse_all(&Failure::SessionOver);
        self.end_pending(&Failure::SessionOver);
        self.shared.board.add(|news| news.are_watches_lost = true);
    }

    fn end_pending(&mut self, why: &Failure) {
        for (_, caller) in self.pending.drain(..) {
            caller.into_iter().for_each(|caller| caller.end(Err(why.clone())));
        }
    }

    /// The next item, if there is one already.
    fn next_now(&mut self) -> Option<Item> {
        self.waiting.pop_front().or_else(|| self.items.try_recv().ok())
    }

    /// Refuses all requests that wait to be sent. Returns whether the store is gone.
    fn refuse_all(&mut self, why: &Failure) -> bool {
        loop {
            match self.next_now() {
                Some(Item::Ask(packet)) => packet.caller.end(Err(why.clone())),
                Some(Item::Close) => return true,
                None => return false,
            }
        }
    }

    /// Ends the requests that take too long.
    fn sweep(&mut self) {
        let now = self.host.now();
        let is_late = |caller: &Caller| now.since(caller.since) >= ASK_LIMIT;
        // All requests are in the order in which they were made.
        for (_, sent) in &mut self.pending {
            match sent.take_if(|caller| is_late(caller)) {
                Some(caller) => caller.end(Err(Failure::Silent(ASK_LIMIT))),
                None if sent.is_some() => break,
                None => {}
            }
        }
        self.waiting.extend(std::iter::from_fn(|| self.items.try_recv().ok()));
        let is_late = |item: &mut Item| matches!(item, Item::Ask(it) if is_late(&it.caller));
        while let Some(Item::Ask(packet)) = self.waiting.pop_front_if(is_late) {
            packet.caller.end(Err(unsent()));
        }
    }

    /// Waits for some work, and ends the requests that take too long meanwhile.
    async fn sweeping<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let look = self.host.sleep_until(self.host.now() + LOOK_EVERY);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = look => self.sweep(),
            }
        }
    }

    /// Goes on with the session at any server. `None` if it has ended.
    async fn reconnect(&mut self) -> Option<Opened> {
        let began = self.host.now();
        if std::mem::take(&mut self.is_answered) {
            self.delays.reset();
        } else {
            // Pause, because a server that is too slow to connect to must not be kept busy.
            self.pause().await;
        }
        let (connector, host) = (self.connector.clone(), Arc::clone(&self.host));
        // The same server is tried last now, because it may be cut off, and still accept
        // connections.
        self.number += 1;
        loop {
            if self.shared.is_closed.load(Ordering::Acquire) {
                return None;
            }
            let session = (Some(self.ticket), self.seen);
            let connecting = connector.connect(&host, self.number, session);
            let connected = self.sweeping(connecting).await;
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
                    // Servers that lost their data never say that the session has ended.
                    if self.host.now().since(began) > 2 * self.timeout {
                        return None;
                    }
                    self.pause().await;
                }
            }
        }
    }

    async fn pause(&mut self) {
        let pause = self.delays.next(random_u32(&*self.host));
        self.sweeping(self.host.sleep_until(self.host.now() + pause)).await;
    }

    /// Refuses a server that makes the session shorter, because leases were granted for the longer
    /// time.
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
        let mut tick = self.host.sleep_until(usage.sent + step(self.timeout).min(LOOK_EVERY));
        loop {
            let worked = tokio::select! {
                biased;
                message = frames.next() => {
                    usage.due = None;
                    message.and_then(|frame| self.take(frame)).map_err(End::Lost)
                }
                item = next(&mut self.waiting, &mut self.items) => match item {
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

    /// Sends a ping if it is time. Gives up requests without an answer, and a silent server.
    async fn tick(
        &mut self,
        frames: &mut Frames,
        usage: &mut Usage,
        tick: &mut Sleep,
    ) -> Result<(), End> {
        let (now, step) = (self.host.now(), step(self.timeout));
        self.check(usage, now)?;
        self.sweep();
        if now.since(usage.sent) >= step {
            let mut framed = Vec::new();
            ping().frame(&mut framed);
            usage.sent = now;
            usage.due.get_or_insert(now);
            self.write(frames, &framed).await?;
        }
        *tick = self.host.sleep_until((usage.sent + step).min(now + LOOK_EVERY));
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
            self.waiting.push_front(Item::Ask(first));
            return Err(end);
        }
        let (mut framed, mut next, mut is_closing) = (Vec::new(), Some(first), false);
        for _ in 0..BATCH_MAX {
            let Some(packet) = next.take() else { break };
            self.add(packet, now, &mut framed);
            match self.next_now() {
                Some(Item::Ask(packet)) => next = Some(packet),
                Some(Item::Close) => is_closing = true,
                None => {}
            }
        }
        if let Some(packet) = next {
            self.add(packet, now, &mut framed);
        }
        // Nothing is sent if all requests waited for too long.
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

    /// Adds a request to those that are sent, unless it has waited for too long.
    fn add(&mut self, Packet { request, caller }: Packet, now: Moment, framed: &mut Vec<u8>) {
        if now.since(caller.since) >= ASK_LIMIT {
            return caller.end(Err(unsent()));
        }
        // Numbers below zero have special meanings.
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        request.frame(self.last_xid, framed);
        self.pending.push_back((self.last_xid, Some(caller)));
    }

    async fn write(&mut self, frames: &mut Frames, framed: &[u8]) -> Result<(), End> {
        let limit = silence_max(self.timeout);
        let too_long = self.host.sleep_until(self.host.now() + limit);
        let writing = async {
            tokio::select! {
                biased;
                sent = frames.send(framed) => sent,
                () = too_long => Err(Failure::Silent(limit)),
            }
        };
        self.sweeping(writing).await.map_err(End::Lost)
    }

    /// Handles a message from the server.
    fn take(&mut self, Frame { mut bytes, is_too_long }: Frame) -> Result<(), Failure> {
        let head = Head::read(&bytes)?;
        self.is_answered = true;
        self.seen = self.seen.max(head.zxid);
        let body = bytes.split_off(Head::LENGTH);
        match head.xid {
            xid::PING | xid::AUTH => {}
            xid::EVENT => {
                if let Some(path) = read_event(&body)? {
                    self.shared.board.add(|news| news.gone.push(path));
                }
            }
            xid => {
                let caller = take_answered(&mut self.pending, xid).ok_or(Failure::Malformed)?;
                let answer = match head.code {
                    _ if is_too_long => Err(Failure::TooLong),
                    0 => Ok(body),
                    code => Err(Failure::Refused(code)),
                };
                if let Some(caller) = caller {
                    caller.end(answer);
                }
            }
        }
        Ok(())
    }

    /// Ends the session at the server.
    async fn say_goodbye(&mut self, frames: &mut Frames) {
        let mut framed = Vec::new();
        close().frame(0, &mut framed);
        let limit = self.host.sleep_until(self.host.now() + CLOSE_LIMIT);
        let saying = async {
            frames.send(&framed).await?;
            loop {
                let frame = frames.next().await?;
                // The answers to all other requests come before.
                if Head::read(&frame.bytes)?.xid == 0 {
                    return Ok(());
                }
                self.take(frame)?;
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

/// The next item, when there is one. `None` if nobody can ask any more.
async fn next(waiting: &mut VecDeque<Item>, items: &mut UnboundedReceiver<Item>) -> Option<Item> {
    match waiting.pop_front() {
        None => items.recv().await,
        item => item,
    }
}

/// The failure of a request that waited for a connection and got none.
fn unsent() -> Failure {
    let message = format!(
        "there was no connection within {ASK_LIMIT:?}; no request was sent; check whether a \
         majority of the servers runs"
    );
    Failure::Unsent(Error::new(ErrorKind::Unavailable, message))
}

/// Takes the request that an answer is for. Requests are answered in order. If the first one is
/// another, it stays. When the connection ends, its caller learns that it may have taken effect.
fn take_answered<T>(pending: &mut VecDeque<(i32, T)>, xid: i32) -> Option<T> {
    let is_first = pending.front().is_some_and(|(sent, _)| *sent == xid);
    is_first.then(|| pending.pop_front().expect("there is a first one").1)
}

#[cfg(test)]
mod tests;
