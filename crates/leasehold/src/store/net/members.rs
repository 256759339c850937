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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Mutex;

    use super::*;
    use crate::core::error::ErrorKind;
    use crate::core::moment::{Moment, WallTime};
    use crate::host::{Sleep, SystemHost, Task};

    /// A host whose sleeps are over at once, or never.
    struct Sleeping {
        is_over: bool,
    }

    impl Host for Sleeping {
        fn now(&self) -> Moment {
            SystemHost.now()
        }
        fn wall(&self) -> WallTime {
            SystemHost.wall()
        }
        fn sleep_until(&self, _: Moment) -> Sleep {
            if self.is_over { Box::pin(ready(())) } else { Box::pin(pending()) }
        }
        fn spawn(&self, _: Task) {
            unreachable!("nothing is run");
        }
        fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
            unreachable!("nothing is run");
        }
        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    fn host(is_over: bool) -> Arc<dyn Host> {
        Arc::new(Sleeping { is_over })
    }

    /// The members `a` to `c`, or the first of them.
    fn members(count: usize) -> Members {
        let servers = [("a", 1), ("b", 2), ("c", 3)].map(|(host, port)| (host.to_owned(), port));
        let servers = servers.into_iter().take(count).collect();
        let connect_limit = Duration::from_secs(2);
        let url = ClusterUrl { servers, login: None, connect_limit, tls: None };
        Members::new(Arc::new(url)).expect("there is no TLS")
    }

    #[tokio::test]
    async fn the_member_of_that_number_is_tried_at_once_and_the_others_later() {
        for (first, expected) in [(0, 0), (2, 2), (4, 1), (usize::MAX, usize::MAX % 3)] {
            let tried = Mutex::new(Vec::new());
            let reach = |number| {
                tried.lock().expect("no panic").push(number);
                ready(Ok(number))
            };
            let begun = members(3).first(&host(false), first, reach, |_, it| ready(Ok(it))).await;
            assert_eq!(begun.expect("it is reached"), expected, "{first}");
            assert_eq!(*tried.lock().expect("no panic"), [expected], "no time has passed");
        }
    }

    /// A wrong password at one member would otherwise look like an outage.
    #[tokio::test]
    async fn of_several_errors_one_that_no_retry_can_help_is_told_and_one_success_outweighs_all() {
        let (away, denied) = (Err(ErrorKind::Unavailable), Err(ErrorKind::Denied));
        for (answers, expected) in [
            ([away, away, away], away),
            ([denied, away, away], denied),
            ([away, denied, away], denied),
            ([away, away, denied], denied),
            ([denied, away, Ok(())], Ok(())),
        ] {
            for by_reaching in [true, false] {
                let answer = |number: usize| {
                    ready(answers[number].map_err(|kind: ErrorKind| Error::new(kind, "no")))
                };
                let first = async {
                    let (members, host) = (members(3), host(true));
                    if by_reaching {
                        members.first(&host, 0, answer, |_, ()| ready(Ok(()))).await
                    } else {
                        let begin = |number, ()| answer(number);
                        members.first(&host, 0, |_| ready(Ok(())), begin).await
                    }
                };
                let kind = first.await.map_err(|error| error.kind());
                assert_eq!(kind, expected, "{answers:?}, by reaching: {by_reaching}");
            }
        }
    }

    #[tokio::test]
    async fn an_error_names_the_member_that_it_is_about_if_there_are_others() {
        for (count, number, named) in [(1, 0, None), (3, 0, Some("a:1")), (3, 2, Some("c:3"))] {
            let failed = ready(Err::<(), _>(Error::new(ErrorKind::Unavailable, "it is away")));
            let members = members(count);
            let error = members.within_limit(&host(false), number, failed).await;
            let text = error.expect_err("it is away").to_string();
            let names = ["a:1", "b:2", "c:3"].into_iter().filter(|name| text.contains(name));
            assert_eq!(names.collect::<Vec<_>>(), Vec::from_iter(named), "{text}");
        }
    }
}
