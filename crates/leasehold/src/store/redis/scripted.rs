//! A script call as a request on the wire.

use super::call::Call;
use super::known::Known;
use super::link::{Command, Value};
use super::reply;
use super::wire::Request;
use crate::core::key::Key;
use crate::store::{Ask, LeaseId, Otherwise, Renewal};

/// How often a script is sent in full before its absence is an error: somebody may flush them at
/// any time.
const TRIES_MAX: u32 = 3;

/// One step at one lock, kept until it is answered.
pub(super) enum Step {
    Acquire(Ask),
    Renew(Renewal),
    Release(LeaseId, Otherwise),
    Evict { key: Key, seen: Vec<u8> },
    Inspect(Key),
    Living(Key),
}

impl Step {
    fn call(&self, cold: bool) -> Call<'_> {
        match self {
            Self::Acquire(ask) => Call::Acquire { ask, cold },
            Self::Renew(renewal) => Call::Renew { renewal, cold },
            Self::Release(lease, otherwise) => Call::Release { lease, otherwise: *otherwise, cold },
            Self::Evict { key, seen } => Call::Evict { key, seen },
            Self::Inspect(key) => Call::Inspect { key },
            Self::Living(key) => Call::Living { key },
        }
    }

    /// The key from whose counter it takes fencing tokens as its client has known it. An eviction
    /// and a hand-over lift the counter by themselves.
    fn counted(&self) -> Option<&Key> {
        match self {
            Self::Acquire(ask) => (ask.reserve > 0).then_some(&ask.key),
            Self::Renew(renewal) => (renewal.reserve > 0).then_some(&renewal.lease.key),
            Self::Release(lease, otherwise) => {
                otherwise.keep().filter(|(_, reserve)| *reserve > 0).map(|_| &lease.key)
            }
            Self::Evict { .. } | Self::Inspect(_) | Self::Living(_) => None,
        }
    }
}

/// Calls a script by its hash where the server has it, and in full where it has not.
pub(super) struct Scripted {
    step: Step,
    cold: bool,
    tries: u32,
}

impl Scripted {
    pub(super) fn new(step: Step) -> Box<Self> {
        Box::new(Self { step, cold: false, tries: 0 })
    }
}

impl Request for Scripted {
    fn command(&mut self, known: &mut Known) -> Command {
        self.cold = self.step.counted().is_some_and(|key| !known.is_warm(key));
        let call = self.step.call(self.cold);
        if known.has_script(call.script()) {
            return call.by_hash();
        }
        known.sent_script(call.script());
        call.in_full()
    }

    fn script_is_missing(&mut self, known: &mut Known) -> bool {
        known.lacks_script(self.step.call(self.cold).script());
        self.tries += 1;
        self.tries < TRIES_MAX
    }

    fn was_answered(&mut self, known: &mut Known, answer: &Value) {
        if let Some(key) = self.step.counted()
            && reply::has_fencing(answer)
        {
            known.warmed(key);
        }
    }

    fn teaches(&self) -> bool {
        self.cold
    }
}
