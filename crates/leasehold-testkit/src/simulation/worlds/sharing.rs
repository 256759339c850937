//! Worlds in which holders share keys: readers and writers, or owners of permits.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Error, Guard, Mutex, RwLock, Semaphore};

use super::keeping::{Kept, leave_early};
use crate::cut_after;
use crate::history::event::{CallKind, Name, Outcome, Share, What};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{Plan, Sharing};
use crate::simulation::terms::Terms;
use crate::simulation::worker::{Worker, outcome_of};
use crate::virtual_host::SeededRandom;

/// One world in this many has readers, and as many have permits.
const ONE_IN: usize = 8;

/// The most permits of a key at first, and after a change.
const PERMITS_MAX: usize = 5;

/// The longest time that a writer stays after it became a reader.
const STAYS_MS: u64 = 60;

/// Makes the clients of a world share its keys if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let readers = draw.of(Kind::Shared, 0x005a_4e0f_4ead, ONE_IN);
    let permits = draw.of(Kind::Permits, 0x0be4_0175_0000, ONE_IN);
    if !may_share(plan) {
        return;
    }
    if readers.is_some() {
        plan.sharing = Some(Sharing::Readers);
    } else if let Some(mut random) = permits {
        let of = u32::try_from(1 + random.below(PERMITS_MAX)).expect("a few");
        let is_resized = random.once_in(2);
        plan.sharing = Some(Sharing::Permits { of, is_resized });
        plan.foreigners = 0;
        plan.crowd = 0;
    }
}

/// Whether holders may share keys in this world.
pub(super) fn may_share(plan: &Plan) -> bool {
    let is_other = [
        Kind::Quorum,
        Kind::Coexist,
        Kind::Strict,
        Kind::Copies,
        Kind::Long,
        Kind::Bare,
        Kind::Evicting,
    ];
    !is_other.into_iter().any(|kind| plan.is(kind))
}

/// Makes worlds with starts or counts share keys. Starts and counts are permits, so their clients
/// share keys in any case.
pub(super) fn draw_with_counts(plan: &mut Plan) {
    if plan.limit.is_some() || plan.latch.is_some() || plan.barrier.is_some() {
        plan.sharing.get_or_insert(Sharing::Readers);
    }
}

/// The share of a key that a task wants.
pub(in crate::simulation) fn share(sharing: Sharing, of: u32, random: &mut SeededRandom) -> Share {
    match sharing {
        Sharing::Readers if random.once_in(3) => Share::Alone,
        Sharing::Readers => Share::Reader,
        Sharing::Permits { .. } => {
            let most = usize::try_from(of).expect("a few");
            // Mostly want one permit, so that a large wish may have to wait for long.
            let want = if random.once_in(3) { 1 + random.below(most) } else { 1 };
            Share::Permits { want: u32::try_from(want).expect("a few"), of }
        }
    }
}

/// A lock of any kind.
pub(in crate::simulation) enum AnyLock {
    Alone(Mutex),
    Reading(RwLock),
    Permits(Semaphore),
}

impl AnyLock {
    pub(in crate::simulation) async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        match self {
            Self::Alone(mutex) => mutex.try_lock().await,
            Self::Reading(lock) => lock.try_read().await,
            Self::Permits(semaphore) => semaphore.try_acquire().await,
        }
    }

    pub(in crate::simulation) async fn lock(&self) -> Result<Guard, Error> {
        match self {
            Self::Alone(mutex) => mutex.lock().await,
            Self::Reading(lock) => lock.read().await,
            Self::Permits(semaphore) => semaphore.acquire().await,
        }
    }

    pub(in crate::simulation) async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        match self {
            Self::Alone(mutex) => mutex.lock_timeout(wait).await,
            Self::Reading(lock) => lock.read_timeout(wait).await,
            Self::Permits(semaphore) => semaphore.acquire_timeout(wait).await,
        }
    }
}

/// A writer becomes a reader, stays for a while, and leaves. The `min_hold` of the lock counts anew
/// for the reader.
pub(in crate::simulation) async fn downgrade(
    worker: &mut Worker,
    key: &Name,
    writer: Guard,
    terms: &Terms,
) {
    let lock = rwlock(worker.client(), worker.name_of(key));
    let call = worker.called(key, CallKind::Lock);
    let world = Arc::clone(worker.world());
    match world.log.during([(Arc::clone(key), call)], lock.downgrade(writer)).await {
        Ok(guard) => {
            let guard = Arc::new(guard);
            let granted = worker.now();
            let window = world.granted(call, worker.process(), key, &guard);
            world.shares(window, Share::Reader);
            world.returned(call, Outcome::Granted);
            world.did("downgraded");
            worker.pause(STAYS_MS).await;
            let Some(guard) = Arc::into_inner(guard) else { unreachable!("nobody keeps a guard") };
            if guard.is_held() && worker.now() < granted + terms.min_hold {
                let kept = Kept { granted, ttl: terms.ttl, span: terms.min_hold };
                return leave_early(worker, (key, window), guard, kept).await;
            }
            world.gives_up(window, Duration::ZERO);
            drop(guard);
        }
        Err(error) => world.returned(call, outcome_of(&error)),
    }
}

fn rwlock(client: &Client, name: &str) -> RwLock {
    client.rwlock(name)
}

/// Changes how many permits a key has. A client that finds another number than it knows learns the
/// right one.
pub(in crate::simulation) async fn resize(worker: &mut Worker, key: &Name) {
    let of = u32::try_from(1 + worker.below(PERMITS_MAX)).expect("a few");
    let semaphore = worker.client().semaphore(worker.name_of(key), of);
    let call = worker.called_for(key, CallKind::Resize, Duration::ZERO);
    let polls = worker.cut();
    let world = Arc::clone(worker.world());
    world.log.push(What::Resizes { key: Arc::clone(key), of, call });
    let resized = cut_after(polls, semaphore.resize(of)).await;
    world.returned(
        call,
        match &resized {
            None => Outcome::Dropped,
            Some(Ok(_)) => Outcome::Done,
            Some(Err(error)) => outcome_of(error),
        },
    );
    if let Some(Ok(before)) = resized {
        world.set_permits(key, of);
        match before {
            Some(before) if before < of => world.did("permits added"),
            Some(before) if before > of => world.did("permits taken away"),
            _ => {}
        }
        world.did("resized");
    }
}

/// Learns how many permits a key has.
pub(in crate::simulation) async fn learn(worker: &Worker, key: &Name) {
    let seen = worker.client().inspect(worker.name_of(key)).await;
    if let Some(permits) = seen.ok().and_then(|seen| seen.permits) {
        worker.world().set_permits(key, permits.of);
    }
}
