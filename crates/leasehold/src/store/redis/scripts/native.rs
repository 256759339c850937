//! Commands that compare a key with a token before they change it. They replace scripts for locks
//! without companion keys.
//!
//! | step | command | server |
//! |---|---|---|
//! | release | `DELIFEQ key token` | Valkey 9.0 |
//! | release | `DELEX key IFEQ token` | Redis 8.4 |
//! | renew | `PTTL key`, then `SET key token IFEQ token PX ms` | both |

use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};
use crate::store::redis::keys::Keys;

/// A command that deletes a key if it has the given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum CompareAndDelete {
    Delifeq,
    Delex,
}

/// The answer of a server to the question whether it has such a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Found {
    Command(CompareAndDelete),
    /// The server has no such command, or the user has no right to run one.
    Nothing,
    /// The server did not say, for example because another node has the slot.
    Unknown,
}

impl CompareAndDelete {
    /// All commands, in the order of [`probes`].
    pub(in crate::store::redis) const ALL: [Self; 2] = [Self::Delifeq, Self::Delex];

    /// The name of the command.
    pub(in crate::store::redis) const fn name(self) -> &'static str {
        match self {
            Self::Delifeq => "DELIFEQ",
            Self::Delex => "DELEX",
        }
    }

    /// Deletes the key if it has that value. The answer is 1, or 0 if it was not deleted.
    pub(in crate::store::redis) fn command(self, key: &str, value: &str) -> Command {
        let command = Command::new(self.name()).arg(key).lock_is_last();
        match self {
            Self::Delifeq => command.arg(value),
            Self::Delex => command.arg("IFEQ").arg(value),
        }
    }

    /// Releases the lock.
    pub(in crate::store::redis) fn release(self, key: &Key, owner: &OwnerToken) -> Command {
        self.command(key.as_str(), owner.as_str())
    }
}

/// Asks which of the commands there are. The key never exists and is in the slot of the lock, so
/// even a server that does not compare deletes nothing.
pub(in crate::store::redis) fn probes(key: &Key) -> Vec<Command> {
    let key = Keys::of(key).probe();
    CompareAndDelete::ALL.map(|native| native.command(&key, "probe")).into()
}

/// Reads the answers to [`probes`].
pub(in crate::store::redis) fn found(answers: &[Result<Value, NoAnswer>]) -> Found {
    if answers.len() < CompareAndDelete::ALL.len() {
        return Found::Unknown;
    }
    let tried = || CompareAndDelete::ALL.into_iter().zip(answers);
    let works = |answer: &Result<Value, NoAnswer>| *answer == Ok(Value::Int(0));
    if let Some((native, _)) = tried().find(|(_, answer)| works(answer)) {
        return Found::Command(native);
    }
    let is_absent = |(native, answer): (CompareAndDelete, &Result<Value, NoAnswer>)| match answer {
        Err(NoAnswer::Refused { code, text }) => refuses(native.name(), code, text),
        Err(NoAnswer::NotSent { .. } | NoAnswer::Broken { .. }) => false,
        // The server has another command of that name.
        Ok(_) => true,
    };
    if tried().all(is_absent) { Found::Nothing } else { Found::Unknown }
}

/// Whether a refusal says that there are no scripts, or that the user has no right to run any. A
/// refusal from inside a script does not.
pub(in crate::store::redis) fn refuses_scripts(code: &str, text: &str) -> bool {
    let engine = "scripting engine";
    ["EVAL", "EVALSHA"].iter().any(|name| refuses(name, code, text))
        || code == "ERR" && text.to_ascii_lowercase().contains(engine) && !text.contains("script:")
}

/// Whether a refusal says that this command does not exist, or that the user has no right to run
/// it.
pub(in crate::store::redis) fn refuses(name: &str, code: &str, text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_about_a_command = match code {
        "NOPERM" => lower.contains("no permissions to run"),
        "ERR" => lower.starts_with("err unknown command"),
        _ => false,
    };
    let name = name.to_ascii_lowercase();
    let is_named = ['\'', '`'].iter().any(|quote| lower.contains(&format!("{quote}{name}")));
    is_about_a_command && is_named && !lower.contains("script")
}

/// Asks how long the lock has left. A renewal never shortens that.
pub(in crate::store::redis) fn look(key: &Key) -> Command {
    Command::new("PTTL").arg(key.as_str()).lock_is_last()
}

/// Restarts the time to live if the owner has the lock. The answer is `OK`, or nothing if another
/// owner has it.
pub(in crate::store::redis) fn renew(key: &Key, owner: &OwnerToken, ms: u64) -> Command {
    let (key, owner) = (key.as_str(), owner.as_str());
    Command::new("SET")
        .arg(key)
        .lock_is_last()
        .arg(owner)
        .arg("IFEQ")
        .arg(owner)
        .arg("PX")
        .number(ms)
}

/// Reads the answer to [`renew`]: whether the owner has the lock. `None` if a script gave the
/// answer.
pub(in crate::store::redis) fn renewed(answer: &Value) -> Option<bool> {
    match answer {
        Value::Bytes(ok) if ok == b"OK" => Some(true),
        Value::Nil => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Result<Value, NoAnswer> {
        let code = text.split(' ').next().unwrap_or_default().to_owned();
        Err(NoAnswer::Refused { code, text: text.to_owned() })
    }

    fn words(command: &Command) -> String {
        let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        words.join(" ")
    }

    #[test]
    fn commands_compare_with_the_token_of_the_owner() {
        let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("anna"));
        let owner = owner.expect("a token");
        assert_eq!(words(&CompareAndDelete::Delifeq.release(&key, &owner)), "DELIFEQ a anna");
        assert_eq!(words(&CompareAndDelete::Delex.release(&key, &owner)), "DELEX a IFEQ anna");
        assert_eq!(words(&renew(&key, &owner, 7)), "SET a anna IFEQ anna PX 7");
    }

    #[test]
    fn probes_never_name_the_lock() {
        for (name, probe) in [("a", "{a}:lh:probe"), ("{u}:a", "{u}:a:lh:t:probe")] {
            let probes = probes(&Key::new(name).expect("a name"));
            let probes: Vec<_> = probes.iter().map(words).collect();
            let expected = [format!("DELIFEQ {probe} probe"), format!("DELEX {probe} IFEQ probe")];
            assert_eq!(probes, expected);
        }
    }

    #[test]
    fn the_first_command_that_finds_no_key_is_used() {
        let absent = |name| refused(&format!("ERR unknown command '{name}', with args beginning"));
        let zero = || Ok(Value::Int(0));
        let moved = || refused("MOVED 7 127.0.0.1:7000");
        let denied = "NOPERM User u has no permissions to run the 'delifeq' command";
        let (delifeq, delex) = (CompareAndDelete::Delifeq, CompareAndDelete::Delex);
        for (answers, expected) in [
            ([zero(), absent("DELEX")], Found::Command(delifeq)),
            ([absent("DELIFEQ"), zero()], Found::Command(delex)),
            ([zero(), zero()], Found::Command(delifeq)),
            ([absent("DELIFEQ"), absent("DELEX")], Found::Nothing),
            ([refused(denied), absent("DELEX")], Found::Nothing),
            ([Ok(Value::Int(1)), absent("DELEX")], Found::Nothing),
            ([moved(), moved()], Found::Unknown),
            ([moved(), absent("DELEX")], Found::Unknown),
            ([Err(NoAnswer::Broken { reason: String::new() }), zero()], Found::Command(delex)),
        ] {
            assert_eq!(found(&answers), expected, "{answers:?}");
        }
    }

    #[test]
    fn a_refused_script_call_differs_from_a_refusal_inside_a_script() {
        for (text, expected) in [
            ("ERR unknown command `EVAL`, with args beginning with: `return`", true),
            ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", true),
            ("ERR Could not find scripting engine 'lua'", true),
            ("NOPERM this user has no permissions to run the 'eval' command", true),
            ("NOPERM User app has no permissions to run the 'evalsha' command", true),
            ("NOPERM User app has no permissions to run the 'get' command script: 1", false),
            ("NOPERM No permissions to access a key", false),
            ("ERR Unknown Redis command called from script script: 1", false),
            ("ERR syntax error", false),
            ("LOADING Redis is loading", false),
        ] {
            let code = text.split(' ').next().unwrap_or_default();
            assert_eq!(refuses_scripts(code, text), expected, "{text}");
        }
    }
}
