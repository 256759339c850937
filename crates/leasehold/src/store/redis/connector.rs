//! How the store reaches a server: streams of bytes, and the login and terms for each of them.
//! Simulations and users can bring their own.

use std::fmt;
use std::sync::Arc;

use super::terms::Terms;
use super::terms::settled::Settled;
pub(super) use crate::store::net::write_all;
pub use crate::store::net::{Opening, Stream};

/// Opens streams to one server, and gives the server a name for messages.
///
/// The store does everything above the bytes: it logs in, sends requests, and reads answers and
/// messages.
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream. Nothing is written to it yet. The future is polled where network I/O works.
    /// The caller limits the time.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Denied` or `Config`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes everything that it has opened.
    fn open(&self) -> Opening;

    /// The name of the server for messages and logs, without a password.
    fn label(&self) -> String;

    /// Whether a stream may lead to another server, or to a restarted one, without ending. Then no
    /// stream is trusted to know how far the server has counted. Default: no.
    fn may_change_unnoticed(&self) -> bool {
        false
    }

    /// The login, the database, and the terms of the server. Default: no login, database 0, and no
    /// terms.
    fn access(&self) -> Access {
        Access::default()
    }

    /// The nodes of a cluster that are asked first, as hosts and ports. Default: none, because this
    /// is one server.
    fn seeds(&self) -> Vec<(String, u16)> {
        Vec::new()
    }

    /// A connector to the node of the cluster at this host and port, with the same login. Default:
    /// `None`, because this is one server.
    fn node(&self, host: &str, port: u16) -> Option<Arc<dyn Connector>> {
        let _no_cluster = (host, port);
        None
    }
}

/// How a server is used: the login, the database, and the [terms](Terms).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// `None` is the default user of the server.
    pub(super) username: Option<String>,
    /// `None` means no login.
    pub(super) password: Option<String>,
    pub(super) db: u32,
    pub(super) terms: Terms,
    /// Whether the server must say that it is a primary.
    pub(super) primary: bool,
    /// The knowledge of one store's connections about strict mode.
    pub(super) settled: Settled,
}

impl Access {
    /// These terms, without a login, for database 0.
    #[must_use]
    pub fn on_terms(terms: Terms) -> Self {
        Self { terms, ..Self::default() }
    }

    /// The terms as far as they are known. Once a connection has asked the database, they do not
    /// change, and are not [`AsDatabase`](super::Strictness::AsDatabase) any more.
    pub(super) fn terms(&self) -> Terms {
        let strict = self.settled.resolve(self.terms.strict);
        Terms { strict, ..self.terms }
    }
}

impl fmt::Debug for Access {
    /// Leaves out user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access(database {}, {:?})", self.db, self.terms)
    }
}

/// The connector of one store. All its connections agree on whether they are strict.
pub(super) struct Settling {
    inner: Arc<dyn Connector>,
    settled: Settled,
    /// Whether only the login of the inner connector counts.
    is_neutral: bool,
}

impl Settling {
    /// The connector of a new store, whose connections have not asked the database yet.
    pub(super) fn new(inner: Arc<dyn Connector>) -> Self {
        let is_cluster = !inner.seeds().is_empty();
        let settled = if is_cluster { Settled::without_record() } else { Settled::default() };
        Self { inner, settled, is_neutral: false }
    }

    /// A connector for requests about the record itself. It has the login of the URL, but not its
    /// terms.
    pub(super) fn neutral(inner: Arc<dyn Connector>) -> Self {
        Self { inner, settled: Settled::without_record(), is_neutral: true }
    }
}

impl Connector for Settling {
    fn open(&self) -> Opening {
        self.inner.open()
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    fn may_change_unnoticed(&self) -> bool {
        self.inner.may_change_unnoticed()
    }

    fn access(&self) -> Access {
        let access = self.inner.access();
        let terms = if self.is_neutral { Terms::default() } else { access.terms };
        Access { terms, settled: self.settled.clone(), ..access }
    }

    fn seeds(&self) -> Vec<(String, u16)> {
        self.inner.seeds()
    }

    fn node(&self, host: &str, port: u16) -> Option<Arc<dyn Connector>> {
        let inner = self.inner.node(host, port)?;
        let (settled, is_neutral) = (self.settled.clone(), self.is_neutral);
        Some(Arc::new(Self { inner, settled, is_neutral }))
    }
}
