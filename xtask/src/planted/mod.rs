//! `cargo xtask sim --planted`: checks that the planted bugs are found.
//!
//! Each bug is a patch, which is applied to a copy of the sources. Its header names the invariant
//! (in the simulation) or the test that must catch it. Only that counts as found: a crash, a hang
//! or a patch that no longer applies is a failure.

mod bug;
mod copy;
mod kept;
mod named_test;
mod trial;
mod watch;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use self::bug::{Bug, Catcher, PLANTED};
use self::copy::Copy;
use self::kept::Kept;
pub(crate) use self::kept::SCHEMA;
use self::named_test::Tests;
use self::trial::Trial;
use crate::step;

/// The number of seeds. A bug that none of them finds counts as not found.
const SEEDS: u64 = 10_000;

/// The longest time for these seeds, so that a bug that hangs is noticed.
const LIMIT: Duration = Duration::from_mins(30);

/// The options of the command line.
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

    /// The bugs whose names contain one of the wanted words; all bugs if no word is given.
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

/// The result for one bug.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The right check found it.
    Found(By),
    /// Anything else.
    Failed(String),
}

/// The way in which a bug was found.
#[derive(Debug, PartialEq, Eq)]
enum By {
    /// A seed broke the invariant.
    Seed { seed: u64, seeds_tried: u64 },
    /// The test failed in this run, counted from 1, and said why.
    Run { run: u64, said: String },
}

/// Plants every bug, or the named ones, one after another, and reports which were found.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let wanted = Wanted::read(args)?;
    let root = crate::root();
    let bugs = wanted.choose(Bug::read_all(&root)?)?;
    // Check before the first build that all patches apply.
    bugs.iter().try_for_each(|bug| bug.apply(&root, &["--check"]))?;
    // This is the commit of the copied sources, even if another commit is checked out by the end.
    let commit = step::commit();
    let copy = Copy::of(&root)?;
    let mut kept = Kept::read(wanted.json.as_deref(), &root)?;
    let note = |bug: &Bug, outcome: &Outcome| kept.note(entry(bug, outcome, &commit));
    let outcomes = try_all(&bugs, &copy, &wanted, note)?;
    verdict(&outcomes)
}

/// Tries the bugs for invariants first, and then those for tests. So each of the two kinds of
/// programs is built as few times as possible.
fn try_all<'a>(
    bugs: &'a [Bug],
    copy: &Copy,
    wanted: &Wanted,
    mut note: impl FnMut(&Bug, &Outcome) -> Result<(), String>,
) -> Result<Vec<(&'a Bug, Outcome)>, String> {
    let trial = Trial { copy, seeds: wanted.seeds, jobs: wanted.jobs, limit: LIMIT };
    let has = |is_kind: fn(&Catcher) -> bool| bugs.iter().any(|bug| is_kind(&bug.catcher));
    if has(|catcher| matches!(catcher, Catcher::Invariant(_))) {
        println!("building the sources as they are");
        trial.build().map_err(|complaint| format!("without a planted bug: {complaint}"))?;
    }
    let tests = Tests::of(copy, wanted.jobs, bugs.iter().map(|bug| &bug.catcher))?;
    let mut order: Vec<_> = bugs.iter().collect();
    order.sort_by_key(|bug| match &bug.catcher {
        Catcher::Invariant(_) => None,
        Catcher::Test { package, .. } => Some(package.clone()),
    });
    let mut outcomes = Vec::new();
    for bug in order {
        let began = Instant::now();
        let outcome = copy.with(bug, || match &bug.catcher {
            Catcher::Invariant(invariant) => trial.run(invariant),
            Catcher::Test { package, path } => tests.run(package, path),
        })?;
        println!("{}", told(bug, &outcome, began.elapsed()));
        note(bug, &outcome)?;
        outcomes.push((bug, outcome));
    }
    outcomes.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Ok(outcomes)
}

fn told(bug: &Bug, outcome: &Outcome, took: Duration) -> String {
    let (name, seconds) = (&bug.name, took.as_secs());
    match outcome {
        Outcome::Found(By::Seed { seed, seeds_tried }) => {
            format!("found      {name}: seed {seed}, after {seeds_tried} ({seconds} s)")
        }
        Outcome::Found(By::Run { run, said }) => {
            format!("found      {name}: its test failed in run {run} ({seconds} s): {said}")
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

/// The entry of a bug that was tried.
fn entry(bug: &Bug, outcome: &Outcome, commit: &str) -> Value {
    let mut entry = match &bug.catcher {
        Catcher::Invariant(invariant) => json!({ "invariant": invariant }),
        Catcher::Test { package, path } => json!({ "test": format!("{package} {path}") }),
    };
    entry["patch"] = json!(bug.name);
    entry["digest"] = json!(bug.digest);
    entry["commit"] = json!(commit);
    match outcome {
        Outcome::Found(By::Seed { seed, seeds_tried }) => {
            entry["seed"] = json!(seed);
            entry["seeds_tried"] = json!(seeds_tried);
        }
        Outcome::Found(By::Run { run, said }) => {
            entry["run"] = json!(run);
            entry["said"] = json!(said);
        }
        Outcome::Failed(why) => entry["not_found"] = json!(why),
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn bug(name: &str) -> Bug {
        let caught_by = match &name[..1] {
            "t" => "test p a::b",
            invariant => invariant,
        };
        let text = format!("Wrong.\n\nCaught by: {caught_by}\n\n--- a/x\n+++ b/x\n");
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
        let (one, two, three) = (bug("x--one"), bug("x--two"), bug("test--three"));
        let found = Outcome::Found(By::Seed { seed: 3, seeds_tried: 4 });
        let mut outcomes =
            vec![(&one, found), (&three, Outcome::Found(By::Run { run: 2, said: "no".into() }))];
        assert_eq!(verdict(&outcomes), Ok(()));
        outcomes.push((&two, Outcome::Failed("it crashed".to_owned())));
        assert!(verdict(&outcomes).expect_err("one failed").contains("x--two"));
        let entries: Vec<_> =
            outcomes.iter().map(|(bug, outcome)| entry(bug, outcome, "abc")).collect();
        let digest = &one.digest;
        assert_eq!(
            json!(entries),
            json!([
                {
                    "patch": "x--one", "invariant": "x", "digest": digest, "commit": "abc",
                    "seed": 3, "seeds_tried": 4,
                },
                {
                    "patch": "test--three", "test": "p a::b", "digest": digest, "commit": "abc",
                    "run": 2, "said": "no",
                },
                {
                    "patch": "x--two", "invariant": "x", "digest": digest, "commit": "abc",
                    "not_found": "it crashed",
                },
            ])
        );
    }
}
