//! The planted bugs, and the real bugs that this work found.

use super::runs::NOT_RUN;
use crate::planted::{Bug, Catcher};
use crate::record::{Record, spaced};

/// The table of planted bugs.
pub(super) fn table(record: Option<&Record>, bugs: &[Bug]) -> Result<String, String> {
    let mut table = String::new();
    let tried = match record {
        Some(record) => record.list("bugs")?,
        None => {
            table += NOT_RUN;
            table.push('\n');
            Vec::new()
        }
    };
    table += "| Must be caught by | What is wrong | Found by | Tried until then | At commit |\n";
    table += "|---|---|---|---|---|\n";
    for bug in bugs {
        let (mut found, mut commit) = (("not run yet".to_owned(), String::new()), String::new());
        for entry in &tried {
            if entry.text("patch")? != bug.name {
                continue;
            }
            commit = format!("`{}`", entry.text("commit")?);
            found = if entry.has("digest") && entry.text("digest")? != bug.digest {
                ("not run since it changed".to_owned(), String::new())
            } else if entry.has("not_found") {
                ("**not found**".to_owned(), entry.text("not_found")?)
            } else if entry.has("run") {
                ("its test".to_owned(), format!("{} runs", entry.count("run")?))
            } else {
                let tried = spaced(entry.count("seeds_tried")?);
                (format!("seed {}", entry.count("seed")?), format!("{tried} seeds"))
            };
        }
        let seen_in = bug.seen_in.as_ref().map_or(String::new(), |it| format!(" *Seen in* {it}."));
        let wrong = &bug.wrong;
        let catcher = match &bug.catcher {
            Catcher::Invariant(invariant) => format!("`{invariant}`"),
            Catcher::Test { package, path } => format!("test `{path}` of `{package}`"),
        };
        table +=
            &format!("| {catcher} | {wrong}{seen_in} | {} | {} | {commit} |\n", found.0, found.1);
    }
    Ok(table)
}

/// The table of real bugs.
pub(super) fn found_on_the_way(record: Option<&Record>) -> Result<String, String> {
    let bugs = record.map_or(Ok(Vec::new()), |record| record.list("bugs"))?;
    if bugs.is_empty() {
        return Ok("None is on record.\n".to_owned());
    }
    let mut table = "| What was wrong | Broken | Found by | Fixed in |\n".to_owned();
    table += "|---|---|---|---|\n";
    for bug in bugs {
        let by = match (bug.has("seed"), bug.has("test")) {
            (true, _) => format!("seed {}", bug.count("seed")?),
            (false, true) => format!("`{}`", bug.text("test")?),
            (false, false) => return Err(format!("{}: no seed, no test", bug.text("title")?)),
        };
        table += &format!(
            "| {} | `{}` | {by} | {} |\n",
            bug.text("title")?,
            bug.text("invariant")?,
            bug.text("fixed_in")?
        );
    }
    Ok(table)
}
