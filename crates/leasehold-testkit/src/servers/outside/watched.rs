//! Connections that a [`ServerOutside`] can see. They change neither requests nor
//! answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;

use leasehold::store::redis::{Access, Connector, Opening};

use super::arrival::Arrival;
use super::probe::Probe;
use super::{ServerOutside, lock};
use crate::protocol::{Between, Command, Onlooker};

/// A connector whose connections virtual time waits for.
pub struct Watched<C> {
    connector: C,
    outside: Arc<ServerOutside>,
}

impl<C: Connector> Watched<C> {
    pub(super) const fn new(connector: C, outside: Arc<ServerOutside>) -> Self {
        Self { connector, outside }
    }
}

impl<C: Connector> Connector for Watched<C> {
    fn open(&self) -> Opening {
        let (opening, outside) = (self.connector.open(), Arc::clone(&self.outside));
        Box::pin(Arrival::new(&self.outside, async move {
            let stream = opening.await?;
            let probe = Arc::<Probe>::default();
            lock(&outside.probes).push(Arc::clone(&probe));
            Ok(Between::over(stream, Watching { probe, outside }))
        }))
    }

    fn label(&self) -> String {
        self.connector.label()
    }

    fn access(&self) -> Access {
        self.connector.access()
    }

    fn seeds(&self) -> Vec<(String, u16)> {
        self.connector.seeds()
    }

    fn node(&self, host: &str, port: u16) -> Option<Arc<dyn Connector>> {
        let node = Node(self.connector.node(host, port)?);
        Some(Arc::new(Watched::new(node, Arc::clone(&self.outside))))
    }
}

/// A node of a cluster, which is one server too.
struct Node(Arc<dyn Connector>);

impl Connector for Node {
    fn open(&self) -> Opening {
        self.0.open()
    }

    fn label(&self) -> String {
        self.0.label()
    }

    fn access(&self) -> Access {
        self.0.access()
    }
}

impl<C> fmt::Debug for Watched<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.outside)
    }
}

struct Watching {
    probe: Arc<Probe>,
    outside: Arc<ServerOutside>,
}

impl Onlooker for Watching {
    fn leaves(&mut self, request: Command) -> Command {
        self.probe.sees(request.name());
        if !request.is_of_the_connection() {
            self.outside.requests.fetch_add(1, Ordering::AcqRel);
        }
        self.outside.goes_out();
        request
    }

    fn asks(&mut self, cx: &Context<'_>) -> Option<Command> {
        self.probe.is_due(cx).then(|| Command::new("PING"))
    }

    fn hears(&mut self) {
        self.probe.hears();
    }

    fn ends(&mut self) {
        self.probe.ends();
    }
}
