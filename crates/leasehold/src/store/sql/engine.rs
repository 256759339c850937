//! The part of a store that each engine brings: connections, and its form of SQL.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::batch::{Batch, Refused};
use crate::core::error::Error;
use crate::host::Host;
use crate::store::Renewal;
use crate::store::net::connecting;

/// One database of a server, and what differs between engines.
pub(in crate::store) trait Engine:
    Clone + fmt::Debug + Send + Sync + 'static
{
    /// A connection that can keep locks.
    type Link: Link;

    /// Opens a connection and logs in.
    fn log_in(&self) -> impl Future<Output = Result<Self::Link, Error>> + Send;

    /// Refuses a server that cannot keep locks.
    fn check(&self, link: &mut Self::Link) -> impl Future<Output = Result<(), Error>> + Send;

    /// The URL without the password.
    fn label(&self) -> String;

    /// How long a login may take. The checks after it may take as long again.
    fn connect_limit(&self) -> Duration;

    /// How the engine writes a call.
    fn dialect(&self) -> Dialect;

    /// Logs in, within the limit.
    fn log_in_within_limit(
        &self,
        host: &Arc<dyn Host>,
    ) -> impl Future<Output = Result<Self::Link, Error>> + Send {
        connecting(host, self.connect_limit(), self.log_in())
    }

    /// Connects, and refuses a server that cannot keep locks. The checks have a limit of their own.
    /// A login is the most expensive request to a slow server, so a login that worked is kept.
    fn connect(
        &self,
        host: &Arc<dyn Host>,
    ) -> impl Future<Output = Result<Self::Link, Error>> + Send {
        async move {
            let opening = async {
                let mut link = self.log_in_within_limit(host).await?;
                connecting(host, self.connect_limit(), self.check(&mut link)).await?;
                Ok(link)
            };
            opening.await.map_err(|error: Error| error.at(&self.label()))
        }
    }
}

/// A connection that is logged in.
pub(in crate::store) trait Link: Send {
    /// The most requests that one message has.
    const BATCH_MAX: usize;

    /// Sends requests as one message, and answers each once it is committed. Returns the requests
    /// without an answer, and why they have none.
    fn ask_all(
        &self,
        batch: Batch,
    ) -> impl Future<Output = (Batch, Result<(), Refused>)> + Send + 'static;

    /// Moves bytes. Ready when something came. Then it says whether the connection goes on.
    fn poll_moving(&mut self, cx: &mut Context<'_>) -> Poll<bool>;
}

/// How an engine writes a call.
#[derive(Clone)]
pub(in crate::store) struct Dialect {
    /// The text before the name of a procedure, such as `CALL leasehold.`.
    pub(in crate::store) before: String,
    /// Adds a text as a literal, whatever is in it.
    pub(in crate::store) text: fn(&mut String, &str),
    /// Whether a step has an argument for how long it may wait for its row. Otherwise the
    /// connection limits that, and only a renewal has an argument for whether it waits at all.
    pub(in crate::store) has_patience: bool,
    /// Writes a renewal that does not wait for its row as an entry of a list, if one call renews
    /// many leases.
    pub(in crate::store) list: Option<fn(&Renewal) -> String>,
}
