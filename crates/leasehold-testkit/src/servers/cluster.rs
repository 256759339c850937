//! A Redis Cluster whose slots and primaries move.

use super::certificates::{Authority, Identity};
use super::redis_server::{RedisServer, RedisServerBuilder};
use super::resp::Reply;
use super::sentinels::until;

/// How many slots a cluster has.
const SLOTS: usize = 16_384;

/// How many primaries there are. Fewer cannot agree on a failover.
const PRIMARIES: usize = 3;

/// The settings of a [`Cluster`].
#[derive(Debug)]
#[must_use = "servers are started by `start`"]
pub struct ClusterBuilder {
    node: RedisServerBuilder,
    replicas: bool,
    tls: bool,
}

/// Three primaries with a third of the slots each, and a replica of each, all on free ports of
/// 127.0.0.1. They are killed when this is dropped.
///
/// The nodes treat a node as down after a second of silence.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    tls: bool,
}

impl ClusterBuilder {
    /// Adds a line to the configuration of every node.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.config(name, value);
        self
    }

    /// Leaves the replicas out.
    pub const fn without_replicas(mut self) -> Self {
        self.replicas = false;
        self
    }

    /// Makes all nodes speak TLS among each other and to clients, with this certificate. It must be
    /// for 127.0.0.1. Their plain ports serve the kit alone.
    pub fn with_tls(mut self, identity: &Identity, authority: &Authority) -> Self {
        let node = self.node.with_tls(identity, authority).config("tls-cluster", "yes");
        self.node = node.config("tls-replication", "yes");
        self.tls = true;
        self
    }

    /// Starts everything, and waits until all nodes know each other and all slots.
    ///
    /// # Panics
    ///
    /// If that takes too long. The logs are printed.
    #[must_use]
    pub fn start(self) -> Cluster {
        let count = if self.replicas { 2 * PRIMARIES } else { PRIMARIES };
        let nodes: Vec<_> = (0..count).map(|_| self.node.clone().start()).collect();
        let cluster = Cluster { nodes, tls: self.tls };
        let (primaries, replicas) = cluster.nodes.split_at(PRIMARIES);
        for (number, node) in cluster.nodes.iter().enumerate() {
            let epoch = (number + 1).to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            let slots = (0..SLOTS).filter(|slot| slot * PRIMARIES / SLOTS == number);
            let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
            if !slots.is_empty() {
                let add = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
                node.command(&[add.as_slice(), &slots].concat());
            }
        }
        // Introduce each node to each other node, so that no node has to wait for gossip.
        for node in &cluster.nodes {
            for other in cluster.nodes.iter().filter(|other| other.port() != node.port()) {
                let port = cluster.port_of(other).to_string();
                node.command(&["CLUSTER", "MEET", "127.0.0.1", &port]);
            }
        }
        let count = count.to_string();
        cluster.until_each("the nodes know each other", |node| {
            field(node, "cluster_known_nodes").as_ref() == Some(&count)
        });
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id = id(primary);
            until("a replica knows its primary", || {
                replica.try_command(&["CLUSTER", "REPLICATE", &id]).is_ok()
            });
        }
        cluster.until_whole();
        cluster
    }
}

impl Cluster {
    /// Creates a builder.
    pub fn builder() -> ClusterBuilder {
        let node = RedisServer::builder()
            .config("cluster-enabled", "yes")
            .config("cluster-node-timeout", "1000")
            .config("cluster-replica-validity-factor", "0")
            .config("repl-diskless-sync-delay", "0");
        ClusterBuilder { node, replicas: true, tls: false }
    }

    /// A cluster of one node, which has all slots and a [clock](RedisServer::clock).
    ///
    /// # Panics
    ///
    /// If it does not start.
    #[must_use]
    pub fn of_one_node() -> RedisServer {
        let node = RedisServer::builder().config("cluster-enabled", "yes").with_clock().start();
        let slots: Vec<_> = (0..SLOTS).map(|slot| slot.to_string()).collect();
        let add = ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
        node.command(&[add.as_slice(), &slots].concat());
        // A new node serves nobody for two seconds.
        node.clock().step_by(3_000_000);
        until("the node serves its slots", || {
            field(&node, "cluster_state").as_deref() == Some("ok")
        });
        node.clock().run_free();
        node
    }

    /// The URL of the cluster by its first three nodes, without a login.
    #[must_use]
    pub fn url(&self) -> String {
        let seeds = self.nodes.iter().take(PRIMARIES);
        let seeds: Vec<_> = seeds.map(|node| format!("127.0.0.1:{}", self.port_of(node))).collect();
        format!("redis+cluster://{}", seeds.join(","))
    }

    /// The URL of the cluster by this node.
    #[must_use]
    pub fn url_by(&self, node: &RedisServer) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.port_of(node))
    }

    /// All nodes: the first three primaries, then their replicas.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> usize {
        let slot = self.running().command(&["CLUSTER", "KEYSLOT", key]).int();
        usize::try_from(slot).expect("a slot")
    }

    /// The primary that has the slot of a key.
    ///
    /// # Panics
    ///
    /// If no node has it.
    #[must_use]
    pub fn node_of(&self, key: &str) -> &RedisServer {
        let slot = self.slot_of(key);
        let port = owner(self.running(), slot).expect("a node has the slot");
        self.nodes.iter().find(|node| is_at(node, port)).expect("one of ours")
    }

    /// Another primary than that of a key.
    #[must_use]
    pub fn other_than(&self, node: &RedisServer) -> &RedisServer {
        let is_other = |other: &&RedisServer| other.port() != node.port() && is_primary(other);
        self.nodes.iter().find(is_other).expect("there are three")
    }

    /// Begins to move the slot of a key. Returns the node that gets it.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    pub fn begin_to_move(&self, key: &str) -> &RedisServer {
        let (from, slot) = (self.node_of(key), self.slot_of(key).to_string());
        let to = self.other_than(from);
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
        to
    }

    /// Moves the keys of the slot of a key to that node.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    pub fn move_keys(&self, key: &str, to: &RedisServer) {
        let (from, slot) = (self.node_of(key), self.slot_of(key).to_string());
        let port = self.port_of(to).to_string();
        let keys = || from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).texts();
        let mut found = keys();
        while !found.is_empty() {
            for key in found {
                // The key may have expired meanwhile.
                from.command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
            }
            found = keys();
        }
    }

    /// Tells all primaries that the slot of a key is at that node, and waits until they agree.
    ///
    /// # Panics
    ///
    /// If a node refuses, or that takes too long.
    pub fn end_to_move(&self, key: &str, to: &RedisServer) {
        let (slot, id) = (self.slot_of(key), id(to));
        let text = slot.to_string();
        let others = self.nodes.iter().filter(|node| node.port() != to.port() && is_primary(node));
        for node in [to].into_iter().chain(others) {
            node.command(&["CLUSTER", "SETSLOT", &text, "NODE", &id]);
        }
        // Until a node knows the new epoch, it may believe an older message about the slot.
        let epoch = field(to, "cluster_my_epoch").expect("it answers");
        self.until_each("all nodes know where the slot is", |node| {
            epoch_of(node, &id).as_ref() == Some(&epoch)
                && owner(node, slot).is_some_and(|port| is_at(to, port))
        });
    }

    /// Moves the slot of a key with its keys. Returns the node that has it now.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    pub fn migrate(&self, key: &str) -> &RedisServer {
        let to = self.begin_to_move(key);
        self.move_keys(key, to);
        self.end_to_move(key, to);
        to
    }

    /// Moves the slot of a key with its keys, in one step. Returns the node that has it now. `None`
    /// if these servers cannot do that. Valkey can from 9.0 on.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn migrate_at_once(&self, key: &str) -> Option<&RedisServer> {
        let (from, slot) = (self.node_of(key), self.slot_of(key));
        let (to, text) = (self.other_than(from), slot.to_string());
        let id = id(to);
        let range = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &text, &text, "NODE", &id];
        if let Err(refused) = from.try_command(&range) {
            assert!(refused.to_lowercase().contains("unknown subcommand"), "{refused}");
            return None;
        }
        self.until_each("all nodes know where the slot is", |node| {
            owner(node, slot).is_some_and(|port| is_at(to, port))
        });
        Some(to)
    }

    /// Kills the primary of a key, and waits until another node has its slot.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn fail_over(&self, key: &str) {
        let before = self.node_of(key);
        before.kill();
        self.until_taken_over(before, key);
    }

    /// All primaries.
    #[must_use]
    pub fn primaries(&self) -> Vec<&RedisServer> {
        self.nodes.iter().filter(|node| is_primary(node)).collect()
    }

    /// A replica of a node.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    pub fn replica_of(&self, node: &RedisServer) -> &RedisServer {
        let follows = |other: &&RedisServer| {
            let said = if other.runs() { info(other) } else { String::new() };
            said.lines()
                .find_map(|line| line.trim_end().strip_prefix("master_port:"))
                .and_then(|port| port.parse().ok())
                .is_some_and(|port| is_at(node, port))
        };
        self.nodes.iter().find(follows).expect("it has a replica")
    }

    /// Tells the replica of a key's primary to take over. With `force`, it does so alone, even if
    /// it lacks writes of the primary. Otherwise the primary first waits until the replica has
    /// everything.
    ///
    /// # Panics
    ///
    /// If the replica refuses.
    pub fn ask_to_fail_over(&self, key: &str, force: bool) {
        let replica = self.replica_of(self.node_of(key));
        let args = ["CLUSTER", "FAILOVER", "TAKEOVER"];
        replica.command(if force { &args } else { &args[..2] });
    }

    /// Fails the primary of a key over by a command, and waits until all nodes know it.
    ///
    /// # Panics
    ///
    /// If the replica refuses, or that takes too long.
    pub fn fail_over_by_command(&self, key: &str) {
        let before = self.node_of(key);
        self.ask_to_fail_over(key, false);
        self.until_taken_over(before, key);
    }

    /// Waits until a node names another owner of a key's slot than the node `before`. Returns the
    /// new owner.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn until_one_names_another(&self, key: &str, before: &RedisServer) -> &RedisServer {
        let slot = self.slot_of(key);
        let named = || {
            let others = self.nodes.iter().filter(|node| node.runs());
            let mut named = others.filter_map(|node| owner(node, slot));
            named.find(|port| !is_at(before, *port))
        };
        until("a node names another owner", || named().is_some());
        let port = named().expect("it was named before");
        self.nodes.iter().find(|node| is_at(node, port)).expect("one of ours")
    }

    /// Starts the killed nodes again, and waits until all nodes serve or follow.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn repair(&self) {
        for node in self.nodes.iter().filter(|node| !node.runs()) {
            node.restart();
        }
        self.until_whole();
    }

    /// Waits until a node other than `before`, which was killed, has the slot of a key.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn until_taken_over(&self, before: &RedisServer, key: &str) {
        let slot = self.slot_of(key);
        self.until_each("another node takes over", |node| {
            owner(node, slot).is_some_and(|now| !is_at(before, now))
                && field(node, "cluster_state").as_deref() == Some("ok")
        });
    }

    /// Waits until all nodes know all slots, and all replicas follow.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn until_whole(&self) {
        self.until_each("all slots are served", |node| {
            field(node, "cluster_state").as_deref() == Some("ok")
                && field(node, "cluster_slots_ok").as_deref() == Some("16384")
        });
        let replicas = self.nodes.len() / PRIMARIES - 1;
        self.until_each("all replicas are known and follow", |node| {
            let said = node.look(&["CLUSTER", "SLOTS"]);
            let is_whole = said.is_some_and(|said| {
                said.array().iter().all(|range| range.array().len() == 3 + replicas)
            });
            is_whole && (is_primary(node) || info(node).contains("master_link_status:up"))
        });
    }

    /// The port for clients, which is the TLS port if there is one.
    fn port_of(&self, node: &RedisServer) -> u16 {
        if self.tls { node.tls_port() } else { node.port() }
    }

    fn running(&self) -> &RedisServer {
        self.nodes.iter().find(|node| node.runs()).expect("a node runs")
    }

    fn until_each(&self, what: &str, is_so: impl Fn(&RedisServer) -> bool) {
        for node in self.nodes.iter().filter(|node| node.runs()) {
            until(what, || is_so(node));
        }
    }
}

/// Whether a node is at this port, which may be its TLS port.
fn is_at(node: &RedisServer, port: u16) -> bool {
    node.port() == port || node.has_tls_port(port)
}

fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).text()
}

fn info(node: &RedisServer) -> String {
    node.look(&["INFO", "replication"]).map(|said| said.text()).unwrap_or_default()
}

fn is_primary(node: &RedisServer) -> bool {
    node.runs() && info(node).contains("role:master")
}

/// A field of a node's information about its cluster.
fn field(node: &RedisServer, name: &str) -> Option<String> {
    let said = node.look(&["CLUSTER", "INFO"])?.text();
    let value = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(|value| value.trim_end().to_owned())
}

/// The epoch of the node with this id, as far as this node knows.
fn epoch_of(node: &RedisServer, id: &str) -> Option<String> {
    let said = node.look(&["CLUSTER", "NODES"])?.text();
    let line = said.lines().find(|line| line.starts_with(id))?;
    line.split(' ').nth(6).map(str::to_owned)
}

/// The port of the node that has a slot, as far as this node knows.
fn owner(node: &RedisServer, slot: usize) -> Option<u16> {
    let Reply::Array(ranges) = node.look(&["CLUSTER", "SLOTS"])? else { return None };
    let slot = i64::try_from(slot).ok()?;
    let range = ranges.iter().find(|range| {
        let range = range.array();
        range[0].int() <= slot && slot <= range[1].int()
    });
    u16::try_from(range?.array()[2].array()[1].int()).ok()
}
