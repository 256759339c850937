//! The scenarios, in the order of the page.

use super::bench::Bench;
use super::{alone, contended, several};
use crate::rivals::{Contends, Subject};

/// One scenario.
pub(super) struct Scenario {
    /// Its name on the command line, in the record and in the page.
    pub(super) name: &'static str,
    pub(super) figures: &'static [Figure],
    /// The figure that is drawn. Its spread decides whether to measure again.
    pub(super) main: usize,
    /// The most rounds. In some scenarios, a turn takes long.
    pub(super) rounds_max: usize,
    /// Whether to begin with a turn that does not count. It warms up the processes, which later
    /// scenarios use too.
    pub(super) warms_up: bool,
    /// Whether processes wait for each other. Then the table says how a subject waits.
    pub(super) contended: bool,
    /// Whether it has several servers. Then only the subjects that lock over several servers take
    /// part.
    pub(super) over_several: bool,
    /// Whether several clients may have the key. Then only the subjects of this kind take part.
    pub(super) shared_by: Option<Contends>,
    /// Whether it starts processes of its own. Then the processes of earlier scenarios end first.
    pub(super) starts_its_own: bool,
    /// Measures a subject once: a value for each figure.
    pub(super) turn: fn(&mut Bench, &Subject) -> Result<Vec<f64>, String>,
}

/// One column of a table.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Whether more is better.
    pub(super) more: bool,
}

const fn less(name: &'static str, unit: &'static str) -> Figure {
    Figure { name, unit, more: false }
}

const fn more(name: &'static str, unit: &'static str) -> Figure {
    Figure { name, unit, more: true }
}

const BASE: Scenario = Scenario {
    name: "",
    figures: &[],
    main: 0,
    rounds_max: usize::MAX,
    warms_up: false,
    contended: false,
    over_several: false,
    shared_by: None,
    starts_its_own: false,
    turn: alone::roundtrip,
};

/// Many tasks of several processes want one key.
const HOT: Scenario = Scenario {
    name: "hot",
    figures: &[more("cycles", "/s"), less("longest wait", "ms"), less("longest ÷ mean wait", "×")],
    contended: true,
    turn: contended::hot,
    ..BASE
};

/// All scenarios.
pub(super) static SCENARIOS: [Scenario; 11] = [
    Scenario {
        name: "roundtrip",
        figures: &[less("p50", "µs"), less("p99", "µs")],
        warms_up: true,
        turn: alone::roundtrip,
        ..BASE
    },
    Scenario {
        name: "distant",
        figures: &[less("p50", "µs"), less("p99", "µs")],
        starts_its_own: true,
        turn: alone::distant,
        ..BASE
    },
    Scenario {
        name: "throughput",
        figures: &[
            more("1 task", "/s"),
            more("10 tasks", "/s"),
            more("100 tasks", "/s"),
            more("1 000 tasks", "/s"),
            less("client CPU per cycle, 100 tasks", "µs"),
        ],
        main: 2,
        warms_up: true,
        turn: alone::throughput,
        ..BASE
    },
    Scenario {
        name: "handoff",
        figures: &[less("p50", "ms"), less("p99", "ms")],
        contended: true,
        turn: contended::handoff,
        ..BASE
    },
    HOT,
    Scenario { name: "readers", shared_by: Some(Contends::Readers), ..HOT },
    Scenario { name: "permits", shared_by: Some(Contends::Permits), ..HOT },
    Scenario {
        name: "waiters",
        figures: &[less("requests at the server", "/s")],
        rounds_max: 1,
        contended: true,
        starts_its_own: true,
        turn: contended::waiters,
        ..BASE
    },
    Scenario {
        name: "takeover",
        figures: &[less("median", "ms"), less("longest", "ms")],
        rounds_max: 2,
        contended: true,
        starts_its_own: true,
        turn: contended::takeover,
        ..BASE
    },
    Scenario {
        name: "quorum",
        figures: &[
            less("5 servers, p50", "µs"),
            less("one silent, p50", "µs"),
            less("one silent, longest", "µs"),
            less("two silent, p50", "µs"),
            less("two silent, longest", "µs"),
        ],
        main: 1,
        over_several: true,
        starts_its_own: true,
        turn: several::quorum,
        ..BASE
    },
    Scenario {
        name: "held",
        figures: &[
            less("client memory per lock", "bytes"),
            less("server memory per lock", "bytes"),
            less("client CPU, all locks", "% core"),
        ],
        rounds_max: 1,
        starts_its_own: true,
        turn: alone::held,
        ..BASE
    },
];

impl Scenario {
    /// Whether a subject takes part in this scenario.
    pub(super) fn takes(&self, subject: &Subject) -> bool {
        let is_asked = match subject.contends {
            _ if self.shared_by.is_some() => self.shared_by == Some(subject.contends),
            Contends::Always => true,
            Contends::Never => !self.contended,
            Contends::Only => self.contended,
            Contends::Readers | Contends::Permits => false,
        };
        is_asked && (subject.has_quorum || !self.over_several)
    }
}

/// The scenario of that name.
pub(super) fn named(name: &str) -> Result<&'static Scenario, String> {
    SCENARIOS.iter().find(|scenario| scenario.name == name).ok_or_else(|| {
        let names = SCENARIOS.each_ref().map(|scenario| scenario.name).join(", ");
        format!("no scenario {name} with rivals; there are {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::SUBJECTS;

    #[test]
    fn a_key_is_shared_only_where_all_share_it_in_the_same_way() {
        let names = |scenario: &str| -> Vec<_> {
            let scenario = named(scenario).expect("it exists");
            SUBJECTS.iter().filter(|it| scenario.takes(it)).map(|it| it.name).collect()
        };
        assert_eq!(names("readers"), ["leasehold-rwlock", "redisson-rwlock"]);
        assert_eq!(names("permits"), ["leasehold-semaphore", "redisson-semaphore"]);
        let hot = names("hot");
        assert!(hot.contains(&"leasehold") && hot.contains(&"redisson"), "{hot:?}");
        assert!(hot.iter().all(|it| !it.ends_with("rwlock")), "{hot:?}");
    }
}
