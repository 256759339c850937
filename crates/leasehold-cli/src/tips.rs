//! Tips for command lines that users of other tools write.

use std::ffi::{OsStr, OsString};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::duration;
use crate::environment::distance;
use crate::output::shell_word;

/// Commands of other tools, and our equivalents.
const COMMANDS: [(&[&str], &str); 8] = [
    (
        &["lock", "exec", "with", "with-lock", "hold", "do", "flock"],
        "`leasehold run NAME -- CMD` holds a lock while CMD runs, `leasehold acquire NAME \
         --ttl DUR` takes one for a script",
    ),
    (&["list", "status", "locks", "ps", "top"], "`leasehold ls` lists the locks"),
    (
        &["show", "info", "get", "who", "describe", "state", "check"],
        "`leasehold inspect NAME` shows one lock",
    ),
    (
        &["try", "trylock", "try-lock", "take", "get-lock"],
        "`leasehold run -n NAME -- CMD` and `leasehold acquire -n NAME --ttl DUR` do not wait",
    ),
    (
        &["election", "campaign", "lead", "leader", "observe"],
        "`leasehold elect NAME -- CMD` runs CMD on one of many machines",
    ),
    (&["extend", "refresh", "keepalive", "touch"], "`leasehold renew NAME` restarts the ttl"),
    (&["free", "drop"], "`leasehold release NAME` releases a lock that `acquire` took"),
    (
        &["break", "break-lock", "force-unlock", "steal", "kill", "delete", "del", "rm"],
        "`leasehold unlock NAME --force --why TEXT` ends the lease of a holder that is dead",
    ),
];

/// A flag or a word of our own, and what other tools call it.
struct Equivalent {
    theirs: &'static [&'static str],
    ours: &'static str,
    /// The id of the argument. A command without such an argument gets no tip.
    id: &'static str,
}

/// Flags of other tools, and our equivalents.
const FLAGS: [Equivalent; 6] = [
    Equivalent {
        theirs: &["--timeout", "--max-wait", "--lock-wait", "--retry", "--block"],
        ours: "-w DUR or --wait DUR",
        id: "wait",
    },
    Equivalent {
        theirs: &[
            "--lease",
            "--lease-time",
            "--expire",
            "--expires",
            "--expiry",
            "--expiration",
            "--px",
        ],
        ours: "--ttl DUR",
        id: "ttl",
    },
    Equivalent {
        theirs: &["--try", "--nb", "--no-wait", "--nowait", "--non-block", "--fail-fast"],
        ours: "-n",
        id: "nonblock",
    },
    Equivalent {
        theirs: &["--host", "--server", "--redis", "--endpoint", "--address", "--store"],
        ours: "--url URL",
        id: "url",
    },
    Equivalent {
        theirs: &["--key", "--lock", "--lock-name", "--id"],
        ours: "NAME without a flag, or --name=NAME",
        id: "flagged",
    },
    Equivalent {
        theirs: &["--command", "--cmd", "--exec", "-c"],
        ours: "-- CMD at the end, or -- sh -c '...' for a shell",
        id: "command",
    },
];

/// The longest word to compare with our commands.
const COMMAND_MAX: usize = 16;

/// Removes tips that cannot work, and adds one that can. `ours` is our command line.
pub(crate) fn mend(error: &mut Error, args: &[OsString], mut ours: Command) {
    // This adds the global flags to each command.
    ours.build();
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            let given = text(ContextKind::InvalidArg).unwrap_or_default();
            // `-- -x` would be read as the command, not as a name.
            error.remove(ContextKind::Suggested);
            let tip = for_argument(&given, args, &ours);
            if tip.is_some() && equivalent(&given).is_some() {
                error.remove(ContextKind::SuggestedArg);
            }
            tip
        }
        ErrorKind::InvalidSubcommand => {
            let given = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            let known = COMMANDS.iter().find(|(theirs, _)| theirs.contains(&&*given));
            let tip = known.map(|(_, ours)| (*ours).to_owned());
            if tip.is_some() {
                error.remove(ContextKind::SuggestedSubcommand);
                error.remove(ContextKind::Suggested);
            } else if error.get(ContextKind::SuggestedSubcommand).is_none()
                && let Some(meant) = one_mistake_away(&given, &ours)
            {
                let meant = ContextValue::Strings(vec![meant]);
                error.insert(ContextKind::SuggestedSubcommand, meant);
            }
            tip
        }
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing))
                if missing.iter().any(|it| it.starts_with("--token")) =>
            {
                let tip = "to ask the holder to let go, write --ask; to end the lease, write \
                           --force";
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

/// Our command that differs by one mistake. clap finds none for a short one, such as `rnu`.
fn one_mistake_away(given: &str, ours: &Command) -> Option<String> {
    let letters = |text: &str| text.chars().collect::<Vec<_>>();
    let given = Some(letters(given)).filter(|given| given.len() <= COMMAND_MAX)?;
    let is_near = |name: &&str| distance(&given, &letters(name)) == 1;
    ours.get_subcommands().map(Command::get_name).find(is_near).map(str::to_owned)
}

fn for_argument(given: &str, args: &[OsString], ours: &Command) -> Option<String> {
    let is = |arg: &OsString, word: &str| arg == OsStr::new(word);
    let has = |command: &Command, id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    // The command that takes the name of a lock, or a pattern.
    let is_of_locks = |it: &&Command| has(it, "flagged") || has(it, "pattern");
    let command = args.iter().find_map(|arg| ours.find_subcommand(arg).filter(is_of_locks));
    let has_end_of_flags = args.iter().any(|arg| is(arg, "--"));
    if let Some(time) = time_after_n(args)
        && time.starts_with(given.trim_start_matches('-'))
    {
        return Some(format!("-n takes no duration; to wait, write -w {time} instead"));
    }
    if !given.starts_with('-') {
        return for_one_word_more(given, command?.get_name(), has_end_of_flags);
    }
    if let Some(equivalent) = equivalent(given) {
        return has(command?, equivalent.id).then(|| format!("use {}", equivalent.ours));
    }
    let word = whole_word(given, args);
    if word.contains('=') {
        // The word is a flag with a value, which may be secret.
        return None;
    }
    let name = shell_word(word);
    match command?.get_name() {
        "ls" => Some(format!("if `{name}` is the pattern, write: leasehold ls -- {name}")),
        "run" if has_end_of_flags => Some(format!(
            "if `{name}` is the name of a lock, write --name={name}, and use --name= for all names"
        )),
        "run" | "elect" if !has_end_of_flags => Some(format!(
            "if `{name}` is the name of the lock, write --name={name}; if it belongs to the \
             command, put `--` before the command"
        )),
        _ => Some(format!("if `{name}` is the name of the lock, write --name={name}")),
    }
}

/// The tip for an argument too many.
fn for_one_word_more(given: &str, command: &str, has_end_of_flags: bool) -> Option<String> {
    let tip = match command {
        "run" | "elect" if !has_end_of_flags => {
            format!("put `--` before the command: leasehold {command} NAME -- {given} ...")
        }
        // A shell makes several words of a pattern if files match it.
        "ls" => "`leasehold ls` takes one pattern; quote it, as in: leasehold ls 'a*'".to_owned(),
        "inspect" => "`leasehold inspect` takes one name; `leasehold ls 'a*'` lists all locks \
                      whose names begin with `a`"
            .to_owned(),
        "acquire" => "`leasehold acquire` takes one name; `leasehold run NAME NAME -- CMD` holds \
                      several locks while CMD runs"
            .to_owned(),
        _ => format!("`leasehold {command}` takes one name"),
    };
    Some(tip)
}

/// The time that somebody wrote after `-n`, which takes none: `-n 5` or `-n5`.
pub(crate) fn time_after_n(args: &[OsString]) -> Option<&str> {
    let words = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str());
    let is_time = |text: &&str| duration::parse(text).is_ok();
    let mut pairs = words.clone().zip(words.clone().skip(1));
    let next = pairs.find_map(|(flag, next)| (flag == "-n").then_some(next).filter(is_time));
    next.or_else(|| words.filter_map(|word| word.strip_prefix("-n")).find(is_time))
}

/// The whole word in which clap found an unknown flag. Of `-job` and `--a=b` it names only `-j` and
/// `--a`.
fn whole_word<'a>(given: &'a str, args: &'a [OsString]) -> &'a str {
    let letters = |word: &'a str| word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let is_it = |word: &&'a str| match letters(given) {
        Some(letter) => letters(word).is_some_and(|all| all.contains(letter)),
        None => word.split('=').next() == Some(given),
    };
    args.iter().filter_map(|arg| arg.to_str()).find(is_it).unwrap_or(given)
}

/// `run x echo hi`: the words of the command look like names of locks.
fn is_run_without_command(args: &[OsString]) -> bool {
    let is = |word: &str| args.iter().any(|arg| arg == OsStr::new(word));
    is("run") && !is("--")
}

fn equivalent(given: &str) -> Option<&'static Equivalent> {
    let given = given.split('=').next().unwrap_or_default();
    FLAGS.iter().find(|flag| flag.theirs.contains(&given))
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
            ("leasehold ls -x*", "leasehold ls -- '-x*'"),
            ("leasehold run -job -- true", "write --name=-job, and use --name="),
            ("leasehold run -job true", "write --name=-job; if it belongs"),
            ("leasehold release -a$b", "write --name='-a$b'"),
            ("leasehold resize -x --permits 3", "write --name=-x"),
            ("leasehold acquire x -n 5 --ttl 1m", "write -w 5 instead"),
            ("leasehold acquire x -n1m --ttl 1m", "write -w 1m instead"),
            ("leasehold run x -n5s -- true", "write -w 5s instead"),
            ("leasehold acquire x echo hi --ttl 1m", "`leasehold run NAME NAME -- CMD` holds"),
            ("leasehold elect x y -- true", "`leasehold elect` takes one name"),
            ("leasehold inspect a1 a2", "`leasehold ls 'a*'` lists all"),
            ("leasehold ls a1 a2", "quote it, as in: leasehold ls 'a*'"),
            ("leasehold rnu x -- true", "'run'"),
            ("leasehold elcet x -- true", "'elect'"),
            ("leasehold insepct x", "'inspect'"),
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

    #[test]
    fn a_command_without_such_a_flag_gets_no_tip() {
        for (line, no) in [
            ("leasehold elect x --timeout 5 -- true", "--wait DUR"),
            ("leasehold inspect x --lease 5", "--ttl"),
            ("leasehold ls --id x", "NAME"),
            ("leasehold renew x --nowait", "use -n"),
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument") && !said.contains(no), "{line}: {said}");
        }
        assert!(said("leasehold ls --host h").contains("use --url URL"));
        assert!(said("leasehold run x --permits 3 --weight y -- true").contains("such as 3"));
    }

    #[test]
    fn the_value_of_an_unknown_flag_is_not_repeated() {
        for line in [
            "leasehold run --ulr=redis://:hunter2@h x -- true",
            "leasehold run x --password=hunter2 -- true",
            "leasehold renew x --tokn=hunter2",
            "leasehold ls -p=hunter2",
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn the_command_of_each_tip_can_be_followed() {
        for (theirs, tip) in COMMANDS {
            for line in tip.split('`').skip(1).step_by(2) {
                let line = line.replace("DUR", "1m");
                let parsed = parse(line.split(' ').map(OsString::from));
                assert!(parsed.is_ok() || line == "acquire", "{theirs:?}: {line}: {parsed:?}");
            }
        }
    }

    /// The parser accepts every command line that a tip suggests.
    #[test]
    fn the_command_line_of_a_tip_is_understood() {
        for line in [
            "leasehold run x -- echo hi",
            "leasehold run --name=-x -- true",
            "leasehold inspect --name=-x",
            "leasehold run --name=-x --name=y -- true",
            "leasehold ls -- -x*",
            "leasehold run x --wait 5 -- true",
        ] {
            parse(line.split(' ').map(OsString::from)).expect(line);
        }
    }
}
