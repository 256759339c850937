//! URLs that do not fit their servers: each has its exit code, and words that say what to do.

use leasehold_testkit::servers::{Authority, Cluster, Identity, RedisServer, Sentinels};

use crate::harness::{World, finish, start, until};
use crate::redis::passwords::SECRET;

/// Asserts the exit code, and words with the reason and the next step. Asserts also that no command
/// was started, and that no secret is shown.
#[track_caller]
fn assert_refused(url: &str, code: i32, words: [&str; 2]) {
    let world = World::sqlite();
    for voice in [&[][..], &["--json", "-vv"]] {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", url).args(voice).args(["run", "x", "--", "touch", "began"]);
        let done = finish(command);
        done.code(code).says(words[0]).says(words[1]).says_that_nothing_happened();
        assert!(!done.stderr.contains(SECRET) && done.stdout.is_empty(), "{done:?}");
    }
    assert!(!world.path("began").exists());
}

/// A URL with a password that no server has been asked for.
fn with_secret(url: &str) -> String {
    url.replacen("//", &format!("//:{SECRET}@"), 1)
}

fn with_ca(url: &str, authority: &Authority) -> String {
    format!("{url}?ca={}", authority.ca().display())
}

fn with_tls(identity: &Identity, authority: &Authority) -> RedisServer {
    RedisServer::builder().with_tls(identity, authority).start()
}

#[test]
fn tls_certificates_that_prove_nothing_end_with_69() {
    let (ours, stranger) = (Authority::new(), Authority::new());
    let host = &["127.0.0.1"];
    for (identity, trusted, words) in [
        (ours.issue("other", host), &stranger, ["wrong signature", "`ca`"]),
        (ours.issue_for("old", host, -2..-1), &ours, ["has expired", "renew"]),
        (ours.issue("name", &["localhost"]), &ours, ["for another host", "`tls_name`"]),
    ] {
        let server = with_tls(&identity, &ours);
        assert_refused(&with_ca(&with_secret(&server.tls_url()), trusted), 69, words);
    }
}

#[test]
fn tls_and_no_tls_that_meet_end_with_69() {
    let authority = Authority::new();
    let server = with_tls(&authority.issue("server", &["127.0.0.1"]), &authority);
    let to_plain = with_secret(&server.url()).replacen("redis:", "rediss:", 1);
    assert_refused(
        &with_ca(&to_plain, &authority),
        69,
        ["does not answer the TLS handshake", "write `redis`"],
    );
    let to_tls = with_secret(&server.tls_url()).replacen("rediss:", "redis:", 1);
    assert_refused(&to_tls, 69, ["TLS", "`rediss://`"]);
}

#[test]
fn a_host_that_cannot_be_resolved_ends_with_69() {
    // No resolver is asked for this name, because a part of it is too long.
    let name = "x".repeat(64);
    for (scheme, path) in [("redis", ""), ("redis+sentinel", "/locks"), ("redis+cluster", "")] {
        let url = with_secret(&format!("{scheme}://{name}{path}"));
        assert_refused(&url, 69, ["cannot be resolved", "correct it in the URL"]);
    }
}

fn guarded_sentinels() -> Sentinels {
    Sentinels::builder()
        .password("one")
        .config("requirepass", "other")
        .config("masterauth", "other")
        .line("sentinel auth-pass locks other")
        .start()
}

#[test]
fn wrong_passwords_behind_sentinels_end_with_77() {
    let all = guarded_sentinels();
    let url = with_secret(&all.url());
    let server = format!("{url}?sentinel_password=one");
    assert_refused(&server, 77, ["does not accept this user and password", "correct"]);
    let sentinel = format!("{url}?sentinel_password={SECRET}");
    assert_refused(&sentinel, 77, ["does not accept this user and password", "correct"]);
    assert_refused(&url, 77, ["requires a password", "`?sentinel_password=`"]);
}

#[test]
fn sentinels_that_know_no_such_primary_and_servers_that_are_none_end_with_78() {
    let all = Sentinels::builder().replicas(0).start();
    let unknown = with_secret(&all.url()).replace("/locks", "/lokcs");
    assert_refused(&unknown, 78, ["the sentinels know no primary `lokcs`", "correct"]);
    let server = all.primary().port();
    let none = format!("redis+sentinel://127.0.0.1:{server}/locks");
    assert_refused(&with_secret(&none), 78, ["this is not a sentinel", "write `redis://`"]);
    let sentinel = format!("redis://127.0.0.1:{}", all.sentinels()[0].port());
    assert_refused(&sentinel, 78, ["sentinel", "write `redis+sentinel://`"]);
}

#[test]
fn a_replica_that_sentinels_name_ends_with_69() {
    let all = Sentinels::builder().replicas(0).start();
    let other = RedisServer::start();
    all.primary().command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    assert_refused(&all.url(), 69, ["is a replica", "try again"]);
}

#[test]
fn wrong_passwords_in_a_cluster_end_with_77() {
    let all = Cluster::builder().without_replicas().config("requirepass", "one").start();
    let url = with_secret(&all.url());
    assert_refused(&url, 77, ["does not accept this user and password", "correct"]);
    assert_refused(&all.url(), 77, ["requires a password", "`redis://:PASSWORD@HOST`"]);
}

#[test]
fn a_server_that_is_no_cluster_and_a_cluster_that_is_no_server_end_with_78() {
    let server = RedisServer::start();
    let url = server.url().replacen("redis:", "redis+cluster:", 1);
    assert_refused(&url, 78, ["not a node of a Redis Cluster", "write `redis://`"]);
    let all = Cluster::builder().without_replicas().start();
    let url = all.other_than(all.node_of("x")).url();
    assert_refused(&url, 78, ["cluster", "write `redis+cluster://`"]);
}

#[test]
fn a_cluster_that_is_down_ends_with_69() {
    let all = Cluster::builder().without_replicas().start();
    let having = all.node_of("x");
    for node in all.nodes().iter().filter(|node| node.port() != having.port()) {
        node.kill();
    }
    until("the cluster is down", || {
        having.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail")
    });
    assert_refused(&all.url(), 69, ["Cluster of this server is down", "`CLUSTER INFO`"]);
}

#[test]
fn a_slot_that_no_node_has_ends_with_69() {
    for full_coverage in ["yes", "no"] {
        let all = Cluster::builder()
            .without_replicas()
            .config("cluster-require-full-coverage", full_coverage)
            .start();
        let slot = all.slot_of("x").to_string();
        for node in all.nodes() {
            node.command(&["CLUSTER", "DELSLOTS", &slot]);
        }
        assert_refused(&all.url(), 69, ["does not serve this name", "`CLUSTER INFO`"]);
    }
}

#[test]
fn a_scheme_that_is_not_known_ends_with_78_and_all_that_are_known_are_listed() {
    let known = [
        "redis://",
        "rediss://",
        "unix:",
        "redis+sentinel://",
        "rediss+sentinel://",
        "redis+cluster://",
        "rediss+cluster://",
        "sqlite:",
        "memory:",
    ];
    for known in known {
        let known = format!("`{known}`");
        let url = with_secret("redis+sentinels://host");
        assert_refused(&url, 78, ["its scheme is not known", &known]);
    }
}

/// The sentinels name different primaries, with the same name and epoch. The one that most of them
/// name counts.
#[test]
fn sentinels_that_disagree_are_outvoted() {
    let (ours, stranger) =
        (Sentinels::builder().replicas(0).start(), Sentinels::builder().replicas(0).start());
    let port =
        |of: &Sentinels, number: usize| format!("127.0.0.1:{}", of.sentinels()[number].port());
    let hosts = [port(&stranger, 0), port(&ours, 0), port(&ours, 1)].join(",");
    let world = World::sqlite();
    let url = format!("redis+sentinel://{hosts}/locks");
    let mut holder = start(super::run(&world, &url, &[], "echo up; read line; exit 0"));
    holder.expect("up");
    finish(super::run(&world, &ours.url(), &["-n"], "true")).code(75).says("is held by");
    finish(super::run(&world, &stranger.url(), &["-n"], "true")).code(0);
    holder.tell("end");
    holder.end().code(0);
}

#[test]
fn an_ls_over_a_cluster_with_a_dead_node_names_the_node_and_fails() {
    let all = Cluster::builder().without_replicas().start();
    let dead = all.other_than(all.node_of("x"));
    let world = World::sqlite();
    let ls = || {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", all.url()).arg("ls");
        finish(command)
    };
    ls().code(0);
    dead.kill();
    let done = ls();
    done.code(69).says(&format!("127.0.0.1:{}", dead.port())).says("no server listens there");
    assert_eq!(done.stdout, "", "a part of the locks would look like all of them");
}
