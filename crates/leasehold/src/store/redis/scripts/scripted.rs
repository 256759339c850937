//! A request that calls a script.

use super::bare::Bare;
use super::call::Call;
use super::reply;
use super::step::Step;
use crate::core::error::Error;
use crate::core::validity::command_limit;
use crate::store::redis::codec::command::{Command, NoAnswer, Part, Value};
use crate::store::redis::keys::slot;
use crate::store::redis::terms::copies::Confirmation;
use crate::store::redis::terms::{Copies, Terms, no_line};
use crate::store::redis::wire::known::{Known, Strictly};
use crate::store::redis::wire::{Request, Retry, Subject};
use crate::store::{Ask, Claim, LeaseId, Line, OnRelease, unsupported_claim};

/// How often a request is sent at most. Somebody may flush the scripts at any time, and the server
/// may change.
const TRIES_MAX: u32 = 3;

/// Calls a script by its hash if the server has it, otherwise in full. At a lock without companion
/// keys, commands do the steps if the server has such commands.
pub(in crate::store::redis) struct Scripted {
    step: Step,
    cold: bool,
    /// Whether the last try carried the script.
    in_full: bool,
    tries: u32,
    bare: Bare,
    copies: Copies,
    /// The tag of the shard channel of the client, for a place in line.
    tag: Option<u32>,
    /// How the last try was strict, by the connection that it was sent on; `None` if it was not.
    strictly: Option<Strictly>,
}

impl Scripted {
    /// A step that a script can do.
    pub(in crate::store::redis) fn new(step: Step) -> Box<Self> {
        let (cold, in_full, tries, bare) = (false, false, 0, Bare::of(&step));
        let copies = Copies::default();
        Box::new(Self { step, cold, in_full, tries, bare, copies, tag: None, strictly: None })
    }

    /// Asks for the copies of these terms. The connection decides whether the request is strict,
    /// because the store may not know that yet.
    pub(in crate::store::redis) fn on(mut self: Box<Self>, terms: &Terms) -> Box<Self> {
        self.copies = terms.copies;
        self
    }

    /// Names a shard channel of the client in its place in line. If that channel is not at the node
    /// of the lock, the inbox of the client is used.
    pub(in crate::store::redis) fn heard_at(mut self: Box<Self>, tag: Option<u32>) -> Box<Self> {
        self.tag = tag;
        self
    }

    /// Notes that the owner has the key already, so an acquire request restarts the time to live.
    pub(in crate::store::redis) fn again(mut self: Box<Self>) -> Box<Self> {
        self.bare.again();
        self
    }
}

impl Scripted {
    fn may_be_tried_again(&mut self) -> bool {
        self.tries += 1;
        self.tries < TRIES_MAX
    }

    fn call(&self) -> Call<'_> {
        let strictly = self.strictly.as_ref();
        let wakes = strictly.is_some() || !self.copies.hand_over();
        Call { step: &self.step, cold: self.cold, strictly, wakes, tag: self.tag }
    }

    /// The step of this call that can be done together with others.
    fn part(&self) -> Part {
        if self.strictly.is_some() || self.copies.is_any() {
            return Part::Nothing;
        }
        match &self.step {
            Step::Acquire(Ask { claim: Claim::Exclusive, reserve: 1, note, line, .. }) => {
                let has_reason = note.as_ref().is_some_and(|note| note.why.is_some());
                // A client that asks again has found the lock taken.
                let was_taken = matches!(line, Line::Join { ask_no: 2.., .. });
                if self.cold || has_reason || was_taken { Part::Nothing } else { Part::Ask }
            }
            Step::Release(
                LeaseId { claim: Claim::Exclusive, .. },
                OnRelease::Free | OnRelease::Open,
            ) => Part::Release,
            _ => Part::Nothing,
        }
    }

    /// How the request is strict on a connection. A probe of a quorum is never strict, because
    /// nobody can have held its new name before the server forgot its data.
    fn strictly_on<'a>(&self, known: &'a Known) -> Option<&'a Strictly> {
        let is_probe = matches!(&self.step, Step::Acquire(ask) if ask.key.is_probe());
        if is_probe { None } else { known.strictly() }
    }
}

impl Request for Scripted {
    fn refusal(&self, known: &Known) -> Option<Error> {
        let strict = self.strictly_on(known)?.strict;
        let key = self.step.key();
        match &self.step {
            Step::Acquire(ask) if !ask.claim.is_alone() => Some(unsupported_claim(ask.claim, key)),
            Step::Resize { of, .. } => {
                Some(unsupported_claim(Claim::Permits { want: 1, of: *of }, key))
            }
            Step::Acquire(ask) if matches!(ask.line, Line::Join { .. }) => Some(no_line(key)),
            step => strict.allow(step.grants()?, key).err(),
        }
    }

    fn command(&mut self, known: &mut Known) -> Command {
        self.strictly = self.strictly_on(known).cloned();
        if self.strictly.is_some() {
            self.bare.needs_script();
        }
        self.in_full = false;
        if let Some(command) = self.bare.command(&self.step, known) {
            return command;
        }
        // Only a strict acquire notices that its server has taken over the data of another server.
        let may_be_old = self.strictly.is_some() && !matches!(self.step, Step::Acquire(_));
        self.cold = self.step.counted().is_some_and(|key| may_be_old || !known.is_warm(key));
        let call = self.call();
        if known.has_script(call.script()) {
            return call.by_hash().with_part(self.part());
        }
        known.sent_script(call.script());
        let command = call.in_full();
        self.in_full = true;
        command
    }

    fn confirmation(&self, known: &Known) -> Option<Confirmation> {
        self.copies.confirmation(known, command_limit(self.step.grants()?))
    }

    fn probes(&mut self, known: &mut Known) -> Vec<Command> {
        self.bare.probes(&self.step, known)
    }

    fn was_probed(&mut self, known: &mut Known, answers: &[Result<Value, NoAnswer>]) {
        self.bare.was_probed(known, answers);
    }

    fn was_refused(&mut self, known: &mut Known, code: &str, text: &str) -> Retry {
        if code == "NOSCRIPT" {
            // Most likely, somebody has flushed all scripts. If each request found that out for
            // itself, an acquire could overtake a repeated release, and find the lock taken.
            known.forget_scripts();
        } else if self.in_full {
            // A server does not keep the script of a request that it refuses.
            known.lacks_script(self.call().script());
        }
        let retry = match code {
            // The server had this script on this connection, so another process may have replaced
            // it. With the same data, that process would accept the old run id, so use a new
            // connection. Renewals and releases must not depend on a new connection just because
            // somebody has flushed the scripts.
            "NOSCRIPT" if self.strictly.is_some() && matches!(self.step, Step::Acquire(_)) => {
                Retry::Elsewhere
            }
            "NOSCRIPT" => Retry::Here,
            _ if self.bare.was_refused(&self.step, known, (code, text)) => Retry::Here,
            _ => return Retry::No,
        };
        if self.may_be_tried_again() { retry } else { Retry::No }
    }

    fn was_misled(&mut self, answer: &Value) -> bool {
        self.strictly.is_some() && reply::was_misled(answer) && self.may_be_tried_again()
    }

    fn was_answered(&mut self, known: &mut Known, answer: &Value) {
        if self.bare.shows_scripts() {
            known.bare.allows_scripts();
        }
        let is_raised = match self.step {
            Step::Acquire(_) => reply::has_new_fencing(answer),
            _ => reply::has_fencing(answer),
        };
        if let Some(key) = self.step.counted().filter(|_| is_raised) {
            known.warmed(key);
        }
    }

    fn teaches(&self) -> bool {
        self.cold || self.bare.shows_scripts()
    }

    fn goes_on(&mut self, answer: &Value) -> bool {
        self.bare.goes_on(answer)
    }

    fn subject(&self) -> Option<Subject> {
        let key = self.step.key();
        Some(Subject { slot: slot(key.as_str()), lock: Some(key.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::ErrorKind;
    use crate::core::key::Key;
    use crate::core::token::{ClientId, OwnerToken};
    use crate::core::ttl::Ttl;
    use crate::store::redis::scripts::{ACQUIRE, ACQUIRE_STRICTLY, RELEASE, RENEW};
    use crate::store::redis::terms::Strict;
    use crate::store::redis::wire::known::ServerProcess;
    use crate::store::{Note, Renewal};

    fn plain() -> Box<Scripted> {
        let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("anna"));
        let (claim, owner) = (Claim::Plain, owner.expect("a token"));
        let (ttl, line) = (Ttl::DEFAULT, Line::None);
        let ask = Ask { key, owner, claim, ttl, line, note: None, reserve: 0 };
        Scripted::new(Step::Acquire(ask))
    }

    fn name(request: &mut Scripted, known: &mut Known) -> String {
        let command = request.command(known);
        String::from_utf8_lossy(command.args().next().expect("a name")).into_owned()
    }

    #[test]
    fn a_plain_ask_is_a_command_once_scripts_are_known_to_be_allowed() {
        let mut known = Known::default();
        let (mut first, mut second) = (plain(), plain());
        assert_eq!(name(&mut first, &mut known), "EVAL");
        assert_eq!(name(&mut second, &mut known), "EVALSHA", "no answer came yet");
        assert_eq!(first.was_refused(&mut known, "NOPERM", "NOPERM no"), Retry::No);
        assert!(second.teaches());
        second.was_answered(&mut known, &Value::Int(0));
        assert_eq!(name(&mut first, &mut known), "SET");
    }

    #[test]
    fn a_server_that_lacks_one_script_may_lack_all() {
        let mut known = Known::default();
        [&ACQUIRE, &RELEASE].iter().for_each(|script| known.sent_script(script));
        let mut ask = plain();
        assert_eq!(ask.was_refused(&mut known, "BUSY", "BUSY x"), Retry::No);
        assert!(known.has_script(&RELEASE));
        assert_eq!(ask.was_refused(&mut known, "NOSCRIPT", "NOSCRIPT x"), Retry::Here);
        assert!(!known.has_script(&RELEASE) && !known.has_script(&ACQUIRE));
    }

    /// The state of a strict connection to this process.
    fn strict(run_id: &str, replid: &str) -> Known {
        let process = ServerProcess { run_id: run_id.into(), replid: replid.into() };
        Known::new(Some(Strictly { process, strict: Strict::STANDARD }), None)
    }

    /// Strict mode relies on this: no request names the process of an earlier connection.
    #[test]
    fn a_strict_ask_names_the_process_of_the_connection_that_it_is_sent_on() {
        let mut ask = plain();
        for (run_id, replid) in [("a1", "c3"), ("b2", "c3"), ("b2", "d4")] {
            let mut known = strict(run_id, replid);
            known.bare.allows_scripts();
            let command = ask.command(&mut known);
            let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
            assert_eq!(args[0], "EVAL", "never a bare command");
            assert_eq!(args[args.len() - 3..args.len() - 1], [run_id, replid]);
            assert!(!ask.teaches());
        }
    }

    #[test]
    fn only_the_simplest_steps_may_be_done_together_with_others() {
        let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("anna"));
        let (owner, claim, ttl) = (owner.expect("a token"), Claim::Exclusive, Ttl::DEFAULT);
        let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim };
        let inbox = ClientId::from_random([0; ClientId::CHARS]);
        let join =
            |ask_no| Line::Join { waiter_ttl: ttl, handed_ttl: ttl, ask_no, inbox: inbox.clone() };
        let note = |why: Option<&str>| Some(Note { client: None, why: why.map(Into::into) });
        let ask =
            Ask { key: key.clone(), owner, claim, ttl, line: join(1), note: None, reserve: 1 };
        let release = |on_release| Step::Release(lease.clone(), on_release);
        let downgrade = OnRelease::Downgrade { owner: lease.owner.clone(), ttl };
        for (number, (step, warm, expected)) in [
            (Step::Acquire(ask.clone()), true, Part::Ask),
            (Step::Acquire(Ask { note: note(None), ..ask.clone() }), true, Part::Ask),
            (Step::Acquire(Ask { line: Line::None, ..ask.clone() }), true, Part::Ask),
            (Step::Acquire(ask.clone()), false, Part::Nothing),
            (Step::Acquire(Ask { note: note(Some("x")), ..ask.clone() }), true, Part::Nothing),
            (Step::Acquire(Ask { line: join(2), ..ask.clone() }), true, Part::Nothing),
            (Step::Acquire(Ask { reserve: 0, ..ask.clone() }), true, Part::Nothing),
            (Step::Acquire(Ask { reserve: 4, ..ask.clone() }), true, Part::Nothing),
            (Step::Acquire(Ask { claim: Claim::Shared, ..ask.clone() }), true, Part::Nothing),
            (Step::Renew(Renewal::new(lease.clone(), ttl)), true, Part::Nothing),
            (release(OnRelease::Open), true, Part::Release),
            (release(OnRelease::Free), true, Part::Release),
            (release(OnRelease::FreeAndWake), true, Part::Nothing),
            (release(downgrade), true, Part::Nothing),
        ]
        .into_iter()
        .enumerate()
        {
            let known = || {
                let mut known = Known::default();
                [&ACQUIRE, &RELEASE, &RENEW].iter().for_each(|it| known.sent_script(it));
                known
            };
            let mut request = Scripted::new(step);
            let mut connection = known();
            if warm {
                connection.warmed(&key);
            }
            assert_eq!(request.command(&mut connection).part(), expected, "{number}");
            let mut strict = strict("a1", "c3");
            [&ACQUIRE_STRICTLY, &RELEASE].iter().for_each(|it| strict.sent_script(it));
            strict.warmed(&key);
            let part = request.command(&mut strict).part();
            assert!(!matches!(part, Part::Ask | Part::Release), "{number}: strict");
        }
    }

    /// The last arguments of the request, from the number of fencing tokens on.
    fn reserved(mut request: Box<Scripted>, known: &mut Known) -> Vec<String> {
        let command = request.command(known);
        let args: Vec<_> = command.args().map(|arg| String::from_utf8_lossy(arg).into()).collect();
        let at = args.iter().rposition(|arg| arg == "4").expect("four tokens");
        args[at..].to_vec()
    }

    /// A renewal or release does not notice that the server has taken over old data.
    #[test]
    fn a_strict_renewal_never_trusts_a_warm_connection() {
        let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("anna"));
        let owner = owner.expect("a token");
        let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim: Claim::Exclusive };
        let renew = || {
            let mut renewal = Renewal::new(lease.clone(), Ttl::DEFAULT);
            renewal.reserve = 4;
            Scripted::new(Step::Renew(renewal))
        };
        let release = || {
            let (owner, ttl) = (owner.clone(), Ttl::DEFAULT);
            let keep = OnRelease::KeepIfAlone { owner, ttl, reserve: 4, opens: false };
            Scripted::new(Step::Release(lease.clone(), keep))
        };
        let mut known = Known::default();
        known.warmed(&key);
        // tokens, lowest token, cold, idle
        assert_eq!(reserved(renew(), &mut known), ["4", "0", "0", "0"]);
        // tokens, cold, next owner
        assert_eq!(reserved(release(), &mut known), ["4", "0", "anna", "hand"]);
        let mut known = strict("a1", "c3");
        known.warmed(&key);
        assert_eq!(reserved(renew(), &mut known), ["4", "0", "1", "0"]);
        assert_eq!(reserved(release(), &mut known), ["4", "1", "anna", "wake"]);
    }

    #[test]
    fn a_strict_request_leaves_a_server_that_may_be_another_one_and_gives_up_in_the_end() {
        let misled = Value::Array(vec![Value::Int(5)]);
        let mut known = strict("a1", "c3");
        let (mut ask, mut other) = (plain(), plain());
        ask.command(&mut known);
        other.command(&mut Known::default());
        assert!(ask.was_misled(&misled) && !other.was_misled(&misled));
        assert_eq!(ask.was_refused(&mut known, "NOSCRIPT", "NOSCRIPT x"), Retry::Elsewhere);
        assert_eq!(other.was_refused(&mut known, "NOSCRIPT", "NOSCRIPT x"), Retry::Here);
        let inspection = Step::Inspect(Key::new("a").expect("a name"));
        let mut look = Scripted::new(inspection);
        look.command(&mut known);
        assert_eq!(look.was_refused(&mut known, "NOSCRIPT", "NOSCRIPT x"), Retry::Here);
        assert!(!ask.was_misled(&misled));
    }

    /// A store that does not know yet whether it is strict sends no request on wrong terms.
    #[test]
    fn a_strict_connection_refuses_what_only_other_connections_may_be_asked() {
        let refused = |ask: &Ask, known: &Known| {
            Scripted::new(Step::Acquire(ask.clone())).refusal(known).map(|error| error.kind())
        };
        let Step::Acquire(ask) = plain().step else { panic!("it is one") };
        let ttl = |seconds| Ttl::new(std::time::Duration::from_secs(seconds)).expect("in bounds");
        let (waiter_ttl, handed_ttl) = (ttl(3), ttl(2));
        let inbox = ClientId::from_random([0; ClientId::CHARS]);
        let join = Line::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox };
        let probe = Key::probe("x");
        for (ask, kind) in [
            (ask.clone(), None),
            (Ask { ttl: ttl(60), ..ask.clone() }, None),
            (Ask { ttl: ttl(61), ..ask.clone() }, Some(ErrorKind::Config)),
            (Ask { line: join, ..ask.clone() }, Some(ErrorKind::Unsupported)),
            (Ask { key: probe, ttl: ttl(61), ..ask.clone() }, None),
        ] {
            assert_eq!(refused(&ask, &Known::default()), None, "{ask:?}");
            assert_eq!(refused(&ask, &strict("a1", "c3")), kind, "{ask:?}");
        }
        let lease = ask.lease();
        let renewal = |seconds| Step::Renew(Renewal::new(lease.clone(), ttl(seconds)));
        let release = |on_release| Step::Release(lease.clone(), on_release);
        let keep = |seconds| {
            let (owner, ttl) = (ask.owner.clone(), ttl(seconds));
            release(OnRelease::KeepIfAlone { owner, ttl, reserve: 1, opens: false })
        };
        let claim = |claim| Step::Acquire(Ask { claim, ..ask.clone() });
        for (number, (step, kind)) in [
            (renewal(60), None),
            (renewal(61), Some(ErrorKind::Config)),
            (keep(60), None),
            (keep(61), Some(ErrorKind::Config)),
            (release(OnRelease::Free), None),
            (claim(Claim::Exclusive), None),
            (claim(Claim::Shared), Some(ErrorKind::Unsupported)),
            (claim(Claim::Permits { want: 1, of: 2 }), Some(ErrorKind::Unsupported)),
            (Step::Resize { key: ask.key.clone(), of: 2 }, Some(ErrorKind::Unsupported)),
        ]
        .into_iter()
        .enumerate()
        {
            let request = Scripted::new(step);
            assert!(request.refusal(&Known::default()).is_none(), "{number}");
            let refused = request.refusal(&strict("a1", "c3")).map(|error| error.kind());
            assert_eq!(refused, kind, "{number}");
        }
    }

    #[test]
    fn a_server_that_does_not_know_the_command_gets_the_script() {
        let mut known = Known::default();
        let mut first = plain();
        first.command(&mut known);
        first.was_answered(&mut known, &Value::Int(0));
        let mut second = plain();
        assert_eq!(name(&mut second, &mut known), "SET");
        assert_eq!(second.was_refused(&mut known, "ERR", "ERR syntax error"), Retry::Here);
        assert_eq!(name(&mut second, &mut known), "EVALSHA");
        second.was_answered(&mut known, &Value::Int(0));
        assert_eq!(name(&mut plain(), &mut known), "EVALSHA", "from then on");
    }

    /// Otherwise a request by hash would be refused, and the next one would overtake it.
    #[test]
    fn a_server_keeps_no_script_of_a_request_that_it_refuses() {
        let mut known = Known::default();
        let mut ask = plain();
        assert_eq!(name(&mut ask, &mut known), "EVAL");
        assert_eq!(ask.was_refused(&mut known, "OOM", "OOM no"), Retry::No);
        assert_eq!(name(&mut plain(), &mut known), "EVAL");
        let mut by_hash = plain();
        assert_eq!(name(&mut by_hash, &mut known), "EVALSHA");
        assert_eq!(by_hash.was_refused(&mut known, "OOM", "OOM no"), Retry::No);
        assert_eq!(name(&mut plain(), &mut known), "EVALSHA", "it has the script");
    }
}
