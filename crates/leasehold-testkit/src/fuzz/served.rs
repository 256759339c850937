//! A fake server that implements the store's connector and gives prepared answers.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::Error;
use leasehold::store::redis::{
    Channels, Command, Connected, Link, LinkConnector, LinkError, LinkFuture, Message, Messages,
    News, Subscriber, Terms, Value,
};

/// The index of the owner token in a script call: after the number of keys and six keys.
const OWNER_AT: usize = 9;

pub(super) type Answer = Result<Value, LinkError>;

/// The server. Clones share its state.
#[derive(Clone, Default)]
pub(super) struct Served(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    answers: VecDeque<Answer>,
    /// The answer when no prepared answers are left.
    on_release: Option<Answer>,
    payloads: VecDeque<Vec<u8>>,
    owner: String,
}

impl Served {
    pub(super) fn new(answers: VecDeque<Answer>, on_release: Answer) -> Self {
        let on_release = Some(on_release);
        Self(Arc::new(Mutex::new(State { answers, on_release, ..State::default() })))
    }

    /// Publishes these payloads to every subscribed channel.
    pub(super) fn publish(&self, payloads: VecDeque<Vec<u8>>) {
        self.state().payloads = payloads;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link for Served {
    fn submit(&self, command: Command) -> LinkFuture<Answer> {
        let mut state = self.state();
        let args: Vec<_> = command.args().collect();
        if args[0] == b"PING" {
            return Box::pin(ready(Ok(Value::Bytes(b"PONG".to_vec()))));
        }
        if let Some(owner) = args.get(OWNER_AT) {
            state.owner = String::from_utf8_lossy(owner).into_owned();
        }
        let answer = state.answers.pop_front().or_else(|| state.on_release.clone());
        Box::pin(ready(answer.unwrap_or(Ok(Value::Nil))))
    }
}

impl LinkConnector for Served {
    fn connect(&self) -> LinkFuture<Result<Connected, Error>> {
        let link: Arc<dyn Link> = Arc::new(self.clone());
        Box::pin(ready(Ok(Connected::new(link, Box::pin(pending())))))
    }

    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>> {
        let channel = Arc::<Mutex<String>>::default();
        let channels = Box::new(Listened(Arc::clone(&channel)));
        let messages = Box::new(Published { server: self.clone(), channel });
        Box::pin(ready(Ok(Subscriber::new(channels, messages))))
    }

    fn label(&self) -> String {
        "redis://served".to_owned()
    }

    fn terms(&self) -> Terms {
        Terms::default()
    }
}

struct Listened(Arc<Mutex<String>>);

impl Channels for Listened {
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = channel.to_owned();
        Box::pin(ready(Ok(())))
    }
}

struct Published {
    server: Served,
    channel: Arc<Mutex<String>>,
}

impl Messages for Published {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<News>> + Send + '_>> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut state = self.server.state();
        // Nobody waits before there is a channel.
        let payload = if channel.is_empty() { None } else { state.payloads.pop_front() };
        let Some(mut payload) = payload else { return Box::pin(pending()) };
        if let Some(elsewhere) = payload.strip_prefix(b"@") {
            channel = String::from_utf8_lossy(elsewhere).into_owned();
            payload = b"w a".to_vec();
        }
        // A server that serves the requests knows their owner tokens.
        let text = String::from_utf8(payload);
        let payload = match text {
            Ok(text) => text.replace("TOKEN", &state.owner).into_bytes(),
            Err(other) => other.into_bytes(),
        };
        Box::pin(ready(Some(News::Published(Message::new(channel, payload)))))
    }
}
