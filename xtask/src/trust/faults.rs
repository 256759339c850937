//! The faults, and how often each was injected.

use std::collections::BTreeMap;

use crate::record::{Record, spaced};

const SECTION: &str = "## Which faults are covered";

/// The table of faults, in the order of GUARANTEES.md.
pub(super) fn table(
    guarantees: &str,
    simulation: Option<&Record>,
    chaos: Option<&Record>,
) -> Result<String, String> {
    let simulated = simulation.map(|record| record.counts("faults")).transpose()?;
    let left_out = match chaos.filter(|record| record.has("left_out")) {
        Some(record) => record.object("left_out")?.names(),
        None => Vec::new(),
    };
    let chaos = chaos.map(|record| record.object("faults")).transpose()?;
    let mut table = String::new();
    let mut listed = listed(guarantees);
    let tried = simulated.iter().flat_map(BTreeMap::keys).cloned();
    // A fault that was injected but is not in the table must still be shown.
    for name in tried.chain(chaos.iter().flat_map(Record::names)) {
        if !listed.iter().any(|(listed, _)| *listed == name) {
            listed.push((name, "not in the table".to_owned()));
        }
    }
    for (name, covered) in listed {
        let in_simulation = match &simulated {
            Some(counts) => spaced(counts.get(&name).copied().unwrap_or(0)),
            None => "not run yet".to_owned(),
        };
        let (injected, counted) = match &chaos {
            Some(faults) if faults.has(&name) => {
                let fault = faults.object(&name)?;
                (spaced(fault.count("injected")?), spaced(fault.count("counted")?))
            }
            Some(_) if left_out.contains(&name) => {
                ("not part of the run".to_owned(), String::new())
            }
            Some(_) => ("0".to_owned(), "0".to_owned()),
            None => ("not run yet".to_owned(), "not run yet".to_owned()),
        };
        table += &format!("| `{name}` | {covered} | {in_simulation} | {injected} | {counted} |\n");
    }
    Ok(table)
}

/// The faults of GUARANTEES.md, and whether windows never overlap under them.
fn listed(guarantees: &str) -> Vec<(String, String)> {
    let section = guarantees.lines().skip_while(|line| *line != SECTION).skip(1);
    let rows = section.take_while(|line| !line.starts_with("## "));
    rows.filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` |")?;
        let covered = rest.split('|').nth(1)?;
        Some((name.to_owned(), covered.trim().to_owned()))
    })
    .collect()
}
