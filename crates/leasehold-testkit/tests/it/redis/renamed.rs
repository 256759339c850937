//! Servers on which a command that only some locks need is renamed or denied. Each lock works
//! without the command, or an error says what to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::host::Host as _;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::{Cluster, RedisServer, RedisServerBuilder, Sentinels};

use super::clients::{POLL, SLACK, Scene, ms, play_alone_on};
use super::connecting::{check, connect, told};
use crate::on_event::OnEvent;

fn without(command: &str) -> RedisServerBuilder {
    RedisServer::builder().config("rename-command", &format!("{command} \"\""))
}

/// Hands a lock over twice, and counts the warnings meanwhile.
async fn hand_over(scene: &Scene, url: &str) -> usize {
    let warnings = Arc::new(AtomicUsize::new(0));
    let counting = || {
        let warnings = Arc::clone(&warnings);
        OnEvent::warning(move |_| {
            warnings.fetch_add(1, Ordering::Relaxed);
        })
    };
    // Count on this thread, and on the thread that reads hints, which ends with the host.
    let _here = tracing::subscriber::set_default(counting());
    let there = counting();
    scene.host.spawn_io(Box::pin(async move {
        std::mem::forget(tracing::subscriber::set_default(there));
    }));
    let (one, other) = (scene.client_of(url).await, scene.client_of(url).await);
    for _ in 0..2 {
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&other).await;
        // This is longer than the pause after which a refused subscription is tried again.
        scene.pass(ms(70_000)).await;
        assert_eq!(held.release().await.expect("asked"), Release::Released);
        assert!(scene.time_of(&waiting).await <= POLL + SLACK);
        drop(waiting.await);
        scene.host.settle().await;
    }
    warnings.load(Ordering::Relaxed)
}

/// Each row has a command and the number of warnings. Without SUBSCRIBE, each client warns once
/// that it polls. Without PUBLISH, each warns that others must poll.
const PLAIN: [(&str, usize); 7] = [
    ("subscribe", 1),
    ("publish", 2),
    ("info", 0),
    ("client", 0),
    ("select", 0),
    ("role", 0),
    ("cluster", 0),
];

#[test]
fn a_lock_is_handed_over_without_any_of_these_commands_and_polling_is_reported_once() {
    for (command, warnings) in PLAIN {
        play_alone_on(without(command), async |scene| {
            let warned = hand_over(scene, &scene.server().url()).await;
            assert_eq!(warned, warnings, "{command}");
        });
    }
}

#[test]
fn a_lock_is_handed_over_without_the_right_to_these_commands() {
    for (command, warnings) in PLAIN.into_iter().chain([("ping", 0), ("hello", 0)]) {
        play_alone_on(RedisServer::builder(), async |scene| {
            let denied = format!("-{command}");
            scene.tell(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", &denied]);
            let url = scene.server().url().replace("//", "//app:any@");
            assert_eq!(hand_over(scene, &url).await, warnings, "{command}");
        });
    }
}

#[tokio::test]
async fn a_url_that_needs_a_renamed_command_is_refused_with_the_next_step() {
    let server = without("SELECT").start();
    let outcome = connect(&format!("{}/1", server.url())).await;
    check(outcome, ErrorKind::Config, "leave the database out of the URL");
    let server = without("INFO").start();
    let outcome = connect(&format!("{}?strict=yes", server.url())).await;
    check(outcome, ErrorKind::Config, "do without strict mode");
    let server = without("CLUSTER").start();
    let outcome = connect(&server.url().replace("redis:", "redis+cluster:")).await;
    check(outcome, ErrorKind::Unsupported, "enable `CLUSTER` on every node");
}

#[tokio::test]
async fn a_server_of_sentinels_that_does_not_tell_its_role_is_refused_with_the_next_step() {
    let all = Sentinels::builder().config("rename-command", "ROLE \"\"").start();
    check(connect(&all.url()).await, ErrorKind::Unsupported, "enable `ROLE` on every server");
}

#[tokio::test]
async fn a_cluster_whose_user_may_not_ask_for_its_slots_names_the_right() {
    let cluster = Cluster::builder().without_replicas().start();
    for node in cluster.nodes() {
        node.command(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-cluster"]);
    }
    let url = cluster.url().replace("//", "//app:any@");
    let Err(error) = connect(&url).await else { panic!("it knows no slots") };
    assert_eq!(error.kind(), ErrorKind::Denied, "{}", told(&error));
    assert!(told(&error).contains("`cluster"), "{}", told(&error));
}
