//! `docs/choosing.md`: which store fits, and what a lock costs on each engine.

use super::page::{SCHEMA, number, provenance};
use super::record_path;
use crate::record::Record;

/// The page.
pub(crate) const PAGE: &str = "docs/choosing.md";

/// The text of the page, with a mark for the table.
const TEMPLATE: &str = include_str!("choosing.md");

/// The scenario that measures all engines in one run.
const SCENARIO: &str = "engines";

/// The engines, by the names in their figures.
const ENGINES: [&str; 6] = ["SQLite", "Redis", "PostgreSQL", "MariaDB", "etcd", "ZooKeeper"];

/// The page, rendered from the files of the repository.
pub(crate) fn render(read: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let path = record_path(SCENARIO);
    let table = match read(&path) {
        Some(text) => table(&Record::read(&path, &text, SCHEMA)?)?,
        None => "Not run yet.".to_owned(),
    };
    Ok(TEMPLATE.replacen("{engines}", &table, 1))
}

fn table(record: &Record) -> Result<String, String> {
    let mut figures = Vec::new();
    for run in record.list("runs")? {
        figures.extend(run.list("figures")?);
    }
    let mut table =
        "| Engine | lock and release, µs | the bare steps, µs | hand-over, ms | 1 000 tasks of 10 \
                     clients wait: requests per second | 10 000 leases: client CPU, % of a core |\n\
                     |---|---|---|---|---|---|\n"
            .to_owned();
    for engine in ENGINES {
        let of = |subject: &str| {
            let subject = format!("{engine}, {subject}");
            let is_it = |figure: &&Record| figure.text("subject").as_ref() == Ok(&subject);
            figures.iter().find(is_it)
        };
        let trip = of("lock + release");
        let cells = [
            cell(trip.map(ours))?,
            cell(trip.filter(|trip| trip.has("yardstick")).map(theirs))?,
            cell(of("hand-over").map(|figure| Ok(ours(figure)? / 1_000.0)))?,
            cell(of("1000 tasks of 10 clients wait").map(|figure| figure.measure("median")))?,
            cell(of("10000 leases, ttl 10 s").map(|figure| figure.measure("median")))?,
        ];
        table += &format!("| {engine} | {} |\n", cells.join(" | "));
    }
    Ok(format!("{table}\n{}.", provenance(record)?))
}

/// The time of Leasehold, in µs.
fn ours(figure: &Record) -> Result<f64, String> {
    if figure.has("yardstick") {
        return figure.object("yardstick")?.measure("ours");
    }
    figure.measure("median")
}

/// The time of the yardstick, in µs.
fn theirs(figure: &Record) -> Result<f64, String> {
    figure.object("yardstick")?.measure("theirs")
}

fn cell(value: Option<Result<f64, String>>) -> Result<String, String> {
    Ok(value.transpose()?.map_or_else(|| "not measured".to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"schema":"leasehold.bench.v1","commit":"abc123","date":"2026-01-02",
        "machine":{"cores":2,"processor":"x86_64","kernel":"Linux 6.18","server":"Redis 7.0.15",
        "load":0.25},"runs":[{"figures":[
        {"subject":"SQLite, lock + release","figure":"p50","unit":"us","median":21.5},
        {"subject":"Redis, lock + release","figure":"p50","unit":"x","median":1.5,
         "yardstick":{"name":"the textbook lock","unit":"us","ours":150.0,"theirs":100.0}},
        {"subject":"Redis, hand-over","figure":"p50","unit":"x","median":2.0,
         "yardstick":{"name":"a bare PUBLISH","unit":"us","ours":250.0,"theirs":125.0}},
        {"subject":"etcd, 10000 leases, ttl 10 s","figure":"client cpu","unit":"% core",
         "median":14.5}]}]}"#;

    #[test]
    fn each_engine_has_a_row_with_what_was_measured() {
        let page = render(|_| Some(RECORD.to_owned())).expect("rendered");
        let none = "not measured";
        for row in [
            format!("| SQLite | 21.5 | {none} | {none} | {none} | {none} |"),
            format!("| Redis | 150 | 100 | 0.25 | {none} | {none} |"),
            format!("| etcd | {none} | {none} | {none} | {none} | 14.5 |"),
        ] {
            assert!(page.contains(&row), "no {row} in:\n{page}");
        }
        assert!(page.contains("At commit `abc123`"));
    }

    #[test]
    fn without_a_record_nothing_was_run() {
        assert!(render(|_| None).expect("rendered").contains("Not run yet."));
    }
}
