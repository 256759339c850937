//! Stores without a server: the memory of one program, or one file that processes share.
//!
//! All processes of such a world run on one machine. They share one clock, which the store also
//! uses. There is no network. A request takes effect when its process carries it out, which is at
//! once or in the thread of its store.

mod file;
mod told;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::store::{Browse, MemoryStore, Snapshot, Store};
use leasehold::{Client, ClientBuilder, Error, Key};

use self::file::StoreFile;
use self::told::{Teller, Told};
use super::log::Log;
use super::plan::Plan;
use super::process::Process;
use crate::VirtualHost;
use crate::history::event::{Block, Name, ProcessId};

/// The store of a world on one machine.
pub(super) struct Local {
    log: Log,
    /// The clock of the machine, shared by all its processes.
    clock: Process,
    kept: Kept,
    /// Whether holders share keys. Then the history names no single owner after a request.
    is_shared: bool,
    did: Mutex<BTreeMap<&'static str, u64>>,
}

enum Kept {
    InMemory(MemoryStore),
    InFile(Box<StoreFile>),
}

/// The holder of a key, as the store shows it.
#[derive(Clone)]
struct Held {
    owner: Name,
    /// The time that its lease has left, on the common clock.
    left: Duration,
    fencing: Option<Block>,
}

impl Local {
    /// Creates a store in the memory of one program. Its clock is that of the first client.
    pub(super) fn in_memory(host: &Arc<VirtualHost>, log: Log, plan: &Plan) -> Arc<Self> {
        Self::new(host, log, plan, |clock| Kept::InMemory(MemoryStore::new(clock)))
    }

    /// Creates a store in a file of its own, which is deleted with it.
    pub(super) fn in_file(host: &Arc<VirtualHost>, log: Log, plan: &Plan) -> Arc<Self> {
        Self::new(host, log, plan, |clock| Kept::InFile(Box::new(StoreFile::make(&clock))))
    }

    fn new(
        host: &Arc<VirtualHost>,
        log: Log,
        plan: &Plan,
        keep: impl FnOnce(Arc<Process>) -> Kept,
    ) -> Arc<Self> {
        // This process does not appear in the history. It only provides the clock.
        let faster_ppm = plan.clients[0].faster_ppm;
        let clock = Process::new(ProcessId(u32::MAX), host, faster_ppm, 0);
        let kept = keep(Arc::new(clock.clone()));
        let is_shared = plan.sharing.is_some();
        Arc::new(Self { log, clock, kept, is_shared, did: Mutex::default() })
    }

    /// Creates a process of the machine.
    pub(super) fn process(&self, id: ProcessId, seed: u64) -> Process {
        self.clock.beside(id, seed)
    }

    /// Starts to build a client of the store in that process.
    pub(super) fn client(self: &Arc<Self>, process: &Arc<Process>) -> Result<ClientBuilder, Error> {
        let teller = Teller::new(Arc::clone(self), Process::clone(process));
        match &self.kept {
            Kept::InMemory(store) => Ok(Client::with_store(Told::new(store.clone(), teller))),
            Kept::InFile(file) => {
                let store = file.open(&teller)?;
                Ok(Client::with_store(Told::new(store, teller)))
            }
        }
    }

    /// Makes another process lock or unlock the file.
    pub(super) fn lock_file(&self, is_locked: bool) {
        if let Kept::InFile(file) = &self.kept {
            file.lock(is_locked);
        }
    }

    /// The owner of a key, and the time that its lease has left. If there are several owners, this
    /// is the owner with that token.
    pub(super) fn owner(&self, key: &str, token: &str) -> Option<(Name, Duration)> {
        let mut held = self.all_held(key);
        let at = held.iter().position(|held| &*held.owner == token).unwrap_or(0);
        (at < held.len()).then(|| held.swap_remove(at)).map(|held| (held.owner, held.left))
    }

    /// Every key that has a holder or a waiter, with the time that its lease has left.
    pub(super) fn keys(&self) -> Vec<(String, Option<Duration>)> {
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page = match &self.kept {
                Kept::InMemory(store) => at_once(store.list("*", cursor), || {}),
                Kept::InFile(file) => file.look(|store| store.list("*", cursor)),
            };
            let left = |key: &Key| {
                let left = self.owner(key.as_str(), "").map_or(Duration::ZERO, |(_, left)| left);
                (key.as_str().to_owned(), Some(left))
            };
            keys.extend(page.keys.iter().map(left));
            cursor = page.next;
            if cursor.is_none() {
                return keys;
            }
        }
    }

    /// Counts of events that only worlds without a server have.
    pub(super) fn did(&self) -> Vec<(&'static str, u64)> {
        let did = self.did.lock().unwrap_or_else(PoisonError::into_inner);
        did.iter().map(|(what, times)| (*what, *times)).collect()
    }

    fn note(&self, what: &'static str) {
        let mut did = self.did.lock().unwrap_or_else(PoisonError::into_inner);
        *did.entry(what).or_default() += 1;
    }

    /// Counts an answer, which came from the store's thread, or else before the call returned.
    fn note_answer(&self, by_thread: bool) {
        self.note(match &self.kept {
            Kept::InMemory(_) => "asked in memory",
            Kept::InFile(_) if by_thread => "asked by the thread of a file",
            Kept::InFile(_) => "asked in a file at once",
        });
    }

    /// Counts a refusal.
    fn note_refusal(&self) {
        if matches!(&self.kept, Kept::InFile(file) if file.is_locked()) {
            self.note("file found locked");
        }
    }

    fn held(&self, key: &str) -> Option<Held> {
        self.all_held(key).into_iter().next()
    }

    fn all_held(&self, key: &str) -> Vec<Held> {
        let key = Key::new(key).expect("a key of ours");
        let snapshot: Snapshot = match &self.kept {
            Kept::InMemory(store) => at_once(store.inspect(key), || {}),
            Kept::InFile(file) => file.look(|store| store.inspect(key)),
        };
        let held = snapshot.holders.iter().map(|holder| Held {
            owner: Name::from(String::from_utf8_lossy(&holder.token)),
            left: self.clock.on_common_clock(holder.ttl_left.unwrap_or(Duration::MAX)),
            fencing: holder
                .fencing
                .map(|block| Block { first: block.first.get(), count: block.count.into() }),
        });
        held.collect()
    }
}

/// Returns an answer that is ready at once, or after `work`.
fn at_once<T>(answer: impl Future<Output = Result<T, Error>>, mut work: impl FnMut()) -> T {
    let mut answer = pin!(answer);
    let mut context = Context::from_waker(Waker::noop());
    work();
    match answer.as_mut().poll(&mut context) {
        Poll::Ready(answer) => answer.expect("an observer always gets an answer"),
        Poll::Pending => panic!("an observer gets its answer without waiting"),
    }
}
