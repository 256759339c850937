//! The command line arguments.

use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use leasehold_testkit::history::Invariant;
use leasehold_testkit::simulation::{Kind, Plan};
use strum::{EnumMessage as _, VariantArray as _};

/// Runs the library on simulated servers, networks and clocks.
///
/// A seed is one world: its clients, its kinds, and what goes wrong in it. The checker judges what
/// happened. Exits with 1 if a promise was broken, and prints the command that runs that seed
/// again.
#[derive(Debug, clap::Parser)]
#[command(
    bin_name = "cargo xtask sim",
    after_help = "\
Also, `cargo xtask sim --short` runs the simulation that every change has to pass, and
`cargo xtask sim --planted [NAME...] [--seeds N] [--jobs N] [--json FILE]` plants known bugs."
)]
pub(crate) struct Args {
    /// The seeds from A to B, without B
    #[arg(long, value_name = "A..B", value_parser = seeds, default_value = "0..100")]
    pub(crate) seeds: Range<u64>,
    /// How long the clients of a world work, on its own clock [default: 30s; with --contention 3s,
    /// with --mixture 20s; worlds of long leases last longer]
    #[arg(long, value_name = "60s", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Makes every world one of that kind, if the seed allows it, and leaves out the other seeds;
    /// may be given several times
    #[arg(long = "world", value_name = "KIND", value_parser = kind())]
    pub(crate) worlds: Vec<Kind>,
    /// Runs only the seeds that have a quorum by themselves
    #[arg(long = "quorum")]
    pub(crate) is_quorum: bool,
    /// Runs only the seeds that want copies by themselves
    #[arg(long = "copies")]
    pub(crate) wants_copies: bool,
    /// How many worlds run side by side [default: one per core]
    #[arg(long, value_name = "N", default_value_t = cores(), hide_default_value = true)]
    #[arg(value_parser = at_least_one())]
    pub(crate) jobs: usize,
    #[command(flatten)]
    pub(crate) mode: Mode,
    /// Ends a world after this many grants
    #[arg(long, value_name = "N", requires = "contention", value_parser = at_least_one())]
    pub(crate) grants: Option<usize>,
    /// Prints all events
    #[arg(long)]
    pub(crate) trace: bool,
    /// Writes the record of the run
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The commit in the record
    #[arg(long, value_name = "HASH", default_value = "unknown")]
    pub(crate) commit: String,
}

/// A task other than to check all worlds.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Mode {
    /// Stops at the first seed that breaks this invariant, or any with `any`; exits with 0 if there
    /// is one, and with 1 if not
    #[arg(long, value_name = "INVARIANT", value_parser = sought())]
    pub(crate) until_violation: Option<Sought>,
    /// Runs ten clients instead that want one lock of five nodes all the time
    #[arg(long)]
    pub(crate) contention: bool,
    /// Runs clients of another library instead, which poll, and our clients; all want one lock of
    /// one server all the time
    #[arg(long)]
    pub(crate) mixture: bool,
    /// Prints a hash of all events for each seed
    #[arg(long)]
    pub(crate) hashes: bool,
}

/// The violation to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    Any,
    One(Invariant),
}

impl FromStr for Sought {
    type Err = strum::ParseError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "any" { Ok(Self::Any) } else { name.parse().map(Self::One) }
    }
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

    /// How long the clients of a world with faults work.
    pub(crate) fn time_of_world(&self) -> Duration {
        self.time.unwrap_or(Duration::from_secs(30))
    }

    /// Refuses a time that is too short for faults.
    pub(crate) fn check(self) -> Result<Self, String> {
        let has_faults = !self.mode.contention && !self.mode.mixture;
        if has_faults && self.time.is_some_and(|time| time < TIME_MIN) {
            return Err("worlds with faults need a time of 5s at least".to_owned());
        }
        Ok(self)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn at_least_one() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..)
}

fn kind() -> impl TypedValueParser<Value = Kind> {
    let about = |kind: &Kind| kind.get_documentation().unwrap_or_default();
    let kinds =
        Kind::VARIANTS.iter().map(move |kind| PossibleValue::new(kind.name()).help(about(kind)));
    PossibleValuesParser::new(kinds).try_map(|name| name.parse())
}

fn sought() -> impl TypedValueParser<Value = Sought> {
    let names = Invariant::VARIANTS.iter().map(|invariant| invariant.name());
    PossibleValuesParser::new(["any"].into_iter().chain(names)).try_map(|name| name.parse())
}

fn seeds(text: &str) -> Result<Range<u64>, &'static str> {
    let range = text
        .split_once("..")
        .and_then(|(first, past_last)| Some(first.parse().ok()?..past_last.parse().ok()?));
    range.filter(|range| !range.is_empty()).ok_or("seeds are a range such as 0..100")
}

/// The shortest run with faults. The first fault comes after half a second.
const TIME_MIN: Duration = Duration::from_secs(5);

fn time(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    seconds
        .map(Duration::from_secs)
        .filter(|time| (Duration::from_secs(1)..=Duration::from_hours(1)).contains(time))
        .ok_or("a time is between 1s and 3600s")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn parsed(line: &str) -> Result<Args, String> {
        let words = ["simulate"].into_iter().chain(line.split_whitespace());
        Args::try_parse_from(words).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn arguments_are_understood_or_refused_by_name() {
        let args = parsed("--seeds 7..9 --time 60s --quorum --jobs 2 --hashes").expect("right");
        assert!(args.is_quorum && args.mode.hashes);
        assert_eq!((args.seeds, args.time, args.jobs), (7..9, Some(Duration::from_mins(1)), 2));
        assert!(parsed("--time 1s --contention").expect("right").mode.contention);
        let worlds = parsed("--world long --world bare").expect("right").worlds;
        assert_eq!(worlds, [Kind::Long, Kind::Bare]);
        let until = |what: &str| parsed(&format!("--until-violation {what}")).expect("right").mode;
        assert_eq!(until("any").until_violation, Some(Sought::Any));
        let one = Some(Sought::One(Invariant::NoOverlap));
        assert_eq!(until("no-overlap").until_violation, one);
        let wrong = [
            ("--world flat", "long"),
            ("--seeds 9..7", "range"),
            ("--time 0s", "between"),
            ("--time 1s", "5s at least"),
            ("--grants 100", "--contention"),
            ("--time 60", "between"),
            ("--jobs 0", "1.."),
            ("--contention --grants 0", "1.."),
            ("--until-violation harmony", "no-overlap"),
            ("--hashes --mixture", "cannot be used"),
        ];
        for (line, complaint) in wrong {
            let error = parsed(line).err().unwrap_or_else(|| panic!("`{line}` passed"));
            assert!(error.contains(complaint), "`{line}`: {error}");
        }
    }
}
