//! `docs/compare.md` and its pictures, rendered from the record.

use super::row::{Row, Spread, rows};
use super::scenarios::{SCENARIOS, Scenario};
use super::{RECORD, SCHEMA, plot};
use crate::bench::page::{number, provenance};
use crate::record::Record;

/// The page.
pub(crate) const PAGE: &str = "docs/compare.md";

/// The folder of its pictures, as seen from the page, and from the root.
const PICTURES: &str = "compare";

/// The text of the page, with marks for the parts from the record.
const TEMPLATE: &str = include_str!("compare.md");

/// The mark of figures that were measured again.
const AGAIN: &str = " †";

/// The mark of a library that failed once.
const FAILED_ONCE: &str = " ‡";

/// The page and its pictures, by their paths. The page is the first.
pub(crate) fn files(
    read: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, String> {
    let record = read(RECORD).map(|text| Record::read(RECORD, &text, SCHEMA)).transpose()?;
    let scenarios = record.map(|record| record.object("scenarios")).transpose()?;
    let (mut page, mut pictures) = (TEMPLATE.to_owned(), Vec::new());
    for scenario in &SCENARIOS {
        let measured = scenarios.as_ref().filter(|all| all.has(scenario.name));
        let section = match measured.map(|all| all.object(scenario.name)).transpose()? {
            None => "Not measured yet.\n\n".to_owned(),
            Some(measured) => {
                let (name, picture) =
                    (scenario.name, plot::bars(scenario, &rows(scenario, &measured)?));
                let figure = scenario.figures[scenario.main].name;
                let shown = format!("![{name}: {figure}]({PICTURES}/{name}.svg)\n\n");
                pictures.push((format!("docs/{PICTURES}/{name}.svg"), picture));
                shown + &table(scenario, &measured)? + "\n"
            }
        };
        page = page.replacen(&format!("{{{}}}", scenario.name), &section, 1);
    }
    pictures.insert(0, (PAGE.to_owned(), page));
    Ok(pictures)
}

/// The table of a scenario, with the best row first, and the notes below it.
pub(super) fn table(scenario: &Scenario, measured: &Record) -> Result<String, String> {
    let rows = rows(scenario, measured)?;
    let mut table =
        format!("{}; rounds: {}.\n\n", provenance(measured)?, measured.count("rounds")?);
    let waits = if scenario.contended { " It waits |" } else { "" };
    table += &format!("| Library | Version |{waits}");
    for figure in scenario.figures {
        table += &format!(" {}, {} |", figure.name, figure.unit);
    }
    let columns = 2 + usize::from(scenario.contended) + scenario.figures.len();
    table += &format!("\n|{}\n", "---|".repeat(columns));
    for row in &rows {
        table += &row_of(scenario, row);
    }
    if rows.iter().any(|row| row.again) {
        table += "\n† Its rounds differed by more than half of the median, so it was measured \
                  again.\nThis is the second result.\n";
    }
    if rows.iter().any(Row::failed_once) {
        table += "\n‡ It failed once, as told below. In a new process it did not.\n";
    }
    for row in &rows {
        for failure in &row.failures {
            let log = failure.replace('\n', "\n  ");
            let title = row.subject.title;
            table += &format!("\n- {title}:\n\n  ```text\n  {log}\n  ```\n");
        }
    }
    Ok(table)
}

fn row_of(scenario: &Scenario, row: &Row) -> String {
    let mut text = format!("| {} | {} |", row.subject.title, row.version);
    if scenario.contended {
        text += &format!(" {} |", row.subject.waits);
    }
    match &row.figures {
        None => text += &" failed |".repeat(scenario.figures.len()),
        Some(figures) => {
            for figure in figures {
                let Spread { median, least, most } = *figure;
                text += &format!(" {}", number(median));
                if least < most {
                    text += &format!(" ({} to {})", number(least), number(most));
                }
                text += if row.again { AGAIN } else { "" };
                text += if row.failed_once() { FAILED_ONCE } else { "" };
                text += " |";
            }
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD_OF_ONE: &str = r#"{"schema":"leasehold.rivals.v1","scenarios":{"roundtrip":{
        "commit":"abc123","date":"2026-01-02","rounds":3,"machine":{"cores":2,
        "processor":"x86_64","kernel":"Linux 6.18","server":"Redis 7.0.15","load":0.25},"rows":[
        {"subject":"redsync","version":"4.18.1","failures":["no times within 15 s\nlog"],
          "figures":null},
        {"subject":"leasehold","version":"0.1.0","again":true,"failures":[],"figures":{
          "p50":{"median":87.0,"least":80.0,"most":91.5},
          "p99":{"median":200.0,"least":200.0,"most":200.0}}},
        {"subject":"bare","version":"1.8.1","again":false,"failures":["it fell"],
          "figures":{
          "p50":{"median":60.0,"least":60.0,"most":60.0},
          "p99":{"median":99.0,"least":90.0,"most":99.0}}}]}}}"#;

    fn render_of(record: &str) -> Result<Vec<(String, String)>, String> {
        files(|path| (path == RECORD).then(|| record.to_owned()))
    }

    #[test]
    fn without_a_record_every_scenario_says_so_and_no_mark_is_left() {
        let files = files(|_| None).expect("rendered");
        assert_eq!(files.len(), 1);
        let page = &files[0].1;
        assert_eq!(page.matches("Not measured yet.").count(), SCENARIOS.len(), "{page}");
        for scenario in &SCENARIOS {
            assert!(!page.contains(&format!("{{{}}}", scenario.name)), "{}", scenario.name);
        }
    }

    #[test]
    fn the_best_comes_first_and_a_failure_last_with_the_end_of_its_log() {
        let files = render_of(RECORD_OF_ONE).expect("rendered");
        assert_eq!(files[1].0, "docs/compare/roundtrip.svg");
        let page = &files[0].1;
        for part in [
            "![roundtrip: p50](compare/roundtrip.svg)\n\nAt commit `abc123`, 2026-01-02, on Linux \
             6.18 with 2 cores (x86_64),\nRedis 7.0.15; load average before the run: 0.25; \
             rounds: 3.",
            "| Library | Version | p50, µs | p99, µs |\n|---|---|---|---|\n",
            "|\n| *yardstick*: bare `SET NX PX` | 1.8.1 | 60 ‡ | 99 (90 to 99) ‡ |\n\
             | **Leasehold** | 0.1.0 | 87 (80 to 91.5) † | 200 † |\n\
             | redsync | 4.18.1 | failed | failed |\n\n† Its rounds differed",
            "\n‡ It failed once, as told below. In a new process it did not.\n",
            "- *yardstick*: bare `SET NX PX`:\n\n  ```text\n  it fell\n  ```\n",
            "- redsync:\n\n  ```text\n  no times within 15 s\n  log\n  ```\n",
        ] {
            assert!(page.contains(part), "no {part} in:\n{page}");
        }
    }

    #[test]
    fn a_record_that_lacks_something_is_refused() {
        for (part, other) in [
            ("rivals.v1", "rivals.v0"),
            ("\"median\":87.0,", ""),
            ("\"version\":\"0.1.0\",", ""),
            ("\"subject\":\"bare\"", "\"subject\":\"gone\""),
        ] {
            let error = render_of(&RECORD_OF_ONE.replace(part, other)).expect_err(part);
            assert!(error.contains(RECORD), "{error}");
        }
    }
}
