//! The place where a world keeps its locks: simulated servers behind a network, or one machine.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::{Quorum, RedisStore};
use leasehold::{Client, ClientBuilder, Error};

use super::local::Local;
use super::log::Log;
use super::network::{Network, SimulatedConnector};
use super::noted::Noted;
use super::plan::{KeptIn, Plan};
use super::process::Process;
use super::server::Server;
use crate::VirtualHost;
use crate::history::event::{Name, ProcessId};

/// The place where a world keeps its locks.
pub(super) enum Backend {
    /// The nodes of a quorum, or one server.
    Servers(Vec<Network>),
    /// A store without a server.
    Local(Arc<Local>),
}

/// The way in which one process reaches the locks.
pub(super) enum Door {
    Servers(Vec<SimulatedConnector>),
    Local(Arc<Local>),
}

impl Backend {
    /// Creates the backend of a plan. It writes to `log`, and its networks follow from `seed`.
    pub(super) fn of(plan: &Plan, host: &Arc<VirtualHost>, seed: u64, log: &Log) -> Self {
        match plan.kept_in {
            KeptIn::Servers => Self::Servers(servers(plan, host, seed, log)),
            KeptIn::Memory => Self::Local(Local::in_memory(host, log.clone(), plan)),
            KeptIn::File => Self::Local(Local::in_file(host, log.clone(), plan)),
        }
    }

    /// Creates a process of the world. Processes of a local store share one clock.
    pub(super) fn process(
        &self,
        id: ProcessId,
        host: &Arc<VirtualHost>,
        faster_ppm: i64,
        seed: u64,
    ) -> Process {
        match self {
            Self::Servers(_) => Process::new(id, host, faster_ppm, seed),
            Self::Local(local) => local.process(id, seed),
        }
    }

    /// The way in which a process reaches the locks.
    pub(super) fn door(&self, process: &Process) -> Door {
        match self {
            Self::Servers(networks) => {
                Door::Servers(networks.iter().map(|network| network.connector(process)).collect())
            }
            Self::Local(local) => Door::Local(Arc::clone(local)),
        }
    }

    /// The network of each server; empty for a local store.
    pub(super) fn networks(&self) -> &[Network] {
        match self {
            Self::Servers(networks) => networks,
            Self::Local(_) => &[],
        }
    }

    /// The store on one machine; `None` if the world has servers.
    pub(super) fn local(&self) -> Option<&Arc<Local>> {
        match self {
            Self::Servers(_) => None,
            Self::Local(local) => Some(local),
        }
    }

    /// The owner of a key and the time that its lease has left. In a quorum, `token` owns the key
    /// while a majority of the nodes says so.
    pub(super) fn owner(&self, now: Moment, key: &Name, token: &Name) -> Option<(Name, Duration)> {
        let networks = match self {
            Self::Servers(networks) => networks,
            Self::Local(local) => return local.owner(key, token),
        };
        let said = |network: &Network| network.with_server(|server| server.owner(now, key, token));
        if let [network] = &networks[..] {
            return said(network);
        }
        let ours = networks.iter().filter_map(said).filter(|(owner, _)| owner == token);
        let mut lefts: Vec<_> = ours.map(|(_, left)| left).collect();
        lefts.sort_unstable_by(|one, other| other.cmp(one));
        lefts.get(networks.len() / 2).map(|left| (Arc::clone(token), *left))
    }

    /// Every key, with the time it has left.
    pub(super) fn keys(&self, now: Moment) -> Vec<(String, Option<Duration>)> {
        match self {
            Self::Servers(networks) => {
                let of = |network: &Network| network.with_server(|server| server.keys(now));
                networks.iter().flat_map(of).collect()
            }
            Self::Local(local) => local.keys(),
        }
    }

    /// Counts of events that only some kinds of worlds have.
    pub(super) fn did(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Servers(networks) => {
                networks.iter().flat_map(|network| network.with_server(|s| s.did())).collect()
            }
            Self::Local(local) => local.did(),
        }
    }
}

fn servers(plan: &Plan, host: &Arc<VirtualHost>, seed: u64, log: &Log) -> Vec<Network> {
    let nodes = plan.clocks.iter().enumerate().map(|(node, clock)| {
        let log = if plan.is_quorum() { log.of_node(node) } else { log.clone() };
        let mut server = Server::new(clock.clone(), log.clone());
        server.tells_shares = plan.sharing.is_some();
        if let Some(strict) = plan.strict {
            server.is_strict_from(host.now(), strict);
        }
        if let Some(copies) = plan.copies {
            server.is_copied_from_now_on(copies);
        }
        // The seeds of the nodes are far apart. Node 0 has the seed of a single server.
        let seed = seed.wrapping_add(0x5eed_0000_0000 * node as u64);
        Network::new(host, server, plan.delay_us, seed, log)
    });
    nodes.collect()
}

impl Door {
    /// Starts to build a client in the given process.
    pub(super) async fn open(&self, process: &Arc<Process>) -> Result<ClientBuilder, Error> {
        match self {
            Self::Servers(connectors) => connect(connectors, process).await,
            Self::Local(local) => local.client(process),
        }
    }
}

/// Builds a client of one server, or of a quorum of several servers.
pub(super) async fn connect(
    connectors: &[SimulatedConnector],
    host: &Arc<Process>,
) -> Result<ClientBuilder, Error> {
    if let [connector] = connectors {
        let store = RedisStore::connect_with(connector.clone(), host.clone()).await?;
        return Ok(Client::with_store(Noted::new(store, connector.log())));
    }
    let open = |connector: &SimulatedConnector| {
        Noted::new(RedisStore::open(connector.clone(), host.clone()), connector.log())
    };
    let stores = connectors.iter().map(open);
    Ok(Client::with_store(Quorum::connect(stores, host.clone()).await?))
}
