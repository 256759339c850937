//! Leases in one SQLite file, shared by the processes of one user on one machine.
//!
//! One connection runs all requests of a handle in order: several together in one transaction, a
//! single one by one conditional statement. Time is the steady clock of the machine, which all its
//! processes share. The file records the boot that its moments belong to.
//!
//! | file | purpose |
//! |---|---|
//! | `file` | checks where the file is |
//! | `schema`, `tables` | opening a file; its tables |
//! | `boot` | compares the file's clock with ours |
//! | `busy`, `gate` | waiting for other processes |
//! | `worker` | runs requests: on the caller's thread, or in batches on the store's thread |
//! | `engine` | the connection, and how it runs requests |
//! | `step` | the atomic steps, over the rows in `lock_row`, `shares` and `line_rows` |
//! | `waits` | notices changes by other processes |
//! | `bells`, `ear` | wake-ups by other processes |
//! | `purge` | forgets idle locks |

mod bells;
mod boot;
mod busy;
mod ear;
mod engine;
mod error;
pub(crate) mod examine;
mod file;
mod gate;
mod line_rows;
mod lock_row;
mod numbers;
mod purge;
mod schema;
mod shares;
mod step;
mod tables;
#[cfg(test)]
mod tests;
mod turn;
mod waits;
mod worker;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use self::engine::Engine;
use self::file::StoreFile;
use self::step::{
    Acquire, AnyJob, Evict, Inspect, Job, List, Release, Renew, Resize, Revoke, Step,
};
use self::worker::{Desk, work};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::Host;
use crate::process::{PerProcess, Process};
use crate::store::errors::impossible_claim;
use crate::store::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, Evicted, HintSink, LeaseId, OnRelease,
    Page, Reach, Released, Renewal, Renewed, Revoked, Sinks, Snapshot, Store, within,
};

/// The most requests that wait for the store's thread. A further one is answered `Unavailable`.
pub const QUEUE_MAX: usize = 100_000;

/// A store in one SQLite file. Clones share its connection and its thread.
///
/// The locks reach every process of the machine that opens the same file, which must be on a local
/// disk. Leases and counters outlive the processes. A process that is stopped inside a transaction
/// makes all others wait. Their requests then fail with `Unavailable` after a quarter of the ttl,
/// at most 1 s, or in line after half of the ttl, at most 5 s. A request behind one in line
/// ends as `Unknown` after twice its own time.
#[derive(Clone)]
pub struct SqliteStore {
    /// The process that opened it. A forked copy has none of the file locks, but SQLite believes
    /// that it has.
    process: Process,
    host: Arc<dyn Host>,
    label: Arc<str>,
    sinks: Arc<Sinks>,
    /// This comes before `jobs`, because the store's thread ends when the last sender is dropped.
    /// The thread should be the last owner of the connection, since closing it can take long.
    desk: Arc<Desk>,
    jobs: mpsc::Sender<Box<dyn AnyJob>>,
}

impl SqliteStore {
    /// Opens the store in the file at `path`, on the clock of `host`. Makes the file if it is
    /// missing, for this user only. Its directory must exist.
    ///
    /// Blocks while it reads the file. Waits at most a second in all for other processes that have
    /// the file locked, and syncs a new log to the disk. A process opens stores one at a time.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Config`] if the directory does not exist. Also if the file is on a network or
    ///   FUSE file system, is a directory, is not a store, or was written by a newer version. Such
    ///   a file stays unchanged.
    /// - [`ErrorKind::Denied`] if this user has no right to write the file or its directory.
    /// - [`ErrorKind::Unavailable`] if the file is locked, or the disk is full or broken.
    pub fn open(path: &Path, host: Arc<dyn Host>) -> Result<Self, Error> {
        Self::open_in_boot(path, host, &boot::boot_id()?)
    }

    /// Opens it as if this boot of the machine had that id.
    fn open_in_boot(path: &Path, host: Arc<dyn Host>, boot_id: &str) -> Result<Self, Error> {
        // Open one store at a time. Making a file ends with closing it, which drops all locks of
        // this process on it. So nobody else may open it meanwhile.
        static OPENING: PerProcess<Mutex<()>> = PerProcess::new();
        if let Some(other) = OPENING.inherited_from() {
            return Err(forked(path, other));
        }
        let opening = OPENING.own().lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = StoreFile::prepare(path)?;
        let (conn, busy) = schema::open(&file, boot_id, &host)?;
        file.remember_companions()?;
        drop(opening);
        let label: Arc<str> = format!("sqlite:{}", file.path().display()).into();
        let sinks = Arc::<Sinks>::default();
        let (jobs, inbox) = mpsc::channel(QUEUE_MAX);
        let engine = Engine::new(
            Arc::clone(&host),
            (conn, busy),
            file,
            Arc::clone(&label),
            Arc::clone(&sinks),
        );
        let desk = Arc::new(Desk::new(engine));
        let worker = work(Arc::clone(&host), Arc::clone(&desk), inbox);
        host.spawn_blocking("leasehold-sqlite", Box::pin(worker))?;
        Ok(Self { process: Process::this(), host, label, sinks, desk, jobs })
    }

    /// Submits a step now, and returns a future of its answer.
    fn submit<S: Step>(&self, limit: Duration, step: S) -> BoxAnswer<S::Answer> {
        let (reply, answer) = oneshot::channel();
        let sent = self.process.check().and_then(|()| {
            let job = Job::boxed(step, reply);
            let left =
                if S::AT_ONCE { self.desk.serve_at_once(&*self.host, job) } else { Some(job) };
            left.map_or(Ok(()), |job| self.queue(job))
        });
        let label = Arc::clone(&self.label);
        let answer = async move {
            sent?;
            let lost = "the request may have taken effect";
            answer.await.unwrap_or_else(|_| Err(gone(&label, ErrorKind::Unknown, lost)))
        };
        Box::pin(within(Arc::clone(&self.host), limit, answer))
    }

    /// Leaves a job to the store's thread.
    fn queue(&self, job: Box<dyn AnyJob>) -> Result<(), Error> {
        self.desk.enter();
        self.jobs.try_send(job).map_err(|error| {
            self.desk.leave(1);
            match error {
                TrySendError::Full(_) => Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "{}: {QUEUE_MAX} requests already wait for the file, which is the limit; \
                         no request was sent; try again later",
                        self.label
                    ),
                ),
                TrySendError::Closed(_) => {
                    gone(&self.label, ErrorKind::Unavailable, "no request was sent")
                }
            }
        })
    }
}

/// SQLite keeps a table of the file locks of its process. A fork copies the table, but not the
/// locks.
fn forked(path: &Path, from: Process) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "sqlite:{}: a fork made this process from {from}, which had used SQLite before; SQLite \
             would mistake the locks of that process for its own, so nothing was opened; run this \
             program again (exec), or fork before you open the first store",
            path.display()
        ),
    )
}

/// The error after the store's thread ended, which happens only after a panic.
fn gone(label: &str, kind: ErrorKind, state: &str) -> Error {
    Error::new(
        kind,
        format!("{label}: the thread of the store has ended; {state}; start this process again"),
    )
}

/// How long the future of a step may take. A step may need two commands.
fn limit(ttl: Ttl) -> Duration {
    2 * command_limit(ttl)
}

/// How long the future of this ask may take. An ask in line may wait longer for the file.
fn limit_of(acquire: &Acquire) -> Duration {
    let ttl = acquire.0.ttl;
    limit(ttl).max(acquire.busy_limit() + command_limit(ttl))
}

impl Store for SqliteStore {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let impossible = impossible_claim(ask.claim, &ask.key);
        let acquire = Acquire(ask);
        match impossible {
            None => self.submit(limit_of(&acquire), acquire),
            Some(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.submit(limit(renewal.ttl), Renew(renewal))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.submit(limit(Ttl::MAX), Release { lease, on_release })
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.submit(limit(Ttl::MAX), Inspect(key))
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        if self.process.is_this() {
            self.sinks.watch(inbox.clone(), sink);
        }
    }

    fn listen(&self, _: &ClientId) {
        // Watchers get hints from this process. Renewals tell about other processes.
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        match impossible_claim(Claim::Permits { want: 1, of }, &key) {
            None => self.submit(limit(Ttl::MAX), Resize { key, of }),
            Some(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::NONE;
        (promised.shared, promised.permits) = (true, true);
        promised.fencing = true;
        (promised.line, promised.watching) = (true, true);
        promised.reask = true;
        (promised.detached, promised.frees) = (true, true);
        promised.calls_up = true;
        (promised.hints, promised.reach) = (Reach::Machine, Reach::Machine);
        (promised.browse, promised.revoke) = (true, true);
        promised.durable = true;
        promised
    }

    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }

    fn label(&self) -> String {
        self.label.to_string()
    }
}

impl Browse for SqliteStore {
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let list = List { pattern: pattern.to_owned(), cursor };
        self.submit(limit(Ttl::MAX), list)
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        self.submit(limit(Ttl::MAX), Evict { key, seen, reason })
    }

    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, reason: String) -> BoxAnswer<Revoked> {
        self.submit(limit(Ttl::MAX), Revoke { key, seen, by, reason })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // SQLite forbids a forked process to close a connection of its parent.
        if !self.process.is_this() {
            std::mem::forget((Arc::clone(&self.desk), self.jobs.clone()));
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStore({})", self.label)
    }
}
