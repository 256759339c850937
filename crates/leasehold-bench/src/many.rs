//! Several names taken together, and one by a thread that blocks. Measures what each costs more
//! than one name by one task.

use std::time::Instant;

use leasehold::blocking::block_on;
use leasehold::{Client, Error};

use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};

/// How many pairs of one kind are measured in a row.
const TURN: usize = 20;

/// The pairs are split into this many rounds, each with its own quantiles.
const ROUNDS: usize = 5;

/// The braces put all of them in one slot of a cluster.
const NAMES: [&str; 3] = ["{bench:many}:1", "{bench:many}:2", "{bench:many}:3"];

const BLOCKING: &str = "{bench:many}:4";

/// Pairs of one kind, in rounds.
#[derive(Default)]
struct Measured {
    one: Vec<Samples>,
    three: Vec<Samples>,
    blocking: Vec<Samples>,
}

pub(crate) async fn measure(url: &str, pairs: usize) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    // Its connections live on the thread of the library.
    let of_thread = apart(|| block_on(Client::connect(url)))?;
    let mut measured = Measured::default();
    let turns = pairs.div_ceil(TURN * ROUNDS);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let mut samples: [Samples; 3] = Default::default();
        for _ in 0..if round == 0 { turns.min(5) } else { turns } {
            let [one, three, blocking] = &mut samples;
            lock_one(&client, one).await?;
            lock_three(&client, three).await?;
            apart(|| lock_blocking(&of_thread, blocking))?;
        }
        if round > 0 {
            let [one, three, blocking] = samples;
            measured.one.push(one);
            measured.three.push(three);
            measured.blocking.push(blocking);
        }
    }
    Ok(report(&mut measured))
}

/// Runs `work` on a thread without a runtime, as a program without `async` does.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("the work does not panic"))
}

async fn lock_one(client: &Client, samples: &mut Samples) -> Result<(), Error> {
    let mutex = client.mutex(NAMES[0]);
    for _ in 0..TURN {
        let started = Instant::now();
        let _released = mutex.lock().await?.release().await?;
        samples.push(started.elapsed());
    }
    Ok(())
}

async fn lock_three(client: &Client, samples: &mut Samples) -> Result<(), Error> {
    let locks = client.lock_all(NAMES);
    for _ in 0..TURN {
        let started = Instant::now();
        let _released = locks.lock().await?.release().await?;
        samples.push(started.elapsed());
    }
    Ok(())
}

fn lock_blocking(client: &Client, samples: &mut Samples) -> Result<(), Error> {
    let mutex = client.mutex(BLOCKING);
    for _ in 0..TURN {
        let started = Instant::now();
        let _released = block_on(block_on(mutex.lock())?.release())?;
        samples.push(started.elapsed());
    }
    Ok(())
}

fn report(measured: &mut Measured) -> Report {
    let mut report = Report::new("many");
    for (quantile, share) in [("p50", 0.5), ("p99", 0.99)] {
        let one = quantiles_us(&mut measured.one, share);
        let three = quantiles_us(&mut measured.three, share);
        let blocking = quantiles_us(&mut measured.blocking, share);
        report.add("one name", quantile, &one, "us");
        let compared = Compared { ours: &three, theirs: &one, unit: "us", to: "one name" };
        let of_three = report.ratio("three names of one slot", quantile, compared);
        // The slowest percent says more about the machine than about the lock.
        if share < 0.9 {
            of_three.at_most(1.3);
        }
        let more: Vec<_> = blocking.iter().zip(&one).map(|(ours, theirs)| ours - theirs).collect();
        let of_blocking =
            report.add("one name, blocking", &format!("{quantile} more"), &more, "us");
        if share < 0.9 {
            of_blocking.at_most(30.0);
        }
    }
    report
}
