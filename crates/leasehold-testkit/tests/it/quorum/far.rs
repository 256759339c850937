//! A store at some distance: requests, answers and hints arrive later, in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::Key;
use leasehold::core::token::ClientId;
use leasehold::host::Host;
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Hint, HintSink, LeaseId, MemoryStore, OnRelease, Released, Renewal,
    Renewed, Snapshot, Store,
};
use leasehold_testkit::VirtualHost;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(super) struct Far {
    store: MemoryStore,
    host: Arc<VirtualHost>,
    way: Duration,
    on_the_way: Arc<Mutex<VecDeque<Job>>>,
    relays: Arc<Mutex<Vec<Arc<Relay>>>>,
    asks: Arc<Mutex<usize>>,
}

impl Far {
    pub(super) fn new(host: &Arc<VirtualHost>, store: MemoryStore, way: Duration) -> Self {
        let (on_the_way, relays, asks) = (Arc::default(), Arc::default(), Arc::default());
        Self { store, host: host.clone(), way, on_the_way, relays, asks }
    }

    /// How many asks were sent to this store.
    pub(super) fn asks(&self) -> usize {
        *self.asks.lock().expect("no panic")
    }

    fn carry<T: Send + 'static>(
        &self,
        request: impl FnOnce(&MemoryStore) -> BoxAnswer<T> + Send + 'static,
    ) -> BoxAnswer<T> {
        let answer = Arc::new(Mutex::new(None));
        let (store, slot) = (self.store.clone(), Arc::clone(&answer));
        let job: Job = Box::new(move || *slot.lock().expect("no panic") = Some(request(&store)));
        self.on_the_way.lock().expect("no panic").push_back(job);
        let (host, way, jobs) = (self.host.clone(), self.way, Arc::clone(&self.on_the_way));
        let sent = host.now();
        Box::pin(self.host.task(async move {
            host.sleep_until(sent + way).await;
            // Requests arrive in the order of sending, whichever task runs first.
            let job = jobs.lock().expect("no panic").pop_front().expect("one for each task");
            job();
            host.sleep_until(sent + way + way).await;
            let answer = answer.lock().expect("no panic").take().expect("it arrived");
            answer.await
        }))
    }
}

impl Store for Far {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        *self.asks.lock().expect("no panic") += 1;
        self.carry(move |store| store.acquire(ask))
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.carry(move |store| store.renew(renewal))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.carry(move |store| store.release(lease, on_release))
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.carry(move |store| store.inspect(key))
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        let relay = Arc::new(Relay { host: Arc::downgrade(&self.host), way: self.way, sink });
        let relayed: Arc<dyn HintSink> = relay.clone();
        self.store.watch(inbox, Arc::downgrade(&relayed));
        self.relays.lock().expect("no panic").push(relay);
    }

    leasehold_testkit::forward!(store: rest);
}

struct Relay {
    host: Weak<VirtualHost>,
    way: Duration,
    sink: Weak<dyn HintSink>,
}

impl HintSink for Relay {
    fn hint(&self, hint: Hint) {
        let Some(host) = self.host.upgrade() else { return };
        let (sink, arrives) = (self.sink.clone(), host.sleep_until(host.now() + self.way));
        host.spawn(Box::pin(async move {
            arrives.await;
            if let Some(sink) = sink.upgrade() {
                sink.hint(hint);
            }
        }));
    }
}
