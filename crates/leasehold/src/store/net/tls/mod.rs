//! TLS for connections over TCP, by rustls.

mod files;
mod refusal;
mod unverified;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use self::files::Version;
pub(crate) use self::refusal::failure;
use super::{Stream, TlsOptions};
use crate::core::error::{Error, ErrorKind};
use crate::host::{SystemHost, beside};
use crate::store::within;
use crate::unpoisoned::Unpoisoned;

/// The TLS settings of one server.
///
/// The files of the URL are looked at for each new connection. If one has changed, all are read
/// again. So a renewed certificate is in use from the next connection on.
#[derive(Clone)]
pub(crate) struct Tls {
    shared: Arc<Shared>,
}

struct Shared {
    options: TlsOptions,
    /// How much later than now certificates have to be valid.
    ahead: Duration,
    loaded: Unpoisoned<Loaded>,
    /// Only one thread at a time reads files. If their file system hangs, no further one joins it.
    reading: Arc<Semaphore>,
}

#[derive(Default)]
struct Loaded {
    /// The settings that were read last, and the files that they were read from.
    config: Option<(Vec<Option<Version>>, Arc<ClientConfig>)>,
    /// The files that could not be used.
    refused: Option<Vec<Option<Version>>>,
}

impl Loaded {
    /// The settings that are known for these files.
    fn for_files(&self, versions: &[Option<Version>]) -> Option<Arc<ClientConfig>> {
        let (of, config) = self.config.as_ref()?;
        let is_known = of == versions || self.refused.as_deref() == Some(versions);
        is_known.then(|| Arc::clone(config))
    }
}

impl Tls {
    /// The files are read when the first connection is opened.
    ///
    /// # Errors
    ///
    /// `Config` in a build without TLS.
    #[allow(clippy::unnecessary_wraps, reason = "a build without TLS refuses here")]
    pub(crate) fn new(options: &TlsOptions) -> Result<Self, Error> {
        Ok(Self::of(options, Duration::ZERO))
    }

    fn of(options: &TlsOptions, ahead: Duration) -> Self {
        let (loaded, reading) = (Unpoisoned::default(), Arc::new(Semaphore::new(1)));
        let options = options.clone();
        Self { shared: Arc::new(Shared { options, ahead, loaded, reading }) }
    }

    /// The same settings, but certificates are checked as if it were this much later.
    pub(crate) fn ahead(&self, by: Duration) -> Self {
        Self::of(&self.shared.options, by)
    }

    /// Does the TLS handshake on a new connection, and checks that the server's certificate is for
    /// this host.
    ///
    /// # Errors
    ///
    /// `Config` if a file cannot be used. `Unavailable` if the handshake fails for any reason. A
    /// certificate can be renewed, and anybody between us and the server can forge a refusal.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn secure(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<Box<dyn Stream>, Error> {
        let name = self.shared.options.name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|cause| {
            config_error("no certificate can be for this host", "correct the host or `tls_name`")
                .with_source(cause)
        })?;
        let connector = TlsConnector::from(self.config().await?);
        let connecting = async {
            let connected = connector.connect(name, stream).await;
            connected.map_err(|cause| failure(&cause).unwrap_or_else(|| broken(cause)))
        };
        let limit = self.shared.options.limit;
        match within(SystemHost::shared(), limit, connecting).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) if error.kind() == ErrorKind::Unknown => Err(silent(limit)),
            Err(error) => Err(error),
        }
    }

    /// The settings for the next connection.
    async fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        // Without files, nothing changes, and no thread is needed.
        if self.shared.options.paths().next().is_none()
            && let Some(config) = self.shared.loaded.lock().for_files(&[])
        {
            return Ok(config);
        }
        let reading = match Arc::clone(&self.shared.reading).try_acquire_owned() {
            Ok(reading) => reading,
            Err(_another_reads) => {
                if let Some((_, config)) = &self.shared.loaded.lock().config {
                    return Ok(Arc::clone(config));
                }
                let waiting = Arc::clone(&self.shared.reading).acquire_owned();
                waiting.await.expect("nobody closes it")
            }
        };
        let shared = Arc::clone(&self.shared);
        let read = beside("leasehold-tls", move || {
            let config = shared.config();
            drop(reading);
            Ok(config)
        });
        read.await.map_err(|cause| {
            let what = "the thread that reads the certificates cannot be started";
            Error::new(ErrorKind::Unavailable, format!("{what}; no request was sent; try again"))
                .with_source(cause)
        })?
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.shared.options)
    }
}

impl Shared {
    /// The settings for the next connection. If the files have changed and cannot be used, for
    /// example because only one of two is written yet, the old settings stay.
    fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        // Before the files are read, so that a change meanwhile is seen the next time.
        let versions: Vec<_> = self.options.paths().map(Version::of).collect();
        if let Some(config) = self.loaded.lock().for_files(&versions) {
            return Ok(config);
        }
        let read = files::load(&self.options, self.ahead);
        let mut loaded = self.loaded.lock();
        match (read, &loaded.config) {
            (Ok(config), _) => {
                *loaded = Loaded { config: Some((versions, Arc::clone(&config))), refused: None };
                Ok(config)
            }
            (Err(error), None) => Err(error),
            (Err(error), Some((_, old))) => {
                tracing::warn!(%error, "the new TLS files cannot be used; the old ones stay");
                let old = Arc::clone(old);
                loaded.refused = Some(versions);
                Ok(old)
            }
        }
    }
}

fn broken(cause: io::Error) -> Error {
    let message = format!(
        "the TLS handshake failed ({cause}); no request was sent; try again, and read the log of \
         the server"
    );
    Error::new(ErrorKind::Unavailable, message).with_source(cause)
}

/// The error if the server does not answer. A Redis server without TLS takes the handshake for a
/// command, and waits for the rest.
fn silent(limit: Duration) -> Error {
    let message = format!(
        "the server does not answer the TLS handshake within {limit:?}; no request was \
         sent; check whether it is stopped or overloaded, and whether it has TLS at this port; if \
         not, write `redis` instead of `rediss`, or `sslmode=disable` for other stores than Redis"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// `Config`, because retrying does not help.
fn config_error(what: &str, next: &str) -> Error {
    Error::new(ErrorKind::Config, format!("{what}; no request was sent; {next}"))
}
