//! Writes the record of a run.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::args::Args;
use crate::sweep::Sweep;

/// Writes the record of a sweep.
pub(crate) fn write(path: &Path, args: &Args, sweep: &Sweep) -> io::Result<()> {
    let record = json!({
        "schema": "leasehold.trust.simulation.v1",
        "commit": args.commit,
        "seeds": [args.seeds.start, args.seeds.end],
        "time_s": args.time_of_world().as_secs(),
        "simulated_s": sweep.simulated.as_secs(),
        "calm_s": sweep.calm.as_secs(),
        "wall_s": sweep.wall.as_secs(),
        "cores": args.jobs,
        "acquisitions": sweep.acquisitions,
        "acquisitions_least": sweep.acquisitions_least,
        "calls": sweep.calls,
        "hand_overs_compared": sweep.hand_overs,
        "faults": sweep.faults,
        "faults_least": sweep.faults_least,
        "worlds": sweep.kinds,
        "in_worlds": sweep.did,
        "seeds_in_model": sweep.in_model,
        "seeds_out_of_model": sweep.seeds - sweep.in_model,
        "violations_in_model": sweep.promised,
        "violations_out_of_model": sweep.not_covered,
    });
    std::fs::write(path, format!("{record:#}\n"))
}
