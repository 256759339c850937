//! Connects to a server of an ensemble, and begins a session or goes on with one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Failure, explain};
use super::frames::Frames;
use super::names::Names;
use super::rpc::{Acl, Head, Ticket, connect, login, read_connected, xid};
use super::session::gap_max;
use super::url::Address;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::net::{Effect, Members, Stream};

/// Opens sessions at a ZooKeeper ensemble, version 3.5 or newer.
///
/// `zookeeper://[user:password@]host[:port][,host[:port]…][/PATH][?OPTIONS]`: the default port is
/// 2181, and the locks are below the node `/PATH`, by default `/leasehold`. User, password, path
/// and values of options are percent-encoded.
///
/// | option | meaning |
/// |---|---|
/// | `session_timeout=SPAN` | how long the locks of a client that died stay taken, as in `15s`, which is the default; a ttl may have about three quarters of it |
/// | `connect_timeout=SECONDS` | how long connecting may take; default 2 |
/// | `sslmode=disable` | the default: do not encrypt |
/// | `sslmode=require` | encrypt, and check no certificate |
/// | `sslmode=verify-full` | encrypt, and check that the certificate is for the host |
/// | `ca=PATH` | with `verify-full`, the authority to trust instead of the system's |
/// | `cert=PATH&key=PATH` | the certificate of this client |
/// | `tls_name=NAME` | with `verify-full`, the name in the certificate, if it is not the host |
///
/// With a user, the store makes nodes that only this user may use. TLS needs the feature `tls`.
#[derive(Clone)]
pub struct ZookeeperConnector {
    pub(super) address: Arc<Address>,
    pub(super) members: Arc<Members>,
}

/// A connection with a session.
pub(super) struct Opened {
    pub(super) frames: Frames,
    pub(super) ticket: Ticket,
    /// How long the session lasts without its client.
    pub(super) timeout: Duration,
    /// The number of the server.
    pub(super) number: usize,
    /// When the request for the session was sent.
    pub(super) sent: Moment,
}

impl ZookeeperConnector {
    /// Reads a URL. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for an invalid URL. The message says why, and never shows the
    /// password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address = Address::parse(url)?;
        let members = Members::new(Arc::clone(&address.parts))?;
        Ok(Self { address: Arc::new(address), members: Arc::new(members) })
    }

    pub(super) fn label(&self) -> String {
        self.address.label()
    }

    pub(super) fn names(&self) -> Names {
        Names::new(&self.address.root)
    }

    pub(super) fn acl(&self) -> Acl {
        if self.address.parts.login.is_some() { Acl::Creator } else { Acl::Everybody }
    }

    /// Begins a session at the first server that answers, beginning with the server of that number.
    /// With a ticket, it goes on with the session of the ticket instead. `seen` is the last change
    /// that the client knows. A server that does not know it yet is not used. `None` if the session
    /// has ended.
    ///
    /// # Errors
    ///
    /// The error of one server. An error that a retry cannot help is preferred.
    pub(super) async fn connect(
        &self,
        host: &Arc<dyn Host>,
        first: usize,
        (ticket, seen): (Option<Ticket>, i64),
    ) -> Result<Option<Opened>, Error> {
        let reach = |number| self.reach(host, number);
        // One after the other, because a session is at one server at a time.
        let begin = |number, stream| self.begin(host, (stream, number), (ticket, seen));
        let opened = self.members.first(host, first, reach, begin).await;
        opened.map_err(|error| error.at(&self.label()))
    }

    /// Opens a stream to one server, within the limit of the URL.
    pub(super) async fn reach(
        &self,
        host: &Arc<dyn Host>,
        number: usize,
    ) -> Result<Box<dyn Stream>, Error> {
        self.members.within_limit(host, number, self.members.stream(number)).await
    }

    async fn begin(
        &self,
        host: &Arc<dyn Host>,
        (stream, number): (Box<dyn Stream>, usize),
        (ticket, seen): (Option<Ticket>, i64),
    ) -> Result<Option<Opened>, Error> {
        let mut frames = Frames::new(stream);
        let timeout_ms = i32::try_from(self.address.session.as_millis()).unwrap_or(i32::MAX);
        let sent = host.now();
        let beginning = async {
            let mut asking = Vec::new();
            connect(ticket, seen, timeout_ms).frame(&mut asking);
            let Some((ticket, timeout)) = ask(&mut frames, &asking).await? else {
                return Ok(None);
            };
            if let Some((user, password)) = &self.address.parts.login {
                let mut asking = Vec::new();
                login(user, password).frame(&mut asking);
                log_in(&mut frames, &asking).await?;
            }
            Ok(Some((ticket, Duration::from_millis(timeout.into()))))
        };
        let failed = |failure| explain(failure, Effect::Connects);
        let beginning = async { beginning.await.map_err(failed) };
        let begun = self.members.within_limit(host, number, beginning).await?;
        let Some((ticket, timeout)) = begun else { return Ok(None) };
        let took = host.now().since(sent);
        if took > gap_max(timeout) {
            // The client counts as silent since it asked, so it could send nothing.
            return Err(too_slow(took, timeout));
        }
        Ok(Some(Opened { frames, ticket, timeout, number, sent }))
    }
}

fn too_slow(took: Duration, session: Duration) -> Error {
    let message = format!(
        "the server took {took:?} to answer, which is too long for a session of {session:?}; no \
         request was sent; check whether it is overloaded, or write a longer `session_timeout` in \
         the URL"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Asks for a session.
async fn ask(frames: &mut Frames, asking: &[u8]) -> Result<Option<(Ticket, u32)>, Failure> {
    frames.send(asking).await?;
    let answer = frames.next().await?.bytes;
    Ok(read_connected(&answer)?)
}

/// Sends a login. Nothing else is under way.
async fn log_in(frames: &mut Frames, asking: &[u8]) -> Result<(), Failure> {
    frames.send(asking).await?;
    loop {
        let head = Head::read(&frames.next().await?.bytes)?;
        match head.code {
            _ if head.xid != xid::AUTH => {}
            0 => return Ok(()),
            code => return Err(Failure::Refused(code)),
        }
    }
}

impl fmt::Debug for ZookeeperConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZookeeperConnector({})", self.label())
    }
}
