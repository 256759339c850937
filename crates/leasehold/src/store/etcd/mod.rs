//! Leases in an etcd cluster.
//!
//! A step is one transaction of the cluster, with conditions. Each lock and each place in a line
//! has a lease of etcd of its own, so the cluster removes what nobody renews. The number of the
//! change that grants a lock is its fencing token.
//!
//! | file | purpose |
//! |---|---|
//! | `message`, `rpc` | the protocol as values |
//! | `channel` | calls over one connection |
//! | `url`, `connect` | which members there are, and how one is chosen |
//! | `wire` | calls of a store, and new connections |
//! | `error` | what the errors of a cluster mean |
//! | `keys`, `entry` | the keys of a lock, and their values |
//! | `leases`, `mine` | leases of etcd, and which locks have them |
//! | `state`, `steps/` | what a read shows, and the steps of the contract |
//! | `hints` | watches the locks that clients wait for |
//! | `examine` | asks a cluster the questions of a diagnosis |

mod channel;
mod connect;
mod entry;
mod error;
pub(crate) mod examine;
mod hints;
mod keys;
mod leases;
mod message;
mod mine;
mod rpc;
mod state;
mod steps;
mod url;
mod wire;

use std::fmt;
use std::sync::{Arc, Weak};

pub use self::connect::EtcdConnector;
use self::steps::Core;
use super::delegate::delegate;
use super::steps::{Steps, contract};
use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Evicted, HintSink, InOrder, LeaseId, OnRelease,
    Page, Reach, Released, Renewal, Renewed, Revoked, Snapshot, Store,
};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::ClientId;
use crate::host::Host;

/// A store in an etcd cluster, version 3.4 or newer.
///
/// Clones share one connection to one member. If it fails, another member is asked. The locks reach
/// every client of the cluster, and outlive the loss of a minority of its members. The leader of
/// the cluster decides when a lease ends. It counts in whole seconds, so a lease may end a few
/// seconds late, and never early.
#[derive(Clone)]
pub struct EtcdStore {
    inner: InOrder<Steps<Core>>,
    steps: Steps<Core>,
}

impl EtcdStore {
    /// A store that connects with its first request.
    #[must_use]
    pub fn open(connector: EtcdConnector, host: Arc<dyn Host>) -> Self {
        let core = Core::new(connector, Arc::clone(&host));
        let steps = Steps::new(Arc::new(core));
        Self { inner: InOrder::new(steps.clone(), host), steps }
    }

    /// Makes sure that a member answers.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.steps.check()?;
        let core = Arc::clone(self.steps.core());
        // The connection belongs to the host, and not to the caller.
        core.wire.channel().await.map(drop)
    }
}

delegate!(EtcdStore, EtcdConnector);

contract!(Core);

impl Core {
    const CAPABILITIES: Capabilities = Capabilities {
        fencing: true,
        line: true,
        reask: true,
        detached: true,
        frees: true,
        hints: Reach::Network,
        reach: Reach::Network,
        browse: true,
        revoke: true,
        durable: true,
        ..Capabilities::NONE
    };

    fn label(&self) -> String {
        self.wire.connector.label()
    }
}
