//! Steps beside a member that answers as it is told: also as a leader that was replaced.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpListener;

use super::*;
use crate::core::ttl::Ttl;
use crate::host::SystemHost;
use crate::store::etcd::entry::{Entry, Seen};
use crate::store::etcd::message::{Fields, Message};
use crate::store::etcd::rpc::Kv;
use crate::store::{Acquired, Ask, Claim, LeaseId, OnRelease, Released, Renewal, Renewed};

/// For how long each lease of this member lasts, in seconds.
const LASTS: i64 = 60;

/// The change that made the key of the lock.
const CHANGE: i64 = 7;

/// A member of etcd that has one lock.
struct Member {
    /// In which term it carries out transactions, and renews leases.
    terms: (i64, i64),
    /// For how long it makes a lease, in seconds.
    grants: i64,
    /// Whether the conditions of all transactions hold.
    agrees: bool,
    value: Vec<u8>,
    lease: AtomicI64,
    /// The leases that it ended.
    revoked: Mutex<Vec<i64>>,
}

impl Member {
    fn new() -> Self {
        let (lease, revoked) = (AtomicI64::new(0), Mutex::default());
        Self { terms: (4, 4), grants: LASTS, agrees: true, value: Vec::new(), lease, revoked }
    }

    /// Serves the first connection.
    async fn serve(&self, listener: TcpListener) {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut calls = h2::server::handshake(stream).await.expect("HTTP/2");
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                call = calls.accept() => match call {
                    Some(Ok((call, to))) => answers.push(self.answer(call, to)),
                    _ => return,
                },
                Some(()) = answers.next() => {}
            }
        }
    }

    async fn answer(&self, call: Request<RecvStream>, mut to: SendResponse<Bytes>) {
        let path = call.uri().path().to_owned();
        let (mut body, mut asked) = (call.into_body(), Vec::new());
        while let Some(part) = body.data().await {
            asked.extend_from_slice(&part.expect("it is sent whole"));
        }
        let answer = self.answer_to(&path, &asked[5..]);
        let length = u32::try_from(answer.as_bytes().len()).expect("short");
        let framed = [&[0], &length.to_be_bytes()[..], answer.as_bytes()].concat();
        let mut status = HeaderMap::new();
        status.insert("grpc-status", HeaderValue::from_static("0"));
        let mut sending = to.send_response(Response::new(()), false).expect("it listens");
        sending.send_data(framed.into(), false).expect("it listens");
        sending.send_trailers(status).expect("it listens");
    }

    fn answer_to(&self, path: &str, asked: &[u8]) -> Message {
        let (writes, renews) = self.terms;
        let header = |term| Message::default().number(3, CHANGE).number(4, term);
        match path {
            "/etcdserverpb.Lease/LeaseGrant" => {
                let fields = Fields::of(asked).map(|it| it.expect("a field"));
                let id = fields.filter(|(field, _)| *field == 2).last().expect("an id").1;
                self.lease.store(id.number().expect("a number"), Ordering::Relaxed);
                Message::default().message(1, &header(writes)).number(3, self.grants)
            }
            "/etcdserverpb.Lease/LeaseKeepAlive" => {
                Message::default().message(1, &header(renews)).number(3, LASTS)
            }
            "/etcdserverpb.Lease/LeaseRevoke" => {
                let ids = Fields::of(asked).map(|it| it.expect("a field").1);
                let ids = ids.map(|id| id.number().expect("a number"));
                self.revoked.lock().expect("no panic").extend(ids);
                Message::default().message(1, &header(writes))
            }
            "/etcdserverpb.KV/Txn" => {
                let held = Message::default()
                    .number(3, CHANGE)
                    .bytes(5, &self.value)
                    .number(6, self.lease.load(Ordering::Relaxed));
                let ranges = [Message::default().message(2, &held), Message::default()];
                let header = header(writes);
                let done = Message::default().message(1, &header).flag(2, self.agrees);
                ranges.iter().fold(done, |done, range| {
                    done.message(3, &Message::default().message(1, range))
                })
            }
            _ => Message::default(),
        }
    }
}

/// Plays with a store that has a lock, at a member with these terms.
async fn beside(terms: (i64, i64), play: impl AsyncFnOnce(&Core, LeaseId)) {
    let playing = async |core: &Core, _: &Member, ask: Ask| {
        let lease = LeaseId { key: ask.key.clone(), owner: ask.owner.clone(), claim: ask.claim };
        let granted = core.acquire(ask).await.expect("answered");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        play(core, lease).await;
    };
    beside_member(Member { terms, ..Member::new() }, playing).await;
}

/// Plays with an ask at a member.
async fn beside_member(member: Member, play: impl AsyncFnOnce(&Core, &Member, Ask)) {
    let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("x").expect("printable"));
    let ask = Ask::new(key, owner, Claim::Exclusive, ttl());
    let host = SystemHost::shared();
    let value = Entry::of(&ask, LASTS, host.wall()).write();
    let member = &Member { value, ..member };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let connector = EtcdConnector::new(&format!("etcd://127.0.0.1:{port}/x")).expect("a URL");
    let core = Core::new(connector, host);
    tokio::select! {
        () = play(&core, member, ask) => {}
        () = member.serve(listener) => panic!("the client has closed its connection"),
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
    beside_member(Member { grants: 1, ..Member::new() }, async |core, _, ask| {
        let refused = core.acquire(ask).await.expect_err("the lock would end too soon");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    })
    .await;
}

/// If its place has changed meanwhile, the lock may have been handed to it, with the same lease.
#[tokio::test]
async fn the_lease_of_a_place_is_kept_for_later_only_if_the_place_was_removed_as_it_was_seen() {
    for agrees in [true, false] {
        beside_member(Member { agrees, ..Member::new() }, async |core, _, ask| {
            let value = Entry::of(&ask, LASTS, core.wire.host.wall()).write();
            let kv = Kv { value, lease: 9, ..Kv::default() };
            let (line, count) = (vec![Seen::new(kv)], 1);
            let seen = State { held: None, line, count, revision: CHANGE, term: 4 };
            core.leave_in(&ask.key, &ask.owner, seen).await.expect("answered");
            let taken = core.leases.take(&core.wire, LASTS).await.expect("answered");
            assert_eq!(taken.lease.id == 9, agrees);
        })
        .await;
    }
}

/// Its answer was lost, so it may still be under way. Without its lease it changes nothing.
#[tokio::test]
async fn a_release_ends_the_lease_of_a_request_in_doubt() {
    beside_member(Member::new(), async |core, member, ask| {
        let lease = LeaseId { key: ask.key.clone(), owner: ask.owner.clone(), claim: ask.claim };
        let granted = core.acquire(ask).await.expect("answered");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        core.mine.doubt(core.wire.host.now(), (&lease.key, &lease.owner), 77);
        core.release(lease, OnRelease::Free).await.expect("answered");
        assert_eq!(*member.revoked.lock().expect("no panic"), [77]);
    })
    .await;
}
