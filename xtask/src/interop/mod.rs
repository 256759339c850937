//! `cargo xtask interop`: Leasehold beside other libraries, on one key of a real server.

mod contender;
mod judge;
mod rivals;

use std::time::{Duration, Instant};

use self::contender::Contender;
use self::judge::{Verdict, judge};
use self::rivals::{RIVALS, Rival};
use crate::rivals::Server;
use crate::{step, tools};

/// How often each side must have the lock.
const ACQUISITIONS: usize = 200;

/// How long one pair may take for each acquisition of the slower side, and in the least.
const SPAN_OF_ONE: Duration = Duration::from_millis(300);
const SPAN_MIN: Duration = Duration::from_secs(30);

/// How often the counts are looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// How many processes and tasks each side has, how long they hold the lock, and its ttl.
const PROCESSES: usize = 2;
const TASKS: &str = "2";
const HOLD_MS: &str = "2";
const TTL_MS: &str = "4000";

/// Runs all rivals, or those that `args` name.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let (wanted, acquisitions) = parse(args)?;
    tools::need_c_compiler()?;
    tools::need_redis_server()?;
    let mut build = step::cargo();
    build.args(["build", "--release", "--locked", "--package", "leasehold-testkit"]);
    step::run(build.args(["--bin", "contender"]))?;
    let ours = vec![step::released("contender").into_os_string()];
    let server = Server::start()?;
    let (mut lines, mut failures) = (vec![Verdict::HEAD.to_owned()], Vec::new());
    for rival in wanted {
        let verdict = rival.build().and_then(|theirs| pair(&server, &ours, &theirs, acquisitions));
        match verdict {
            Ok(verdict) => {
                lines.push(verdict.row(rival.name));
                failures.extend(verdict.broken().map(|what| format!("{}: {what}", rival.name)));
            }
            Err(error) => {
                lines.push(format!("| {} | failed: see below | | | | |", rival.name));
                failures.push(format!("{}: {error}", rival.name));
            }
        }
    }
    println!("{}", lines.join("\n"));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The rivals, and how often each side must have the lock.
fn parse(args: &[String]) -> Result<(Vec<&'static Rival>, usize), String> {
    let (mut wanted, mut acquisitions) = (Vec::new(), ACQUISITIONS);
    let mut args = args.iter();
    while let Some(word) = args.next() {
        if word == "--acquisitions" {
            let number = args.next().and_then(|number| number.parse().ok());
            acquisitions = number.filter(|number| *number > 0).ok_or_else(|| {
                "--acquisitions needs a number: how often each side must have the lock".to_owned()
            })?;
        } else if let Some(rival) = RIVALS.iter().find(|rival| rival.name == word) {
            wanted.push(rival);
        } else {
            let names: Vec<_> = RIVALS.iter().map(|rival| rival.name).collect();
            return Err(format!("there is no rival `{word}`; there are {}", names.join(", ")));
        }
    }
    let all = || RIVALS.iter().collect();
    Ok((if wanted.is_empty() { all() } else { wanted }, acquisitions))
}

/// Runs both sides until each has had the lock often enough.
fn pair(
    server: &Server,
    ours: &[std::ffi::OsString],
    theirs: &[std::ffi::OsString],
    acquisitions: usize,
) -> Result<Verdict, String> {
    server.flush()?;
    let address = server.address();
    let args = [&*address, "shared", TASKS, HOLD_MS, TTL_MS];
    let start = |program: &[_]| (0..PROCESSES).map(|_| Contender::start(program, &args)).collect();
    let ours: Vec<Contender> = Result::<_, String>::from_iter::<Vec<_>>(start(ours))?;
    let theirs: Vec<Contender> = Result::<_, String>::from_iter::<Vec<_>>(start(theirs))?;
    let most = SPAN_MIN.max(SPAN_OF_ONE.saturating_mul(u32::try_from(acquisitions).unwrap_or(600)));
    let until = Instant::now() + most;
    let had = |side: &[Contender]| side.iter().map(Contender::acquired).sum::<usize>();
    let all_run = |side: &[Contender]| side.iter().all(Contender::runs);
    while had(&ours).min(had(&theirs)) < acquisitions
        && Instant::now() < until
        && all_run(&ours)
        && all_run(&theirs)
    {
        std::thread::sleep(LOOKS_EVERY);
    }
    let end = |side: Vec<Contender>| side.into_iter().map(Contender::end).collect();
    let (ours, theirs): (Result<Vec<_>, _>, Result<Vec<_>, _>) = (end(ours), end(theirs));
    judge(&ours?, &theirs?, acquisitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Vec<&'static str>, usize), String> {
        let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        let (rivals, acquisitions) = parse(&args)?;
        Ok((rivals.iter().map(|rival| rival.name).collect(), acquisitions))
    }

    #[test]
    fn rivals_and_numbers_are_understood_or_refused() {
        assert_eq!(parsed(""), Ok((vec!["redsync", "bsm", "redis-py", "rslock"], 200)));
        assert_eq!(parsed("--acquisitions 7 rslock bsm"), Ok((vec!["rslock", "bsm"], 7)));
        for (line, complaint) in [
            ("--acquisitions", "needs a number"),
            ("--acquisitions 0", "needs a number"),
            ("--acquisitions many", "needs a number"),
            ("zookeeper", "there are redsync, bsm"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
