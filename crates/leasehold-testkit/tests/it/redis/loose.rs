//! Clients that are not strict, at a database whose clients are.

use leasehold::store::redis::RedisConnector;
use leasehold::store::{AnyStore, RedisStore};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::conformance::check::{granted, refused};
use leasehold_testkit::conformance::{key, ms};
use leasehold_testkit::servers::RedisServer;

use super::strict::{Scene, play, play_on};

async fn connect(scene: &Scene, user: &str, options: &str) -> Result<AnyStore, Error> {
    let url = scene.server().url().replace("//", &format!("//{user}")) + options;
    let connector = scene.outside.watch(RedisConnector::new(&url).expect("a URL"));
    let store = RedisStore::connect_with(connector, scene.world.host().clone()).await;
    store.map(AnyStore::new)
}

#[test]
fn who_is_not_strict_is_refused_by_a_strict_database_and_told_what_to_add() {
    play(async |scene| {
        for options in ["", "/0", "/0?replicas=1", "/0?strict=no"] {
            let error = connect(scene, "", options).await.expect_err("it is strict");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            for part in ["no request was sent", "`?strict=yes`", "`DEL :lh:epoch`"] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        // Each database is strict or not on its own, and the choice can be undone.
        let other = connect(scene, "", "/1").await.expect("nobody is strict there");
        granted(scene.world.actor().through(&other).ask(&key("a")).send().await);
        scene.server().command(&["DEL", ":lh:epoch"]);
        connect(scene, "", "/0").await.expect("nobody is strict any more");
    });
}

/// A user needs no new rights for this check.
#[test]
fn who_may_not_look_whether_others_are_strict_is_let_in() {
    play(async |scene| {
        let rights = ["on", "nopass", "+@all", "~app:*", "~{app:*"];
        scene.server().command(&[&["ACL", "SETUSER", "app"][..], &rights].concat());
        let store = connect(scene, "app:any@", "").await.expect("it may connect");
        granted(scene.world.actor().through(&store).ask(&key("app:a")).send().await);
    });
}

#[test]
fn a_client_from_before_is_refused_by_its_next_connection() {
    play_on(RedisServer::builder(), async |scene| {
        let store = connect(scene, "", "").await.expect("nobody is strict yet");
        let (anna, bert) = (scene.world.actor(), scene.world.actor().through(&store));
        scene.assert_quarantined(&anna, &key("a")).await;
        granted(bert.ask(&key("b")).send().await);
        scene.server().command(&["CLIENT", "KILL", "TYPE", "normal"]);
        scene.world.pass(ms(1)).await;
        refused(bert.ask(&key("c")).send().await, ErrorKind::Config);
    });
}
