//! A scripted server behind the connection seam of the store, for events that are too rare on a
//! real server.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use leasehold::store::redis::{
    Command, Connected, Link, LinkConnector, LinkError, LinkFuture, Subscriber, Terms, Value,
};
use leasehold::{Error, ErrorKind};
use tokio::sync::{Notify, oneshot};

/// The answer to a script. With a receiver, it is sent only when the test says so.
struct Answer(Result<Value, LinkError>, Option<oneshot::Receiver<()>>);

/// How the server treats a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    Refusing,
    /// Connecting never ends: the server accepts and stays silent, or does not even accept.
    Hanging,
    /// Connecting ends once the door is open.
    Late,
}

#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

struct State {
    door: Door,
    /// Whether it leaves requests without an answer.
    silent: bool,
    answers: VecDeque<Answer>,
    /// The answers to `WAIT`. `None` is no answer.
    confirmations: VecDeque<Option<Result<Value, LinkError>>>,
    terms: Terms,
    /// The received commands, each with the number of its connection.
    seen: Vec<(usize, Vec<String>)>,
    lines: Vec<Arc<Line>>,
    /// The thread of each attempt to connect.
    attempts: Vec<ThreadId>,
    opened: Arc<Notify>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            door: Door::Open,
            silent: false,
            answers: VecDeque::new(),
            confirmations: VecDeque::new(),
            terms: Terms::default(),
            seen: Vec::new(),
            lines: Vec::new(),
            attempts: Vec::new(),
            opened: Arc::default(),
        }
    }
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("a test that failed")
    }

    pub(crate) fn set_door(&self, door: Door) {
        let mut state = self.state();
        state.door = door;
        if door == Door::Open {
            state.opened.notify_waiters();
        }
    }

    /// Sets whether requests stay without an answer from now on.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.state().silent = silent;
    }

    /// Sets the answer to the next script. The default is that of a release that freed its key.
    pub(crate) fn answer(&self, answer: Result<Value, LinkError>) {
        self.state().answers.push_back(Answer(answer, None));
    }

    /// As [`answer`](Self::answer), but the answer waits until the test says so.
    pub(crate) fn answer_late(&self, answer: Result<Value, LinkError>) -> oneshot::Sender<()> {
        let (sender, said) = oneshot::channel();
        self.state().answers.push_back(Answer(answer, Some(said)));
        sender
    }

    /// Forgets answers that were not used.
    pub(crate) fn clear_answers(&self) {
        self.state().answers.clear();
    }

    /// Sets the answer to the next `WAIT`; `None` is no answer. The default is one copy.
    pub(crate) fn confirm(&self, answer: Option<Result<Value, LinkError>>) {
        self.state().confirmations.push_back(answer);
    }

    /// A server on these terms.
    pub(crate) fn on_terms(terms: impl Into<Terms>) -> Self {
        let fake = Self::default();
        fake.state().terms = terms.into();
        fake
    }

    pub(crate) fn break_connections(&self) {
        for line in self.state().lines.drain(..) {
            line.broken.notify_one();
        }
    }

    /// The number of attempts to connect.
    pub(crate) fn attempts(&self) -> usize {
        self.state().attempts.len()
    }

    /// The threads of the attempts to connect.
    pub(crate) fn threads(&self) -> Vec<ThreadId> {
        self.state().attempts.clone()
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        let state = self.state();
        state.lines.iter().filter(|line| !line.is_closed()).count()
    }

    /// The number of requests on open connections whose answer is still awaited.
    pub(crate) fn waited_for(&self) -> usize {
        let state = self.state();
        let lists = state.lines.iter().map(|line| line.waiting());
        let waited_for = |list: &Vec<oneshot::Sender<()>>| {
            list.iter().filter(|answered| !answered.is_closed()).count()
        };
        lists.map(|list| list.as_ref().map_or(0, waited_for)).sum()
    }

    /// The commands that came in since the last call, each with its connection.
    pub(crate) fn seen(&self) -> Vec<(usize, Vec<String>)> {
        std::mem::take(&mut self.state().seen)
    }

    fn take(&self, connection: usize, command: &Command) -> Option<Answer> {
        let mut state = self.state();
        let words = command.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        state.seen.push((connection, words));
        let is_script = command.args().next().is_some_and(|name| name.starts_with(b"EVAL"));
        if state.silent {
            return None;
        }
        let is_for_copies = command.args().next().is_some_and(|name| name == b"WAIT");
        if is_for_copies {
            let confirmed = state.confirmations.pop_front().unwrap_or(Some(Ok(Value::Int(1))));
            return confirmed.map(|answer| Answer(answer, None));
        }
        if !is_script {
            return Some(Answer(Ok(Value::Bytes(b"PONG".to_vec())), None));
        }
        Some(state.answers.pop_front().unwrap_or_else(|| Answer(freed(), None)))
    }
}

impl State {
    fn connected(&mut self, fake: &Fake, number: usize) -> Connected {
        let waiting = Mutex::new(Some(Vec::new()));
        let line = Arc::new(Line { fake: fake.clone(), number, broken: Notify::new(), waiting });
        self.lines.push(Arc::clone(&line));
        let closing = Closing(Arc::clone(&line));
        let io = Box::pin(async move { closing.0.broken.notified().await });
        let mut connected = Connected::new(line, io);
        connected.run_id = self.terms.strict.map(|_| format!("run{number}").into());
        connected.replid = self.terms.strict.map(|_| format!("replid{number}").into());
        connected
    }
}

/// The answer to a release.
fn freed() -> Result<Value, LinkError> {
    numbers(&[1, 0])
}

pub(crate) fn numbers(numbers: &[i64]) -> Result<Value, LinkError> {
    Ok(Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect()))
}

/// The answer to an ask for a key with another holder.
pub(crate) fn taken() -> Result<Value, LinkError> {
    let (number, nobody) = (Value::Int, Value::Bytes(Vec::new()));
    Ok(Value::Array(vec![number(0), number(500), number(0), nobody, number(0)]))
}

pub(crate) fn refused(text: &str) -> Result<Value, LinkError> {
    let code = text.split(' ').next().unwrap_or_default().to_owned();
    Err(LinkError::Refused { code, text: text.to_owned() })
}

/// One connection.
struct Line {
    fake: Fake,
    number: usize,
    broken: Notify,
    /// The requests that wait for an answer; `None` once the connection is closed.
    waiting: Mutex<Option<Vec<oneshot::Sender<()>>>>,
}

impl Line {
    fn waiting(&self) -> MutexGuard<'_, Option<Vec<oneshot::Sender<()>>>> {
        self.waiting.lock().expect("a test that failed")
    }

    fn is_closed(&self) -> bool {
        self.waiting().is_none()
    }
}

impl Link for Line {
    fn submit(&self, command: Command) -> LinkFuture<Result<Value, LinkError>> {
        let gone = || LinkError::NotSent { reason: "the connection was gone".to_owned() };
        let mut waiting = self.waiting();
        let Some(list) = waiting.as_mut() else {
            return Box::pin(async move { Err(gone()) });
        };
        let (sender, answered) = oneshot::channel();
        list.push(sender);
        drop(waiting);
        let answer = self.fake.take(self.number, &command);
        Box::pin(async move {
            match answer {
                Some(Answer(answer, said)) => {
                    if let Some(said) = said {
                        let _said = said.await;
                    }
                    answer
                }
                None => {
                    let _gone = answered.await;
                    Err(LinkError::Broken { reason: "the connection ended".to_owned() })
                }
            }
        })
    }
}

/// Closes the connection when its io is dropped.
struct Closing(Arc<Line>);

impl Drop for Closing {
    fn drop(&mut self) {
        *self.0.waiting() = None;
    }
}

impl LinkConnector for Fake {
    fn connect(&self) -> LinkFuture<Result<Connected, Error>> {
        let mut state = self.state();
        state.attempts.push(std::thread::current().id());
        let number = state.attempts.len();
        match state.door {
            Door::Refusing => Box::pin(async {
                Err(Error::new(ErrorKind::Unavailable, "connection refused; no request was sent"))
            }),
            Door::Hanging => Box::pin(pending()),
            Door::Late => {
                let (fake, opened) = (self.clone(), Arc::clone(&state.opened));
                Box::pin(async move {
                    opened.notified().await;
                    Ok(fake.state().connected(&fake, number))
                })
            }
            Door::Open => {
                let connected = state.connected(self, number);
                Box::pin(async { Ok(connected) })
            }
        }
    }

    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>> {
        Box::pin(pending())
    }

    fn label(&self) -> String {
        "redis://fake".to_owned()
    }

    fn terms(&self) -> Terms {
        self.state().terms
    }
}
