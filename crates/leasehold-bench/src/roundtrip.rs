//! One client locks and releases, alone: what a lock costs that nobody else wants.

use std::time::Instant;

use leasehold::{Client, Error};

use crate::bare_redis::Pair;
use crate::figure::{Report, Samples};
use crate::yardstick::Yardstick;

/// How many pairs of one kind are measured before it is the other kind's turn.
const TURN: usize = 20;

/// One way to use a lock.
struct Subject {
    name: &'static str,
    /// Names of one length, and a lock of its own each: a release that nobody waits for must not
    /// be in the way of who asks over another connection.
    lock: &'static str,
    fenced: bool,
    awaited: bool,
}

const SUBJECTS: [Subject; 4] = [
    Subject { name: "lock + release", lock: "bench:roundtri1", fenced: true, awaited: true },
    Subject {
        name: "lock + release, unfenced",
        lock: "bench:roundtri2",
        fenced: false,
        awaited: true,
    },
    Subject { name: "lock + drop", lock: "bench:roundtri3", fenced: true, awaited: false },
    Subject {
        name: "lock + drop, unfenced",
        lock: "bench:roundtri4",
        fenced: false,
        awaited: false,
    },
];

impl Subject {
    async fn run(&self, client: &Client, turn: usize, samples: &mut Samples) -> Result<(), Error> {
        let mutex = client.mutex(self.lock).fencing(self.fenced);
        for _ in 0..TURN {
            let started = Instant::now();
            let guard = mutex.lock().await?;
            if self.awaited {
                let _released = guard.release().await?;
            } else {
                drop(guard);
            }
            record(samples, turn, started);
        }
        Ok(())
    }
}

pub(crate) async fn measure(url: &str, pairs: usize) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let mut yardstick = Yardstick::beside(url).await?;
    let bare = yardstick.pairs();
    let mut ours: [Samples; SUBJECTS.len()] = Default::default();
    let mut theirs: Vec<Samples> = bare.iter().map(|_| Samples::default()).collect();
    for turn in 0..pairs.div_ceil(TURN) {
        for (subject, samples) in SUBJECTS.iter().zip(&mut ours) {
            subject.run(&client, turn, samples).await?;
        }
        for ((pair, _), samples) in bare.iter().zip(&mut theirs) {
            for _ in 0..TURN {
                let started = Instant::now();
                yardstick.run(*pair).await?;
                record(samples, turn, started);
            }
        }
    }
    Ok(report(bare, &mut ours, &mut theirs))
}

/// Each of our values beside every yardstick of its kind, and a release by drop beside one that is
/// waited for.
fn report(
    bare: &[(Pair, &str)],
    ours: &mut [Samples; SUBJECTS.len()],
    theirs: &mut [Samples],
) -> Report {
    let mut report = Report::new("roundtrip");
    for (figure, share) in [("p50", 0.5), ("p99", 0.99)] {
        let values: Vec<f64> = ours.iter_mut().map(|samples| samples.quantile_us(share)).collect();
        for (subject, value) in SUBJECTS.iter().zip(&values) {
            for ((pair, name), samples) in bare.iter().zip(&mut *theirs) {
                let another = if subject.fenced { Pair::Unfenced } else { Pair::Fenced };
                if *pair != another || bare.len() == 1 {
                    let yardstick = (*name, samples.quantile_us(share));
                    report.add_ratio(subject.name, figure, (*value, "us"), yardstick);
                }
            }
            let awaited = SUBJECTS.iter().zip(&values).find(|(awaited, _)| {
                !subject.awaited && awaited.awaited && awaited.fenced == subject.fenced
            });
            if let Some((awaited, of_awaited)) = awaited {
                let awaited = (awaited.name, *of_awaited);
                report.add_ratio(subject.name, figure, (*value, "us"), awaited);
            }
        }
        for ((_, name), samples) in bare.iter().zip(&mut *theirs) {
            report.add(name, figure, samples.quantile_us(share), "us");
        }
    }
    report
}

/// The first turn warms up.
fn record(samples: &mut Samples, turn: usize, started: Instant) {
    if turn > 0 {
        samples.push(started.elapsed());
    }
}
