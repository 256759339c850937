//! Worlds with barriers, in addition to the locks of other worlds: one barrier after the other. The
//! clients arrive at each of them, and go on when enough of them have arrived.

use std::sync::Arc;
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::core::Moment;
use leasehold::host::Host as _;

use super::sharing::may_share;
use crate::cut_after;
use crate::history::event::{CallKind, Name, Outcome, What};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many has barriers.
const ONE_IN: usize = 16;

/// The fewest and the most parties of a barrier.
const PARTIES_MIN: usize = 2;
const PARTIES_MAX: usize = 5;

/// How long a barrier is used before all clients turn to the next one.
const ROUND: Duration = Duration::from_secs(4);

/// The longest pause of a party before it arrives.
const ARRIVES_WITHIN_MS: u64 = 2_500;

/// How long most parties wait at least and at most, and how long some of them wait. The longest
/// wait outlasts the aftermath of a fault.
const WAITS_MIN: Duration = Duration::from_secs(1);
const WAITS_MAX: Duration = Duration::from_secs(4);
const WAITS_LONG: Duration = Duration::from_secs(30);
const WAITS_LONG_ONE_IN: usize = 3;

/// How long a party may wait after the end of the run, or after its client should end.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// How long a count lasts. This is longer than a run, whatever happens to the clocks.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// Gives a world barriers if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Meeting, 0x00ba_441e_4000, ONE_IN) else { return };
    if may_share(plan) {
        let parties = PARTIES_MIN + random.below(PARTIES_MAX - PARTIES_MIN + 1);
        let parties = parties.min(plan.clients.len());
        plan.barrier = Some(u32::try_from(parties).expect("a few"));
    }
}

/// Arrives at one barrier after the other, until `until` or until the run ends. A party whose call
/// failed calls again, and one that passed waits for the next barrier.
pub(in crate::simulation) async fn meet(mut worker: Worker, parties: u32, until: Option<Moment>) {
    let world = Arc::clone(worker.world());
    let mut passed = None;
    while worker.goes_on(until) {
        worker.pause(ARRIVES_WITHIN_MS).await;
        let round = u128::from(world.host.now().as_nanos()) / ROUND.as_nanos();
        if passed == Some(round) {
            continue;
        }
        let key = worker.key_named(&format!("barrier {round}"));
        world.log.push(What::Meets { key: Arc::clone(&key), of: parties });
        let has_passed = arrive(&mut worker, &key, parties, until).await;
        passed = has_passed.then_some(round);
    }
}

/// Arrives, and waits for the others. Returns whether the party passes.
async fn arrive(worker: &mut Worker, key: &Name, parties: u32, until: Option<Moment>) -> bool {
    let world = Arc::clone(worker.world());
    let barrier = worker.client().latch(worker.name_of(key), parties).keep(KEPT_FOR);
    let wait = wait(worker, until);
    let polls = worker.cut();
    let call = worker.called_for(key, CallKind::Arrive, wait);
    let arriving = world.log.during([(Arc::clone(key), call)], barrier.arrive_and_wait());
    let arriving = cut_after(polls, arriving);
    let outcome = match worker.before(worker.now() + wait, arriving).await.flatten() {
        None => Outcome::Dropped,
        Some(Ok(())) => Outcome::Done,
        // All have arrived without this party. Nobody uses the name for anything else.
        Some(Err(error)) if error.kind() == ErrorKind::Config => Outcome::Taken,
        Some(Err(error)) => outcome_of(&error),
    };
    if matches!(outcome, Outcome::Done | Outcome::Taken) {
        world.log.push(What::Remains { call, left: 0 });
    }
    world.returned(call, outcome);
    match outcome {
        Outcome::Done => world.did("passed a barrier"),
        Outcome::Taken => world.did("came after all had arrived"),
        _ => {}
    }
    matches!(outcome, Outcome::Done | Outcome::Taken)
}

/// How long a party waits for the others.
fn wait(worker: &mut Worker, until: Option<Moment>) -> Duration {
    let is_long = worker.below(WAITS_LONG_ONE_IN) == 0;
    let usual = WAITS_MIN + worker.span_up_to(WAITS_MAX.saturating_sub(WAITS_MIN));
    let wait = if is_long { WAITS_LONG } else { usual };
    let world = worker.world();
    let left = world.end.since(world.host.now());
    let left = until.map_or(left, |until| left.min(until.since(worker.now())));
    wait.min(left + ENDS_WITHIN)
}
