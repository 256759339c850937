use std::sync::atomic::AtomicU64;
use std::task::Context;

use futures_util::FutureExt as _;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::core::moment::WallTime;
use crate::host::shielded::panicking_waker;
use crate::host::{SystemHost, Task};
use crate::store::zookeeper::error::Fault;
use crate::store::zookeeper::rpc::{delete, exists};
use crate::store::zookeeper::session::{Session, margin};

#[test]
fn an_answer_to_another_request_takes_none_away() {
    let mut pending = VecDeque::from([(1, "one"), (2, "two")]);
    assert_eq!(take_answered(&mut pending, 2), None);
    assert_eq!(pending.len(), 2);
    assert_eq!(take_answered(&mut pending, 1), Some("one"));
    assert_eq!(take_answered(&mut pending, 2), Some("two"));
    assert_eq!(take_answered(&mut pending, 3), None);
}

#[test]
fn a_silent_connection_is_given_up_while_its_session_surely_lasts() {
    for seconds in [4, 8, 15, 60, 600] {
        let timeout = Duration::from_secs(seconds);
        // The silence may begin right after an answer, and end right before it is checked.
        let silence = silence_max(timeout) + 2 * step(timeout);
        assert!(silence < margin(timeout), "{timeout:?}: {silence:?}");
        // A lock of the default ttl is renewed at another server in time.
        assert!(silence_max(timeout) <= Duration::from_millis(2_500), "{timeout:?}");
    }
}

/// The session may have ended meanwhile.
#[tokio::test]
async fn a_request_after_a_standstill_waits_for_the_next_connection() {
    let (ours, mut theirs) = tokio::io::duplex(1 << 10);
    let host = SystemHost::shared();
    let connector = ZookeeperConnector::new("zookeeper://127.0.0.1/a").expect("a URL");
    let (ticket, timeout) = (Ticket { id: 1, password: [0; 16] }, Duration::ZERO);
    // The connection was last used when this machine started.
    let sent = Moment::from_nanos(0);
    let frames = Frames::new(Box::new(ours));
    let opened = Opened { frames, ticket, timeout, number: 0, sent };
    let (session, ends) = Session::new(&host, (ticket.id, timeout), "".into(), Arc::default());
    let mut driver = Driver::new(&host, connector, &opened, ends);
    let _asked = session.ask(exists("/a"), |_| Ok(()));
    let end = driver.serve(opened.frames, Usage { sent, due: None }).await;
    assert!(matches!(end, End::Lost(Failure::Broken(_))));
    assert!(driver.waiting.len() == 1, "it waits");
    let mut arrived = Vec::new();
    theirs.read_to_end(&mut arrived).await.expect("it was closed");
    assert_eq!(arrived, b"");
}

/// The server may have ended the session by then.
#[test]
fn a_connection_on_which_either_side_was_silent_for_too_long_is_given_up() {
    let host: Arc<dyn Host> = Arc::new(Set::default());
    let (_session, driver, _frames) = driver_of(&host, Moment::from_nanos(0));
    let (gap, silence) = (gap_max(driver.timeout), silence_max(driver.timeout));
    let start = Moment::from_nanos(1);
    let later = Duration::from_nanos(1);
    for (sent, due, now, goes_on) in [
        (start, None, start + gap, true),
        (start, None, start + gap + later, false),
        (start + silence, Some(start), start + silence, true),
        (start + silence, Some(start), start + silence + later, false),
    ] {
        let checked = driver.check(&Usage { sent, due }, now);
        assert_eq!(checked.is_ok(), goes_on, "sent at {sent:?}, due since {due:?}, now {now:?}");
    }
}

/// The leases of the session were granted for the longer time.
#[test]
fn a_server_that_makes_the_session_shorter_is_not_used() {
    let host: Arc<dyn Host> = Arc::new(Set::default());
    for (shorter_ms, refused) in [(1, Some(ErrorKind::Unavailable)), (0, None)] {
        let (_session, driver, opened) = driver_of(&host, Moment::from_nanos(0));
        let timeout = driver.timeout - Duration::from_millis(shorter_ms);
        let checked = driver.checked(Some(Opened { timeout, ..opened }));
        assert_eq!(checked.as_ref().err().map(Error::kind), refused, "{timeout:?}");
        assert!(checked.is_err() || checked.is_ok_and(|opened| opened.is_some()));
        assert!(driver.checked(None).is_ok_and(|over| over.is_none()), "the session has ended");
    }
}

/// Waiters give up after an error that no retry can help.
#[test]
fn a_server_that_refuses_to_go_on_with_a_session_ends_no_wait() {
    for (kind, part) in [
        (ErrorKind::Config, "no server serves this client for now: why"),
        (ErrorKind::Denied, "no server serves this client for now: why"),
        (ErrorKind::Unavailable, "why"),
    ] {
        let error = for_now(Error::new(kind, "why"));
        assert_eq!((error.kind(), error.message()), (ErrorKind::Unavailable, part));
    }
}

/// A host whose clock the test sets.
#[derive(Default)]
struct Set(AtomicU64);

impl Host for Set {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::SeqCst))
    }
    fn wall(&self) -> WallTime {
        WallTime::default()
    }
    fn sleep_until(&self, _: Moment) -> Sleep {
        unreachable!("a request has no timer");
    }
    fn spawn(&self, _: Task) {
        unreachable!("a request has no task");
    }
    fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
        unreachable!("a request has no thread");
    }
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

#[test]
fn requests_without_an_answer_in_time_end_without_timers_of_their_own() {
    let set = Arc::new(Set::default());
    let host: Arc<dyn Host> = set.clone();
    let (session, mut driver, _frames) = driver_of(&host, Moment::from_nanos(0));
    let change = || session.ask(delete("/a"), |_| Ok(()));
    let (sent, late, waits) = (change(), change(), change());
    for _ in 0..2 {
        let Some(Item::Ask(packet)) = driver.next_now() else { panic!("it was asked") };
        driver.add(packet, host.now(), &mut Vec::new());
    }
    set.0.store(1, Ordering::SeqCst);
    let young = change();
    let limit = u64::try_from(ASK_LIMIT.as_nanos()).expect("a short time");
    set.0.store(limit - 1, Ordering::SeqCst);
    driver.sweep();
    assert!(driver.pending.iter().all(|(_, caller)| caller.is_some()), "it is not over");
    take_answered(&mut driver.pending, 1).flatten().expect("it waits").end(Ok(Vec::new()));
    set.0.store(limit, Ordering::SeqCst);
    driver.sweep();
    assert!(ended(sent).is_ok());
    let kind = |answer: Result<(), Fault>| Error::from(answer.expect_err("too late")).kind();
    assert_eq!(kind(ended(late)), ErrorKind::Unknown, "it was sent");
    assert_eq!(kind(ended(waits)), ErrorKind::Unavailable, "it was not sent");
    assert!(driver.pending.front().is_some_and(|(_, caller)| caller.is_none()));
    assert!(take_answered(&mut driver.pending, 2).is_some(), "the server still answers");
    assert_eq!(driver.waiting.len(), 1, "a younger one goes on");
    drop(driver);
    assert!(matches!(ended(young), Err(Fault::SessionOver)));
}

/// The requests of tools go past `InOrder`, so the driver wakes their callers itself.
#[test]
fn a_panic_of_a_callers_waker_does_not_end_the_session() {
    let host: Arc<dyn Host> = Arc::new(Set::default());
    let (session, mut driver, _frames) = driver_of(&host, Moment::from_nanos(0));
    let asked = || Box::pin(session.ask(exists("/a"), |_| Ok(())));
    let (mut one, other) = (asked(), asked());
    let panics = panicking_waker();
    assert!(one.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    for xid in [1, 2] {
        let Some(Item::Ask(packet)) = driver.next_now() else { panic!("it was asked") };
        driver.add(packet, host.now(), &mut Vec::new());
        let caller = take_answered(&mut driver.pending, xid).flatten().expect("it waits");
        caller.end(Ok(Vec::new()));
    }
    assert!(ended(one).is_ok() && ended(other).is_ok());
    assert!(!session.is_over());
}

fn ended(request: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
    request.now_or_never().expect("its caller was told")
}

/// A session and its driver, on a connection that was used at that moment.
fn driver_of(host: &Arc<dyn Host>, sent: Moment) -> (Session, Driver, Opened) {
    let (ours, _theirs) = tokio::io::duplex(1 << 10);
    let connector = ZookeeperConnector::new("zookeeper://127.0.0.1/a").expect("a URL");
    let (ticket, timeout) = (Ticket { id: 1, password: [0; 16] }, Duration::from_secs(15));
    let opened = Opened { frames: Frames::new(Box::new(ours)), ticket, timeout, number: 0, sent };
    let (session, ends) = Session::new(host, (ticket.id, timeout), "".into(), Arc::default());
    let driver = Driver::new(host, connector, &opened, ends);
    (session, driver, opened)
}
