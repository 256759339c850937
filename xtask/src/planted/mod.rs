//! `cargo xtask sim --planted`: whether the simulation finds the bugs that were planted for it.
//!
//! Each is a patch, named after the invariant that must catch it and applied to a copy of the
//! sources. It counts only as found by that invariant: a crash, a hang or a patch that no longer
//! applies is a failure.

mod bug;
mod copy;
mod trial;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use self::bug::{Bug, PLANTED};
use self::copy::Copy;
use self::trial::Trial;
use crate::step;

/// How many seeds find a bug, or it counts as not found.
const SEEDS: u64 = 10_000;

/// How long these seeds may take, so that a bug that hangs is noticed.
const LIMIT: Duration = Duration::from_mins(30);

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    names: Vec<String>,
    seeds: u64,
    jobs: usize,
    json: Option<PathBuf>,
}

impl Wanted {
    fn read(args: &[String]) -> Result<Self, String> {
        let jobs = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut wanted = Self { names: Vec::new(), seeds: SEEDS, jobs, json: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if !arg.starts_with("--") {
                wanted.names.push(arg.trim_end_matches(".patch").to_owned());
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{arg} wants a number"));
            match arg.as_str() {
                "--seeds" => wanted.seeds = number()?,
                "--jobs" => wanted.jobs = number()?.try_into().map_err(|_| "too many jobs")?,
                "--json" => wanted.json = Some(value.into()),
                _ => return Err(format!("{arg} is not known: [NAME...] --seeds --jobs --json")),
            }
        }
        Ok(wanted)
    }

    /// The bugs with these words in their names; all, if none is named.
    fn choose(&self, bugs: Vec<Bug>) -> Result<Vec<Bug>, String> {
        let fits = |bug: &Bug, name: &String| bug.name.contains(name.as_str());
        if let Some(name) = self.names.iter().find(|name| !bugs.iter().any(|bug| fits(bug, name))) {
            return Err(format!("no planted bug is called {name}"));
        }
        let is_chosen =
            |bug: &Bug| self.names.is_empty() || self.names.iter().any(|name| fits(bug, name));
        Ok(bugs.into_iter().filter(is_chosen).collect())
    }
}

/// How it went with one bug.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// By its invariant.
    Found { seed: u64, seeds_tried: u64 },
    /// Something else.
    Failed(String),
}

/// Plants every bug, or those named, one after another, and says which were found.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let wanted = Wanted::read(args)?;
    let root = crate::root();
    let bugs = wanted.choose(Bug::read_all(&root)?)?;
    // Before the first build: all that a look can tell.
    let changes: Vec<_> = bugs
        .iter()
        .map(|bug| bug.changes(|path| std::fs::read_to_string(root.join(path)).ok()))
        .collect::<Result<_, _>>()?;
    // Of the sources that are copied, whatever is checked out in the end.
    let commit = step::commit();
    let copy = Copy::of(&root)?;
    let trial = Trial { copy: &copy, seeds: wanted.seeds, jobs: wanted.jobs, limit: LIMIT };
    println!("building the sources as they are");
    trial.build().map_err(|complaint| format!("without a planted bug: {complaint}"))?;
    let mut outcomes = Vec::new();
    for (bug, changed) in bugs.iter().zip(&changes) {
        let began = Instant::now();
        let outcome = copy.with(changed, || trial.run(bug))?;
        println!("{}", told(bug, &outcome, began.elapsed()));
        outcomes.push((bug, outcome));
    }
    if let Some(path) = &wanted.json {
        let text = serde_json::to_string_pretty(&record(&outcomes, &commit));
        let text = text.expect("a record is plain JSON") + "\n";
        std::fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    verdict(&outcomes)
}

fn told(bug: &Bug, outcome: &Outcome, took: Duration) -> String {
    let (name, seconds) = (&bug.name, took.as_secs());
    match outcome {
        Outcome::Found { seed, seeds_tried } => {
            format!("found      {name}: seed {seed}, after {seeds_tried} ({seconds} s)")
        }
        Outcome::Failed(why) => format!("NOT FOUND  {name}: {why} ({seconds} s)"),
    }
}

fn verdict(outcomes: &[(&Bug, Outcome)]) -> Result<(), String> {
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
        .map(|(bug, _)| bug.name.as_str())
        .collect();
    if failed.is_empty() {
        println!("all {} planted bugs were found", outcomes.len());
        return Ok(());
    }
    Err(format!(
        "{} of {} planted bugs were not found: {}",
        failed.len(),
        outcomes.len(),
        failed.join(", ")
    ))
}

/// What is kept of a run: every bug that was tried, found or not.
fn record(outcomes: &[(&Bug, Outcome)], commit: &str) -> Value {
    let tried = outcomes.iter().map(|(bug, outcome)| match outcome {
        Outcome::Found { seed, seeds_tried } => json!({
            "patch": bug.name,
            "invariant": bug.invariant,
            "seed": seed,
            "seeds_tried": seeds_tried,
        }),
        Outcome::Failed(why) => json!({
            "patch": bug.name,
            "invariant": bug.invariant,
            "not_found": why,
        }),
    });
    json!({
        "schema": "leasehold.trust.planted.v1",
        "commit": commit,
        "bugs": tried.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn bug(name: &str) -> Bug {
        let invariant = &name[..1];
        let text = format!("Wrong.\n\nCaught by: {invariant}\n\n--- a/x\n+++ b/x\n");
        Bug::named(name, &text).expect("a bug")
    }

    #[test]
    fn the_command_line_is_read() {
        let wanted = Wanted::read(&words("a b.patch --seeds 7 --jobs 3 --json f")).expect("good");
        assert_eq!(
            wanted,
            Wanted { names: words("a b"), seeds: 7, jobs: 3, json: Some("f".into()) }
        );
        for bad in ["--seeds", "--seeds x", "--what 1"] {
            assert!(Wanted::read(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn bugs_are_chosen_by_parts_of_their_names() {
        let all = || vec![bug("x--one"), bug("x--two"), bug("y--two")];
        for (names, chosen) in [("", 3), ("two", 2), ("x--one y--", 2)] {
            let wanted = Wanted::read(&words(names)).expect("good");
            assert_eq!(wanted.choose(all()).expect(names).len(), chosen, "{names}");
        }
        assert!(Wanted::read(&words("three")).expect("good").choose(all()).is_err());
    }

    #[test]
    fn one_bug_that_is_not_found_fails_the_run_by_name() {
        let (one, two) = (bug("x--one"), bug("x--two"));
        let found = Outcome::Found { seed: 3, seeds_tried: 4 };
        let mut outcomes = vec![(&one, found)];
        assert_eq!(verdict(&outcomes), Ok(()));
        outcomes.push((&two, Outcome::Failed("it crashed".to_owned())));
        assert!(verdict(&outcomes).expect_err("one failed").contains("x--two"));
        let record = record(&outcomes, "abc");
        assert_eq!(
            record["bugs"],
            json!([
                { "patch": "x--one", "invariant": "x", "seed": 3, "seeds_tried": 4 },
                { "patch": "x--two", "invariant": "x", "not_found": "it crashed" },
            ])
        );
    }
}
