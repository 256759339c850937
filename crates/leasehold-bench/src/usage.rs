//! What this process has used.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time against real time, from a start on.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    started: Instant,
    cpu: Duration,
}

impl CpuMeter {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu_time() }
    }

    /// How many percent of one core all threads of this process used since the start.
    pub(crate) fn percent_of_a_core(&self) -> f64 {
        let used = cpu_time() - self.cpu;
        used.as_secs_f64() / self.started.elapsed().as_secs_f64() * 100.0
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How many bytes are allocated and not freed, by everything but C libraries. `None` where that is
/// not counted.
pub(crate) fn bytes_in_use() -> Option<usize> {
    #[cfg(feature = "memory")]
    {
        let stats = crate::ALLOCATOR.stats();
        Some(stats.bytes_allocated.saturating_sub(stats.bytes_deallocated))
    }
    #[cfg(not(feature = "memory"))]
    None
}
