//! Where everybody writes down what happened.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::host::Host;

use crate::VirtualHost;
use crate::history::event::{CallId, Event, What};

/// A history that is being made. Clones write to the same one.
#[derive(Clone)]
pub(super) struct Log {
    host: Arc<VirtualHost>,
    written: Arc<Mutex<Written>>,
    /// Which node of a quorum writes; `None` for everybody else.
    node: Option<u32>,
}

#[derive(Default)]
struct Written {
    events: Vec<Event>,
    /// The call in which everything happens at this moment.
    call: Option<CallId>,
}

impl Log {
    pub(super) fn new(host: &Arc<VirtualHost>) -> Self {
        Self { host: Arc::clone(host), written: Arc::default(), node: None }
    }

    /// The same one, for a node of a quorum.
    pub(super) fn of_node(&self, node: usize) -> Self {
        let node = u32::try_from(node).expect("a quorum of a few nodes");
        Self { node: Some(node), ..self.clone() }
    }

    /// Which node of a quorum writes to it. What one of several nodes does says nothing of leases.
    pub(super) const fn node(&self) -> Option<u32> {
        self.node
    }

    /// That happened just now.
    pub(super) fn push(&self, what: What) {
        let event = Event { at: self.host.now(), what };
        self.written().events.push(event);
    }

    /// Waits for a call, which is the [present](Self::present) one whenever it runs.
    pub(super) async fn during<T>(&self, call: CallId, calling: impl Future<Output = T>) -> T {
        let mut calling = pin!(calling);
        poll_fn(|context| {
            let outer = self.written().call.replace(call);
            let polled = calling.as_mut().poll(context);
            self.written().call = outer;
            polled
        })
        .await
    }

    /// The call that runs now. `None` where something runs on behalf of nobody, or of several.
    pub(super) fn present(&self) -> Option<CallId> {
        self.written().call
    }

    /// All that happened.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.written().events)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
