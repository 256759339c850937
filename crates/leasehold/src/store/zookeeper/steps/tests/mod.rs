//! Steps with a fake server.

mod server;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tracing::{Event, Level};

use self::server::{Greeting, NO_AUTH, Rule, Server, kind};
use super::*;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, OwnerToken};
use crate::host::on_event::OnEvent;
use crate::host::shielded::panic_quietly;
use crate::host::{Sleep, SystemHost, Task};
use crate::store::zookeeper::mine::Doubt;
use crate::store::{
    Acquired, Ask, Claim, Hint, HintSink, LeaseId, Line as Wish, OnRelease, Renewal, Renewed,
};

/// The ttl of each lease: longer than any pause of a driver.
const TTL: Duration = Duration::from_secs(6);

/// A sleep of this length is long: no driver needs it.
const LONG: Duration = Duration::from_secs(3);

/// Runs everything on the runtime of the test, and counts long sleeps.
#[derive(Default)]
struct Here {
    long_sleeps: AtomicUsize,
    /// How many sleeps of a minute are over at the same time.
    skips: AtomicUsize,
}

impl Host for Here {
    fn now(&self) -> Moment {
        SystemHost.now()
    }
    fn wall(&self) -> WallTime {
        SystemHost.wall()
    }
    fn sleep_until(&self, at: Moment) -> Sleep {
        let span = at.since(self.now());
        if span > LONG {
            self.long_sleeps.fetch_add(1, Ordering::SeqCst);
        }
        let less = |skips: usize| skips.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        if span > TTL && self.skips.fetch_update(set, get, less).is_ok() {
            return Box::pin(std::future::ready(()));
        }
        SystemHost.sleep_until(at)
    }
    #[allow(clippy::disallowed_methods, reason = "this is the host")]
    fn spawn(&self, task: Task) {
        tokio::spawn(task);
    }
    fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
        unreachable!("no task of this store blocks");
    }
    fn random(&self, bytes: &mut [u8]) {
        SystemHost.random(bytes);
    }
}

/// Plays with a store at a server.
async fn beside(play: impl AsyncFnOnce(&Core, &Server, &Here)) {
    let (server, host) = (Server::default(), Arc::new(Here::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let url = format!("zookeeper://127.0.0.1:{port}/x");
    let core = Core::new(ZookeeperConnector::new(&url).expect("a URL"), host.clone());
    tokio::select! {
        () = play(&core, &server, &host) => {}
        () = server.serve(listener) => {}
    }
}

/// Lets everything else run until this holds. A test that waits in vain fails and does not hang.
async fn until(mut holds: impl FnMut() -> bool) {
    let end = SystemHost.now() + Duration::from_mins(1);
    while !holds() {
        assert!(SystemHost.now() < end, "it does not hold after a minute");
        tokio::task::yield_now().await;
    }
}

/// Lets everything else run that can run now.
async fn settle() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

fn ttl() -> Ttl {
    Ttl::new(TTL).expect("within bounds")
}

fn ttl_of(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).expect("within bounds")
}

fn ask(name: &str) -> Ask {
    let (key, owner) = (Key::new(name).expect("a name"), OwnerToken::new("x").expect("a token"));
    Ask::new(key, owner, Claim::Exclusive, ttl())
}

fn joining(inbox: &ClientId) -> Ask {
    let (waiter_ttl, inbox) = (Ttl::new(9 * TTL / 8).expect("within bounds"), inbox.clone());
    let line = Wish::Join { waiter_ttl, handed_ttl: ttl(), ask_no: 1, inbox };
    let mut ask = ask("a");
    ask.line = line;
    ask
}

fn inbox() -> ClientId {
    ClientId::from_random([7; ClientId::CHARS])
}

async fn lock(core: &Core, name: &str) -> LeaseId {
    let (ask, lease) = (ask(name), ask(name).lease());
    let granted = core.acquire(ask).await.expect("answered");
    assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
    lease
}

/// Renews a lease. Returns whether somebody waits for it.
async fn renew(core: &Core, lease: &LeaseId) -> bool {
    let renewed = core.renew(Renewal::new(lease.clone(), ttl())).await;
    match renewed.expect("answered") {
        Renewed::Renewed { wanted, .. } => wanted,
        other => panic!("{other:?}"),
    }
}

/// The task that tends the nodes sleeps for about a ttl after each round.
#[tokio::test]
async fn neither_a_renewal_nor_a_further_lock_looks_after_the_leases_of_a_store() {
    beside(async |core, _, host| {
        let names: Vec<_> = (0..20).map(|number| format!("lock{number}")).collect();
        let mut leases = Vec::new();
        for name in &names {
            leases.push(lock(core, name).await);
        }
        for lease in leases.iter().cycle().take(100) {
            renew(core, lease).await;
        }
        settle().await;
        assert_eq!(host.long_sleeps.load(Ordering::SeqCst), 1);
    })
    .await;
}

#[tokio::test]
async fn a_renewal_asks_who_waits_before_its_write_is_answered() {
    beside(async |core, server, _| {
        let lease = lock(core, "a").await;
        server.rule(Some((kind::SET_DATA, Rule::AnswersWithTheNext)));
        server.take_asked();
        assert!(!renew(core, &lease).await);
        assert_eq!(server.take_asked(), [kind::SET_DATA, kind::EXISTS]);
        server.add("/x/a/_c_other-lock-9999999999");
        assert!(renew(core, &lease).await, "another client waits");
    })
    .await;
}

#[tokio::test]
async fn a_renewal_counts_although_the_connection_ends_before_it_hears_who_waits() {
    beside(async |core, server, _| {
        let lease = lock(core, "a").await;
        server.rule(Some((kind::EXISTS, Rule::HangsUp)));
        server.add("/x/a/_c_other-lock-9999999999");
        assert!(!renew(core, &lease).await, "nobody said so");
    })
    .await;
}

#[tokio::test]
async fn a_waiter_makes_sure_of_its_own_node_and_leaves_the_line_alone() {
    beside(async |core, server, _| {
        let holder = "/x/a/_c_other-lock-0000000000";
        server.add(holder);
        let refused = async || match core.acquire(joining(&inbox())).await.expect("answered") {
            Acquired::Refused(refusal) => (refusal.retry_in, refusal.ahead),
            granted => panic!("{granted:?}"),
        };
        assert_eq!(refused().await, (None, 0), "the end of the holder is no reason to ask");
        assert!(!server.take_asked().contains(&kind::GET_DATA));
        for _ in 0..3 {
            assert_eq!(refused().await, (None, 0));
            assert_eq!(server.take_asked(), [kind::EXISTS]);
        }
        server.nodes.lock().expect("no panic").retain(|path, _| path == holder);
        assert_eq!(refused().await, (None, 0));
        assert!(server.take_asked().contains(&kind::CREATE), "it lines up again");
        assert_eq!(server.nodes.lock().expect("no panic").len(), 2);
    })
    .await;
}

/// Its node would have the lock one day, and nobody would know.
#[tokio::test]
async fn a_try_that_another_client_overtakes_leaves_no_node_in_the_line() {
    beside(async |core, server, _| {
        let session = core.wire.session().await.expect("it begins");
        server.rule(Some((kind::CHILDREN, Rule::AnswersWithTheNext)));
        let overtaking = async {
            // The try is about to hear that the lock is free.
            until(|| server.take_asked().contains(&kind::CHILDREN)).await;
            server.rule(None);
            server.add("/x/a/_c_other-lock-0000000000");
            session.ask(exists("/x/a"), Stat::read).await.expect("answered");
        };
        let (refused, ()) = tokio::join!(core.acquire(ask("a")), overtaking);
        match refused.expect("answered") {
            Acquired::Refused(refusal) => assert_eq!(refusal.ahead, 0, "it does not count itself"),
            granted => panic!("{granted:?}"),
        }
        assert!(server.take_asked().contains(&kind::CREATE), "it tried");
        let nodes = server.nodes.lock().expect("no panic");
        assert_eq!(nodes.keys().collect::<Vec<_>>(), ["/x/a/_c_other-lock-0000000000"]);
    })
    .await;
}

/// A leader that was replaced meanwhile answers what it knows, and agrees to no change.
#[tokio::test]
async fn a_node_in_doubt_stays_in_doubt_until_a_majority_agrees_to_a_later_change() {
    beside(async |core, server, _| {
        let session = core.wire.session().await.expect("it begins");
        let (ask, now) = (ask("a"), core.wire.host.now());
        let of = (ask.key.clone(), ask.owner.clone());
        core.mine.doubt(Doubt::new(of.clone(), session, now + TTL));
        server.rule(Some((kind::DELETE, Rule::HangsUp)));
        assert!(core.settle(&of, Some(&ask)).await.is_err(), "nobody agrees");
        let unknown = core.release(ask.lease(), OnRelease::Free).await;
        let unknown = Error::from(unknown.expect_err("in doubt"));
        assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
        assert!(core.mine.doubt_of(&of).is_some());
        // The node was made at the leader that has been elected.
        server.rule(None);
        server.add("/x/a/_c_x-lock-0000000001");
        let node = core.settle(&of, Some(&ask)).await.expect("answered").expect("it was made");
        assert_eq!(node.name, "_c_x-lock-0000000001");
        assert!(core.mine.doubt_of(&of).is_none());
    })
    .await;
}

/// The delete may arrive later, and the lock would be free while its holder has it.
#[tokio::test]
async fn a_node_that_is_being_deleted_settles_no_doubt() {
    beside(async |core, server, _| {
        let session = core.wire.session().await.expect("it begins");
        let (ask, now) = (ask("a"), core.wire.host.now());
        let of = (ask.key.clone(), ask.owner.clone());
        let entry = Entry::of(&ask, millis(TTL), core.wire.host.wall());
        let node = core.keep(&session, &of, "_c_x-lock-0000000001", (entry, None, TTL));
        core.mine.condemn(&node);
        core.mine.doubt(Doubt::new(of.clone(), session, now + TTL));
        server.add(&node.path);
        assert!(core.settle(&of, Some(&ask)).await.expect("answered").is_none());
        assert!(server.nodes.lock().expect("no panic").is_empty(), "it is deleted");
    })
    .await;
}

/// The server ends a session whose client it has not heard of, and the lock with it.
#[tokio::test]
async fn no_step_makes_a_lease_that_may_outlast_its_session() {
    beside(async |core, _, _| {
        // Three quarters of the session's 15 s.
        let (fits, too_long) = (ttl_of(11_250), ttl_of(11_251));
        let lease = lock(core, "a").await;
        let ask = |name: &str, ttl| Ask { ttl, ..ask(name) };
        let granted = core.acquire(ask("b", fits)).await.expect("answered");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        let handed =
            Wish::Join { waiter_ttl: ttl(), handed_ttl: too_long, ask_no: 1, inbox: inbox() };
        let owner = OwnerToken::new("next").expect("a token");
        let keep = OnRelease::KeepIfAlone { owner, ttl: too_long, reserve: 0, opens: false };
        let waits = Ask { line: handed, ..ask("c", ttl()) };
        for (step, refused) in [
            ("acquire", core.acquire(ask("c", too_long)).await.err()),
            ("hand over", core.acquire(waits).await.err()),
            ("renew", core.renew(Renewal::new(lease.clone(), too_long)).await.err()),
            ("keep", core.release(lease.clone(), keep).await.err()),
        ] {
            let refused = Error::from(refused.expect(step));
            assert_eq!(refused.kind(), ErrorKind::Config, "{step}: {refused}");
            assert!(refused.to_string().contains("session_timeout="), "{step}: {refused}");
        }
        assert!(!renew(core, &lease).await, "it is still held");
    })
    .await;
}

/// The place would have the lock one day, and nobody would know.
#[tokio::test]
async fn a_place_that_no_retry_can_help_is_deleted() {
    beside(async |core, server, _| {
        server.rule(Some((kind::CHILDREN, Rule::Refuses(NO_AUTH))));
        let denied = core.acquire(joining(&inbox())).await.expect_err("no right");
        assert_eq!(Error::from(denied).kind(), ErrorKind::Denied);
        assert!(server.take_asked().contains(&kind::CREATE), "it lined up");
        assert!(server.nodes.lock().expect("no panic").is_empty());
    })
    .await;
}

/// Otherwise the lock would be idle until the client of the place asks again.
#[tokio::test]
async fn a_place_behind_a_node_that_is_gone_gets_the_lock_or_is_told_to_ask() {
    for (rule, gets_it) in [(None, true), (Some((kind::SET_DATA, Rule::Refuses(NO_AUTH))), false)] {
        beside(async |core, server, _| {
            let hints = inbox_of(core);
            let ahead = "/x/a/_c_other-lock-0000000000";
            server.add(ahead);
            assert!(core.acquire(joining(&inbox())).await.expect("answered").is_taken());
            server.rule(rule);
            server.nodes.lock().expect("no panic").remove(ahead);
            core.wire.board.add(|news| news.gone.push(ahead.to_owned()));
            until(|| !hints.0.lock().expect("no panic").is_empty()).await;
            let told = hints.0.lock().expect("no panic");
            match &told[..] {
                [Hint::Granted { ask_no: 1, .. }] => assert!(gets_it),
                [Hint::MaybeFree { .. }] => assert!(!gets_it),
                other => panic!("{other:?}"),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_may_not_be_deleted_is_told_of_once_and_tried_again_once_a_minute() {
    const SKIPS: usize = 3;
    let warnings = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&warnings);
    let _here = tracing::subscriber::set_default(OnEvent(move |event: &Event<'_>| {
        let is_warning = *event.metadata().level() == Level::WARN;
        counted.fetch_add(is_warning.into(), Ordering::SeqCst);
    }));
    beside(async |core, server, host| {
        let lease = lock(core, "a").await;
        server.rule(Some((kind::DELETE, Rule::Refuses(NO_AUTH))));
        server.take_asked();
        host.skips.store(SKIPS, Ordering::SeqCst);
        let denied = core.release(lease, OnRelease::Free).await;
        let denied = Error::from(denied.expect_err("no right"));
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        let mut deletes = 0;
        until(|| {
            deletes += server.take_asked().iter().filter(|it| **it == kind::DELETE).count();
            // The delete of the release, the first one of the task, and one after each minute.
            deletes == 2 + SKIPS
        })
        .await;
        settle().await;
        assert_eq!(server.take_asked(), [], "the next minute is not over");
        assert_eq!(warnings.load(Ordering::SeqCst), 1);
    })
    .await;
}

/// Counts the hints of a client.
#[derive(Default)]
struct Inbox(Mutex<Vec<Hint>>);

impl HintSink for Inbox {
    fn hint(&self, hint: Hint) {
        self.0.lock().expect("no panic").push(hint);
    }
}

/// The hints of the client with this [`inbox`].
fn inbox_of(core: &Core) -> Arc<Inbox> {
    let hints = Arc::new(Inbox::default());
    let sink: Arc<dyn HintSink> = hints.clone();
    core.sinks.watch(inbox(), Arc::downgrade(&sink));
    hints
}

/// Makes the server end a session.
async fn end(session: &Session, server: &Server) {
    server.greet(Greeting::HasForgotten);
    server.rule(Some((kind::EXISTS, Rule::HangsUp)));
    drop(session.ask(exists("/x/a"), Stat::read).await);
    until(|| session.is_over()).await;
}

/// The machine may have slept for longer than the session.
#[tokio::test]
async fn an_ask_that_learns_of_the_end_of_its_session_is_sent_again() {
    beside(async |core, server, _| {
        let gone = |kind| Some((kind, Rule::RefusesOnce(-112)));
        server.rule(gone(kind::CREATE));
        lock(core, "b").await;
        // A waiter has lost its place, and its client has to learn that.
        server.add("/x/a/_c_other-lock-0000000000");
        assert!(core.acquire(joining(&inbox())).await.expect("answered").is_taken());
        server.rule(gone(kind::EXISTS));
        let error = core.acquire(joining(&inbox())).await.expect_err("its place has ended");
        assert_eq!(Error::from(error).kind(), ErrorKind::Unavailable);
    })
    .await;
}

#[tokio::test]
async fn waiters_are_told_once_that_their_session_has_ended() {
    beside(async |core, server, host| {
        let hints = inbox_of(core);
        server.add("/x/a/_c_other-lock-0000000000");
        assert!(core.acquire(joining(&inbox())).await.expect("answered").is_taken());
        let session = core.wire.session().await.expect("it lives");
        end(&session, server).await;
        let looks = || host.long_sleeps.load(Ordering::SeqCst);
        for _ in 0..3 {
            let before = looks();
            core.tend();
            until(|| looks() > before).await;
        }
        assert_eq!(*hints.0.lock().expect("no panic"), [Hint::Missed]);
    })
    .await;
}

/// Waiters give up after an error that no retry can help. Before the first session, the URL may be
/// wrong. Later, a server may be down while another one is none of ZooKeeper.
#[tokio::test]
async fn a_server_that_is_none_of_zookeeper_ends_waits_only_before_the_first_session() {
    for (has_led, kind) in [(false, ErrorKind::Config), (true, ErrorKind::Unavailable)] {
        beside(async |core, server, _| {
            if has_led {
                end(&core.wire.session().await.expect("it begins"), server).await;
            }
            server.greet(Greeting::IsNoZookeeper);
            let refused = core.acquire(joining(&inbox())).await.expect_err("it is no ZooKeeper");
            let refused = Error::from(refused);
            assert_eq!(refused.kind(), kind, "{refused}");
            assert!(refused.to_string().contains("does not answer as ZooKeeper"), "{refused}");
        })
        .await;
    }
}

/// A client whose tasks cannot be woken.
#[derive(Default)]
struct Panicking(AtomicUsize);

impl HintSink for Panicking {
    fn hint(&self, _: Hint) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic_quietly();
    }
}

/// Otherwise no lease and no place would end by its time any more.
#[tokio::test]
async fn nodes_are_looked_after_although_a_client_panics_when_it_is_told() {
    beside(async |core, server, host| {
        let client = Arc::new(Panicking::default());
        let sink: Arc<dyn HintSink> = client.clone();
        core.sinks.watch(inbox(), Arc::downgrade(&sink));
        server.add("/x/a/_c_other-lock-0000000000");
        assert!(core.acquire(joining(&inbox())).await.expect("answered").is_taken());
        core.wire.board.add(|news| news.are_watches_lost = true);
        settle().await;
        assert_eq!(client.0.load(Ordering::SeqCst), 1, "it is told");
        let looks = || host.long_sleeps.load(Ordering::SeqCst);
        let before = looks();
        core.tend();
        settle().await;
        assert_eq!(looks(), before + 1);
    })
    .await;
}

#[test]
fn no_two_changes_share_a_fencing_token_and_too_high_ones_have_none() {
    let [one, next] = [41, 42].map(|change| tokens(change).expect("within bounds"));
    assert_eq!(next.first.get(), one.first.get() + u64::from(one.count));
    assert!(tokens(131_071 << 32).is_some());
    assert_eq!((tokens(131_072 << 32), tokens(0), tokens(-1)), (None, None, None));
}

#[test]
fn the_session_that_an_error_names_is_long_enough() {
    for ttl_ms in [10, 2_000, 6_000, 10_000, 60_000, 86_400_000] {
        let ttl = Duration::from_millis(ttl_ms);
        let session = Duration::from_secs(needed(ttl).as_secs() + 1);
        assert!(ttl + margin(session) <= session, "{ttl:?} {session:?}");
    }
}
