//! Two processes hand one lock to one another: how long after a release the other has it, and what
//! waiting costs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::RedisStore;
use leasehold::{Client, Error, ErrorKind};
use rustix::time::{ClockId, clock_gettime};

use crate::figure::{Report, Samples};
use crate::recording::{Recording, RecordingConnector};
use crate::usage::CpuMeter;
use crate::yardstick::is_redis;

const NAME: &str = "bench:handoff";

/// For how long one process only waits, to see what that costs.
const WAITING: Duration = Duration::from_secs(10);

/// Both processes read the same clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The other process: waits `rounds` times, says on standard output when it got the lock, holds it
/// until a line comes, releases it, and says when. In the end it waits once more, and says what
/// that cost.
pub(crate) async fn peer(url: &str, rounds: usize) -> Result<(), Error> {
    let (client, recording) = recorded(url).await?;
    let mutex = client.mutex(NAME);
    let mut lines = std::io::stdin().lines();
    for _ in 0..rounds {
        say("asks");
        let guard = mutex.lock().await?;
        say(&now_ns().to_string());
        let _line = lines.next();
        let _released = guard.release().await?;
    }
    let (meter, before) = (CpuMeter::start(), requests(recording.as_deref()));
    say("asks");
    let waited = mutex.lock_timeout(WAITING).await;
    if !matches!(&waited, Err(error) if error.kind() == ErrorKind::WaitElapsed) {
        return Err(Error::new(ErrorKind::Closed, "the lock was not held while the peer waited"));
    }
    say(&meter.percent_of_a_core().to_string());
    say(&(requests(recording.as_deref()) - before).to_string());
    Ok(())
}

/// A client, and what it sends if that can be told.
async fn recorded(url: &str) -> Result<(Client, Option<Arc<Recording>>), Error> {
    if !is_redis(url) {
        return Ok((Client::connect(url).await?, None));
    }
    let (connector, recording) = RecordingConnector::new(url)?;
    let store = RedisStore::connect_with(connector, SystemHost::shared()).await?;
    Ok((Client::with_store(store).connect().await?, Some(recording)))
}

fn requests(recording: Option<&Recording>) -> u64 {
    recording.map_or(0, Recording::count)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("the other process reads");
}

pub(crate) async fn measure(url: &str, rounds: usize) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let mutex = client.mutex(NAME);
    let mut guard = mutex.lock().await?;
    let own = std::env::current_exe().and_then(|program| {
        let rounds = rounds.to_string();
        let arguments = ["handoff-peer", "--url", url, "--rounds", &rounds];
        Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    });
    let mut child = own.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the other process cannot be started").with_source(error)
    })?;
    let mut to = child.stdin.take().expect("it is piped");
    let mut from = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut hear = || from.next().expect("the peer speaks").expect("the peer speaks text");

    let mut samples = Samples::default();
    for round in 0..rounds {
        assert_eq!(hear(), "asks");
        wait_for_a_waiter(&client).await?;
        // Whatever rhythm the waiter has, the release comes at every moment of it alike.
        let phase = u64::try_from(round).unwrap_or(0) * 7_919 % 50_000;
        tokio::time::sleep(Duration::from_micros(phase)).await;
        let released_ns = now_ns();
        let _released = guard.release().await?;
        let granted_ns: u64 = hear().parse().expect("a time");
        samples.push(Duration::from_nanos(granted_ns.saturating_sub(released_ns)));
        // The peer releases only when we stand in line, so that it cannot be first again.
        let next = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.lock().await }
        });
        wait_for_a_waiter(&client).await?;
        writeln!(to, "go on").expect("the peer reads");
        guard = next.await.expect("waiting does not panic")?;
    }
    assert_eq!(hear(), "asks");
    let cpu: f64 = hear().parse().expect("a share");
    let requests: f64 = hear().parse().expect("a number");
    let _released = guard.release().await?;
    child.wait().expect("the peer ends");

    let mut report = Report::new("handoff");
    for (figure, share) in [("release to lock p50", 0.5), ("release to lock p99", 0.99)] {
        report.add("2 processes", figure, samples.quantile_us(share), "us");
    }
    report.add("1 waiting process", "client cpu", cpu, "% core");
    if is_redis(url) {
        let a_second = requests / WAITING.as_secs_f64();
        report.add("1 waiting process", "requests", a_second, "/s");
    }
    Ok(report)
}

/// Waits until the other process stands in line: what is measured is the hand-over, not its way to
/// the line.
async fn wait_for_a_waiter(client: &Client) -> Result<(), Error> {
    while client.inspect(NAME).await?.waiting == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
