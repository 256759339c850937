//! How names, texts and tokens from other clients are shown.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use serde_json::Value;

use crate::harness::{World, finish, start, start_with_stderr, until};

on_every_store! {
    nothing_that_cannot_be_seen_reaches_a_terminal_or_a_log,
    a_user_without_variables_is_shown_by_name,
}

const UNSEEN: [char; 6] = ['\u{9b}', '\u{202e}', '\u{61c}', '\u{200b}', '\u{feff}', '\u{7f}'];

fn nothing_that_cannot_be_seen_reaches_a_terminal_or_a_log(world: &World) {
    let name = "a\u{202e}b\u{61c}c\u{200b}";
    let why: String = UNSEEN.iter().flat_map(|c| ['x', *c]).collect();
    let mut holder = start(world.run(name, &["--why", &why], "echo up; read line"));
    holder.expect("up");
    for args in [&["inspect", name][..], &["ls"], &["run", name, "-n", "--", "true"]] {
        for flags in [&[][..], &["--json"], &["-vvv"], &["-vvv", "--json"]] {
            let mut command = world.leasehold(flags);
            command.args(args);
            let done = finish(command);
            for text in [&done.stdout, &done.stderr] {
                assert!(!text.contains(UNSEEN), "{args:?} {flags:?}: {text:?}");
            }
        }
    }
    let seen = finish(world.leasehold(["inspect", name, "--json"]));
    assert!(seen.stdout.contains("\\u202e") && seen.stdout.contains("\\u009b"), "{}", seen.stdout);
    let seen: Value = serde_json::from_str(&seen.stdout).expect("JSON");
    assert_eq!((&seen["name"], &seen["holders"][0]["why"]), (&name.into(), &why.into()));
    drop(holder.end());
}

fn a_user_without_variables_is_shown_by_name(world: &World) {
    let mut command = world.run("x", &[], "echo up; read line");
    command.env_remove("USER").env_remove("LOGNAME");
    let mut holder = start(command);
    holder.expect("up");
    let mut id = std::process::Command::new("id");
    id.arg("-un");
    let name = finish(id).stdout;
    assert_eq!(world.inspect("x")["holders"][0]["user"], name.trim_end());
    drop(holder.end());
}

/// Node.js and ssh leave such pipes to their children.
#[test]
fn a_stderr_that_others_made_non_blocking_gets_whole_lines_and_loses_none() {
    let world = World::sqlite();
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).expect("a pipe");
    fcntl_setpipe_size(&writer, 4_096).expect("the smallest pipe");
    rustix::io::write(&writer, "{}\n".repeat(1_200).as_bytes()).expect("there is room");
    // The lease is renewed each second.
    let script = "sleep 2.3; echo > $1/late; sleep 1";
    let command = world.run("x", &["-vvv", "--json", "--ttl", "3s"], script);
    let mut run = start_with_stderr(command, Stdio::from(writer));
    // Nobody reads until some messages have met a full pipe.
    until("messages were written", || world.path("late").exists());
    let mut text = String::new();
    rustix::io::ioctl_fionbio(&reader, false).expect("our own pipe");
    File::from(reader).read_to_string(&mut text).expect("text");
    assert!(run.exit().success());
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let renewals = lines.filter(|line| line["message"] == "renewed");
    let renewals: Vec<_> = renewals.filter_map(|it| it["fields"]["renewals"].as_u64()).collect();
    assert!(
        renewals.len() >= 2 && renewals.iter().copied().eq(1..=renewals.len() as u64),
        "{text}"
    );
    assert!(text.contains("\"message\":\"released\""), "the last line: {text}");
}

#[test]
fn a_foreign_token_is_shown_so_that_it_can_be_named() {
    let world = World::redis();
    for (token, hint) in [
        (&b"\xff\x1babcdefghijklmnop"[..], "0xff1b6162"),
        (b"\xff", "0xff"),
        (b"locked", "lo"),
        (b"1", "1"),
        (b"somebody-elses-token", "some"),
    ] {
        world.server().command(&[&b"SET"[..], b"x", token, b"PX", b"3600000"]);
        assert_eq!(world.inspect("x")["holders"][0]["token_hint"], hint);
        let seen = finish(world.leasehold(["inspect", "x"]));
        assert!(seen.code(0).stdout.contains(&format!("token    {hint}…")), "{}", seen.stdout);
        let unlock = |hint: &str| {
            let args = ["unlock", "x", "--yes", "--why", "the test", "--token", hint];
            finish(world.leasehold(args))
        };
        unlock("0xabcdef").code(75);
        unlock(hint).code(0);
        assert_eq!(world.state("x"), "free");
    }
}

#[test]
fn data_of_another_type_is_refused_without_a_word_of_our_scripts() {
    let world = World::redis();
    world.server().command(&["LPUSH", "x", "data"]);
    for flags in [&["-n"][..], &[]] {
        let done = finish(world.run("x", flags, "exit 0"));
        done.code(78).says("not a lock of this kind").says("WRONGTYPE Operation against a key");
        for internal in ["script:", "user_script", "f_"] {
            assert!(!done.stderr.contains(internal), "{}", done.stderr);
        }
    }
}
