//! One run, from its seed to its history.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;

use super::backend::Backend;
use super::fault::Fault;
use super::log::Log;
use super::nemesis::Nemesis;
use super::plan::Plan;
use super::planned::PlannedFault;
use super::world::{Supervisor, World};
use crate::VirtualHost;
use crate::history::event::{Event, What};
use crate::virtual_host::{Joined, SeededRandom};

/// How often the leases of the processes are compared with the server.
const LOOKS_EVERY: Duration = Duration::from_millis(40);

/// In how many comparisons the keys of the server are listed once.
const LOOKS_AT_KEYS_EVERY: u32 = 25;

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    /// The history of the run.
    pub events: Vec<Event>,
    /// A hash of all events and their order. Equal runs have equal hashes.
    pub hash: u64,
    /// How long the run lasted on its own clock.
    pub simulated: Duration,
    /// Counts of events that only some kinds of worlds have.
    pub did: BTreeMap<&'static str, u64>,
}

/// Runs the world of a plan to its end.
///
/// # Panics
///
/// If anything in the world panics. The library never should.
#[must_use]
pub fn run(plan: &Plan) -> Ran {
    play_all(plan, None)
}

/// Runs a [supervised](Plan::supervised) world: the supervisor decides what holders do.
///
/// # Panics
///
/// Like [`run`], and if the supervisor panics.
#[must_use]
pub fn run_supervised(plan: &Plan, supervisor: Arc<dyn Supervisor>) -> Ran {
    play_all(plan, Some(supervisor))
}

fn play_all(plan: &Plan, supervisor: Option<Arc<dyn Supervisor>>) -> Ran {
    let host = VirtualHost::new(plan.seed);
    let mut seeds = SeededRandom::new(plan.seed.rotate_left(17) ^ 0xbeef);
    let log = Log::new(&host);
    let seed = seeds.next_u64();
    let backend = Backend::of(plan, &host, seed, &log);
    let world = World::new(&host, plan.clone(), backend, supervisor, log.clone());
    let began = host.now();
    host.run(play(&world, SeededRandom::new(seeds.next_u64())));
    let simulated = host.now().since(began);
    let events = log.take();
    let mut hasher = Fnv(host.fingerprint());
    events.hash(&mut hasher);
    let did = world.all_did();
    drop(world);
    host.drop_tasks();
    Ran { events, hash: hasher.finish(), simulated, did }
}

async fn play(world: &Arc<World>, random: SeededRandom) {
    let host = &world.host;
    if world.plan.clocks.iter().any(|clock| !clock.is_right())
        || world.plan.clients.iter().any(|one| one.faster_ppm != 0)
    {
        let (fault, kind) = (world.number(), Arc::from(Fault::ClockDrift.name()));
        world.log.push(What::FaultBegan { fault, kind });
        world.log.push(What::FaultEnded { fault });
    }
    let nemesis = Nemesis::new(world, random);
    let faults =
        world.plan.faults.iter().map(|planned| host.task(Arc::clone(&nemesis).carry_out(*planned)));
    let mut faults: Vec<_> = faults.collect();
    let is_over =
        |faults: &[Joined<()>]| faults.iter().all(Joined::is_finished) && nemesis.is_over();
    let mut looks: u32 = 0;
    let looks_every = LOOKS_EVERY * u32::try_from(world.plan.pace).expect("some hundreds");
    while world.goes_on() || (!is_over(&faults) && host.now() < world.gives_up_at()) {
        host.sleep_until(host.now() + looks_every).await;
        world.look_at_all();
        for client in world.take_dying() {
            world.did("crashed as a leader");
            let crash = PlannedFault::crash_of(client);
            faults.push(host.task(Arc::clone(&nemesis).carry_out(crash)));
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS_AT_KEYS_EVERY) {
            // A key without expiry may have vanished by the end, so the keys are listed meanwhile
            // too.
            tell_keys(world);
        }
    }
    // The releases of guards that were dropped at the last moment are still on their way.
    host.sleep_until(host.now() + Duration::from_secs(1)).await;
    tell_keys(world);
    // A call that has not returned by now will never return. Nothing excuses that.
    if is_over(&faults) {
        nemesis.kill_all();
    }
    host.sleep_until(host.now() + world.plan.kept_for()).await;
    world.log.push(What::Over);
    tell_keys(world);
}

/// Logs the keys in the store.
fn tell_keys(world: &World) {
    for (name, left) in world.backend.keys(world.host.now()) {
        world.log.push(What::Key { name: name.into(), left });
    }
}

/// The hash FNV-1a, which is the same in every build. The standard library does not promise that of
/// its hasher.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0100_0000_01b3);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
