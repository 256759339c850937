//! Several steps in one call of a script.
//!
//! A server takes about as long to begin a script as to do a step at a lock that nobody else wants.
//! So steps that wait at the same moment are done in one call. A request for a lock that is not
//! free is sent again, alone.

use super::TOGETHER;
use crate::store::redis::codec::command::{Command, NoAnswer, Part, Value};

/// The most steps in one call. For so many, the server does nothing else for about 0.2 ms.
pub(in crate::store::redis) const STEPS_MAX: usize = 32;

/// Where a call of ACQUIRE or RELEASE has its keys and its arguments.
const LOCK: usize = 3;
const FENCE: usize = 4;
const GRANT: usize = 5;
const LINE: usize = 6;
const OPEN: usize = 10;
const OWNER: usize = 11;
const TTL: usize = 12;

/// The result of one step in the answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::store::redis) enum Done {
    /// The step was done, and has this answer.
    Yes(Value),
    /// The step was not done.
    No,
    /// The step was not done, since its fencing counter is missing.
    HasNoCounter,
}

/// The call that does all these steps. `is_known`: the server has the script.
pub(in crate::store::redis) fn together<'a>(
    steps: impl ExactSizeIterator<Item = &'a Command> + Clone,
    is_known: bool,
) -> Command {
    let command = if is_known { TOGETHER.by_hash() } else { TOGETHER.in_full() };
    let mut command = command.number(4 * steps.len() as u64);
    for step in steps.clone() {
        let second = if step.part() == Part::Ask { FENCE } else { GRANT };
        for key in [LOCK, second, LINE, OPEN] {
            command = command.arg(step.at(key));
        }
    }
    for step in steps {
        let ttl = if step.part() == Part::Ask { step.at(TTL) } else { b"0" };
        command = command.arg(step.at(OWNER)).arg(ttl);
    }
    command
}

/// Reads the result of each step, for a call of `steps` steps.
pub(in crate::store::redis) fn done(answer: &Result<Value, NoAnswer>, steps: usize) -> Vec<Done> {
    let answers = match answer {
        Ok(Value::Array(answers)) if answers.len() == steps => answers.as_slice(),
        _ => &[],
    };
    let was_done = |number| match answers.get(number) {
        Some(&Value::Int(number @ 1..)) => Done::Yes(Value::Int(number)),
        Some(Value::Int(-1)) => Done::HasNoCounter,
        _ => Done::No,
    };
    (0..steps).map(was_done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::key::Key;
    use crate::core::token::OwnerToken;
    use crate::core::ttl::Ttl;
    use crate::store::redis::keys::Keys;
    use crate::store::redis::scripts::call::Call;
    use crate::store::redis::scripts::step::Step;
    use crate::store::{Ask, Claim, LeaseId, Line, OnRelease};

    #[test]
    fn a_call_of_several_has_the_keys_and_owners_of_each() {
        let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("anna"));
        let (owner, claim, ttl) = (owner.expect("a token"), Claim::Exclusive, Ttl::DEFAULT);
        let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim };
        let release = Step::Release(lease, OnRelease::Open);
        let ask =
            Ask { key: key.clone(), owner, claim, ttl, line: Line::None, note: None, reserve: 1 };
        let acquire = Step::Acquire(ask);
        let [release, acquire] = [&release, &acquire].map(|step| Call {
            step,
            cold: false,
            strictly: None,
            wakes: false,
            tag: None,
        });
        let steps =
            [acquire.by_hash().with_part(Part::Ask), release.by_hash().with_part(Part::Release)];
        assert!(steps.iter().all(|step| step.lock() == Some(b"a")));
        let command = together(steps.iter(), true);
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args[0], "EVALSHA");
        let fence = Keys::of(&key).fence();
        let [line, open, grant] =
            ["line", "open", "grant"].map(|name| fence.replace("fence", name));
        assert_eq!(
            args[2..],
            [
                "8", "a", &*fence, &*line, &*open, "a", &*grant, &*line, &*open, "anna", "10000",
                "anna", "0"
            ]
        );
        assert_eq!(together(steps.iter(), false).at(0), b"EVAL");
    }

    #[test]
    fn only_a_positive_number_says_that_a_step_was_done() {
        let array = |numbers: &[i64]| {
            Ok(Value::Array(numbers.iter().map(|number| Value::Int(*number)).collect()))
        };
        let refused = || NoAnswer::Refused { code: "NOSCRIPT".to_owned(), text: String::new() };
        let (yes, no) = (|number| Done::Yes(Value::Int(number)), Done::No);
        for (answer, expected) in [
            (array(&[7, 1, 0]), [yes(7), yes(1), no.clone()]),
            (array(&[7, -1, 2]), [yes(7), Done::HasNoCounter, yes(2)]),
            (array(&[7, -2, 2]), [yes(7), no.clone(), yes(2)]),
            (array(&[7, 1]), [const { Done::No }; 3]),
            (array(&[7, 1, 1, 1]), [const { Done::No }; 3]),
            (Ok(Value::Int(3)), [const { Done::No }; 3]),
            (Err(refused()), [const { Done::No }; 3]),
        ] {
            assert_eq!(done(&answer, 3), expected, "{answer:?}");
        }
    }
}
