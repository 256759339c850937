//! Unchanged connections that a [`ServerOutside`] can see.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use leasehold::Error;
use leasehold::store::redis::{
    Channels, Command, Connected, Link, LinkConnector, LinkError, LinkFuture, Messages, News,
    Subscriber, Terms, Value,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use super::arrival::Arrival;
use super::inlet::Inlet;
use super::{ServerOutside, lock};

/// A connector whose connections virtual time waits for.
pub struct Watched<C> {
    connector: C,
    outside: Arc<ServerOutside>,
}

impl<C: LinkConnector> Watched<C> {
    pub(super) const fn new(connector: C, outside: Arc<ServerOutside>) -> Self {
        Self { connector, outside }
    }
}

impl<C: LinkConnector> LinkConnector for Watched<C> {
    fn connect(&self) -> LinkFuture<Result<Connected, Error>> {
        let (connecting, outside) = (self.connector.connect(), Arc::clone(&self.outside));
        Box::pin(Arrival::new(&self.outside, async move {
            let mut connected = connecting.await?;
            let weak = Arc::downgrade(&connected.link);
            connected.io = Box::pin(moving(weak, Arc::clone(&outside), connected.io));
            connected.link = Arc::new(WatchedLink { link: connected.link, outside });
            Ok(connected)
        }))
    }

    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>> {
        let (subscribing, outside) = (self.connector.subscribe(), Arc::clone(&self.outside));
        Box::pin(Arrival::new(&self.outside, async move {
            let Subscriber { mut channels, messages, .. } = subscribing.await?;
            let inlet = Arc::new(Inlet::new(mark_channel()));
            let (sender, received) = unbounded_channel();
            let handing_on = Arc::clone(&inlet);
            let task = tokio::runtime::Handle::current()
                .spawn(async move { handing_on.hand_on(messages, sender).await });
            let messages = HandedOn { received, task: task.abort_handle() };
            // If the user may not subscribe, the error comes when the user adds a channel.
            if channels.add(inlet.channel()).await.is_ok() {
                lock(&outside.inlets).push(inlet);
            }
            let channels = WatchedChannels { channels, outside };
            Ok(Subscriber::new(Box::new(channels), Box::new(messages)))
        }))
    }

    fn label(&self) -> String {
        self.connector.label()
    }

    fn terms(&self) -> Terms {
        self.connector.terms()
    }
}

impl<C> fmt::Debug for Watched<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({:?})", self.outside)
    }
}

/// A channel that nobody else uses.
fn mark_channel() -> String {
    static NUMBERED: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERED.fetch_add(1, Ordering::Relaxed);
    format!("leasehold-testkit:marks:{}:{number}", std::process::id())
}

/// Counts the link as live from the first poll of its input and output until it ends. Before that,
/// nothing moves its bytes.
async fn moving(link: Weak<dyn Link>, outside: Arc<ServerOutside>, io: LinkFuture<()>) {
    struct Moving(Weak<dyn Link>, Arc<ServerOutside>);
    impl Drop for Moving {
        fn drop(&mut self) {
            lock(&self.1.links).retain(|known| !known.ptr_eq(&self.0));
        }
    }
    lock(&outside.links).push(link.clone());
    let _moving = Moving(link, outside);
    io.await;
}

struct WatchedLink {
    link: Arc<dyn Link>,
    outside: Arc<ServerOutside>,
}

impl Link for WatchedLink {
    fn submit(&self, command: Command) -> LinkFuture<Result<Value, LinkError>> {
        let answer = self.link.submit(command);
        self.outside.requests.fetch_add(1, Ordering::AcqRel);
        self.outside.goes_out();
        answer
    }
}

struct WatchedChannels {
    channels: Box<dyn Channels>,
    outside: Arc<ServerOutside>,
}

impl Channels for WatchedChannels {
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        Box::pin(Arrival::new(&self.outside, self.channels.add(channel)))
    }

    fn tracks(&self) -> bool {
        self.channels.tracks()
    }

    fn track(
        &mut self,
        key: &str,
    ) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + '_>> {
        Box::pin(Arrival::new(&self.outside, self.channels.track(key)))
    }
}

/// Messages without the marks.
struct HandedOn {
    received: UnboundedReceiver<News>,
    task: AbortHandle,
}

impl Messages for HandedOn {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<News>> + Send + '_>> {
        Box::pin(self.received.recv())
    }
}

impl Drop for HandedOn {
    fn drop(&mut self) {
        // Aborting the task ends the connection.
        self.task.abort();
    }
}
