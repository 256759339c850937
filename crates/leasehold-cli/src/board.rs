//! The answers of an instance of `elect` about itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::MultiGuard;
use leasehold::core::WallTime;
use leasehold::host::{Host as _, SystemHost};
use serde_json::json;

use crate::http::Answer;
use crate::log;
use crate::output::{object, rfc3339};
use crate::patience::LastFailure;

/// The current state of an instance, for requests over HTTP.
#[derive(Debug)]
pub(crate) struct Board {
    name: String,
    ttl: Duration,
    state: Mutex<State>,
    last_failure: LastFailure,
}

#[derive(Debug)]
enum State {
    Connecting,
    Campaigning,
    Leading(Term),
    Pausing,
}

/// The time from a grant until nothing is left of the command.
#[derive(Debug)]
struct Term {
    guard: Arc<MultiGuard>,
    since: WallTime,
    /// Whether the command itself has ended. Processes that it left behind still keep the lock.
    has_ended: Arc<AtomicBool>,
}

impl Term {
    /// Whether the command runs and may do so. The lease may have ended while the command is still
    /// being stopped.
    fn is_led(&self) -> bool {
        self.guard.is_held() && !self.has_ended.load(Ordering::Relaxed)
    }
}

impl Board {
    /// The board of an instance that connects.
    pub(crate) fn new(name: &str, ttl: Duration) -> Self {
        let state = Mutex::new(State::Connecting);
        Self { name: name.to_owned(), ttl, state, last_failure: LastFailure::default() }
    }

    /// The last time that the store could not be used. The code that notices a failure records it
    /// here.
    pub(crate) fn last_failure(&self) -> LastFailure {
        self.last_failure.clone()
    }

    /// From now on the instance waits for its turn.
    pub(crate) fn campaigns(&self) {
        *self.state() = State::Campaigning;
    }

    /// From now on the instance leads, for as long as it has the lock and its command has not
    /// ended. The board keeps the guard until the next change of state.
    pub(crate) fn leads(&self, guard: &Arc<MultiGuard>, has_ended: Arc<AtomicBool>) {
        let (guard, since) = (Arc::clone(guard), SystemHost.wall());
        *self.state() = State::Leading(Term { guard, since, has_ended });
    }

    /// From now on the instance neither leads nor waits for its turn.
    pub(crate) fn pauses(&self) {
        *self.state() = State::Pausing;
    }

    /// Whether the instance leads. Its own state is not enough, since the lease may have ended.
    pub(crate) fn leader(&self) -> Answer {
        let state = self.state();
        let term = match &*state {
            State::Leading(term) if term.is_led() => Some(term),
            _ => None,
        };
        let fence = term.and_then(|term| term.guard.fencing_token(&self.name));
        let fields = json!({
            "name": self.name,
            "is_leader": term.is_some(),
            "fence": fence.map(|it| it.to_string()),
            "since": term.map(|term| rfc3339(term.since)),
        });
        Answer::page(term.is_some(), object("leader", fields))
    }

    /// Whether the instance leads or waits in line, and the store answers as far as we know.
    pub(crate) fn ready(&self) -> Answer {
        let mut trouble = log::current_trouble();
        let (state, does_its_part) = match &*self.state() {
            State::Connecting => ("connecting", false),
            State::Campaigning => ("campaigning", true),
            State::Leading(term) if term.is_led() => {
                // With a long ttl, renewals and their repetitions may be minutes apart. So any
                // failure since the last renewal counts.
                let since_renewal = self.ttl.saturating_sub(term.guard.remaining());
                trouble = log::trouble_since(SystemHost.now().minus(since_renewal));
                ("leading", true)
            }
            // The command is being stopped, or processes that it left behind still run.
            State::Leading(_) => ("stopping", false),
            State::Pausing => ("pausing", false),
        };
        let store_answers = trouble.is_none() && !self.last_failure.is_recent();
        let ready = does_its_part && store_answers;
        let fields = json!({
            "name": self.name,
            "ready": ready,
            "state": state,
            "store_answers": store_answers,
        });
        Answer::page(ready, object("ready", fields))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Client;
    use tokio::runtime::Builder;

    use super::*;

    /// Whether an answer is yes, and whether this is in it.
    fn says(answer: &Answer, part: &str) -> (bool, bool) {
        let text = String::from_utf8(answer.bytes(false)).expect("text");
        (text.starts_with("HTTP/1.1 200 "), text.contains(part))
    }

    #[test]
    fn an_instance_leads_until_its_command_has_ended_and_is_not_ready_while_it_pauses() {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread").block_on(async {
            let client = Client::builder("memory:board").connect().await.expect("opened");
            let guard = client.mutex("x").lock().await.expect("free");
            let guard = Arc::new(MultiGuard::from(guard));
            let (board, has_ended) = (Board::new("x", Duration::from_secs(10)), Arc::default());
            let is = |state: &str, ready, leads| {
                let shown = format!("\"state\":\"{state}\"");
                assert_eq!(says(&board.ready(), &shown), (ready, true), "{state}");
                let is_leader = "\"is_leader\":true";
                assert_eq!(says(&board.leader(), is_leader), (leads, leads), "{state}");
                assert_eq!(says(&board.leader(), "\"fence\":null").1, !leads, "{state}");
            };
            is("connecting", false, false);
            board.campaigns();
            is("campaigning", true, false);
            board.leads(&guard, Arc::clone(&has_ended));
            is("leading", true, true);
            has_ended.store(true, Ordering::Relaxed);
            is("stopping", false, false);
            board.pauses();
            is("pausing", false, false);
            board.campaigns();
            is("campaigning", true, false);
        });
    }
}
