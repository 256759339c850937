//! Connects to a member of a cluster that can answer.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use super::channel::{Channel, Failure};
use super::error::explain;
use super::keys::Keys;
use super::rpc::{Range, Reading, authenticate, range, read_token};
use super::url::Address;
use crate::core::error::Error;
use crate::host::Host;
use crate::store::net::{Effect, Members};

/// Opens connections to the members of an etcd cluster, version 3.4 or newer.
///
/// `etcd://[user:password@]host[:port][,host[:port]…][/PREFIX][?OPTIONS]`: the default port is
/// 2379, and the locks are below the key `PREFIX/`, by default `leasehold/`. User, password, prefix
/// and values of options are percent-encoded.
///
/// | option | meaning |
/// |---|---|
/// | `connect_timeout=SECONDS` | how long connecting may take; default 2 |
/// | `sslmode=disable` | the default: do not encrypt |
/// | `sslmode=require` | encrypt, and check no certificate |
/// | `sslmode=verify-full` | encrypt, and check that the certificate is for the host |
/// | `ca=PATH` | with `verify-full`, the authority to trust instead of the system's |
/// | `cert=PATH&key=PATH` | the certificate of this client |
/// | `tls_name=NAME` | with `verify-full`, the name in the certificate, if it is not the host |
///
/// TLS needs the feature `tls`.
#[derive(Clone)]
pub struct EtcdConnector {
    address: Arc<Address>,
    pub(super) members: Arc<Members>,
}

impl EtcdConnector {
    /// Reads a URL. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) for an invalid URL. The message says why, and never
    /// shows the password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let members = Members::new(Arc::clone(&address.parts))?;
        Ok(Self { address: Arc::new(address), members: Arc::new(members) })
    }

    pub(super) fn label(&self) -> String {
        self.address.label()
    }

    pub(super) fn keys(&self) -> Keys {
        Keys::new(&self.address.prefix)
    }

    /// Connects to the first member that answers, beginning with the member of that number. Returns
    /// its number too.
    ///
    /// # Errors
    ///
    /// The error of one member. An error that a retry cannot help is preferred.
    pub(super) async fn connect(
        &self,
        host: &Arc<dyn Host>,
        first: usize,
    ) -> Result<(Channel, usize), Error> {
        let reach = |number| async move { Ok((self.connect_to(host, number).await?, number)) };
        let begin = |_, connected| ready(Ok(connected));
        let connected = self.members.first(host, first, reach, begin).await;
        connected.map_err(|error| error.at(&self.label()))
    }

    /// Connects to one member, within the limit of the URL.
    pub(super) async fn connect_to(
        &self,
        host: &Arc<dyn Host>,
        number: usize,
    ) -> Result<Channel, Error> {
        self.members.within_limit(host, number, self.log_in(host, number)).await
    }

    async fn log_in(&self, host: &Arc<dyn Host>, number: usize) -> Result<Channel, Error> {
        let stream = self.members.stream(number).await?;
        let failed = |failure: Failure| explain(&failure, Effect::Connects);
        let mut channel = Channel::open(stream, host).await.map_err(failed)?;
        let limit = self.address.parts.connect_limit;
        if let Some((user, password)) = &self.address.parts.login {
            let asking = authenticate(user, password);
            match channel.call("/etcdserverpb.Auth/Authenticate", &asking, limit).await {
                Ok(answer) => {
                    let token =
                        read_token(&answer).map_err(|malformed| failed(malformed.into()))?;
                    channel = channel.with_token(token);
                }
                // Go on, as the official clients do.
                Err(failure) if failure.needs_no_login() => {
                    tracing::warn!("the URL has a login, and the cluster asks for none");
                }
                Err(failure) => return Err(failed(failure)),
            }
        }
        // Make a read that a majority confirms, because a member that is cut off from the others is
        // of no use.
        let look = range(&Range::one(self.keys().probe()), Reading::default());
        channel.call("/etcdserverpb.KV/Range", &look, limit).await.map_err(failed)?;
        Ok(channel)
    }
}

impl fmt::Debug for EtcdConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdConnector({})", self.label())
    }
}
