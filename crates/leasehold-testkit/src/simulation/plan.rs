//! The whole world of one run, as it is before the run begins.

use std::time::Duration;

use leasehold::store::redis::{Copies, Replicas, Strict};

use super::clock::{DRIFT_PPM_MAX, ServerClock};
use super::fault::Fault;
use super::planned::PlannedFault;
use crate::history::{Bounds, model};

/// The world of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of every choice.
    pub seed: u64,
    /// How long the clients keep working.
    pub span: Duration,
    /// The clients of the run.
    pub clients: Vec<ClientPlan>,
    /// How many keys the clients contend for.
    pub keys: usize,
    /// How long the store keeps a lease beyond its validity.
    pub lock_delay: Duration,
    /// Whether the clients expect other clients that poll. A released key is then free for
    /// everybody.
    pub coexists: bool,
    /// The strict mode of the servers; `None` if they are not strict.
    pub strict: Option<Strict>,
    /// The place where the locks are kept.
    pub kept_in: KeptIn,
    /// The copies that the clients want, and the number of replicas; `None` without copies.
    pub copies: Option<Copied>,
    /// How many times slower than usual all clients work. Worlds with long leases last longer by
    /// this factor.
    pub pace: u64,
    /// How many leases the first client holds at the same time, besides those of its tasks.
    pub crowd: usize,
    /// Whether leases are detached and continued by their token.
    pub detaches: bool,
    /// Whether some guards leave their key taken.
    pub keeps: bool,
    /// Whether some locks are taken together.
    pub takes_several: bool,
    /// Whether some locks are taken by work that is done once per period.
    pub runs_once: bool,
    /// Whether operators end the leases of clients, or ask the holders to let go.
    pub is_operated: bool,
    /// Whether some holds are limited.
    pub limits_holds: bool,
    /// How often work may start; `None` if there is no such work.
    pub limit: Option<Limit>,
    /// How many counts open a latch; `None` if there are no latches.
    pub latch: Option<u32>,
    /// How many parties meet at a barrier; `None` if there are no barriers.
    pub barrier: Option<u32>,
    /// How the clients elect leaders; `None` if there are no elections.
    pub election: Option<Electing>,
    /// Whether no client queues.
    pub is_unqueued: bool,
    /// How many clients of another library there are.
    pub foreigners: usize,
    /// How holders share keys; `None` if each has its key alone.
    pub sharing: Option<Sharing>,
    /// The planned faults.
    pub faults: Vec<PlannedFault>,
    /// The clocks of the nodes: one for a server, several for a quorum.
    pub(super) clocks: Vec<ServerClock>,
    pub(super) delay_us: (u64, u64),
}

/// The place where the locks of a world are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptIn {
    /// On a server, or on the nodes of a quorum.
    Servers,
    /// In the memory of one program.
    Memory,
    /// In a file that the processes of one machine share.
    File,
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// How many of its tasks take locks.
    pub tasks: usize,
    /// The ttl of its leases.
    pub ttl: Duration,
    /// How much faster than the common clock its own clock runs, in millionths.
    pub faster_ppm: i64,
    /// How long it keeps a lease without a guard.
    pub keep_idle: Duration,
    /// Whether its leases have fencing tokens.
    pub is_fenced: bool,
    /// Whether each of its tasks has its own place in the line.
    pub is_fifo: bool,
    /// Whether its tasks take locks in different ways.
    pub is_mixed: bool,
    /// Whether its tasks sometimes take one lock again and again, all at the same time.
    pub is_hot: bool,
    /// Whether it gives its identity.
    pub is_named: bool,
    /// The reason that it gives for its locks.
    pub why: Option<&'static str>,
    /// The namespace of its keys.
    pub namespace: Option<&'static str>,
    /// How long until it shuts down and starts anew; `None` if it works until the end.
    pub shut_down_after: Option<Duration>,
}

/// The way in which holders share the keys of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Readers share keys, and writers have them exclusively.
    Readers,
    /// Each key has permits.
    Permits {
        /// How many permits a key has at first.
        of: u32,
        /// Whether clients change the number of permits now and then. If not, the windows of a key
        /// never have more permits than that.
        is_resized: bool,
    },
}

/// How often work may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How many starts there are in each period.
    pub starts: u32,
    /// The period.
    pub per: Duration,
}

/// How the clients of a world elect leaders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Electing {
    /// Whether leaders crash now and then, besides the planned faults.
    pub leaders_crash: bool,
}

/// How many copies the clients want, and how many replicas there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How many replicas the server has.
    pub replicas: usize,
    /// How many replicas must confirm a grant.
    pub wanted: Replicas,
    /// If grants must be on disk: the shortest and the longest time of a write, in microseconds.
    pub disk_us: Option<(u64, u64)>,
}

impl Copied {
    /// The terms on which the clients of this world use the server.
    pub(super) fn terms(self) -> Copies {
        Copies::new(self.wanted, self.disk_us.is_some())
    }
}

/// The longest time until hints arrive again after a fault.
const LISTENS_AGAIN_WITHIN: Duration = Duration::from_secs(6);

/// The longest total time until clients that split the votes of a quorum get out of step.
const SPLITS_IN: Duration = Duration::from_millis(500);

/// The longest pause of a client that does not queue before it asks again.
const POLLS_WITHIN: Duration = Duration::from_millis(250);

/// How long a node keeps the key with which a quorum probes it.
const PROBES_KEPT_FOR: Duration = Duration::from_secs(5);

/// For how many ttls a key stays taken after its guard, at most.
pub(super) const KEPT_TTLS: u32 = 3;

impl Plan {
    /// The number of nodes: one node is a server, several are a quorum.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.clocks.len()
    }

    /// Whether a majority of several nodes must grant a lease.
    #[must_use]
    pub const fn is_quorum(&self) -> bool {
        self.nodes() > 1
    }

    /// Whether its locks are on one machine instead of servers.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.kept_in != KeptIn::Servers
    }

    /// How long a task pauses at most between two locks. It grows with the number of tasks, so that
    /// small and large worlds see about as many acquisitions.
    pub(super) fn pause_ms(&self) -> u64 {
        self.pace * self.clients.iter().map(|client| client.tasks as u64 * 60).sum::<u64>()
    }

    /// The longest ttl of all clients.
    #[must_use]
    pub fn ttl_max(&self) -> Duration {
        self.clients.iter().map(|client| client.ttl).max().unwrap_or_default()
    }

    /// The longest life of a lease without a renewal.
    fn lease_max(&self) -> Duration {
        self.ttl_max() * if self.keeps || self.runs_once { KEPT_TTLS } else { 1 }
    }

    /// The sum of the server clock's steps back.
    #[must_use]
    pub fn steps_back(&self) -> Duration {
        let back = self.faults.iter().filter(|planned| planned.fault == Fault::ClockStepBack);
        back.map(|planned| Duration::from_millis(planned.much)).sum()
    }

    /// How far two clocks that are right at the start can drift apart.
    pub(super) fn clocks_apart_max(&self) -> Duration {
        let apart = u32::try_from(2 * DRIFT_PPM_MAX).expect("a part of a million");
        (self.span + self.kept_for()) * apart / 1_000_000 + Duration::from_millis(2)
    }

    /// Whether everything is promised under its faults.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        let is_covered = |one: &PlannedFault| {
            let kind = one.fault.name_in(self.strict.is_some());
            model::promised(kind).is_some_and(|promised| promised.windows)
        };
        self.faults.iter().all(is_covered)
    }

    /// How long things may take in this world.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let usual = Bounds::of_ttl(self.ttl_max());
        let message = Duration::from_micros(self.delay_us.1);
        let splits = if self.is_quorum() { SPLITS_IN } else { Duration::ZERO };
        // The quarantine begins with the first acquire that finds the server back.
        let quarantine = self.strict.map_or(Duration::ZERO, Strict::quarantine);
        let bounds = Bounds {
            ttl_max: self.lease_max(),
            lock_delay: self.lock_delay + self.steps_back(),
            margin: self.lock_delay,
            // Time for a request, its reply and a hint. Also for a grant that comes too late, and
            // for the request that follows it.
            slack: Duration::from_millis(50) + message * 8 + splits,
            reconnect: LISTENS_AGAIN_WITHIN + quarantine,
            poll: if self.is_unqueued { POLLS_WITHIN } else { usual.poll },
            // Requests that were queued for a connection are sent once it is made.
            queued: Duration::from_secs(2),
            wanted: self.wanted(),
            opened: if self.opens() { Bounds::OPENED } else { Duration::ZERO },
            ..usual
        };
        Bounds { handed: self.handed(&bounds), ..bounds }
    }

    /// How long it takes until the next waiter has a key. Where a release hands nothing over, a
    /// waiter may have to ask again by itself.
    fn handed(&self, bounds: &Bounds) -> Duration {
        let hands_over = self.opens() || self.kept_in == KeptIn::Memory;
        let asks = if hands_over { Duration::ZERO } else { bounds.poll };
        bounds.slack + bounds.opened + asks
    }

    /// Whether lines stand aside for other libraries now and then. A quorum, a strict server and a
    /// server with copies hand nothing over, so their lines do not open.
    fn opens(&self) -> bool {
        let hands_over = self.strict.is_none() && self.copies.is_none();
        hands_over && !self.is_quorum() && !self.is_local() && !self.is_unqueued
    }

    /// How long the server may keep the leftovers of dead clients: a lease that nobody uses, and
    /// then a place in the line that the lease is handed to.
    #[must_use]
    pub fn kept_for(&self) -> Duration {
        let kept = self.lease_max() + self.lock_delay + self.waiter_ttl_max() + self.lock_delay;
        let kept = if self.is_quorum() { kept.max(PROBES_KEPT_FOR) } else { kept };
        kept + Bounds::drift(kept) + self.steps_back() + Duration::from_secs(1)
    }

    /// How long a client may take to learn that another process waits for a lease that it keeps
    /// without a guard in a file. It learns this at its next renewal: after a third of the ttl,
    /// plus the tick that renewals share.
    fn wanted(&self) -> Duration {
        let keeps = self.clients.iter().any(|client| !client.keep_idle.is_zero());
        if self.kept_in != KeptIn::File || !keeps {
            return Duration::ZERO;
        }
        let ttl = self.ttl_max();
        let span = ttl / 3 + (ttl / 30).min(Duration::from_millis(500));
        span + Bounds::drift(span)
    }

    fn waiter_ttl_max(&self) -> Duration {
        self.ttl_max().min(Duration::from_secs(3))
    }
}
