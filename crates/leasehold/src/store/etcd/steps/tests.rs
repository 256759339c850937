//! Steps beside a member that answers as it is told: also as a leader that was replaced.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::SystemHost;
use crate::store::etcd::entry::{Entry, Seen};
use crate::store::etcd::hints::Wait;
use crate::store::etcd::message::{Fields, Message};
use crate::store::etcd::rpc::Kv;
use crate::store::steps::Steps;
use crate::store::{
    Acquired, Ask, Claim, LeaseId, Line, OnRelease, Released, Renewal, Renewed, try_lease, within,
};

/// For how long each lease of this member lasts, in seconds.
const LASTS: i64 = 60;

/// The change that made the key of the lock.
const CHANGE: i64 = 7;

/// Who asks for the lock.
const OWNER: &str = "x";

/// A member of etcd that has one lock.
struct Member {
    /// In which term it carries out transactions, and renews leases.
    terms: (i64, i64),
    /// For how long it makes a lease, in seconds.
    grants: i64,
    /// Whether all conditions of transactions hold.
    agrees: bool,
    /// Whether it renews leases. A proxy does not.
    renews: bool,
    /// Whether it answers the first request to end a lease.
    revokes: bool,
    /// Who has the lock.
    holder: &'static str,
    /// The lease behind the lock.
    lease: AtomicI64,
    /// The lease behind the place of the ask; 0 if it has no place.
    place: AtomicI64,
    /// The leases that it renewed, and those that it ended.
    renewed: Mutex<Vec<i64>>,
    revoked: Mutex<Vec<i64>>,
    /// How often it read a line.
    lines: AtomicI64,
}

impl Member {
    fn new() -> Self {
        Self {
            terms: (4, 4),
            grants: LASTS,
            agrees: true,
            renews: true,
            revokes: true,
            holder: OWNER,
            lease: AtomicI64::new(0),
            place: AtomicI64::new(0),
            renewed: Mutex::default(),
            revoked: Mutex::default(),
            lines: AtomicI64::new(0),
        }
    }

    async fn serve(&self, listener: TcpListener) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                client = listener.accept() => {
                    connections.push(self.serve_one(client.expect("a client").0));
                }
                Some(()) = connections.next() => {}
            }
        }
    }

    async fn serve_one(&self, stream: TcpStream) {
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
        let mut status = HeaderMap::new();
        if !self.renews && path.ends_with("LeaseKeepAlive") {
            status.insert("grpc-status", HeaderValue::from_static("1"));
            let mut response = Response::new(());
            *response.headers_mut() = status;
            to.send_response(response, true).expect("it listens");
            return;
        }
        let answer = self.answer_to(&path, &asked[5..]);
        let is_first = self.revoked.lock().expect("no panic").len() == 1;
        if path.ends_with("LeaseRevoke") && is_first && !self.revokes {
            std::future::pending::<()>().await;
        }
        let length = u32::try_from(answer.as_bytes().len()).expect("short");
        let framed = [&[0], &length.to_be_bytes()[..], answer.as_bytes()].concat();
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
                self.lease.store(number(asked, 2), Ordering::Relaxed);
                Message::default().message(1, &header(writes)).number(3, self.grants)
            }
            "/etcdserverpb.Lease/LeaseKeepAlive" => {
                self.renewed.lock().expect("no panic").push(number(asked, 1));
                Message::default().message(1, &header(renews)).number(3, LASTS)
            }
            "/etcdserverpb.Lease/LeaseRevoke" => {
                self.revoked.lock().expect("no panic").push(number(asked, 1));
                Message::default().message(1, &header(writes))
            }
            "/etcdserverpb.KV/Txn" => {
                let parts = || Fields::of(asked).map(|it| it.expect("a field"));
                let succeeds = self.agrees || parts().all(|(field, _)| field != 1);
                let branch = if succeeds { 2 } else { 3 };
                let done = Message::default().message(1, &header(writes)).flag(2, succeeds);
                parts().filter(|(field, _)| *field == branch).fold(done, |done, (_, operation)| {
                    let read = self.carry_out(operation.bytes().expect("an operation"));
                    let answer = read.map(|read| Message::default().message(1, &read));
                    done.message(3, &answer.unwrap_or_default())
                })
            }
            _ => Message::default(),
        }
    }

    /// Carries out an operation of a transaction. Returns the keys that it read.
    fn carry_out(&self, operation: &[u8]) -> Option<Message> {
        let (kind, asked) = Fields::of(operation).next()?.expect("a field");
        let asked = asked.bytes().expect("an operation");
        let mut texts = Fields::of(asked).map(|it| it.expect("a field"));
        let key = texts.next()?.1.bytes().expect("a key");
        let is_held = key.starts_with(b"x/held/");
        let is_line = texts.next().is_some_and(|(field, _)| field == 2);
        match kind {
            1 if is_held => Some(self.pair(key, self.holder, &self.lease)),
            1 => {
                self.lines.fetch_add(i64::from(is_line), Ordering::Relaxed);
                let place = [&b"x/line/a\t"[..], OWNER.as_bytes()].concat();
                Some(self.pair(&place, OWNER, &self.place))
            }
            2 if !is_held => {
                self.place.store(number(asked, 3), Ordering::Relaxed);
                None
            }
            3 if !is_held => {
                self.place.store(0, Ordering::Relaxed);
                None
            }
            _ => None,
        }
    }

    /// A key of an owner, if it has a lease.
    fn pair(&self, key: &[u8], owner: &'static str, lease: &AtomicI64) -> Message {
        let lease = lease.load(Ordering::Relaxed);
        if lease == 0 {
            return Message::default();
        }
        let value = Entry::of(&ask(owner), LASTS, SystemHost::shared().wall()).write();
        let pair = Message::default().bytes(1, key).number(3, CHANGE).bytes(5, &value);
        Message::default().message(2, &pair.number(6, lease)).number(4, 1)
    }
}

/// A number of a message.
fn number(message: &[u8], field: u32) -> i64 {
    let mut fields = Fields::of(message).map(|it| it.expect("a field"));
    let (_, value) = fields.find(|(it, _)| *it == field).expect("it is there");
    value.number().expect("a number")
}

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

/// A step reads the first places only. A place that stays would be handed the lock later, and
/// nobody would know.
#[tokio::test]
async fn who_leaves_a_long_line_has_no_place_any_more() {
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

/// Its answer was lost, so it may still be under way. Without its lease it changes nothing.
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

/// Whoever ended it may have the lease by now.
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
        beside_member(Member { grants, ..Member::new() }, async |core, member, ask| {
            let lease = ask.lease();
            core.acquire(ask).await.expect("answered");
            let released = core.release(lease, OnRelease::Free).await.expect("answered");
            assert_eq!(released, Released::Freed);
            let granted = revokes.then(|| member.lease.load(Ordering::Relaxed));
            assert_eq!(*member.revoked.lock().expect("no panic"), Vec::from_iter(granted));
        })
        .await;
    }
}

/// The lock is free, so its holder must not hear that the outcome is unknown.
#[tokio::test]
async fn a_release_is_answered_though_the_cluster_is_slow_to_revoke_its_long_lease() {
    let member = Member { grants: LASTS + 1, revokes: false, ..Member::new() };
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

/// Asks for the lock, by an owner who knows that its place has the lease 9.
async fn ask_again(core: &Core, ask: &Ask, ask_no: u32, ahead: u32) {
    let (now, place) = (core.wire.host.now(), Lease { id: 9, seconds: LASTS });
    core.mine.note(now, (&ask.key, &ask.owner), |known| known.place = Some(place));
    let until = now + Duration::from_secs(60);
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

/// A gRPC proxy grants locks and renews none.
#[tokio::test]
async fn a_probe_finds_a_member_that_renews_no_lease() {
    for renews in [true, false] {
        let member = Member { renews, holder: "ours-y", ..Member::new() };
        beside_member(member, async |core, _, ask| {
            match try_lease(&Steps::new(Arc::clone(core)), ask.key, "y").await {
                Ok(works) => assert!(works && renews),
                Err(error) => assert!(!renews && error.to_string().contains("proxy"), "{error}"),
            }
        })
        .await;
    }
}
