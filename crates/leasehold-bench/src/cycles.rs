//! Tasks that repeat a step, all at the same time, and their rate in cycles per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::Error;
use tokio::task::JoinSet;

use crate::samples::measure;

/// The step that a task repeats.
pub(crate) trait Cycle: Send + 'static {
    /// Runs the step. `time` counts the repetitions from zero.
    fn run(&mut self, time: usize) -> impl Future<Output = Result<(), Error>> + Send;
}

/// When the tasks stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Elapsed(Duration),
    /// When each task has done this many cycles.
    Done(usize),
}

/// Runs all tasks concurrently. Returns their cycles per second, all together.
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
    // Cycles that end after the stop signal count, and so does their time.
    while let Some(ended) = running.join_next().await {
        ended.expect("no task panics")?;
    }
    Ok(measure(cycles.load(Ordering::Relaxed)) / started.elapsed().as_secs_f64())
}
