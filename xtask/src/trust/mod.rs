//! `cargo xtask trust`: TRUST.md, rendered from the records of the runs.
//!
//! A run without a record is *not run yet*. No figure comes from anywhere else.

pub(crate) mod attacks;
mod faults;
mod planted;
mod runs;

use crate::planted::{Bug, SCHEMA};
use crate::record::Record;

/// The page.
pub(crate) const PAGE: &str = "TRUST.md";

/// Its text, with marks for the parts from the records.
const TEMPLATE: &str = include_str!("page.md");

/// The deployments besides one server: the name in the record's path, and the name on the page.
const DEPLOYMENTS: [(&str, &str); 8] = [
    ("tls", "one server behind TLS (`tls`)"),
    ("sentinels", "a primary, two replicas and three sentinels (`sentinels`)"),
    ("cluster", "three primaries, each with a replica (`cluster`)"),
    ("quorum", "three independent servers (`quorum`)"),
    ("postgres", "a PostgreSQL server (`postgres`)"),
    ("mysql", "a MariaDB server (`mysql`)"),
    ("etcd", "three members of an etcd cluster (`etcd`)"),
    ("zookeeper", "three servers of a ZooKeeper ensemble (`zookeeper`)"),
];

/// The schema of a run on real servers.
const CHAOS: &str = "leasehold.trust.chaos.v1";

/// Renders the page and writes it.
pub(crate) fn run() -> Result<(), String> {
    let root = crate::root();
    let page = render(crate::read, &Bug::read_all(&root)?)?;
    std::fs::write(root.join(PAGE), page).map_err(|error| format!("cannot write {PAGE}: {error}"))
}

/// The page, rendered from the files of the repository and the planted bugs.
pub(crate) fn render(
    read: impl Fn(&str) -> Option<String>,
    bugs: &[Bug],
) -> Result<String, String> {
    let record_of = |name: &str, schema: &str| {
        let path = format!("trust/{name}.json");
        read(&path).map(|text| Record::read(&path, &text, schema)).transpose()
    };
    let record = |name: &str| record_of(name, &format!("leasehold.trust.{name}.v1"));
    let simulation = record("simulation")?;
    let chaos = record("chaos")?;
    let planted = record_of("planted", SCHEMA)?;
    let mut deployments = Vec::new();
    for (name, shown) in DEPLOYMENTS {
        deployments.push((shown, record_of(&format!("chaos-{name}"), CHAOS)?));
    }
    let guarantees = read("GUARANTEES.md").unwrap_or_default();
    let parts = [
        ("{simulation}", runs::simulation(simulation.as_ref())?),
        ("{seen_from_outside}", runs::seen_from_outside()),
        ("{chaos}", runs::chaos(chaos.as_ref())?),
        ("{deployments}", runs::deployments(&deployments)?),
        ("{faults}", faults::table(&guarantees, simulation.as_ref(), chaos.as_ref())?),
        ("{planted}", planted::table(planted.as_ref(), bugs)?),
        ("{found}", planted::found_on_the_way(record("found")?.as_ref())?),
        ("{attacks}", attacks::table(record("attacks")?.as_ref())?),
    ];
    Ok(parts.iter().fold(TEMPLATE.to_owned(), |page, (mark, part)| page.replacen(mark, part, 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_of(records: &[(&str, &str)]) -> Result<String, String> {
        let patch = "A slip.\n\nSeen in: another lock\nCaught by: no-overlap\n\n--- a/x\n+++ b/x\n";
        let tested = "A lapse.\n\nCaught by: test leasehold a::b\n\n--- a/x\n+++ b/x\n";
        let bugs = [("no-overlap--slip", patch), ("test--lapse", tested)]
            .map(|(name, text)| Bug::named(name, text).expect("a bug"));
        render(
            |path| {
                let given = records.iter().find(|(name, _)| *name == path)?;
                Some(given.1.to_owned())
            },
            &bugs,
        )
    }

    #[test]
    fn a_scenario_without_a_record_is_not_run_yet() {
        let page = render_of(&[]).expect("rendered");
        assert_eq!(page.matches("Not run yet.").count(), 3, "{page}");
        assert!(page.contains("A slip."), "a planted bug is shown before it was tried");
        assert!(!page.contains("seed 0"), "{page}");
    }

    #[test]
    fn a_bug_that_changed_since_its_run_is_not_found_yet() {
        let planted = r#"{"schema":"leasehold.trust.planted.v2","bugs":[
            {"patch":"no-overlap--slip","digest":"of another change","commit":"abc123",
            "invariant":"no-overlap","seed":41,"seeds_tried":42}]}"#;
        let page = render_of(&[("trust/planted.json", planted)]).expect("rendered");
        assert!(page.contains("not run since it changed") && !page.contains("seed 41"), "{page}");
    }

    #[test]
    fn records_are_shown_with_their_figures_and_commits() {
        let simulation = r#"{"schema":"leasehold.trust.simulation.v1","commit":"abc123",
            "seeds":[0,100000],"simulated_s":3000000,"calm_s":300000,"wall_s":1500,"cores":2,
            "acquisitions":50000000,"calls":70000000,"faults":{"delay":1200},
            "seeds_in_model":60000,"seeds_out_of_model":40000,
            "violations_in_model":{},"violations_out_of_model":{"no-overlap":17}}"#;
        let planted = r#"{"schema":"leasehold.trust.planted.v2","bugs":[
            {"patch":"no-overlap--slip","commit":"abc123","invariant":"no-overlap","seed":41,
            "seeds_tried":42},
            {"patch":"test--lapse","commit":"abc124","test":"leasehold a::b","run":2}]}"#;
        let chaos = r#"{"schema":"leasehold.trust.chaos.v1","commit":"abc123",
            "server":"redis 7.0.15","minutes":30.1,"seed":9,"acquisitions":12345,"granted":678,
            "faults":{"delay":{"injected":20,"counted":18}},"violations_in_model":{"no-orphan":1},
            "violations_out_of_model":{},
            "black_holes":{"tried":100,"child_dead_in_time":99},
            "wake_up_ms":{"p50":0.5,"p99":2.5,"max":9},"calm_s":33,
            "calm_wake_up_ms":{"p50":0.5,"p99":4.5,"max":9},"shares_granted":1234,
            "hand_overs_compared":77,"killed_runs":6}"#;
        let found = r#"{"schema":"leasehold.trust.found.v1","bugs":[{"title":"A real one",
            "seed":5,"invariant":"no-orphan","fixed_in":"A fix"}]}"#;
        let table = "## Which faults are covered\n\n| F | x | a | b |\n|---|---|---|---|\n\
                     | `delay` | y | yes | yes |\n| `flushall` | y | no | yes |\n\n## Next\n";
        let page = render_of(&[
            ("trust/simulation.json", simulation),
            ("trust/planted.json", planted),
            ("trust/chaos.json", chaos),
            ("trust/found.json", found),
            ("GUARANTEES.md", table),
        ])
        .expect("rendered");
        for part in [
            "100 000 seeds",
            "1 000 simulated seconds per second and core",
            "for 300 000 of them\n- 50 000 000 acquisitions",
            "| `no-overlap` | 0 | 17 |",
            "`cargo xtask sim --seeds 0..100000`",
            "| `delay` | yes | 1 200 | 20 | 18 |",
            "| `flushall` | no | 0 | 0 | 0 |",
            "seed 41",
            "| test `a::b` of `leasehold` | A lapse. | its test | 2 runs | `abc124` |",
            "| `no-orphan` | **1** | 0 |",
            "99 of 100",
            "30.1 minutes on redis 7.0.15, 12 345 acquisitions tried and 678 of them\ngranted",
            "`cargo xtask chaos --minutes 30.1 --seed 9`",
            "33 s of calm after the last fault, with 4.5 ms to the next holder for 99 of 100",
            "1 234 grants of shared locks; 77 hand-overs whose fencing tokens were compared; 6 `",
            "A real one",
        ] {
            assert!(page.contains(part), "no {part} in:\n{page}");
        }
        assert!(!page.contains("Not run yet."), "{page}");
    }

    /// A run of a machine that did not allow one of the faults.
    const RESTRICTED: &str = r#"{"schema":"leasehold.trust.chaos.v1","commit":"abc123",
        "server":"redis 7.0.15","minutes":30.1,"seed":9,"acquisitions":12345,"granted":678,
        "faults":{"delay":{"injected":20,"counted":18}},
        "left_out":{"disk-full":"no disk can be mounted here: permission denied"},
        "violations_in_model":{},"violations_out_of_model":{},
        "black_holes":{"tried":100,"child_dead_in_time":100},
        "wake_up_ms":{"p50":0.5,"p99":2.5,"max":9}}"#;

    #[test]
    fn a_fault_that_a_run_left_out_is_named_with_the_reason_and_not_counted_as_none() {
        let table = "## Which faults are covered\n\n| F | x | a | b |\n|---|---|---|---|\n\
                     | `disk-full` | y | yes | yes |\n| `flushall` | y | no | yes |\n\n## Next\n";
        let page = render_of(&[
            ("trust/chaos.json", RESTRICTED),
            ("trust/chaos-etcd.json", RESTRICTED),
            ("GUARANTEES.md", table),
        ])
        .expect("rendered");
        let left_out = "not part of this run: `disk-full` (no disk can be mounted here: permission \
                        denied)";
        for part in [
            &*format!("- {left_out}\n- the same choices again"),
            &*format!("20 `delay`, {left_out} |"),
            "| `disk-full` | yes | not run yet | not part of the run |  |",
            "| `flushall` | no | not run yet | 0 | 0 |",
        ] {
            assert!(page.contains(part), "no {part} in:\n{page}");
        }
    }

    #[test]
    fn a_planted_bug_that_was_tried_in_vain_is_shown_as_such() {
        let planted = r#"{"schema":"leasehold.trust.planted.v2","bugs":[
            {"patch":"no-overlap--slip","commit":"abc123","invariant":"no-overlap",
            "not_found":"it hangs"}]}"#;
        let page = render_of(&[("trust/planted.json", planted)]).expect("rendered");
        assert!(page.contains("| **not found** | it hangs | `abc123` |"), "{page}");
    }

    #[test]
    fn a_record_that_lacks_a_figure_or_is_of_another_kind_is_refused() {
        for bad in [
            "{",
            "{}",
            r#"{"schema":"leasehold.trust.chaos.v1"}"#,
            r#"{"schema":"leasehold.trust.simulation.v1","commit":"a"}"#,
        ] {
            let error = render_of(&[("trust/simulation.json", bad)]).expect_err(bad);
            assert!(error.contains("trust/simulation.json"), "{error}");
        }
    }
}
