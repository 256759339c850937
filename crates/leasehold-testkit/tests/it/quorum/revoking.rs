//! An operator asks the holder of a quorum's lock to let go, and some nodes fail.

use futures_util::FutureExt;
use leasehold::store::Revoked;
use leasehold::{Client, Error, ErrorKind};

use super::evicting::shy;
use super::{TTL, ms, play};

async fn ask(operator: &Client) -> Result<Revoked, Error> {
    let token = operator.inspect("a").await.expect("seen").holders[0].token.clone();
    operator.revoke("a", &token, "noon").await
}

#[test]
fn a_request_that_a_majority_keeps_reaches_the_holder_whichever_nodes_answer() {
    for broken in 0..3 {
        for silent in 0..3 {
            play(&[3], 0..1, async |scene| {
                let holder = scene.client().await;
                let guard = holder.mutex("a").lock().await.expect("free");
                scene.host.settle().await;
                let mut fails = [None; 3];
                fails[broken] = Some(ErrorKind::Unavailable);
                let operator = scene.client_of(scene.quorum(shy(scene, fails)).await, TTL).await;
                assert_eq!(ask(&operator).await.expect("two of three"), Revoked::Asked);
                scene.faults[silent].all_from_now_on(leasehold_testkit::faults::Fault::Refuse);
                scene.host.advance(ms(1_500)).await;
                let revoked = guard.revoked().now_or_never().expect("after a third of the ttl");
                assert_eq!(revoked.reason, "noon");
                assert!(guard.is_held());
                let shown = operator.inspect("a").await.expect("seen").holders.remove(0);
                assert_eq!(shown.revoked.expect("any node shows it").by, "anonymous");
                scene.faults[silent].heal();
            });
        }
    }
}

#[test]
fn a_request_that_a_minority_took_is_not_said_to_have_asked_nobody() {
    play(&[3], 0..2, async |scene| {
        let holder = scene.calm_client().await;
        let guard = holder.mutex("a").lock().await.expect("free");
        scene.host.settle().await;
        let kind = ErrorKind::Denied;
        let nodes = shy(scene, [None, Some(kind), Some(kind)]);
        let operator = scene.client_of(scene.quorum(nodes.clone()).await, TTL).await;
        let error = ask(&operator).await.expect_err("one of three");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains("may have been asked"), "{error}");
        *nodes[0].fails.lock().expect("no panic") = Some(kind);
        let error = operator.revoke("a", b"x", "noon").await.expect_err("none of three");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("reached no holder"), "{error}");
        // The error advises this.
        for node in &nodes {
            *node.fails.lock().expect("no panic") = None;
        }
        assert_eq!(ask(&operator).await.expect("all answer"), Revoked::Asked);
        assert_eq!(guard.revoked().await.reason, "noon");
    });
}

#[test]
fn a_former_holder_is_not_asked_to_let_go() {
    play(&[3], 0..2, async |scene| {
        let (holder, operator) = (scene.calm_client().await, scene.calm_client().await);
        let guard = holder.mutex("a").lock().await.expect("free");
        let seen = guard.token().as_str().as_bytes().to_vec();
        let _released = guard.release().await.expect("an answer");
        scene.host.advance(ms(100)).await;
        let next = holder.mutex("a").lock().await.expect("free");
        let answer = operator.revoke("a", &seen, "noon").await.expect("an answer");
        assert_eq!(answer, Revoked::Changed);
        next.renew().await.expect("held");
        assert!(next.revoked().now_or_never().is_none());
    });
}
