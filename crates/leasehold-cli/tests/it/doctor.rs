//! `leasehold doctor` names the fault of each real deployment that has one.

mod cluster;
mod more;
mod proxied;

use std::collections::BTreeSet;

use leasehold_testkit::servers::{FakeServer, RedisServer, RedisServerBuilder, Sentinels, version};
use serde_json::Value;

use crate::harness::{Done, World, finish, until};

/// A password that must never be shown.
const SECRET: &str = "hunter2";

/// The report of the command about a deployment.
struct Report {
    done: Done,
    object: Value,
}

/// Examines the stores of these URLs.
#[track_caller]
fn examine(urls: &[&str], flags: &[&str]) -> Report {
    let world = World::sqlite();
    let mut command = world.bare();
    command.env("LEASEHOLD_URL", urls.join(" ")).args(["doctor", "--json"]).args(flags);
    let done = finish(command);
    assert!(!done.stdout.contains(SECRET) && !done.stderr.contains(SECRET), "{done:?}");
    let object: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!(object["schema"], "leasehold.v1.doctor");
    Report { done, object }
}

impl Report {
    fn checks(&self) -> &[Value] {
        self.object["checks"].as_array().expect("checks")
    }

    /// The ids of the checks with this verdict.
    fn with(&self, verdict: &str) -> BTreeSet<&str> {
        let checks = self.checks().iter().filter(|check| check["verdict"] == verdict);
        checks.map(|check| check["id"].as_str().expect("an id")).collect()
    }

    /// Asserts that a check ended like this, with these words in its evidence or its remedy.
    #[track_caller]
    fn finds(&self, id: &str, verdict: &str, words: &str) -> &Self {
        let is_it = |check: &&Value| {
            let says = |name: &str| check[name].as_str().is_some_and(|text| text.contains(words));
            check["id"] == id && check["verdict"] == verdict && (says("evidence") || says("remedy"))
        };
        assert!(self.checks().iter().any(|check| is_it(&check)), "{id} {verdict}: {self:#?}");
        self
    }

    /// Asserts that nothing else has failed, and that the exit code says so.
    #[track_caller]
    fn fails_only(&self, ids: &[&str]) -> &Self {
        assert_eq!(self.with("fail"), ids.iter().copied().collect(), "{self:#?}");
        self.done.code(if ids.is_empty() { 0 } else { 2 });
        self
    }

    fn has(&self, list: &str, event: &str) -> bool {
        let events = self.object[list].as_array().expect("events");
        events.iter().any(|it| it.as_str().is_some_and(|it| it.contains(event)))
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}\n{:#}", self.done.status, self.object)
    }
}

fn server(lines: &[(&str, &str)]) -> RedisServer {
    let add =
        |builder: RedisServerBuilder, (name, value): &(&str, &str)| builder.config(name, value);
    lines.iter().fold(RedisServer::builder(), add).start()
}

fn of_user(server: &RedisServer, user: &str) -> String {
    format!("redis://{user}:{SECRET}@127.0.0.1:{}", server.port())
}

/// The URL of a user with these rules.
fn user(server: &RedisServer, rules: &str) -> String {
    let rule = format!("ACL SETUSER app on >{SECRET} resetchannels {rules}");
    server.command(&rule.split(' ').collect::<Vec<_>>());
    of_user(server, "app")
}

/// Starts a replica of a server, and waits until both are in step.
fn replica_of(primary: &RedisServer) -> RedisServer {
    primary.command(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let replica = server(&[("replicaof", &format!("127.0.0.1 {}", primary.port()))]);
    primary.command(&["SET", "step", "1"]);
    until("the replica is in step", || {
        let said = replica.command(&["INFO", "replication"]).text();
        said.contains("master_link_status:up")
            && replica.try_command(&["EXISTS", "step"]).is_ok_and(|seen| seen.int() == 1)
    });
    replica
}

#[test]
fn a_healthy_server_passes_and_keeps_nothing_of_the_examination() {
    let server = server(&[("requirepass", SECRET), ("appendonly", "yes")]);
    let url = format!("redis://:{SECRET}@127.0.0.1:{}", server.port());
    let report = examine(&[&url], &["--ttl", "1m"]);
    report.fails_only(&[]);
    assert_eq!(report.with("unknown"), BTreeSet::new(), "{report:#?}");
    // The server has just started, and may be an old one.
    let warned = report.with("warn");
    assert!(warned.is_subset(&BTreeSet::from(["powers", "restart", "version"])), "{report:#?}");
    assert!(report.has("survives", "a restart of the server"));
    assert!(report.has("does_not_survive", "a power loss of the server"));
    assert_eq!(report.object["fencing"], true);
    for check in report.checks() {
        let fields: BTreeSet<_> = check.as_object().expect("an object").keys().collect();
        let expected = ["evidence", "id", "node", "remedy", "verdict", "why"];
        assert!(fields.into_iter().eq(expected.iter()), "{check}");
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), 0, "nothing is left");
    assert!(report.done.stderr.is_empty(), "{}", report.done.stderr);
    // A server that has just started is a warning, which `--strict` turns into a failure.
    examine(&[&url], &["--ttl", "1m", "--strict"])
        .finds("restart", "warn", "wait for")
        .done
        .code(1);
}

#[test]
fn people_read_a_paragraph_for_each_store_and_what_the_lock_survives() {
    let world = World::redis();
    let done = finish(world.leasehold(["doctor"]));
    done.code(0);
    let lines: Vec<_> = done.stdout.lines().collect();
    assert_eq!(lines[0], world.label());
    let at = lines.iter().position(|line| line.starts_with("  WARN    persistence"));
    let at = at.unwrap_or_else(|| panic!("{}", done.stdout));
    assert!(lines[at + 1].starts_with("          why: "), "{}", done.stdout);
    assert!(lines[at + 2].contains("fix: CONFIG SET appendonly yes"), "{}", done.stdout);
    assert!(lines.contains(&"In this deployment the lock survives:"), "{}", done.stdout);
    assert!(lines.contains(&"It does not survive:"), "{}", done.stdout);
    assert_eq!(lines.last(), Some(&"Use fencing: yes"));
}

#[test]
fn a_server_that_may_evict_locks_fails() {
    for policy in ["allkeys-lru", "volatile-lru"] {
        let server = server(&[("maxmemory", "100mb"), ("maxmemory-policy", policy)]);
        let report = examine(&[&server.url()], &[]);
        report.fails_only(&["eviction"]).finds("eviction", "fail", policy);
        assert!(report.has("does_not_survive", "drops keys"), "{report:#?}");
    }
}

#[test]
fn a_server_without_memory_fails() {
    let server = server(&[("maxmemory-policy", "noeviction")]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let report = examine(&[&server.url()], &[]);
    report.fails_only(&["writes"]).finds("writes", "fail", "OOM");
    report.finds("memory", "warn", "CONFIG SET maxmemory");
    assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
}

#[test]
fn a_server_without_a_file_and_without_a_password_is_warned_of() {
    let server = RedisServer::start();
    let report = examine(&[&server.url()], &[]);
    report.fails_only(&[]).finds("persistence", "warn", "CONFIG SET appendonly yes");
    report.finds("login", "warn", "without a password");
    assert!(report.has("does_not_survive", "a restart of the server"), "{report:#?}");
    let strict = examine(&[&format!("{}?strict=yes", server.url())], &[]);
    strict.finds("persistence", "ok", "strict mode covers a restart");
    // Nobody has switched the database, so clients that are not strict are not kept out.
    strict.finds("strict", "warn", "leasehold strict on").fails_only(&[]);
    server.command(&["HSET", ":lh:epoch", "switch", "on 1 anna@web-3 "]);
    let refused = examine(&[&format!("{}?strict=no", server.url())], &[]);
    refused.fails_only(&["strict"]).finds("strict", "fail", "leasehold strict off");
    let silent = examine(&[&server.url()], &[]);
    silent.fails_only(&[]).finds("persistence", "warn", "add `?strict=yes`");
    silent.finds("strict", "warn", "the first one waits").finds("strict", "warn", "strict=yes");
    assert!(silent.has("does_not_survive", "a restart of the server"), "{silent:#?}");
    assert!(strict.has("survives", "a restart of the server"), "{strict:#?}");
}

/// A directory is in the place of its snapshot file.
#[test]
fn a_server_that_cannot_save_its_data_fails() {
    let server = RedisServer::start();
    std::fs::create_dir(server.path("dump.rdb")).expect("a directory");
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    server.command(&["SET", "something", "to save"]);
    server.command(&["BGSAVE"]);
    until("it has failed", || {
        server.command(&["INFO", "persistence"]).text().contains("rdb_last_bgsave_status:err")
    });
    let report = examine(&[&server.url()], &[]);
    report.fails_only(&["reachable"]).finds("reachable", "fail", "MISCONF");
    report.finds("reachable", "fail", "check its disk");
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let report = examine(&[&server.url()], &[]);
    report.fails_only(&[]).finds("saving", "warn", "rdb_last_bgsave_status");
}

#[test]
fn a_replica_fails_and_its_primary_is_warned_of() {
    let primary = RedisServer::start();
    let replica = replica_of(&primary);
    let report = examine(&[&replica.url()], &[]);
    report.fails_only(&["role", "writes"]).finds("role", "fail", &primary.port().to_string());
    let report = examine(&[&primary.url()], &[]);
    report.fails_only(&[]).finds("replicas", "warn", "replicas: 1");
    report.finds("min-replicas", "warn", "CONFIG SET min-replicas-to-write 1");
    primary.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let url = format!("{}?replicas=majority", primary.url());
    // A replica of a busy machine may be late once.
    until("the replica confirms in time", || examine(&[&url], &[]).with("ok").contains("replicas"));
    examine(&[&url], &[]).finds("min-replicas", "ok", "is set");
}

#[test]
fn a_server_that_does_not_make_the_copies_of_the_url_fails() {
    let (server, has_waitaof) = (RedisServer::start(), version() >= (7, 2));
    for (option, words) in [
        ("replicas=1", "at 1 of the replicas, and 0"),
        ("replicas=majority", "at 1 of the replicas, and 0"),
        ("fsync=yes", if has_waitaof { "no append-only file" } else { "Redis 7.2" }),
    ] {
        let report = examine(&[&format!("{}?{option}", server.url())], &[]);
        report.fails_only(&["copies"]).finds("copies", "fail", words);
        assert!(report.object["survives"].as_array().is_some_and(Vec::is_empty), "{report:?}");
    }
    let _replica = replica_of(&server);
    let url = format!("{}?replicas=1", server.url());
    // A replica of a busy machine may be late once.
    until("the replica confirms in time", || examine(&[&url], &[]).with("ok").contains("copies"));
}

#[test]
fn a_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let without = |rights: &str| examine(&[&user(&server, &format!("~* &* +@all {rights}"))], &[]);
    let report = without("-eval -evalsha");
    // On such a server, locks without a line and fencing tokens work without scripts.
    let is_native = server.try_command(&["DELIFEQ", "nobody", "x"]).is_ok();
    let (verdict, fails) =
        if is_native { ("warn", &[][..]) } else { ("fail", &["release", "rights"][..]) };
    report.fails_only(fails);
    report.finds("release", verdict, "").finds("rights", verdict, "ACL SETUSER app +eval +evalsha");
    let report = without("-publish");
    report.fails_only(&[]).finds("wake-up", "warn", "+publish");
    let report = without("-info");
    report.fails_only(&[]).finds("eviction", "unknown", "ACL SETUSER app +info");
    report.finds("memory", "unknown", "ACL SETUSER app +info");
}

#[test]
fn a_user_with_a_prefix_is_examined_within_its_namespace() {
    let server = RedisServer::start();
    let world = World::sqlite();
    let mut command = world.bare();
    command.args(["doctor", "--url", &of_user(&server, "app"), "--print-acl", "app:"]);
    let rule = finish(command);
    rule.code(0);
    assert!(!rule.stdout.contains(SECRET), "{}", rule.stdout);
    // A server before 7.0 knows no subcommands here.
    let rule = rule.stdout.trim().replace("PASSWORD", SECRET).replace(" +client|tracking", "");
    server.command(&rule.split(' ').collect::<Vec<_>>());
    let url = of_user(&server, "app");
    // These are locks of others, which this user has no right to read.
    server.command(&["SET", "other", "1"]);
    server.command(&["SET", "{other}:lh:fence", "1"]);
    server.command(&["SET", "app:a", "1"]);
    server.command(&["SET", "{app:a}:lh:fence", "1"]);
    let report = examine(&[&url], &["--namespace", "app"]);
    report.finds("leftovers", "warn", "of 1 locks in a sample, these have no ttl: `app:a`");
    report.fails_only(&[]).finds("rights", "ok", "`app`").finds("wake-up", "ok", "arrived");
    let rights = "~app:* ~{app:* &* +@all";
    server.command(&["ACL", "DELUSER", "app"]);
    let report = examine(&[&user(&server, rights)], &[]);
    report.fails_only(&[]).finds("writes", "unknown", "--namespace");
}

#[test]
fn a_clock_that_stands_still_fails() {
    let server = RedisServer::builder().with_clock().start();
    server.clock().freeze_at(1_800_000_000_000_000);
    let report = examine(&[&server.url()], &[]);
    // Valkey 9 adds the steady clock for a while, and then goes back.
    report.fails_only(&["clock", "expiry"]).finds("clock", "fail", "the server's clock");
    report.finds("clock-offset", "warn", "of this machine");
    assert_eq!(server.command(&["DBSIZE"]).int(), 0, "nothing is left");
}

#[test]
fn a_node_of_a_cluster_that_is_named_as_a_single_server_fails() {
    // A server listens for the other nodes at its port plus 10000. A newer server can be told
    // another port, so use the port of a killed server, which stays reserved.
    let other = RedisServer::start();
    other.kill();
    let mut lines = vec![("cluster-enabled", "yes")];
    let port = other.port().to_string();
    if version() >= (7, 0) {
        lines.push(("cluster-port", &port));
    }
    let server = server(&lines);
    let report = examine(&[&server.url()], &[]);
    report.finds("mode", "fail", "node of a cluster").done.code(2);
}

#[test]
fn nodes_of_a_quorum_that_are_one_server_fail() {
    let [one, other] = [RedisServer::start(), RedisServer::start()];
    let report = examine(&[&one.url(), &other.url(), &one.url()], &[]);
    report.fails_only(&["independent-nodes"]).finds("independent-nodes", "fail", "appears at");
    assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
    let report = examine(&[&one.url(), &other.url(), &format!("{}/3", one.url())], &[]);
    report.fails_only(&["independent-nodes"]).finds("independent-nodes", "fail", "one process");
    let replica = replica_of(&one);
    let report = examine(&[&one.url(), &other.url(), &replica.url()], &[]);
    report.fails_only(&["independent-nodes", "role", "writes"]);
    report.finds("independent-nodes", "fail", "are one history");
}

#[test]
fn an_even_number_of_nodes_is_named_and_an_odd_one_survives_a_loss() {
    let servers = [(); 4].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let urls = urls.each_ref().map(String::as_str);
    let report = examine(&urls, &[]);
    report.fails_only(&[]).finds("quorum-size", "warn", "name 3 servers");
    let report = examine(&urls[..2], &[]);
    report.fails_only(&[]).finds("quorum-size", "warn", "name three servers");
    let strict = format!("{}?strict=yes", urls[0]);
    let report = examine(&[&strict, urls[1], urls[2]], &[]);
    report.fails_only(&["same-terms"]);
    assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
    let report = examine(&urls[..3], &[]);
    report.fails_only(&[]).finds("independent-nodes", "ok", "stays at that node");
    report.finds("distinct-hosts", "warn", "3 of 3 nodes");
    assert!(report.has("survives", "the loss of a minority"), "{report:#?}");
    servers[0].kill();
    let report = examine(&urls[..3], &[]);
    report.fails_only(&["reachable"]);
    assert!(report.has("survives", "the crash of a holder"), "two of three still grant");
}

#[test]
fn sentinels_that_are_slow_to_notice_a_failure_are_named() {
    let sentinels = Sentinels::builder().start();
    let report = examine(&[&sentinels.url()], &[]);
    report.fails_only(&[]).finds("down-after", "ok", "300 ms");
    report.finds("sentinels", "ok", "3 of 3 sentinels answer");
    let slow = Sentinels::builder().line("sentinel down-after-milliseconds locks 60000").start();
    let report = examine(&[&slow.url()], &[]);
    report.fails_only(&[]).finds("down-after", "warn", "down-after-milliseconds 5000");
}

#[test]
fn a_server_that_cannot_be_used_fails_with_the_reason_and_without_a_hang() {
    let guarded = server(&[("requirepass", "other")]);
    let gone = RedisServer::start();
    gone.kill();
    let (http, silent) = (FakeServer::speaking_http(), FakeServer::silent());
    let hostile = FakeServer::answering("-ERR \u{1b}[31mred\u{7}\r\n");
    for (url, words) in [
        (gone.url(), "no server listens there"),
        (of_user(&guarded, "default"), "does not accept"),
        (guarded.url(), "requires a password"),
        (http.url(), "not a Redis or Valkey server"),
        (silent.url(), "does not answer within"),
        (hostile.url(), "\\u{1b}[31mred\\u{7}"),
    ] {
        let report = examine(&[&url], &[]);
        report.fails_only(&["reachable"]).finds("reachable", "fail", words);
        assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
        let world = World::sqlite();
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", &url).arg("doctor");
        let done = finish(command);
        let is_unseen = |c: char| c.is_control() && c != '\n';
        assert!(!done.stdout.contains(is_unseen), "{:?}", done.stdout);
        assert!(done.stdout.ends_with("Repair what failed, and run this again.\n"), "{done:?}");
        assert!(!done.stdout.contains("survive"), "the survival of faults is not known: {done:?}");
        done.code(2);
    }
}

#[test]
fn a_file_is_examined_before_and_after_it_is_made() {
    let world = World::sqlite();
    let url = world.url();
    let report = examine(&[&url], &[]);
    report.fails_only(&[]).finds("reachable", "ok", "the first lock makes it");
    assert!(!world.database().exists(), "an examination makes no store");
    finish(world.run("x", &[], "exit 0")).code(0);
    let report = examine(&[&url], &["--ttl", "1h"]);
    report.fails_only(&[]).finds("release", "ok", "the right one");
    assert_eq!(report.with("warn"), BTreeSet::new(), "{report:#?}");
    assert!(report.has("survives", "a restart of the machine"), "{report:#?}");
    // Nobody, not even the superuser, makes a file there.
    let report = examine(&["sqlite:/proc/locks.db"], &[]);
    report.fails_only(&["reachable", "writes"]).finds("writes", "fail", "no file can be made");
    report.finds("reachable", "fail", "none can be made");
    assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
    // `--print-acl` needs no server.
    let mut command = world.bare();
    command.args(["--namespace", "app", "doctor", "--print-acl=job-"]);
    let done = finish(command);
    assert!(done.code(0).stdout.contains("~app:job-* ~{app:job-*"), "{}", done.stdout);
    assert_eq!(done.stderr, "");
}

#[test]
fn a_lock_without_a_ttl_is_found() {
    let world = World::redis();
    finish(world.leasehold(["acquire", "stuck", "--ttl", "1m"])).code(0);
    world.server().command(&["PERSIST", "stuck"]);
    examine(&[&world.url()], &[]).fails_only(&[]).finds("leftovers", "warn", "`stuck`");
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let world = World::sqlite();
    for (args, code) in [
        (&["doctor", "--ttl", "1x"][..], 64),
        (&["doctor", "name"], 64),
        (&["doctor", "--ttl", "25h"], 78),
        (&["doctor", "--url", "redis://h:x"], 78),
        (&["doctor", "--url", "redis+cluster://h/1"], 78),
        (&["doctor", "--url", "redis://h", "--print-acl", "a b"], 78),
        (&["doctor", "--url", "postgres://h/d", "--print-acl", "a"], 78),
    ] {
        let mut command = world.bare();
        command.args(args);
        finish(command).code(code);
    }
}
