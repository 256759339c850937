//! Locks without companion keys: their commands, and the keys that they leave.

use std::time::Duration;

use leasehold::store::redis::RedisConnector;
use leasehold::store::{AnyStore, Claim, RedisStore, Released};
use leasehold::{Client, ErrorKind, Mutex, Release};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{granted, released, taken};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::servers::{RedisServer, ServerOutside, version};

use super::clients::{Scene, play, play_alone};
use crate::stores::redis_on;

fn plain(client: &Client) -> Mutex {
    client.mutex("a").fencing(false).unqueued()
}

/// How often the server carried out a command, from clients or from scripts.
pub(super) fn calls(scene: &Scene, command: &str) -> u64 {
    let stats = scene.server().command(&["INFO", "commandstats"]).text();
    let before = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&before));
    line.map_or(0, |line| line.split(',').next().expect("a number").parse().expect("a number"))
}

/// The command of this server that compares and deletes, if it has one.
pub(super) fn native(server: &RedisServer) -> Option<&'static str> {
    let knows = |name: &&str| {
        let answer = server.try_command(&[name, "a", "IFEQ", "b"]);
        !answer.is_err_and(|text| text.contains("unknown command"))
    };
    ["delifeq", "delex"].into_iter().find(knows)
}

#[test]
fn a_lock_is_one_set_and_its_release_one_compare_and_delete() {
    play_alone(async |scene| {
        let mutex = plain(&scene.client().await);
        for _ in 0..2 {
            let held = mutex.lock().await.expect("free");
            assert_eq!(held.release().await.expect("asked"), Release::Released);
        }
        let requests = scene.outside.requests();
        let native = native(scene.server());
        scene.tell(&["CONFIG", "RESETSTAT"]);
        for _ in 0..5 {
            let held = mutex.try_lock().await.expect("asked").expect("free");
            assert_eq!(held.fencing_token(), None);
            let dbsize = scene.server().command(&["DBSIZE"]).int();
            assert_eq!(dbsize, 1, "nothing but the lock");
            assert_eq!(held.release().await.expect("asked"), Release::Released);
        }
        assert_eq!(scene.outside.requests() - requests, 10);
        // Commands of scripts count too. Before Redis 7.0, SET refuses NX with GET, so a script is
        // used.
        let asks = if version() >= (7, 0) { 0 } else { 5 };
        let by_script = if native.is_some() { 0 } else { 5 };
        for (command, times) in [
            ("set", 5),
            ("evalsha", by_script + asks),
            ("get", by_script),
            ("del", by_script),
            ("eval", 0),
            (native.unwrap_or("delifeq"), 5 - by_script),
        ] {
            assert_eq!(calls(scene, command), times, "{command}");
        }
        assert_eq!(scene.server().command(&["DBSIZE"]).int(), 0);
    });
}

#[test]
fn a_foreign_holder_is_waited_for_without_a_place_in_line() {
    play(async |scene| {
        let client = scene.client().await;
        let mutex = plain(&client);
        for _ in 0..2 {
            let held = mutex.lock().await.expect("free");
            let _released = held.release().await.expect("asked");
        }
        scene.tell(&["SET", "a", "foreign", "NX", "PX", "60000"]);
        assert!(mutex.try_lock().await.expect("asked").is_none());
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
        scene.pass(ms(10_000)).await;
        assert!(!waiting.is_finished());
        assert_eq!(scene.server().command(&["DBSIZE"]).int(), 1, "no line");
        let asks = scene.outside.requests();
        scene.pass(ms(10_000)).await;
        let asks = scene.outside.requests() - asks;
        assert!((36..=81).contains(&asks), "{asks} asks in 10 s");
        assert_eq!(scene.server().command(&["GET", "a"]).text(), "foreign", "left alone");
        scene.tell(&["DEL", "a"]);
        assert!(scene.time_of(&waiting).await <= Duration::from_secs(1));
        drop(waiting.await);
    });
}

#[test]
fn a_key_of_another_type_is_no_lock_and_stays_as_it_is() {
    play_alone(async |scene| {
        let client = scene.client().await;
        let held = plain(&client).lock().await.expect("free");
        let _released = held.release().await.expect("asked");
        scene.tell(&["RPUSH", "data", "x"]);
        let error = client.mutex("data").fencing(false).unqueued().try_lock().await;
        let error = error.expect_err("no lock");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("not a lock of this kind"), "{error}");
        assert_eq!(scene.server().command(&["LLEN", "data"]).int(), 1);
    });
}

async fn actor_of(world: &World, outside: &std::sync::Arc<ServerOutside>, url: &str) -> Actor {
    let connector = outside.watch(RedisConnector::new(url).expect("a URL"));
    let store = RedisStore::connect_with(connector, world.host().clone()).await;
    world.actor().through(&AnyStore::new(store.expect("the user may connect")))
}

fn play_as_user(rights: &[&str], test: impl AsyncFnOnce(&World, &RedisServer, Actor)) {
    let outside = ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()));
    let host = VirtualHost::new(1);
    let opener = redis_on(&outside, &host);
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        let words = [&["ACL", "SETUSER", "app", "reset", "on", "nopass", "~*", "&*"], rights];
        outside.server().command(&words.concat());
        let url = outside.server().url().replace("//", "//app:any@");
        let actor = actor_of(&world, &outside, &url).await;
        test(&world, outside.server(), actor).await;
    });
    host.drop_tasks();
}

#[test]
fn where_scripts_are_not_allowed_nothing_is_taken_that_nobody_could_release() {
    play_as_user(&["+@all", "-@scripting"], async |_, server, anna| {
        if let Some(native) = native(server) {
            server.command(&["ACL", "SETUSER", "app", &format!("-{native}")]);
        }
        for _ in 0..2 {
            let asked = anna.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await;
            assert_eq!(asked.expect_err("no scripts").kind(), ErrorKind::Denied);
            assert_eq!(server.command(&["EXISTS", "a"]).int(), 0);
        }
    });
}

#[test]
fn a_lock_leaves_no_place_and_no_counter_after_any_earlier_use_of_its_key() {
    play_as_user(&["+@all"], async |world, server, anna| {
        for _ in 0..2 {
            granted(anna.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await);
            let bert = world.actor();
            taken(bert.ask(&key("a")).claim(Claim::Plain).reserve(0).why("x").send().await);
            released(anna.release_as(&key("a"), Claim::Plain).await, Released::Freed);
            assert_eq!(server.command(&["DBSIZE"]).int(), 0);
        }
    });
}

/// The ask has the result of a command that sets a free key, even if a script carries it out.
#[test]
fn an_unqueued_client_takes_a_free_key_even_if_others_wait_in_line() {
    play_as_user(&["+@all"], async |world, _, anna| {
        let bert = world.actor();
        for turn in 0..3 {
            let held = world.actor();
            granted(held.ask(&key("a")).send().await);
            taken(bert.ask(&key("a")).join().send().await);
            released(held.free(&key("a")).await, Released::Freed);
            // The first ask on a connection uses a script.
            granted(anna.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await);
            let waiting = world.inspect(&key("a")).await.waiting;
            assert_eq!(waiting, 1, "turn {turn}: the place stays");
            released(anna.release_as(&key("a"), Claim::Plain).await, Released::Freed);
            granted(bert.ask(&key("a")).send().await);
            released(bert.release(&key("a")).await, Released::Freed);
        }
    });
}
