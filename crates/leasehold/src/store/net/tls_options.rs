//! The options of a URL about TLS.

#[cfg(feature = "tls")]
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

/// The options for TLS. The files are in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    /// Whether the certificate of the server is checked. Without that, TLS keeps out attackers who
    /// only listen, but not attackers in between.
    pub(crate) verifies: bool,
    /// The authorities to trust; `None` for those that the system trusts.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client with those that it depends on, and its private key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must be for; `None` for the host.
    pub(crate) name: Option<String>,
    /// The protocol that is spoken, if the handshake names it.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "there is no handshake"))]
    pub(crate) alpn: Option<&'static str>,
    /// How long the handshake may take. It is shorter than the limit for the whole connection, so
    /// that the error says that it is about TLS.
    #[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "there is no handshake"))]
    pub(crate) limit: Duration,
}

impl Default for TlsOptions {
    /// The system's authorities, and no certificate of this client.
    fn default() -> Self {
        let limit = Duration::from_millis(1_500);
        Self { verifies: true, ca: None, identity: None, name: None, alpn: None, limit }
    }
}

impl TlsOptions {
    #[cfg(feature = "tls")]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let identity = self.identity.iter().flat_map(|(cert, key)| [cert, key]);
        self.ca.iter().chain(identity).map(PathBuf::as_path)
    }
}
