//! The arguments.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_testkit::history::Invariant;
use leasehold_testkit::simulation::Plan;

pub(crate) const USAGE: &str = "\
usage: simulate [--seeds A..B] [--time 30s] [--quorum] [--copies] [--jobs N] [--json FILE]
                [--hashes] [--trace] [--until-violation INVARIANT]
                [--contention [--grants N]] [--commit HASH]

--seeds             which worlds: A to B, without B (default: 0..100)
--time              for how long the clients of each go on, on its own clock (default: 30s, or 3s
                    with --contention)
--quorum            only those of them that have a quorum
--copies            only those of them whose clients want copies of what they are granted
--jobs              how many are run side by side (default: one per core)
--json              writes what was run as a record
--hashes            prints what stands for all that happened, seed by seed
--trace             prints all that happened
--until-violation   stops at the first seed that breaks this invariant; fails if none does
--contention        instead: ten clients that want one lock of five nodes all the time
--grants            each of these ends after so many of them got it
--commit            what the record says was run (default: unknown)";

/// What is to be done.
pub(crate) struct Args {
    pub(crate) seeds: Range<u64>,
    /// If one is asked for.
    pub(crate) time: Option<Duration>,
    pub(crate) is_quorum: bool,
    pub(crate) wants_copies: bool,
    pub(crate) grants_max: usize,
    pub(crate) jobs: usize,
    pub(crate) json: Option<PathBuf>,
    pub(crate) commit: String,
    pub(crate) trace: bool,
    pub(crate) mode: Mode,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Hashes,
    UntilViolation(Invariant),
    Contention,
}

impl Args {
    /// Whether the world of a seed is one of those that are to be run.
    pub(crate) fn want(&self, seed: u64) -> bool {
        let plan = || Plan::new(seed, self.time_of_world());
        (!self.is_quorum || plan().is_quorum()) && (!self.wants_copies || plan().copies.is_some())
    }

    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut args = Self {
            seeds: 0..100,
            time: None,
            is_quorum: false,
            wants_copies: false,
            grants_max: usize::MAX,
            jobs,
            json: None,
            commit: "unknown".to_owned(),
            trace: false,
            mode: Mode::Check,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--seeds" => args.seeds = seeds(&value()?)?,
                "--time" => args.time = Some(time(&value()?)?),
                "--quorum" => args.is_quorum = true,
                "--copies" => args.wants_copies = true,
                "--jobs" => args.jobs = number(&value()?)?.max(1),
                "--grants" => args.grants_max = number(&value()?)?.max(1),
                "--json" => args.json = Some(value()?.into()),
                "--commit" => args.commit = value()?,
                "--trace" => args.trace = true,
                "--contention" => args.mode = Mode::Contention,
                "--hashes" => args.mode = Mode::Hashes,
                "--until-violation" => args.mode = Mode::UntilViolation(value()?.parse()?),
                _ => return Err(format!("`{word}` is not understood")),
            }
        }
        let is_too_short = |time| time < TIME_MIN && args.mode != Mode::Contention;
        if args.time.is_some_and(is_too_short) {
            return Err("worlds with faults need a time of 5s at least".to_owned());
        }
        if args.grants_max < usize::MAX && args.mode != Mode::Contention {
            return Err("`--grants` is for `--contention`".to_owned());
        }
        Ok(args)
    }

    /// For how long the clients of a world with faults go on.
    pub(crate) fn time_of_world(&self) -> Duration {
        self.time.unwrap_or(Duration::from_secs(30))
    }
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text
        .split_once("..")
        .and_then(|(first, past_last)| Some(first.parse().ok()?..past_last.parse().ok()?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| format!("seeds are a range such as 0..100, not `{text}`"))
}

/// The shortest run with faults: the first comes after half a second.
const TIME_MIN: Duration = Duration::from_secs(5);

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    seconds
        .map(Duration::from_secs)
        .filter(|time| (Duration::from_secs(1)..=Duration::from_hours(1)).contains(time))
        .ok_or_else(|| format!("a time is between 1s and 3600s, not `{text}`"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments_are_understood_or_refused_by_name() {
        let args = parsed("--seeds 7..9 --time 60s --quorum --jobs 2 --hashes").expect("right");
        assert!(args.is_quorum && !parsed("--hashes").expect("right").is_quorum);
        assert_eq!((args.seeds, args.time, args.jobs), (7..9, Some(Duration::from_mins(1)), 2));
        assert_eq!(args.mode, Mode::Hashes);
        assert_eq!(parsed("--time 1s --contention").expect("right").mode, Mode::Contention);
        let wrong = [
            ("--seeds 9..7", "range"),
            ("--seeds", "needs a value"),
            ("--time 0s", "between"),
            ("--time 1s", "5s at least"),
            ("--grants 100", "for `--contention`"),
            ("--time 60", "between"),
            ("--jobs many", "no number"),
            ("--until-violation harmony", "no invariant"),
            ("--frobnicate", "not understood"),
        ];
        for (line, complaint) in wrong {
            let error = parsed(line).err().unwrap_or_else(|| panic!("`{line}` passed"));
            assert!(error.contains(complaint), "`{line}`: {error}");
        }
    }
}
