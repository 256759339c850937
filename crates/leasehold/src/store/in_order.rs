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
/// by side. [`resize`](Store::resize) is one of these requests. Renewals are carried out at once.
/// All requests run on the [`Host`], not on the caller's runtime, so they must not block. An answer
/// that does not come within the [`command_limit`] of the ttl becomes an
/// [`Unknown`](ErrorKind::Unknown) error. The request still goes on, and later requests for its key
/// wait for it. So the wrapped store must end every request in bounded time. At most 10 000
/// requests wait for one key; more are refused with [`Unavailable`](ErrorKind::Unavailable).
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
        // An ask names the number of permits that its caller knows.
        self.submit(Some(&key.clone()), Ttl::MAX, move |store| store.resize(key, of))
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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::core::moment::{Moment, WallTime};
    use crate::core::token::OwnerToken;
    use crate::host::Sleep;
    use crate::host::shielded::panic_quietly;
    use crate::store::{AnyStore, Claim, Hint, MemoryStore};

    /// A host whose clock stands still, and whose tasks the test polls.
    #[derive(Default)]
    struct ByHand(Mutex<Vec<Task>>);

    impl ByHand {
        /// Polls each task once. A task that panics has ended.
        fn run(&self) {
            let mut tasks = std::mem::take(&mut *self.0.lock().expect("no panic"));
            let mut context = Context::from_waker(Waker::noop());
            tasks.retain_mut(|task| {
                let poll = AssertUnwindSafe(|| task.as_mut().poll(&mut context));
                matches!(catch_unwind(poll), Ok(Poll::Pending))
            });
            self.0.lock().expect("no panic").extend(tasks);
        }
    }

    impl Host for ByHand {
        fn now(&self) -> Moment {
            Moment::default()
        }
        fn wall(&self) -> WallTime {
            WallTime::default()
        }
        fn sleep_until(&self, _: Moment) -> Sleep {
            Box::pin(pending())
        }
        fn spawn(&self, task: Task) {
            self.0.lock().expect("no panic").push(task);
        }
        fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
            unreachable!("this store has no thread");
        }
        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    /// A store that has no answer for the owner `silent`, and panics for the owner `broken`.
    struct Odd {
        store: MemoryStore,
        told: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Odd {
        fn tell(&self, what: &'static str) {
            self.told.lock().expect("no panic").push(what);
        }
    }

    impl Store for Odd {
        fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
            match ask.owner.as_str() {
                "silent" => Box::pin(pending()),
                "broken" => Box::pin(async {
                    panic_quietly();
                    Err(host_ended())
                }),
                _ => self.store.acquire(ask),
            }
        }
        fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
            self.store.renew(renewal)
        }
        fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
            self.store.release(lease, on_release)
        }
        fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
            self.store.inspect(key)
        }
        fn watch(&self, _: &ClientId, _: Weak<dyn HintSink>) {
            self.tell("watch");
        }
        fn listen(&self, _: &ClientId) {
            self.tell("listen");
        }
        fn tell_when_free(&self, _: &Key, _: &ClientId) {
            self.tell("tell_when_free");
        }
        fn let_go(&self, _: &LeaseId) {
            self.tell("let_go");
        }
        fn shard(&self, _: &Key) -> u64 {
            7
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
            "odd".to_owned()
        }
    }

    type Told = Arc<Mutex<Vec<&'static str>>>;

    fn opened() -> (Arc<ByHand>, Told, InOrder<Odd>) {
        let host = Arc::<ByHand>::default();
        let told = Arc::<Mutex<Vec<_>>>::default();
        let store = Odd { store: MemoryStore::new(host.clone()), told: Arc::clone(&told) };
        (host.clone(), told, InOrder::new(store, host))
    }

    fn lease(owner: &str) -> LeaseId {
        let key = Key::new("a").expect("a good name");
        let owner = OwnerToken::new(owner).expect("a token");
        LeaseId { key, owner, claim: Claim::Exclusive }
    }

    fn ask(owner: &str) -> Ask {
        let LeaseId { key, owner, claim } = lease(owner);
        Ask::new(key, owner, claim, Ttl::DEFAULT)
    }

    #[test]
    fn a_renewal_does_not_wait_for_a_request_without_an_answer_and_a_release_does() {
        let (host, _, store) = opened();
        let granted = store.acquire(ask("anna"));
        host.run();
        assert!(matches!(granted.now_or_never(), Some(Ok(Acquired::Granted { .. }))));
        let _silent = store.acquire(ask("silent"));
        let renewed = store.renew(Renewal::new(lease("anna"), Ttl::DEFAULT));
        let released = store.release(lease("anna"), OnRelease::Free);
        host.run();
        let renewed = renewed.now_or_never();
        assert!(matches!(renewed, Some(Ok(Renewed::Renewed { .. }))), "{renewed:?}");
        assert!(released.now_or_never().is_none(), "it comes after the earlier request");
    }

    #[test]
    fn a_change_of_the_number_of_permits_comes_between_the_requests_before_and_behind_it() {
        let (host, _, store) = opened();
        let permits = |owner, of| Ask { claim: Claim::Permits { want: 1, of }, ..ask(owner) };
        let before = store.acquire(permits("anna", 2));
        // Nobody waits for the answer.
        drop(store.resize(lease("anna").key, 3));
        let behind = store.acquire(permits("bert", 3));
        host.run();
        for granted in [before, behind] {
            let granted = granted.now_or_never();
            assert!(matches!(granted, Some(Ok(Acquired::Granted { .. }))), "{granted:?}");
        }
        let _silent = store.acquire(ask("silent"));
        let resized = store.resize(lease("anna").key, 4);
        host.run();
        assert!(resized.now_or_never().is_none(), "it comes after the earlier request");
    }

    #[test]
    fn requests_behind_one_that_panicked_fail_and_later_ones_are_carried_out() {
        let (host, _, store) = opened();
        let requests = [store.acquire(ask("broken")), store.acquire(ask("anna"))];
        host.run();
        for request in requests {
            let error = request.now_or_never().expect("it has ended").expect_err("it failed");
            assert_eq!(error.kind(), ErrorKind::Unknown);
        }
        let granted = store.acquire(ask("anna"));
        host.run();
        assert!(matches!(granted.now_or_never(), Some(Ok(Acquired::Granted { .. }))));
    }

    #[test]
    fn one_request_too_many_for_a_key_is_refused_at_once_until_others_were_carried_out() {
        let (host, _, store) = opened();
        let release = || store.release(lease("anna"), OnRelease::Free);
        for _ in 0..QUEUE_MAX {
            drop(release());
        }
        let error = release().now_or_never().expect("at once").expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        host.run();
        let released = release();
        host.run();
        assert!(matches!(released.now_or_never(), Some(Ok(Released::NotHeld))));
    }

    /// Some of these do nothing by default, so that a store need not have them.
    #[test]
    fn a_wrapper_of_a_store_passes_everything_on() {
        struct Deaf;
        impl HintSink for Deaf {
            fn hint(&self, _: Hint) {}
        }
        let (host, told, store) = opened();
        let store = AnyStore::new(store);
        let (lease, inbox) = (lease("anna"), ClientId::from_random([1; ClientId::CHARS]));
        store.watch(&inbox, Weak::<Deaf>::new());
        store.listen(&inbox);
        store.tell_when_free(&lease.key, &inbox);
        store.let_go(&lease);
        let expected = ["watch", "listen", "tell_when_free", "let_go"];
        assert_eq!(*told.lock().expect("no panic"), expected);
        assert_eq!((store.shard(&lease.key), store.label()), (7, "odd".to_owned()));
        let resized = store.resize(lease.key, 3);
        host.run();
        let resized = resized.now_or_never();
        assert!(matches!(resized, Some(Ok(None))), "{resized:?}");
        assert!(store.capabilities().permits && store.browse().is_some());
    }
}
