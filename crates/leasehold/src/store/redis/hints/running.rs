//! The task behind the connection for hints: connects, subscribes, and takes messages.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::listen::{Channels, Messages, News, Subscriber, establish, log_in};
use super::shards::Refused;
use super::tries::{Tries, no_messages};
use super::{Hints, Wanted};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::{Host, random_u32};
use crate::store::redis::connector::{Connector, Stream};
use crate::store::redis::keys;
use crate::store::within;

/// The time limit for connecting, and for each subscription.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// How many keys one message asks the server to track. New channels go before further keys.
const KEYS_AT_ONCE_MAX: usize = 64;

/// How often the connection is checked. A stream whose other end is gone may stay silent for ever.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The task behind the connection. It does not keep [`Hints`] alive.
pub(super) struct Running {
    pub(super) hints: Weak<Hints>,
    pub(super) news: Arc<Notify>,
    pub(super) has_ended: bool,
}

impl Running {
    pub(super) async fn run(mut self, host: Arc<dyn Host>, connector: Arc<dyn Connector>) {
        self.listen(host, connector).await;
        self.has_ended = true;
    }

    async fn listen(&self, host: Arc<dyn Host>, connector: Arc<dyn Connector>) {
        let mut tries = Tries::default();
        loop {
            let stream = within(Arc::clone(&host), STEP_LIMIT, log_in(&*connector)).await;
            let is_let_in = stream.is_ok();
            let ended = match stream {
                Ok(stream) => self.serve(&host, stream, &mut tries).await,
                Err(error) => Ended::Failed(error),
            };
            let Some(hints) = self.hints.upgrade() else { return };
            match ended {
                Ended::StoreGone => return,
                Ended::Failed(error)
                    if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) =>
                {
                    return hints.denied(&error);
                }
                _ if is_let_in && tries.is_vain() => return hints.denied(&no_messages()),
                Ended::Disconnected => tracing::debug!("the connection for hints ended"),
                Ended::Failed(error) => {
                    tracing::debug!(%error, "no connection for hints; waiters poll until it is \
                                             back");
                }
            }
            if !hints.disconnected() {
                return;
            }
            drop(hints);
            let pause = tries.pause(random_u32(&*host));
            host.sleep_until(host.now() + pause).await;
        }
    }

    /// Listens until the connection or the store is gone.
    async fn serve(
        &self,
        host: &Arc<dyn Host>,
        stream: Box<dyn Stream>,
        tries: &mut Tries,
    ) -> Ended {
        let established = within(Arc::clone(host), STEP_LIMIT, establish(stream)).await;
        let Subscriber { mut channels, mut messages } = match established {
            Ok(subscriber) => subscriber,
            Err(error) => return Ended::Failed(error),
        };
        if let Some(hints) = self.hints.upgrade() {
            hints.connected(channels.tracks());
        }
        let mut check = host.sleep_until(host.now() + CHECK_EVERY);
        loop {
            let asked = self.ask(host, &mut channels, &mut messages, tries).await;
            if let Err(ended) = asked {
                return ended;
            }
            let Some(hints) = self.hints.upgrade() else { return Ended::StoreGone };
            let again = hints.tried_again_at();
            drop(hints);
            tokio::select! {
                biased;
                news = messages.next() => match news {
                    Some(news) => self.take(news),
                    None => return Ended::Disconnected,
                },
                () = self.news.notified() => {}
                () = until(&**host, again) => {}
                () = &mut check => {
                    let alive = within(Arc::clone(host), STEP_LIMIT, channels.check());
                    if let Err(ended) = self.attend(&mut messages, alive).await {
                        return ended;
                    }
                    check = host.sleep_until(host.now() + CHECK_EVERY);
                }
            }
        }
    }

    /// Asks the server for all wanted inboxes and keys.
    async fn ask(
        &self,
        host: &Arc<dyn Host>,
        channels: &mut Channels,
        messages: &mut Messages,
        tries: &mut Tries,
    ) -> Result<(), Ended> {
        loop {
            while let Some(wanted) = self.next_wanted() {
                let inbox = match wanted {
                    Wanted::Inbox(inbox) => inbox,
                    Wanted::Shard(inbox, tag) => {
                        self.ask_for_shard(host, channels, messages, (&inbox, tag)).await?;
                        continue;
                    }
                };
                let channel = keys::inbox(&inbox);
                let added = channels.add(&channel);
                self.attend(messages, within(Arc::clone(host), STEP_LIMIT, added)).await?;
                tries.worked();
                if let Some(hints) = self.hints.upgrade() {
                    hints.confirmed(&inbox);
                    if hints.is_overgrown() {
                        // A new connection listens only for the clients that are left.
                        return Err(Ended::Disconnected);
                    }
                }
            }
            let wanted = || self.hints.upgrade()?.next_wanted_key();
            let keys: Vec<Key> = std::iter::from_fn(wanted).take(KEYS_AT_ONCE_MAX).collect();
            if keys.is_empty() {
                return Ok(());
            }
            self.ask_for_keys(host, channels, messages, &keys).await?;
        }
    }

    /// Asks the server to track these keys, all in one message.
    async fn ask_for_keys(
        &self,
        host: &Arc<dyn Host>,
        channels: &Channels,
        messages: &mut Messages,
        keys: &[Key],
    ) -> Result<(), Ended> {
        let asked: Vec<_> = keys.iter().map(|key| channels.track(key.as_str())).collect();
        for (key, tracked) in keys.iter().zip(asked) {
            let tracked = self.attend(messages, within(Arc::clone(host), STEP_LIMIT, tracked));
            let (tracked, hints) = (tracked.await, self.hints.upgrade());
            match (tracked, hints) {
                (Ok(false), Some(hints)) => hints.changed(key),
                (Ok(_), _) => {}
                // Any other failure, such as a late answer, ends the connection. So the next one
                // tracks the keys again.
                (Err(Ended::Failed(error)), hints)
                    if matches!(
                        error.kind(),
                        ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Config
                    ) =>
                {
                    tracing::debug!(%error, "the server does not report changed keys; waiters poll \
                                             instead");
                    if let Some(hints) = hints {
                        hints.connected(false);
                    }
                    return Ok(());
                }
                (Err(ended), _) => return Err(ended),
            }
        }
        Ok(())
    }

    /// Subscribes to a shard channel, and leaves the one before.
    async fn ask_for_shard(
        &self,
        host: &Arc<dyn Host>,
        channels: &mut Channels,
        messages: &mut Messages,
        (inbox, tag): (&ClientId, u32),
    ) -> Result<(), Ended> {
        let channel = keys::shard_inbox(tag, inbox);
        let added = within(Arc::clone(host), STEP_LIMIT, channels.add_shard(&channel));
        let added = self.attend(messages, added).await;
        let Some(hints) = self.hints.upgrade() else { return Err(Ended::StoreGone) };
        let old = match added {
            Ok(Ok(())) => hints.shard_confirmed(inbox, tag),
            Ok(Err(refusal)) => {
                hints.shard_refused(Refused::read(&refusal), tag);
                None
            }
            Err(ended) => {
                hints.shard_refused(Refused::Ended, tag);
                return Err(ended);
            }
        };
        drop(hints);
        if let Some(old) = old {
            let channel = keys::shard_inbox(old, inbox);
            let left = within(Arc::clone(host), STEP_LIMIT, channels.leave_shard(&channel));
            self.attend(messages, left).await?;
        }
        Ok(())
    }

    /// Waits for an answer and takes messages meanwhile, because the answer comes among them.
    async fn attend<T>(
        &self,
        messages: &mut Messages,
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Ended> {
        messages.attend(asking, |news| self.take(news)).await.map_err(Ended::Failed)
    }

    fn next_wanted(&self) -> Option<Wanted> {
        self.hints.upgrade()?.next_wanted()
    }

    fn take(&self, news: News) {
        if let Some(hints) = self.hints.upgrade() {
            hints.take(news);
        }
    }
}

/// Ends at that moment, or never.
async fn until(host: &dyn Host, moment: Option<Moment>) {
    match moment {
        Some(moment) => host.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Why the task stopped listening.
enum Ended {
    StoreGone,
    Disconnected,
    Failed(Error),
}

impl Drop for Running {
    fn drop(&mut self) {
        // The runtime of the waiter may be gone, or may have no I/O.
        if !self.has_ended
            && let Some(hints) = self.hints.upgrade()
        {
            hints.dropped();
        }
    }
}
