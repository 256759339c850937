//! The store itself on both servers at the same time. Both get every request that it sends.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::core::token::ClientId;
use leasehold::store::redis::{Access, Connector, Opening, Strict};
use leasehold::store::{
    Ask, Browse, Claim, ClientRecord, LeaseId, Line, Note, OnRelease, RedisStore, Renewal, Store,
};
use leasehold::{Key, OwnerToken};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::{ms, ttl};
use leasehold_testkit::protocol::{self, Command, Value, greeting, served, subscribed};
use leasehold_testkit::virtual_host::SeededRandom;

use super::kinds_here;
use super::twins::{Kind, Twins};

/// The number of seeds, and of requests for each.
const SEEDS: u64 = 6;
const REQUESTS: usize = 600;

/// Connections to both servers. Requests are answered at once.
#[derive(Clone)]
struct Both {
    twins: Arc<Mutex<Twins>>,
    strict: Option<Strict>,
    met: Arc<Mutex<Met>>,
}

/// Counts of the connections and the answers.
#[derive(Default)]
struct Met {
    connections: u64,
    /// How often each answer to a strict ask came.
    answers: BTreeMap<&'static str, u64>,
}

impl Both {
    fn start(kind: Kind, strict: Option<Strict>) -> Self {
        let twins = Arc::new(Mutex::new(Twins::start(kind)));
        Self { twins, strict, met: Arc::default() }
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run id and the replication id in the greeting of the next connection. Two of three
    /// greetings have the id of another process, or of another history.
    fn greeted(&self) -> [String; 2] {
        let mut met = self.met();
        met.connections += 1;
        let twins = self.twins();
        match met.connections % 3 {
            0 => ["elsewhere".to_owned(), twins.replid()],
            1 => [twins.run_id(), twins.replid()],
            _ => [twins.run_id(), "elsewhere".to_owned()],
        }
    }

    fn count(&self, answer: &Value) {
        let Value::Array(parts) = answer else { return };
        let name = match parts.as_slice() {
            [Value::Int(0), ..] => "taken",
            [Value::Int(1), ..] => "granted",
            [Value::Int(4), Value::Int(_), Value::Int(_)] => "quarantined",
            [Value::Int(5)] => "misled",
            [Value::Int(6)] => "wrong type",
            _ => return,
        };
        *self.met().answers.entry(name).or_default() += 1;
    }

    fn twins(&self) -> MutexGuard<'_, Twins> {
        self.twins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector for Both {
    fn open(&self) -> Opening {
        let (both, greeted) = (self.clone(), self.greeted());
        let (stream, _line) =
            served(move |line, command| line.answer(both.serve(&greeted, &command)));
        Box::pin(ready(Ok(stream)))
    }

    fn label(&self) -> String {
        "both".to_owned()
    }

    fn access(&self) -> Access {
        self.strict.map_or_else(Access::default, |strict| Access::on_terms(strict.into()))
    }
}

impl Both {
    fn serve(&self, greeted: &[String; 2], command: &Command) -> Vec<u8> {
        let words: Vec<_> = command.args().collect();
        // Published messages are compared as commands, so nobody receives any.
        if let [b"SUBSCRIBE", channel] = words[..] {
            return subscribed(&String::from_utf8_lossy(channel));
        }
        let [run_id, replid] = greeted;
        if let Some(greeting) = greeting(command, [run_id, replid]) {
            return greeting;
        }
        let mut twins = self.twins();
        let answer = twins.send(&words);
        twins.compare_keys();
        // Only a strict ask has the epoch among its keys.
        if let (Ok(answer), true) = (&answer, words.contains(&b":lh:epoch".as_slice())) {
            self.count(answer);
        }
        protocol::answer(&answer)
    }
}

/// Commands of other clients against the servers, and against the keys of the lock `a`.
const MISCHIEF: &[&str] = &[
    "SCRIPT FLUSH",
    "FLUSHALL",
    "DEL {a}:lh:fence",
    "SET {a}:lh:fence 9007199254740990",
    "SET {a}:lh:fence 12",
    "SET {a}:lh:fence x",
    "DEL {a}:lh:line",
    "DEL {a}:lh:ends",
    "DEL {a}:lh:places",
    "HSET {a}:lh:places x y",
    "ZADD {a}:lh:line 5 x",
    "SET {a}:lh:line x PX 50",
    "SET {a}:lh:grant x PX 50",
    "SET {a}:lh:ends x PX 50",
    "ZADD {a}:lh:places 1 x",
    "PEXPIRE {a}:lh:places 50",
    "SET a foreign",
    "SET a foreign PX 40",
    "HSET a f x",
    "PEXPIRE a 40",
    "DEL a",
];

/// Commands of other clients against the data of a strict server.
const STRICT_MISCHIEF: &[&str] = &[
    "FLUSHALL",
    "DEL :lh:epoch",
    "HSET :lh:epoch run x",
    "HDEL :lh:epoch until",
    "HSET :lh:epoch until 1",
    "HSET :lh:epoch until x",
    "HSET :lh:epoch until 1893456000900",
    "HSET :lh:epoch until 99999999999999999999",
    "SET :lh:epoch x PX 50",
];

struct Player {
    store: RedisStore,
    both: Both,
    random: SeededRandom,
    owners: Vec<(OwnerToken, ClientId)>,
}

impl Player {
    fn span(&mut self) -> u64 {
        [10, 50, 200, 1_000, 700_000][self.random.below(5)]
    }

    fn ask(&mut self, key: Key, owner: OwnerToken, id: ClientId) -> Ask {
        let (span, waiter_ttl, handed_ttl) = (self.span(), self.span(), self.span());
        let (waiter_ttl, handed_ttl) = (ttl(waiter_ttl), ttl(handed_ttl));
        let ask_no = u32::try_from(self.random.below(5)).expect("small");
        let line = match self.random.below(6) {
            0 | 1 => Line::None,
            2 => Line::Watch { waiter_ttl, ask_no, inbox: id.clone() },
            _ => Line::Join { waiter_ttl, handed_ttl, ask_no, inbox: id.clone() },
        };
        let mut record = ClientRecord::new(id);
        record.host = "web-1".to_owned();
        record.pid = 42;
        record.user = "anna".to_owned();
        record.command = "report\n--all".to_owned();
        let why = [None, Some(""), Some("nightly | report")][self.random.below(3)];
        let client = self.random.once_in(2).then(|| Arc::new(record));
        let mut ask = Ask::new(key, owner, Claim::Exclusive, ttl(span));
        ask.line = line;
        ask.note = why.map(|why| Note::new(client, Some(why.into())));
        ask.reserve = [0, 1, 1, 1, 4][self.random.below(5)];
        ask
    }

    /// Sends one request. Other tests check how the store reads the answer.
    async fn play(&mut self) {
        let key = Key::new(["a", "a", "{b}c"][self.random.below(3)]).expect("a name");
        let (owner, id) = self.owners[self.random.below(self.owners.len())].clone();
        let claim = Claim::Exclusive;
        let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim };
        let (span, reserve) = (ttl(self.span()), [0, 1, 4][self.random.below(3)]);
        match self.random.below(30) {
            0..12 => {
                let ask = self.ask(key, owner, id);
                let _ = self.store.acquire(ask).await;
            }
            12..17 => {
                let at_least = [None, None, Some(1_893_456_009_000_000)][self.random.below(3)];
                let at_least = at_least.map(|number| {
                    leasehold::core::token::FencingToken::new(number).expect("a good number")
                });
                let mut renewal = Renewal::new(lease, span);
                renewal.at_least = at_least;
                renewal.reserve = reserve;
                renewal.idle = self.random.once_in(3);
                let _ = self.store.renew(renewal).await;
            }
            17..20 => drop(self.store.release(lease, OnRelease::Free).await),
            20 | 21 => drop(self.store.release(lease, OnRelease::FreeAndWake).await),
            22 => {
                let owner = self.owners[self.random.below(self.owners.len())].0.clone();
                let keep = OnRelease::KeepIfAlone { owner, ttl: span, reserve, opens: false };
                drop(self.store.release(lease, keep).await);
            }
            23 | 24 => drop(self.store.inspect(key).await),
            25 => drop(self.store.list(["*", "a", "?*"][self.random.below(3)], None).await),
            26 => {
                let seen = owner.as_str().as_bytes().to_vec();
                drop(self.store.evict(key, seen, "a test".to_owned()).await);
            }
            27 => {
                let mischief = MISCHIEF[self.random.below(MISCHIEF.len())];
                self.both.twins().ask(&mischief.split(' ').collect::<Vec<_>>());
            }
            28 => self.both.twins().set_full(self.random.once_in(3)),
            _ => {
                let steps = [1_000, 9_999, 60_000, 300_000, 2_000_000, -30_000, -1_000_000];
                self.both.twins().step_clock(steps[self.random.below(steps.len())]);
            }
        }
    }
}

fn owners(random: &mut SeededRandom) -> Vec<(OwnerToken, ClientId)> {
    let owner = |_| {
        let (mut id, mut token) = ([0; ClientId::CHARS], [0; OwnerToken::RANDOM_BYTES]);
        random.fill(&mut id);
        random.fill(&mut token);
        let id = ClientId::from_random(id);
        (OwnerToken::from_random(token, &id), id)
    };
    (0..5).map(owner).collect()
}

fn play(both: &Both) {
    for seed in 0..SEEDS {
        both.twins().begin(&format!("seed {seed}"));
        let host = VirtualHost::new(seed);
        host.run(async {
            let store = RedisStore::connect_with(both.clone(), host.clone()).await;
            let mut random = SeededRandom::new(seed);
            let owners = owners(&mut random);
            let store = store.expect("both servers are there");
            let mut player = Player { store, both: both.clone(), random, owners };
            for _ in 0..REQUESTS {
                player.play().await;
                if both.strict.is_some() && player.random.once_in(20) {
                    let mischief = STRICT_MISCHIEF[player.random.below(STRICT_MISCHIEF.len())];
                    both.twins().ask(&mischief.split(' ').collect::<Vec<_>>());
                }
            }
            host.advance(ms(1)).await;
        });
        host.drop_tasks();
    }
}

/// Every script of the store runs, with and without mischief from other clients.
#[test]
fn the_scripts_of_the_store_do_what_they_do_on_a_real_server() {
    for kind in kinds_here() {
        let both = Both::start(kind, None);
        play(&both);
        let all = ["acquire", "evict", "inspect", "living", "release", "renew"];
        assert_eq!(Vec::from_iter(&both.twins().scripts), all);
    }
}

/// Every kind of answer to a strict ask occurs.
#[test]
fn the_scripts_of_a_strict_store_do_what_they_do_on_a_real_server() {
    for kind in kinds_here() {
        let both = Both::start(kind, Some(Strict::new(ms(300), ms(300))));
        play(&both);
        let all = ["granted", "misled", "quarantined", "taken", "wrong type"];
        assert_eq!(Vec::from_iter(both.met().answers.keys().copied()), all);
    }
}
