//! `leasehold run NAME -- CMD`: holds a lock while a command runs.

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, Guard, Identity};
use rustix::process::Signal;

use super::Context;
use super::chain::Chain;
use super::holding::{Holding, as_shown, end, policy};
use crate::args::Run;
use crate::exit::{Exit, Failure};
use crate::patience::Patience;
use crate::signals::Signals;
use crate::stderr;
use crate::supervise::machine::{Policy, Verdict};
use crate::take::{Asked, DRAIN, Taken, take};

/// How far a run came.
enum Course {
    /// The command ran, with this result. The lock is held since that moment.
    Ran(Guard, Moment, Verdict),
    /// The command never started.
    Stopped(Exit),
}

/// Takes the lock, runs the command, releases the lock, and ends as the command did.
pub(crate) async fn run(context: &Context, args: &Run) -> Result<Exit, Failure> {
    let policy = policy(&args.name, &args.guarded)?;
    context.settings.refuse_private(&args.name)?;
    // A message must not delay our work for the lease.
    stderr::never_wait();
    // Before the store is connected: from here on we handle signals.
    let mut signals = Signals::install()?;
    let who = Identity::process().command(as_shown("run", &args.guarded.command)).ttl(policy.ttl);
    let mut patience = Patience::new(args.take.wait_store);
    let (name, talk) = (&*args.name, &context.talk);
    let client = tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        client = context.settings.connect_patiently(&who, name, &mut patience, talk) => client?,
    };
    let asked = Asked { name, wait: args.take.wait(), patience };
    let course = match take_and_hold(context, args, asked, &client, policy, &mut signals).await {
        Ok(Course::Ran(guard, since, verdict)) => {
            return end(guard, since, verdict, talk).await.exit(name, verdict.exit);
        }
        Ok(Course::Stopped(exit)) => Ok(exit),
        Err(failure) => Err(failure),
    };
    // A request to leave the line or to release is on its way: wait until it arrives.
    client.shutdown(DRAIN).await;
    course
}

async fn take_and_hold(
    context: &Context,
    args: &Run,
    asked: Asked<'_>,
    client: &Client,
    policy: Policy,
    signals: &mut Signals,
) -> Result<Course, Failure> {
    let stopped = |signal: Signal| Ok(Course::Stopped(Exit::Signal(signal.as_raw())));
    Chain::inherited().and_token().refuse(client, &args.name).await?;
    let wanted = args.take.of(client, &args.name, policy.ttl);
    let guard = match take(client, asked, &wanted, signals, &context.talk).await? {
        Taken::Granted(guard) => guard,
        Taken::Busy(failure) => return Err(Failure { exit: args.take.taken(), ..failure }),
        Taken::Interrupted(signal) => return stopped(signal),
    };
    let since = SystemHost.now();
    if let Some(signal) = signals.interrupted_already().await {
        return stopped(signal);
    }
    let holding = Holding { context, client, guarded: &args.guarded, policy };
    let child = holding.start(&guard).await?;
    let verdict = holding.watch(&guard, child, signals).await?;
    Ok(Course::Ran(guard, since, verdict))
}
