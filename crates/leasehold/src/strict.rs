//! Switches databases of Redis and Valkey servers to strict mode.
//!
//! A strict server that may have forgotten its leases grants nothing new for 65 s. This works only
//! if all clients of a database are strict. So an operator switches the whole database, by
//! [`switch`] or the command `leasehold strict on`. The database keeps a record of who did that,
//! when and why. A client only says what it expects, see [`Strictness`].
//!
//! ```no_run
//! # async fn run() -> Result<(), leasehold::Error> {
//! use leasehold::host::SystemHost;
//! use leasehold::strict::{Order, switch};
//! use leasehold::Identity;
//!
//! let order = Order::on(&Identity::process(), "the server keeps no file")?;
//! for node in switch(&["redis://localhost"], &order, SystemHost::shared()).await? {
//!     println!("{}: {:?}", node.label, node.state?.act);
//! }
//! # Ok(()) }
//! ```

use std::sync::Arc;

use futures_util::future::join_all;

use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::identity::Identity;
pub use crate::store::redis::Strictness;
use crate::store::redis::switch::{Done, NAME_A_SERVER, NOT_IN_A_CLUSTER, Seen, Switchboard};
pub use crate::store::redis::terms::record::Act;
use crate::store::redis::{Connector as _, RedisConnector};
use crate::store::{Named, Quarantine};

/// The most characters of a reason.
pub const WHY_CHARS_MAX: usize = 200;

/// An order to switch databases, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    is_on: bool,
    who: String,
    why: String,
}

impl Order {
    /// An order to switch strict mode on. `why` may be empty.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for a reason with control characters, or with more than
    /// [`WHY_CHARS_MAX`] characters.
    pub fn on(who: &Identity, why: impl Into<String>) -> Result<Self, Error> {
        Self::new(true, who, why.into())
    }

    /// An order to switch strict mode off. `why` may be empty.
    ///
    /// # Errors
    ///
    /// Same as [`on`](Self::on).
    pub fn off(who: &Identity, why: impl Into<String>) -> Result<Self, Error> {
        Self::new(false, who, why.into())
    }

    fn new(is_on: bool, who: &Identity, why: String) -> Result<Self, Error> {
        let wrong = if why.chars().any(char::is_control) {
            "has a control character in it"
        } else if why.chars().count() > WHY_CHARS_MAX {
            "has more than 200 characters"
        } else {
            return Ok(Self { is_on, who: who.signature(), why });
        };
        let message = format!("the reason {wrong}; no request was sent; write one short line");
        Err(Error::new(ErrorKind::Config, message))
    }
}

/// A database, and its state or why that is not known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The URL, without a login.
    pub label: String,
    /// The state, or the error of this node.
    pub state: Result<State, Error>,
}

/// The state of a database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct State {
    /// The last time that somebody switched the mode. `None` if nobody has.
    pub act: Option<Act>,
    /// Whether this call has switched the mode.
    pub is_changed: bool,
    /// The mode that a client with this URL expects.
    pub expected: Strictness,
    /// The quarantine that a strict client gets, if there is one. If no client has noticed it yet,
    /// it begins with the next strict request. The error says why the quarantine is not known.
    pub quarantine: Result<Option<Quarantine>, Error>,
}

impl State {
    /// Whether the database is switched to strict mode.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.act.as_ref().is_some_and(|act| act.is_on)
    }
}

/// Reads whether the databases of `urls` are switched to strict mode. Writes nothing. The nodes are
/// in the order of the URLs. Takes at most 10 s.
///
/// # Errors
///
/// - [`Config`](ErrorKind::Config) for a URL that cannot be understood.
/// - [`Unsupported`](ErrorKind::Unsupported) for a store without strict mode, or for a cluster.
///
/// All other errors are in the [`Node`]. One of them says that the server of a plain URL is a node
/// of a cluster.
///
/// # Cancel safety
///
/// Nothing is left behind.
pub async fn status(urls: &[impl AsRef<str>], host: Arc<dyn Host>) -> Result<Vec<Node>, Error> {
    on_each(urls, None, host).await
}

/// Switches the strict mode of the databases of `urls` on or off. For a quorum, name all its nodes.
/// A database that is already in the wanted mode keeps its record. The nodes are in the order of
/// the URLs. Takes at most 10 s.
///
/// # Errors
///
/// Same as [`status`]. If one node fails, the others are switched anyway. Then call `switch` again.
///
/// # Cancel safety
///
/// Some databases may be switched and others not. You may call `switch` again: it leaves a database
/// that is already switched as it is.
pub async fn switch(
    urls: &[impl AsRef<str>],
    order: &Order,
    host: Arc<dyn Host>,
) -> Result<Vec<Node>, Error> {
    on_each(urls, Some(order), host).await
}

async fn on_each(
    urls: &[impl AsRef<str>],
    order: Option<&Order>,
    host: Arc<dyn Host>,
) -> Result<Vec<Node>, Error> {
    let servers = urls.iter().map(|url| server(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
    if servers.is_empty() {
        let message = "no server is named; no request was sent; name one by its URL";
        return Err(Error::new(ErrorKind::Config, message));
    }
    host.start()?;
    let nodes = servers.into_iter().map(|connector| {
        let host = Arc::clone(&host);
        async move {
            let label = connector.label();
            Node { label, state: on_one(connector, order, host).await }
        }
    });
    Ok(join_all(nodes).await)
}

async fn on_one(
    connector: RedisConnector,
    order: Option<&Order>,
    host: Arc<dyn Host>,
) -> Result<State, Error> {
    let expected = connector.terms().strict;
    let switchboard = Switchboard::connect(connector, host).await?;
    let Some(Order { is_on, who, why }) = order else {
        let Seen { act, quarantine } = switchboard.look().await?;
        return Ok(State { act, is_changed: false, expected, quarantine });
    };
    let Done { is_changed, act } = switchboard.switch(*is_on, who, why).await?;
    // The act is done, even if its effect cannot be seen.
    let quarantine = switchboard.look().await.and_then(|seen| seen.quarantine);
    Ok(State { act, is_changed, expected, quarantine })
}

/// The server of a URL.
fn server(url: &str) -> Result<RedisConnector, Error> {
    let unsupported = |why: &str| {
        let message = format!("{why}; no request was sent; {NAME_A_SERVER}");
        Err(Error::new(ErrorKind::Unsupported, message))
    };
    match Named::of(url)? {
        Named::Redis(connector) if connector.seeds().is_empty() => Ok(connector),
        Named::Redis(_) => unsupported(NOT_IN_A_CLUSTER),
        Named::Memory(_) => {
            unsupported("a store in memory has no strict mode: it ends with its process")
        }
        #[cfg(feature = "zookeeper")]
        Named::Zookeeper(_) => {
            unsupported("a ZooKeeper store has no strict mode: its servers do not forget sessions")
        }
        #[cfg(feature = "etcd")]
        Named::Etcd(_) => {
            unsupported("an etcd store has no strict mode: its members do not forget leases")
        }
        #[cfg(feature = "mysql")]
        Named::Mysql(_) => {
            unsupported("a MySQL store has no strict mode: its tables do not forget leases")
        }
        #[cfg(feature = "postgres")]
        Named::Postgres(_) => {
            unsupported("a PostgreSQL store has no strict mode: its tables do not forget leases")
        }
        #[cfg(feature = "sqlite")]
        Named::File(_) => {
            unsupported("an SQLite store has no strict mode: its file does not forget leases")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line() {
        let nobody = Identity::anonymous();
        for (why, is_fine) in [
            (String::new(), true),
            ("ü".repeat(WHY_CHARS_MAX), true),
            ("x".repeat(WHY_CHARS_MAX + 1), false),
            ("a\nb".to_owned(), false),
            ("\u{1b}[31m".to_owned(), false),
        ] {
            let order = Order::on(&nobody, why.clone());
            assert_eq!(order.is_ok(), is_fine, "{why:?}");
            if let Err(error) = order {
                assert_eq!(error.kind(), ErrorKind::Config);
            }
        }
    }

    #[test]
    fn a_signature_is_one_word() {
        let Order { who, .. } = Order::off(&Identity::process(), "").expect("no reason");
        assert!(who.contains('@') && !who.contains(char::is_whitespace), "{who}");
        let Order { who, .. } = Order::off(&Identity::anonymous(), "").expect("no reason");
        assert_eq!(who, "anonymous");
    }
}
