//! Delivers everything that was sent, each delivery at its moment.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host, Sleep};

use super::connection::{Bytes, Request};
use super::{Delivery, Network, State};
use crate::history::event::What;
use crate::protocol::{self, Command, News};

/// Everything on its way, ordered by its time of arrival.
#[derive(Default)]
pub(super) struct Schedule {
    due: BinaryHeap<Due>,
    numbered: u64,
    carrier: Option<Waker>,
    /// The moment for which the carrier has set its timer.
    wakes_at: Option<Moment>,
}

struct Due {
    at: Moment,
    number: u64,
    delivery: Delivery,
}

impl Schedule {
    pub(super) fn add(&mut self, at: Moment, delivery: Delivery) {
        self.numbered += 1;
        self.due.push(Due { at, number: self.numbered, delivery });
        if self.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            self.wake();
        }
    }

    /// Wakes the carrier so that it looks again.
    pub(super) fn wake(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            carrier.wake();
        }
    }

    fn take_due(&mut self, now: Moment) -> Option<Delivery> {
        let is_due = self.due.peek().is_some_and(|due| due.at <= now);
        is_due.then(|| self.due.pop().map(|due| due.delivery)).flatten()
    }
}

impl Network {
    /// The task that delivers everything. It never ends.
    pub(super) async fn carry(self) {
        let mut timer: Option<(Moment, Sleep)> = None;
        poll_fn(move |context| {
            loop {
                let now = self.now();
                let mut state = self.state();
                while let Some(delivery) = state.schedule.take_due(now) {
                    state.arrive(now, delivery);
                }
                state.schedule.carrier = Some(context.waker().clone());
                let next = state.schedule.due.peek().map(|due| due.at);
                state.schedule.wakes_at = next;
                drop(state);
                let Some(next) = next else {
                    timer = None;
                    return Poll::Pending;
                };
                if timer.as_ref().is_none_or(|(at, _)| *at != next) {
                    timer = Some((next, self.0.common.sleep_until(next)));
                }
                let (_, sleep) = timer.as_mut().expect("it was just set");
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::<()>::Pending;
                }
                timer = None;
            }
        })
        .await;
    }
}

impl State {
    /// Handles a delivery that has reached the end of the network. A partition may hold it back
    /// there.
    pub(super) fn arrive(&mut self, now: Moment, delivery: Delivery) {
        if let Some(id) = delivery.connection() {
            let Some(connection) = self.connections.find_mut(id) else { return };
            let trouble = &self.troubles[connection.process.0 as usize];
            let is_held = match &delivery {
                Delivery::Bytes(..) => trouble.to_client,
                Delivery::Break(_) => false,
                _ => trouble.to_server,
            };
            if is_held && connection.arriving.is_none() {
                return connection.held.push(delivery);
            }
        }
        self.reach(now, delivery);
    }

    /// Handles a delivery that has come through the network.
    pub(super) fn reach(&mut self, now: Moment, delivery: Delivery) {
        match delivery {
            Delivery::Bytes(id, bytes) => self.came_in(id, bytes),
            Delivery::Break(id) => self.break_now(id),
            Delivery::Written(sent) => self.received(now, sent),
            Delivery::Synced(syncing) => self.synced(now, syncing),
            _ if self.server.is_stopped => self.unread.push(delivery),
            _ if !self.server.is_up => {}
            Delivery::Request(id, request) => self.serve(now, id, *request),
            Delivery::Copy { to, .. }
                if self.server.strict.is_some() && to != self.server.started => {}
            Delivery::Copy { command, .. } => {
                let executed = self.server.carry_out_again(now, &command);
                self.replicate(now);
                self.publish(now, executed.published);
            }
            Delivery::Confirmed(said) => self.confirmed(now, said),
            Delivery::Follows { replica, of } => self.follows(now, replica, of),
            Delivery::WaitOver(id, number) => self.wait_over(now, id, number),
            Delivery::HungUp(id) => {
                self.server.unsubscribe(id.0);
                self.connections.forget(id);
            }
        }
    }

    pub(super) fn serve(&mut self, now: Moment, id: super::ConnectionId, request: Request) {
        let Some(connection) = self.connections.find_mut(id) else { return };
        if connection.waits.is_some() {
            return connection.behind.push_back(request);
        }
        if !connection.lets_through() {
            return;
        }
        if let Some(answer) = self.serve_subscriber(now, id, &request.command) {
            return self.answer(now, id, answer);
        }
        let Some(connection) = self.connections.find_mut(id) else { return };
        let Request { sent, command, .. } = &request;
        let executed = self.server.carry_out(now, *sent, connection.written, command);
        connection.written = executed.written;
        self.replicate(now);
        if let Some(wait) = executed.wait {
            return self.wait(now, id, wait);
        }
        if let Some(later) = request.again_after
            && executed.reply.is_ok()
        {
            let (to, command) = (self.server.started, Box::new(request.command));
            self.schedule.add(now + later, Delivery::Copy { to, command });
        }
        match request.loses_reply {
            None => self.answer(now, id, protocol::answer(&executed.reply)),
            Some(after) => {
                // Its first bytes may still arrive.
                let mut answer = protocol::answer(&executed.reply);
                answer.truncate(self.random.below(answer.len()));
                self.answer(now, id, answer);
                // Later requests on this connection get no answer either.
                if let Some(connection) = self.connections.find_mut(id) {
                    connection.last_to_client = now + after;
                }
                self.schedule.add(now + after, Delivery::Break(id));
            }
        }
        self.publish(now, executed.published);
    }

    /// Carries out a command that concerns its connection. `None` if it is of another kind.
    fn serve_subscriber(
        &mut self,
        now: Moment,
        id: super::ConnectionId,
        command: &Command,
    ) -> Option<Vec<u8>> {
        let connection = self.connections.find_mut(id)?;
        let words: Vec<_> = command.args().collect();
        match words[..] {
            [b"HELLO", b"3"] => {
                connection.is_subscriber = true;
                Some(protocol::hello())
            }
            [b"CLIENT", b"TRACKING", b"ON"] => {
                connection.tracks = true;
                Some(b"+OK\r\n".to_vec())
            }
            [b"SUBSCRIBE", channel] => {
                let channel = str::from_utf8(channel).expect("a channel of ours is text");
                // A client that is gone would never end its subscription.
                if !connection.has_ended {
                    self.server.subscribe(id.0, channel);
                }
                Some(protocol::subscribed(channel))
            }
            [b"EXISTS", key] if connection.tracks => {
                let key = str::from_utf8(key).expect("a key of ours is text");
                if connection.has_ended {
                    return Some(Vec::new());
                }
                let executed = self.server.track(now, id.0, key);
                self.publish(now, executed.published);
                Some(protocol::answer(&executed.reply))
            }
            _ => None,
        }
    }

    /// Sends an answer to a client.
    pub(super) fn answer(&mut self, now: Moment, id: super::ConnectionId, answer: Vec<u8>) {
        self.send(now, Delivery::Bytes(id, answer.into()));
    }

    fn publish(&mut self, now: Moment, published: Vec<crate::simulation::redis::Publication>) {
        for publication in published {
            let hints_at = match &publication.news {
                News::Published(message) => message.payload.strip_prefix(b"w "),
                _ => None,
            };
            let hints_at = hints_at.map(|key| String::from_utf8_lossy(key).into());
            let bytes = Bytes { bytes: protocol::news(&publication.news), hints_at };
            let id = super::ConnectionId(publication.subscriber);
            self.send(now, Delivery::Bytes(id, bytes));
        }
    }

    fn came_in(&mut self, id: super::ConnectionId, Bytes { bytes, hints_at }: Bytes) {
        let Some(connection) = self.connections.find_mut(id) else { return };
        if connection.has_ended {
            return;
        }
        connection.bring(&bytes);
        let process = connection.process;
        if let Some(key) = hints_at.filter(|_| self.log.node().is_none()) {
            self.log.push(What::Hinted { process, key });
        }
    }
}

/// How long after connecting to a killed server a client learns that it was refused.
pub(super) const REFUSED_AFTER: Duration = Duration::from_micros(200);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// Reversed, because the heap returns its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}
