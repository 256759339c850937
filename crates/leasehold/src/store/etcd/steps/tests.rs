//! Steps with a fake member, which also answers like a leader that was replaced.

mod left_over;
mod member;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;

use self::member::{CHANGE, LASTS, Member, OWNER};
use super::*;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::SystemHost;
use crate::store::etcd::entry::{Entry, Seen};
use crate::store::etcd::hints::Wait;
use crate::store::etcd::rpc::Kv;
use crate::store::probe::{probe_ttl, try_lease};
use crate::store::steps::Steps;
use crate::store::{
    Acquired, Ask, Claim, LeaseId, Line, OnRelease, Released, Renewal, Renewed, Revoked, within,
};

fn ask(owner: &str) -> Ask {
    let key = Key::new("a").expect("a name");
    Ask::new(key, OwnerToken::new(owner).expect("printable"), Claim::Exclusive, ttl())
}

/// The same ask, with a place in the line.
fn waiting(ask: &Ask, ask_no: u32) -> Ask {
    let line = Line::Join { waiter_ttl: ttl(), handed_ttl: ttl(), ask_no, inbox: inbox() };
    Ask { line, ..ask.clone() }
}

fn inbox() -> ClientId {
    ClientId::from_random([7; ClientId::CHARS])
}

/// Plays with a store that has a lock, at a member with these terms.
async fn beside(terms: (i64, i64), play: impl AsyncFnOnce(&Core, LeaseId)) {
    let playing = async |core: &Arc<Core>, _: &Member, ask: Ask| {
        let lease = ask.lease();
        let granted = core.acquire(ask).await.expect("answered");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        play(core, lease).await;
    };
    beside_member(Member { terms, ..Member::new() }, playing).await;
}

/// Plays with an ask at a member.
async fn beside_member(member: Member, play: impl AsyncFnOnce(&Arc<Core>, &Member, Ask)) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let connector = EtcdConnector::new(&format!("etcd://127.0.0.1:{port}/x")).expect("a URL");
    let core = Arc::new(Core::new(connector, SystemHost::shared()));
    tokio::select! {
        () = play(&core, &member, ask(OWNER)) => {}
        never = member.serve(listener) => match never {},
    }
}

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(LASTS.unsigned_abs())).expect("within bounds")
}

#[tokio::test]
async fn a_renewal_counts_only_if_the_leader_of_the_transactions_renewed_the_lease() {
    beside((4, 4), async |core, lease| {
        let renewed = core.renew(Renewal::new(lease, ttl())).await.expect("one leader");
        assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
    })
    .await;
    beside((4, 3), async |core, lease| {
        let unknown = core.renew(Renewal::new(lease, ttl())).await.expect_err("it was replaced");
        assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
        assert!(unknown.to_string().contains("the leader of the cluster changes"), "{unknown}");
    })
    .await;
}

/// The lease of etcd behind the first grant is kept for the second one, and renewed for it.
#[tokio::test]
async fn a_grant_by_a_kept_lease_counts_only_if_the_leader_of_the_transactions_renewed_it() {
    let again = async |core: &Core, lease: LeaseId| {
        let ask = Ask::new(lease.key.clone(), lease.owner.clone(), lease.claim, ttl());
        let released = core.release(lease, OnRelease::Free).await.expect("answered");
        assert_eq!(released, Released::Freed);
        core.acquire(ask).await
    };
    beside((4, 4), async |core, lease| {
        let granted = again(core, lease).await.expect("one leader");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
    })
    .await;
    beside((4, 3), async |core, lease| {
        let unknown = again(core, lease).await.expect_err("it was replaced");
        assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
        assert!(unknown.to_string().contains("the leader of the cluster changes"), "{unknown}");
    })
    .await;
}

#[tokio::test]
async fn nothing_is_remembered_of_a_lock_that_was_released() {
    beside((4, 4), async |core, lease| {
        assert!(core.mine.of(&lease.key, &lease.owner).held.is_some());
        let released = core.release(lease.clone(), OnRelease::Free).await.expect("answered");
        assert_eq!(released, Released::Freed);
        assert!(core.mine.of(&lease.key, &lease.owner).held.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_is_shorter_than_it_was_asked_for_grants_nothing() {
    beside_member(Member { grants: 1.into(), ..Member::new() }, async |core, _, ask| {
        let refused = core.acquire(ask).await.expect_err("the lock would end too soon");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    })
    .await;
}

/// If the place has changed meanwhile, the lock may have been handed to its owner, with the same
/// lease.
#[tokio::test]
async fn the_lease_of_a_place_is_kept_for_later_only_if_the_place_was_removed_as_it_was_seen() {
    for agrees in [true, false] {
        beside_member(Member { agrees, ..Member::new() }, async |core, _, ask| {
            let value = Entry::of(&ask, LASTS, core.wire.host.wall()).write();
            let kv = Kv { value, lease: 9, ..Kv::default() };
            let (line, count) = (vec![Seen::new(kv)], 1);
            let seen = State { held: None, line, count, revision: CHANGE, term: 4 };
            note_place(core, &ask);
            core.leave_in(&ask.key, &ask.owner, seen).await.expect("answered");
            let taken = core.leases.take(&core.wire, LASTS).await.expect("answered");
            assert_eq!(taken.lease.id == 9, agrees);
        })
        .await;
    }
}

/// A step reads the first places only. A place that stays would be handed the lock later, and
/// nobody would know.
#[tokio::test]
async fn a_waiter_that_leaves_a_long_line_has_no_place_any_more() {
    for (count, place_after) in [(200, 0), (0, 9)] {
        beside_member(with_a_place(9), async |core, member, ask| {
            let seen = State { held: None, line: Vec::new(), count, revision: CHANGE, term: 4 };
            core.leave_in(&ask.key, &ask.owner, seen).await.expect("answered");
            let place = member.place.load(Ordering::Relaxed);
            assert_eq!(place, place_after, "{count} places");
        })
        .await;
    }
}

/// The answer to the request was lost, so it may still be under way. Without its lease it changes
/// nothing.
#[tokio::test]
async fn a_release_ends_the_lease_of_a_request_in_doubt() {
    beside_member(Member::new(), async |core, member, ask| {
        let lease = ask.lease();
        let granted = core.acquire(ask).await.expect("answered");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        core.mine.doubt(core.wire.host.now(), (&lease.key, &lease.owner), 77);
        core.release(lease, OnRelease::Free).await.expect("answered");
        assert_eq!(*member.revoked.lock().expect("no panic"), [77]);
    })
    .await;
}

/// Another client ended the lock, and may use its lease by now.
#[tokio::test]
async fn the_lease_of_a_kept_lock_that_somebody_else_ended_is_not_used_again() {
    beside((4, 3), async |core, lease| {
        let (held, owner) = (core.mine.of(&lease.key, &lease.owner).held, lease.owner.clone());
        let owner = OwnerToken::new(format!("{}-next", owner.as_str())).expect("printable");
        let keep = OnRelease::KeepIfAlone { owner, ttl: ttl(), reserve: 0, opens: false };
        let released = core.release(lease, keep).await.expect("answered");
        assert_eq!(released, Released::Freed, "the member shows another owner");
        let taken = core.leases.take(&core.wire, LASTS).await.expect("answered");
        assert_ne!(Some(taken.lease), held.map(|(lease, _)| lease));
    })
    .await;
}

#[tokio::test]
async fn a_long_lease_is_revoked_before_its_release_is_answered() {
    for (grants, revokes) in [(LASTS, false), (LASTS + 1, true)] {
        beside_member(
            Member { grants: grants.into(), ..Member::new() },
            async |core, member, ask| {
                let lease = ask.lease();
                core.acquire(ask).await.expect("answered");
                let released = core.release(lease, OnRelease::Free).await.expect("answered");
                assert_eq!(released, Released::Freed);
                let granted = revokes.then(|| member.lease.load(Ordering::Relaxed));
                assert_eq!(*member.revoked.lock().expect("no panic"), Vec::from_iter(granted));
            },
        )
        .await;
    }
}

/// The lock is free, so its holder must not hear that the outcome is unknown.
#[tokio::test]
async fn a_release_is_answered_though_the_cluster_is_slow_to_revoke_its_long_lease() {
    let member = Member { grants: (LASTS + 1).into(), revokes: false, ..Member::new() };
    beside_member(member, async |core, member, ask| {
        let lease = ask.lease();
        core.acquire(ask).await.expect("answered");
        let release = core.release(lease, OnRelease::Free);
        let answer = within(SystemHost::shared(), command_limit(ttl()), release).await;
        assert_eq!(answer.expect("before its caller gives up"), Released::Freed);
        // Another task revokes the lease.
        let id = member.lease.load(Ordering::Relaxed);
        while *member.revoked.lock().expect("no panic") != [id, id] {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_try_that_is_refused_makes_no_lease() {
    let member = Member { agrees: false, holder: "other", ..Member::new() };
    member.lease.store(9, Ordering::Relaxed);
    beside_member(member, async |core, member, ask| {
        let refused = core.acquire(ask).await.expect("answered");
        assert!(matches!(refused, Acquired::Refused(_)), "{refused:?}");
        assert_eq!(member.lease.load(Ordering::Relaxed), 9);
    })
    .await;
}

/// A member at which another owner has the lock, and the ask has a place with this lease.
fn with_a_place(lease: i64) -> Member {
    let member = Member { holder: "other", ..Member::new() };
    member.lease.store(8, Ordering::Relaxed);
    member.place.store(lease, Ordering::Relaxed);
    member
}

/// The owner knows that its place has the lease 9, which was renewed just now.
fn note_place(core: &Core, ask: &Ask) {
    let (now, place) = (core.wire.host.now(), Lease { id: 9, seconds: LASTS });
    core.mine.note(now, (&ask.key, &ask.owner), |known| {
        (known.place, known.since) = (Some(place), Some(now));
    });
}

/// Asks for the lock, by an owner who knows that its place has the lease 9.
async fn ask_again(core: &Core, ask: &Ask, ask_no: u32, ahead: u32) {
    note_place(core, ask);
    let until = core.wire.host.now() + Duration::from_secs(60);
    let wait = Wait { inbox: inbox(), ask_no: 0, ahead, seen: CHANGE, until };
    core.hints.wait(&ask.key, &ask.owner, wait);
    let refused = core.acquire(waiting(ask, ask_no)).await.expect("answered");
    assert!(matches!(refused, Acquired::Refused(_)), "{refused:?}");
}

/// If all waiters read the line, the work would grow with the square of their number.
#[tokio::test]
async fn a_place_far_back_is_refreshed_without_a_look_at_the_line() {
    for (ask_no, ahead, lines) in [(1, 100, 0), (1, 1, 1), (32, 100, 1)] {
        beside_member(with_a_place(9), async |core, member, ask| {
            ask_again(core, &ask, ask_no, ahead).await;
            assert_eq!(member.lines.load(Ordering::Relaxed), lines, "{ask_no}, {ahead} ahead");
            assert_eq!(*member.renewed.lock().expect("no panic"), [9]);
        })
        .await;
    }
}

#[tokio::test]
async fn a_place_far_back_that_was_removed_is_taken_again() {
    beside_member(with_a_place(0), async |core, member, ask| {
        ask_again(core, &ask, 1, 100).await;
        let place = core.mine.of(&ask.key, &ask.owner).place.expect("it has one");
        assert_ne!(place.id, 9);
        assert_eq!(member.place.load(Ordering::Relaxed), place.id);
    })
    .await;
}

/// Otherwise a hand-over would count from an ask that renewed nothing.
#[tokio::test]
async fn a_refresh_renews_the_lease_that_the_place_has() {
    for ahead in [0, 100] {
        beside_member(with_a_place(10), async |core, member, ask| {
            ask_again(core, &ask, 1, ahead).await;
            assert_eq!(*member.renewed.lock().expect("no panic"), [9, 10], "{ahead} ahead");
        })
        .await;
    }
}

/// The lease of the place may end before a hand-over that counts from such an ask.
#[tokio::test]
async fn a_hand_over_counts_from_a_refresh_only_if_the_leader_of_the_reads_confirmed_it() {
    for (terms, ask_no) in [((4, 4), 1), ((4, 3), 0)] {
        let member = Member { terms, ..with_a_place(9) };
        beside_member(member, async |core, _, ask| {
            ask_again(core, &ask, 1, 0).await;
            assert_eq!(core.hints.ask_no(&ask.key, &ask.owner), Some(ask_no), "{terms:?}");
        })
        .await;
    }
}

/// A hand-over gives the lock the lease of the place.
#[tokio::test]
async fn a_place_has_a_lease_that_lasts_as_long_as_a_hand_over() {
    for (handed, is_longer) in [(LASTS, false), (LASTS + 1, true)] {
        let member = Member { grants: (LASTS + 1).into(), ..with_a_place(9) };
        beside_member(member, async |core, member, ask| {
            note_place(core, &ask);
            let handed_ttl = Ttl::new(Duration::from_secs(handed.unsigned_abs()));
            let handed_ttl = handed_ttl.expect("within bounds");
            let line = Line::Join { waiter_ttl: ttl(), handed_ttl, ask_no: 1, inbox: inbox() };
            let refused = core.acquire(Ask { line, ..ask }).await.expect("answered");
            assert!(matches!(refused, Acquired::Refused(_)), "{refused:?}");
            assert_eq!(member.place.load(Ordering::Relaxed) != 9, is_longer, "{handed} s");
        })
        .await;
    }
}

/// Only its holder keeps a lock alive. Otherwise each request to a dead holder would.
#[tokio::test]
async fn a_request_to_let_go_renews_no_lease() {
    let member = Member::new();
    member.lease.store(9, Ordering::Relaxed);
    beside_member(member, async |core, member, ask| {
        let words = ("ada".to_owned(), "a deployment".to_owned());
        let asked = core.revoke(ask.key, OWNER.as_bytes().to_vec(), words).await;
        assert_eq!(asked.expect("answered"), Revoked::Asked);
        assert!(member.renewed.lock().expect("no panic").is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_diagnosis_leaves_no_lease() {
    beside_member(Member::new(), async |core, member, _| {
        assert_eq!(core.shortest_lease().await.expect("answered"), LASTS);
        let made = member.lease.load(Ordering::Relaxed);
        assert_eq!(*member.revoked.lock().expect("no panic"), [made]);
    })
    .await;
}

/// A gRPC proxy grants locks and renews none.
#[tokio::test]
async fn a_probe_finds_a_member_that_renews_no_lease() {
    for renews in [true, false] {
        let member = Member { renews, holder: "ours-y", ..Member::new() };
        beside_member(member, async |core, _, ask| {
            match try_lease(&Steps::new(Arc::clone(core)), ask.key, "y", probe_ttl()).await {
                Ok(works) => assert!(works && renews),
                Err(error) => assert!(!renews && error.to_string().contains("proxy"), "{error}"),
            }
        })
        .await;
    }
}

/// The watch of a waiter may tell of the waiter's own write before anybody knows whether the lease
/// of that write lasts.
#[tokio::test]
async fn news_of_a_lock_that_is_being_taken_with_a_kept_lease_grants_nothing() {
    for has_spare in [true, false] {
        let member = Member { is_silent: true, ..Member::new() };
        beside_member(member, async |core, member, ask| {
            let now = core.wire.host.now();
            if has_spare {
                core.give_back(Lease { id: 8, seconds: LASTS }, Some(now));
            }
            let until = now + Duration::from_secs(60);
            let wait = Wait { inbox: inbox(), ask_no: 3, ahead: 0, seen: CHANGE - 1, until };
            core.hints.wait(&ask.key, &ask.owner, wait);
            let asking = core.acquire(waiting(&ask, 4));
            let renewing = async {
                while *member.renewed.lock().expect("no panic") != [8] {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                granted = asking => assert!(!has_spare, "the renewal has no answer: {granted:?}"),
                () = renewing => assert_eq!(core.hints.ask_no(&ask.key, &ask.owner), Some(0)),
            }
        })
        .await;
    }
}

/// Another step of the client wrote the lock meanwhile, for as long as the renewal wants.
#[tokio::test]
async fn a_renewal_counts_only_by_the_lease_that_the_lock_has_in_the_end() {
    let member = Member { agrees: false, grants: (2 * LASTS).into(), ..Member::new() };
    member.lease.store(9, Ordering::Relaxed);
    beside_member(member, async |core, member, ask| {
        let ttl = Ttl::new(2 * ttl().get()).expect("within bounds");
        let renewed = core.renew(Renewal::new(ask.lease(), ttl)).await.expect("answered");
        assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
        let last = member.renewed.lock().expect("no panic").last().copied();
        assert_eq!(last, Some(member.lease.load(Ordering::Relaxed)));
    })
    .await;
}

#[tokio::test]
async fn the_release_of_a_kept_lock_ends_the_request_that_may_still_keep_it() {
    let member = Member { loses_writes: true, ..Member::new() };
    member.lease.store(9, Ordering::Relaxed);
    beside_member(member, async |core, member, ask| {
        let owner = OwnerToken::new("x-next").expect("printable");
        let heir = LeaseId { owner: owner.clone(), ..ask.lease() };
        let keep = OnRelease::KeepIfAlone { owner, ttl: ttl(), reserve: 0, opens: false };
        let unknown = core.release(ask.lease(), keep).await.expect_err("no answer");
        assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
        assert!(core.mine.is_in_doubt(9));
        core.release(heir, OnRelease::Free).await.expect("answered");
        assert_eq!(*member.revoked.lock().expect("no panic"), [9]);
    })
    .await;
}

/// Otherwise the release of the other token would end the lock that got the lease meanwhile.
#[tokio::test]
async fn the_lease_of_a_lock_that_may_still_be_kept_goes_to_no_other_lock() {
    for is_kept in [true, false] {
        let member = Member { loses_writes: is_kept, ..Member::new() };
        member.lease.store(9, Ordering::Relaxed);
        beside_member(member, async |core, _, ask| {
            core.renew(Renewal::new(ask.lease(), ttl())).await.expect("answered");
            if is_kept {
                let owner = OwnerToken::new("x-next").expect("printable");
                let keep = OnRelease::KeepIfAlone { owner, ttl: ttl(), reserve: 0, opens: false };
                core.release(ask.lease(), keep).await.expect_err("no answer");
            }
            core.release(ask.lease(), OnRelease::Free).await.expect("answered");
            let taken = core.leases.take(&core.wire, LASTS).await.expect("answered");
            assert_eq!(taken.lease.id == 9, !is_kept);
        })
        .await;
    }
}
