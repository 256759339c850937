//! Worlds whose holders run something under their lock, as `leasehold run` does. The caller
//! provides the command and its supervisor.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Guard;
use leasehold::core::Moment;
use leasehold::host::Host;

use super::World;
use crate::VirtualHost;
use crate::history::event::{Name, WindowId};
use crate::history::model;
use crate::simulation::fault::Fault;
use crate::simulation::plan::Plan;
use crate::simulation::planned::PlannedFault;
use crate::simulation::process::Process;

/// Decides how holders use their locks.
pub trait Supervisor: Send + Sync + 'static {
    /// A client was granted that key. No process may still work under an earlier grant of it.
    fn granted(&self, key: &str);

    /// Holds a lock until no process works under it any more, and gives it up. If the future is
    /// dropped, the holder's process was killed.
    fn hold(&self, lock: Supervised) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A lock that is held.
pub struct Supervised {
    world: Arc<World>,
    window: WindowId,
    process: Process,
    guard: Arc<Guard>,
    /// Its key, as the store names it.
    pub key: Name,
    /// The ttl of its lease.
    pub ttl: Duration,
    /// When the world stops waiting for its holders, on the common clock. Work under the lock
    /// should end by then.
    pub until: Moment,
    /// The seed of the supervisor's choices.
    pub seed: u64,
}

impl Supervised {
    pub(in crate::simulation) fn new(
        world: Arc<World>,
        window: WindowId,
        process: Process,
        guard: Arc<Guard>,
        (key, ttl, seed): (Name, Duration, u64),
    ) -> Self {
        let until = world.gives_up_at();
        Self { world, window, process, guard, key, ttl, until, seed }
    }

    /// The guard of the lock.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The process of the holder, which may be stopped. It uses the clock of its machine.
    #[must_use]
    pub fn process(&self) -> Arc<dyn Host> {
        Arc::new(self.process.clone())
    }

    /// The host for other processes of the machine.
    #[must_use]
    pub fn machine(&self) -> Arc<VirtualHost> {
        Arc::clone(&self.world.host)
    }

    /// Counts an event that only some of these worlds have.
    pub fn did(&self, what: &'static str) {
        self.world.did(what);
    }

    /// Reports that the lease was lost, and that no process works under it.
    pub fn is_lost(self) {
        self.world.told_lost(self.window);
    }

    /// Stops renewing the lease without a release, because a process may still work under it.
    /// Returns when the lease ends.
    ///
    /// # Panics
    ///
    /// Same as [`give_up`](Self::give_up).
    pub async fn leave(self) {
        let until = self.process.now() + self.guard.remaining();
        self.world.relies_until(self.window, until);
        let guard = Arc::into_inner(self.guard).expect("nobody else has the guard");
        drop(guard.detach());
        self.process.sleep_until(until).await;
        self.world.gives_up(self.window, Duration::ZERO);
    }

    /// Reports that no process works under the lock any more. Returns the guard.
    ///
    /// # Panics
    ///
    /// If the guard is also used elsewhere, which cannot happen.
    pub fn give_up(self) -> Guard {
        self.world.gives_up(self.window, Duration::ZERO);
        Arc::into_inner(self.guard).expect("nobody else has the guard")
    }
}

impl fmt::Debug for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Supervised({:?})", self.window)
    }
}

impl Plan {
    /// This world, with holders that run a command, each of which has its lock exclusively. It
    /// keeps only faults under which everything is promised, and only those uses of a lock that the
    /// command has. A sleeping machine would also stop the command, so a stopped process replaces
    /// it.
    #[must_use]
    pub fn supervised(mut self) -> Self {
        let is_strict = self.strict.is_some();
        self.faults.retain(|one| {
            let promised = model::promised(one.fault.name_in(is_strict));
            promised.is_some_and(|promised| promised.windows && promised.leases)
        });
        for one in &mut self.faults {
            *one = match one.fault {
                Fault::ClientSuspend => PlannedFault { fault: Fault::ClientStop, ..*one },
                _ => *one,
            };
        }
        (self.detaches, self.crowd, self.sharing) = (false, 0, None);
        self.election = None;
        // After `unlock`, the next holder may begin before the command is told to stop.
        (self.is_operated, self.limits_holds) = (false, false);
        for client in &mut self.clients {
            client.is_hot = false;
            client.keep_idle = Duration::ZERO;
        }
        self
    }
}
