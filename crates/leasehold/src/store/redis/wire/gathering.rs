//! Steps that wait at the same moment, and are done together.
//!
//! | the server says of them | then each step |
//! |---|---|
//! | that it was done | has its answer |
//! | that it was not done | is asked for alone |
//! | that it does not know the script | is asked for alone, and the next call has the whole script |
//! | that it is not ready now | is asked for alone |
//! | anything else | is asked for alone, and so are all later ones |
//!
//! Requests about one key reach the server in their order. So requests behind a step that may have
//! to be asked for alone are held back until the step has its answer.
//!
//! A proxy with several servers may lead a call to the server of its first key. That server lacks
//! the keys of the other steps, and does not do these steps. If such a step finds its counter when
//! it is asked for alone, there may be such a proxy, or another client was faster. After three such
//! steps in a row, all later ones are asked for alone.

use std::collections::{HashSet, VecDeque};

use super::waiting::{Several, Step, Waiting};
use crate::store::redis::codec::command::{Command, NoAnswer, Part, Value};
use crate::store::redis::scripts::together::{Done, STEPS_MAX, done, together};

/// After this many counters in a row that were missing only in a call of several, the client
/// assumes several servers.
const DOUBTS_MAX: u8 = 3;

/// The steps of a connection that may be done together.
#[derive(Default)]
pub(super) struct Gathering {
    /// The steps that are not written yet. No two have the same key.
    gathered: Vec<Step>,
    /// The keys of the steps that were sent together and have no answer.
    keys: HashSet<Box<[u8]>>,
    /// The requests that are held back behind these steps, in their order.
    held: VecDeque<Step>,
    /// Whether the server has the script.
    is_known: bool,
    /// How many counters in a row were missing only in a call of several.
    doubts: u8,
    /// Whether all steps are asked for alone.
    is_refused: bool,
}

/// The next thing that the connection writes.
pub(super) enum Gathered {
    One(Step),
    Several(Command, Several),
}

/// The work to do after an answer.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) done: Vec<(Waiting, Value)>,
    /// The steps to send again, each alone.
    pub(super) alone: Vec<Step>,
    /// The steps that were held back and may be sent now.
    pub(super) held: Vec<Step>,
}

impl Gathering {
    /// Whether the command is a step that may be done together with others.
    pub(super) fn may_have(&self, command: &Command) -> bool {
        !self.is_refused && matches!(command.part(), Part::Ask | Part::Release)
    }

    pub(super) fn are_none(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Whether the gathered steps have to be written before this command can be.
    pub(super) fn come_before(&self, command: &Command) -> bool {
        let is_like_it = |(other, _): &Step| other.lock() == command.lock();
        self.gathered.len() >= STEPS_MAX || self.gathered.iter().any(is_like_it)
    }

    /// Whether a request has to wait for the answer to an earlier one.
    pub(super) fn hold_back(&self, command: &Command) -> bool {
        !self.keys.is_empty() && command.lock().is_some_and(|key| self.keys.contains(key))
    }

    pub(super) fn hold(&mut self, step: Step) {
        self.held.push_back(step);
    }

    pub(super) fn add(&mut self, step: Step) {
        self.gathered.push(step);
    }

    /// Takes the steps that are not written yet. `None` if there are none.
    pub(super) fn take(&mut self) -> Option<Gathered> {
        if self.gathered.len() < 2 {
            return self.gathered.pop().map(Gathered::One);
        }
        let steps = std::mem::take(&mut self.gathered);
        self.keys.extend(steps.iter().filter_map(|(command, _)| command.lock()).map(Box::from));
        let command = together(steps.iter().map(|(command, _)| command), self.is_known);
        self.is_known = true;
        Some(Gathered::Several(command, Several(steps)))
    }

    /// Decides what follows from the answer to several steps.
    pub(super) fn answered(
        &mut self,
        Several(steps): Several,
        answer: &Result<Value, NoAnswer>,
    ) -> Answered {
        match answer {
            Ok(Value::Array(_)) => {}
            Err(NoAnswer::Refused { code, .. }) if code == "NOSCRIPT" => self.is_known = false,
            Err(NoAnswer::Refused { code, .. }) if is_passing(code) => {}
            _ => self.is_refused = true,
        }
        let done = done(answer, steps.len());
        let mut answered = Answered::default();
        for (number, ((command, waiting), done)) in steps.into_iter().zip(done).enumerate() {
            if let Some(key) = command.lock() {
                self.keys.remove(key);
            }
            match done {
                Done::Yes(value) => {
                    // If a proxy looks at the first key only, a later step finds its own key by
                    // chance.
                    self.doubts = if number > 0 { 0 } else { self.doubts };
                    answered.done.push((waiting, value));
                }
                Done::No => answered.alone.push((command, waiting)),
                Done::HasNoCounter => answered.alone.push((command, waiting.in_doubt())),
            }
        }
        let (held, free) = std::mem::take(&mut self.held)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(command, _)| self.hold_back(command));
        self.held = held;
        answered.held = free.into();
        answered
    }

    /// Notes the answer to a step that was asked for alone because its counter was missing.
    pub(super) fn doubted(&mut self, answer: &Result<Value, NoAnswer>) {
        // Only a grant that finds the counter is one number.
        if matches!(answer, Ok(Value::Int(_))) {
            self.doubts = self.doubts.saturating_add(1);
            self.is_refused |= self.doubts >= DOUBTS_MAX;
        }
    }

    /// Takes the requests that were not sent when the connection ends.
    pub(super) fn take_held(&mut self) -> VecDeque<Step> {
        std::mem::take(&mut self.held)
    }
}

/// Whether a server that refuses a request in this way may accept it soon.
fn is_passing(code: &str) -> bool {
    ["BUSY", "LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN"].contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::Key;
    use crate::core::token::OwnerToken;
    use crate::core::ttl::Ttl;
    use crate::store::redis::scripts::scripted::Scripted;
    use crate::store::redis::scripts::step::Step as LockStep;
    use crate::store::redis::wire::Request as _;
    use crate::store::redis::wire::known::Known;
    use crate::store::{Ask, Claim, LeaseId, Line, OnRelease, Renewal};
    use tokio::sync::oneshot;

    fn lease(key: &str) -> LeaseId {
        let (key, owner) = (Key::new(key).expect("a name"), OwnerToken::new("anna"));
        LeaseId { key, owner: owner.expect("a token"), claim: Claim::Exclusive }
    }

    /// The command of a step on a connection that knows the scripts and the counter.
    fn command(key: &str, step: impl Fn() -> LockStep) -> Command {
        let mut known = Known::default();
        known.warmed(&lease(key).key);
        let _in_full = Scripted::new(step()).command(&mut known);
        Scripted::new(step()).command(&mut known)
    }

    fn ask(key: &str) -> Command {
        command(key, || {
            let LeaseId { key, owner, claim } = lease(key);
            let (ttl, line) = (Ttl::DEFAULT, Line::None);
            LockStep::Acquire(Ask { key, owner, claim, ttl, line, note: None, reserve: 1 })
        })
    }

    fn release(key: &str) -> Command {
        command(key, || LockStep::Release(lease(key), OnRelease::Open))
    }

    fn renew(key: &str) -> Command {
        command(key, || LockStep::Renew(Renewal::new(lease(key), Ttl::DEFAULT)))
    }

    fn waiting() -> Waiting {
        Waiting::new(oneshot::channel().0, None)
    }

    fn gather(
        steps: &mut Gathering,
        commands: impl IntoIterator<Item = Command>,
    ) -> (Command, Several) {
        for command in commands {
            assert!(steps.may_have(&command) && !steps.come_before(&command));
            steps.add((command, waiting()));
        }
        match steps.take() {
            Some(Gathered::Several(command, several)) => (command, several),
            _ => panic!("there are several"),
        }
    }

    fn array(numbers: &[i64]) -> Result<Value, NoAnswer> {
        Ok(Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect()))
    }

    fn refused(code: &str) -> Result<Value, NoAnswer> {
        Err(NoAnswer::Refused { code: code.to_owned(), text: String::new() })
    }

    fn keys(steps: &[Step]) -> Vec<&str> {
        let key = |step| {
            let (command, _): &Step = step;
            str::from_utf8(command.lock().expect("a key")).expect("text")
        };
        steps.iter().map(key).collect()
    }

    #[test]
    fn one_step_leaves_as_it_came_and_several_as_one_call() {
        let mut steps = Gathering::default();
        assert!(steps.take().is_none() && steps.are_none());
        steps.add((ask("a"), waiting()));
        assert!(matches!(steps.take(), Some(Gathered::One((one, _))) if one == ask("a")));
        let names: Vec<_> = (0..STEPS_MAX).map(|number| number.to_string()).collect();
        for name in &names {
            assert!(!steps.come_before(&ask(name)));
            steps.add((ask(name), waiting()));
        }
        assert!(steps.come_before(&ask("a")), "there is no room");
        let (command, _) = gather(&mut steps, []);
        assert_eq!(command.at(0), b"EVAL", "the server may not have it");
        let (command, _) = gather(&mut steps, [ask("a"), release("b")]);
        assert_eq!(command.at(0), b"EVALSHA");
        assert!(!steps.may_have(&renew("a")));
    }

    #[test]
    fn a_step_that_was_not_done_is_asked_for_alone() {
        let mut steps = Gathering::default();
        let commands = [ask("a"), release("b"), release("c"), ask("d")];
        let (_, several) = gather(&mut steps, commands);
        let answered = steps.answered(several, &array(&[0, 1, 0, 9]));
        assert_eq!(keys(&answered.alone), ["a", "c"]);
        let values: Vec<_> = answered.done.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Value::Int(1), Value::Int(9)]);
        assert!(answered.held.is_empty());
    }

    /// If a release were served before its acquire, nobody would own the grant until its ttl ends.
    #[test]
    fn requests_about_one_key_keep_their_order() {
        let mut steps = Gathering::default();
        steps.add((ask("a"), waiting()));
        assert!(steps.come_before(&release("a")), "not in one call");
        assert!(!steps.come_before(&release("b")) && !steps.hold_back(&release("a")));
        let (_, first) = gather(&mut steps, [ask("b")]);
        let (_, second) = gather(&mut steps, [ask("c"), ask("d")]);
        for command in [release("a"), renew("c"), release("b"), ask("a")] {
            assert!(steps.hold_back(&command));
            steps.hold((command, waiting()));
        }
        assert!(!steps.hold_back(&ask("e")) && !steps.hold_back(&Command::new("PING")));
        let answered = steps.answered(first, &array(&[0, 9]));
        assert_eq!((keys(&answered.alone), keys(&answered.held)), (vec!["a"], vec!["a", "b", "a"]));
        assert_eq!(answered.held[0].0, release("a"), "the oldest first");
        assert!(!steps.hold_back(&ask("a")) && steps.hold_back(&ask("c")));
        let answered = steps.answered(second, &refused("LOADING"));
        assert_eq!((keys(&answered.alone), keys(&answered.held)), (vec!["c", "d"], vec!["c"]));
        assert!(steps.keys.is_empty() && steps.take_held().is_empty());
    }

    #[test]
    fn a_server_without_the_script_gets_it_and_one_that_refuses_it_gets_each_step_alone() {
        let mut steps = Gathering::default();
        for (answer, name) in [
            (array(&[0, 0]), "EVAL"),
            (refused("NOSCRIPT"), "EVALSHA"),
            (refused("BUSY"), "EVAL"),
            (array(&[0, 0]), "EVALSHA"),
        ] {
            let (command, several) = gather(&mut steps, [ask("a"), ask("b")]);
            assert_eq!(command.at(0), name.as_bytes());
            assert_eq!(steps.answered(several, &answer).alone.len(), 2);
        }
        for other in [refused("CROSSSLOT"), refused("ERR"), Ok(Value::Int(1)), Ok(Value::Nil)] {
            let mut steps = Gathering::default();
            let (_, several) = gather(&mut steps, [ask("a"), ask("b")]);
            assert_eq!(steps.answered(several, &other).alone.len(), 2);
            assert!(!steps.may_have(&ask("a")), "{other:?}");
        }
    }

    #[test]
    fn a_counter_that_is_missing_only_in_a_call_of_several_shows_several_servers() {
        let grant_without_counter = array(&[1, 9, 1]);
        for (alone, is_refused) in
            [(Ok(Value::Int(9)), true), (grant_without_counter, false), (refused("NOPERM"), false)]
        {
            let mut steps = Gathering::default();
            for number in 1..=DOUBTS_MAX {
                let (_, several) = gather(&mut steps, [ask("a"), ask("b")]);
                // The first step of a call is done wherever the call leads.
                let answered = steps.answered(several, &array(&[9, -1]));
                assert!(answered.alone[0].1.is_in_doubt());
                steps.doubted(&alone);
                let is_refused = is_refused && number == DOUBTS_MAX;
                assert_eq!(steps.may_have(&ask("a")), !is_refused, "{number}: {alone:?}");
            }
        }
    }

    /// Another client may take a key, and so make its counter, before the key is asked for alone.
    #[test]
    fn a_counter_that_comes_just_then_does_not_end_the_calls_of_several() {
        let mut steps = Gathering::default();
        for _ in 0..10 {
            for said in [[-1, 9], [9, -1]] {
                let (_, several) = gather(&mut steps, [ask("a"), ask("b")]);
                assert_eq!(steps.answered(several, &array(&said)).alone.len(), 1);
                steps.doubted(&Ok(Value::Int(9)));
                assert!(steps.may_have(&ask("a")));
            }
        }
    }
}
