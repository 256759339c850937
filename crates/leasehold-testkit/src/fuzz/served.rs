//! A server that gives prepared answers.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::store::redis::{Connector, Opening};

use crate::protocol::{self, Answer, Command, Line, Message, News, greeting, served, subscribed};

/// The index of the owner token in a script call: after the number of keys and six keys.
const OWNER_AT: usize = 9;

/// The server. Clones share its state.
#[derive(Clone)]
pub(super) struct Served(Arc<Mutex<State>>);

struct State {
    /// `None` is the end of the connection.
    answers: VecDeque<Option<Answer>>,
    /// The answer when no prepared answers are left.
    on_release: Answer,
    payloads: VecDeque<Vec<u8>>,
    owner: String,
}

impl Served {
    pub(super) fn new(answers: VecDeque<Option<Answer>>, on_release: Answer) -> Self {
        let (payloads, owner) = (VecDeque::new(), String::new());
        Self(Arc::new(Mutex::new(State { answers, on_release, payloads, owner })))
    }

    /// Publishes these payloads to every subscribed channel.
    pub(super) fn publish(&self, payloads: VecDeque<Vec<u8>>) {
        self.state().payloads = payloads;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, line: &Line, command: &Command) {
        let args: Vec<_> = command.args().collect();
        if let [b"SUBSCRIBE", channel] = args[..] {
            let channel = String::from_utf8_lossy(channel);
            line.answer(subscribed(&channel));
            return self.tell(line, &channel);
        }
        if let Some(greeting) = greeting(command, ["", ""]) {
            return line.answer(greeting);
        }
        let mut state = self.state();
        if let Some(owner) = args.get(OWNER_AT) {
            state.owner = String::from_utf8_lossy(owner).into_owned();
        }
        let next = state.answers.pop_front();
        match next.unwrap_or_else(|| Some(state.on_release.clone())) {
            Some(answer) => line.answer(protocol::answer(&answer)),
            None => line.close(),
        }
    }

    fn tell(&self, line: &Line, channel: &str) {
        let mut state = self.state();
        while let Some(payload) = state.payloads.pop_front() {
            let message = if let Some(elsewhere) = payload.strip_prefix(b"@") {
                Message::new(String::from_utf8_lossy(elsewhere), b"w a")
            } else {
                // A server that serves the requests knows their owner tokens.
                let payload = match String::from_utf8(payload) {
                    Ok(text) => text.replace("TOKEN", &state.owner).into_bytes(),
                    Err(other) => other.into_bytes(),
                };
                Message::new(channel, payload)
            };
            line.tell(&protocol::news(&News::Published(message)));
        }
    }
}

impl Connector for Served {
    fn open(&self) -> Opening {
        let server = self.clone();
        let (stream, _line) = served(move |line, command| server.serve(line, &command));
        Box::pin(ready(Ok(stream)))
    }

    fn label(&self) -> String {
        "redis://served".to_owned()
    }
}
