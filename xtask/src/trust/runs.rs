//! The runs: the simulation, and chaos on real servers.

use std::collections::BTreeMap;

use crate::invariants::{self, NEED_THE_SERVER};
use crate::record::{Record, spaced};

/// The text in place of a missing record.
pub(super) const NOT_RUN: &str = "Not run yet.\n";

/// The section about the simulation.
pub(super) fn simulation(record: Option<&Record>) -> Result<String, String> {
    let Some(record) = record else { return Ok(NOT_RUN.to_owned()) };
    let (first, past_last) = record.pair("seeds")?;
    let (simulated, wall) = (record.count("simulated_s")?, record.count("wall_s")?);
    let cores = record.count("cores")?;
    let speed = simulated / (wall * cores).max(1);
    let calm = match record.has("calm_s") {
        true => format!(
            "- calm, so that errors and waiting need another cause than a fault, for {} of them\n",
            spaced(record.count("calm_s")?)
        ),
        false => String::new(),
    };
    Ok(format!(
        "At commit `{}`: {} seeds, {} of them with nothing but faults that the\n\
         promises cover.\n\n\
         - {} simulated seconds, at {} simulated seconds per second and core ({} s on {cores} \
         cores)\n\
         {calm}- {} acquisitions, {} calls\n\
         - again: `cargo xtask sim --seeds {first}..{past_last}`\n\n{}",
        record.text("commit")?,
        spaced(past_last - first.min(past_last)),
        spaced(record.count("seeds_in_model")?),
        spaced(simulated),
        spaced(speed),
        spaced(wall),
        spaced(record.count("acquisitions")?),
        spaced(record.count("calls")?),
        violations(record, invariants::names())?,
    ))
}

/// The section about the runs against real servers.
pub(super) fn chaos(record: Option<&Record>) -> Result<String, String> {
    let Some(record) = record else { return Ok(NOT_RUN.to_owned()) };
    let minutes = record.measure("minutes")?;
    let black_holes = record.object("black_holes")?;
    let wake_up = record.object("wake_up_ms")?;
    let left_out = match left_out(record)? {
        Some(left_out) => format!("- {left_out}\n"),
        None => String::new(),
    };
    Ok(format!(
        "At commit `{}`: {minutes} minutes on {}, {} acquisitions tried and {} of them\n\
         granted.\n\n\
         - `leasehold run`, cut off from its server: its child was dead before the deadline in {} \
         of {} tries\n\
         - from a release to the next holder: {} ms in the middle, {} ms for 99 of 100, {} ms at \
         most\n\
         - judged besides: {}\n\
         {left_out}\
         - the same choices again: `cargo xtask chaos --minutes {minutes} --seed {}`\n\n{}",
        record.text("commit")?,
        record.text("server")?,
        spaced(record.count("acquisitions")?),
        spaced(record.count("granted")?),
        black_holes.count("child_dead_in_time")?,
        black_holes.count("tried")?,
        wake_up.measure("p50")?,
        wake_up.measure("p99")?,
        wake_up.measure("max")?,
        judged(record)?,
        record.count("seed")?,
        violations(record, seen_by_chaos())?,
    ))
}

/// The faults that a run left out, and why, as text. `None` if it left nothing out. Old records do
/// not contain this.
fn left_out(record: &Record) -> Result<Option<String>, String> {
    if !record.has("left_out") {
        return Ok(None);
    }
    let faults = record.object("left_out")?;
    let mut left_out = Vec::new();
    for name in faults.names() {
        left_out.push(format!("`{name}` ({})", faults.text(&name)?));
    }
    let names = left_out.join(", ");
    Ok((!left_out.is_empty()).then(|| format!("not part of this run: {names}")))
}

/// The text about what a run judged besides its faults. Old records do not contain this.
fn judged(record: &Record) -> Result<String, String> {
    if !record.has("hand_overs_compared") {
        return Ok("not recorded".to_owned());
    }
    let wake_up = record.object("calm_wake_up_ms")?;
    Ok(format!(
        "{} s of calm after the last fault, with {} ms to the next holder for 99 of 100; {} grants \
         of shared locks; {} hand-overs whose fencing tokens were compared; {} `leasehold run` \
         killed while their child ran",
        spaced(record.count("calm_s")?),
        wake_up.measure("p99")?,
        spaced(record.count("shares_granted")?),
        spaced(record.count("hand_overs_compared")?),
        spaced(record.count("killed_runs")?),
    ))
}

/// The table of the runs on deployments other than one server.
pub(super) fn deployments(records: &[(&str, Option<Record>)]) -> Result<String, String> {
    let mut table = String::new();
    for (deployment, record) in records {
        let Some(record) = record else {
            table += &format!("| {deployment} | not run yet | | | | | | |\n");
            continue;
        };
        let sum = |name| Ok::<u64, String>(record.counts(name)?.values().sum());
        let broken = match sum("violations_in_model")? {
            0 => "0".to_owned(),
            broken => format!("**{}**", spaced(broken)),
        };
        let faults = record.object("faults")?;
        let mut injected = Vec::new();
        for name in faults.names() {
            let times = faults.object(&name)?.count("injected")?;
            injected.push(format!("{} `{name}`", spaced(times)));
        }
        injected.extend(left_out(record)?);
        table += &format!(
            "| {deployment} | {} minutes on {}, at `{}` | {} | {} | {} | {} | {broken} | {} |\n",
            record.measure("minutes")?,
            record.text("server")?,
            record.text("commit")?,
            spaced(record.count("acquisitions")?),
            spaced(record.count("granted")?),
            injected.join(", "),
            judged(record)?,
            spaced(sum("violations_out_of_model")?),
        );
    }
    Ok(table)
}

/// The invariants that can be checked without knowing the server's steps, as a list in words.
pub(super) fn seen_from_outside() -> String {
    seen_by_chaos().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn seen_by_chaos() -> impl Iterator<Item = &'static str> {
    invariants::names().filter(|name| !NEED_THE_SERVER.contains(name))
}

/// How often each invariant was broken, under faults that the promises cover and under others.
fn violations(
    record: &Record,
    judged: impl Iterator<Item = &'static str>,
) -> Result<String, String> {
    let covered = record.counts("violations_in_model")?;
    let beyond = record.counts("violations_out_of_model")?;
    let of = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
    let mut rows = String::new();
    let mut others = 0;
    // A name that is missing from the list must still be shown.
    let strange = covered.keys().chain(beyond.keys()).map(String::as_str);
    let strange = strange.filter(|name| !invariants::is_known(name));
    let judged: Vec<&str> = judged.collect();
    for name in judged.into_iter().chain(strange) {
        let (inside, outside) = (of(&covered, name), of(&beyond, name));
        if inside == 0 && outside == 0 {
            others += 1;
            continue;
        }
        let inside = if inside == 0 { "0".to_owned() } else { format!("**{}**", spaced(inside)) };
        rows += &format!("| `{name}` | {inside} | {} |\n", spaced(outside));
    }
    if rows.is_empty() {
        return Ok("No invariant was broken, neither under faults that the promises cover nor \
                   beyond them.\n"
            .to_owned());
    }
    Ok(format!(
        "| Broken | under covered faults | under others |\n|---|---|---|\n{rows}\
         | the other {others} invariants | 0 | 0 |\n"
    ))
}
