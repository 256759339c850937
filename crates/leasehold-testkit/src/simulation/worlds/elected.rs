//! Worlds with an election, in addition to the locks of other worlds: all clients are candidates,
//! and watch who leads.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::{FencingToken, Leadership};

use crate::cut_after;
use crate::history::event::{CallKind, Name, Outcome, What, WindowId};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{Electing, Plan};
use crate::simulation::worker::{Worker, outcome_of, outcome_of_release};

/// One world in this many has an election.
const ONE_IN: usize = 16;

/// The name of the election.
const NAME: &str = "leader";

/// The longest time for which most leaders lead. One leader in this many leads for longer.
const LEADS_MAX: Duration = Duration::from_millis(150);
const LEADS_LONG_ONE_IN: usize = 6;

/// One leader in this many crashes, in worlds in which leaders crash.
const CRASHES_ONE_IN: usize = 20;

/// One candidate in this many gives up after a while, and how long that takes at most.
const GIVES_UP_ONE_IN: usize = 8;
const CAMPAIGNS_MAX: Duration = Duration::from_secs(3);

/// How often an observer is asked at most, and how long it is asked each time.
const ASKED_MAX: usize = 20;
const OBSERVES_MAX: Duration = Duration::from_secs(3);

/// The longest pauses of a candidate and of an observer between two calls.
const CAMPAIGNS_AGAIN_MS: u64 = 800;
const OBSERVES_AGAIN_MS: u64 = 300;

/// Gives a world an election if its seed says so. Candidates queue, and ask every second, which
/// would be too much for hours.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Elected, 0x0e1e_c7ed_0000, ONE_IN) else { return };
    if ![Kind::Long, Kind::Bare].into_iter().any(|kind| plan.is(kind)) {
        plan.election = Some(Electing { leaders_crash: random.once_in(2) });
    }
}

/// Campaigns, leads, and resigns, until `until` or until the run ends.
pub(in crate::simulation) async fn campaign(
    mut worker: Worker,
    electing: Electing,
    until: Option<Moment>,
) {
    let (world, key) = (Arc::clone(worker.world()), worker.key_named(NAME));
    let ttl = worker.ttl();
    let election = worker.client().election(worker.name_of(&key)).ttl(ttl);
    // The store notes the term of a leader in another way if there is a text.
    let election = if worker.below(2) == 0 { election.why("http://10.0.0.7") } else { election };
    world.log.push(What::Elects { key: Arc::clone(&key), ttl });
    while worker.goes_on(until) {
        let (polls, gives_up) = (worker.cut(), worker.below(GIVES_UP_ONE_IN) == 0);
        let gives_up_at = worker.now() + worker.span_up_to(CAMPAIGNS_MAX);
        let call = world.called(worker.process(), &key, CallKind::Lock, None);
        let campaigning = world.log.during([(Arc::clone(&key), call)], election.campaign());
        let campaigning = cut_after(polls, campaigning);
        let led = if gives_up {
            worker.before(gives_up_at, campaigning).await.flatten()
        } else {
            campaigning.await
        };
        match led {
            None => world.returned(call, Outcome::Dropped),
            Some(Err(error)) => world.returned(call, outcome_of(&error)),
            Some(Ok(leadership)) => {
                let leadership = Arc::new(leadership);
                let window = world.granted(call, worker.process(), &key, &leadership);
                world.returned(call, Outcome::Granted);
                lead(&mut worker, electing, (&key, window), leadership).await;
            }
        }
        worker.pause(CAMPAIGNS_AGAIN_MS).await;
    }
}

/// Leads for a while, or until the loss is reported or the process crashes.
async fn lead(
    worker: &mut Worker,
    electing: Electing,
    (key, window): (&Name, WindowId),
    leadership: Arc<Leadership>,
) {
    let (world, ttl) = (Arc::clone(worker.world()), worker.ttl());
    let is_long = worker.below(LEADS_LONG_ONE_IN) == 0;
    let mut span = worker.span_up_to(if is_long { ttl * 2 } else { LEADS_MAX });
    if electing.leaders_crash && worker.below(CRASHES_ONE_IN) == 0 {
        worker.dies_soon();
        // It leads when it dies.
        span = ttl * 2;
    }
    let until = worker.now() + span;
    if worker.before(until, leadership.lost()).await.is_some() {
        world.told_lost(window);
        worker.pause(100).await;
        return world.looks_again(worker.process(), window, leadership.guard());
    }
    world.did("led");
    world.gives_up(window, Duration::ZERO);
    let Some(leadership) = Arc::into_inner(leadership) else {
        unreachable!("nobody keeps a leadership")
    };
    resign(worker, key, leadership).await;
}

async fn resign(worker: &mut Worker, key: &Name, leadership: Leadership) {
    if worker.below(3) == 0 {
        return drop(leadership);
    }
    let polls = worker.cut();
    let call = worker.called(key, CallKind::Release);
    let resigned = cut_after(polls, leadership.resign()).await;
    worker.world().returned(call, outcome_of_release(resigned));
    worker.world().did("resigned");
}

/// Watches who leads, until `until` or until the run ends.
pub(in crate::simulation) async fn observe(mut worker: Worker, until: Option<Moment>) {
    let (world, key) = (Arc::clone(worker.world()), worker.key_named(NAME));
    let election = worker.client().election(worker.name_of(&key)).ttl(worker.ttl());
    while worker.goes_on(until) {
        let (mut leaders, observer) = (election.observe(), world.number());
        for _ in 0..=worker.below(ASKED_MAX) {
            if !worker.goes_on(until) {
                return;
            }
            let (polls, span) = (worker.cut(), worker.span_up_to(OBSERVES_MAX));
            let call = worker.called_for(&key, CallKind::Observe, span);
            let looking = world.log.during([(Arc::clone(&key), call)], leaders.next());
            let looking = cut_after(polls, looking);
            let outcome = match worker.before(worker.now() + span, looking).await.flatten() {
                None => Outcome::Dropped,
                Some(Err(error)) => outcome_of(&error),
                Some(Ok(None)) => Outcome::Done,
                Some(Ok(Some(leader))) => {
                    let term = leader.term.map(FencingToken::get);
                    world.log.push(What::Leads { call, observer, term });
                    world.did("saw a leader");
                    Outcome::Done
                }
            };
            world.returned(call, outcome);
            worker.pause(OBSERVES_AGAIN_MS).await;
        }
    }
}
