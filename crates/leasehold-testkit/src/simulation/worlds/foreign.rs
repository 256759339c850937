//! Worlds in which clients of another library want the same keys. They poll with `SET … NX PX` and
//! release with a script that compares the token, as go-zero and redsync do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;
use tokio::sync::oneshot;

use crate::history::event::{CallId, CallKind, Name, Outcome, ProcessId};
use crate::protocol::{Client, Command, Connection, Value};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::network::SimulatedConnector;
use crate::simulation::plan::Plan;
use crate::simulation::process::Process;
use crate::simulation::world::World;
use crate::virtual_host::SeededRandom;

/// One world in this many has foreign clients.
const ONE_IN: usize = 12;

/// The largest number of foreign clients.
const FOREIGNERS_MAX: usize = 3;

/// How long a foreign client waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The script that deletes the caller's own key. Its name makes the server log it as a release.
pub(in crate::simulation) const DELETE_OWN: &str = "\
    -- release_foreign.lua: deletes what is its own\n\
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end\n\
    return 0";

/// Adds foreign clients to a world if its seed says so. In half of the worlds, our clients free the
/// key with each release; in the others, their line opens now and then. A world whose grants need
/// more than a key gets none, since foreign clients know nothing of quarantines and copies.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Foreign, 0x0f04_e164_e450, ONE_IN) else { return };
    let needs_more =
        plan.is_quorum() || plan.is_local() || plan.strict.is_some() || plan.copies.is_some();
    if needs_more || plan.is_unqueued || plan.pace > 1 {
        return;
    }
    plan.foreigners = 1 + random.below(FOREIGNERS_MAX);
    plan.coexists |= random.once_in(2);
}

/// Starts the foreign clients. They are never killed, and end with the run.
pub(in crate::simulation) fn start(world: &Arc<World>, random: &mut SeededRandom) {
    for _ in 0..world.plan.foreigners {
        let (id, seed) = (ProcessId(world.number()), random.next_u64());
        let process = Process::new(id, &world.host, 0, seed);
        let [network] = world.backend.networks() else { return };
        let poller = Poller {
            world: Arc::clone(world),
            connector: network.connector(&process),
            process: process.clone(),
            random: SeededRandom::new(seed),
        };
        process.spawn(Box::pin(poller.go_on()));
    }
}

struct Poller {
    world: Arc<World>,
    process: Process,
    connector: SimulatedConnector,
    random: SeededRandom,
}

impl Poller {
    async fn go_on(mut self) {
        while self.world.goes_on() {
            if let Some(Ok(connected)) = self.within(Client::connect(&self.connector)).await {
                // Dropping this end of the channel closes the connection.
                let (_open, closed) = oneshot::channel::<()>();
                let Connection { client, io, .. } = connected;
                self.process.spawn(Box::pin(async move {
                    tokio::select! {
                        biased;
                        _closed = closed => {}
                        () = io => {}
                    }
                }));
                while self.world.goes_on() && self.try_one(&client).await.is_some() {}
            }
            self.pause(500).await;
        }
    }

    /// Tries to get a key. `None` if the connection is not usable any more.
    async fn try_one(&mut self, client: &Client) -> Option<()> {
        let keys = self.world.keys();
        let key = Arc::clone(&keys[self.random.below(keys.len())]);
        let ttl = self.world.plan.ttl_max();
        let token = format!("foreign{:016x}", self.random.next_u64());
        // Like our leases, the key lives longer than its holder relies on it.
        let kept = ttl + self.world.plan.lock_delay;
        let ttl_ms = u64::try_from(kept.as_millis()).expect("some seconds");
        let set = Command::new("SET").arg(&*key).arg(&token).arg("NX").arg("PX");
        let call = self.world.called(&self.process, &key, CallKind::TryLock, Some(ANSWER_LIMIT));
        let sent = self.process.now();
        let answer = self.within(client.ask(&set.number(ttl_ms))).await.flatten();
        match answer {
            // If the key was granted, it expires by itself.
            None | Some(Err(_)) => {
                self.world.returned(call, Outcome::Dropped);
                None
            }
            Some(Ok(Value::Nil)) => {
                self.world.returned(call, Outcome::Dropped);
                self.world.did("taken from a foreigner");
                self.pause(40).await;
                Some(())
            }
            Some(Ok(_)) => {
                let until = sent + (ttl - ttl / 100).saturating_sub(Duration::from_millis(2));
                self.hold(client, call, &key, &token, until).await;
                self.pause(self.world.plan.pause_ms()).await;
                Some(())
            }
        }
    }

    async fn hold(
        &mut self,
        client: &Client,
        call: CallId,
        key: &Name,
        token: &str,
        until: leasehold::core::Moment,
    ) {
        let window = self.world.relies(call, &self.process, key, token, until);
        self.world.returned(call, Outcome::Granted);
        self.world.did("granted to a foreigner");
        let span = Duration::from_micros(self.random.next_u64() % 50_000);
        self.process.sleep_until((self.process.now() + span).min(until)).await;
        self.world.gives_up(window, Duration::ZERO);
        let delete = Command::new("EVAL").arg(DELETE_OWN).arg("1").arg(&**key).arg(token);
        let _answer = self.within(client.ask(&delete)).await;
    }

    async fn within<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = std::pin::pin!(answer);
        let mut timer = self.process.sleep_until(self.process.now() + ANSWER_LIMIT);
        std::future::poll_fn(|context| {
            if let std::task::Poll::Ready(output) = answer.as_mut().poll(context) {
                return std::task::Poll::Ready(Some(output));
            }
            timer.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    async fn pause(&mut self, most_ms: u64) {
        let span = Duration::from_micros(self.random.next_u64() % (most_ms * 1_000 + 1));
        self.process.sleep_until(self.process.now() + span).await;
    }
}
