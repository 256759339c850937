//! One client locks and releases, alone: what a lock costs that nobody else wants.

use std::time::Instant;

use leasehold::{Client, Error};

use crate::figure::{Report, Samples};
use crate::yardstick::Yardstick;

/// How many pairs of one kind are measured before it is the other kind's turn.
const TURN: usize = 20;

pub(crate) async fn measure(url: &str, pairs: usize) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let yardstick = Yardstick::beside(url)?;
    let subjects = [
        ("lock + release", true, true),
        ("lock + release, unfenced", false, true),
        ("lock + drop", true, false),
    ];
    let mut ours: [Samples; 3] = Default::default();
    let mut bare = Samples::default();
    for turn in 0..pairs.div_ceil(TURN) {
        for ((_, fenced, awaited), samples) in subjects.iter().zip(&mut ours) {
            let mutex = client.mutex("bench:roundtrip").fencing(*fenced);
            for _ in 0..TURN {
                let started = Instant::now();
                let guard = mutex.lock().await?;
                if *awaited {
                    let _released = guard.release().await?;
                } else {
                    drop(guard);
                }
                record(samples, turn, started);
            }
        }
        for _ in 0..TURN {
            let started = Instant::now();
            yardstick.pair().await;
            record(&mut bare, turn, started);
        }
    }
    let mut report = Report::new("roundtrip");
    for ((subject, ..), samples) in subjects.iter().zip(&mut ours) {
        for (figure, share) in [("p50", 0.5), ("p99", 0.99)] {
            let yardstick = (yardstick.name(), bare.quantile_us(share));
            report.add_ratio(subject, figure, (samples.quantile_us(share), "us"), yardstick);
        }
    }
    for (figure, share) in [("p50", 0.5), ("p99", 0.99)] {
        report.add(yardstick.name(), figure, bare.quantile_us(share), "us");
    }
    Ok(report)
}

/// The first turn warms up.
fn record(samples: &mut Samples, turn: usize, started: Instant) {
    if turn > 0 {
        samples.push(started.elapsed());
    }
}
