//! Asks the nodes in the URL of a cluster for its primaries, and each primary for its view of the
//! cluster.

use std::sync::Arc;

use futures_util::future::join_all;

use super::facts::{Answer, Gap, Info, Membership, Place};
use super::line::Line;
use super::{AHEAD, pairs, place};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::net::host_and_port_text;
use crate::store::redis::cluster::map::{Map, epoch};
use crate::store::redis::codec::command::{Command, Value};
use crate::store::redis::connect::RedisConnector;
use crate::store::redis::connector::Connector;
use crate::store::redis::error::refusal;
use crate::store::redis::keys::{SLOTS, slot};

/// How many hash tags are tried until one lies in a slot of the node. There are 16 for each slot.
const TAGS_MAX: usize = 16 * SLOTS as usize;

/// The facts about a cluster as a whole.
#[derive(Debug, Default)]
pub(crate) struct ClusterFacts {
    /// The URL without a login.
    pub(crate) label: String,
    /// Each node of the URL, with an error if it has no map of the slots.
    pub(crate) seeds: Vec<(String, Option<Error>)>,
    /// The primaries in the newest map.
    pub(crate) primaries: Vec<Primary>,
    /// The first and the last slot of each range without a node.
    pub(crate) uncovered: Vec<(u16, u16)>,
    /// The number of the URL.
    pub(crate) url: usize,
}

/// A primary, as the map shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Primary {
    pub(crate) label: String,
    pub(crate) slots: usize,
    /// How many replicas could take over each of its slots.
    pub(crate) replicas: usize,
}

/// A node that is to be examined.
pub(crate) struct Node {
    pub(super) connector: Arc<dyn Connector>,
    pub(super) ahead: Option<Arc<dyn Connector>>,
    pub(crate) place: Place,
    /// The beginning of the names of its canary keys.
    pub(super) canary: String,
}

/// Asks the nodes in the URL, and believes the newest map. The canary keys of the nodes begin with
/// `canary`. A node that can keep no key with this beginning is left out.
pub(crate) async fn read(
    connector: &RedisConnector,
    (host, ends): (&Arc<dyn Host>, Moment),
    (url, canary): (usize, &str),
) -> (ClusterFacts, Vec<Node>) {
    let of_url = Place { url, ..place(connector) };
    let mut facts = ClusterFacts { label: of_url.label.clone(), url, ..ClusterFacts::default() };
    let seeds = connector.seeds();
    let asked = join_all(seeds.iter().map(|seed| ask(connector, seed, (host, ends)))).await;
    let mut newest = None::<(Option<u64>, Map, Value)>;
    for ((host, port), said) in seeds.iter().zip(asked) {
        let (found, error) = match said {
            Ok(found) => (Some(found), None),
            Err(error) => (None, Some(error)),
        };
        facts.seeds.push((host_and_port_text(host, *port), error));
        let known = newest.as_ref().and_then(|(epoch, ..)| *epoch);
        newest = found.filter(|found| newest.is_none() || found.0 > known).or(newest);
    }
    let Some((_, map, answer)) = newest else { return (facts, Vec::new()) };
    facts.uncovered = uncovered(&map);
    facts.primaries = primaries(&map, &answer);
    let (mut nodes, of_later) = (Vec::new(), connector.ahead(AHEAD));
    for (number, (host, port)) in map.places().iter().enumerate() {
        let Some(connector) = connector.node(host, *port) else { continue };
        let label = connector.label();
        facts.primaries[number].label.clone_from(&label);
        if let Some(canary) = canary_at(canary, |slot| map.owner(slot) == Some(number)) {
            let place = Place { label, hosts: vec![host.clone()], ..of_url.clone() };
            let ahead = of_later.as_ref().and_then(|later| later.node(host, *port));
            nodes.push(Node { connector, ahead, place, canary });
        }
    }
    (facts, nodes)
}

/// Asks one node for the epoch of the cluster, and for its map.
async fn ask(
    connector: &RedisConnector,
    seed: &(String, u16),
    (host, ends): (&Arc<dyn Host>, Moment),
) -> Result<(Option<u64>, Map, Value), Error> {
    let node = connector.node(&seed.0, seed.1).ok_or_else(strange)?;
    let mut line = Line::open(&*node, host, ends).await?;
    let question = |word| Command::new("CLUSTER").arg(word);
    let slots = line.ask(question("SLOTS")).await.map_err(|gap| unsaid(&gap))?;
    let epoch = line.ask(question("INFO")).await.ok().as_ref().and_then(epoch);
    let map = Map::read(&slots, seed).ok_or_else(strange)?;
    Ok((epoch, map, slots))
}

/// A beginning for the names of keys, so that they lie in a slot of the node.
fn canary_at(canary: &str, has: impl Fn(u16) -> bool) -> Option<String> {
    let names = (0..TAGS_MAX).map(|tag| format!("{canary}:{{{tag}}}"));
    names.into_iter().find(|name| has(slot(name)))
}

/// The ranges of slots without a node.
fn uncovered(map: &Map) -> Vec<(u16, u16)> {
    let mut ranges = Vec::<(u16, u16)>::new();
    for slot in (0..SLOTS).filter(|slot| map.owner(*slot).is_none()) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    ranges
}

/// How many slots and replicas the nodes of the map have. A node may have several ranges.
fn primaries(map: &Map, answer: &Value) -> Vec<Primary> {
    let mut primaries = vec![Primary::default(); map.places().len()];
    for owner in (0..SLOTS).filter_map(|slot| map.owner(slot)) {
        primaries[owner].slots += 1;
    }
    let Value::Array(ranges) = answer else { return primaries };
    for range in ranges {
        let Value::Array(parts) = range else { continue };
        let [Value::Int(first), _, _, replicas @ ..] = &parts[..] else { continue };
        let owner = u16::try_from(*first).ok().and_then(|first| map.owner(first));
        if let Some(primary) = owner.and_then(|owner| primaries.get_mut(owner)) {
            primary.replicas = replicas.len();
        }
    }
    primaries
}

impl Default for Membership {
    fn default() -> Self {
        Self { info: Err(Gap::NotAsked), settings: Err(Gap::NotAsked) }
    }
}

impl Membership {
    /// Asks a node about its cluster.
    pub(super) async fn ask(&mut self, line: &mut Line) {
        self.info = info(line).await;
        self.settings = pairs(line, Command::new("CONFIG").arg("GET").arg("cluster-*")).await;
    }
}

async fn info(line: &mut Line) -> Answer<Info> {
    match line.ask(Command::new("CLUSTER").arg("INFO")).await? {
        Value::Bytes(text) => Ok(Info::of_lines(&text)),
        _ => Err(Gap::Strange),
    }
}

fn unsaid(gap: &Gap) -> Error {
    match gap {
        Gap::Denied => Error::new(
            ErrorKind::Denied,
            "this user has no right to `CLUSTER SLOTS`; no request was sent; allow the user \
             `+cluster|slots`, before Redis 7 `+cluster`",
        ),
        Gap::Refused { code, text } => refusal(code, text),
        Gap::Silent => Error::new(ErrorKind::Unavailable, "the node does not answer"),
        _ => strange(),
    }
}

fn strange() -> Error {
    Error::new(ErrorKind::Config, "this server is not a node of a Redis or Valkey cluster")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: i64) -> Value {
        Value::Array(vec![Value::Bytes(b"h".to_vec()), Value::Int(port)])
    }

    fn range(first: i64, last: i64, ports: &[i64]) -> Value {
        let ends = [first, last].map(Value::Int);
        Value::Array(ends.into_iter().chain(ports.iter().copied().map(node)).collect())
    }

    #[test]
    fn slots_and_replicas_are_counted_for_each_primary() {
        let answer = Value::Array(vec![
            range(0, 99, &[1, 9]),
            range(101, 199, &[1, 9]),
            range(200, 16_000, &[2]),
        ]);
        let map = Map::read(&answer, &("h".to_owned(), 1)).expect("a map");
        assert_eq!(uncovered(&map), [(100, 100), (16_001, 16_383)]);
        let found = primaries(&map, &answer);
        let counts: Vec<_> = found.iter().map(|it| (it.slots, it.replicas)).collect();
        assert_eq!(counts, [(199, 1), (15_801, 0)]);
    }

    #[test]
    fn canary_keys_lie_in_a_slot_of_their_node() {
        for wanted in [0, 1, 8_000, SLOTS - 1] {
            let canary = canary_at("app:leasehold:probe:x", |slot| slot == wanted);
            let canary = canary.expect("each slot has a tag");
            for name in ["mark", "rights"] {
                assert_eq!(slot(&format!("{canary}:{name}")), wanted);
            }
        }
        // All locks of this namespace are in one slot.
        let tagged = slot("{a}");
        assert!(canary_at("{a}:leasehold:probe:x", |slot| slot == tagged).is_some());
        assert_eq!(canary_at("{a}:leasehold:probe:x", |slot| slot != tagged), None);
    }
}
