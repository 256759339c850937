//! A server that refuses scripts for a while, and carries out all other commands.

use super::Server;
use crate::protocol::{Command, Refused};
use crate::simulation::redis::Executed;

/// The answers of servers that cannot run a script at the moment.
const PASSING: [&str; 3] = [
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "LOADING Redis is loading the dataset in memory",
    "OOM command not allowed when used memory > 'maxmemory'.",
];

/// Which scripts a server refuses, and how often it refused some.
#[derive(Default)]
pub(super) struct Refusals {
    now: Option<Refusing>,
    refused: u64,
    denied: u64,
}

/// How a server refuses scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusing {
    /// With this answer.
    With(&'static str),
    /// It forgets each script before the next call.
    Forgets,
    /// The user has no right to call scripts.
    Denies,
    /// The user has no right to call scripts by their hash. It may send them in full.
    DeniesHashes,
}

impl Refusals {
    /// How often scripts were refused, and how often that was for want of a right.
    pub(super) const fn did(&self) -> [(&'static str, u64); 2] {
        [("scripts refused", self.refused), ("scripts denied", self.denied)]
    }
}

impl Server {
    /// Refuses scripts from now on. `much` decides how.
    pub(in crate::simulation) fn refuse_scripts(&mut self, much: u64) {
        let way = usize::try_from(much % (PASSING.len() as u64 + 1)).expect("a few");
        let answer = PASSING.get(way).copied();
        self.refusals.now = Some(answer.map_or(Refusing::Forgets, Refusing::With));
    }

    /// Takes the right to run scripts away from all users. `much` decides which right.
    pub(in crate::simulation) fn deny_scripts(&mut self, much: u64) {
        let all = much.is_multiple_of(2);
        self.refusals.now = Some(if all { Refusing::Denies } else { Refusing::DeniesHashes });
    }

    /// Runs scripts again from now on.
    pub(in crate::simulation) fn take_scripts_again(&mut self) {
        self.refusals.now = None;
    }

    /// The answer to a command that is refused. Such a command changes nothing. If the server only
    /// forgets its scripts, the command is carried out, and finds no script.
    pub(super) fn refuse(&mut self, command: &Command) -> Option<Executed> {
        let refusing = self.refusals.now?;
        let name = command.args().next()?;
        let is_by_hash = name == b"EVALSHA";
        if !is_by_hash && name != b"EVAL" {
            return None;
        }
        let text = match refusing {
            Refusing::With(answer) => answer.to_owned(),
            Refusing::Forgets => {
                self.refusals.refused += u64::from(is_by_hash);
                self.redis.flush_scripts();
                return None;
            }
            Refusing::DeniesHashes if !is_by_hash => return None,
            Refusing::Denies | Refusing::DeniesHashes => {
                self.refusals.denied += 1;
                let name = if is_by_hash { "evalsha" } else { "eval" };
                format!("NOPERM User app has no permissions to run the '{name}' command")
            }
        };
        self.refusals.refused += 1;
        Some(Executed {
            reply: Err(Refused(text)),
            published: Vec::new(),
            script: None,
            wait: None,
            written: self.redis.written(),
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold::core::Moment;

    use super::*;
    use crate::VirtualHost;
    use crate::protocol::Value;
    use crate::simulation::clock::ServerClock;
    use crate::simulation::log::Log;

    const SCRIPT: &str =
        "-- acquire.lua: takes the key\nreturn redis.call('SET', KEYS[1], ARGV[1])";

    fn server() -> Server {
        Server::new(ServerClock::default(), Log::new(&VirtualHost::new(1)))
    }

    fn answer(server: &mut Server, command: &Command) -> Result<Value, Refused> {
        let now = Moment::from_nanos(1_000_000_000_000);
        server.carry_out(now, now, 0, command).reply
    }

    fn code(server: &mut Server, command: &Command) -> String {
        answer(server, command).map_or_else(|refused| refused.code().to_owned(), |_| "ok".into())
    }

    /// A call of the script in full, by its hash, and a plain command.
    fn commands(server: &mut Server) -> [Command; 3] {
        let load = Command::new("SCRIPT").arg("LOAD").arg(SCRIPT);
        let Ok(Value::Bytes(hash)) = answer(server, &load) else { panic!("no hash") };
        let hash = String::from_utf8(hash).expect("ASCII");
        let call = |by: &str, what: &str| Command::new(by).arg(what).arg("1").arg("a").arg("TOKEN");
        [call("EVAL", SCRIPT), call("EVALSHA", &hash), Command::new("SET").arg("b").arg("1")]
    }

    #[test]
    fn scripts_are_refused_and_plain_commands_are_carried_out() {
        let mut server = server();
        let [in_full, by_hash, plain] = commands(&mut server);
        // Columns: the size of the fault, the answers to a script in full and by its hash.
        let table = [(0, "BUSY", "BUSY"), (1, "LOADING", "LOADING"), (2, "OOM", "OOM")];
        for (much, full, hash) in table.into_iter().chain([(3, "ok", "NOSCRIPT")]) {
            server.refuse_scripts(much);
            let answers = [&in_full, &by_hash, &plain].map(|command| code(&mut server, command));
            assert_eq!(answers, [full, hash, "ok"], "{much}");
        }
        for (much, full, hash) in [(0, "NOPERM", "NOPERM"), (1, "ok", "NOPERM")] {
            server.deny_scripts(much);
            let answers = [&in_full, &by_hash, &plain].map(|command| code(&mut server, command));
            assert_eq!(answers, [full, hash, "ok"], "{much}");
        }
        server.take_scripts_again();
        let answers = [&in_full, &by_hash, &plain].map(|command| code(&mut server, command));
        assert_eq!(answers, ["ok", "ok", "ok"]);
        assert_eq!(server.refusals.did(), [("scripts refused", 10), ("scripts denied", 3)]);
    }

    #[test]
    fn a_refused_script_is_asked_anew_when_it_is_sent_again() {
        let mut server = server();
        let [in_full, by_hash, _] = commands(&mut server);
        assert_eq!(code(&mut server, &in_full), "ok");
        server.refuse_scripts(0);
        assert_eq!(code(&mut server, &by_hash), "BUSY");
        assert!(server.forgotten.is_empty(), "the client does not repeat it by itself");
    }
}
