//! The rows of a scenario, as the record has them.

use super::RECORD;
use super::scenarios::Scenario;
use crate::record::Record;
use crate::rivals::{SUBJECTS, Subject};

/// One row of a table.
pub(super) struct Row {
    pub(super) subject: &'static Subject,
    pub(super) version: String,
    pub(super) again: bool,
    pub(super) failures: Vec<String>,
    /// The figures in the order of the scenario. `None` if the subject failed too often.
    pub(super) figures: Option<Vec<Spread>>,
}

/// A median with its extremes.
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Row {
    pub(super) fn failed_once(&self) -> bool {
        self.figures.is_some() && !self.failures.is_empty()
    }
}

/// The rows of a scenario: the best first, and the failures last.
pub(super) fn rows(scenario: &Scenario, measured: &Record) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for row in measured.list("rows")? {
        let name = row.text("subject")?;
        let subject = SUBJECTS.iter().find(|subject| subject.name == name);
        let subject =
            subject.ok_or_else(|| format!("{RECORD}: {name} is not measured any more"))?;
        let is_measured = row.has("figures");
        let figures =
            is_measured.then(|| figures(scenario, &row.object("figures")?)).transpose()?;
        let (version, failures) = (row.text("version")?, row.texts("failures")?);
        rows.push(Row { subject, version, again: row.flag("again"), failures, figures });
    }
    let Some(figure) = scenario.figures.get(scenario.main) else { return Ok(rows) };
    rows.sort_by(|one, other| {
        let value = |row: &Row| match &row.figures {
            Some(figures) if figure.more => -figures[scenario.main].median,
            Some(figures) => figures[scenario.main].median,
            None => f64::INFINITY,
        };
        value(one).total_cmp(&value(other))
    });
    Ok(rows)
}

fn figures(scenario: &Scenario, figures: &Record) -> Result<Vec<Spread>, String> {
    let spread = |name| {
        let figure = figures.object(name)?;
        let [median, least, most] = ["median", "least", "most"].map(|it| figure.measure(it));
        Ok(Spread { median: median?, least: least?, most: most? })
    };
    scenario.figures.iter().map(|figure| spread(figure.name)).collect()
}
