//! Leases of etcd that a step leaves over, and servers that are none of etcd.

use std::future::poll_fn;
use std::task::Poll;

use super::*;
use crate::store::etcd::leases::Lease;

/// The answer to the request was lost, although it has arrived. The lock has its lease.
#[tokio::test]
async fn a_release_ends_the_lease_of_a_request_that_has_arrived_without_an_answer() {
    beside_member(Member::new(), async |core, member, ask| {
        member.lease.store(77, Ordering::Relaxed);
        let lease = ask.lease();
        core.mine.doubt(core.wire.host.now(), (&lease.key, &lease.owner), 77);
        core.release(lease, OnRelease::Free).await.expect("answered");
        assert_eq!(*member.revoked.lock().expect("no panic"), [77]);
    })
    .await;
}

/// Another lock may have the lease by then.
#[tokio::test]
async fn a_release_does_not_end_the_lease_of_a_request_whose_answer_arrives_meanwhile() {
    beside_member(Member::new(), async |core, member, ask| {
        member.lease.store(77, Ordering::Relaxed);
        let (lease, now) = (ask.lease(), core.wire.host.now());
        let of = (&lease.key, &lease.owner);
        core.mine.doubt(now, of, 77);
        let mut releasing = Box::pin(core.release(lease.clone(), OnRelease::Free));
        let has_begun = poll_fn(|cx| Poll::Ready(releasing.as_mut().poll(cx).is_pending())).await;
        assert!(has_begun, "it waits for an answer");
        core.mine.note(now, of, |known| {
            known.held = Some((Lease { id: 77, seconds: LASTS }, CHANGE));
            known.since = Some(now);
        });
        releasing.await.expect("answered");
        assert_eq!(*member.revoked.lock().expect("no panic"), [0; 0]);
        assert!(core.leases.has(now, LASTS), "the next lock may have it");
    })
    .await;
}

/// A program that tries again every second would leave thousands of leases.
#[tokio::test]
async fn a_refused_request_leaves_no_lease() {
    for is_waiting in [false, true] {
        let member = Member { denies_writes: true.into(), holder: "y", ..Member::new() };
        beside_member(member, async |core, _, ask| {
            let ask = if is_waiting { waiting(&ask, 1) } else { ask };
            for _ in 0..2 {
                let denied = core.acquire(ask.clone()).await.expect_err("no right");
                assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
            }
            let taken = core.leases.take(&core.wire, LASTS).await.expect("kept");
            assert!(!taken.is_new && !core.leases.has(core.wire.host.now(), LASTS), "one is kept");
        })
        .await;
    }
}

/// A proxy may stand in front of a member, and answer for it when it does not reach it.
#[tokio::test]
async fn a_wait_survives_a_proxy_that_answers_for_its_member() {
    for (status, at_first) in [(404, ErrorKind::Config), (503, ErrorKind::Unavailable)] {
        beside_member(Member::new(), async |core, member, ask| {
            member.status.store(status, Ordering::Relaxed);
            let error = core.acquire(ask.clone()).await.expect_err("it is no member");
            assert_eq!(error.kind(), at_first, "{error}");
        })
        .await;
        beside_member(Member::new(), async |core, member, ask| {
            core.acquire(ask.clone()).await.expect("it is a member");
            member.status.store(status, Ordering::Relaxed);
            // The first request learns that the connection is of no use.
            for _ in 0..2 {
                let error = core.acquire(ask.clone()).await.expect_err("it is no member");
                assert!(error.is_retryable(), "{status}: {error}");
            }
        })
        .await;
    }
}

/// A renewal and a release that keeps the lock may need a longer lease than the lock has.
#[tokio::test]
async fn a_longer_lease_that_could_not_be_written_is_kept_for_later() {
    for is_renewal in [true, false] {
        beside_member(Member { grants: 30.into(), ..Member::new() }, async |core, member, ask| {
            let ask = Ask { ttl: Ttl::new(Duration::from_secs(30)).expect("within bounds"), ..ask };
            let lease = ask.lease();
            core.acquire(ask).await.expect("answered");
            member.grants.store(LASTS, Ordering::Relaxed);
            member.denies_writes.store(true, Ordering::Relaxed);
            let denied = if is_renewal {
                core.renew(Renewal::new(lease, ttl())).await.expect_err("no right")
            } else {
                let owner = OwnerToken::new("z").expect("printable");
                let keep = OnRelease::KeepIfAlone { owner, ttl: ttl(), reserve: 0, opens: false };
                core.release(lease, keep).await.expect_err("no right")
            };
            let is_expected = [ErrorKind::Denied, ErrorKind::Unknown].contains(&denied.kind());
            assert!(is_expected, "{denied}");
            assert!(core.leases.has(core.wire.host.now(), LASTS), "{is_renewal}: {denied}");
        })
        .await;
    }
}
