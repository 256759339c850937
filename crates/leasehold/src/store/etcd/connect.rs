//! Connects to a member of a cluster that can answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::channel::{Channel, Failure};
use super::error::{Effect, explain};
use super::keys::Keys;
use super::rpc::{Range, Reading, authenticate, range, read_token};
use super::url::Address;
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::{Stream, Tls, host_and_port_text, tcp_stream};
use crate::store::within;

/// How much later each further member is tried, so that a member that is out of reach costs little.
const STAGGER: Duration = Duration::from_millis(150);

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
    pub(super) address: Arc<Address>,
    /// `None` if connections are not encrypted.
    tls: Option<Tls>,
}

impl EtcdConnector {
    /// Reads a URL. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for an invalid URL. The message says why, and never shows the
    /// password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let tls = address.tls.as_ref().map(Tls::new).transpose()?;
        Ok(Self { address: Arc::new(address), tls })
    }

    pub(super) fn label(&self) -> String {
        self.address.label()
    }

    pub(super) fn keys(&self) -> Keys {
        Keys::new(&self.address.prefix)
    }

    /// Connects to the first member that answers, beginning with the one of that number. Returns
    /// its number too.
    ///
    /// # Errors
    ///
    /// The error of one member. One that a retry cannot help is preferred.
    pub(super) async fn connect(
        &self,
        host: &Arc<dyn Host>,
        first: usize,
    ) -> Result<(Channel, usize), Error> {
        let members = self.address.members.len();
        let mut tries: FuturesUnordered<_> = (0..members)
            .map(|turn| {
                let number = (first + turn) % members;
                async move {
                    let wait = STAGGER.saturating_mul(u32::try_from(turn).unwrap_or(u32::MAX));
                    if turn > 0 {
                        host.sleep_until(host.now() + wait).await;
                    }
                    (number, self.connect_to(host, number).await)
                }
            })
            .collect();
        let mut failed: Option<Error> = None;
        while let Some((number, tried)) = tries.next().await {
            match tried {
                Ok(channel) => return Ok((channel, number)),
                Err(error) => {
                    let is_better = failed.as_ref().is_none_or(|it| it.is_retryable());
                    failed = if is_better { Some(error) } else { failed };
                }
            }
        }
        Err(failed.expect("a URL names at least one member").at(&self.label()))
    }

    /// Connects to one member, within the limit of the URL.
    pub(super) async fn connect_to(
        &self,
        host: &Arc<dyn Host>,
        number: usize,
    ) -> Result<Channel, Error> {
        let limit = self.address.connect_limit;
        let member = &self.address.members[number];
        let connecting = self.log_in(host, member);
        within(Arc::clone(host), limit, connecting).await.map_err(|error| {
            let error = match error.kind() {
                // Nothing of the user was sent.
                ErrorKind::Unknown => {
                    let error = explain(&Failure::Silent(limit), Effect::Connects);
                    Error::new(ErrorKind::Unavailable, error.message())
                }
                _ => error,
            };
            let (name, port) = member;
            let is_one_of_many = self.address.members.len() > 1;
            if is_one_of_many { error.at(&host_and_port_text(name, *port)) } else { error }
        })
    }

    async fn log_in(&self, host: &Arc<dyn Host>, member: &(String, u16)) -> Result<Channel, Error> {
        let (name, port) = member;
        let stream = tcp_stream(name, *port).await?;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => tls.secure(stream, name).await?,
            None => Box::new(stream),
        };
        let failed = |failure: Failure| explain(&failure, Effect::Connects);
        let mut channel = Channel::open(stream, host).await.map_err(failed)?;
        let limit = self.address.connect_limit;
        if let Some((user, password)) = &self.address.login {
            let asking = authenticate(user, password);
            match channel.call("/etcdserverpb.Auth/Authenticate", &asking, limit).await {
                Ok(answer) => {
                    let token =
                        read_token(&answer).map_err(|malformed| failed(malformed.into()))?;
                    channel = channel.with_token(token);
                }
                // The official clients go on, too.
                Err(failure) if failure.needs_no_login() => {
                    tracing::warn!("the URL has a login, and the cluster asks for none");
                }
                Err(failure) => return Err(failed(failure)),
            }
        }
        // A read that a majority confirms: a member that is cut off from the others is of no use.
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
