//! The members of a cluster, and how one of them is chosen.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::{ClusterUrl, Stream, Tls, connecting, host_and_port_text, tcp_stream};
use crate::core::error::Error;
use crate::host::Host;

/// How much later each further member is tried, so that a member that is out of reach costs little.
const STAGGER: Duration = Duration::from_millis(150);

/// The members that a URL names. The number of a member is its index there.
pub(crate) struct Members {
    url: Arc<ClusterUrl>,
    /// `None` if connections are not encrypted.
    tls: Option<Tls>,
}

impl Members {
    /// # Errors
    ///
    /// `Config` if the options of TLS cannot be used.
    pub(crate) fn new(url: Arc<ClusterUrl>) -> Result<Self, Error> {
        let tls = url.tls.as_ref().map(Tls::new).transpose()?;
        Ok(Self { url, tls })
    }

    /// The host and the port of each member.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.url.servers.iter().map(|(host, port)| host_and_port_text(host, *port))
    }

    /// Opens a stream to a member. It is encrypted if the URL wants that.
    pub(crate) async fn stream(&self, number: usize) -> Result<Box<dyn Stream>, Error> {
        let (name, port) = &self.url.servers[number];
        let stream = tcp_stream(name, *port).await?;
        match &self.tls {
            Some(tls) => tls.secure(stream, name).await,
            None => Ok(Box::new(stream)),
        }
    }

    /// Waits for a part of connecting to a member, for at most the limit of the URL. An error names
    /// the member if there are others.
    pub(crate) async fn within_limit<T>(
        &self,
        host: &Arc<dyn Host>,
        number: usize,
        part: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let connected = connecting(host, self.url.connect_limit, part).await;
        connected.map_err(|error| match &self.url.servers[..] {
            [_only] => error,
            all => error.at(&host_and_port_text(&all[number].0, all[number].1)),
        })
    }

    /// Tries to reach all members: number `first` at once, and each further one a little later.
    /// Calls `begin` for those that were reached, one after the other, until one call succeeds.
    ///
    /// # Errors
    ///
    /// The error of one member. An error that no retry can help is preferred.
    pub(crate) async fn first<R, T, Reach, Begin>(
        &self,
        host: &Arc<dyn Host>,
        first: usize,
        reach: impl Fn(usize) -> Reach,
        begin: impl Fn(usize, R) -> Begin,
    ) -> Result<T, Error>
    where
        Reach: Future<Output = Result<R, Error>>,
        Begin: Future<Output = Result<T, Error>>,
    {
        let reach = &reach;
        let tries = (0..self.url.servers.len()).map(|turn| {
            let number = first.wrapping_add(turn) % self.url.servers.len();
            async move {
                if turn > 0 {
                    let wait = STAGGER.saturating_mul(u32::try_from(turn).unwrap_or(u32::MAX));
                    host.sleep_until(host.now() + wait).await;
                }
                (number, reach(number).await)
            }
        });
        let mut tries: FuturesUnordered<_> = tries.collect();
        let mut failed: Option<Error> = None;
        while let Some((number, reached)) = tries.next().await {
            let begun = match reached {
                Ok(reached) => begin(number, reached).await,
                Err(error) => Err(error),
            };
            match begun {
                Ok(begun) => return Ok(begun),
                Err(error) if failed.as_ref().is_none_or(Error::is_retryable) => {
                    failed = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(failed.expect("a URL names at least one member"))
    }
}
