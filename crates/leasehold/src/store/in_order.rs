//! Keeps the order of requests that the contract demands, for stores whose client sends only when
//! polled.
//!
//! Most clients of databases send nothing before their future is polled, and cancel the request
//! when it is dropped. A [`Store`] must do neither, see *Order* there.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease, Released,
    Renewal, Renewed, Snapshot, Store, within,
};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::{Host, Task};
use crate::process::Process;
use crate::unpoisoned::Unpoisoned;

/// How many requests for one key may wait. One more is refused with [`ErrorKind::Unavailable`].
const QUEUE_MAX: usize = 10_000;

/// Sends the requests to a lazy store in the order in which they were made, even if nobody polls
/// their futures.
///
/// The requests for one key are carried out one after the other, and those for different keys side
/// by side. Renewals are carried out at once. All requests run on the [`Host`], not on the caller's
/// runtime, so they must not block. An answer that does not come within the [`command_limit`] of
/// the ttl becomes an [`Unknown`](ErrorKind::Unknown) error. The request still goes on, and later
/// requests for its key wait for it. So the wrapped store must end every request in bounded time.
/// At most 10 000 requests wait for one key; more are refused with
/// [`Unavailable`](ErrorKind::Unavailable).
///
/// Clones share the queues. [`inspect`](Store::inspect) and [`browse`](Store::browse) go straight
/// to the store.
///
/// The example `own_store.rs` wraps a small store of its own.
pub struct InOrder<S> {
    /// The process that made it. A fork copies the queues, but not the tasks that work on them.
    process: Process,
    store: Arc<S>,
    host: Arc<dyn Host>,
    queues: Arc<Queues>,
}

/// The waiting requests by key. A key stays in the map while a task works on its requests.
#[derive(Default)]
struct Queues(Unpoisoned<HashMap<Key, VecDeque<Task>>>);

impl<S: Store> InOrder<S> {
    /// Wraps `store`. Its requests run on `host`.
    pub fn new(store: S, host: Arc<dyn Host>) -> Self {
        let (process, store) = (Process::this(), Arc::new(store));
        Self { process, store, host, queues: Arc::default() }
    }

    /// Appends a request to the queue of its key; without a key, starts it at once.
    fn submit<T: Send + 'static>(
        &self,
        key: Option<&Key>,
        ttl: Ttl,
        request: impl FnOnce(&S) -> BoxAnswer<T> + Send + 'static,
    ) -> BoxAnswer<T> {
        if let Err(copied) = self.process.check() {
            return Box::pin(ready(Err(copied)));
        }
        let (tell, told) = oneshot::channel();
        let store = Arc::clone(&self.store);
        let job: Task = Box::pin(async move {
            let answer = request(&store).await;
            // The caller may have dropped its future.
            drop(tell.send(answer));
        });
        match key {
            None => self.host.spawn(job),
            Some(key) => {
                if let Err(full) = self.queues.append(key, job, &self.host) {
                    return Box::pin(ready(Err(full)));
                }
            }
        }
        let answer = async move { told.await.unwrap_or_else(|_| Err(host_ended())) };
        Box::pin(within(Arc::clone(&self.host), command_limit(ttl), answer))
    }
}

impl Queues {
    fn append(self: &Arc<Self>, key: &Key, job: Task, host: &Arc<dyn Host>) -> Result<(), Error> {
        let mut queues = self.0.lock();
        if let Some(queue) = queues.get_mut(key) {
            if queue.len() >= QUEUE_MAX {
                return Err(too_many(key));
            }
            queue.push_back(job);
            return Ok(());
        }
        queues.insert(key.clone(), VecDeque::from([job]));
        drop(queues);
        let working = Working { queues: Arc::clone(self), key: key.clone(), is_over: false };
        host.spawn(Box::pin(working.work()));
        Ok(())
    }

    /// Takes the next request for a key. Removes the key if there is none.
    fn next(&self, key: &Key) -> Option<Task> {
        let mut queues = self.0.lock();
        let next = queues.get_mut(key)?.pop_front();
        if next.is_none() {
            queues.remove(key);
        }
        next
    }
}

/// Works on the requests for one key. If it is dropped early, it drops the waiting requests too, so
/// that their callers get an error.
struct Working {
    queues: Arc<Queues>,
    key: Key,
    /// Whether this value has given up the key. Then another task may work on the key.
    is_over: bool,
}

impl Working {
    async fn work(mut self) {
        while let Some(job) = self.queues.next(&self.key) {
            job.await;
        }
        self.is_over = true;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let queue = self.queues.0.lock().remove(&self.key);
        // Drop it after the lock is released, because dropping a request wakes its caller.
        drop(queue);
    }
}

fn too_many(key: &Key) -> Error {
    let message = format!(
        "{QUEUE_MAX} requests for this lock already wait, which is the limit; no request was sent; \
         try again later"
    );
    Error::new(ErrorKind::Unavailable, message).with_name(key.as_str())
}

fn host_ended() -> Error {
    Error::new(
        ErrorKind::Unknown,
        "the request was dropped, since its runtime ended or an earlier request panicked; it may \
         have taken effect",
    )
}

impl<S> Clone for InOrder<S> {
    fn clone(&self) -> Self {
        let Self { process, store, host, queues } = self;
        let (store, host, queues) = (Arc::clone(store), Arc::clone(host), Arc::clone(queues));
        Self { process: process.clone(), store, host, queues }
    }
}

impl<S> Drop for InOrder<S> {
    fn drop(&mut self) {
        // After a fork, the child must not close the connections, because the parent uses them.
        if !self.process.is_this() {
            std::mem::forget((Arc::clone(&self.store), Arc::clone(&self.queues)));
        }
    }
}

impl<S: Store> fmt::Debug for InOrder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InOrder({})", self.store.label())
    }
}

impl<S: Store> Store for InOrder<S> {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let (key, ttl) = (ask.key.clone(), ask.ttl);
        self.submit(Some(&key), ttl, |store| store.acquire(ask))
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        // Renewals need no order, and a lease must not be lost behind a slow acquire.
        self.submit(None, renewal.ttl, |store| store.renew(renewal))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        let key = lease.key.clone();
        // The ttl of the lease is not known here, so the longest limit applies.
        self.submit(Some(&key), Ttl::MAX, |store| store.release(lease, on_release))
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        match self.process.check() {
            Ok(()) => self.store.inspect(key),
            Err(refused) => Box::pin(ready(Err(refused))),
        }
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        if self.process.is_this() {
            self.store.watch(inbox, sink);
        }
    }

    fn listen(&self, inbox: &ClientId) {
        if self.process.is_this() {
            self.store.listen(inbox);
        }
    }

    fn tell_when_free(&self, key: &Key, inbox: &ClientId) {
        if self.process.is_this() {
            self.store.tell_when_free(key, inbox);
        }
    }

    fn let_go(&self, lease: &LeaseId) {
        self.store.let_go(lease);
    }

    fn shard(&self, key: &Key) -> u64 {
        self.store.shard(key)
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        self.store.resize(key, of)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn browse(&self) -> Option<&dyn Browse> {
        self.store.browse()
    }

    fn label(&self) -> String {
        self.store.label()
    }
}
