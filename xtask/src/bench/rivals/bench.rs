//! The parts that the turns of all scenarios share: the server, the programs, and processes that
//! are kept.

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

use crate::bench::PROGRAM;
use crate::rivals::{By, Process, Server, Subject};
use crate::step;

/// The ttl of locks in all scenarios except `takeover`.
pub(super) const TTL_MS: u64 = 10_000;

/// How many pairs of lock and release a new process makes before it is measured.
pub(super) const WARM_UP: u64 = 200;

/// The server and all processes of a run.
pub(super) struct Bench {
    pub(super) server: Server,
    programs: HashMap<By, Result<Vec<OsString>, String>>,
    /// The processes of a subject that are kept for its next turn. Programs of some languages are
    /// slow until they are warm.
    kept: HashMap<&'static str, Vec<Process>>,
}

impl Bench {
    /// Builds our program and the programs that the subjects need. A subject whose program cannot
    /// be built fails in every scenario.
    pub(super) fn new(subjects: &[&'static Subject]) -> Result<Self, String> {
        let mut programs = HashMap::from([(By::Us, ours())]);
        for subject in subjects {
            let By::Others(language) = subject.by else { continue };
            programs.entry(subject.by).or_insert_with(|| {
                eprintln!("== building the programs in {}", language.name());
                language.build().map_err(|error| ends_of(&error))
            });
        }
        Ok(Self { server: Server::start()?, programs, kept: HashMap::new() })
    }

    /// Starts a process of a subject.
    pub(super) fn start(&self, subject: &Subject, ttl_ms: u64) -> Result<Process, String> {
        self.start_at(subject, &self.server.address(), ttl_ms)
    }

    /// Starts a process of a subject that finds the server at this address.
    pub(super) fn start_at(
        &self,
        subject: &Subject,
        address: &str,
        ttl_ms: u64,
    ) -> Result<Process, String> {
        Process::start(self.program(subject.by)?, &subject.arguments(address, ttl_ms))
    }

    fn program(&self, by: By) -> Result<&[OsString], String> {
        let program = self.programs.get(&by).ok_or("it was not built")?;
        program.as_deref().map_err(String::clone)
    }

    /// Starts a process that makes a trip to the server and back longer. The returned address
    /// reaches the server through this process, as long as the process lives.
    pub(super) fn distance(&self, trip_us: u64) -> Result<(Process, String), String> {
        let program = &self.program(By::Us)?[..1];
        let (port, trip) = (self.server.port().to_string(), trip_us.to_string());
        let mut process = Process::start(program, &["distance".to_owned(), port, trip])?;
        let address = process.hear("at")?.join(" ");
        Ok((process, address))
    }

    /// Returns `N` processes of a subject, some of which may have run before. [`Bench::keep`] takes
    /// them back. After a failure they are dropped, and end.
    pub(super) fn processes<const N: usize>(
        &mut self,
        subject: &Subject,
    ) -> Result<[Process; N], String> {
        let mut processes = self.kept.remove(subject.name).unwrap_or_default();
        let mut spare = processes.split_off(processes.len().min(N));
        while processes.len() < N {
            let mut process = self.start(subject, TTL_MS)?;
            process.tell(&format!("roundtrip warm:{}:{} {WARM_UP}", subject.name, process.id()))?;
            process.hear("times")?;
            processes.push(process);
        }
        if !spare.is_empty() {
            self.kept.entry(subject.name).or_default().append(&mut spare);
        }
        processes.try_into().map_err(|_| "there are not as many processes".to_owned())
    }

    /// Takes processes back for a later turn.
    pub(super) fn keep<const N: usize>(&mut self, subject: &Subject, processes: [Process; N]) {
        self.kept.entry(subject.name).or_default().extend(processes);
    }

    /// Ends all processes that wait for their next turn.
    pub(super) fn end_all(&mut self) {
        self.kept.clear();
    }
}

/// Builds our own program.
fn ours() -> Result<Vec<OsString>, String> {
    let mut build = step::cargo();
    step::run(build.args(["build", "--release", "--locked", "--package", PROGRAM]))?;
    Ok(vec![step::released(PROGRAM).into(), "rival".into()])
}

/// The first line of a log, and its last lines.
fn ends_of(log: &str) -> String {
    const LAST: usize = 10;
    let lines: Vec<&str> = log.lines().collect();
    match lines.len().checked_sub(LAST + 1) {
        None | Some(0) => log.to_owned(),
        Some(left_out) => {
            format!("{}\n[{left_out} lines]\n{}", lines[0], lines[1 + left_out..].join("\n"))
        }
    }
}

pub(super) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// A count as a float. It is exact, since the count is far below 2^52.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) const fn float(count: u64) -> f64 {
    count as f64
}

/// The value below which the fraction `share` of the values lies.
pub(super) fn quantile(values: &mut [u64], share: f64) -> Result<f64, String> {
    values.sort_unstable();
    let last = values.len().checked_sub(1).ok_or("nothing was measured")?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into few values"
    )]
    let at = (last as f64 * share).round() as usize;
    Ok(float(values[at]))
}

/// The processor time and the memory of a process, as the system counts them.
pub(super) struct Usage {
    pub(super) cpu_ms: u64,
    pub(super) resident: u64,
}

impl Usage {
    pub(super) fn of(process: &Process) -> Result<Self, String> {
        let read = |file| std::fs::read_to_string(format!("/proc/{}/{file}", process.id()));
        let (stat, status) = (read("stat"), read("status"));
        let texts = stat.ok().zip(status.ok());
        let usage = texts.and_then(|(stat, status)| Self::read(&stat, &status));
        usage.ok_or_else(|| "the system does not say what the process uses".to_owned())
    }

    fn read(stat: &str, status: &str) -> Option<Self> {
        // The name of the program is in brackets and may have spaces.
        let mut words = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let ticks: u64 = words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident: u64 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
        // Linux reports the time in hundredths of a second.
        Some(Self { cpu_ms: ticks * 10, resident: resident * 1024 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_process_is_read_from_the_figures_of_the_system() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 4 0 99 1 1";
        let usage = Usage::read(stat, "Name:\ta\nVmRSS:\t   12 kB\n").expect("it is well formed");
        assert_eq!((usage.cpu_ms, usage.resident), (420, 12_288));
        assert!(Usage::read("7 (a) S", "VmRSS: 1 kB").is_none());
    }

    #[test]
    fn the_first_line_and_the_last_ones_of_a_long_log_are_kept() {
        let log: Vec<_> = (1..=14).map(|line| line.to_string()).collect();
        assert!(ends_of(&log.join("\n")).starts_with("1\n[3 lines]\n5\n6\n"));
        assert_eq!(ends_of("1\n2"), "1\n2");
        assert_eq!(ends_of(&log[..11].join("\n")).lines().count(), 11);
    }

    #[test]
    fn a_quantile_is_the_nearest_value() {
        let mut values = [30, 10, 20, 50, 40];
        assert_eq!(quantile(&mut values, 0.5), Ok(30.0));
        assert_eq!(quantile(&mut values, 0.99), Ok(50.0));
        assert!(quantile(&mut [], 0.5).is_err());
    }
}
