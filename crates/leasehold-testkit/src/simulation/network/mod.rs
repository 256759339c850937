//! The network between the processes and the server: when messages arrive, and which are lost.
//!
//! A connection keeps the order of the messages in one direction, as TCP does. A lost message comes
//! later and holds up the messages behind it. A connection that breaks loses the last messages on
//! their way. The first messages still arrive, but their answers go nowhere.

mod carrier;
mod connection;
mod connector;
mod copying;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;

use super::disk::Syncing;
use super::log::Log;
use super::process::Process;
use super::replicas::{Confirmation, Sent};
use super::server::Server;
use crate::VirtualHost;
use crate::history::event::What;
use crate::protocol::Command;
use crate::virtual_host::SeededRandom;

pub(super) use self::connector::SimulatedConnector;

use self::carrier::Schedule;
use self::connection::{Connection, ConnectionId, Connections};

/// The network and the server at its end. Clones share both.
#[derive(Clone)]
pub(super) struct Network(Arc<Shared>);

struct Shared {
    common: Arc<VirtualHost>,
    state: Mutex<State>,
}

struct State {
    server: Server,
    random: SeededRandom,
    schedule: Schedule,
    connections: Connections,
    /// The shortest and the longest usual delay of a message, in microseconds.
    delay_us: (u64, u64),
    troubles: Vec<Trouble>,
    /// Deliveries that a stopped server has not read yet.
    unread: Vec<Delivery>,
    /// How many waits for copies there were.
    waits: u64,
    log: Log,
}

/// The trouble between one process and the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// Requests do not get through.
    pub(super) to_server: bool,
    /// Answers do not get through.
    pub(super) to_client: bool,
    /// Every message takes up to this much longer.
    pub(super) delay_max: Duration,
    /// One message in this many is lost and sent again.
    pub(super) loses_one_in: Option<usize>,
    /// The fates of the next lock requests, in order.
    pub(super) mischief: Vec<Mischief>,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mischief {
    /// The request takes effect and is not answered. The connection ends this much later.
    LoseReply(Duration),
    /// The request arrives this much later, and so do the requests behind it.
    Late(Duration),
    /// The request takes effect, and once more this much later.
    Twice(Duration),
}

/// Something that is on its way.
pub(super) enum Delivery {
    /// A request.
    Request(ConnectionId, Box<connection::Request>),
    /// A request that a middlebox sends a second time. Its answer goes nowhere. A strict server
    /// ignores it after a restart. In strict mode, as GUARANTEES.md says, nothing between a client
    /// and a server may give one process a request that was meant for another.
    Copy { to: u32, command: Box<Command> },
    /// An answer to a client, or a message that the server sends unasked.
    Bytes(ConnectionId, connection::Bytes),
    /// Data on its way to a replica.
    Written(Sent),
    /// Data on its way to the disk of the server.
    Synced(Syncing),
    /// A replica confirms data.
    Confirmed(Confirmation),
    /// A replica finds the server's process with this start number, and begins to follow it.
    Follows { replica: usize, of: u32 },
    /// The time limit of a wait for copies has passed.
    WaitOver(ConnectionId, u64),
    /// The server learns that a client has hung up.
    HungUp(ConnectionId),
    /// The network ends the connection.
    Break(ConnectionId),
}

impl Network {
    /// A server behind a network. A message takes a time between the two numbers of `delay_us`.
    pub(super) fn new(
        common: &Arc<VirtualHost>,
        server: Server,
        delay_us: (u64, u64),
        seed: u64,
        log: Log,
    ) -> Self {
        let state = State {
            server,
            random: SeededRandom::new(seed),
            schedule: Schedule::default(),
            connections: Connections::default(),
            delay_us,
            troubles: Vec::new(),
            unread: Vec::new(),
            waits: 0,
            log,
        };
        let network =
            Self(Arc::new(Shared { common: Arc::clone(common), state: Mutex::new(state) }));
        common.spawn(Box::pin(network.clone().carry()));
        network
    }

    /// A connector for a process.
    pub(super) fn connector(&self, process: &Process) -> SimulatedConnector {
        let mut state = self.state();
        let number = process.id().0 as usize;
        if state.troubles.len() <= number {
            state.troubles.resize(number + 1, Trouble::default());
        }
        drop(state);
        SimulatedConnector::new(self.clone(), process.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        self.0.common.now()
    }

    /// Reads or changes the server.
    pub(super) fn with_server<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        act(&mut self.state().server)
    }

    /// Changes the trouble of one process.
    pub(super) fn trouble(&self, process: &Process, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.state().troubles[process.id().0 as usize]);
    }

    /// Ends the partition of one process. The held deliveries arrive now, or their connections
    /// break.
    pub(super) fn heal(&self, process: &Process, arrives: bool) {
        let now = self.now();
        let mut state = self.state();
        let trouble = &mut state.troubles[process.id().0 as usize];
        (trouble.to_server, trouble.to_client) = (false, false);
        for (id, held) in state.connections.take_held(process.id()) {
            if arrives {
                // Deliver them at once, because later deliveries are already on their way behind
                // them. This includes requests whose client has given up and hung up.
                for delivery in held {
                    state.arrive(now, delivery);
                }
            } else {
                state.break_now(id);
            }
        }
        state.schedule.wake();
    }

    /// Breaks every connection of a process. The first deliveries on their way still arrive, but
    /// their answers go nowhere.
    pub(super) fn reset(&self, process: &Process) {
        let mut state = self.state();
        for id in state.connections.of(process.id()) {
            state.break_now(id);
        }
    }

    /// Breaks the connections on which processes receive hints.
    pub(super) fn kill_subscribers(&self) {
        let mut state = self.state();
        for id in state.connections.subscribers() {
            state.break_now(id);
        }
    }

    /// Closes the client's ends of all connections of a dead process.
    pub(super) fn closed_by_death(&self, process: &Process) {
        let now = self.now();
        let mut state = self.state();
        for id in state.connections.of(process.id()) {
            state.hang_up(now, id);
        }
        state.schedule.wake();
    }

    /// Stops the server, so that it stands still.
    pub(super) fn stop_server(&self) {
        self.state().server.is_stopped = true;
    }

    /// Lets the server read everything that arrived meanwhile.
    pub(super) fn resume_server(&self) {
        let now = self.now();
        let mut state = self.state();
        state.server.is_stopped = false;
        // These deliveries have arrived already, so no partition holds them back any more.
        for delivery in std::mem::take(&mut state.unread) {
            state.reach(now, delivery);
        }
        state.schedule.wake();
    }

    /// Kills the server. Connections break, and everything on its way to the server is lost.
    pub(super) fn kill_server(&self) {
        self.state().kill_server();
    }

    /// Starts the server again, without scripts, and with the data that `data` leaves in it.
    pub(super) fn restart_server(&self, data: impl FnOnce(&mut Server)) {
        let mut state = self.state();
        // Another restart may have started it meanwhile.
        state.kill_server();
        state.server.is_up = true;
        state.server.start_again();
        data(&mut state.server);
        state.find_replicas(self.now());
    }

    /// Logs a lock request that leaves a process.
    fn log_sent(state: &mut State, process: &Process, command: &Command) {
        for asked in state.server.are_asked(command) {
            let super::asked::Asked { request, key, token } = asked;
            let (process, call) = (process.id(), state.log.call_of(&token));
            state.log.push(match state.log.node() {
                None => What::Sent { process, call, request, key, token },
                Some(node) => What::SentTo { node, process, call, request, key, token },
            });
        }
    }
}

impl State {
    fn kill_server(&mut self) {
        self.server.is_up = false;
        self.server.is_stopped = false;
        self.unread.clear();
        for id in self.connections.all() {
            self.break_now(id);
            self.connections.lose_all(id);
        }
    }

    /// The delay of one message of a process.
    fn delay(&mut self, process: crate::history::event::ProcessId) -> Duration {
        let (least, most) = self.delay_us;
        let mut delay = Duration::from_micros(least + self.random.next_u64() % (most - least + 1));
        let trouble = &self.troubles[process.0 as usize];
        let longer_us = u64::try_from(trouble.delay_max.as_micros()).unwrap_or(u64::MAX);
        if longer_us > 0 {
            delay += Duration::from_micros(self.random.next_u64() % (longer_us + 1));
        }
        if let Some(times) = trouble.loses_one_in {
            // Linux sends a lost message again after at least 200 ms, and waits twice as long after
            // each loss.
            let mut again = Duration::from_millis(200);
            while self.random.once_in(times) && again < Duration::from_secs(2) {
                delay += again;
                again *= 2;
            }
        }
        delay
    }

    /// Sends a delivery with the usual delay, behind earlier ones in its direction of the
    /// connection.
    fn send(&mut self, now: Moment, delivery: Delivery) {
        let Some(connection) = delivery.connection().and_then(|id| self.connections.find(id))
        else {
            return;
        };
        let process = connection.process;
        let at = now + self.delay(process);
        self.send_at(at, delivery);
    }

    fn send_at(&mut self, at: Moment, delivery: Delivery) {
        let Some(connection) = delivery.connection().and_then(|id| self.connections.find_mut(id))
        else {
            return;
        };
        let at = connection.in_order(&delivery, at);
        self.schedule.add(at, delivery);
    }

    /// Breaks a connection. The first few requests on their way to the server still arrive.
    fn break_now(&mut self, id: ConnectionId) {
        let arriving = self.random.below(4);
        if let Some(connection) = self.connections.find_mut(id) {
            connection.break_after(arriving);
        }
        self.server.unsubscribe(id.0);
    }

    /// Closes the client's end of a connection. The server learns of it after all earlier requests.
    fn hang_up(&mut self, now: Moment, id: ConnectionId) {
        let Some(connection) = self.connections.find_mut(id) else { return };
        connection.close_here();
        self.send(now, Delivery::HungUp(id));
    }
}

impl Delivery {
    fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Copy { .. }
            | Self::Written(_)
            | Self::Synced(_)
            | Self::Confirmed(_)
            | Self::Follows { .. }
            // The server's own clock ends a wait, so this does not pass the network.
            | Self::WaitOver(..) => None,
            Self::Request(id, _)
            | Self::Bytes(id, _)
            | Self::HungUp(id)
            | Self::Break(id) => Some(*id),
        }
    }
}

impl Connection {
    /// The moment of a delivery, after all earlier ones in its direction.
    fn in_order(&mut self, delivery: &Delivery, at: Moment) -> Moment {
        let last = match delivery {
            Delivery::Bytes(..) | Delivery::Break(_) => &mut self.last_to_client,
            _ => &mut self.last_to_server,
        };
        *last = at.max(*last + Duration::from_nanos(1));
        *last
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Client;
    use leasehold::store::RedisStore;

    use super::*;
    use crate::history::event::ProcessId;
    use crate::protocol::{Client as Asker, Connection, Value};
    use crate::simulation::clock::ServerClock;

    fn one_process() -> (Arc<VirtualHost>, Network, Process, SimulatedConnector) {
        let host = VirtualHost::new(1);
        let log = Log::new(&host);
        let server = Server::new(ServerClock::default(), log.clone());
        let network = Network::new(&host, server, (1_000, 5_000), 1, log);
        let process = Process::new(ProcessId(0), &host, 0, 1);
        let connector = network.connector(&process);
        (host, network, process, connector)
    }

    #[test]
    fn a_waiter_is_told_of_the_release_of_a_foreign_holder_over_the_network() {
        let (host, _network, process, connector) = one_process();
        host.run(async {
            let foreign = connected(&host, &connector).await;
            let set = Command::of(&["SET", "a", "foreign"]);
            assert!(foreign.ask(&set).await.is_some_and(|answer| answer.is_ok()), "it is free");
            let here = Arc::new(process.clone());
            let store = RedisStore::connect_with(connector.clone(), here.clone()).await;
            let client = Client::with_store(store.expect("it is there")).host(here).connect();
            let mutex = client.await.expect("connected").mutex("a");
            let waiting = host.task(async move { mutex.lock().await.expect("in the end") });
            host.advance(Duration::from_millis(5_350)).await;
            let deleted = foreign.ask(&Command::of(&["DEL", "a"])).await;
            assert_eq!(deleted, Some(Ok(Value::Int(1))), "it is there");
            // This is one trip for the news, and a round trip for the acquire.
            host.advance(Duration::from_millis(3 * 5)).await;
            assert!(waiting.is_finished());
        });
        host.drop_tasks();
    }

    async fn connected(host: &Arc<VirtualHost>, connector: &SimulatedConnector) -> Asker {
        let connected = Asker::connect(connector).await.expect("a server that is there");
        let Connection { client, io, .. } = connected;
        host.spawn(io);
        client
    }

    /// Some locks are taken by a command, and not by a script.
    #[test]
    fn commands_that_take_and_end_a_lock_meet_mischief_and_others_do_not() {
        let (host, network, process, connector) = one_process();
        host.run(async {
            let client = connected(&host, &connector).await;
            let ask = async |words: &str| {
                let words: Vec<_> = words.split(' ').collect();
                let began = host.now();
                (client.ask(&Command::of(&words)).await, host.now().since(began))
            };
            let next = |fate| network.trouble(&process, |trouble| trouble.mischief.push(fate));
            let (soon, late) = (Duration::from_millis(20), Duration::from_secs(1));

            next(Mischief::Late(late));
            for other in ["SET :lh:client:x me", "DELIFEQ {a}:lh:probe probe", "PTTL a"] {
                let (answer, took) = ask(other).await;
                assert!(answer.is_some() && took <= soon, "{other}: {took:?}");
            }
            let (answer, took) = ask("SET a anna NX GET PX 60000").await;
            assert_eq!(answer, Some(Ok(Value::Nil)));
            assert!(took >= late, "{took:?}");

            next(Mischief::Twice(late));
            assert_eq!(ask("DEL a").await.0, Some(Ok(Value::Int(1))));
            assert_eq!(ask("SET a bert NX GET PX 60000").await.0, Some(Ok(Value::Nil)));
            host.advance(late).await;
            assert_eq!(ask("EXISTS a").await.0, Some(Ok(Value::Int(0))), "deleted again");

            next(Mischief::LoseReply(soon));
            assert_eq!(ask("SET a carl NX GET PX 60000").await.0, None);
            let again = connected(&host, &connector).await;
            let owner = again.ask(&Command::of(&["GET", "a"])).await;
            assert_eq!(owner, Some(Ok(Value::Bytes(b"carl".to_vec()))));
        });
        host.drop_tasks();
    }

    #[test]
    fn messages_that_a_partition_held_back_arrive_before_later_ones() {
        let (host, network, process, connector) = one_process();
        host.run(async {
            let client = connected(&host, &connector).await;
            let echo = |word: &str| client.ask(&Command::of(&["ECHO", word]));
            let said = |word: &str| Some(Ok(Value::Bytes(word.into())));
            for _ in 0..20 {
                network.trouble(&process, |trouble| trouble.to_server = true);
                let first = echo("first");
                host.advance(Duration::from_millis(10)).await;
                let second = echo("second");
                network.heal(&process, true);
                assert_eq!((first.await, second.await), (said("first"), said("second")));
            }
        });
        host.drop_tasks();
    }
}
