//! BENCHMARKS.md, rendered from the records and their notes.

use super::scenarios::{Run, SCENARIOS, Scenario};
use super::{command, note_path, record_path};
use crate::record::{Record, spaced};

/// The schema of a record.
pub(super) const SCHEMA: &str = "leasehold.bench.v1";

const GOALS_MISSED: &str = "Each missed goal is bold in its table. A note below the table gives \
                            the reason, if it is known.\n\n";

/// The text of the page, with marks for the parts from the records.
const TEMPLATE: &str = include_str!("page.md");

/// The page, rendered from the files of the repository.
pub(crate) fn render(read: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut page = TEMPLATE.to_owned();
    let mut goals = Goals::default();
    for scenario in &SCENARIOS {
        let path = record_path(scenario.name);
        let mut section = match read(&path) {
            Some(text) => measured(scenario, &Record::read(&path, &text, SCHEMA)?, &mut goals)?,
            None => "Not run yet.\n\n".to_owned(),
        };
        if let Some(note) = read(&note_path(scenario.name)) {
            section += &format!("{}\n\n", note.trim());
        }
        page = page.replacen(&format!("{{{}}}", scenario.name), &section, 1);
    }
    Ok(page.replacen("{goals}", &goals.summary(), 1))
}

/// The results of all goals.
#[derive(Default)]
struct Goals {
    set: usize,
    /// The name of the scenario of each missed goal.
    missed: Vec<&'static str>,
}

impl Goals {
    /// The summary at the top of the page.
    fn summary(&self) -> String {
        if self.set == 0 {
            return String::new();
        }
        let mut by_scenario = Vec::new();
        for missed in self.missed.chunk_by(|one, other| one == other) {
            by_scenario.push(format!("{} {}", missed.len(), missed[0]));
        }
        let met = self.set - self.missed.len();
        let tail = match by_scenario.join(", ") {
            none if none.is_empty() => ".\n\n".to_owned(),
            missed => format!(", {} are missed\n({missed}).\n{GOALS_MISSED}", self.missed.len()),
        };
        format!("**Of {} goals {met} are met**{tail}", self.set)
    }
}

/// When and where something was measured.
pub(super) fn provenance(record: &Record) -> Result<String, String> {
    let machine = record.object("machine")?;
    Ok(format!(
        "At commit `{}`, {}, on {} with {} cores ({}),\n{}; load average before the run: {}",
        record.text("commit")?,
        record.text("date")?,
        machine.text("kernel")?,
        machine.count("cores")?,
        machine.text("processor")?,
        machine.text("server")?,
        number(machine.measure("load")?),
    ))
}

/// The section with the figures of one scenario.
fn measured(scenario: &Scenario, record: &Record, goals: &mut Goals) -> Result<String, String> {
    let mut section = format!("{}.\n\n", provenance(record)?);
    let runs = record.list("runs")?;
    if runs.len() != scenario.runs.len() {
        return Err(format!("{}: not as many runs as there are now", record_path(scenario.name)));
    }
    for (run, Run { arguments, counts_memory }) in runs.iter().zip(scenario.runs) {
        section += &format!("`{}`", command(scenario.name, arguments));
        if *counts_memory {
            section += ", built with the feature `memory`";
        }
        section += ":\n\n| Figure | Goal | Measured | Yardstick |\n|---|---|---|---|\n";
        for figure in run.list("figures")? {
            goals.set += usize::from(figure.has("goal"));
            let (row, is_reached) = row(&figure)?;
            if !is_reached {
                goals.missed.push(scenario.name);
            }
            section += &row;
        }
        section.push('\n');
    }
    Ok(section)
}

/// The row of a figure, and whether it reaches its goal. A figure without a goal counts as reached.
fn row(figure: &Record) -> Result<(String, bool), String> {
    let [median, lowest, highest] =
        ["median", "lowest", "highest"].map(|name| figure.measure(name));
    let (median, lowest, highest) = (median?, lowest?, highest?);
    let unit = unit(&figure.text("unit")?);
    // The goal is needed as a number: without it, rounding could make a missed goal look met.
    let mut bound = f64::NAN;
    let (goal, is_reached) = match figure.has("goal").then(|| figure.object("goal")).transpose()? {
        None => (String::new(), true),
        Some(goal) if goal.has("at_most") => {
            let most = goal.measure("at_most")?;
            bound = most;
            (format!("≤ {}{unit}", number(most)), median <= most)
        }
        Some(goal) => {
            let least = goal.measure("at_least")?;
            bound = least;
            (format!("≥ {}{unit}", number(least)), median >= least)
        }
    };
    let shown = match number(median) {
        short if !is_reached && short == number(bound) => format!("{median:.4}"),
        short => short,
    };
    let mut measured = format!("{shown}{unit}");
    let ends = [lowest, highest].map(number);
    if ends[0] != ends[1] {
        measured += &format!(" ({} to {})", ends[0], ends[1]);
    }
    if !is_reached {
        measured = format!("**{measured}, missed**");
    }
    let mut name = format!("{}: {}", figure.text("subject")?, figure.text("figure")?);
    let mut yardstick = String::new();
    if figure.has("yardstick") {
        let beside = figure.object("yardstick")?;
        let unit = self::unit(&beside.text("unit")?);
        let [ours, theirs] = ["ours", "theirs"].map(|name| beside.measure(name));
        let (ours, theirs) = (number(ours?), number(theirs?));
        name += ", ratio";
        yardstick = format!("{ours}{unit} ÷ {theirs}{unit}, {}", beside.text("name")?);
    }
    Ok((format!("| {name} | {goal} | {measured} | {yardstick} |\n"), is_reached))
}

/// A unit as it follows a number.
fn unit(unit: &str) -> String {
    match unit {
        "" => String::new(),
        "x" => " ×".to_owned(),
        "us" => " µs".to_owned(),
        "% core" => " % of a core".to_owned(),
        "/s" => "/s".to_owned(),
        other => format!(" {other}"),
    }
}

/// Three digits, or all digits before the point.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 999.5 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is large")]
        let whole = spaced(size.round() as u64);
        return if value < 0.0 { format!("-{whole}") } else { whole };
    }
    let places = match size {
        0.0 => 0,
        ..0.9995 => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let shown = format!("{value:.places$}");
    if shown.contains('.') {
        return shown.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"schema":"leasehold.bench.v1","commit":"abc123","date":"2026-01-02",
        "machine":{"cores":2,"processor":"x86_64","kernel":"Linux 6.18","server":"Redis 7.0.15",
        "load":0.25},"runs":[{"figures":[
        {"subject":"2 processes","figure":"p50","unit":"x","median":1.5,"lowest":1.25,
         "highest":1.625,"goal":{"at_most":1.4},
         "yardstick":{"name":"a hop","unit":"us","ours":150.0,"theirs":100.0}},
        {"subject":"2 processes","figure":"p99","unit":"us","median":12345.6,"lowest":12345.6,
         "highest":12345.6,"goal":null,"yardstick":null},
        {"subject":"2 processes","figure":"cycles","unit":"/s","median":600000.0,
         "lowest":500000.0,"highest":700000.0,"goal":{"at_least":500000.0},"yardstick":null}]}]}"#;

    fn render_of(files: &[(&str, &str)]) -> Result<String, String> {
        render(|path| {
            let given = files.iter().find(|(name, _)| *name == path)?;
            Some(given.1.to_owned())
        })
    }

    #[test]
    fn a_scenario_without_a_record_is_not_run_yet() {
        let page = render_of(&[]).expect("rendered");
        assert_eq!(page.matches("Not run yet.").count(), SCENARIOS.len(), "{page}");
    }

    #[test]
    fn figures_stand_beside_goal_and_yardstick_and_a_note_follows() {
        let page = render_of(&[
            ("bench/records/handoff.json", RECORD),
            ("bench/records/handoff.md", "It is slow since it is far.\n"),
        ])
        .expect("rendered");
        for part in [
            "At commit `abc123`, 2026-01-02, on Linux 6.18 with 2 cores (x86_64),\nRedis 7.0.15; \
             load average before the run: 0.25.",
            "`leasehold-bench handoff --redis`:",
            "| 2 processes: p50, ratio | ≤ 1.4 × | **1.5 × (1.25 to 1.62), missed** | \
             150 µs ÷ 100 µs, a hop |",
            "| 2 processes: p99 |  | 12 346 µs |  |",
            "| 2 processes: cycles | ≥ 500 000/s | 600 000/s (500 000 to 700 000) |  |",
            "\n\nIt is slow since it is far.\n\n",
            "\n\n**Of 2 goals 1 are met**, 1 are missed\n(1 handoff).\nEach missed goal is bold",
        ] {
            assert!(page.contains(part), "no {part} in:\n{page}");
        }
    }

    #[test]
    fn whether_a_goal_is_reached_follows_from_the_figure() {
        let better = RECORD.replace("\"median\":1.5", "\"median\":1.4");
        let page = render_of(&[("bench/records/handoff.json", &better)]).expect("rendered");
        assert!(!page.contains("missed"), "{page}");
        assert!(page.contains("\n\n**Of 2 goals 2 are met**.\n\n## "), "{page}");
        let hardly_worse = RECORD.replace("\"median\":1.5", "\"median\":1.4012");
        let page = render_of(&[("bench/records/handoff.json", &hardly_worse)]).expect("rendered");
        assert!(page.contains("≤ 1.4 × | **1.4012 × (1.25 to 1.62), missed**"), "{page}");
        let worse = better.replace("\"median\":600000.0", "\"median\":499999.0");
        let page = render_of(&[("bench/records/handoff.json", &worse)]).expect("rendered");
        assert!(page.contains("**499 999/s (500 000 to 700 000), missed**"), "{page}");
    }

    #[test]
    fn a_record_that_lacks_something_is_refused() {
        let table = [
            RECORD.replace("leasehold.bench.v1", "leasehold.bench.v0"),
            RECORD.replace("\"median\":1.5,", ""),
            RECORD.replace("\"median\":1.5", "\"median\":null"),
            RECORD.replace("\"commit\":\"abc123\",", ""),
            RECORD.replace("\"runs\":[{", "\"runs\":[{\"figures\":[]},{"),
        ];
        for bad in table {
            let error = render_of(&[("bench/records/handoff.json", &bad)]).expect_err(&bad);
            assert!(error.contains("bench/records/handoff.json"), "{error}");
        }
    }

    #[test]
    fn numbers_have_three_digits_or_all_before_the_point() {
        for (value, shown) in [
            (0.0, "0"),
            (0.0464, "0.046"),
            (0.5, "0.5"),
            (1.046, "1.05"),
            (2.0, "2"),
            (12.34, "12.3"),
            (99.99, "100"),
            (123.4, "123"),
            (200.0, "200"),
            (1_234.4, "1 234"),
            (500_000.0, "500 000"),
        ] {
            assert_eq!(number(value), shown, "{value}");
        }
    }
}
