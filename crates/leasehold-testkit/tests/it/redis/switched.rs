//! Databases that are switched to strict mode or not, and clients whose URLs say `strict=yes`,
//! `strict=no`, or nothing.

use leasehold::store::redis::RedisConnector;
use leasehold::store::{AnyStore, RedisStore, Store as _};
use leasehold::{Client, Error, ErrorKind, Identity};
use leasehold_testkit::conformance::check::{granted, quarantined, refused, renewed};
use leasehold_testkit::conformance::{key, ms};
use leasehold_testkit::servers::RedisServer;

use super::strict::{Scene, play, play_on};
use crate::stores::run_id;

fn connector(scene: &Scene, user: &str, options: &str) -> RedisConnector {
    let url = scene.server().url().replace("//", &format!("//{user}")) + options;
    RedisConnector::new(&url).expect("a URL")
}

async fn connect(scene: &Scene, user: &str, options: &str) -> Result<AnyStore, Error> {
    let connector = scene.outside.watch(connector(scene, user, options));
    let store = RedisStore::connect_with(connector, scene.world.host().clone()).await;
    store.map(AnyStore::new)
}

fn switch(scene: &Scene, record: &str) {
    scene.server().command(&["HSET", ":lh:epoch", "switch", record]);
}

/// A server that was switched on, and has forgotten nothing.
fn play_switched(test: impl AsyncFnOnce(&Scene)) {
    play(async |scene| {
        switch(scene, "on 1795000000000 anna@web-3 disks");
        test(scene).await;
    });
}

/// Ends all connections of clients.
async fn disconnect(scene: &Scene) {
    scene.server().command(&["CLIENT", "KILL", "TYPE", "normal"]);
    scene.world.pass(ms(1)).await;
}

#[test]
fn a_client_that_says_yes_locks_nobody_out() {
    // On a new database, and on one that strict clients have used for long.
    play_on(RedisServer::builder(), async |scene| {
        for _ in 0..2 {
            for options in ["", "/0?strict=no", "/0?replicas=0"] {
                let store = connect(scene, "", options).await.expect("nobody switched it");
                assert_eq!(store.capabilities().strict, Some(false), "{options}");
                granted(scene.world.actor().through(&store).ask(&key("a")).send().await);
                scene.server().command(&["DEL", "a"]);
            }
            scene.assert_quarantined(&scene.world.actor(), &key("b")).await;
        }
        let record = scene.server().command(&["HEXISTS", ":lh:epoch", "switch"]);
        assert_eq!(record.int(), 0, "only an act switches it");
    });
}

#[test]
fn a_strict_database_refuses_a_url_that_says_no_and_tells_what_to_do() {
    play_switched(async |scene| {
        for options in ["/0?strict=no", "/0?strict=no&replicas=1"] {
            let error = connect(scene, "", options).await.expect_err("it is strict");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            for part in ["no request was sent", "`strict=no`", "`leasehold strict status`"] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        // Each database is switched separately, and can be switched off again.
        let other = connect(scene, "", "/1?strict=no").await.expect("it is not switched");
        granted(scene.world.actor().through(&other).ask(&key("a")).send().await);
        switch(scene, "off 1795000000001 anna@web-3 ");
        connect(scene, "", "/0?strict=no").await.expect("it is off again");
        let silent = connect(scene, "", "").await.expect("it is off again");
        assert_eq!(silent.capabilities().strict, Some(false));
    });
}

#[test]
fn a_client_that_says_nothing_is_as_strict_as_its_database() {
    play_switched(async |scene| {
        let store = connect(scene, "", "").await.expect("it is let in");
        assert_eq!(store.capabilities().strict, Some(true));
        assert!(!store.capabilities().line, "nothing is handed over");
        let anna = scene.world.actor().through(&store);
        let before = scene.outside.requests();
        refused(anna.ask(&key("a")).ttl(60_001).send().await, ErrorKind::Config);
        assert_eq!(scene.outside.requests(), before);
        granted(anna.ask(&key("a")).ttl(60_000).send().await);
        renewed(anna.renew(&key("a"), 60_000).await);
        refused(anna.renew(&key("a"), 60_001).await, ErrorKind::Config);
        scene.server().command(&["HSET", ":lh:epoch", "run", "another process"]);
        let seen = store.inspect(key("b")).await.expect("answered");
        assert!(seen.quarantine.is_some(), "{seen:?}");
        quarantined(anna.ask(&key("b")).send().await);
    });
}

/// The server has forgotten its record too.
#[test]
fn a_client_that_saw_strict_mode_stays_strict_on_a_server_that_comes_back_empty() {
    play_switched(async |scene| {
        let store = connect(scene, "", "").await.expect("it is let in");
        let anna = scene.world.actor().through(&store);
        granted(anna.ask(&key("a")).send().await);
        scene.server().command(&["FLUSHALL"]);
        disconnect(scene).await;
        quarantined(scene.world.actor().through(&store).ask(&key("a")).send().await);
        assert_eq!(store.capabilities().strict, Some(true));
        // A new client finds no record.
        let late = connect(scene, "", "").await.expect("it is let in");
        assert_eq!(late.capabilities().strict, Some(false));
        granted(scene.world.actor().through(&late).ask(&key("b")).send().await);
        scene.assert_quarantined_to_its_end(&["a"]).await;
    });
}

#[test]
fn a_client_from_before_the_switch_is_refused_by_its_next_connection() {
    play_on(RedisServer::builder(), async |scene| {
        let store = connect(scene, "", "").await.expect("nobody switched it");
        let bert = scene.world.actor().through(&store);
        switch(scene, "on 1 anna@web-3 ");
        granted(bert.ask(&key("b")).send().await);
        disconnect(scene).await;
        let error = bert.ask(&key("c")).send().await.expect_err("it is switched on");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("start this program again"), "{error}");
        // The client may go on once the database is switched off again.
        switch(scene, "off 2 anna@web-3 ");
        scene.world.pass(ms(600)).await;
        granted(bert.ask(&key("c")).send().await);
    });
}

/// The first requests are queued before the store knows whether the database is strict.
#[test]
fn a_store_that_is_not_connected_yet_sends_nothing_on_wrong_terms() {
    play_switched(async |scene| {
        let open = || {
            let connector = scene.outside.watch(connector(scene, "", ""));
            AnyStore::new(RedisStore::open(connector, scene.world.host().clone()))
        };
        let store = open();
        assert_eq!((store.capabilities().strict, store.capabilities().line), (None, false));
        let anna = scene.world.actor().through(&store);
        let (long, short) = (anna.ask(&key("a")).ttl(60_001).send(), anna.ask(&key("b")).send());
        let (long, short) = tokio::join!(long, short);
        refused(long, ErrorKind::Config);
        granted(short);
        assert_eq!(store.capabilities().strict, Some(true));
        let store = open();
        let joined = scene.world.actor().through(&store).ask(&key("a")).join().send().await;
        refused(joined, ErrorKind::Unsupported);
        let store = open();
        refused(anna.through(&store).renew(&key("b"), 60_001).await, ErrorKind::Config);
        assert_eq!(scene.server().command(&["EXISTS", "a"]).int(), 0);
        // The first inspection knows the quarantine, too.
        scene.server().command(&["HSET", ":lh:epoch", "run", "another process"]);
        let seen = open().inspect(key("a")).await.expect("answered");
        assert!(seen.quarantine.is_some(), "{seen:?}");
        quarantined(scene.world.actor().through(&open()).ask(&key("a")).send().await);
    });
    play_on(RedisServer::builder(), async |scene| {
        let connector = scene.outside.watch(connector(scene, "", ""));
        let store = AnyStore::new(RedisStore::open(connector, scene.world.host().clone()));
        let anna = scene.world.actor().through(&store);
        granted(anna.ask(&key("a")).ttl(3_600_000).join().send().await);
        assert_eq!((store.capabilities().strict, store.capabilities().line), (Some(false), true));
    });
}

/// Otherwise the first such lock would be free after one ttl.
#[test]
fn a_lock_that_is_to_stay_taken_is_refused_though_its_store_learns_late_that_it_is_strict() {
    play_switched(async |scene| {
        for waits in [false, true] {
            let connector = scene.outside.watch(connector(scene, "", ""));
            let store = RedisStore::open(connector, scene.world.host().clone());
            let builder = Client::with_store(store).host(scene.world.host().clone());
            let client = builder.identity(Identity::anonymous()).connect().await;
            let mutex = client.expect("connected").mutex("mail").min_hold(ms(600_000));
            let locked =
                if waits { mutex.lock().await.map(drop) } else { mutex.try_lock().await.map(drop) };
            let refused = locked.expect_err("it is strict");
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Unsupported, Some("mail")));
            scene.world.pass(ms(10)).await;
            assert_eq!(scene.server().command(&["EXISTS", "mail"]).int(), 0, "it is released");
        }
    });
}

/// A user needs no new rights to connect. To be strict, it needs only the rights of a strict
/// client.
#[test]
fn a_client_that_may_not_read_the_record_is_let_in_and_is_not_strict() {
    play_switched(async |scene| {
        let user = |rights: &[&str]| {
            let rule = ["ACL", "SETUSER", "app", "reset", "on", "nopass", "~app:*", "~{app:*"];
            scene.server().command(&[&rule, rights].concat());
        };
        for options in ["", "/0?strict=no"] {
            user(&["+@all"]);
            let store = connect(scene, "app:any@", options).await.expect("it may connect");
            assert_eq!(store.capabilities().strict, Some(false));
            granted(scene.world.actor().through(&store).ask(&key("app:a")).send().await);
            scene.server().command(&["DEL", "app:a"]);
        }
        user(&["+@all", "~:lh:epoch", "-info"]);
        let error = connect(scene, "app:any@", "").await.expect_err("it is strict");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("allow the user `+info`"), "{error}");
        user(&["+@all", "~:lh:epoch"]);
        let store = connect(scene, "app:any@", "").await.expect("it may connect");
        assert_eq!(store.capabilities().strict, Some(true));
    });
}

#[test]
fn a_record_that_nobody_can_read_keeps_out_clients_that_are_not_strict() {
    for other in [&["SET", ":lh:epoch", "x"][..], &["RPUSH", ":lh:epoch", "x"]] {
        play(async |scene| {
            scene.server().command(&["DEL", ":lh:epoch"]);
            scene.server().command(other);
            for options in ["", "/0?strict=no"] {
                let error = connect(scene, "", options).await.expect_err("it may be strict");
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                assert!(error.to_string().contains("`:lh:epoch` of this database"), "{error}");
            }
        });
    }
}

#[test]
fn over_a_socket_and_in_another_database_the_record_counts_too() {
    play_on(RedisServer::builder(), async |scene| {
        let run_id = run_id(scene.server());
        let record = ["HSET", ":lh:epoch", "run", &run_id, "switch", "on"];
        scene.server().command(
            &["EVAL", "redis.call('SELECT', 3) redis.call(unpack(ARGV))", "0"]
                .into_iter()
                .chain(record)
                .collect::<Vec<_>>(),
        );
        let socket = scene.server().unix_url();
        for (url, is_strict) in [(format!("{socket}?db=3"), true), (socket, false)] {
            let connector = scene.outside.watch(RedisConnector::new(&url).expect("a URL"));
            let store = RedisStore::connect_with(connector, scene.world.host().clone()).await;
            assert_eq!(store.expect(&url).capabilities().strict, Some(is_strict), "{url}");
        }
    });
}
