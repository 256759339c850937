//! The place where all parts of a simulation write down what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::Key;
use leasehold::core::Moment;
use leasehold::core::token::OwnerToken;
use leasehold::host::Host;

use crate::VirtualHost;
use crate::history::event::{CallId, Event, Name, What};

/// A history in the making. Clones write to the same history.
#[derive(Clone)]
pub(super) struct Log {
    host: Arc<VirtualHost>,
    written: Arc<Mutex<Written>>,
    /// The node of a quorum that writes; `None` for everything else.
    node: Option<u32>,
}

#[derive(Default)]
struct Written {
    events: Vec<Event>,
    /// The calls to which everything that happens now belongs, each with its key. There are several
    /// only while locks are taken together.
    calls: Vec<(Name, CallId)>,
    /// The calls that have not returned.
    running: BTreeSet<CallId>,
    /// The latest call that made a request with each token, and when.
    requests: BTreeMap<Name, (CallId, Moment)>,
}

impl Log {
    pub(super) fn new(host: &Arc<VirtualHost>) -> Self {
        Self { host: Arc::clone(host), written: Arc::default(), node: None }
    }

    /// A clone for one node of a quorum.
    pub(super) fn of_node(&self, node: usize) -> Self {
        let node = u32::try_from(node).expect("a quorum of a few nodes");
        Self { node: Some(node), ..self.clone() }
    }

    /// The quorum node that writes this log; `None` without a quorum. The events of one node do not
    /// decide who has a lease.
    pub(super) const fn node(&self) -> Option<u32> {
        self.node
    }

    pub(super) fn now(&self) -> Moment {
        self.host.now()
    }

    /// Adds an event that happened just now.
    pub(super) fn push(&self, what: What) {
        let event = Event { at: self.now(), what };
        self.written().events.push(event);
    }

    /// Runs a future as part of calls, one for each key. They are [present](Self::present) while
    /// the future runs.
    pub(super) async fn during<T>(
        &self,
        calls: impl Into<Vec<(Name, CallId)>>,
        calling: impl Future<Output = T>,
    ) -> T {
        let mut calls = calls.into();
        let _running = Running::new(self, &calls);
        let mut calling = pin!(calling);
        poll_fn(|context| {
            self.change_calls(&mut calls);
            let polled = calling.as_mut().poll(context);
            self.change_calls(&mut calls);
            polled
        })
        .await
    }

    /// Exchanges the present calls.
    fn change_calls(&self, calls: &mut Vec<(Name, CallId)>) {
        std::mem::swap(&mut self.written().calls, calls);
    }

    /// The call about this key that runs now. `None` if something runs for no call.
    pub(super) fn present(&self, key: &str) -> Option<CallId> {
        self.written().present(key)
    }

    /// Records that the present call about this key makes a request with this token.
    pub(super) fn note(&self, key: &Key, token: &OwnerToken) {
        let now = self.host.now();
        let mut written = self.written();
        if let Some(call) = written.present(key.as_str()) {
            written.requests.insert(token.as_str().into(), (call, now));
        }
    }

    /// The call that a request with this token, which leaves now, belongs to. `None` if that call
    /// has returned.
    pub(super) fn call_of(&self, token: &Name) -> Option<CallId> {
        let now = self.host.now();
        let written = self.written();
        let (call, at) = *written.requests.get(token)?;
        (at == now || written.running.contains(&call)).then_some(call)
    }

    /// Takes all events.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.written().events)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    fn present(&self, key: &str) -> Option<CallId> {
        self.calls.iter().find(|(of, _)| **of == *key).map(|(_, call)| *call)
    }
}

/// Calls that have not returned.
struct Running<'a>(&'a Log, Vec<CallId>);

impl<'a> Running<'a> {
    fn new(log: &'a Log, calls: &[(Name, CallId)]) -> Self {
        let calls: Vec<_> = calls.iter().map(|(_, call)| *call).collect();
        log.written().running.extend(&calls);
        Self(log, calls)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut written = self.0.written();
        for call in &self.1 {
            written.running.remove(call);
        }
    }
}
