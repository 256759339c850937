//! Servers without scripts. A lock without companion keys works there if the server has a command
//! that compares and deletes.

use std::time::Duration;

use leasehold::store::redis::RedisStore;
use leasehold::store::{
    Acquired, AnyStore, Ask, Claim, LeaseId, OnRelease, Released, Renewal, Renewed, Store,
};
use leasehold::{Client, Error, ErrorKind, Key, Mutex, OwnerToken, Release, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{granted, renewed};
use leasehold_testkit::not_run;
use leasehold_testkit::protocol::{Answer, Value};
use leasehold_testkit::servers::{RedisServer, RedisServerBuilder};

use super::clients::{Scene, ms, play_alone_on};
use super::fake::{Fake, refused};
use super::plain::native;

const TTL: Duration = Duration::from_secs(10);

fn without_scripts() -> RedisServerBuilder {
    let server = RedisServer::builder().config("rename-command", "EVAL \"\"");
    server.config("rename-command", "EVALSHA \"\"")
}

/// Plays on a server without scripts that has a command that compares and deletes.
fn play(test: impl AsyncFnOnce(&Scene)) {
    play_alone_on(without_scripts(), async |scene| match native(scene.server()) {
        Some(_) => test(scene).await,
        None => not_run("this server has neither DELIFEQ nor DELEX"),
    });
}

fn bare(client: &Client) -> Mutex {
    client.mutex("a").ttl(TTL).fencing(false).unqueued()
}

#[test]
fn a_bare_lock_is_acquired_kept_and_released_without_scripts() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        for _ in 0..3 {
            let held = bare(&one).lock().await.expect("free");
            assert_eq!(scene.server().command(&["GET", "a"]).text(), held.token().as_str());
            scene.pass(3 * TTL).await;
            assert!(held.is_held(), "the driver renews it");
            assert!(bare(&other).try_lock().await.expect("asked").is_none());
            let left = scene.server().command(&["PTTL", "a"]).int();
            assert!((5_000..=10_000).contains(&left), "{left} ms");
            assert_eq!(held.release().await.expect("asked"), Release::Released);
            assert_eq!(scene.server().command(&["EXISTS", "a"]).int(), 0);
        }
        let held = bare(&one).lock().await.expect("free");
        drop(held);
        drop(bare(&one).try_lock().await.expect("asked").expect("its own release came first"));
    });
}

#[test]
fn without_scripts_the_lock_of_another_owner_is_neither_renewed_nor_released() {
    play(async |scene| {
        let client = scene.client().await;
        let held = bare(&client).lock().await.expect("free");
        scene.tell(&["SET", "a", "foreign", "PX", "60000"]);
        assert_eq!(held.renew().await.expect_err("not its lock").kind(), ErrorKind::Lost);
        assert_eq!(held.release().await.expect("asked"), Release::NotHeld);
        assert_eq!(scene.server().command(&["GET", "a"]).text(), "foreign");
        assert!(scene.server().command(&["PTTL", "a"]).int() > 10_000);
        scene.tell(&["DEL", "a"]);
        let held = bare(&client).lock().await.expect("free");
        scene.tell(&["DEL", "a"]);
        assert_eq!(held.renew().await.expect_err("it is gone").kind(), ErrorKind::Lost);
        assert_eq!(scene.server().command(&["EXISTS", "a"]).int(), 0, "nothing brings it back");
    });
}

#[test]
fn without_scripts_a_renewal_fails_while_the_server_is_out_of_memory_and_a_release_does_not() {
    play(async |scene| {
        let client = scene.client().await;
        let held = bare(&client).lock().await.expect("free");
        scene.tell(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(held.renew().await.expect_err("it is full").kind(), ErrorKind::Unavailable);
        assert!(held.is_held());
        scene.tell(&["CONFIG", "SET", "maxmemory", "0"]);
        held.renew().await.expect("it has memory again");
        scene.tell(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(held.release().await.expect("asked"), Release::Released);
    });
}

#[test]
fn a_lock_with_a_line_or_fencing_needs_scripts_and_says_what_does_not() {
    play_alone_on(without_scripts(), async |scene| {
        let client = scene.client().await;
        let (line, fencing) = (client.mutex("a").fencing(false), client.mutex("a").unqueued());
        for mutex in [client.mutex("a"), line, fencing] {
            let error = mutex.try_lock().await.expect_err("no scripts");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("`unqueued().fencing(false)`"), "{error}");
        }
        assert_eq!(scene.server().command(&["EXISTS", "a"]).int(), 0);
    });
}

/// The right may be taken away between the lock and its release.
#[test]
fn a_user_that_loses_the_right_to_scripts_still_renews_and_releases() {
    play_alone_on(RedisServer::builder(), async |scene| {
        if native(scene.server()).is_none() {
            return not_run("this server has neither DELIFEQ nor DELEX");
        }
        scene.tell(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all"]);
        let url = scene.server().url().replace("//", "//app:any@");
        let client = scene.client_of(&url).await;
        for _ in 0..2 {
            let held = bare(&client).lock().await.expect("free");
            scene.tell(&["ACL", "SETUSER", "app", "-eval", "-evalsha"]);
            held.renew().await.expect("renewed");
            assert_eq!(held.release().await.expect("asked"), Release::Released);
        }
    });
}

fn lease() -> LeaseId {
    let owner = OwnerToken::new("anna").expect("a token");
    LeaseId { key: Key::new("a").expect("a name"), owner, claim: Claim::Plain }
}

async fn ask(store: &impl Store, ttl_ms: u64) -> Result<Acquired, Error> {
    let LeaseId { key, owner, claim } = lease();
    store.acquire(Ask::new(key, owner, claim, Ttl::new(ms(ttl_ms)).expect("in bounds"))).await
}

async fn renew(store: &impl Store, ttl_ms: u64) -> Result<Renewed, Error> {
    store.renew(Renewal::new(lease(), Ttl::new(ms(ttl_ms)).expect("in bounds"))).await
}

#[test]
fn without_scripts_a_repeated_ask_and_a_renewal_never_shorten_a_lease() {
    play(async |scene| {
        let connector = leasehold::store::redis::RedisConnector::new(&scene.server().url());
        let connector = scene.outside.watch(connector.expect("a URL"));
        let store = RedisStore::connect_with(connector, scene.host.clone()).await;
        let store = AnyStore::new(store.expect("the server is there"));
        let left = || scene.server().command(&["PTTL", "a"]).int();
        granted(ask(&store, 1_000).await);
        granted(ask(&store, 20_000).await);
        assert!(left() > 10_000, "{}", left());
        granted(ask(&store, 1_000).await);
        assert_eq!(renewed(renew(&store, 1_000).await), (None, false));
        assert!(left() > 10_000, "{}", left());
        assert_eq!(renewed(renew(&store, 60_000).await), (None, false));
        assert!(left() > 50_000, "{}", left());
    });
}

fn number(number: i64) -> Answer {
    Ok(Value::Int(number))
}

fn unknown(name: &str) -> Answer {
    refused(&format!("ERR unknown command '{name}', with args beginning with: "))
}

/// The commands that came in since the last call.
fn seen(fake: &Fake) -> Vec<String> {
    let commands = fake.seen().into_iter().map(|(_, words)| words);
    let shown = |words: Vec<String>| match words[0].as_str() {
        "EVAL" => "EVAL".to_owned(),
        _ => words.join(" "),
    };
    commands.map(shown).collect()
}

fn play_fake(test: impl AsyncFnOnce(&Fake, &RedisStore)) {
    let (fake, host) = (Fake::default(), VirtualHost::new(1));
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await.expect("it answers");
        fake.seen();
        test(&fake, &store).await;
    });
    host.drop_tasks();
}

/// Redis 8.4 has `DELEX`. Without its condition, it deletes any key.
#[test]
fn a_server_with_delex_is_asked_once_and_then_keeps_locks_by_commands() {
    play_fake(async |fake, store| {
        fake.on("EVAL", [unknown("EVAL")]);
        fake.on("DELIFEQ", [unknown("DELIFEQ")]);
        fake.on("DELEX", [number(0), number(1)]);
        fake.on("SET", [Ok(Value::Nil)]);
        assert_eq!(granted(ask(store, 1_000).await), None);
        let probes = ["DELIFEQ {a}:lh:probe probe", "DELEX {a}:lh:probe IFEQ probe"];
        let set = "SET a anna NX GET PX 1000";
        assert_eq!(seen(fake), ["EVAL", probes[0], probes[1], set]);
        for _ in 0..2 {
            let released = store.release(lease(), OnRelease::Free).await.expect("answered");
            assert_eq!(released, Released::Freed);
            granted(ask(store, 1_000).await);
            assert_eq!(seen(fake), ["DELEX a IFEQ anna", set]);
        }
        fake.on("PTTL", [number(1_500)]);
        fake.on("SET", [Ok(Value::Bytes(b"OK".to_vec()))]);
        for scripts in [&["EVAL"][..], &[]] {
            renewed(renew(store, 1_000).await);
            let expected = [scripts, &["PTTL a", "SET a anna IFEQ anna PX 1500"]].concat();
            assert_eq!(seen(fake), expected);
        }
    });
}

#[test]
fn a_server_with_neither_scripts_nor_such_a_command_is_not_asked_to_set_anything() {
    play_fake(async |fake, store| {
        for name in ["EVAL", "EVALSHA", "DELIFEQ", "DELEX"] {
            fake.on(name, [unknown(name)]);
        }
        for _ in 0..2 {
            let error = ask(store, 1_000).await.expect_err("no scripts");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("it has no scripts"), "{error}");
        }
        assert!(seen(fake).iter().all(|command| !command.starts_with("SET")));
    });
}

/// A server that renews unconditionally would revive the lock of a dead owner.
#[test]
fn a_renewal_that_no_command_can_do_says_that_scripts_are_missing() {
    play_fake(async |fake, store| {
        fake.on("EVAL", [unknown("EVAL")]);
        fake.on("EVALSHA", [unknown("EVALSHA")]);
        fake.on("PTTL", [number(500)]);
        fake.on("SET", [refused("ERR syntax error")]);
        let error = renew(store, 1_000).await.expect_err("no way");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("it has no scripts"), "{error}");
    });
}

/// The user may run scripts again, and this server has no command that renews.
#[test]
fn a_renewal_is_one_request_again_once_scripts_are_allowed_again() {
    play_fake(async |fake, store| {
        let denied = "NOPERM this user has no permissions to run the 'eval' command";
        fake.on("EVAL", [refused(denied), super::fake::numbers(&[1, 0, 0, 0])]);
        fake.on("EVALSHA", [super::fake::numbers(&[1, 0, 0, 0])]);
        fake.on("PTTL", [number(500)]);
        fake.on("SET", [refused("ERR syntax error")]);
        assert_eq!(renewed(renew(store, 1_000).await), (None, false));
        let tries = ["EVAL", "PTTL a", "SET a anna IFEQ anna PX 1000", "EVAL"];
        assert_eq!(seen(fake), tries);
        for _ in 0..2 {
            assert_eq!(renewed(renew(store, 1_000).await), (None, false));
            let seen = seen(fake);
            assert!(seen.len() == 1 && seen[0].starts_with("EVALSHA "), "{seen:?}");
        }
    });
}

/// With scripts, a release by command is one command less for the server to interpret.
#[test]
fn a_release_is_a_command_where_the_server_has_one_and_a_renewal_stays_a_script() {
    play_fake(async |fake, store| {
        fake.on("EVAL", [number(0)]);
        fake.on("DELIFEQ", [number(0), number(1)]);
        fake.on("DELEX", [unknown("DELEX")]);
        ask(store, 1_000).await.expect("answered");
        assert_eq!(seen(fake).len(), 3, "the script and both probes");
        store.release(lease(), OnRelease::Free).await.expect("answered");
        assert_eq!(seen(fake), ["DELIFEQ a anna"]);
        fake.on("EVAL", [super::fake::numbers(&[1, 0, 0, 0])]);
        renewed(renew(store, 1_000).await);
        assert_eq!(seen(fake), ["EVAL"]);
    });
}

/// A command can release a lock, but not share it. The client must not be told that it was lost.
#[test]
fn without_scripts_a_writer_that_would_become_a_reader_keeps_its_lock_and_is_refused() {
    play_fake(async |fake, store| {
        fake.on("EVAL", [unknown("EVAL")]);
        fake.on("DELIFEQ", [unknown("DELIFEQ")]);
        fake.on("DELEX", [number(0), number(1)]);
        fake.on("SET", [Ok(Value::Nil)]);
        granted(ask(store, 1_000).await);
        seen(fake);
        let owner = OwnerToken::new("reader").expect("a token");
        let downgrade = OnRelease::Downgrade { owner, ttl: Ttl::DEFAULT };
        let refused = store.release(lease(), downgrade).await.expect_err("no scripts");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert_eq!(seen(fake), ["EVAL"], "nothing was released");
    });
}
