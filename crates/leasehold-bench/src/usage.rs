//! The CPU time and memory of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time compared with real time since a start.
#[derive(Debug)]
pub(crate) struct CpuMeter {
    started: Instant,
    cpu: Duration,
}

impl CpuMeter {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu_time() }
    }

    /// The CPU time of all threads of this process since the start, in percent of one core.
    pub(crate) fn percent_of_a_core(&self) -> f64 {
        let used = cpu_time() - self.cpu;
        used.as_secs_f64() / self.started.elapsed().as_secs_f64() * 100.0
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How many bytes are allocated and not freed, without C libraries. `None` if that is not counted.
pub(crate) fn bytes_in_use() -> Option<usize> {
    #[cfg(feature = "memory")]
    {
        let stats = crate::ALLOCATOR.stats();
        Some(stats.bytes_allocated.saturating_sub(stats.bytes_deallocated))
    }
    #[cfg(not(feature = "memory"))]
    None
}

/// The resident memory of this process in bytes. The system counts whole pages, including free
/// memory that the allocator keeps.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    resident_in(&status).expect("the system says how large its processes are")
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_process_is_read_from_its_status() {
        let status = "Name:\tx\nVmHWM:\t    9 kB\nVmRSS:\t   12 kB\nThreads:\t1\n";
        assert_eq!(resident_in(status), Some(12_288));
        assert_eq!(resident_in("VmRSS: many\n"), None);
        assert!(resident_bytes() > 0);
    }
}
