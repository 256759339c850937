//! Tests of this store alone, beyond the suite that all stores share.
#![allow(clippy::disallowed_methods, reason = "these tests bring a host of their own")]

mod bells;
mod boots;
mod files;
mod listing;
mod processes;
mod sharing;
mod trouble;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use tempfile::TempDir;

use super::SqliteStore;
use super::error::Failure;
use super::step::Step;
use super::turn::Turn;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::{Moment, WallTime};
use crate::core::token::{ClientId, FencingBlock, OwnerToken};
use crate::core::ttl::Ttl;
use crate::host::{Host, Sleep, Task};
use crate::store::{
    Acquired, Ask, Claim, Hint, HintSink, LeaseId, Line, OnRelease, Released, Store,
};

/// Long enough for anything that happens at all.
const EVENTUALLY: Duration = Duration::from_secs(60);

/// A host whose clocks stand still until they are set.
#[derive(Debug, Default)]
struct SetClock {
    now: AtomicU64,
    wall: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
}

impl SetClock {
    fn at(now: Duration, wall_micros: u64) -> Arc<Self> {
        let clock = Self::default();
        clock.now.store(now.as_nanos() as u64, Ordering::SeqCst);
        clock.wall.store(wall_micros, Ordering::SeqCst);
        Arc::new(clock)
    }

    fn advance(&self, span: Duration) {
        self.now.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
        self.wall.fetch_add(span.as_micros() as u64, Ordering::SeqCst);
        for sleeper in self.sleepers.lock().expect("whole").drain(..) {
            sleeper.wake();
        }
    }

    fn set_wall(&self, micros: u64) {
        self.wall.store(micros, Ordering::SeqCst);
    }
}

/// Hands one clock to several stores.
struct OnClock(Arc<SetClock>);

impl Host for OnClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.now.load(Ordering::SeqCst))
    }
    fn wall(&self) -> WallTime {
        WallTime::from_unix_micros(self.0.wall.load(Ordering::SeqCst))
    }
    fn sleep_until(&self, at: Moment) -> Sleep {
        let clock = Arc::clone(&self.0);
        Box::pin(std::future::poll_fn(move |context| {
            let mut sleepers = clock.sleepers.lock().expect("whole");
            if clock.now.load(Ordering::SeqCst) >= at.as_nanos() {
                return Poll::Ready(());
            }
            sleepers.push(context.waker().clone());
            Poll::Pending
        }))
    }
    fn spawn(&self, _: Task) {
        unreachable!("this store has but one task");
    }
    fn spawn_blocking(&self, _: &str, task: Task) -> Result<(), Error> {
        std::thread::spawn(move || run(task));
        Ok(())
    }
    fn random(&self, _: &mut [u8]) {
        unreachable!("this store draws no random numbers");
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// A directory with a store in it, and a clock.
struct World {
    dir: TempDir,
    clock: Arc<SetClock>,
}

/// A wall clock of our days, in µs.
const TODAY: u64 = 1_760_000_000_000_000;

impl World {
    fn new() -> Self {
        let clock = SetClock::at(Duration::from_secs(1_000), TODAY);
        Self { dir: tempfile::tempdir().expect("a directory"), clock }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("locks.db")
    }

    fn host(&self) -> Arc<dyn Host> {
        Arc::new(OnClock(Arc::clone(&self.clock)))
    }

    /// Restarts the machine: its steady clock begins again, and its wall clock is set. Waits for
    /// the threads of all stores first, because no process outlives a restart.
    fn restart(self, now: Duration, wall_micros: u64) -> Self {
        while Arc::strong_count(&self.clock) > 1 {
            std::thread::yield_now();
        }
        Self { clock: SetClock::at(now, wall_micros), ..self }
    }

    /// Opens a handle, as another process would.
    fn open(&self) -> SqliteStore {
        self.open_in_boot("this boot")
    }

    fn open_in_boot(&self, boot: &str) -> SqliteStore {
        SqliteStore::open_in_boot(&self.path(), self.host(), boot).expect("it opens")
    }
}

/// A sink that keeps its hints.
struct Mailbox(Mutex<mpsc::Sender<Hint>>);

impl HintSink for Mailbox {
    fn hint(&self, hint: Hint) {
        let _ = self.0.lock().expect("whole").send(hint);
    }
}

/// Watches an inbox. Hints arrive while the sink lives.
fn watch(store: &SqliteStore, inbox: &ClientId) -> (Arc<dyn HintSink>, mpsc::Receiver<Hint>) {
    let (sender, hints) = mpsc::channel();
    let sink: Arc<dyn HintSink> = Arc::new(Mailbox(Mutex::new(sender)));
    store.watch(inbox, Arc::downgrade(&sink));
    (sink, hints)
}

fn key(name: &str) -> Key {
    Key::new(name).expect("a name")
}

fn client(number: u8) -> ClientId {
    ClientId::from_random([number; ClientId::CHARS])
}

/// The token number `number` of a client.
fn owner(client_number: u8, number: u8) -> OwnerToken {
    OwnerToken::from_random([number; OwnerToken::RANDOM_BYTES], &client(client_number))
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("within bounds")
}

fn ask(name: &str, owner: OwnerToken) -> Ask {
    let (claim, line) = (Claim::Exclusive, Line::None);
    Ask { key: key(name), owner, claim, ttl: ttl(10_000), line, note: None, reserve: 1 }
}

fn join(name: &str, owner: OwnerToken, ask_no: u32) -> Ask {
    let inbox = owner.client().expect("one of ours");
    let line = Line::Join { waiter_ttl: ttl(3_000), handed_ttl: ttl(3_000), ask_no, inbox };
    Ask { line, ..ask(name, owner) }
}

fn lease(name: &str, owner: OwnerToken) -> LeaseId {
    LeaseId { key: key(name), owner, claim: Claim::Exclusive }
}

/// Acquires, and returns the first fencing token.
#[track_caller]
fn granted(answer: Result<Acquired, Error>) -> u64 {
    match answer.expect("an answer") {
        Acquired::Granted { fencing: Some(FencingBlock { first, .. }) } => first.get(),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_taken(answer: Result<Acquired, Error>) {
    assert!(answer.as_ref().is_ok_and(Acquired::is_taken), "{answer:?}");
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind, part: &str) {
    let error = answer.expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

/// Runs a function on the store's thread.
struct Custom<F>(F);

impl<F: Fn(&rusqlite::Connection) -> rusqlite::Result<()> + Send + 'static> Step for Custom<F> {
    type Answer = ();

    fn busy_limit(&self) -> Duration {
        super::step::BUSY_LIMIT_MAX
    }
    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<()>> {
        (self.0)(turn.conn).map(Some)
    }
    fn full(&self, _: &mut Turn<'_>) -> Result<(), Failure> {
        unreachable!("it is always done quickly");
    }
}

/// Runs SQL on the store's own connection.
fn run_sql(store: &SqliteStore, sql: &'static str) {
    run(store
        .submit(EVENTUALLY, Custom(move |conn: &rusqlite::Connection| conn.execute_batch(sql))))
    .expect("it runs");
}

/// Blocks the store's thread until the sender is dropped.
fn hold_up(store: &SqliteStore) -> mpsc::Sender<()> {
    let (go_on, wait) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let wait = Mutex::new(wait);
    drop(store.submit(
        EVENTUALLY,
        Custom(move |_: &rusqlite::Connection| {
            let _ = entered.send(());
            let _ = wait.lock().expect("whole").recv();
            Ok(())
        }),
    ));
    inside.recv_timeout(EVENTUALLY).expect("the store's thread comes to it");
    go_on
}
