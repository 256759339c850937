//! Leases in a ZooKeeper ensemble.
//!
//! Each lock and each place in a line is a node that ends with the session of its store. The first
//! node of a lock has it, so the server itself keeps the line. The number of the change that grants
//! a lock is its fencing token.
//!
//! | file | purpose |
//! |---|---|
//! | `jute`, `rpc` | the protocol as values |
//! | `frames` | messages over one connection |
//! | `url`, `connect` | which servers there are, and how a session begins |
//! | `session`, `driver`, `wire` | requests in one session, and reconnecting |
//! | `error` | what the errors of an ensemble mean |
//! | `names`, `line` | the nodes of a lock, and their order |
//! | `mine` | the nodes that a store made, and until when they stay |
//! | `steps/` | the steps of the contract, and the work between them |
//! | `examine` | asks an ensemble the questions of a diagnosis |

mod connect;
mod driver;
mod error;
pub(crate) mod examine;
mod frames;
mod jute;
mod line;
mod mine;
mod names;
mod rpc;
mod session;
mod steps;
mod url;
mod wire;

use std::fmt;
use std::sync::{Arc, Weak};

pub use self::connect::ZookeeperConnector;
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

/// A store in a ZooKeeper ensemble, version 3.5 or newer.
///
/// Clones share one session. The locks reach every client of the ensemble, and outlive the loss of
/// a minority of its servers. They end with the session: when the process ends, or has been cut off
/// for the timeout of the session. So no other process can go on with a lock. While the process
/// lives, a lease that is not renewed ends on time.
#[derive(Clone)]
pub struct ZookeeperStore {
    inner: InOrder<Steps<Core>>,
    steps: Steps<Core>,
}

impl ZookeeperStore {
    /// A store that connects with its first request.
    #[must_use]
    pub fn open(connector: ZookeeperConnector, host: Arc<dyn Host>) -> Self {
        let core = Core::new(connector, Arc::clone(&host));
        let steps = Steps::new(core);
        Self { inner: InOrder::new(steps.clone(), host), steps }
    }

    /// Makes sure that a server answers.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.steps.check()?;
        self.steps.core().wire.session().await.map(drop)
    }
}

delegate!(ZookeeperStore, ZookeeperConnector);

contract!(Core);

impl Core {
    const CAPABILITIES: Capabilities = Capabilities {
        fencing: true,
        line: true,
        reask: true,
        hints: Reach::Network,
        reach: Reach::Network,
        browse: true,
        revoke: true,
        ..Capabilities::NONE
    };
}
