//! The log of `-v`, `-vv` and `-vvv`.

use serde_json::Value;

use crate::harness::{World, finish, start};

on_every_store! {
    each_level_shows_more_than_the_one_before,
    a_level_in_the_environment_shows_what_its_flag_does,
    a_misspelt_level_is_refused,
    the_name_of_a_crate_alone_is_answered_with_the_filter_for_it,
    a_log_in_json_has_fields,
}

fn each_level_shows_more_than_the_one_before(world: &World) {
    let log = |flag: &str| finish(world.run("x", &[flag], "exit 0")).stderr;
    let (first, second, third) = (log("-v"), log("-vv"), log("-vvv"));
    for (text, shows, hides) in [
        (&first, &["acquired", "waited_ms=", "released", "held_ms="][..], &["key=", "asks"][..]),
        (&second, &["acquired", "key=x", "token_hint=", "renewals=0", "released"], &["asks"]),
        (&third, &["acquired", "key=x", "asks", "the store answered", "released"], &[]),
    ] {
        for part in shows {
            assert!(text.contains(part), "`{part}` is not in:\n{text}");
        }
        for part in hides {
            assert!(!text.contains(part), "`{part}` is in:\n{text}");
        }
    }
    let mut holder = start(world.run("x", &["-vv", "--ttl", "1s"], "echo up; read line"));
    holder.expect("up");
    holder.expect_message("renewed");
    drop(holder.end());
}

fn a_level_in_the_environment_shows_what_its_flag_does(world: &World) {
    let mut run = world.run("x", &["--ttl", "1s"], "echo up; read line");
    run.env("LEASEHOLD_LOG", "debug");
    let mut holder = start(run);
    holder.expect("up");
    holder.expect_message("renewed");
    drop(holder.end());
}

fn a_misspelt_level_is_refused(world: &World) {
    let mut run = world.run("x", &[], "echo ran");
    run.env("LEASEHOLD_LOG", "inof");
    let done = finish(run);
    done.code(78).says("LEASEHOLD_LOG=`inof` is not a level").says("`info`");
    assert!(!done.stdout.contains("ran"), "{}", done.stdout);
}

fn the_name_of_a_crate_alone_is_answered_with_the_filter_for_it(world: &World) {
    world.make_store();
    let with = |filter: &str| {
        let mut ls = world.leasehold(["ls"]);
        ls.env("LEASEHOLD_LOG", filter);
        finish(ls)
    };
    with("h2").code(78).says("or `h2=debug` if that is a crate");
    with("h2=debug").code(0);
}

fn a_log_in_json_has_fields(world: &World) {
    let done = finish(world.run("x", &["-v", "--json"], "exit 0"));
    let events: Vec<Value> = done
        .code(0)
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let acquired = events.iter().find(|event| event["message"] == "acquired").expect("it was");
    assert_eq!(acquired["schema"], "leasehold.v1.log");
    assert_eq!(acquired["level"], "info");
    assert_eq!(acquired["fields"]["name"], "x");
    let fields = &acquired["fields"];
    assert!(fields["waited_ms"].is_u64() && fields["fence"].is_string(), "{acquired}");
    assert!(acquired["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{acquired}");
    let released = events.iter().find(|event| event["message"] == "released").expect("it was");
    assert!(released["fields"]["held_ms"].is_u64(), "{released}");
}
