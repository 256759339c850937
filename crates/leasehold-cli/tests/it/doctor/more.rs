//! `leasehold doctor` names users, certificates, other software and sentinels that endanger locks.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use leasehold_testkit::servers::Authority;

use super::*;

#[test]
fn a_user_that_can_end_all_locks_is_named() {
    let server = RedisServer::start();
    let report = examine(&[&server.url()], &[]);
    report.finds("powers", "warn", "`default` may run FLUSHALL and CONFIG SET");
    server.command(&["SET", "kept", "1"]);
    let report = examine(&[&user(&server, "~* &* +@all -config")], &[]);
    report.fails_only(&[]).finds("powers", "warn", "`app` may run FLUSHALL");
    assert_eq!(server.command(&["EXISTS", "kept"]).int(), 1, "nothing was run");
    let report = examine(&[&user(&server, "-config -flushall")], &[]);
    report.fails_only(&[]).finds("powers", "ok", "neither FLUSHALL nor CONFIG SET");
    let report = examine(&[&user(&server, "-acl")], &[]);
    report.fails_only(&[]).finds("powers", "unknown", "ACL DRYRUN app FLUSHALL");
}

#[test]
fn locks_of_other_software_and_locks_for_days_are_named() {
    let world = World::redis();
    finish(world.leasehold(["acquire", "ours", "--ttl", "1m"])).code(0);
    finish(world.leasehold(["acquire", "theirs", "--ttl", "1m"])).code(0);
    let report = examine(&[&world.url()], &[]);
    report.fails_only(&[]).finds("foreign-holders", "ok", "no lock of 2");
    report.finds("leftovers", "ok", "each of 2 locks");
    // This is the recipe of many libraries, each with its own kind of value.
    world.server().command(&["SET", "theirs", "a-random-value", "PX", "90000000"]);
    let report = examine(&[&world.url()], &[]);
    report.fails_only(&[]).finds("foreign-holders", "warn", "1 have holders with other software");
    report.finds("foreign-holders", "warn", "`theirs`");
    report.finds("leftovers", "warn", "more than 24 h: `theirs`");
}

#[test]
fn a_lock_for_an_hour_or_for_a_day_is_no_leftover() {
    let world = World::redis();
    finish(world.leasehold(["acquire", "hour", "--ttl", "1h"])).code(0);
    finish(world.leasehold(["acquire", "day", "--ttl", "24h"])).code(0);
    let report = examine(&[&world.url()], &[]);
    report.fails_only(&[]).finds("leftovers", "ok", "each of 2 locks");
}

#[test]
fn a_small_buffer_for_messages_is_named() {
    let server = server(&[("client-output-buffer-limit", "pubsub 64kb 16kb 60")]);
    let report = examine(&[&server.url()], &[]);
    report.fails_only(&[]).finds("message-buffer", "warn", "64 KiB of unread messages");
    server.command(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 32mb 8mb 60"]);
    examine(&[&server.url()], &[]).finds("message-buffer", "ok", "32 MiB");
}

#[test]
fn a_certificate_that_expires_soon_is_warned_of_with_tls() {
    let authority = Authority::new();
    for (days, verdict, words) in
        [(-1..20, "warn", "expires within 30 days"), (-1..40, "ok", "30 more days")]
    {
        let identity = authority.issue_for("server", &["127.0.0.1"], days);
        let server = RedisServer::builder().with_tls(&identity, &authority).start();
        let url = format!("{}?ca={}", server.tls_url(), authority.ca().display());
        examine(&[&url], &[]).fails_only(&[]).finds("certificate", verdict, words);
        assert!(!examine(&[&server.url()], &[]).with("ok").contains("certificate"));
    }
}

#[test]
fn nodes_of_a_quorum_with_other_settings_are_named() {
    let servers = [(); 3].map(|()| RedisServer::start());
    servers[1].command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    servers[2].command(&["CONFIG", "SET", "appendonly", "yes"]);
    let urls = servers.each_ref().map(RedisServer::url);
    let report = examine(&urls.each_ref().map(String::as_str), &[]);
    report.fails_only(&[]).finds("same-settings", "warn", "has `volatile-lru`");
    report.finds("same-settings", "warn", "has `no append-only file`");
    servers[1].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    servers[2].command(&["CONFIG", "SET", "appendonly", "no"]);
    let report = examine(&urls.each_ref().map(String::as_str), &[]);
    report.finds("same-settings", "ok", "in the same way");
}

#[test]
fn a_sentinel_that_names_another_primary_fails() {
    let sentinels = Sentinels::builder().start();
    let report = examine(&[&sentinels.url()], &[]);
    report.fails_only(&[]).finds("one-primary", "ok", "all sentinels name");
    let (other, url) = (RedisServer::start(), sentinels.url());
    let name = url.rsplit('/').next().expect("a name");
    let port = other.port();
    let mut one =
        TcpStream::connect(("127.0.0.1", sentinels.sentinels()[0].port())).expect("it listens");
    let told = format!("SENTINEL REMOVE {name}\r\nSENTINEL MONITOR {name} 127.0.0.1 {port} 2\r\n");
    one.write_all(told.as_bytes()).expect("it listens");
    let mut answers = [0; 10];
    one.read_exact(&mut answers).expect("it answers");
    assert_eq!(&answers, b"+OK\r\n+OK\r\n");
    let report = examine(&[&url], &[]);
    report.finds("one-primary", "fail", &port.to_string()).done.code(2);
}
