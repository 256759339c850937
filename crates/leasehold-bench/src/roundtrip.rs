//! One client locks and releases, alone. Measures a lock that nobody else wants.

use std::time::Instant;

use leasehold::{Client, Error};

use crate::bare_redis::Pair;
use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};
use crate::yardstick::Yardstick;

/// How many pairs of one kind are measured in a row.
const TURN: usize = 20;

/// The pairs are split into this many rounds, each with its own quantiles.
const ROUNDS: usize = 5;

/// One way of using a lock.
struct Subject {
    name: &'static str,
    /// All names have the same length, and each subject has its own lock. A background release must
    /// not delay a request on another connection.
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
    async fn run(&self, client: &Client, samples: &mut Samples) -> Result<(), Error> {
        let mutex = client.mutex(self.lock).fencing(self.fenced);
        for _ in 0..TURN {
            let started = Instant::now();
            let guard = mutex.lock().await?;
            if self.awaited {
                let _released = guard.release().await?;
            } else {
                drop(guard);
            }
            samples.push(started.elapsed());
        }
        Ok(())
    }
}

pub(crate) async fn measure(url: &str, pairs: usize) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let mut yardstick = Yardstick::beside(url).await?;
    let bare = yardstick.pairs();
    let mut ours: [Vec<Samples>; SUBJECTS.len()] = Default::default();
    let mut theirs: Vec<Vec<Samples>> = bare.iter().map(|_| Vec::new()).collect();
    let turns = pairs.div_ceil(TURN * ROUNDS);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let mut of_ours: [Samples; SUBJECTS.len()] = Default::default();
        let mut of_theirs: Vec<Samples> = bare.iter().map(|_| Samples::default()).collect();
        for _ in 0..if round == 0 { turns.min(5) } else { turns } {
            for (subject, samples) in SUBJECTS.iter().zip(&mut of_ours) {
                subject.run(&client, samples).await?;
            }
            for ((pair, _), samples) in bare.iter().zip(&mut of_theirs) {
                for _ in 0..TURN {
                    let started = Instant::now();
                    yardstick.run(*pair).await?;
                    samples.push(started.elapsed());
                }
            }
        }
        if round > 0 {
            ours.iter_mut().zip(of_ours).for_each(|(rounds, round)| rounds.push(round));
            theirs.iter_mut().zip(of_theirs).for_each(|(rounds, round)| rounds.push(round));
        }
    }
    Ok(report(bare, &mut ours, &mut theirs))
}

/// Compares each of our figures with every yardstick of its kind, and a release by drop with an
/// awaited release.
fn report(
    bare: &[(Pair, &str)],
    ours: &mut [Vec<Samples>; SUBJECTS.len()],
    theirs: &mut [Vec<Samples>],
) -> Report {
    let mut report = Report::new("roundtrip");
    for (quantile, share) in [("p50", 0.5), ("p99", 0.99)] {
        let ours: Vec<_> = ours.iter_mut().map(|rounds| quantiles_us(rounds, share)).collect();
        let theirs: Vec<_> = theirs.iter_mut().map(|rounds| quantiles_us(rounds, share)).collect();
        for (subject, ours_us) in SUBJECTS.iter().zip(&ours) {
            report.add(subject.name, quantile, ours_us, "us");
            if share > 0.5 {
                // The slowest percent says more about the machine than about the lock.
                continue;
            }
            let of_kind = bare.iter().zip(&theirs).filter(|((pair, _), _)| {
                let another = if subject.fenced { Pair::Unfenced } else { Pair::Fenced };
                *pair != another || bare.len() == 1
            });
            for ((pair, name), theirs) in of_kind {
                let compared = Compared { ours: ours_us, theirs, unit: "us", to: name };
                let figure = report.ratio(subject.name, quantile, compared);
                if subject.awaited && *pair != Pair::Pings && bare.len() > 1 {
                    figure.at_most(1.05);
                }
            }
            let awaited = SUBJECTS.iter().zip(&ours).find(|(awaited, _)| {
                !subject.awaited && awaited.awaited && awaited.fenced == subject.fenced
            });
            if let Some((awaited, theirs)) = awaited {
                let compared = Compared { ours: ours_us, theirs, unit: "us", to: awaited.name };
                report.ratio(subject.name, quantile, compared);
            }
        }
    }
    report
}
