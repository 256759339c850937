//! Two processes hand one lock to each other. Measures the time from the release call until the
//! other process has the lock.
//!
//! Both directions are measured, alternating with a bare message between the processes.

use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use leasehold::{Client, Error, ErrorKind, Guard, Mutex};
use redis::aio::{MultiplexedConnection, PubSubStream};

use crate::bare_redis::{connect, unavailable};
use crate::clock::{between, now_ns};
use crate::figure::{Compared, Report};
use crate::peer::{Orders, Peer, say};
use crate::samples::{Samples, quantiles_us};
use crate::yardstick::is_redis;

const NAME: &str = "bench:handoff";

/// The rounds are split into this many parts, each with its own quantiles.
const PARTS: usize = 6;

/// The longest pause before a release. The pauses vary, so that releases come at all phases of the
/// waiter's rhythm.
const PAUSE_MAX_US: u64 = 5_000;
/// The same for the SQLite store, where a waiter may look only every 4 to 18 ms.
const PAUSE_MAX_EMBEDDED_US: u64 = 20_000;

/// How often to check whether the other process stands in line.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The tools of one process.
struct Side {
    client: Client,
    mutex: Mutex,
    bare: Option<Bare>,
}

/// The yardstick: a connection that publishes, and one that listens.
struct Bare {
    publishing: MultiplexedConnection,
    messages: Pin<Box<PubSubStream>>,
    /// The channel of the other process.
    other: &'static str,
}

/// The channels of the two processes.
const CHANNELS: [&str; 2] = ["bench:handoff:first", "bench:handoff:second"];

impl Side {
    async fn open(url: &str, own: usize) -> Result<Self, Error> {
        let client = Client::connect(url).await?;
        let mutex = client.mutex(NAME);
        let bare = if is_redis(url) { Some(Bare::open(url, own).await?) } else { None };
        Ok(Self { client, mutex, bare })
    }

    /// Waits until somebody stands in line, so that only the hand-over is measured.
    async fn until_waited_for(&self) -> Result<(), Error> {
        while self.client.inspect(NAME).await?.waiting == 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

impl Bare {
    async fn open(url: &str, own: usize) -> Result<Self, Error> {
        let subscribed = async {
            let mut listening = redis::Client::open(url)?.get_async_pubsub().await?;
            listening.subscribe(CHANNELS[own]).await?;
            Ok(listening.into_on_message())
        };
        let messages = subscribed.await.map_err(|error| unavailable(&error))?;
        let publishing = connect(url).await?;
        Ok(Self { publishing, messages: Box::pin(messages), other: CHANNELS[1 - own] })
    }

    /// Sends a message. Returns the time of the call.
    async fn publish(&mut self) -> Result<u64, Error> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.other).arg("wake up");
        let called = now_ns();
        let sent = publish.exec_async(&mut self.publishing).await;
        sent.map_err(|error| unavailable(&error))?;
        Ok(called)
    }

    /// Waits for a message. Returns the time of its arrival.
    async fn message(&mut self) -> Result<u64, Error> {
        let message = self.messages.next().await;
        let woken = now_ns();
        message.map(|_| woken).ok_or_else(|| {
            Error::new(ErrorKind::Unavailable, "the connection of the yardstick ended")
        })
    }
}

/// Releases. Returns the time of the call.
async fn release(guard: Guard) -> Result<u64, Error> {
    let called = now_ns();
    let _released = guard.release().await?;
    Ok(called)
}

/// Locks. Also returns the time when the lock was there.
async fn lock(mutex: &Mutex) -> Result<(Guard, u64), Error> {
    let guard = mutex.lock().await?;
    Ok((guard, now_ns()))
}

async fn pause(us: u64) {
    tokio::time::sleep(Duration::from_micros(us)).await;
}

/// The other process. It waits for the lock and reports when it got it. Each line that it receives
/// is a pause. After the pause, it releases the lock and reports when. Then it does the same with
/// messages.
pub(crate) async fn peer(url: &str) -> Result<(), Error> {
    let (mut side, mut orders) = (Side::open(url, 1).await?, Orders::take());
    say("ready");
    loop {
        say("asks");
        let (guard, granted) = lock(&side.mutex).await?;
        say(granted);
        let [us] = orders.numbers().await?;
        pause(us).await;
        say(release(guard).await?);
        if let Some(bare) = &mut side.bare {
            say(bare.message().await?);
            let [us] = orders.numbers().await?;
            pause(us).await;
            say(bare.publish().await?);
        }
    }
}

pub(crate) async fn measure(url: &str, rounds: usize) -> Result<Report, Error> {
    let mut side = Side::open(url, 0).await?;
    let mut guard = side.mutex.lock().await?;
    let mut other = Peer::start(&["peer", "handoff", "--url", url])?;
    other.hear_that("ready").await?;
    let pause_max_us = if side.bare.is_some() { PAUSE_MAX_US } else { PAUSE_MAX_EMBEDDED_US };
    let mut parts: [[Samples; PARTS]; 2] = Default::default();
    let [ours, theirs] = &mut parts;
    let warm_up = rounds / 20;
    for round in 0..rounds + warm_up {
        let us = u64::try_from(round).unwrap_or(0) * 7_919 % pause_max_us;
        let part = round.checked_sub(warm_up).map(|round| round * PARTS / rounds);
        let record = |parts: &mut [Samples; PARTS], called: u64, woken: u64| {
            if let Some(part) = part {
                parts[part].push(between(called, woken));
            }
        };
        other.hear_that("asks").await?;
        side.until_waited_for().await?;
        pause(us).await;
        let released = release(guard).await?;
        let [granted] = other.hear_numbers().await?;
        record(ours, released, granted);
        // The other process releases only after we stand in line, so that it cannot be first again.
        let next = tokio::spawn({
            let mutex = side.mutex.clone();
            async move { lock(&mutex).await }
        });
        side.until_waited_for().await?;
        other.say(us)?;
        let granted;
        (guard, granted) = next.await.expect("waiting does not panic")?;
        let [released] = other.hear_numbers().await?;
        record(ours, released, granted);
        if let Some(bare) = &mut side.bare {
            pause(us).await;
            let sent = bare.publish().await?;
            let [woken] = other.hear_numbers().await?;
            record(theirs, sent, woken);
            other.say(us)?;
            let woken = bare.message().await?;
            let [sent] = other.hear_numbers().await?;
            record(theirs, sent, woken);
        }
    }
    Ok(report(&mut parts, side.bare.is_some()))
}

fn report(parts: &mut [[Samples; PARTS]; 2], has_yardstick: bool) -> Report {
    let mut report = Report::new("handoff");
    let [ours, theirs] = parts;
    let subject = "2 processes";
    for (figure, share, goal) in
        [("release to lock, p50", 0.5, 1.4), ("release to lock, p99", 0.99, 2.0)]
    {
        let ours = quantiles_us(ours, share);
        if has_yardstick {
            let theirs = quantiles_us(theirs, share);
            let to = "a bare PUBLISH to a waiting task";
            let compared = Compared { ours: &ours, theirs: &theirs, unit: "us", to };
            report.ratio(subject, figure, compared).at_most(goal);
        } else {
            report.add(subject, figure, &ours, "us");
        }
    }
    report
}
