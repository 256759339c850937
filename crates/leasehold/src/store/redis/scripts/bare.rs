//! How a step at a lock without companion keys is sent.
//!
//! | step | with scripts | without |
//! |---|---|---|
//! | acquire | the first one on a connection by a script, with probes behind it; then `SET … NX GET PX` | `SET … NX GET PX`, if a command can release |
//! | acquire again | a script | `PTTL`, and `SET … IFEQ` |
//! | renew | a script | `PTTL`, and `SET … IFEQ` |
//! | release | a command that compares and deletes, else a script | that command |
//!
//! A renewal prefers the script, because a server out of memory refuses every `SET`.

use super::abilities::{Native, Scripts};
use super::call::set;
use super::native::{self, CompareAndDelete, Found};
use super::step::Step;
use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};
use crate::store::redis::wire::known::Known;
use crate::store::{Claim, OnRelease, Renewal};

/// The memory of a step about its earlier tries. The server's side is in
/// [`Abilities`](super::abilities::Abilities).
#[derive(Default)]
pub(super) struct Bare {
    /// Whether the lock has no companion keys, and commands may do the step.
    is_bare: bool,
    /// Whether a script must do the step, since the server lacks the command for it.
    lacks_command: bool,
    /// Whether the owner has the key already, so that only its time to live is restarted.
    is_again: bool,
    sent: Sent,
    /// Whether the step was sent with probes.
    has_probed: bool,
    /// The command for a release, even if nothing is known of the server.
    native: Option<CompareAndDelete>,
    /// Whether scripts were refused.
    without_scripts: bool,
    /// How many milliseconds the lock has left, once the server has said so.
    left: Option<u64>,
}

/// How a step was sent last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sent {
    #[default]
    Script,
    /// `SET … NX GET PX`.
    Set,
    /// The question before a renewal.
    Look,
    /// A command that compares before it changes the key.
    Native,
}

impl Bare {
    pub(super) fn of(step: &Step) -> Self {
        let is_bare = match step {
            Step::Acquire(ask) => ask.claim == Claim::Plain && ask.reserve == 0,
            Step::Renew(renewal) => renewal.lease.claim == Claim::Plain && renewal.reserve == 0,
            Step::Release(lease, _) => lease.claim == Claim::Plain,
            _ => false,
        };
        Self { is_bare, ..Self::default() }
    }

    /// Notes that the owner has the key already.
    pub(super) const fn again(&mut self) {
        self.is_again = true;
    }

    /// Notes that only a script can do the step. For example, a command cannot check whether a
    /// strict server has forgotten its leases.
    pub(super) const fn needs_script(&mut self) {
        self.is_bare = false;
    }

    /// The command that does the step without a script, if there is one.
    pub(super) fn command(&mut self, step: &Step, known: &Known) -> Option<Command> {
        self.sent = Sent::Script;
        if !self.is_bare || self.lacks_command {
            return None;
        }
        let server = &known.bare;
        self.native = server.native().or(self.native);
        let without_scripts = self.without_scripts || server.scripts == Scripts::Refused;
        let can_release = server.scripts == Scripts::Allowed || self.native.is_some();
        let (sent, command) = match step {
            Step::Acquire(_) if !self.is_again && (server.lacks_set || !can_release) => {
                return None;
            }
            Step::Acquire(ask) if !self.is_again => (Sent::Set, set(ask)),
            Step::Acquire(ask) if without_scripts => self.renewal(&ask.key, &ask.owner, ask.ttl),
            Step::Renew(Renewal { lease, ttl, .. }) if without_scripts => {
                self.renewal(&lease.key, &lease.owner, *ttl)
            }
            // A script can also wake a client that waits in line.
            Step::Release(lease, OnRelease::Free) => {
                (Sent::Native, self.native?.release(&lease.key, &lease.owner))
            }
            Step::Release(lease, _) if without_scripts && !needs_script(step) => {
                (Sent::Native, self.native?.release(&lease.key, &lease.owner))
            }
            _ => return None,
        };
        self.sent = sent;
        Some(command)
    }

    /// Restarts the time to live, and never shortens it.
    fn renewal(&self, key: &Key, owner: &OwnerToken, ttl: Ttl) -> (Sent, Command) {
        match self.left {
            None => (Sent::Look, native::look(key)),
            Some(left) => (Sent::Native, native::renew(key, owner, ttl.as_millis().max(left))),
        }
    }

    /// The commands behind the step that tell whether the server can compare and delete. Renewals
    /// need no probes: if the server has scripts, they do the renewals.
    pub(super) fn probes(&mut self, step: &Step, known: &mut Known) -> Vec<Command> {
        // A step that lacks a command is a renewal, also if it is an ask.
        let is_renewal = self.lacks_command;
        let may_need_it = !is_renewal && matches!(step, Step::Acquire(_) | Step::Release(..));
        let asks = self.is_bare && may_need_it && self.sent == Sent::Script;
        let is_new = known.bare.native == Native::Unasked;
        if !asks || !(is_new || self.without_scripts) {
            return Vec::new();
        }
        if is_new {
            known.bare.native = Native::Asked;
        }
        self.has_probed = true;
        native::probes(step.key())
    }

    pub(super) fn was_probed(&mut self, known: &mut Known, answers: &[Result<Value, NoAnswer>]) {
        let found = native::found(answers);
        if let Found::Command(native) = found {
            self.native = Some(native);
        }
        known.bare.was_probed(found);
    }

    /// Whether the answer says that the server runs scripts.
    pub(super) fn shows_scripts(&self) -> bool {
        self.is_bare && self.sent == Sent::Script
    }

    /// Whether the answer is the time that a renewal has to know first.
    pub(super) fn goes_on(&mut self, answer: &Value) -> bool {
        if self.sent != Sent::Look {
            return false;
        }
        let left = if let Value::Int(left) = answer { *left } else { 0 };
        self.left = Some(u64::try_from(left).unwrap_or(0));
        true
    }

    /// Notes that the server refused the step. Returns whether to send it in another way.
    pub(super) fn was_refused(
        &mut self,
        step: &Step,
        known: &mut Known,
        (code, text): (&str, &str),
    ) -> bool {
        let is_syntax = code == "ERR" && text.contains("syntax");
        let is_release = matches!(step, Step::Release(..));
        match self.sent {
            // The refusal of the script says best what is missing.
            _ if !self.is_bare || self.lacks_command => return false,
            Sent::Script if native::refuses_scripts(code, text) => {
                return self.may_go_without(step, known) && !needs_script(step);
            }
            Sent::Set if is_syntax => known.bare.lacks_set = true,
            Sent::Native if is_release => {
                let refuses = |it: CompareAndDelete| native::refuses(it.name(), code, text);
                if !self.native.is_some_and(refuses) {
                    return false;
                }
                known.bare.native = Native::Unasked;
                self.native = None;
            }
            // Scripts may be allowed again. If so, the answer shows it, and the next renewals begin
            // with a script.
            Sent::Native if is_syntax => self.lacks_command = true,
            Sent::Look if native::refuses("PTTL", code, text) => self.lacks_command = true,
            _ => return false,
        }
        true
    }

    /// Notes that scripts were refused. Returns whether commands may do the step.
    fn may_go_without(&mut self, step: &Step, known: &mut Known) -> bool {
        known.bare.scripts = Scripts::Refused;
        self.without_scripts = true;
        let is_renewal = self.is_again || matches!(step, Step::Renew(_));
        let server = &known.bare;
        let has_none = server.native == Native::Answered(Found::Nothing);
        let may_find_one = !self.has_probed && !has_none;
        is_renewal || server.native().or(self.native).is_some() || may_find_one
    }
}

/// Whether no command does this: a command can release a lock, but not share it with readers.
const fn needs_script(step: &Step) -> bool {
    matches!(step, Step::Release(_, OnRelease::Downgrade { .. }))
}
