//! A store in one file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use leasehold::Error;
use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, Sleep, Task};
use leasehold::store::{BoxAnswer, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

use super::at_once;
use super::told::Teller;
use crate::simulation::process::Process;

/// A directory that is faster than a disk.
const FAST: &str = "/dev/shm";

/// A store file, and the reader that looks at it.
pub(super) struct StoreFile {
    path: PathBuf,
    /// Stays open until the last process has ended. SQLite ends the log with the last connection to
    /// a file, which must not happen when a killed process drops its connection.
    reader: SqliteStore,
    /// The work of the reader's thread.
    thread: Mutex<Task>,
    /// How many faults lock the file, and the connection that keeps it locked.
    locked: Mutex<(usize, Option<Connection>)>,
    _directory: TempDir,
}

impl StoreFile {
    /// Creates an empty store in a directory of its own.
    pub(super) fn make(clock: &Arc<Process>) -> Self {
        let at = if Path::new(FAST).is_dir() { PathBuf::from(FAST) } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new().prefix("leasehold-world-").tempdir_in(at);
        let directory = directory.expect("a directory for temporary files");
        let path = directory.path().join("locks.db");
        let host = Arc::new(ReaderHost { clock: Arc::clone(clock), thread: Mutex::default() });
        let reader = SqliteStore::open(&path, host.clone()).expect("a file of our own");
        let thread = lock(&host.thread).take().expect("a store starts its thread when it opens");
        let (thread, locked) = (Mutex::new(thread), Mutex::default());
        Self { path, reader, thread, locked, _directory: directory }
    }

    /// Opens the file in the process of a teller. The teller is told when the store's thread has
    /// worked.
    pub(super) fn open(&self, teller: &Arc<Teller>) -> Result<SqliteStore, Error> {
        SqliteStore::open(&self.path, Arc::new(ToldHost(Arc::clone(teller))))
    }

    /// Makes another process begin a write and stand still, or give the write up.
    pub(super) fn lock(&self, is_locked: bool) {
        let mut locked = lock(&self.locked);
        let (faults, holder) = &mut *locked;
        *faults = if is_locked { *faults + 1 } else { faults.saturating_sub(1) };
        if *faults == 0 {
            *holder = None;
        }
        if *faults > 0 && holder.is_none() {
            let other = Connection::open(&self.path).expect("the file is there");
            other.execute_batch("BEGIN IMMEDIATE").expect("nobody is writing between two steps");
            *holder = Some(other);
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        lock(&self.locked).1.is_some()
    }

    /// Asks the store a question that changes nothing.
    pub(super) fn look<T>(&self, ask: impl FnOnce(&SqliteStore) -> BoxAnswer<T>) -> T {
        at_once(ask(&self.reader), || {
            let mut context = Context::from_waker(Waker::noop());
            let goes_on = lock(&self.thread).as_mut().poll(&mut context).is_pending();
            assert!(goes_on, "the thread of a store ends with its last handle");
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host of the reader. None of its tasks runs by itself.
struct ReaderHost {
    clock: Arc<Process>,
    thread: Mutex<Option<Task>>,
}

impl Host for ReaderHost {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        self.clock.sleep_until(at)
    }

    fn spawn(&self, _nothing: Task) {}

    fn spawn_blocking(&self, _name: &str, task: Task) -> Result<(), Error> {
        *lock(&self.thread) = Some(task);
        Ok(())
    }

    fn may_block(&self) -> bool {
        false
    }

    fn random(&self, bytes: &mut [u8]) {
        self.clock.random(bytes);
    }
}

/// The host of a process. Its teller looks at the file before and after the store's thread works.
struct ToldHost(Arc<Teller>);

impl Host for ToldHost {
    fn now(&self) -> Moment {
        self.0.process().now()
    }

    fn wall(&self) -> WallTime {
        self.0.process().wall()
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        self.0.process().sleep_until(at)
    }

    fn spawn(&self, task: Task) {
        self.0.process().spawn(task);
    }

    fn spawn_blocking(&self, name: &str, mut task: Task) -> Result<(), Error> {
        let teller = Arc::clone(&self.0);
        let told = std::future::poll_fn(move |context| {
            teller.begins();
            let polled = task.as_mut().poll(context);
            teller.settle();
            polled
        });
        self.0.process().spawn_blocking(name, Box::pin(told))
    }

    fn may_block(&self) -> bool {
        self.0.process().may_block()
    }

    fn random(&self, bytes: &mut [u8]) {
        self.0.process().random(bytes);
    }
}
