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
use super::supervised::Supervisor;
use super::world::World;
use crate::VirtualHost;
use crate::history::event::{Event, What};
use crate::virtual_host::SeededRandom;

/// How often it is looked whether what processes believe is what the server says.
const LOOKS_EVERY: Duration = Duration::from_millis(40);

/// How often it is looked, in such steps, what is on the server.
const LOOKS_AT_KEYS_EVERY: u32 = 25;

/// How long after the end everybody may take to come to one.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// What happened.
    pub events: Vec<Event>,
    /// Stands for everything that happened, and in what order: equal for equal runs.
    pub hash: u64,
    /// For how long the run went on, on its own clock.
    pub simulated: Duration,
    /// How often it came to what only some kinds of worlds have.
    pub did: BTreeMap<&'static str, u64>,
}

/// Runs the world of a plan to its end.
///
/// # Panics
///
/// With whatever panics in it: the library has no business to.
#[must_use]
pub fn run(plan: &Plan) -> Ran {
    play_all(plan, None)
}

/// Runs a [supervised](Plan::supervised) world, whose holders do as the supervisor says.
///
/// # Panics
///
/// As [`run`], and with whatever panics in the supervisor.
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
    let faults: Vec<_> = faults.collect();
    let gives_up_at = world.end + world.plan.span + ENDS_WITHIN;
    let is_over =
        || faults.iter().all(crate::virtual_host::Joined::is_finished) && nemesis.is_over();
    let mut looks: u32 = 0;
    let looks_every = LOOKS_EVERY * u32::try_from(world.plan.pace).expect("some hundreds");
    while world.goes_on() || (!is_over() && host.now() < gives_up_at) {
        host.sleep_until(host.now() + looks_every).await;
        world.look_at_all();
        looks += 1;
        if looks.is_multiple_of(LOOKS_AT_KEYS_EVERY) {
            // What has no end may be gone at the end all the same.
            tell_keys(world);
        }
    }
    // Guards that were given back on the last moment are on their way still.
    host.sleep_until(host.now() + Duration::from_secs(1)).await;
    tell_keys(world);
    // A call that has not come back by now never will: nothing excuses it.
    if is_over() {
        nemesis.kill_all();
    }
    host.sleep_until(host.now() + world.plan.kept_for()).await;
    world.log.push(What::Over);
    tell_keys(world);
}

/// What is in the store.
fn tell_keys(world: &World) {
    for (name, left) in world.backend.keys(world.host.now()) {
        world.log.push(What::Key { name: name.into(), left });
    }
}

/// FNV-1a: small, and the same everywhere, as the hasher of the standard library does not promise.
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
