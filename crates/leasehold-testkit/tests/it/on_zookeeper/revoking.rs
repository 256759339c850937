//! Requests to let go. They are written to the node that the holder writes with each renewal.

use futures_util::FutureExt as _;
use leasehold::store::Revoked;
use leasehold::{Client, Guard};
use leasehold_testkit::servers::ZookeeperPath;

use super::client;

async fn ask(operator: &Client, guard: &Guard, reason: &str) {
    let seen = guard.token().as_str().as_bytes();
    let answer = operator.revoke("a", seen, reason).await.expect("an answer");
    assert_eq!(answer, Revoked::Asked);
}

/// The reason for which the holder of `a` is asked to let go, as every client sees it.
async fn shown(client: &Client) -> Option<String> {
    let seen = client.inspect("a").await.expect("an answer");
    Some(seen.holders[0].revoked.as_ref()?.reason.clone())
}

/// The reason for which the holder was asked to let go, as it knows from its last renewal.
fn told(guard: &Guard) -> Option<String> {
    Some(guard.revoked().now_or_never()?.reason.clone())
}

#[tokio::test]
async fn a_request_is_not_lost_beside_renewals_of_the_same_moment() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (ours, operator) = (client(&url).await, client(&url).await);
    let mut last = None;
    for round in 0..20 {
        let guard = ours.mutex("a").lock().await.expect("free");
        let fencing = guard.fencing_token();
        assert!(fencing > last, "tokens rise");
        last = fencing;
        let renewals = async {
            for _ in 0..10 {
                guard.renew().await.expect("it is held");
            }
        };
        tokio::join!(renewals, ask(&operator, &guard, "noon"));
        guard.renew().await.expect("it is held");
        assert_eq!(told(&guard).as_deref(), Some("noon"), "round {round}");
        assert_eq!(shown(&operator).await.as_deref(), Some("noon"), "round {round}");
        assert_eq!(guard.fencing_token(), fencing);
        let _released = guard.release().await.expect("released");
    }
}

/// A waiter writes its node again when its turn comes.
#[tokio::test]
async fn a_request_to_let_go_reaches_a_holder_that_waited_and_no_waiter_behind_it() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (ours, operator) = (client(&url).await, client(&url).await);
    let first = ours.mutex("a").lock().await.expect("free");
    let next = operator.mutex("a");
    let waiting = tokio::spawn(async move { next.lock().await });
    super::until("it waits", async || path.waiters("a") == 1).await;
    ask(&operator, &first, "noon").await;
    let seen = operator.inspect("a").await.expect("an answer");
    let fencing = seen.holders[0].fencing.map(|block| block.first);
    assert_eq!(fencing, first.fencing_token(), "the request is not a grant");
    let _released = first.release().await.expect("released");
    let guard = waiting.await.expect("no panic").expect("its turn");
    guard.renew().await.expect("it is held");
    assert_eq!(shown(&ours).await, None);
    ask(&ours, &guard, "evening").await;
    guard.renew().await.expect("it is held");
    assert_eq!(told(&guard).as_deref(), Some("evening"));
}
