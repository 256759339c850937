//! Which node of a cluster has which slot, and what nodes say about that.

use crate::store::redis::codec::command::{Digits, Value};
use crate::store::redis::error::inside_script;
use crate::store::redis::keys::{SLOTS, slot};
use crate::store::redis::place::{Place, is_host};

/// The most nodes of a cluster. Redis recommends at most this many.
const NODES_MAX: usize = 1_000;

/// How many numbers are tried as tags. A node with few slots may have none of them.
const TAGS_TRIED_MAX: u32 = 16_384;

/// The number of no node.
const NOBODY: u16 = u16::MAX;

/// The primaries of a cluster and their slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Map {
    places: Vec<Place>,
    /// For each slot, the number of its node.
    owners: Vec<u16>,
    /// For each node, the lowest number whose slot it had when the map was read. Clients with the
    /// same map agree on these tags.
    tags: Vec<Option<u32>>,
}

impl Map {
    /// Nodes whose slots are not known yet.
    pub(super) fn of_seeds(places: Vec<Place>) -> Self {
        Self { places, owners: vec![NOBODY; usize::from(SLOTS)], tags: Vec::new() }
    }

    /// Reads the answer to `CLUSTER SLOTS` of the node at `asked`. `None` if the answer has another
    /// form.
    pub(in crate::store::redis) fn read(answer: &Value, asked: &Place) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut map = Self::of_seeds(Vec::new());
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..]
            else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            let owners = map.owners.get(usize::from(first)..=usize::from(last))?.len();
            // One node without a known address does not make the slots of the others unknown.
            let Some(place) = place(primary, asked)? else { continue };
            let number = map.number_of(place)?;
            map.owners[usize::from(first)..][..owners].fill(number);
        }
        map.choose_tags();
        Some(map)
    }

    fn choose_tags(&mut self) {
        let mut tags = vec![None; self.places.len()];
        let mut left = tags.len();
        for number in 0..TAGS_TRIED_MAX {
            if left == 0 {
                break;
            }
            let owner = self.owner(slot(Digits::of(number.into()).as_str()));
            if let Some(tag @ None) = owner.and_then(|owner| tags.get_mut(owner)) {
                *tag = Some(number);
                left -= 1;
            }
        }
        self.tags = tags;
    }

    /// The tag of the shard channels of a node.
    pub(super) fn tag(&self, node: usize) -> Option<u32> {
        self.tags.get(node).copied().flatten()
    }

    pub(in crate::store::redis) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether no node has any slot.
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.owners.iter().all(|owner| *owner == NOBODY)
    }

    /// The number of the node that has this slot.
    pub(in crate::store::redis) fn owner(&self, slot: u16) -> Option<usize> {
        let owner = self.owners.get(usize::from(slot)).copied()?;
        (owner != NOBODY).then_some(usize::from(owner))
    }

    /// Gives a slot to a node.
    pub(super) fn assign(&mut self, slot: u16, node: usize) {
        if let (Some(owner), Ok(node)) = (self.owners.get_mut(usize::from(slot)), node.try_into()) {
            *owner = node;
        }
    }

    /// The number of the node at this place, which is added if it is new. `None` if there are too
    /// many.
    pub(super) fn number_of(&mut self, place: Place) -> Option<u16> {
        let known = self.places.iter().position(|known| *known == place);
        let number = known.unwrap_or(self.places.len());
        if number == NODES_MAX {
            return None;
        }
        if known.is_none() {
            self.places.push(place);
        }
        number.try_into().ok()
    }
}

/// Reads the host and the port of a node. `Some(None)` means that the node that was asked does not
/// know them. `None` means that the answer has another form.
///
/// If the host is null or empty, the node has the same host as the node that was asked. If the host
/// is `?`, the node announces no name, and its address follows its id.
fn place(primary: &[Value], asked: &Place) -> Option<Option<Place>> {
    let [host, Value::Int(port), rest @ ..] = primary else { return None };
    let host = match host {
        Value::Nil => Some(""),
        Value::Bytes(host) if host == b"?" => match rest {
            [_, Value::Array(more), ..] => address_in(more),
            _ => None,
        },
        Value::Bytes(host) => str::from_utf8(host).ok(),
        _ => return None,
    };
    let port = u16::try_from(*port).ok()?;
    Some(host.and_then(|host| place_of(host, port, asked)))
}

/// The address in pairs of names and values.
fn address_in(pairs: &[Value]) -> Option<&str> {
    let mut pairs = pairs.chunks_exact(2);
    let address = pairs.find(|pair| pair[0] == Value::Bytes(b"ip".to_vec()))?;
    let Value::Bytes(address) = &address[1] else { return None };
    str::from_utf8(address).ok().filter(|address| !address.is_empty())
}

/// The place, if both parts can be used.
fn place_of(host: &str, port: u16, asked: &Place) -> Option<Place> {
    let host = if host.is_empty() { &asked.0 } else { host };
    (is_host(host) && port != 0).then(|| (host.to_owned(), port))
}

/// The epoch in the answer to `CLUSTER INFO`. It rises with each failover.
pub(in crate::store::redis) fn epoch(answer: &Value) -> Option<u64> {
    line_of(answer, "cluster_current_epoch:")?.parse().ok()
}

/// Whether the answer to `CLUSTER INFO` says that the node serves nobody. Then it may be cut off
/// from the others, and they may have another map.
pub(super) fn has_failed(answer: &Value) -> bool {
    line_of(answer, "cluster_state:") == Some("fail")
}

fn line_of<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    let Value::Bytes(text) = answer else { return None };
    let text = str::from_utf8(text).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_end)
}

/// The meaning of a refusal for the route of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The slot is at this node now.
    Moved(u16, Place),
    /// This request is for the named node, behind `ASKING`. The slot itself is still here.
    Ask(Place),
    /// The slot is being moved. Some keys of the lock are here, others at the next node.
    Again,
    /// The slot is at another node, which this one cannot name.
    Unnamed,
    /// The request is refused, and the map may be wrong.
    Stale,
    /// The request is refused.
    Here,
}

/// Reads a refusal of the node at `asked`.
pub(super) fn refused(code: &str, text: &str, asked: &Place) -> Refused {
    let (code, text) = inside_script(code, text);
    let redirection = || {
        let (slot, place) = text.split_once(' ')?.1.split_once(' ')?;
        let (host, port) = place.split_once(' ').unwrap_or((place, "")).0.rsplit_once(':')?;
        let slot = slot.parse().ok().filter(|slot| *slot < SLOTS)?;
        Some((slot, place_of(host, port.parse().ok()?, asked)?))
    };
    match (code, redirection) {
        ("MOVED", read) => {
            read().map_or(Refused::Unnamed, |(slot, place)| Refused::Moved(slot, place))
        }
        ("ASK", read) => read().map_or(Refused::Unnamed, |(_, place)| Refused::Ask(place)),
        ("TRYAGAIN", _) => Refused::Again,
        ("CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING", _) => Refused::Stale,
        _ => Refused::Here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Place {
        ("h".to_owned(), 7)
    }

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bytes("id"), Value::Array(vec![])])
    }

    #[test]
    fn a_map_has_the_primary_of_each_slot() {
        let (a, b) = (node(bytes("::1"), 1), node(Value::Nil, 2));
        let answer = Value::Array(vec![
            range(0, 99, vec![a.clone(), node(bytes("replica"), 9)]),
            range(200, 16_383, vec![b]),
            range(100, 100, vec![a]),
        ]);
        let map = Map::read(&answer, &asked()).expect("a map");
        assert_eq!(map.places(), [("::1".to_owned(), 1), ("h".to_owned(), 2)]);
        let owners = [0, 99, 100, 101, 199, 200, 16_383, 16_384].map(|slot| map.owner(slot));
        let (a, b) = (Some(0), Some(1));
        assert_eq!(owners, [a, a, a, None, None, b, b, None]);
        assert!(!map.is_empty());
        // The slot of 0 is 13907. 108 is the first number whose slot is at most 100.
        assert_eq!([0, 1, 2].map(|node| map.tag(node)), [Some(108), Some(0), None]);
        assert!(slot("108") <= 100 && (0..108_u32).all(|below| slot(&below.to_string()) > 100));
        assert!(Map::read(&Value::Array(vec![]), &asked()).expect("a map").is_empty());
    }

    #[test]
    fn a_node_without_a_name_is_at_its_address() {
        let named = |more: Vec<Value>| {
            Value::Array(vec![bytes("?"), Value::Int(7), bytes("id"), Value::Array(more)])
        };
        let ip = vec![bytes("x"), bytes("y"), bytes("ip"), bytes("10.0.0.2")];
        let answer = Value::Array(vec![
            range(0, 0, vec![named(ip)]),
            range(1, 1, vec![named(vec![])]),
            range(2, 2, vec![node(bytes("a"), 0)]),
            range(3, 3, vec![node(bytes("a\u{1b}"), 1)]),
            range(4, 4, vec![node(bytes("b"), 1)]),
        ]);
        let map = Map::read(&answer, &asked()).expect("a map");
        assert_eq!(map.places(), [("10.0.0.2".to_owned(), 7), ("b".to_owned(), 1)]);
        let owners = [0, 1, 2, 3, 4].map(|slot| map.owner(slot));
        assert_eq!(owners, [Some(0), None, None, None, Some(1)]);
    }

    #[test]
    fn a_slot_that_moved_has_another_node() {
        let mut map = Map::of_seeds(vec![asked()]);
        assert_eq!(map.owner(5), None);
        let new = map.number_of(("i".to_owned(), 7)).expect("there is room");
        map.assign(5, usize::from(new));
        assert_eq!((map.owner(5), map.owner(6)), (Some(1), None));
        assert_eq!(map.number_of(asked()), Some(0), "each node once");
        map.assign(SLOTS, 0);
        for number in 2..NODES_MAX {
            assert!(map.number_of((number.to_string(), 1)).is_some());
        }
        assert_eq!(map.number_of(("one more".to_owned(), 1)), None);
    }

    #[test]
    fn an_answer_that_is_no_map_is_refused() {
        let a = || node(bytes("a"), 1);
        for torn in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 1, vec![])]),
            Value::Array(vec![range(0, 16_384, vec![a()])]),
            Value::Array(vec![range(-1, 5, vec![a()])]),
            Value::Array(vec![range(5, 3, vec![a()])]),
            Value::Array(vec![range(0, 1, vec![node(bytes("a"), 65_536)])]),
            Value::Array(vec![range(0, 1, vec![node(Value::Int(1), 1)])]),
            Value::Array(vec![range(0, 1, vec![Value::Array(vec![bytes("a")])])]),
        ] {
            assert_eq!(Map::read(&torn, &asked()), None, "{torn:?}");
        }
    }

    #[test]
    fn a_refusal_says_where_the_request_belongs() {
        let place = |host: &str, port| (host.to_owned(), port);
        let table = [
            ("MOVED 3999 127.0.0.1:6381", Refused::Moved(3999, place("127.0.0.1", 6381))),
            ("MOVED 0 ::1:6381", Refused::Moved(0, place("::1", 6381))),
            ("MOVED 1 :6381", Refused::Moved(1, place("h", 6381))),
            ("MOVED 1 ?:6381", Refused::Unnamed),
            ("MOVED 1 a\u{1b}[31m:6381", Refused::Unnamed),
            ("MOVED 1 a.b:6381 more", Refused::Moved(1, place("a.b", 6381))),
            ("ASK 3999 127.0.0.1:6381", Refused::Ask(place("127.0.0.1", 6381))),
            ("MOVED", Refused::Unnamed),
            ("MOVED 16384 a:1", Refused::Unnamed),
            ("MOVED 1 a:0", Refused::Unnamed),
            ("MOVED 1 a:65536", Refused::Unnamed),
            ("ASK 1 a", Refused::Unnamed),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Refused::Again),
            ("CLUSTERDOWN Hash slot not served", Refused::Stale),
            ("LOADING Redis is loading", Refused::Stale),
            ("READONLY You can't write against a read only replica.", Refused::Stale),
            ("MASTERDOWN Link with MASTER is down", Refused::Stale),
            (
                "ERR Error running script (call to f_a): @user_script:9: -READONLY You can't write",
                Refused::Stale,
            ),
            ("NOSCRIPT No matching script", Refused::Here),
            ("", Refused::Here),
        ];
        for (text, expected) in table {
            let code = text.split(' ').next().unwrap_or_default();
            assert_eq!(refused(code, text, &asked()), expected, "{text}");
        }
    }

    #[test]
    fn the_epoch_is_a_line_of_its_own() {
        let text = "cluster_enabled:1\r\ncluster_current_epoch:12\r\ncluster_my_epoch:3\r\n";
        assert_eq!(epoch(&bytes(text)), Some(12));
        assert_eq!(epoch(&bytes("cluster_my_epoch:3\r\n")), None);
        assert_eq!(epoch(&bytes("cluster_current_epoch:x\r\n")), None);
        assert_eq!(epoch(&Value::Nil), None);
    }
}
