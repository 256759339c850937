//! A server that a test plays, for events that are too rare on a real server.

use std::collections::{HashMap, VecDeque};
use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use leasehold::store::redis::{Access, Connector, Opening, Stream, Terms};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::protocol::{
    self, Answer, Command, Later, Line, Refused, Value, greeting, served,
};
use tokio::sync::Notify;

/// The answer to a script.
enum Reply {
    /// `None` is the end of the connection.
    Now(Option<Answer>),
    /// The answer comes when the test says so.
    Late(Arc<Mutex<Option<Later>>>),
}

/// An answer that comes when the test says so.
pub(crate) struct LateAnswer {
    answer: Answer,
    place: Arc<Mutex<Option<Later>>>,
}

impl LateAnswer {
    /// Gives the answer to the request, which must have come.
    pub(crate) fn say(self) {
        let place = self.place.lock().expect("a test that failed").take();
        place.expect("it is waited for").say(protocol::answer(&self.answer));
    }
}

/// How the server treats a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    Refusing,
    /// Connecting never ends, because the server accepts and stays silent, or does not even accept.
    Hanging,
    /// Connecting ends once the door is open.
    Late,
}

#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

struct State {
    door: Door,
    /// Whether it leaves requests without an answer for now.
    silent: bool,
    /// Connections up to this number are dead. Requests on them never get an answer.
    dead: usize,
    /// The places of the answers that never come. Dropping one of them would end its connection.
    never: Vec<Later>,
    /// The requests that it has not answered because it is silent.
    unanswered: VecDeque<(Line, Later, Command)>,
    answers: VecDeque<Reply>,
    /// The answers to the commands of a name. The last answer is given again and again.
    by_name: HashMap<String, VecDeque<Answer>>,
    /// The answers to `WAIT`. `None` is no answer.
    confirmations: VecDeque<Option<Answer>>,
    terms: Terms,
    /// The received commands without the handshakes, each with the number of its connection.
    seen: Vec<(usize, Vec<String>)>,
    lines: Vec<Line>,
    /// The thread of each attempt to connect.
    attempts: Vec<ThreadId>,
    opened: Arc<Notify>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            door: Door::Open,
            silent: false,
            dead: 0,
            never: Vec::new(),
            unanswered: VecDeque::new(),
            answers: VecDeque::new(),
            by_name: HashMap::new(),
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

    /// Sets whether requests stay without an answer from now on. A server that speaks again first
    /// answers the requests that came meanwhile.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.state().silent = silent;
        if !silent {
            self.answer_some(usize::MAX);
        }
    }

    /// Makes every present connection a dead one. New connections work.
    pub(crate) fn let_sockets_die(&self) {
        let mut state = self.state();
        state.dead = state.attempts.len();
    }

    /// Answers the first few requests that came while the server was silent.
    pub(crate) fn answer_some(&self, count: usize) {
        let mut state = self.state();
        for _ in 0..count {
            let Some((line, later, command)) = state.unanswered.pop_front() else { return };
            state.answer(&line, later, &command);
        }
    }

    /// Sets the answer to the next script, or the end of the connection if it is `None`. The
    /// default is the answer to a release that freed its key.
    pub(crate) fn answer(&self, answer: impl Into<Option<Answer>>) {
        self.state().answers.push_back(Reply::Now(answer.into()));
    }

    /// Like [`answer`](Self::answer), but the answer waits until the test says so.
    pub(crate) fn answer_late(&self, answer: Answer) -> LateAnswer {
        let place = Arc::default();
        self.state().answers.push_back(Reply::Late(Arc::clone(&place)));
        LateAnswer { answer, place }
    }

    /// Sets the answers to all further commands of a name. The last answer is given again and
    /// again.
    pub(crate) fn on<const COUNT: usize>(&self, name: &str, answers: [Answer; COUNT]) {
        self.state().by_name.insert(name.to_owned(), answers.into());
    }

    /// Forgets answers that were not used.
    pub(crate) fn clear_answers(&self) {
        self.state().answers.clear();
    }

    /// Sets the answer to the next `WAIT`; `None` is no answer. The default is one copy.
    pub(crate) fn confirm(&self, answer: Option<Answer>) {
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
            line.close();
        }
    }

    /// Sends bytes on each connection that is open.
    pub(crate) fn tell(&self, bytes: &[u8]) {
        for line in &self.state().lines {
            line.tell(bytes);
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
        self.state().lines.iter().filter(|line| !line.has_ended()).count()
    }

    /// The commands that came in since the last call, each with its connection.
    pub(crate) fn seen(&self) -> Vec<(usize, Vec<String>)> {
        std::mem::take(&mut self.state().seen)
    }

    /// Lets a client in.
    fn stream(&self, number: usize) -> Box<dyn Stream> {
        let (fake, ids) = (self.clone(), [format!("run{number}"), format!("replid{number}")]);
        let mut state = self.state();
        let mut greetings = state.greetings();
        let (stream, line) = served(move |line, command| {
            let greeting = greeting(&command, ids.each_ref().map(String::as_str));
            match (greeting, greetings.checked_sub(1)) {
                (Some(greeting), Some(left)) => {
                    greetings = left;
                    line.answer(greeting);
                }
                _ => fake.state().take(number, line, command),
            }
        });
        state.lines.push(line);
        stream
    }
}

impl State {
    /// The number of requests in a handshake.
    fn greetings(&self) -> usize {
        2 + 2 * usize::from(self.terms.strict.strict().is_some())
            + usize::from(self.terms.copies.is_any())
    }

    fn take(&mut self, connection: usize, line: &Line, command: Command) {
        self.seen.push((connection, command.words()));
        let later = line.later();
        if connection <= self.dead {
            self.never.push(later);
        } else if self.silent {
            self.unanswered.push_back((line.clone(), later, command));
        } else {
            self.answer(line, later, &command);
        }
    }

    fn answer(&mut self, line: &Line, later: Later, command: &Command) {
        let named = self.by_name.get_mut(&*String::from_utf8_lossy(command.name()));
        if let Some(answers) = named {
            let answer = match answers.len() {
                1 => answers[0].clone(),
                _ => answers.pop_front().expect("an answer"),
            };
            return later.say(protocol::answer(&answer));
        }
        let answer = match command.name() {
            b"WAIT" => match self.confirmations.pop_front() {
                Some(None) => return,
                Some(confirmed) => confirmed,
                None => Some(Ok(Value::Int(1))),
            },
            name if name.starts_with(b"EVAL") => match self.answers.pop_front() {
                Some(Reply::Now(answer)) => answer,
                Some(Reply::Late(place)) => {
                    *place.lock().expect("a test that failed") = Some(later);
                    return;
                }
                None => Some(freed()),
            },
            _ => Some(Ok(Value::Bytes(b"PONG".to_vec()))),
        };
        match answer {
            Some(answer) => later.say(protocol::answer(&answer)),
            None => line.close(),
        }
    }
}

/// The answer to a release.
fn freed() -> Answer {
    numbers(&[1, 0])
}

pub(crate) fn numbers(numbers: &[i64]) -> Answer {
    Ok(Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect()))
}

/// The answer to an ask for a key with another holder.
pub(crate) fn taken() -> Answer {
    let (number, nobody) = (Value::Int, Value::Bytes(Vec::new()));
    Ok(Value::Array(vec![number(0), number(500), number(0), nobody, number(0)]))
}

pub(crate) fn refused(text: &str) -> Answer {
    Err(Refused(text.to_owned()))
}

impl Connector for Fake {
    fn open(&self) -> Opening {
        let mut state = self.state();
        state.attempts.push(std::thread::current().id());
        let (number, door, opened) = (state.attempts.len(), state.door, Arc::clone(&state.opened));
        drop(state);
        match door {
            Door::Refusing => Box::pin(async {
                Err(Error::new(ErrorKind::Unavailable, "connection refused; no request was sent"))
            }),
            Door::Hanging => Box::pin(pending()),
            Door::Late => {
                let fake = self.clone();
                Box::pin(async move {
                    opened.notified().await;
                    Ok(fake.stream(number))
                })
            }
            Door::Open => Box::pin(ready(Ok(self.stream(number)))),
        }
    }

    fn label(&self) -> String {
        "redis://fake".to_owned()
    }

    fn access(&self) -> Access {
        Access::on_terms(self.state().terms)
    }
}
