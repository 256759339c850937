//! `cargo xtask bench`: measures the scenarios, keeps the records, and renders the pages
//! that show them.

mod choosing;
mod machine;
mod page;
mod rivals;
mod scenarios;

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

pub(crate) use choosing::{PAGE as CHOOSING, render as render_choosing};
pub(crate) use page::render;
pub(crate) use rivals::{PAGE as COMPARED, files as compared};
use scenarios::{Run, SCENARIOS, Scenario};

use crate::{read, step, suite};

/// The page.
pub(crate) const PAGE: &str = "BENCHMARKS.md";

pub(crate) const PROGRAM: &str = "leasehold-bench";

/// The package of the command, which `opening` runs.
const COMMAND: &str = "leasehold-cli";

fn record_path(scenario: &str) -> String {
    format!("bench/records/{scenario}.json")
}

/// A hand-written note on the figures, for example why a goal is missed.
fn note_path(scenario: &str) -> String {
    format!("bench/records/{scenario}.md")
}

/// The command line of a run.
fn command(scenario: &str, arguments: &[&str]) -> String {
    format!("{PROGRAM} {scenario} {}", arguments.join(" "))
}

/// Measures the scenarios that `args` name, and renders the page.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if let [first, rest @ ..] = args
        && first == "--rivals"
    {
        return rivals::run(rest);
    }
    let named = named(args)?;
    if !named.is_empty() {
        suite::need()?;
        // Note the commit before the first record changes the work tree.
        let commit = step::commit();
        let programs = Programs::build()?;
        for scenario in named {
            let record = measure(scenario, &programs, &commit)?;
            let text = serde_json::to_string_pretty(&record).expect("JSON can be written");
            write(&record_path(scenario.name), &(text + "\n"))?;
        }
    }
    write(PAGE, &render(read)?)?;
    write(CHOOSING, &render_choosing(read)?)?;
    rivals::render()
}

/// The requested scenarios; all of them if none is named.
fn named(args: &[String]) -> Result<Vec<&'static Scenario>, String> {
    match args {
        [] => return Ok(SCENARIOS.iter().collect()),
        [only] if only == "--render" => return Ok(Vec::new()),
        _ => {}
    }
    let mut named = Vec::new();
    for pair in args.chunks(2) {
        let [flag, name] = pair else { return Err("--scenario needs a name".to_owned()) };
        if flag != "--scenario" {
            return Err(format!("{flag} is not understood: see `cargo xtask --help`"));
        }
        let known = || SCENARIOS.each_ref().map(|scenario| scenario.name).join(", ");
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
        named.push(scenario.ok_or_else(|| format!("no scenario {name}; there are {}", known()))?);
    }
    Ok(named)
}

/// The bench as users build it, and a build with the counting allocator.
struct Programs {
    plain: PathBuf,
    counting: PathBuf,
}

impl Programs {
    fn build() -> Result<Self, String> {
        let build = |features: &[&str]| {
            let mut cargo = step::cargo();
            step::run(cargo.args(["build", "--release", "--package", PROGRAM]).args(features))
        };
        step::run(step::cargo().args(["build", "--release", "--package", COMMAND]))?;
        let plain = step::released(PROGRAM);
        let counting = step::released(&format!("{PROGRAM}-memory"));
        // Both programs have the same name, so the first program is copied to another name.
        build(&["--features", "memory"])?;
        std::fs::copy(&plain, &counting)
            .map_err(|error| format!("cannot write {}: {error}", counting.display()))?;
        build(&[])?;
        Ok(Self { plain, counting })
    }
}

/// Measures one scenario and returns its record.
fn measure(scenario: &Scenario, programs: &Programs, commit: &str) -> Result<Value, String> {
    let machine = machine::describe()?;
    let mut runs = Vec::new();
    for Run { arguments, counts_memory } in scenario.runs {
        eprintln!("== {}", command(scenario.name, arguments));
        let program = if *counts_memory { &programs.counting } else { &programs.plain };
        let mut bench = Command::new(program);
        let printed = step::output(bench.arg(scenario.name).args(*arguments).arg("--json"))?;
        runs.push(json!({ "figures": figures(&printed)? }));
    }
    Ok(json!({
        "schema": page::SCHEMA,
        "commit": commit,
        "date": step::today()?,
        "machine": machine,
        "runs": runs,
    }))
}

/// The figures that a run printed, one object per line, without the fields that all of them share.
fn figures(printed: &str) -> Result<Vec<Value>, String> {
    let figure = |line: &str| {
        let mut figure: Value = serde_json::from_str(line)
            .map_err(|error| format!("the bench printed `{line}`: {error}"))?;
        if let Some(figure) = figure.as_object_mut() {
            figure.remove("schema");
            figure.remove("scenario");
        }
        Ok(figure)
    };
    printed.lines().map(figure).collect()
}

fn write(path: &str, text: &str) -> Result<(), String> {
    let whole = crate::root().join(path);
    let directory = whole.parent().expect("it lies below the root");
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::write(&whole, text))
        .map_err(|error| format!("cannot write {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_found_by_name_and_all_are_meant_if_none_is_named() {
        let names = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            named(&args).map(|found| found.iter().map(|it| it.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).map(|all| all.len()), Ok(SCENARIOS.len()));
        assert_eq!(names(&["--render"]), Ok(vec![]));
        let two = ["--scenario", "hot", "--scenario", "idle"];
        assert_eq!(names(&two), Ok(vec!["hot", "idle"]));
        for bad in [&["--scenario"][..], &["hot"], &["--scenario", "cold"], &["--all", "hot"]] {
            assert!(names(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_output_of_a_run_is_kept_without_the_lines_that_never_differ() {
        let kept = figures("{\"schema\":\"s\",\"scenario\":\"hot\",\"median\":1.5}\n");
        assert_eq!(kept, Ok(vec![json!({ "median": 1.5 })]));
        assert!(figures("no JSON").is_err());
    }
}
