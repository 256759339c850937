//! The answers of an instance of `elect` about itself.

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

/// The current state of an instance, for those who ask.
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
    Leading { guard: Arc<MultiGuard>, since: WallTime },
    Pausing,
}

impl Board {
    /// The board of an instance that connects.
    pub(crate) fn new(name: &str, ttl: Duration) -> Self {
        let state = Mutex::new(State::Connecting);
        Self { name: name.to_owned(), ttl, state, last_failure: LastFailure::default() }
    }

    /// When the store could not be used last, for whoever finds that out.
    pub(crate) fn last_failure(&self) -> LastFailure {
        self.last_failure.clone()
    }

    /// From now on the instance waits for its turn.
    pub(crate) fn campaigns(&self) {
        *self.state() = State::Campaigning;
    }

    /// From now on the instance leads, for as long as it has the lock. The board keeps the guard
    /// until the next change of state.
    pub(crate) fn leads(&self, guard: &Arc<MultiGuard>) {
        let (guard, since) = (Arc::clone(guard), SystemHost.wall());
        *self.state() = State::Leading { guard, since };
    }

    /// From now on the instance neither leads nor waits for its turn.
    pub(crate) fn pauses(&self) {
        *self.state() = State::Pausing;
    }

    /// Whether the instance leads. Its own state is not enough: the lease may have ended since.
    pub(crate) fn leader(&self) -> Answer {
        let state = self.state();
        let term = match &*state {
            State::Leading { guard, since } if guard.is_held() => Some((guard, since)),
            _ => None,
        };
        let fence = term.and_then(|(guard, _)| guard.fencing_token(&self.name));
        let fields = json!({
            "name": self.name,
            "is_leader": term.is_some(),
            "fence": fence.map(|it| it.to_string()),
            "since": term.map(|(_, since)| rfc3339(*since)),
        });
        Answer::page(term.is_some(), object("leader", fields))
    }

    /// Whether the instance does its part, and the store answers as far as we know.
    pub(crate) fn ready(&self) -> Answer {
        let mut trouble = log::current_trouble();
        let (state, does_its_part) = match &*self.state() {
            State::Connecting => ("connecting", false),
            State::Campaigning => ("campaigning", true),
            State::Leading { guard, .. } if guard.is_held() => {
                // Renewals may be minutes apart, and also repeated ones of a long lease.
                let since_renewal = self.ttl.saturating_sub(guard.remaining());
                trouble = log::trouble_since(SystemHost.now().minus(since_renewal));
                ("leading", true)
            }
            // The command is being ended.
            State::Leading { .. } => ("stopping", false),
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
