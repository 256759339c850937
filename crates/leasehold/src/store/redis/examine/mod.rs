//! Examines one server. It asks every question that its user may ask, and tries the features that
//! locks rely on with keys of its own. It judges nothing. Each question that the server refuses
//! leaves a [`Gap`](facts::Gap).

mod canaries;
pub(crate) mod cluster;
mod facts;
mod line;
pub(crate) mod rights;
mod sentinels;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use self::canaries::Dying;
use self::facts::Answer;
pub(crate) use self::facts::{
    Copied, Epoch, Facts, Gap, Info, Membership, Place, Reading, SentinelFacts,
};
#[cfg(test)]
pub(crate) use self::facts::{Expiry, Leftovers, Release};
use self::line::Line;
use super::codec::command::{Command, Value};
use super::connect::RedisConnector;
use super::connector::Connector;
use super::keys;
use super::sentinel::Sentinels;
use super::terms::record::Act;
use super::terms::{Copies, Replicas, Strict, Strictness, Terms, quarantine};
use super::url::Endpoint;
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::net::shown;

/// How many round trips are measured, and for how long at most.
const PINGS: usize = 20;
const PINGS_LIMIT: Duration = Duration::from_millis(1_500);

/// How long the mark of a node lives. The other nodes look for it within that time.
const MARK_LIFE: Duration = Duration::from_secs(15);

/// For how much longer a certificate should be valid.
const AHEAD: Duration = Duration::from_hours(30 * 24);

/// How long replicas and disks have to confirm a write, in ms.
const COPIES_MS: u64 = 500;

/// One server that is being examined.
pub(crate) struct Patient {
    connector: Arc<dyn Connector>,
    sentinels: Option<Sentinels>,
    /// The connector with the clock for certificates [ahead](AHEAD); `None` without TLS.
    ahead: Option<Arc<dyn Connector>>,
    host: Arc<dyn Host>,
    ends: Moment,
    /// The beginning of all canary keys.
    canary: String,
    line: Option<Line>,
    pub(crate) facts: Facts,
}

impl Patient {
    /// A server to examine. Its canary keys begin with a text that nobody else uses.
    pub(crate) fn new(
        connector: RedisConnector,
        host: Arc<dyn Host>,
        ends: Moment,
        canary: String,
    ) -> Self {
        let facts = Facts::unasked(place(&connector), connector.terms());
        let sentinels = connector.sentinels().cloned();
        let ahead = connector.ahead(AHEAD).map(|it| Arc::new(it) as Arc<dyn Connector>);
        let connector = Arc::new(connector);
        Self { connector, sentinels, ahead, host, ends, canary, line: None, facts }
    }

    /// A node of a cluster, whose canary keys lie in a slot of this node.
    pub(crate) fn of_node(node: cluster::Node, host: Arc<dyn Host>, ends: Moment) -> Self {
        let cluster::Node { connector, ahead, place, canary } = node;
        let mut facts = Facts::unasked(place, Terms::default());
        // A client of a cluster does not ask for the record.
        (facts.expected, facts.terms.strict) = (Strictness::No, Strictness::No);
        facts.membership = Some(Membership::default());
        Self { connector, sentinels: None, ahead, host, ends, canary, line: None, facts }
    }

    /// Whether both are nodes of one cluster.
    pub(crate) fn is_of_same_url(&self, other: &Self) -> bool {
        self.facts.place.url == other.facts.place.url
    }

    /// The key that shows which other servers get the writes to this one.
    pub(crate) fn mark(&self) -> String {
        self.key("mark")
    }

    /// The beginning of the names of all locks that are examined.
    fn namespace(&self) -> &str {
        self.canary.rsplit_once("leasehold:probe:").map_or("", |(namespace, _)| namespace)
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.canary)
    }

    /// Asks all questions about this server alone.
    pub(crate) async fn examine(&mut self) {
        if let Some(sentinels) = &self.sentinels {
            let asked = sentinels.watchers();
            let asking = asked.iter().map(|(sentinel, primary)| {
                sentinels::ask(*sentinel, primary, (&self.host, self.ends))
            });
            self.facts.sentinels = join_all(asking).await;
        }
        match Line::open(&*self.connector, &self.host, self.ends).await {
            Ok(line) => {
                let mut line = line.reopening(&self.connector);
                self.measure(&mut line).await;
                self.describe(&mut line).await;
                self.try_out(&mut line).await;
                if let Some(ahead) = &self.ahead {
                    let opened = Line::open(&**ahead, &self.host, self.ends).await;
                    self.facts.certificate = Some(opened.map(drop));
                }
                self.facts.fell_silent = line.is_broken();
                self.facts.ended_at = line.ended_at().to_vec();
                self.line = Some(line);
            }
            Err(error) => self.facts.unreached = Some(error),
        }
    }

    /// Measures round trips, and reads the clock.
    async fn measure(&mut self, line: &mut Line) {
        let ends = self.host.now() + PINGS_LIMIT;
        while self.facts.round_trips.len() < PINGS && self.host.now() < ends {
            let sent = self.host.now();
            // A refusal takes as long as an answer.
            let pong = line.ask(Command::new("PING")).await;
            if matches!(pong, Err(Gap::Silent | Gap::Closed)) {
                break;
            }
            self.facts.round_trips.push(self.host.now().since(sent));
        }
        let mut readings = Vec::new();
        self.facts.clock = loop {
            match canaries::reading(line, &self.host).await {
                Ok(reading) => readings.push(reading),
                Err(gap) => break Err(gap),
            }
            if readings.len() == 3 {
                break Ok(readings);
            }
        };
    }

    /// Asks what the server says about itself.
    async fn describe(&mut self, line: &mut Line) {
        let facts = &mut self.facts;
        let array = |answer| match answer {
            Ok(Value::Array(values)) => Ok(values),
            Ok(_) => Err(Gap::Strange),
            Err(gap) => Err(gap),
        };
        facts.hello = array(line.ask(Command::new("HELLO")).await).map(|it| Info::of_pairs(&it));
        facts.role =
            array(line.ask(Command::new("ROLE")).await).and_then(|role| text(role.first()));
        facts.info = info(line, None).await;
        let opened = line.reopened();
        let ids = [client_id(line).await, client_id(line).await];
        facts.client_ids = match ids {
            // The ids are those of two connections.
            _ if line.reopened() != opened => Err(Gap::Silent),
            [Ok(first), Ok(second)] => Ok([first, second]),
            [Err(gap), _] | [_, Err(gap)] => Err(gap),
        };
        if facts.info.is_ok() {
            let ask = Command::new("CONFIG").arg("GET").arg("appendfsync");
            facts.appendfsync = array(line.ask(ask).await).and_then(|pair| text(pair.get(1)));
            let ask = Command::new("CONFIG").arg("GET").arg("client-output-buffer-limit");
            facts.buffers = array(line.ask(ask).await).and_then(|pair| text(pair.get(1)));
            let second = Line::open(&*self.connector, &self.host, self.ends).await;
            facts.second_run_id = match second {
                Ok(mut second) => info(&mut second, Some("server"))
                    .await
                    .and_then(|info| info.text("run_id").map(str::to_owned).ok_or(Gap::Strange)),
                Err(_) => Err(Gap::Silent),
            };
        }
        match &mut facts.membership {
            // A cluster has no strict mode.
            Some(membership) => membership.ask(line).await,
            None => self.ask_for_epoch(line).await,
        }
    }

    /// Finds out whether a client with this URL is strict, and whether the server is quarantined.
    async fn ask_for_epoch(&mut self, line: &mut Line) {
        let facts = &mut self.facts;
        let fields = Command::new("HMGET").arg(keys::EPOCH).arg("run").arg("until").arg("replid");
        let mut fields = match line.ask(fields.arg(keys::SWITCH)).await {
            Ok(Value::Array(fields)) => Ok(fields),
            Ok(_) => Err(Gap::Strange),
            Err(gap) => Err(gap),
        };
        let act = fields.as_mut().ok().and_then(Vec::pop).and_then(|record| match record {
            Value::Bytes(record) => Act::read(&record),
            _ => None,
        });
        facts.epoch = fields.as_ref().map_err(Clone::clone).map(|fields| {
            let is_used = fields.first().is_some_and(|run| *run != Value::Nil);
            Epoch { is_used, act: act.clone() }
        });
        if facts.expected == Strictness::AsDatabase {
            facts.terms.strict = match &facts.epoch {
                Ok(_) if act.is_some_and(|act| act.is_on) => Strictness::Yes(Strict::STANDARD),
                // Without the right to read the record, a client is not strict.
                Ok(_) | Err(Gap::Denied | Gap::DeniedKey) => Strictness::No,
                Err(_) => Strictness::AsDatabase,
            };
        }
        let strict = facts.terms.strict.strict();
        let (Some(strict), Some(run_id), Ok(fields)) = (strict, facts.text("run_id"), fields)
        else {
            return;
        };
        let asks = [Command::new("INFO").arg("replication"), Command::new("TIME")];
        let answers: Result<Vec<_>, _> = line.ask_all(&asks).await.into_iter().collect();
        facts.quarantine = answers.map(|answers| {
            let fields = Value::Array(fields);
            let found =
                quarantine::conclude(strict, Some(run_id), &fields, &answers[0], &answers[1]);
            found.map(|quarantine| quarantine.left)
        });
    }

    /// Tries the features that locks rely on.
    async fn try_out(&mut self, line: &mut Line) {
        let mark = canaries::set(&self.mark(), "mark", MARK_LIFE);
        self.facts.write = line.ask(mark).await.map(drop);
        if self.facts.write.is_ok() {
            self.ask_for_copies(line).await;
            self.try_keys(line).await;
        }
        if !matches!(self.facts.write, Err(Gap::DeniedKey)) {
            let is_node = self.facts.membership.is_some();
            self.facts.missing = rights::missing(line, &self.key("rights"), is_node).await;
        }
        let channel = format!(":lh:inbox:{}", self.canary);
        let until = (&self.host, self.ends);
        self.facts.message = canaries::message(line, &*self.connector, until, &channel).await;
        if self.facts.membership.is_some() {
            self.facts.shard_channels =
                canaries::shard_channels(line, &*self.connector, until, &channel).await;
        }
        self.facts.powers = rights::powers(line, self.facts.user()).await;
        self.facts.leftovers = canaries::leftovers(line, self.namespace()).await;
        if let Ok(readings) = &mut self.facts.clock
            && let Ok(reading) = canaries::reading(line, &self.host).await
        {
            readings.push(reading);
        }
    }

    /// Tries a key that ends by itself, and a key that only its owner may delete.
    async fn try_keys(&mut self, line: &mut Line) {
        let dying = Dying::begin(line, &self.host, self.key("expiry")).await;
        let key = self.key("release");
        self.facts.release = canaries::release(line, &key).await;
        if matches!(self.facts.release, Err(Gap::Absent | Gap::Denied)) {
            self.facts.release_without_script = canaries::release_without_script(line, &key).await;
        }
        self.facts.expiry = match dying {
            Ok(dying) => dying.end(line, &self.host).await,
            Err(gap) => Err(gap),
        };
    }

    /// Asks how many replicas and disks have the last write.
    async fn ask_for_copies(&mut self, line: &mut Line) {
        let facts = &mut self.facts;
        let replicas = facts.number("connected_slaves").unwrap_or(1).min(100);
        let wait = Command::new("WAIT").number(replicas).number(COPIES_MS);
        facts.wait = match line.ask(wait).await {
            Ok(Value::Int(count)) => Ok(count),
            Ok(_) => Err(Gap::Strange),
            Err(gap) => Err(gap),
        };
        let sent = self.host.now();
        let wait = Command::new("WAITAOF").number(1).number(0).number(2 * COPIES_MS);
        facts.fsync = match line.ask(wait).await {
            Ok(Value::Array(counts)) => match counts[..] {
                [Value::Int(ours), _] => Ok((ours, self.host.now().since(sent))),
                _ => Err(Gap::Strange),
            },
            Ok(_) => Err(Gap::Strange),
            Err(gap) => Err(gap),
        };
        let Copies { replicas, fsync } = facts.terms.copies;
        let wanted = match replicas {
            Replicas::Count(count) => Ok(count.into()),
            // As the client counts them.
            Replicas::Majority => match (facts.number("connected_slaves"), &facts.info) {
                (Some(replicas), _) => Ok(replicas.div_ceil(2).max(1)),
                (None, Err(gap)) => Err(gap.clone()),
                (None, Ok(_)) => Err(Gap::Strange),
            },
        };
        if facts.terms.copies.is_any() {
            let key = self.key("copies");
            self.facts.copies = Some(match wanted {
                Ok(wanted) => canaries::copies(line, &key, (wanted, fsync)).await,
                Err(gap) => Err(gap),
            });
        }
    }

    /// Looks which of the marks have arrived at this server.
    pub(crate) async fn look_for(&mut self, marks: &[String]) {
        let Some(line) = &mut self.line else { return };
        for mark in marks {
            let seen = canaries::exists(line, mark).await;
            self.facts.marks.push(seen);
        }
    }

    /// Removes the mark, and returns the facts.
    pub(crate) async fn end(mut self) -> Facts {
        let mark = self.mark();
        if let Some(line) = &mut self.line {
            // If this fails, the mark ends by itself.
            let _deleted = line.ask(Command::new("DEL").arg(mark)).await;
        }
        self.facts
    }
}

/// The answer to INFO.
async fn info(line: &mut Line, section: Option<&str>) -> Answer<Info> {
    match line.ask(section.iter().fold(Command::new("INFO"), Command::arg)).await? {
        Value::Bytes(text) => Ok(Info::of_lines(&text)),
        _ => Err(Gap::Strange),
    }
}

async fn client_id(line: &mut Line) -> Answer<i64> {
    match line.ask(Command::new("CLIENT").arg("ID")).await? {
        Value::Int(id) => Ok(id),
        _ => Err(Gap::Strange),
    }
}

/// The names and values of an answer in which they alternate.
async fn pairs(line: &mut Line, command: Command) -> Answer<Info> {
    match line.ask(command).await? {
        Value::Array(values) => Ok(Info::of_pairs(&values)),
        _ => Err(Gap::Strange),
    }
}

fn text(value: Option<&Value>) -> Answer<String> {
    match value {
        Some(Value::Bytes(text)) => Ok(shown(&String::from_utf8_lossy(text))),
        _ => Err(Gap::Strange),
    }
}

/// The way to a server, as its URL says.
pub(crate) fn place(connector: &RedisConnector) -> Place {
    let address = connector.address();
    let (hosts, has_sentinels) = match &address.endpoint {
        Endpoint::Tcp(host, _) => (vec![host.clone()], false),
        Endpoint::Cluster(seeds) => (seeds.iter().map(|(host, _)| host.clone()).collect(), false),
        Endpoint::Unix(_) => (Vec::new(), false),
        Endpoint::Sentinel(sentinels) => {
            (sentinels.sentinels.iter().map(|(host, _)| host.clone()).collect(), true)
        }
    };
    Place {
        label: connector.label(),
        hosts,
        user: address.access.username.clone(),
        db: address.access.db,
        has_login: address.access.password.is_some(),
        has_tls: address.tls.is_some(),
        has_sentinels,
        url: 0,
        is_in_quorum: false,
    }
}
