//! The connector of the Redis store, for a process of a simulation.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::redis::{
    Channels, Command, Connected, Connector, Link, LinkError, LinkFuture, Messages, News,
    Subscriber, Terms, Value,
};
use leasehold::{Error, ErrorKind};
use tokio::sync::{mpsc, oneshot};

use super::carrier::REFUSED_AFTER;
use super::connection::{ConnectionId, Request};
use super::{Delivery, Mischief, Network};
use crate::simulation::process::Process;

/// How often a connection attempt is repeated underneath, as TCP does.
const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Connects one process to the server.
#[derive(Clone)]
pub(in super::super) struct SimulatedConnector {
    network: Network,
    process: Process,
}

impl SimulatedConnector {
    pub(super) fn new(network: Network, process: Process) -> Self {
        Self { network, process }
    }

    /// Connects, and waits for the reply to the greeting.
    fn open(
        &self,
        messages: Option<mpsc::UnboundedSender<News>>,
    ) -> impl Future<Output = Result<End, Error>> + Send + 'static + use<> {
        let (network, process) = (self.network.clone(), self.process.clone());
        async move {
            // Two round trips: the handshake and the first words.
            for _ in 0..2 {
                let delay = {
                    let mut state = network.state();
                    state.delay(process.id()) + state.delay(process.id())
                };
                process.sleep_until(process.now() + delay).await;
            }
            loop {
                match network.reached(&process) {
                    Reached::Yes => break,
                    Reached::Refused => {
                        process.sleep_until(process.now() + REFUSED_AFTER).await;
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            "connection refused; nothing was asked",
                        ));
                    }
                    Reached::NotYet => {
                        process.sleep_until(process.now() + TRIED_AGAIN_AFTER).await;
                    }
                }
            }
            let id = network.state().connections.open(process.id(), messages);
            Ok(End { network, process, id })
        }
    }
}

/// Whether the server can be reached.
enum Reached {
    Yes,
    NotYet,
    Refused,
}

impl Network {
    fn reached(&self, process: &Process) -> Reached {
        let state = self.state();
        let trouble = &state.troubles[process.id().0 as usize];
        if process.is_dead() || trouble.to_server || trouble.to_client || state.server.is_stopped {
            Reached::NotYet
        } else if state.server.is_up {
            Reached::Yes
        } else {
            Reached::Refused
        }
    }
}

impl Connector for SimulatedConnector {
    fn connect(&self) -> LinkFuture<Result<Connected, Error>> {
        let opening = self.open(None);
        Box::pin(async move {
            let end = opening.await?;
            let link = SimulatedLink {
                network: end.network.clone(),
                process: end.process.clone(),
                id: end.id,
            };
            // The connection is open from this moment on.
            let (process, replicas) = end.network.with_server(|server| {
                let process = server.strict.map(|_| server.process());
                (process, server.counts_replicas())
            });
            let mut connected = Connected::new(Arc::new(link), Box::pin(end.ended()));
            connected.replicas = replicas;
            if let Some([run_id, replid]) = process {
                connected.run_id = Some(run_id.into());
                connected.replid = Some(replid.into());
            }
            Ok(connected)
        })
    }

    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>> {
        let (sender, messages) = mpsc::unbounded_channel();
        let opening = self.open(Some(sender));
        Box::pin(async move {
            let end = opening.await?;
            let channels = SimulatedChannels { network: end.network.clone(), id: end.id };
            let messages = SimulatedMessages { messages, _end: end };
            Ok(Subscriber::new(Box::new(channels), Box::new(messages)))
        })
    }

    fn label(&self) -> String {
        "redis://simulated".to_owned()
    }

    fn terms(&self) -> Terms {
        self.network.with_server(|server| server.terms())
    }
}

/// The client's end of a connection. Dropping it closes the connection.
struct End {
    network: Network,
    process: Process,
    id: ConnectionId,
}

impl End {
    /// Ends when the connection ends.
    async fn ended(self) {
        poll_fn(|context| {
            let mut state = self.network.state();
            match state.connections.find_mut(self.id) {
                Some(connection) if !connection.has_ended => {
                    connection.io = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let now = self.network.now();
        let mut state = self.network.state();
        let is_open = state.connections.find(self.id).is_some_and(|one| !one.has_ended);
        if is_open {
            state.hang_up(now, self.id);
        }
    }
}

struct SimulatedLink {
    network: Network,
    process: Process,
    id: ConnectionId,
}

impl Link for SimulatedLink {
    fn submit(&self, command: Command) -> LinkFuture<Result<Value, LinkError>> {
        if self.process.is_dead() {
            return Box::pin(pending());
        }
        let now = self.network.now();
        let mut state = self.network.state();
        let (answering, answer) = oneshot::channel();
        let connection = state.connections.find_mut(self.id);
        let Some(waiting) = connection.and_then(|connection| connection.waiting.as_mut()) else {
            let reason = "the connection was gone".to_owned();
            return Box::pin(async move { Err(LinkError::NotSent { reason }) });
        };
        waiting.push_back(answering);
        Network::log_sent(&mut state, &self.process, &command);
        let mut request = Request { command, loses_reply: None, again_after: None };
        let mut at = now + state.delay(self.process.id());
        if is_of_a_lock(&request.command) {
            let mischief = &mut state.troubles[self.process.id().0 as usize].mischief;
            match (!mischief.is_empty()).then(|| mischief.remove(0)) {
                None => {}
                Some(Mischief::LoseReply(after)) => request.loses_reply = Some(after),
                Some(Mischief::Late(late)) => at = at + late,
                Some(Mischief::Twice(later)) => request.again_after = Some(later),
            }
        }
        state.send_at(at, Delivery::Request(self.id, Box::new(request)));
        drop(state);
        Box::pin(async move {
            let broken = || LinkError::Broken { reason: "the connection broke".to_owned() };
            answer.await.unwrap_or_else(|_closed| Err(broken()))
        })
    }
}

fn is_of_a_lock(command: &Command) -> bool {
    command.args().next().is_some_and(|name| name.starts_with(b"EVAL"))
}

struct SimulatedChannels {
    network: Network,
    id: ConnectionId,
}

impl Channels for SimulatedChannels {
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        let (confirm, confirmed) = oneshot::channel();
        let now = self.network.now();
        let subscribe = Delivery::Subscribe(self.id, channel.to_owned(), confirm);
        self.network.state().send(now, subscribe);
        Box::pin(async move {
            confirmed.await.map_err(|_closed| {
                Error::new(ErrorKind::Unavailable, "the connection for hints ended")
            })
        })
    }

    fn tracks(&self) -> bool {
        true
    }

    fn track(
        &mut self,
        key: &str,
    ) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + '_>> {
        let (confirm, confirmed) = oneshot::channel();
        let now = self.network.now();
        let track = Delivery::Track(self.id, key.to_owned(), confirm);
        self.network.state().send(now, track);
        Box::pin(async move {
            confirmed.await.map_err(|_closed| {
                Error::new(ErrorKind::Unavailable, "the connection for hints ended")
            })
        })
    }
}

struct SimulatedMessages {
    messages: mpsc::UnboundedReceiver<News>,
    _end: End,
}

impl Messages for SimulatedMessages {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<News>> + Send + '_>> {
        Box::pin(self.messages.recv())
    }
}
