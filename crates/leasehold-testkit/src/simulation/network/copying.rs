//! Traffic between the server and its replicas, and the clients that wait for it.

use std::time::Duration;

use leasehold::core::Moment;

use super::connection::ConnectionId;
use super::{Delivery, Network, State};
use crate::protocol::{self, Value};
use crate::simulation::disk::Syncing;
use crate::simulation::redis::Wait;
use crate::simulation::replicas::{Confirmation, Sent, Way};

/// The longest time that a replica needs to find its server again and ask for its data.
const FOUND_WITHIN: Duration = Duration::from_millis(300);

impl Network {
    /// Cuts replicas off from the server.
    pub(in super::super) fn cut_replicas_off(&self, much: u64) {
        let mut state = self.state();
        for replica in state.server.replicas.some(much) {
            state.server.is_left_by(replica);
        }
    }

    /// Lets replicas reach the server again.
    pub(in super::super) fn join_replicas(&self, much: u64) {
        let now = self.now();
        let mut state = self.state();
        for replica in state.server.replicas.some(much) {
            state.server.replicas.come_back(replica);
        }
        state.find_replicas(now);
    }
}

impl State {
    /// Sends the replicas and the disk everything that the server has written since the last time.
    pub(super) fn replicate(&mut self, now: Moment) {
        for sent in self.server.replicate() {
            self.send_written(now, sent);
        }
        let Some((syncing, (least, most))) = self.server.sync() else { return };
        let takes = Duration::from_micros(least + self.random.next_u64() % (most - least + 1));
        let at = self.server.disk.in_order(now, takes);
        self.schedule.add(at, Delivery::Synced(syncing));
    }

    /// Handles a write that has reached the disk of the server.
    pub(super) fn synced(&mut self, now: Moment, syncing: Syncing) {
        if self.server.is_synced(syncing) {
            self.look_who_waits(now);
        }
    }

    fn send_written(&mut self, now: Moment, sent: Sent) {
        let at = now + self.takes();
        let at = self.server.replicas.in_order(sent.replica, Way::There, at);
        self.schedule.add(at, Delivery::Written(sent));
    }

    /// How long a message takes between the server and a replica.
    fn takes(&mut self) -> Duration {
        let (least, most) = self.delay_us;
        let usual = Duration::from_micros(least + self.random.next_u64() % (most - least + 1));
        match self.server.replicas.lag_ms {
            0 => usual,
            lag_ms => usual + Duration::from_micros(self.random.next_u64() % (lag_ms * 1_000)),
        }
    }

    /// Handles data that has reached a replica.
    pub(super) fn received(&mut self, now: Moment, sent: Sent) {
        let Some(said) = self.server.replicas.receive(sent) else { return };
        let at = now + self.takes();
        let at = self.server.replicas.in_order(said.replica, Way::Back, at);
        self.schedule.add(at, Delivery::Confirmed(said));
    }

    /// Handles a replica's confirmation of the data that it has.
    pub(super) fn confirmed(&mut self, now: Moment, said: Confirmation) {
        self.server.confirm(said);
        self.look_who_waits(now);
    }

    /// Answers the connections whose copies have been confirmed.
    fn look_who_waits(&mut self, now: Moment) {
        for id in self.connections.waiting() {
            let Some((_, wait)) = self.connections.find(id).and_then(|one| one.waits) else {
                continue;
            };
            if let Some(counts) = self.server.is_confirmed(wait) {
                self.go_on(now, id, counts);
            }
        }
    }

    /// Schedules when each replica finds the server. A replica that already follows the server
    /// ignores that.
    pub(super) fn find_replicas(&mut self, now: Moment) {
        for replica in 0..self.server.replicas.len() {
            let most_us = u64::try_from(FOUND_WITHIN.as_micros()).expect("short");
            let after = Duration::from_micros(self.random.next_u64() % most_us);
            let of = self.server.started;
            self.schedule.add(now + after, Delivery::Follows { replica, of });
        }
    }

    /// Makes a replica follow the server, unless the server has restarted since.
    pub(super) fn follows(&mut self, now: Moment, replica: usize, of: u32) {
        if of == self.server.started
            && let Some(sent) = self.server.is_followed_by(replica)
        {
            self.send_written(now, sent);
        }
    }

    /// Makes a connection wait for copies of its writes.
    pub(super) fn wait(&mut self, now: Moment, id: ConnectionId, wait: Wait) {
        if let Some(counts) = self.server.is_confirmed(wait) {
            return self.answer(now, id, protocol::answer(&Ok(counts)));
        }
        self.waits += 1;
        let number = self.waits;
        if let Some(connection) = self.connections.find_mut(id) {
            connection.waits = Some((number, wait));
        }
        if wait.limit_ms > 0 {
            let at = now + Duration::from_millis(wait.limit_ms);
            self.schedule.add(at, Delivery::WaitOver(id, number));
        }
    }

    /// Ends a wait whose time limit has passed.
    pub(super) fn wait_over(&mut self, now: Moment, id: ConnectionId, number: u64) {
        let waits = self.connections.find(id).and_then(|connection| connection.waits);
        if let Some((_, wait)) = waits.filter(|(waits, _)| *waits == number) {
            let counts = self.server.confirmed_by(wait);
            self.go_on(now, id, counts);
        }
    }

    /// Ends the wait and reads the requests behind it.
    fn go_on(&mut self, now: Moment, id: ConnectionId, counts: Value) {
        if let Some(connection) = self.connections.find_mut(id) {
            connection.waits = None;
        }
        self.answer(now, id, protocol::answer(&Ok(counts)));
        while let Some(request) = self.connections.find_mut(id).and_then(|connection| {
            if connection.waits.is_some() { None } else { connection.behind.pop_front() }
        }) {
            self.serve(now, id, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold::host::Host as _;
    use leasehold::store::redis::Replicas;

    use super::*;
    use crate::VirtualHost;
    use crate::history::event::ProcessId;
    use crate::protocol::{Asking, Client, Command, Connection};
    use crate::simulation::clock::ServerClock;
    use crate::simulation::log::Log;
    use crate::simulation::plan::Copied;
    use crate::simulation::process::Process;
    use crate::simulation::replicas::ALL;
    use crate::simulation::server::Server;

    /// The longest round trip between the server and a replica, or between a client and the server.
    const ROUND_TRIP_MAX: Duration = Duration::from_millis(2 * 5);

    struct Scene {
        host: Arc<VirtualHost>,
        network: Network,
        clients: [Client; 2],
    }

    impl Scene {
        /// Runs a test with two connections to a server that has one replica.
        fn play(test: impl AsyncFnOnce(&mut Self)) {
            let wanted = Replicas::Count(1);
            Self::play_with(Copied { replicas: 1, wanted, disk_us: None }, test);
        }

        /// Runs a test with two connections to a server that has these copies.
        fn play_with(copied: Copied, test: impl AsyncFnOnce(&mut Self)) {
            let host = VirtualHost::new(1);
            let log = Log::new(&host);
            let mut server = Server::new(ServerClock::default(), log.clone());
            server.is_copied_from_now_on(copied);
            let network = Network::new(&host, server, (1_000, 5_000), 1, log);
            host.run(async {
                let clients = [client(&host, &network).await, client(&host, &network).await];
                test(&mut Self { host: Arc::clone(&host), network, clients }).await;
            });
            host.drop_tasks();
        }

        fn ask(&self, connection: usize, words: &str) -> Asking {
            self.clients[connection].ask(&command(words))
        }

        /// Waits for an answer, and measures how long it took.
        async fn timed<T>(&self, answer: impl Future<Output = T>) -> (T, Duration) {
            let asked = self.host.now();
            (answer.await, self.host.now().since(asked))
        }
    }

    fn command(words: &str) -> Command {
        Command::of(&words.split(' ').collect::<Vec<_>>())
    }

    async fn client(host: &Arc<VirtualHost>, network: &Network) -> Client {
        let process = Process::new(ProcessId(0), host, 0, 1);
        let connected = Client::connect(&network.connector(&process)).await.expect("it is there");
        let Connection { client, io, .. } = connected;
        host.spawn(io);
        client
    }

    fn number(number: i64) -> Option<protocol::Answer> {
        Some(Ok(Value::Int(number)))
    }

    fn done() -> Option<protocol::Answer> {
        Some(Ok(Value::Bytes(b"OK".to_vec())))
    }

    #[test]
    fn a_replica_confirms_what_it_was_sent_a_round_trip_later() {
        Scene::play(async |scene| {
            for _ in 0..20 {
                let (_set, wait) = (scene.ask(0, "SET a x"), scene.ask(0, "WAIT 1 500"));
                let (answer, took) = scene.timed(wait).await;
                assert_eq!(answer, number(1));
                assert!(took <= 2 * ROUND_TRIP_MAX, "{took:?}");
            }
        });
    }

    #[test]
    fn only_a_client_that_waits_for_an_absent_replica_is_held_up() {
        Scene::play(async |scene| {
            scene.network.cut_replicas_off(ALL);
            let (_set, wait) = (scene.ask(0, "SET a x"), scene.ask(0, "WAIT 1 500"));
            let (behind, other) = (scene.ask(0, "SET b x"), scene.ask(1, "GET c"));
            let (_, took) = scene.timed(other).await;
            assert!(took <= ROUND_TRIP_MAX, "{took:?}");
            scene.host.advance(Duration::from_millis(400)).await;
            let there = scene.ask(1, "EXISTS a b").await;
            assert_eq!(there, number(1), "what is behind was not read yet");
            assert_eq!(wait.await, number(0));
            assert_eq!(behind.await, done());
            scene.network.join_replicas(ALL);
            assert_eq!(scene.ask(0, "WAIT 1 0").await, number(1));
        });
    }

    #[test]
    fn a_replica_that_takes_over_has_what_was_confirmed_and_lacks_what_was_not() {
        Scene::play(async |scene| {
            let _set = scene.ask(0, "SET a x");
            assert_eq!(scene.ask(0, "WAIT 1 500").await, number(1));
            scene.network.cut_replicas_off(ALL);
            assert_eq!(scene.ask(0, "SET b x").await, done());
            scene.network.kill_server();
            scene.network.restart_server(|server| server.fail_over(0));
            let client = client(&scene.host, &scene.network).await;
            for (key, there) in [("a", 1), ("b", 0)] {
                let exists = Command::of(&["EXISTS", key]);
                assert_eq!(client.ask(&exists).await, number(there), "{key}");
            }
        });
    }

    #[test]
    fn a_power_cut_leaves_what_somebody_was_told_is_on_disk_and_nothing_newer() {
        let disk_us = Some((50_000, 60_000));
        let copied = Copied { replicas: 0, wanted: Replicas::Count(0), disk_us };
        Scene::play_with(copied, async |scene| {
            let (_set, wait) = (scene.ask(0, "SET a x"), scene.ask(0, "WAITAOF 1 0 500"));
            let (answer, took) = scene.timed(wait).await;
            assert_eq!(answer, Some(Ok(Value::Array(vec![Value::Int(1), Value::Int(0)]))));
            assert!(took >= Duration::from_millis(50), "{took:?}");
            let (_set, wait) = (scene.ask(0, "SET b x"), scene.ask(0, "WAITAOF 1 0 5"));
            let answer = wait.await;
            assert_eq!(answer, Some(Ok(Value::Array(vec![Value::Int(0), Value::Int(0)]))));
            scene.network.kill_server();
            scene.network.restart_server(Server::lose_power);
            let client = client(&scene.host, &scene.network).await;
            for (key, there) in [("a", 1), ("b", 0)] {
                let exists = Command::of(&["EXISTS", key]);
                assert_eq!(client.ask(&exists).await, number(there), "{key}");
            }
        });
    }
}
