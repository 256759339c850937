//! Tasks that do the same again and again, all at once, and how often they do it in a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::Error;
use tokio::task::JoinSet;

use crate::samples::measure;

/// What one task does again and again.
pub(crate) trait Cycle: Send + 'static {
    /// Does it for that time, counted from zero.
    fn run(&mut self, time: usize) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Until when tasks go on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// For that long.
    Elapsed(Duration),
    /// Until each has done so many.
    Done(usize),
}

/// Lets all tasks run at once; returns how many cycles they made in a second, together.
pub(crate) async fn rate<C: Cycle>(tasks: Vec<C>, until: Until) -> Result<f64, Error> {
    let (stop, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let most = if let Until::Done(most) = until { most } else { usize::MAX };
    let started = Instant::now();
    let mut running = JoinSet::new();
    for mut task in tasks {
        let (stop, cycles) = (Arc::clone(&stop), Arc::clone(&cycles));
        running.spawn(async move {
            for time in 0..most {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                task.run(time).await?;
                cycles.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Error>(())
        });
    }
    if let Until::Elapsed(span) = until {
        tokio::time::sleep(span).await;
        stop.store(true, Ordering::Relaxed);
    }
    // What is done after the word to stop counts, and so does the time that it takes.
    while let Some(ended) = running.join_next().await {
        ended.expect("no task panics")?;
    }
    Ok(measure(cycles.load(Ordering::Relaxed)) / started.elapsed().as_secs_f64())
}
