//! The scenarios, in the order of the page.

/// One scenario.
pub(super) struct Scenario {
    /// Its name in `leasehold-bench`.
    pub(super) name: &'static str,
    pub(super) runs: &'static [Run],
}

/// One run of the program.
pub(super) struct Run {
    /// The arguments after the name.
    pub(super) arguments: &'static [&'static str],
    /// Whether to use the counting allocator, which makes the program slower.
    pub(super) counts_memory: bool,
}

const fn run(arguments: &'static [&'static str]) -> Run {
    Run { arguments, counts_memory: false }
}

/// All scenarios.
pub(super) const SCENARIOS: [Scenario; 17] = [
    Scenario {
        name: "roundtrip",
        runs: &[run(&["--redis", "--cores", "1"]), run(&["--redis", "--cores", "2"])],
    },
    Scenario { name: "tls", runs: &[run(&["--cores", "2"])] },
    Scenario { name: "deployments", runs: &[run(&["--cores", "1"])] },
    Scenario { name: "failover", runs: &[run(&["--rounds", "25"])] },
    Scenario { name: "throughput", runs: &[run(&["--redis"])] },
    Scenario { name: "handoff", runs: &[run(&["--redis"])] },
    Scenario { name: "hot", runs: &[run(&["--redis"])] },
    Scenario {
        name: "waiters",
        runs: &[
            run(&["--redis"]),
            Run { arguments: &["--redis", "--seconds", "1"], counts_memory: true },
        ],
    },
    Scenario { name: "rwlock", runs: &[run(&["--redis"])] },
    Scenario { name: "semaphore", runs: &[run(&["--redis"])] },
    Scenario { name: "many", runs: &[run(&["--redis"])] },
    Scenario { name: "renew", runs: &[run(&["--redis"])] },
    Scenario { name: "cluster-renew", runs: &[run(&["--leases", "10000"])] },
    Scenario { name: "idle", runs: &[run(&["--redis"])] },
    Scenario { name: "quorum", runs: &[run(&["--redis"])] },
    Scenario { name: "opening", runs: &[run(&["--cores", "2"])] },
    Scenario { name: "engines", runs: &[run(&[])] },
];
