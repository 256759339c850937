//! A picture of one figure of a scenario: a bar for each subject.

use super::row::Row;
use super::scenarios::Scenario;
use crate::bench::page::number;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 330.0;
const VALUES: f64 = 90.0;
const ROW: f64 = 20.0;
const TOP: f64 = 34.0;

/// The ratio of extremes above which lengths are logarithmic. On a linear scale, short bars would
/// be invisible.
const LINEAR_MAX: f64 = 30.0;

/// Draws the bars in the order of the rows. Failures have no bar.
pub(super) fn bars(scenario: &Scenario, rows: &[Row]) -> String {
    let value = |row: &Row| row.figures.as_ref().map(|it| it[scenario.main].median);
    let measured: Vec<f64> = rows.iter().filter_map(value).filter(|value| *value > 0.0).collect();
    let most = measured.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let least = measured.iter().copied().fold(most, f64::min);
    let is_linear = most / least <= LINEAR_MAX;
    let length = |value: f64| {
        let part = if value <= 0.0 {
            0.0
        } else if is_linear {
            value / most
        } else {
            // A value of half the least one has length zero, so the shortest bar has some length.
            (value / (least / 2.0)).ln() / (most / (least / 2.0)).ln()
        };
        part * (WIDTH - LABELS - VALUES)
    };
    let figure = &scenario.figures[scenario.main];
    let better = if figure.more { "more is better" } else { "less is better" };
    let scale = if is_linear { "" } else { ", logarithmic" };
    let title = format!("{}: {}, {}; {better}{scale}", scenario.name, figure.name, figure.unit);
    let height = TOP + ROW * rows.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\" fill=\"#222222\">{}</text>\n",
        escaped(&title)
    );
    for (at, row) in rows.iter().enumerate() {
        let y = TOP + ROW * at as f64;
        let base = y + 13.0;
        let (label, colour) = label(scenario, row);
        svg += &format!(
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\" fill=\"#222222\">{label}</text>\n",
            LABELS - 8.0
        );
        let (length, shown) = match value(row) {
            Some(value) => (length(value), number(value)),
            None => (0.0, "failed".to_owned()),
        };
        svg += &format!(
            "<rect x=\"{LABELS}\" y=\"{}\" width=\"{length:.1}\" height=\"14\" \
             fill=\"{colour}\"/>\n<text x=\"{:.1}\" y=\"{base}\" fill=\"#222222\">{shown}</text>\n",
            y + 2.0,
            LABELS + length + 6.0
        );
    }
    svg + "</svg>\n"
}

/// The name of a row without its Markdown, and the colour of its bar.
fn label(scenario: &Scenario, row: &Row) -> (String, &'static str) {
    let mut label = row.subject.title.replace(['*', '`'], "");
    if scenario.contended {
        label += &format!(", {}", row.subject.waits);
    }
    let colour = match row.subject.name {
        name if name.starts_with("leasehold") => "#1f6f5c",
        "bare" => "#999999",
        _ => "#b8a36a",
    };
    (escaped(&label), colour)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
