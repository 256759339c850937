//! Measures locks that send no request: one task locks and releases the same key again and again,
//! and its client keeps the lease in between.

use std::time::{Duration, Instant};

use leasehold::{Client, Error};

use crate::figure::{Compared, Report};
use crate::samples::measure as as_measure;

/// How long a lease is kept without a guard.
const KEEP_IDLE: Duration = Duration::from_secs(5);

pub(crate) async fn measure(url: &str, rounds: usize, cycles: u32) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let mutex = client.mutex("bench:idle").keep_idle(KEEP_IDLE);
    let bare = tokio::sync::Mutex::new(());
    let [mut released, mut dropped, mut theirs] = [const { Vec::new() }; 3];
    for round in 0..=rounds {
        let started = Instant::now();
        for _ in 0..cycles {
            let _released = mutex.lock().await?.release().await?;
        }
        let of_released = started.elapsed();
        let started = Instant::now();
        for _ in 0..cycles {
            drop(mutex.lock().await?);
        }
        let of_dropped = started.elapsed();
        let started = Instant::now();
        for _ in 0..cycles {
            drop(std::hint::black_box(bare.lock().await));
        }
        let of_bare = started.elapsed();
        // The first round warms up.
        if round > 0 {
            let each_us = |span: Duration| span.as_secs_f64() * 1e6 / as_measure(cycles.into());
            released.push(each_us(of_released));
            dropped.push(each_us(of_dropped));
            theirs.push(each_us(of_bare));
        }
    }
    let mut report = Report::new("idle");
    for (subject, ours) in [("lock + release", &released), ("lock + drop", &dropped)] {
        report.add(subject, "each", ours, "us").at_most(2.0);
        let compared = Compared { ours, theirs: &theirs, unit: "us", to: "tokio::sync::Mutex" };
        report.ratio(subject, "beside a mutex of the process", compared);
    }
    Ok(report)
}
