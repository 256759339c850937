//! Steps that wait at the same moment, and are done together.
//!
//! | the server says of them | then each step |
//! |---|---|
//! | that it was done | has its answer |
//! | that it was not done | is asked for alone, behind all requests so far |
//! | that it does not know the script | is asked for alone, and the next call has the whole script |
//! | anything else | is asked for alone, and so are all later ones |
//!
//! A step that is asked for alone falls behind later requests. That matters to an ask whose lease
//! one of them ends: it is dropped, since its grant would belong to nobody. Nobody looks at the
//! order of requests with different owner tokens.

use std::collections::VecDeque;

use super::redirect::Answering;
use crate::store::redis::codec::command::{Command, NoAnswer, Part, Value};
use crate::store::redis::scripts::together::{STEPS_MAX, done, owner, together};

type Step = (Command, Answering);

/// The steps of a connection that may be done together.
#[derive(Default)]
pub(super) struct Steps {
    /// Those that are not written yet.
    gathered: Vec<Step>,
    /// Whether the server has the script.
    is_known: bool,
    /// Whether it refused the script.
    is_refused: bool,
    /// The calls with asks that have no answer, the first one first: how many ends of leases were
    /// noted before each of them.
    asking: VecDeque<u64>,
    /// The owner tokens whose leases were ended by requests behind the first of these calls.
    ended: VecDeque<Box<[u8]>>,
    /// How many were noted before those.
    forgotten: u64,
}

/// What is written.
pub(super) enum Gathered {
    One(Command, Answering),
    Several(Command, Several),
}

/// Steps that were sent in one call.
pub(super) struct Several {
    steps: Vec<Step>,
    has_ask: bool,
    /// How many ends of leases were noted before the call.
    before: u64,
}

/// What follows from an answer.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) done: Vec<(Answering, Value)>,
    /// What is asked for alone.
    pub(super) alone: Vec<Step>,
    /// Asks whose lease was ended meanwhile.
    pub(super) outdated: Vec<Answering>,
}

impl Steps {
    /// Whether the command is such a step.
    pub(super) fn may_have(&self, command: &Command) -> bool {
        !self.is_refused && matches!(command.part(), Part::Ask | Part::Release)
    }

    pub(super) fn are_none(&self) -> bool {
        self.gathered.is_empty()
    }

    pub(super) fn are_full(&self) -> bool {
        self.gathered.len() >= STEPS_MAX
    }

    pub(super) fn add(&mut self, command: Command, answering: Answering) {
        self.note_end(&command);
        self.gathered.push((command, answering));
    }

    /// Notes that a request ends a lease, if there are asks that it may outrun.
    pub(super) fn note_end(&mut self, command: &Command) {
        let ends = matches!(command.part(), Part::Release | Part::NothingOfItsEnd);
        if ends && !self.asking.is_empty() {
            self.ended.push_back(owner(command).into());
        }
    }

    /// Takes the steps that are not written yet. `None` if there are none.
    pub(super) fn take(&mut self) -> Option<Gathered> {
        if self.gathered.len() < 2 {
            return self
                .gathered
                .pop()
                .map(|(command, answering)| Gathered::One(command, answering));
        }
        let steps = std::mem::take(&mut self.gathered);
        let command = together(steps.iter().map(|(command, _)| command), self.is_known);
        self.is_known = true;
        let has_ask = steps.iter().any(|(command, _)| command.part() == Part::Ask);
        let before = self.forgotten + self.ended.len() as u64;
        if has_ask {
            self.asking.push_back(before);
        }
        Some(Gathered::Several(command, Several { steps, has_ask, before }))
    }

    /// Decides what follows from the answer to several steps.
    pub(super) fn answered(
        &mut self,
        several: Several,
        answer: &Result<Value, NoAnswer>,
    ) -> Answered {
        match answer {
            Ok(Value::Array(_)) => {}
            Err(NoAnswer::Refused { code, .. }) if code == "NOSCRIPT" => self.is_known = false,
            _ => self.is_refused = true,
        }
        let Several { steps, has_ask, before } = several;
        let values = done(answer, steps.len());
        let mut answered = Answered::default();
        for ((command, answering), value) in steps.into_iter().zip(values) {
            match value {
                Some(value) => answered.done.push((answering, value)),
                None if self.is_outdated(&command, &answering, before) => {
                    answered.outdated.push(answering);
                }
                None => answered.alone.push((command, answering)),
            }
        }
        if has_ask {
            self.asking.pop_front();
            self.forget_ends();
        }
        answered
    }

    /// Whether an ask that was not done must not be repeated.
    fn is_outdated(&self, command: &Command, answering: &Answering, before: u64) -> bool {
        let behind = usize::try_from(before - self.forgotten).unwrap_or(usize::MAX);
        let has_ended = || self.ended.iter().skip(behind).any(|token| **token == *owner(command));
        command.part() == Part::Ask && (answering.is_closed() || has_ended())
    }

    /// Forgets the ends that no call without an answer comes before.
    fn forget_ends(&mut self) {
        let all = self.forgotten + self.ended.len() as u64;
        let first = self.asking.front().copied().unwrap_or(all);
        while self.forgotten < first {
            self.ended.pop_front();
            self.forgotten += 1;
        }
    }
}

impl Several {
    pub(super) fn fail(self, why: &NoAnswer) {
        for (_, answering) in self.steps {
            // A caller that gave up needs no answer.
            let _gone = answering.send(Err(why.clone()));
        }
    }
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
    use crate::store::{Ask, Claim, LeaseId, Line, OnRelease};
    use tokio::sync::oneshot;

    type Told = oneshot::Receiver<Result<Value, NoAnswer>>;

    fn lease(owner: &str) -> LeaseId {
        let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new(owner));
        LeaseId { key, owner: owner.expect("a token"), claim: Claim::Exclusive }
    }

    /// The command of a step on a connection that knows the scripts and the counter.
    fn command(step: impl Fn() -> LockStep) -> Command {
        let mut known = Known::default();
        known.warmed(&lease("anna").key);
        let _in_full = Scripted::new(step()).command(&mut known);
        Scripted::new(step()).command(&mut known)
    }

    fn ask(owner: &str) -> Command {
        command(|| {
            let LeaseId { key, owner, claim } = lease(owner);
            let (ttl, line) = (Ttl::DEFAULT, Line::None);
            LockStep::Acquire(Ask { key, owner, claim, ttl, line, note: None, reserve: 1 })
        })
    }

    fn release(owner: &str) -> Command {
        command(|| LockStep::Release(lease(owner), OnRelease::Open))
    }

    fn keep(owner: &str) -> Command {
        let next = || OwnerToken::new("next").expect("a token");
        let keep = || OnRelease::KeepIfAlone {
            owner: next(),
            ttl: Ttl::DEFAULT,
            reserve: 1,
            opens: false,
        };
        command(|| LockStep::Release(lease(owner), keep()))
    }

    fn add(steps: &mut Steps, command: Command) -> Told {
        assert!(steps.may_have(&command));
        let (answering, told) = oneshot::channel();
        steps.add(command, answering);
        told
    }

    fn take(steps: &mut Steps) -> (Command, Several) {
        match steps.take() {
            Some(Gathered::Several(command, several)) => (command, several),
            _ => panic!("there are several"),
        }
    }

    fn array(numbers: &[i64]) -> Result<Value, NoAnswer> {
        Ok(Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect()))
    }

    fn owners(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|(step, _)| str::from_utf8(owner(step)).expect("it is text")).collect()
    }

    #[test]
    fn one_step_leaves_as_it_came_and_several_as_one_call() {
        let mut steps = Steps::default();
        assert!(steps.take().is_none());
        let _told = add(&mut steps, ask("anna"));
        assert!(matches!(steps.take(), Some(Gathered::One(one, _)) if one == ask("anna")));
        let mut told = Vec::new();
        while !steps.are_full() {
            told.push(add(&mut steps, ask("anna")));
        }
        assert_eq!(told.len(), STEPS_MAX);
        assert_eq!(take(&mut steps).0.at(0), b"EVAL", "the server may not have it");
        told.extend([add(&mut steps, ask("anna")), add(&mut steps, release("anna"))]);
        assert_eq!(take(&mut steps).0.at(0), b"EVALSHA");
        assert!(!steps.may_have(&keep("anna")));
    }

    #[test]
    fn what_was_not_done_is_asked_for_alone_in_the_same_order() {
        let mut steps = Steps::default();
        let commands = [ask("anna"), release("ben"), release("anna"), ask("carl")];
        let _told = commands.map(|command| add(&mut steps, command));
        let (_, several) = take(&mut steps);
        let answered = steps.answered(several, &array(&[0, 1, 0, 9]));
        assert_eq!(owners(&answered.alone), ["anna", "anna"]);
        assert_eq!(answered.alone[0].0.part(), Part::Ask);
        let values: Vec<_> = answered.done.into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [Value::Int(1), Value::Int(9)]);
        assert!(answered.outdated.is_empty());
    }

    #[test]
    fn a_server_without_the_script_gets_it_and_one_that_refuses_it_gets_each_step_alone() {
        let refused =
            |code: &str| Err(NoAnswer::Refused { code: code.to_owned(), text: String::new() });
        let mut steps = Steps::default();
        for (answer, name) in
            [(array(&[0, 0]), "EVAL"), (refused("NOSCRIPT"), "EVALSHA"), (array(&[0, 0]), "EVAL")]
        {
            let _told = [ask("anna"), ask("ben")].map(|command| add(&mut steps, command));
            let (command, several) = take(&mut steps);
            assert_eq!(command.at(0), name.as_bytes());
            assert_eq!(steps.answered(several, &answer).alone.len(), 2);
        }
        for other in [refused("CROSSSLOT"), Ok(Value::Int(1)), Ok(Value::Nil)] {
            let mut steps = Steps::default();
            let _told = [ask("anna"), ask("ben")].map(|command| add(&mut steps, command));
            let (_, several) = take(&mut steps);
            assert_eq!(steps.answered(several, &other).alone.len(), 2);
            assert!(!steps.may_have(&ask("anna")), "{other:?}");
        }
    }

    /// Its grant would belong to nobody until its ttl ends.
    #[test]
    fn an_ask_is_not_repeated_behind_the_end_of_its_lease() {
        for end in [release("anna"), keep("anna")] {
            let mut steps = Steps::default();
            let told = [ask("anna"), ask("ben")].map(|command| add(&mut steps, command));
            let (_, several) = take(&mut steps);
            steps.note_end(&release("carl"));
            steps.note_end(&end);
            let answered = steps.answered(several, &array(&[0, 0]));
            assert_eq!(owners(&answered.alone), ["ben"]);
            assert_eq!(answered.outdated.len(), 1);
            assert!(steps.ended.is_empty() && steps.asking.is_empty());
            drop(told);
        }
        // Nor if nobody waits for its answer.
        let mut steps = Steps::default();
        let told = add(&mut steps, ask("anna"));
        let _told = add(&mut steps, release("ben"));
        let (_, several) = take(&mut steps);
        drop(told);
        let answered = steps.answered(several, &array(&[0, 0]));
        assert_eq!((owners(&answered.alone), answered.outdated.len()), (vec!["ben"], 1));
    }

    #[test]
    fn an_end_before_the_ask_does_not_count_and_is_forgotten_in_time() {
        let mut steps = Steps::default();
        let _first = [ask("anna"), ask("ben")].map(|command| add(&mut steps, command));
        let (_, first) = take(&mut steps);
        steps.note_end(&release("carl"));
        let _second = [ask("carl"), ask("dora")].map(|command| add(&mut steps, command));
        let (_, second) = take(&mut steps);
        steps.note_end(&release("ben"));
        assert_eq!(owners(&steps.answered(first, &array(&[0, 0])).alone), ["anna"]);
        assert_eq!(steps.ended.len(), 1, "the first one came before the second call");
        assert_eq!(owners(&steps.answered(second, &array(&[0, 0])).alone), ["carl", "dora"]);
        assert!(steps.ended.is_empty());
        steps.note_end(&release("ben"));
        assert!(steps.ended.is_empty(), "no ask is on its way");
    }
}
