//! Runs a case.

use std::future::poll_fn;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::failure::FinalFailure;
use crate::time::{RealTime, SEEDS, Time};
use crate::{Case, Failure, Opener, RealSetup, Setup, VirtualHost, World, cases};

/// How long a case may take on real time in all, with everything that the store does.
pub const REAL_CASE_MAX: Duration = Duration::from_mins(3);

/// How much later than intended a case on real time may be, so that its failure counts at once.
const LATE_MAX: Duration = Duration::from_millis(20);

/// How often a case on real time runs, if each run fails and was late.
const REAL_RUNS_MAX: u32 = 3;

/// The end of a case that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The sentence holds.
    Holds,
    /// The store does not promise it.
    NotPromised,
    /// On real time, only a part of the case can be tested, and that part holds. This is why.
    OnVirtualTimeOnly(&'static str),
}

/// Runs one case on a new store, on virtual time.
///
/// # Errors
///
/// If the sentence does not hold.
pub fn run(
    case: &Case,
    seed: u64,
    setup: impl Fn(&Arc<VirtualHost>) -> Opener,
) -> Result<Outcome, Failure> {
    let host = VirtualHost::new(seed);
    let ended = Ended(Arc::clone(&host));
    let running = || {
        let opener = setup(&host);
        host.run(async {
            let world = World::open(host.clone(), opener).await;
            play(case, &world).await
        })
    };
    let ran = catch_unwind(AssertUnwindSafe(running));
    drop(ended);
    ran.map_err(|panic| Failure::new(case, &*panic, format!("on virtual time, seed {seed}")))
}

/// Runs one case on a new store, on real time. It ends within [`REAL_CASE_MAX`].
///
/// A busy machine is late, and then a lease that should still live may have ended. So a run that
/// fails and was more than 20 ms late is repeated on a new store, and fails if three runs do. But
/// two holders at the same time, and fencing tokens that do not rise, count in any run, since no
/// delay explains them.
///
/// # Errors
///
/// If the sentence does not hold.
pub fn run_in_real_time(case: &Case, setup: impl Fn() -> Opener) -> Result<Outcome, Failure> {
    run_in_time(case, setup, false)
}

/// Like [`run_in_real_time`], for a store whose leases end at whole seconds, and up to a second
/// later. Cases that need an exact end are not run to their own end, and say so.
///
/// # Errors
///
/// If the sentence does not hold.
pub fn run_in_whole_seconds(case: &Case, setup: impl Fn() -> Opener) -> Result<Outcome, Failure> {
    run_in_time(case, setup, true)
}

fn run_in_time(
    case: &Case,
    setup: impl Fn() -> Opener,
    is_coarse: bool,
) -> Result<Outcome, Failure> {
    let mut run = 1;
    loop {
        let (late, ran) = run_once_in_real_time(case, &setup, is_coarse);
        let is_final = ran.as_ref().is_err_and(|panic| panic.is::<FinalFailure>());
        if ran.is_ok() || is_final || late < LATE_MAX || run == REAL_RUNS_MAX {
            let time = || format!("on real time, run {run}, {late:?} late");
            return ran.map_err(|panic| Failure::new(case, &*panic, time()));
        }
        run += 1;
    }
}

fn run_once_in_real_time(
    case: &Case,
    setup: &impl Fn() -> Opener,
    is_coarse: bool,
) -> (Duration, std::thread::Result<Outcome>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("conformance")
        .enable_all()
        .build()
        .expect("the process may start one more thread");
    let real = RealTime::begin(runtime.handle().clone(), is_coarse);
    let time = Time::Real(Arc::clone(&real));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let world = World::on(time, setup()).await;
            within_limits(&real, play(case, &world)).await
        })
    }));
    let late = real.late();
    runtime.shutdown_background();
    (late, ran)
}

/// Ends a case that cannot go on, and a case that takes too long.
async fn within_limits(real: &RealTime, case: impl Future<Output = Outcome>) -> Outcome {
    let host = real.host();
    let mut case = pin!(case);
    let mut limit = host.sleep_until(host.now() + REAL_CASE_MAX);
    poll_fn(|context| {
        if let Poll::Ready(outcome) = case.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        if let Some(why) = real.over() {
            return Poll::Ready(Outcome::OnVirtualTimeOnly(why));
        }
        let over = limit.as_mut().poll(context);
        assert!(over.is_pending(), "the case did not end within {REAL_CASE_MAX:?}");
        Poll::Pending
    })
    .await
}

async fn play(case: &Case, world: &World) -> Outcome {
    if !(case.needs)(&world.capabilities()) {
        return Outcome::NotPromised;
    }
    (case.run)(world).await;
    Outcome::Holds
}

/// Drops the tasks of a case at its end, because they may keep a server.
struct Ended(Arc<VirtualHost>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.drop_tasks();
    }
}

/// Runs the case with that name with each of [`SEEDS`], on virtual time.
///
/// # Panics
///
/// If there is no such case, and if the sentence does not hold.
pub fn run_named(name: &str, setup: Setup) {
    let case = named(name);
    for seed in SEEDS {
        match run(&case, seed, setup) {
            Ok(outcome) => tell(&case, outcome),
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// Runs the case with that name on real time.
///
/// # Panics
///
/// If there is no such case, and if the sentence does not hold.
pub fn run_named_in_real_time(name: &str, setup: RealSetup) {
    let case = named(name);
    match run_in_real_time(&case, setup) {
        Ok(outcome) => tell(&case, outcome),
        Err(failure) => panic!("{failure}"),
    }
}

fn named(name: &str) -> Case {
    let case = cases().into_iter().find(|case| case.name == name);
    case.unwrap_or_else(|| panic!("there is no case named {name}"))
}

/// Says what was not tested.
fn tell(case: &Case, outcome: Outcome) {
    let said = match outcome {
        Outcome::Holds => return,
        Outcome::NotPromised => format!("the store does not promise that {}", case.promise),
        Outcome::OnVirtualTimeOnly(why) => {
            format!("on real time, the rest of the case was skipped: {why}")
        }
    };
    // The test runner hides what `println!` prints in a test that passes.
    let _closed = writeln!(std::io::stdout(), "{}: {said}", case.name);
}
