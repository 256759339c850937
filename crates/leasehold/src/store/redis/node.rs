//! The connections to one server, alone or of a cluster.

use std::sync::Arc;

use tokio::sync::Notify;

use super::connector::Connector;
use super::hints::Hints;
use super::wire::Wire;
use super::wire::serving::Home;
use crate::host::Host;
use crate::store::sinks::Sinks;

/// The connections to one server.
pub(super) struct Node {
    pub(super) asks: Wire,
    pub(super) renewals: Wire,
    pub(super) hints: Arc<Hints>,
}

/// Which connection a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Asks,
    Renewals,
}

impl Node {
    /// `stale` wakes the task that reads the map of the cluster, if there is one.
    pub(super) fn new(
        host: &Arc<dyn Host>,
        connector: &Arc<dyn Connector>,
        sinks: &Arc<Sinks>,
        stale: Option<Arc<Notify>>,
    ) -> Arc<Self> {
        let wire = |home| Wire::new(Arc::clone(host), Arc::clone(connector), home);
        let hints = Hints::new(Arc::clone(host), Arc::clone(connector), Arc::clone(sinks), stale);
        Arc::new(Self { asks: wire(Home::Asker), renewals: wire(Home::Host), hints })
    }

    pub(super) const fn wire(&self, way: Way) -> &Wire {
        match way {
            Way::Asks => &self.asks,
            Way::Renewals => &self.renewals,
        }
    }
}
