//! `cargo xtask bench --rivals`: Leasehold and other libraries on one bench.

mod alone;
mod bench;
mod contended;
mod measure;
mod page;
mod plot;
mod row;
mod scenarios;
mod several;

use serde_json::{Value, json};

pub(crate) use page::{PAGE, files};

use self::bench::Bench;
use self::scenarios::{SCENARIOS, Scenario};
use super::{machine, write};
use crate::record::Record;
use crate::rivals::{SUBJECTS, Subject, subjects};
use crate::{read, step, suite};

/// The record.
const RECORD: &str = "bench/records/rivals.json";

const SCHEMA: &str = "leasehold.rivals.v1";

/// How often each subject is measured unless told otherwise.
const ROUNDS: usize = 3;

/// The wishes of a command line.
struct Wanted {
    scenarios: Vec<&'static Scenario>,
    subjects: Vec<&'static Subject>,
    rounds: usize,
}

/// Measures what `args` name. A run of all rivals replaces its scenarios in the record. A run of
/// some rivals is a trial, which prints its rows and leaves the record alone.
pub(super) fn run(args: &[String]) -> Result<(), String> {
    let wanted = parse(args)?;
    suite::need()?;
    let is_whole = wanted.subjects.len() == SUBJECTS.len();
    // Before the record changes the work tree.
    let commit = step::commit();
    let mut bench = Bench::new(&wanted.subjects)?;
    let mut failures = Vec::new();
    for scenario in &wanted.scenarios {
        let (machine, date) = (machine::describe()?, step::today()?);
        if scenario.starts_its_own {
            bench.end_all();
        }
        let rows = measure::measure(&mut bench, scenario, &wanted.subjects, wanted.rounds);
        for row in rows.iter().filter(|row| row["figures"].is_null()) {
            let name = row["subject"].as_str().unwrap_or_default();
            failures.push(format!("{name} failed in {}", scenario.name));
        }
        let measured = json!({
            "commit": commit,
            "date": date,
            "machine": machine,
            "rounds": wanted.rounds.min(scenario.rounds_max),
            "rows": with_versions(rows)?,
        });
        if is_whole {
            keep(scenario, measured)?;
        } else {
            println!("{}", page::table(scenario, &Record::of(RECORD, measured))?);
        }
    }
    if is_whole {
        render()?;
    }
    // The page says why a rival failed. If Leasehold or the yardstick fails, the whole run fails.
    failures.iter().for_each(|failure| eprintln!("{failure}"));
    let ours = failures.iter().find(|it| it.starts_with("leasehold") || it.starts_with("bare"));
    ours.map_or(Ok(()), |failure| Err(failure.clone()))
}

/// Writes the page and its pictures again.
pub(super) fn render() -> Result<(), String> {
    for (path, text) in files(read)? {
        write(&path, &text)?;
    }
    Ok(())
}

/// Adds to each row which version was measured.
fn with_versions(mut rows: Vec<Value>) -> Result<Vec<Value>, String> {
    for row in &mut rows {
        let name = row["subject"].as_str().unwrap_or_default();
        let subject = SUBJECTS.iter().find(|subject| subject.name == name);
        row["version"] = subject.ok_or("a row names no library of the list")?.version(read)?.into();
    }
    Ok(rows)
}

/// Replaces a scenario in the record.
fn keep(scenario: &Scenario, measured: Value) -> Result<(), String> {
    let mut record = match read(RECORD) {
        Some(text) => serde_json::from_str(&text).map_err(|error| format!("{RECORD}: {error}"))?,
        None => json!({ "schema": SCHEMA, "scenarios": {} }),
    };
    record["scenarios"][scenario.name] = measured;
    let text = serde_json::to_string_pretty(&record).expect("JSON can be written");
    write(RECORD, &(text + "\n"))
}

fn parse(args: &[String]) -> Result<Wanted, String> {
    let (mut scenarios, mut subjects, mut rounds) = (Vec::new(), Vec::new(), ROUNDS);
    for pair in args.chunks(2) {
        let [flag, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        match flag.as_str() {
            "--scenario" => scenarios.push(scenarios::named(value)?),
            "--rival" => subjects.extend(subjects::named(value)?),
            "--rounds" => {
                rounds = value.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| {
                    format!("--rounds {value}: how often each rival is measured, at least once")
                })?;
            }
            _ => return Err(format!("{flag} is not understood: see `cargo xtask --help`")),
        }
    }
    if scenarios.is_empty() {
        scenarios.extend(&SCENARIOS);
    }
    if subjects.is_empty() {
        subjects.extend(&SUBJECTS);
    }
    Ok(Wanted { scenarios, subjects, rounds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_rivals_and_rounds_are_understood_or_refused() {
        let parsed = |line: &str| {
            let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            parse(&args).map(|it| (it.scenarios.len(), it.subjects.len(), it.rounds))
        };
        assert_eq!(parsed(""), Ok((SCENARIOS.len(), SUBJECTS.len(), ROUNDS)));
        assert_eq!(parsed("--scenario hot --rival bsm --rounds 9"), Ok((1, 2, 9)));
        for bad in ["--scenario", "--scenario cold", "--rival x", "--rounds 0", "--fast yes"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
