//! Tips for command lines that users of other tools write.

use std::ffi::{OsStr, OsString};

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of other tools, and our equivalents.
const COMMANDS: [(&[&str], &str); 8] = [
    (
        &["lock", "exec", "with", "with-lock", "hold", "do", "flock"],
        "`leasehold run NAME -- CMD` holds a lock while CMD runs, `leasehold acquire NAME` takes \
         one for a script",
    ),
    (&["list", "status", "locks", "ps", "top"], "`leasehold ls` lists the locks"),
    (
        &["show", "info", "get", "who", "describe", "state", "check"],
        "`leasehold inspect NAME` shows one lock",
    ),
    (
        &["try", "trylock", "try-lock", "take", "get-lock"],
        "`leasehold run -n NAME -- CMD` and `leasehold acquire -n NAME` do not wait",
    ),
    (
        &["election", "campaign", "lead", "leader", "observe"],
        "`leasehold elect NAME -- CMD` runs CMD on one of many machines",
    ),
    (&["extend", "refresh", "keepalive", "touch"], "`leasehold renew NAME` restarts the ttl"),
    (&["free", "drop"], "`leasehold release NAME` releases a lock that `acquire` took"),
    (
        &["break", "break-lock", "force-unlock", "steal", "kill", "delete", "del", "rm"],
        "`leasehold unlock NAME` ends the lease of a holder that is dead",
    ),
];

/// Flags of other tools, and our equivalents.
const FLAGS: [(&[&str], &str); 6] = [
    (&["--timeout", "--max-wait", "--lock-wait", "--retry", "--block"], "-w DUR or --wait DUR"),
    (
        &["--lease", "--lease-time", "--expire", "--expires", "--expiry", "--expiration", "--px"],
        "--ttl DUR",
    ),
    (&["--try", "--nb", "--no-wait", "--nowait", "--non-block", "--fail-fast"], "-n"),
    (&["--host", "--server", "--redis", "--endpoint", "--address", "--store"], "--url URL"),
    (&["--key", "--lock", "--lock-name", "--id"], "NAME without a flag, or --name=NAME"),
    (&["--command", "--cmd", "--exec", "-c"], "-- CMD at the end, or -- sh -c '...' for a shell"),
];

/// The commands that take a name.
const NAMED: [&str; 7] = ["run", "elect", "acquire", "renew", "release", "inspect", "unlock"];

/// Removes tips that cannot work, and adds one that can.
pub(crate) fn mend(error: &mut Error, args: &[OsString]) {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            let given = text(ContextKind::InvalidArg).unwrap_or_default();
            // `-- -x` would be read as the command, not as a name.
            error.remove(ContextKind::Suggested);
            let tip = for_argument(&given, args);
            if tip.is_some() && is_flag_of_others(&given) {
                error.remove(ContextKind::SuggestedArg);
            }
            tip
        }
        ErrorKind::InvalidSubcommand => {
            let given = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let tip = find(&COMMANDS, &given).map(str::to_owned);
            if tip.is_some() {
                error.remove(ContextKind::SuggestedSubcommand);
                error.remove(ContextKind::Suggested);
            }
            tip
        }
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing))
                if missing.iter().any(|it| it.starts_with("--token")) =>
            {
                let tip = "to ask the holder to let go, write --ask; to end the lease whoever \
                           holds it, --force";
                Some(tip.to_owned())
            }
            _ if is_run_without_command(args) => {
                Some("put `--` before the command: leasehold run NAME -- CMD ...".to_owned())
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(tip) = tip {
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tips);
    }
}

fn for_argument(given: &str, args: &[OsString]) -> Option<String> {
    let is = |arg: &OsString, word: &str| arg == OsStr::new(word);
    let command = args.iter().find_map(|arg| {
        let known = NAMED.iter().chain(&["ls"]);
        known.copied().find(|known| is(arg, known))
    });
    let has_end_of_flags = args.iter().any(|arg| is(arg, "--"));
    if !given.starts_with('-') {
        let verb = command.filter(|verb| ["run", "elect"].contains(verb) && !has_end_of_flags)?;
        return Some(format!("put `--` before the command: leasehold {verb} NAME -- {given} ..."));
    }
    if let Some(ours) = find(&FLAGS, given) {
        return Some(format!("use {ours}"));
    }
    match command {
        Some("ls") => Some(format!("if `{given}` is the pattern, write: leasehold ls -- {given}")),
        Some("run" | "elect") if !has_end_of_flags => Some(format!(
            "if `{given}` is the name of the lock, write --name={given}; if it belongs to the \
             command, put `--` before the command"
        )),
        Some(_) => Some(format!("if `{given}` is the name of the lock, write --name={given}")),
        None => None,
    }
}

/// `run x echo hi`: the words of the command look like names of locks.
fn is_run_without_command(args: &[OsString]) -> bool {
    let is = |word: &str| args.iter().any(|arg| arg == OsStr::new(word));
    is("run") && !is("--")
}

fn is_flag_of_others(given: &str) -> bool {
    find(&FLAGS, given).is_some()
}

fn find(table: &[(&[&str], &'static str)], given: &str) -> Option<&'static str> {
    let given = given.split('=').next().unwrap_or_default();
    table.iter().find(|(theirs, _)| theirs.contains(&given)).map(|(_, ours)| *ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;

    fn said(line: &str) -> String {
        parse(line.split(' ').map(OsString::from)).expect_err(line).message
    }

    #[test]
    fn a_tip_says_what_works() {
        for (line, tip) in [
            ("leasehold run x echo hi", "put `--` before the command: leasehold run NAME -- CMD"),
            ("leasehold run x", "put `--` before the command: leasehold run NAME -- CMD"),
            ("leasehold elect x echo hi", "put `--` before the command: leasehold elect NAME -- "),
            ("leasehold run -x -- true", "write --name=-x"),
            ("leasehold run -x true", "put `--` before the command"),
            ("leasehold inspect -x", "write --name=-x"),
            ("leasehold ls -x*", "leasehold ls -- -x"),
            ("leasehold run x --timeout 5 -- true", "use -w DUR or --wait DUR"),
            ("leasehold run x --timeout=5 -- true", "use -w DUR or --wait DUR"),
            ("leasehold acquire x --expiry 5", "use --ttl DUR"),
            ("leasehold run x --wiat 5 -- true", "'--wait'"),
            ("leasehold lock x", "`leasehold run NAME -- CMD` holds"),
            ("leasehold lead x", "`leasehold elect NAME -- CMD`"),
            ("leasehold list", "`leasehold ls`"),
            ("leasehold relase x", "'release'"),
            ("leasehold unlock x --why y", "write --ask; to end"),
        ] {
            let said = said(line);
            assert!(said.contains(tip), "{line}: {said}");
            for useless in ["'-- ", "'unlock'"] {
                assert!(!said.contains(useless), "{line}: {said}");
            }
        }
    }

    /// The parser accepts every command line that a tip suggests.
    #[test]
    fn what_a_tip_says_is_understood() {
        for line in [
            "leasehold run x -- echo hi",
            "leasehold run --name=-x -- true",
            "leasehold inspect --name=-x",
            "leasehold ls -- -x*",
            "leasehold run x --wait 5 -- true",
        ] {
            parse(line.split(' ').map(OsString::from)).expect(line);
        }
    }
}
