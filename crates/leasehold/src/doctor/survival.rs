//! The events that a lock in a deployment survives. They follow from a few facts.

/// The facts that decide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deployment {
    /// Whether enough nodes grant locks now.
    pub(super) grants: bool,
    /// The number of nodes. It is 1 without a quorum.
    pub(super) nodes: usize,
    /// How many of them grant no locks now.
    pub(super) failing: usize,
    pub(super) kind: Kind,
    /// Whether every node keeps grants in a file, as far as it tells.
    pub(super) has_log: bool,
    /// Whether a grant is on disk before it counts.
    pub(super) is_on_disk: bool,
    /// Whether a server that may have forgotten leases grants nothing for a while. It must do so
    /// even if it has forgotten that its database is in strict mode.
    pub(super) is_strict: bool,
    /// Whether sentinels let another server take over.
    pub(super) has_failover: bool,
    /// Whether there may be replicas, which somebody may promote.
    pub(super) has_replicas: bool,
    /// Whether a server may drop keys when its memory is full.
    pub(super) evicts: bool,
    /// Whether the nodes of a cluster share the locks.
    pub(super) is_cluster: bool,
    /// Whether some nodes of a cluster grant no locks now, and others do.
    pub(super) is_partial: bool,
}

impl Deployment {
    /// A node that forgets no grant that still counts, and has no other safeguard. Either each
    /// grant is on disk before it counts, or its holders end with the machine, as those of a file
    /// do.
    #[cfg_attr(
        not(any(feature = "_members", feature = "sqlite")),
        allow(dead_code, reason = "there are no such stores")
    )]
    pub(super) const ON_DISK: Self = Self {
        grants: false,
        nodes: 0,
        failing: 0,
        kind: Kind::Servers,
        has_log: true,
        is_on_disk: true,
        is_strict: false,
        has_failover: false,
        has_replicas: false,
        evicts: false,
        is_cluster: false,
        is_partial: false,
    };

    /// Two nodes of a quorum together. They keep a promise if both keep it. A danger for one of
    /// them is a danger for both.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            // A mixed quorum is judged as servers, each of which may fail.
            kind: if self.kind == other.kind { self.kind } else { Kind::Servers },
            has_log: self.has_log && other.has_log,
            is_on_disk: self.is_on_disk && other.is_on_disk,
            is_strict: self.is_strict && other.is_strict,
            has_failover: self.has_failover && other.has_failover,
            has_replicas: self.has_replicas || other.has_replicas,
            evicts: self.evicts || other.evicts,
            is_cluster: self.is_cluster || other.is_cluster,
            is_partial: self.is_partial || other.is_partial,
            ..self
        }
    }
}

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Servers.
    #[default]
    Servers,
    /// A file on this machine.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "there are no files"))]
    File,
    /// The members of a cluster that agree on each step.
    #[cfg_attr(not(feature = "_members"), allow(dead_code, reason = "there are no such clusters"))]
    Members,
    /// The memory of one process.
    Memory,
}

/// The events that a lock survives or not, and whether two holders may act after such an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Survival {
    pub(super) yes: Vec<&'static str>,
    pub(super) no: Vec<&'static str>,
    pub(super) fencing: bool,
}

/// An event, whether the lock survives it, and whether two may hold it if not.
type Row = (&'static str, bool, bool);

pub(super) fn survival(it: &Deployment) -> Survival {
    if !it.grants {
        let no = vec!["anything: the store grants no locks now"];
        return Survival { no, fencing: true, ..Survival::default() };
    }
    let rows = match it.kind {
        Kind::Servers => servers(it),
        Kind::File => vec![
            ("the crash of any process", true, false),
            ("a restart of the machine", true, false),
            ("the loss of the file or its disk", false, true),
        ],
        Kind::Members => vec![
            ("a restart of all members", true, false),
            ("a power loss of all members", true, false),
            ("the loss of a minority of the members", it.has_failover, false),
            ("the loss of a majority of the members", false, false),
            ("a clock of a member that jumps", true, false),
        ],
        Kind::Memory => vec![("the end of this process", false, false)],
    };
    let mut survival = Survival::default();
    // A process that is paused cannot know it, in any deployment.
    let always: [Row; 2] = [
        ("the crash of a holder: the lock is free after its ttl", true, false),
        ("a pause of the holder for longer than the ttl", false, true),
    ];
    for (event, is_survived, is_unsafe) in always.into_iter().take(1).chain(rows).chain([always[1]])
    {
        if is_survived {
            survival.yes.push(event);
        } else {
            survival.no.push(event);
            survival.fencing |= is_unsafe;
        }
    }
    survival
}

fn servers(it: &Deployment) -> Vec<Row> {
    // With three nodes or more, a minority may fail. Clients refuse nodes that fail together.
    let has_majority = it.nodes >= 3;
    let mut rows: Vec<Row> = Vec::new();
    if has_majority {
        if it.failing == 0 {
            rows.push(("the loss of a minority of the servers", true, false));
        } else {
            let is_spare = it.nodes - it.failing > it.nodes / 2 + 1;
            rows.push(("the loss of one more server", is_spare, false));
        }
        rows.push(("a clock that jumps on a minority of the servers", true, false));
        let forgets = it.is_strict || it.has_log;
        rows.push(("a restart of a minority of the servers", forgets, true));
        rows.push((
            "a power loss of a minority of the servers",
            it.is_strict || it.is_on_disk,
            true,
        ));
    } else if it.is_cluster {
        // Each lock is on one node, so the other nodes are not a majority for it.
        if it.is_partial {
            rows.push(("being kept on a node that has failed a check above", false, false));
        }
        rows.push(("a restart of its node", it.has_log, true));
        rows.push(("a power loss of its node", it.is_on_disk, true));
        rows.push(("the loss of its node", it.has_failover && !it.is_partial, false));
        rows.push(("the loss of its node and of the replicas of that node", false, false));
        rows.push(("a clock of its node that jumps ahead", false, true));
    } else {
        rows.push(("a restart of the server", it.is_strict || it.has_log, true));
        rows.push(("a power loss of the server", it.is_strict || it.is_on_disk, true));
        rows.push(("the loss of the server", it.has_failover, false));
        rows.push(("a clock of the server that jumps ahead", false, true));
    }
    if it.has_failover || it.has_replicas {
        rows.push(("a failover to a replica that lacks a lease", it.is_strict, true));
    }
    if it.evicts {
        rows.push(("a server that is short of memory and drops keys", false, true));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Deployment = Deployment {
        grants: true,
        nodes: 1,
        failing: 0,
        kind: Kind::Servers,
        has_log: false,
        is_on_disk: false,
        is_strict: false,
        has_failover: false,
        has_replicas: false,
        evicts: false,
        is_cluster: false,
        is_partial: false,
    };

    #[test]
    fn each_deployment_survives_what_its_facts_allow() {
        let three = Deployment { nodes: 3, ..ONE };
        let cluster = Deployment { is_cluster: true, ..ONE };
        // the deployment, a part of an event, whether it is survived
        let table = [
            (ONE, "restart of the server", false),
            (ONE, "power loss", false),
            (ONE, "the loss of the server", false),
            (ONE, "clock of the server", false),
            (Deployment { has_log: true, ..ONE }, "restart of the server", true),
            (Deployment { has_log: true, ..ONE }, "power loss", false),
            (Deployment { is_on_disk: true, ..ONE }, "power loss", true),
            (Deployment { is_strict: true, ..ONE }, "restart of the server", true),
            (Deployment { is_strict: true, ..ONE }, "power loss", true),
            (Deployment { has_failover: true, ..ONE }, "the loss of the server", true),
            (Deployment { has_failover: true, ..ONE }, "failover", false),
            (Deployment { has_failover: true, is_strict: true, ..ONE }, "failover", true),
            (Deployment { has_replicas: true, ..ONE }, "failover", false),
            (Deployment { evicts: true, ..ONE }, "drops keys", false),
            (three, "the loss of a minority", true),
            (Deployment { failing: 1, ..three }, "the loss of one more server", false),
            (Deployment { nodes: 5, failing: 1, ..ONE }, "the loss of one more server", true),
            (Deployment { nodes: 5, failing: 2, ..ONE }, "the loss of one more server", false),
            (Deployment { nodes: 4, failing: 1, ..ONE }, "the loss of one more server", false),
            (Deployment { has_log: true, ..three }, "power loss of a minority", false),
            (Deployment { is_on_disk: true, ..three }, "power loss of a minority", true),
            (Deployment { is_strict: true, ..three }, "power loss of a minority", true),
            (Deployment { kind: Kind::Members, ..ONE }, "loss of a minority of the members", false),
            (
                Deployment { kind: Kind::Members, has_failover: true, ..ONE },
                "loss of a minority of the members",
                true,
            ),
            (Deployment { kind: Kind::Members, ..ONE }, "loss of a majority", false),
            (Deployment { kind: Kind::Members, ..ONE }, "power loss of all members", true),
            (three, "clock that jumps on a minority", true),
            (three, "restart of a minority", false),
            (Deployment { has_log: true, ..three }, "restart of a minority", true),
            (Deployment { nodes: 2, ..ONE }, "the loss of the server", false),
            (cluster, "restart of its node", false),
            (cluster, "the loss of its node and", false),
            (cluster, "clock of its node", false),
            (Deployment { has_log: true, ..cluster }, "restart of its node", true),
            (Deployment { is_on_disk: true, ..cluster }, "power loss of its node", true),
            (Deployment { has_replicas: true, ..cluster }, "failover", false),
            (Deployment { is_partial: true, ..cluster }, "failed a check", false),
            (Deployment { kind: Kind::File, ..ONE }, "restart of the machine", true),
            (Deployment { kind: Kind::File, ..ONE }, "loss of the file", false),
            (Deployment { grants: false, ..ONE }, "grants no locks", false),
            (Deployment { kind: Kind::Memory, ..ONE }, "end of this process", false),
        ];
        for (deployment, event, expected) in table {
            let found = survival(&deployment);
            let is_in = |list: &[&str]| list.iter().any(|it| it.contains(event));
            assert_eq!(is_in(&found.yes), expected, "{event}: {deployment:?} {found:?}");
            assert_eq!(is_in(&found.no), !expected, "{event}: {deployment:?} {found:?}");
        }
    }

    /// A cluster of three primaries must not be taken for three nodes of a quorum.
    #[test]
    fn a_cluster_survives_the_loss_of_a_node_by_its_replicas_alone() {
        let cluster = Deployment { is_cluster: true, ..ONE };
        let loss = "the loss of its node";
        for (has_failover, is_partial) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let found = survival(&Deployment { has_failover, is_partial, ..cluster });
            assert_eq!(found.yes.contains(&loss), has_failover && !is_partial, "{found:?}");
            let all = [found.yes, found.no].concat();
            assert!(all.iter().all(|event| !event.contains("minority")), "{all:?}");
        }
    }

    /// The table of one healthy quorum, in full.
    #[test]
    fn even_the_best_deployment_needs_fencing_for_a_paused_holder() {
        let best = Deployment { nodes: 3, has_log: true, is_on_disk: true, is_strict: true, ..ONE };
        let found = survival(&best);
        assert_eq!(found.no, ["a pause of the holder for longer than the ttl"]);
        assert!(found.fencing);
        assert_eq!(found.yes.len(), 5);
    }
}
