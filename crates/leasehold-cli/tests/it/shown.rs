//! How names, texts and tokens from other clients are shown.

use serde_json::Value;

use crate::harness::{World, finish, start};

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
