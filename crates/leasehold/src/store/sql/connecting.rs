//! What connections to all engines share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::errors::silent;
use super::url::TlsMode;
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::Tls;
use crate::store::within;

/// Connects within a limit. No request of a user is sent meanwhile, and the error says so.
pub(in crate::store) async fn connected<T>(
    host: &Arc<dyn Host>,
    limit: Duration,
    connecting: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    within(Arc::clone(host), limit, connecting).await.map_err(|error| match error.kind() {
        ErrorKind::Unknown => silent(limit),
        _ => error,
    })
}

impl TlsMode {
    /// The encryption of connections, if they are encrypted.
    ///
    /// # Errors
    ///
    /// `Config` in a build without TLS, if the URL requires it.
    pub(in crate::store) fn tls(&self) -> Result<Option<Tls>, Error> {
        match self {
            Self::Disable => Ok(None),
            // A build without TLS cannot have it, and does without.
            Self::Prefer(options) => Ok(Tls::new(options).ok()),
            Self::Require(options) => Tls::new(options).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::host::SystemHost;

    #[tokio::test]
    async fn a_server_that_falls_silent_while_connecting_was_sent_no_request() {
        let host = SystemHost::shared();
        let silent = connected(&host, Duration::from_millis(1), pending::<Result<(), _>>()).await;
        let error = silent.expect_err("it is silent");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no request was sent"), "{error}");
        assert!(!error.to_string().contains("may still take effect"), "{error}");
    }
}
