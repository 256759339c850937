//! Tests of `hints.rs`: who waits, and what each connection is told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::core::error::Error;
use crate::core::moment::WallTime;
use crate::host::{Sleep, Task};
use crate::store::HintSink;
use crate::store::mysql::MysqlConnector;

/// A host whose clock the test sets, in milliseconds. It runs no task.
#[derive(Default)]
struct Set(AtomicU64);

impl Host for Set {
    fn now(&self) -> Moment {
        at(self.0.load(Ordering::SeqCst))
    }
    fn wall(&self) -> WallTime {
        WallTime::default()
    }
    fn sleep_until(&self, _: Moment) -> Sleep {
        unreachable!("nothing is timed");
    }
    fn spawn(&self, task: Task) {
        drop(task);
    }
    fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
        unreachable!("nothing blocks");
    }
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// The hints of a store on a database that sends none by itself.
fn of_polling() -> (Arc<Set>, Arc<Sinks>, Arc<Hints<MysqlConnector>>) {
    let (set, sinks) = (Arc::<Set>::default(), Arc::<Sinks>::default());
    let engine = MysqlConnector::new("mysql://anna@h/locks").expect("a URL");
    let hints = Hints::new(set.clone(), engine, Weak::new(), Arc::clone(&sinks));
    (set, sinks, hints)
}

#[test]
fn a_client_waits_until_its_longest_wait_is_over_and_a_new_wait_or_a_hint_ends_the_quiet() {
    let (set, _sinks, hints) = of_polling();
    let quiet = |ms| hints.quiet_for(at(ms)).map(|quiet| quiet.as_millis());
    let wait = |ms, span, begins| {
        set.0.store(ms, Ordering::SeqCst);
        hints.waits(Duration::from_millis(span), begins);
    };
    assert_eq!(quiet(0), None, "nobody waits");
    wait(1_000, 10_000, true);
    wait(2_000, 1_000, false);
    assert_eq!(quiet(5_000), Some(4_000), "the longer wait goes on");
    wait(6_000, 1_000, true);
    assert_eq!(quiet(6_500), Some(500), "another one has begun");
    set.0.store(7_000, Ordering::SeqCst);
    hints.heard();
    assert_eq!((quiet(7_500), quiet(10_999)), (Some(500), Some(3_999)));
    assert_eq!(quiet(11_000), None, "the longer wait is over");
    wait(20_000, 1_000, false);
    assert_eq!(quiet(20_500), Some(500), "nobody knew of it");
}

/// The hints that a client was told.
#[derive(Default)]
struct Told(Mutex<Vec<Hint>>);

impl HintSink for Told {
    fn hint(&self, hint: Hint) {
        self.0.lock().expect("no panic").push(hint);
    }
}

/// Nobody received the hints between two connections.
#[test]
fn each_connection_is_told_of_all_inboxes_and_their_clients_ask_again() {
    let (_set, sinks, hints) = of_polling();
    let inbox = ClientId::new("Nn23PXTR8zL5").expect("an id");
    hints.listen(&inbox);
    assert!(!hints.is_wanted(), "nobody takes its hints");
    let client = Arc::new(Told::default());
    let sink: Arc<dyn HintSink> = client.clone();
    sinks.watch(inbox.clone(), Arc::downgrade(&sink));
    hints.listen(&inbox);
    for times in 1..=2 {
        assert!(hints.is_wanted());
        let new = hints.new_inboxes();
        assert_eq!(new, std::slice::from_ref(&inbox));
        hints.confirm(&new);
        assert!(hints.new_inboxes().is_empty(), "it is confirmed");
        assert_eq!(*client.0.lock().expect("no panic"), vec![Hint::Missed; times]);
        hints.disconnected();
    }
    drop((client, sink));
    assert!(!hints.is_wanted(), "its client is gone");
}
