//! How a command line is understood.

use clap::CommandFactory as _;
use leasehold::Coexist;

use super::*;
use crate::take::Wait;

fn parsed(line: &str) -> Result<Invocation, Failure> {
    match parse(line.split(' ').map(OsString::from))? {
        Parsed::Invocation(invocation) => Ok(*invocation),
        Parsed::Text(text, _) => panic!("{line}: {text}"),
    }
}

fn run(line: &str) -> Run {
    match parsed(line).expect(line).command {
        Command::Run(run) => run,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_grammar_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn run_waits_for_ever_unless_told_otherwise() {
    for (flags, wait) in [
        ("", Wait::ForEver),
        (" -n", Wait::Never),
        (" --nonblock", Wait::Never),
        (" -w 0", Wait::Never),
        (" -w 0.5", Wait::AtMost(Duration::from_millis(500))),
        (" --wait 1m30s", Wait::AtMost(Duration::from_secs(90))),
    ] {
        assert_eq!(run(&format!("leasehold run x{flags} -- true")).take.wait(), wait, "{flags}");
    }
}

#[test]
fn a_lock_is_shared_or_a_semaphore_and_not_both() {
    for line in [
        "leasehold run x --shared -- true",
        "leasehold run x -s -- true",
        "leasehold run x --permits 3 -- true",
        "leasehold run x --permits 3 --weight 2 -- true",
        "leasehold acquire x --ttl 1s --permits 3",
        "leasehold resize x --permits 3",
    ] {
        assert!(parsed(line).is_ok(), "{line}");
    }
    for line in [
        "leasehold run x --shared --permits 3 -- true",
        "leasehold run x --weight 2 -- true",
        "leasehold run x --permits -1 -- true",
        "leasehold run x --permits many -- true",
        "leasehold resize x",
    ] {
        assert_eq!(parsed(line).expect_err(line).exit, Exit::USAGE, "{line}");
    }
}

#[test]
fn a_negative_value_is_no_flag() {
    for (flags, part) in [
        ("--permits -1", "from 1 to 1000000"),
        ("--permits 3 --weight -1", "from 1 to 1000000"),
        ("-w -5", "span of time"),
        ("--once-per -1", "span of time"),
        ("--max-hold -1", "span of time"),
        ("--ttl -1", "span of time"),
    ] {
        let failure = parsed(&format!("leasehold run x {flags} -- true")).expect_err(flags);
        assert_eq!(failure.exit, Exit::USAGE, "{flags}");
        assert!(failure.message.contains(part), "{flags}: {}", failure.message);
    }
}

#[test]
fn a_lock_gives_other_libraries_a_chance_unless_told_otherwise() {
    for (flags, how) in [
        ("", Coexist::Auto),
        (" --coexist auto", Coexist::Auto),
        (" --coexist=on", Coexist::On),
        (" --coexist off", Coexist::Off),
        (" --shared", Coexist::Auto),
    ] {
        let take = run(&format!("leasehold run x{flags} -- true")).take;
        assert_eq!(take.coexisting.how(), how, "{flags}");
    }
    for flags in ["--coexist", "--coexist maybe", "--shared --coexist on"] {
        let line = format!("leasehold run x {flags} -- true");
        assert_eq!(parsed(&line).expect_err(&line).exit, Exit::USAGE, "{line}");
    }
}

#[test]
fn readers_have_no_weight() {
    let line = "leasehold run x --shared --weight 3 -- true";
    assert_eq!(parsed(line).expect_err(line).exit, Exit::USAGE);
}

#[test]
fn work_that_is_done_once_per_period_is_never_waited_for_or_shared() {
    let once = run("leasehold run x --once-per 1h -n -- true");
    assert_eq!(once.once_per.expect("a period").span, Duration::from_secs(3_600));
    let others = ["-w 1s", "--shared", "--permits 2", "--weight 2", "--coexist on"];
    for flags in others.into_iter().chain(["--once-per soon"]) {
        let period = if flags.starts_with("--once") { "" } else { "--once-per 1h " };
        let line = format!("leasehold run x {period}{flags} -- true");
        assert_eq!(parsed(&line).expect_err(&line).exit, Exit::USAGE, "{line}");
    }
    let line = "leasehold acquire x --ttl 1s --once-per 1h";
    assert_eq!(parsed(line).expect_err(line).exit, Exit::USAGE, "{line}");
}

#[test]
fn the_command_is_taken_as_it_is() {
    let run = run("leasehold run --ttl 3 x --why because -E 0 -- cmd -n --json -- x");
    assert_eq!(run.guarded.command, ["cmd", "-n", "--json", "--", "x"]);
    assert_eq!(run.guarded.ttl.span, Duration::from_secs(3));
    assert_eq!(run.take.taken(), Exit::Code(0));
    assert_eq!(run.guarded.stop_signal, Signal::TERM);
    assert_eq!(run.guarded.grace, None);
}

#[test]
fn global_flags_stand_anywhere_before_the_command() {
    for line in [
        "leasehold --json --url a: run x -- true",
        "leasehold run --json x --url a: -- true",
        "leasehold run x --url a: --json -- true",
    ] {
        let invocation = parsed(line).expect(line);
        assert!(invocation.globals.json, "{line}");
        assert_eq!(invocation.globals.store.urls, ["a:"], "{line}");
    }
}

/// clap drops or ignores the first ones.
#[test]
fn global_flags_on_both_sides_of_the_subcommand_count_together() {
    let urls = |line| parsed(line).expect(line).globals.store.urls;
    let quorum = "leasehold --url a: --url b: run x --url c: -- true";
    assert_eq!(urls(quorum), ["a:", "b:", "c:"]);
    assert_eq!(urls("leasehold --url a: run x -- leasehold --url b: ls"), ["a:"]);
    for (line, expected) in [
        ("leasehold --url a: strict --url b: on --url c: --why y", &["a:", "b:", "c:"][..]),
        ("leasehold strict --url a: on --url b: --why y", &["a:", "b:"]),
        ("leasehold --url a: strict --url b: status", &["a:", "b:"]),
        ("leasehold --url a: strict status", &["a:"]),
        ("leasehold strict --url a: status", &["a:"]),
        ("leasehold strict status --url a:", &["a:"]),
    ] {
        assert_eq!(urls(line), expected, "{line}");
    }
    for (line, part) in [
        ("leasehold --url a: run x --local -- true", "--local"),
        ("leasehold --url a: run x --url-file f -- true", "--url-file"),
        ("leasehold --url-file f run x --url-file g -- true", "once"),
        ("leasehold strict --namespace f status --namespace g", "once"),
        ("leasehold --namespace f run x --namespace g -- true", "once"),
        ("leasehold -q run x -v -- true", "-v"),
    ] {
        let refused = parsed(line).expect_err(line);
        assert!(refused.message.contains(part), "{line}: {}", refused.message);
        assert_eq!(refused.exit, Exit::USAGE, "{line}");
    }
}

#[test]
fn a_name_may_begin_with_a_hyphen() {
    for line in ["leasehold run --name=-x -- true", "leasehold run --name -x -- true"] {
        assert_eq!(*run(line).names, ["-x"], "{line}");
    }
    for line in ["acquire --ttl 1s", "renew", "release", "inspect", "unlock --force --why y"] {
        parsed(&format!("leasehold {line} --name=--ttl")).expect(line);
    }
}

#[test]
fn run_takes_several_names_and_no_other_command_does() {
    for line in [
        "leasehold run a b c -- cmd d",
        "leasehold run a -n b --ttl 3 c -- cmd d",
        "leasehold run --name=a --name=b --name c -- cmd d",
    ] {
        let run = run(line);
        assert_eq!(*run.names, ["a", "b", "c"], "{line}");
        assert_eq!(run.guarded.command, ["cmd", "d"], "{line}");
    }
    for line in [
        "acquire a b --ttl 1s",
        "renew a b",
        "release a b",
        "inspect a b",
        "unlock a b --force --why y",
        "run a --name=b -- true",
    ] {
        let line = format!("leasehold {line}");
        assert_eq!(parsed(&line).expect_err(&line).exit, Exit::USAGE, "{line}");
    }
}

/// Otherwise `run x -n 5` would take a second lock called `5`, and not wait.
#[test]
fn a_time_after_a_flag_that_takes_none_is_not_the_name_of_a_second_lock() {
    for line in ["run x -n 5 -- true", "run -n 1m30s x -- true", "run -n 5 x y -- true"] {
        let failure = parsed(&format!("leasehold {line}")).expect_err(line);
        assert_eq!(failure.exit, Exit::USAGE, "{line}");
        assert!(failure.message.contains("write -w "), "{line}: {}", failure.message);
    }
    for (line, names) in [
        ("run x 5 -n -- true", &["x", "5"][..]),
        ("run -n 5 -- true", &["5"]),
        ("run -n x y -- -n 5", &["x", "y"]),
    ] {
        assert_eq!(*run(&format!("leasehold {line}")).names, *names, "{line}");
    }
}

#[test]
fn several_locks_are_taken_as_a_whole() {
    for (flags, refused) in [("--shared", true), ("--permits 3", true), ("-n", false)] {
        let several = run(&format!("leasehold run a b {flags} -- true"));
        let answer = several.take.refuse_parts_of(&several.names);
        assert_eq!(answer.is_err(), refused, "{flags}");
        let one = run(&format!("leasehold run a {flags} -- true"));
        assert!(one.take.refuse_parts_of(&one.names).is_ok(), "{flags}");
    }
}

/// One token in 64 begins with a hyphen.
#[test]
fn a_token_may_begin_with_a_hyphen() {
    let Ok(Command::Renew(renew)) =
        parsed("leasehold renew x --token -pX --ttl 3").map(|it| it.command)
    else {
        panic!("renew")
    };
    assert_eq!(renew.token.as_deref(), Some("-pX"));
    parsed("leasehold release x --token --ttl").expect("release");
    parsed("leasehold unlock x --why y --token -pX --yes").expect("unlock");
}

#[test]
fn arguments_that_make_no_sense_are_a_usage_error() {
    for line in [
        "leasehold jump",
        "leasehold run",
        "leasehold run x",
        "leasehold run x --",
        "leasehold run x true",
        "leasehold run x -n -w 3 -- true",
        "leasehold run x -w soon -- true",
        "leasehold run x -E 256 -- true",
        "leasehold run x --stop-signal NOPE -- true",
        "leasehold run x --ttl -- true",
        "leasehold acquire x",
        "leasehold unlock x --why y",
        "leasehold unlock x --force",
        "leasehold unlock x --force --token a --why y",
        "leasehold ls --color maybe",
        "leasehold ls -q -v",
        "leasehold ls --url a: --url-file b",
        "leasehold ls --url a: --local",
        "leasehold run x --name=y -- true",
        "leasehold run -- true",
        "leasehold ls --watch 2s x",
        "leasehold elect x",
        "leasehold elect x --serve here -- true",
        "leasehold elect x -n -- true",
    ] {
        let failure = parsed(line).expect_err(line);
        assert_eq!(failure.exit, Exit::USAGE, "{line}");
        assert!(!failure.message.starts_with("error"), "{}", failure.message);
    }
}

#[test]
fn an_empty_command_line_is_answered_with_help_and_a_usage_error() {
    match parse(["leasehold"].map(OsString::from)) {
        Ok(Parsed::Text(text, Exit::USAGE)) => assert!(text.contains("Usage:"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn help_shows_the_exit_codes() {
    match parse(["leasehold", "--help"].map(OsString::from)) {
        Ok(Parsed::Text(text, Exit::OK)) => {
            assert!(text.contains("79      the lock was lost"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
