//! One client holds many leases: what keeping them costs.

use std::time::Duration;

use leasehold::{Client, Error, Guard};

use crate::figure::Report;
use crate::usage::{CpuMeter, bytes_in_use};

const TTL: Duration = Duration::from_secs(10);

pub(crate) async fn measure(url: &str, leases: usize, seconds: u64) -> Result<Report, Error> {
    let client = Client::builder(url).ttl(TTL).connect().await?;
    // What is allocated once, such as the driver, is there before the count begins.
    let _released = client.mutex("bench:renew:warm").lock().await?.release().await?;
    let before = bytes_in_use();
    let mut guards = Vec::with_capacity(leases);
    for number in 0..leases {
        guards.push(client.mutex(format!("bench:renew:{number}")).lock().await?);
    }
    let grown = before.zip(bytes_in_use()).map(|(before, after)| after - before);
    let bytes_per_lease = grown.map(|grown| {
        let table = guards.capacity() * size_of::<Guard>();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let grown = (grown - table) as f64 / leases as f64;
        grown + size_of::<Guard>() as f64
    });

    // Two windows: in the first nothing runs but the driver and the store, in the second every
    // guard is looked at.
    tokio::time::sleep(TTL).await;
    let meter = CpuMeter::start();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let cpu = meter.percent_of_a_core();
    let mut least = Duration::MAX;
    for _ in 0..seconds * 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = guards.iter().map(Guard::remaining).min().unwrap_or_default();
        least = least.min(now);
    }
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();

    let subject = format!("{leases} leases, ttl 10 s");
    let mut report = Report::new("renew");
    report.add(&subject, "client cpu", cpu, "% core");
    let least = (least.as_secs_f64(), "s");
    report.add_ratio(&subject, "least validity left", least, ("ttl", TTL.as_secs_f64()));
    if let Some(bytes) = bytes_per_lease {
        report.add(&subject, "client memory per lease", bytes, "bytes");
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    report.add(&subject, "leases lost", lost as f64, "");
    for guard in guards {
        let _released = guard.release().await?;
    }
    Ok(report)
}
