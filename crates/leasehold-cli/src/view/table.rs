//! Locks as the lines of a table.

use std::time::Duration;

use leasehold::Snapshot;
use leasehold::core::WallTime;
use leasehold::store::ClientRecord;

use super::{span, state, why};
use crate::duration::human;
use crate::output::{cut, escape};

/// A line of a table.
pub(crate) type Row = [String; 9];

/// The heads of [`row`].
pub(crate) const COLUMNS: [&str; 9] =
    ["NAME", "STATE", "HOLDER", "COMMAND", "HELD FOR", "TTL", "LEFT", "WAITING", "WHY"];

/// A lock as a line of a table.
pub(crate) fn row(name: &str, seen: &Snapshot, now: WallTime) -> Row {
    let holder = seen.holders.first();
    let client = holder.and_then(|holder| holder.client.as_ref());
    let held_for = holder.and_then(|holder| holder.since).map(|since| {
        human(Duration::from_micros(now.as_unix_micros().saturating_sub(since.as_unix_micros())))
    });
    let of_holder = |text: Option<String>| {
        text.unwrap_or_else(|| if holder.is_some() { "?".to_owned() } else { String::new() })
    };
    let name_of = |client: &ClientRecord| {
        format!("{}:{} {}", escape(&client.host), client.pid, escape(&client.user))
    };
    [
        escape(name),
        cell(seen),
        of_holder(client.map(name_of)),
        of_holder(client.map(|client| cut(&escape(&client.command), COMMAND_CHARS_MAX))),
        held_for.unwrap_or_default(),
        holder.and_then(|holder| holder.ttl).map(span).unwrap_or_default(),
        holder.and_then(|holder| holder.ttl_left).map(human).unwrap_or_default(),
        if seen.waiting == 0 { String::new() } else { seen.waiting.to_string() },
        holder.and_then(why).map(escape).unwrap_or_default(),
    ]
}

/// The state for a table: how many holders there are too, if there are several.
fn cell(seen: &Snapshot) -> String {
    match (seen.permits, seen.holders.len()) {
        (Some(permits), 1..) => format!("{} {}/{}", state(seen), permits.taken, permits.of),
        (None, holders @ 2..) => format!("{} by {holders}", state(seen)),
        _ => state(seen).to_owned(),
    }
}

/// The longest command that a table shows.
const COMMAND_CHARS_MAX: usize = 32;

/// The shortest limit for a reason in a table, and the limit if the line width is unknown.
const WHY_CHARS: (usize, usize) = (10, 60);

/// The column that is truncated.
pub(super) const LAST: usize = COLUMNS.len() - 1;

/// The lines of a table. Columns are aligned by characters, and the last one is truncated so that a
/// line fits into `columns`.
pub(crate) fn table(rows: &[Row], columns: Option<usize>) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: [usize; LAST + 1] = std::array::from_fn(width);
    let before: usize = widths[..LAST].iter().map(|width| width + 2).sum();
    let (least, most) = WHY_CHARS;
    let most = columns.map_or(most, |columns| columns.saturating_sub(before).max(least));
    let mut out = String::new();
    for row in rows {
        let cells = row[..LAST].iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let cells: Vec<String> = cells.chain([cut(&row[LAST], most)]).collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}
