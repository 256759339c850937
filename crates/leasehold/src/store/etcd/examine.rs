//! Asks a cluster the questions of a diagnosis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::error::explain;
use super::message::Message;
use super::rpc::Status;
use super::{EtcdConnector, EtcdStore};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::Effect;
use crate::store::{Store as _, try_out, within};

/// How long a member may take to say what it is.
const LIMIT: Duration = Duration::from_secs(2);

/// The facts about a cluster, without any judgement.
#[derive(Debug)]
pub(crate) struct EtcdFacts {
    pub(crate) label: String,
    /// Why the cluster cannot be used.
    pub(crate) refused: Option<Error>,
    pub(crate) members: Vec<MemberFacts>,
    /// The shortest lease that the cluster makes, in seconds.
    pub(crate) shortest: Option<i64>,
    pub(crate) round_trips: Vec<Duration>,
    /// Whether a probe lease worked: granted, renewed, and released by no other token than its own.
    pub(crate) lease: Option<Result<bool, Error>>,
}

/// The answer of one member of the URL about itself.
#[derive(Debug)]
pub(crate) struct MemberFacts {
    /// The member's host and port.
    pub(crate) name: String,
    /// The member's version, whether it knows a leader, and its alarms. `None` if this user may not
    /// know. Many versions tell it only to root.
    pub(crate) said: Result<Option<(String, bool, Vec<String>)>, Error>,
}

/// Examines the cluster of a connector.
pub(crate) async fn examine(
    connector: EtcdConnector,
    host: &Arc<dyn Host>,
    canary: &str,
) -> EtcdFacts {
    let names = connector.members.names().enumerate();
    let asking = names.map(async |(number, name)| MemberFacts {
        name,
        said: ask(&connector, host, number).await,
    });
    let members = join_all(asking).await;
    let store = EtcdStore::open(connector, Arc::clone(host));
    let mut facts = EtcdFacts {
        label: store.label(),
        refused: store.reach().await.err(),
        members,
        shortest: None,
        round_trips: Vec::new(),
        lease: None,
    };
    if facts.refused.is_some() {
        return facts;
    }
    facts.shortest = store.steps.core().shortest_lease().await.ok();
    let (lease, round_trips) = try_out(&store, &**host, canary).await;
    (facts.lease, facts.round_trips) = (Some(lease), round_trips);
    facts
}

/// Asks a member for its version, its leader and its alarms.
async fn ask(
    connector: &EtcdConnector,
    host: &Arc<dyn Host>,
    number: usize,
) -> Result<Option<(String, bool, Vec<String>)>, Error> {
    let channel = connector.connect_to(host, number).await?;
    let path = "/etcdserverpb.Maintenance/Status";
    let failed = |failure| explain(&failure, Effect::Nothing);
    // The server may take longer than the limit that it is told.
    let asking = async { channel.call(path, &Message::default(), LIMIT).await.map_err(failed) };
    let answer = match within(Arc::clone(host), LIMIT, asking).await {
        Err(denied) if denied.kind() == ErrorKind::Denied => return Ok(None),
        answer => answer?,
    };
    let Status { version, leader, errors } =
        Status::read(&answer).map_err(|malformed| failed(malformed.into()))?;
    Ok(Some((version, leader != 0, errors)))
}
