//! The command line arguments.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_testkit::history::Invariant;
use leasehold_testkit::simulation::{Kind, Plan};

/// The description of each flag. The kinds of worlds follow it.
const USAGE: &str = "\
usage: cargo xtask sim [FLAGS]

Runs the library on simulated servers, networks and clocks. A seed is one world: its clients, its
kinds, and what goes wrong in it. The checker judges what happened. Exits with 1 if a promise was
broken, and prints the command that runs that seed again.

Which worlds:
  --seeds A..B       the seeds from A to B, without B (default: 0..100)
  --time 30s         how long the clients of a world work, on its own clock (default: 30s, or 3s
                     with --contention, and 20s with --mixture; worlds of long leases last longer)
  --world KIND       makes every world one of that kind, if the seed allows it, and leaves out the
                     other seeds; may be given several times
  --quorum           runs only the seeds that have a quorum by themselves
  --copies           runs only the seeds that want copies by themselves

How they are run:
  --jobs N           how many worlds run side by side (default: one per core)
  --until-violation WHAT
                     stops at the first seed that breaks this invariant, or any with `any`; exits
                     with 0 if there is one, and with 1 if not
  --contention       runs ten clients instead that want one lock of five nodes all the time
  --mixture          runs clients of another library instead, which poll, and our clients; all want
                     one lock of one server all the time
  --grants N         with --contention: ends a world after this many grants

Output:
  --trace            prints all events
  --hashes           prints a hash of all events for each seed
  --json FILE        writes the record of the run
  --commit HASH      the commit in the record (default: unknown)
  --help             prints this

Also, `cargo xtask sim --short` runs the simulation that every change has to pass, and
`cargo xtask sim --planted [NAME...] [--seeds N] [--jobs N] [--json FILE]` plants known bugs.
";

/// The help text: all flags, the kinds of worlds, and the invariants.
pub(crate) fn usage() -> String {
    let mut usage = format!("{USAGE}\nKinds of worlds:\n");
    for (name, about) in Kind::ALL.map(Kind::about) {
        usage += &format!("  {name:<16} {about}\n");
    }
    usage += "\nInvariants:\n";
    for invariant in Invariant::ALL {
        usage += &format!("  {invariant}\n");
    }
    usage
}

pub(crate) struct Args {
    pub(crate) seeds: Range<u64>,
    /// The time of each world, if the user gave one.
    pub(crate) time: Option<Duration>,
    pub(crate) is_quorum: bool,
    pub(crate) wants_copies: bool,
    /// The kinds that every world must have.
    pub(crate) worlds: Vec<Kind>,
    pub(crate) grants_max: usize,
    pub(crate) jobs: usize,
    pub(crate) json: Option<PathBuf>,
    pub(crate) commit: String,
    pub(crate) trace: bool,
    pub(crate) mode: Mode,
}

/// The task of this run, and its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Hashes,
    /// Stops when this invariant is broken, or at any violation if this is `None`.
    UntilViolation(Option<Invariant>),
    Contention,
    Mixture,
    Help,
}

impl Args {
    /// Whether the world of a seed should be run.
    pub(crate) fn want(&self, seed: u64) -> bool {
        let drawn = || Plan::new(seed, self.time_of_world());
        (!self.is_quorum || drawn().is_quorum())
            && (!self.wants_copies || drawn().copies.is_some())
            && self.worlds.iter().all(|kind| self.plan(seed).is(*kind))
    }

    /// The world of a seed.
    pub(crate) fn plan(&self, seed: u64) -> Plan {
        Plan::asked_for(seed, self.time_of_world(), &self.worlds)
    }

    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut args = Self {
            seeds: 0..100,
            time: None,
            is_quorum: false,
            wants_copies: false,
            worlds: Vec::new(),
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
                "--world" => args.worlds.push(value()?.parse()?),
                "--jobs" => args.jobs = number(&value()?)?.max(1),
                "--grants" => args.grants_max = number(&value()?)?.max(1),
                "--json" => args.json = Some(value()?.into()),
                "--commit" => args.commit = value()?,
                "--trace" => args.trace = true,
                "--contention" => args.mode = Mode::Contention,
                "--mixture" => args.mode = Mode::Mixture,
                "--hashes" => args.mode = Mode::Hashes,
                "--until-violation" => args.mode = Mode::UntilViolation(sought(&value()?)?),
                "--help" | "-h" => args.mode = Mode::Help,
                _ => return Err(format!("`{word}` is not understood")),
            }
        }
        let has_faults = !matches!(args.mode, Mode::Contention | Mode::Mixture);
        let is_too_short = |time| time < TIME_MIN && has_faults;
        if args.time.is_some_and(is_too_short) {
            return Err("worlds with faults need a time of 5s at least".to_owned());
        }
        if args.grants_max < usize::MAX && args.mode != Mode::Contention {
            return Err("`--grants` is for `--contention`".to_owned());
        }
        Ok(args)
    }

    /// How long the clients of a world with faults work.
    pub(crate) fn time_of_world(&self) -> Duration {
        self.time.unwrap_or(Duration::from_secs(30))
    }
}

/// Parses the invariant to look for, or `any`.
fn sought(name: &str) -> Result<Option<Invariant>, String> {
    if name == "any" { Ok(None) } else { name.parse().map(Some) }
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text
        .split_once("..")
        .and_then(|(first, past_last)| Some(first.parse().ok()?..past_last.parse().ok()?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| format!("seeds are a range such as 0..100, not `{text}`"))
}

/// The shortest run with faults. The first fault comes after half a second.
const TIME_MIN: Duration = Duration::from_secs(5);

fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    seconds
        .map(Duration::from_secs)
        .filter(|time| (Duration::from_secs(1)..=Duration::from_hours(1)).contains(time))
        .ok_or_else(|| format!("a time is between 1s and 3600s, not `{text}`"))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args, String> {
        Args::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_help_explains_every_flag_that_is_understood() {
        let source = include_str!("args.rs");
        let flags = source.lines().filter_map(|line| {
            let arm = line.trim().strip_prefix('"')?;
            arm.split_once('"').filter(|(_, rest)| rest.contains("=>")).map(|(flag, _)| flag)
        });
        let flags: Vec<_> = flags.filter(|flag| flag.starts_with("--")).collect();
        assert!(flags.len() >= 14, "{flags:?}");
        for flag in flags {
            let explained = usage().lines().any(|line| line.trim_start().starts_with(flag));
            assert!(explained, "{flag} is not explained");
        }
    }

    #[test]
    fn arguments_are_understood_or_refused_by_name() {
        let args = parsed("--seeds 7..9 --time 60s --quorum --jobs 2 --hashes").expect("right");
        assert!(args.is_quorum && !parsed("--hashes").expect("right").is_quorum);
        assert_eq!((args.seeds, args.time, args.jobs), (7..9, Some(Duration::from_mins(1)), 2));
        assert_eq!(args.mode, Mode::Hashes);
        assert_eq!(parsed("--time 1s --contention").expect("right").mode, Mode::Contention);
        let worlds = parsed("--world long --world bare").expect("right").worlds;
        assert_eq!(worlds, [Kind::Long, Kind::Bare]);
        let until = |what: &str| parsed(&format!("--until-violation {what}")).expect("right").mode;
        assert_eq!(until("any"), Mode::UntilViolation(None));
        assert_eq!(until("no-overlap"), Mode::UntilViolation(Some(Invariant::NoOverlap)));
        let wrong = [
            ("--world flat", "not a kind of world"),
            ("--seeds 9..7", "range"),
            ("--seeds", "needs a value"),
            ("--time 0s", "between"),
            ("--time 1s", "5s at least"),
            ("--grants 100", "for `--contention`"),
            ("--time 60", "between"),
            ("--jobs many", "not a number"),
            ("--until-violation harmony", "not an invariant"),
            ("--frobnicate", "not understood"),
        ];
        for (line, complaint) in wrong {
            let error = parsed(line).err().unwrap_or_else(|| panic!("`{line}` passed"));
            assert!(error.contains(complaint), "`{line}`: {error}");
        }
    }
}
