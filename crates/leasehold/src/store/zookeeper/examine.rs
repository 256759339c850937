//! Asks an ensemble the questions of a diagnosis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::session::margin;
use super::{ZookeeperConnector, ZookeeperStore};
use crate::core::error::{Error, ErrorKind};
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::net::Io;
use crate::store::probe::{probe_ttl, try_out_for};
use crate::store::{Store as _, within};

/// How long a server may take to say what it is.
const LIMIT: Duration = Duration::from_secs(2);

/// The longest text that a server may say of itself.
const TEXT_BYTES_MAX: u64 = 4_096;

/// The facts about an ensemble, without any judgement.
#[derive(Debug)]
pub(crate) struct ZookeeperFacts {
    pub(crate) label: String,
    /// Why the ensemble cannot be used.
    pub(crate) refused: Option<Error>,
    pub(crate) servers: Vec<ServerFacts>,
    /// The timeout of the session that the URL wants, and the one that was granted.
    pub(crate) session: Option<(Duration, Duration)>,
    /// The longest lease in the granted session.
    pub(crate) longest: Option<Duration>,
    pub(crate) round_trips: Vec<Duration>,
    /// Whether a probe lease worked: granted, renewed, and released by no other token than its own.
    pub(crate) lease: Option<Result<bool, Error>>,
}

/// The answers of one server of the URL about itself.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    /// The server's host and port.
    pub(crate) name: String,
    /// The server's version and role. `None` if the server may not tell.
    pub(crate) said: Result<Option<(String, String)>, Error>,
}

/// Examines the ensemble of a connector.
pub(crate) async fn examine(
    connector: ZookeeperConnector,
    host: &Arc<dyn Host>,
    canary: &str,
) -> ZookeeperFacts {
    let names = connector.members.names().enumerate();
    let asking = names.map(async |(number, name)| ServerFacts {
        name,
        said: ask(&connector, host, number).await,
    });
    let servers = join_all(asking).await;
    let wanted = connector.address.session;
    let store = ZookeeperStore::open(connector, Arc::clone(host));
    let mut facts = ZookeeperFacts {
        label: store.label(),
        refused: None,
        servers,
        session: None,
        longest: None,
        round_trips: Vec::new(),
        lease: None,
    };
    match store.steps.core().wire.session().await {
        Ok(session) => {
            facts.session = Some((wanted, session.timeout));
            facts.longest = session.timeout.checked_sub(margin(session.timeout));
        }
        Err(error) => {
            facts.refused = Some(error);
            return facts;
        }
    }
    let ttl =
        facts.longest.map_or_else(probe_ttl, |longest| Ttl::nearest(longest).min(probe_ttl()));
    let (lease, round_trips) = try_out_for(&store, &**host, canary, ttl).await;
    (facts.lease, facts.round_trips) = (Some(lease), round_trips);
    facts
}

/// Asks a server for its version and its role, by a word of four letters.
async fn ask(
    connector: &ZookeeperConnector,
    host: &Arc<dyn Host>,
    number: usize,
) -> Result<Option<(String, String)>, Error> {
    let stream = connector.reach(host, number).await?;
    let asking = async {
        let mut io = Io(stream);
        io.write_all(b"srvr").await?;
        io.flush().await?;
        let mut said = Vec::new();
        io.take(TEXT_BYTES_MAX).read_to_end(&mut said).await?;
        Ok(said)
    };
    let asking = async {
        asking.await.map_err(|cause: std::io::Error| {
            let message = format!("the connection ended ({cause}); no lock was changed");
            Error::new(ErrorKind::Unavailable, message)
        })
    };
    let said = within(Arc::clone(host), LIMIT, asking).await?;
    read(&String::from_utf8_lossy(&said))
}

/// Reads the version and the role. `None` if the server may not tell them.
fn read(said: &str) -> Result<Option<(String, String)>, Error> {
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    if let Some(version) = line("Zookeeper version: ") {
        let version = version.split(['-', ',']).next().unwrap_or(version);
        let role = line("Mode: ").unwrap_or("unknown");
        return Ok(Some((version.to_owned(), role.to_owned())));
    }
    // Some versions close the connection of a word that they may not answer.
    if said.is_empty() || said.contains("not in the whitelist") {
        return Ok(None);
    }
    let message = if said.contains("not currently serving") {
        "it does not serve requests, since it reaches no majority; no lock was changed"
    } else {
        "it does not answer as ZooKeeper does; no lock was changed"
    };
    Err(Error::new(ErrorKind::Unavailable, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_its_version_and_its_role_or_nothing() {
        let said = "Zookeeper version: 3.8.0-11+deb12u2, built on 2022-02-25\nLatency \
                    min/avg/max: 0/0.0/0\nMode: follower\nNode count: 5\n";
        let told = |said| read(said).map_err(|error| error.kind());
        assert_eq!(told(said), Ok(Some(("3.8.0".to_owned(), "follower".to_owned()))));
        assert_eq!(told("srvr is not executed because it is not in the whitelist.\n"), Ok(None));
        assert_eq!(told(""), Ok(None));
        for said in ["This ZooKeeper instance is not currently serving requests\n", "-ERR\r\n"] {
            assert_eq!(told(said), Err(ErrorKind::Unavailable), "{said}");
        }
    }
}
