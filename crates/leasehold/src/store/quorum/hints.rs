//! Merges the hints of all nodes.
//!
//! When a key becomes free, every node says so, each at a slightly different time. A client that
//! asks after the first hint finds the key still taken on most nodes. So a hint is passed on once a
//! majority has sent it, or after about a round trip. Each node tells the head of its own line. The
//! waiter that is the head at most nodes asks first, and the others ask after a random pause.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::core::key::Key;
use crate::core::majority::majority;
use crate::host::{Host, random_u32};
use crate::store::{Hint, HintSink};
use crate::unpoisoned::Unpoisoned;

/// How many hints are gathered at a time. Further hints are passed on at once.
const GATHERED_MAX: usize = 4_096;

/// The key that may be free, or `None` if hints were missed.
type About = Option<Key>;

/// The hints about one key.
#[derive(Default)]
struct Gathered {
    nodes: u32,
    /// Whether the hint was passed on.
    told: bool,
}

/// Gathers the hints of one client.
pub(super) struct Gathering {
    me: Weak<Self>,
    host: Arc<dyn Host>,
    client: Weak<dyn HintSink>,
    nodes: usize,
    round_trip: Box<dyn Fn() -> Duration + Send + Sync>,
    gathered: Unpoisoned<HashMap<About, Gathered>>,
}

impl Gathering {
    pub(super) fn new(
        host: Arc<dyn Host>,
        client: Weak<dyn HintSink>,
        nodes: usize,
        round_trip: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            host,
            client,
            nodes,
            round_trip: Box::new(round_trip),
            gathered: Unpoisoned::default(),
        })
    }

    /// Whether the client still exists.
    pub(super) fn is_wanted(&self) -> bool {
        self.client.strong_count() > 0
    }

    fn tell(&self, about: About) {
        if let Some(client) = self.client.upgrade() {
            client.hint(about.map_or(Hint::Missed, |key| Hint::MaybeFree { key }));
        }
    }

    /// Takes the hint of a node.
    fn hear(&self, node: usize, about: About) {
        let mut gathered = self.gathered.lock();
        let is_full = gathered.len() >= GATHERED_MAX;
        let (is_first, is_enough) = match gathered.entry(about.clone()) {
            Entry::Vacant(_) if is_full => (false, true),
            entry => {
                let is_first = matches!(entry, Entry::Vacant(_));
                let heard = entry.or_default();
                if heard.told && heard.nodes & (1 << node) != 0 {
                    // A second hint of the same node, so it is about something new.
                    *heard = Gathered::default();
                }
                heard.nodes |= 1 << node;
                let majority = majority(self.nodes);
                let is_enough = !heard.told && heard.nodes.count_ones() as usize >= majority;
                heard.told |= is_enough;
                (is_first, is_enough)
            }
        };
        drop(gathered);
        if is_first {
            self.tell_later(about.clone());
        }
        if is_enough {
            self.tell(about);
        }
    }

    /// Passes a hint on after a while, unless that was done before.
    fn tell_later(&self, about: About) {
        let round_trip = (self.round_trip)();
        let jitter = f64::from(random_u32(&*self.host)) / f64::from(u32::MAX);
        let until = self.host.now() + round_trip + round_trip.mul_f64(jitter);
        let (me, sleep) = (self.me.clone(), self.host.sleep_until(until));
        self.host.spawn(Box::pin(async move {
            sleep.await;
            let Some(me) = me.upgrade() else { return };
            let heard = me.gathered.lock().remove(&about);
            if heard.is_some_and(|heard| !heard.told) {
                me.tell(about);
            }
        }));
    }
}

/// Takes the hints of one node.
pub(super) struct NodeHints {
    pub(super) node: usize,
    pub(super) gathering: Arc<Gathering>,
}

impl HintSink for NodeHints {
    fn hint(&self, hint: Hint) {
        match hint {
            Hint::MaybeFree { key } | Hint::CalledUp { key, .. } => {
                self.gathering.hear(self.node, Some(key));
            }
            // In a quorum no node may hand the key over, so this counts only as a free key.
            Hint::Granted { key, .. } => self.gathering.hear(self.node, Some(key)),
            Hint::Missed => self.gathering.hear(self.node, None),
            Hint::Wanted { .. } => {
                if let Some(client) = self.gathering.client.upgrade() {
                    client.hint(hint);
                }
            }
        }
    }
}
