//! `leasehold run -n` at three servers: how soon its command starts if one of them is silent, and
//! whether far servers are heard.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind};
use leasehold_testkit::servers::{Proxy, RedisServer, Way};

use crate::figure::{Compared, Report};

const NODES: usize = 3;

/// One way to a far server.
const FAR: Duration = Duration::from_millis(100);

/// The exit code for a lock that another one holds.
const TAKEN: i32 = 75;

/// The size of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// How many runs with all servers healthy, and as many with a silent one.
    pub(crate) pairs: usize,
    /// How many runs with far servers.
    pub(crate) tries: usize,
}

pub(crate) fn measure(extent: Extent) -> Result<Report, Error> {
    let program = program()?;
    let servers: Vec<_> = (0..NODES).map(|_| RedisServer::start()).collect();
    let mut report = Report::new("opening");
    silent(&mut report, &program, &servers, extent.pairs)?;
    far(&mut report, &program, &servers, extent.tries)?;
    Ok(report)
}

/// The command, which is built beside this program.
fn program() -> Result<PathBuf, Error> {
    let program = std::env::current_exe().map(|it| it.with_file_name("leasehold"));
    match program {
        Ok(program) if program.is_file() => Ok(program),
        _ => Err(failed("the command is not beside this program: build `leasehold-cli`")),
    }
}

fn failed(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// Proxies before the servers.
fn proxies(servers: &[RedisServer]) -> Vec<Proxy> {
    servers.iter().map(|server| Proxy::to(server.port())).collect()
}

/// One server is silent from the beginning: connections can be made, and nothing gets through.
fn silent(
    report: &mut Report,
    program: &PathBuf,
    servers: &[RedisServer],
    pairs: usize,
) -> Result<(), Error> {
    let (healthy, silent) = (proxies(servers), proxies(servers));
    silent[NODES - 1].hold(Way::Both);
    let (mut healthy_ms, mut silent_ms) = (Vec::new(), Vec::new());
    // The first pair warms up.
    for pair in 0..=pairs {
        let name = format!("bench:opening:{pair}");
        let one = run(program, &healthy, &format!("{name}:healthy"))?.started_ms()?;
        let other = run(program, &silent, &format!("{name}:silent"))?.started_ms()?;
        if pair > 0 {
            healthy_ms.push(one);
            silent_ms.push(other);
        }
    }
    report.add("3 nodes, all healthy", "the command starts", &healthy_ms, "ms");
    report.add("3 nodes, one of them silent", "the command starts", &silent_ms, "ms");
    let bounds: Vec<_> = healthy_ms.iter().map(|ms| bound_ms(*ms)).collect();
    let to = "1.2 × all healthy + 5 ms";
    let compared = Compared { ours: &silent_ms, theirs: &bounds, unit: "ms", to };
    report.ratio("3 nodes, one of them silent", "the command starts", compared).at_most(1.0);
    Ok(())
}

/// How soon a command has to start with a silent server, given that time with healthy ones.
fn bound_ms(healthy_ms: f64) -> f64 {
    1.2 * healthy_ms + 5.0
}

/// All servers are far. At one of them, a different one each time, another client has the lock.
fn far(
    report: &mut Report,
    program: &PathBuf,
    servers: &[RedisServer],
    tries: usize,
) -> Result<(), Error> {
    let proxies = proxies(servers);
    for proxy in &proxies {
        proxy.delay(Way::Both, FAR);
    }
    let (mut taken, mut started_ms) = (0_u32, Vec::new());
    for number in 0..tries {
        let name = format!("bench:opening:far:{number}");
        servers[number % NODES].command(&["SET", &name, "somebody else", "PX", "600000"]);
        let run = run(program, &proxies, &name)?;
        if run.code == Some(TAKEN) {
            taken += 1;
        } else {
            started_ms.push(run.started_ms()?);
        }
    }
    let subject = "3 far nodes, one of them taken";
    report.add(subject, "refused as taken", &[f64::from(taken)], "").at_most(0.0);
    if !started_ms.is_empty() {
        report.add(subject, "the command starts", &started_ms, "ms");
    }
    Ok(())
}

/// The outcome of one run.
struct Run {
    started: Option<Duration>,
    code: Option<i32>,
}

impl Run {
    /// After how many ms its command started.
    fn started_ms(&self) -> Result<f64, Error> {
        match (self.started, self.code) {
            (Some(started), Some(0)) => Ok(started.as_secs_f64() * 1e3),
            (_, code) => Err(failed(&format!("a run of the command ended with {code:?}"))),
        }
    }
}

/// Runs the command to its end.
fn run(program: &PathBuf, proxies: &[Proxy], name: &str) -> Result<Run, Error> {
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let mut command = Command::new(program);
    command.env("LEASEHOLD_URL", urls.join(" ")).args(["run", name, "-n", "--", "echo", "up"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let cannot = |error| failed("the command cannot be run").with_source(error);
    let began = Instant::now();
    let mut child = command.spawn().map_err(cannot)?;
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut line).map_err(cannot)?;
    let started = (line == "up\n").then(|| began.elapsed());
    let code = child.wait().map_err(cannot)?.code();
    Ok(Run { started, code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_may_cost_a_fifth_and_five_milliseconds() {
        assert!((bound_ms(10.0) - 17.0).abs() < 1e-9);
    }

    #[test]
    fn only_a_run_that_ended_well_has_a_time() {
        let run = |started, code| Run { started, code };
        let started = Some(Duration::from_millis(20));
        assert!(run(started, Some(0)).started_ms().is_ok_and(|ms| (ms - 20.0).abs() < 1e-9));
        for bad in [run(started, Some(1)), run(None, Some(0)), run(started, None)] {
            assert!(bad.started_ms().is_err());
        }
    }
}
