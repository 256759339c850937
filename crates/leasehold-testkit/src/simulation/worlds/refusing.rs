//! Worlds with a server that refuses scripts for a while, and carries out other commands.

use std::time::Duration;

use crate::simulation::fault::Fault;
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::planned::{Nodes, PlannedFault};

/// One world in this many has such a server.
const ONE_IN: usize = 12;

/// One of these faults in this many takes a right away from the clients.
const DENIED_ONE_IN: usize = 3;

/// Makes the server of a world refuse scripts if its seed says so. In a quorum, this is the first
/// node. A node without rights fails the calls of a quorum, so the nodes keep their rights. So does
/// a server of locks without companion keys, since clients then try to do without scripts.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Refusing, 0x04ef_05e5_0e7a, ONE_IN) else { return };
    if plan.is_local() || plan.is(Kind::Long) {
        return;
    }
    let may_deny = !plan.is_quorum() && !plan.is(Kind::Bare);
    let within_ms = u64::try_from(plan.span.as_millis() / 2).expect("some seconds");
    let ttl_ms = u64::try_from(plan.ttl_max().as_millis()).expect("some seconds");
    for _ in 0..2 + random.below(3) {
        let denies = random.once_in(DENIED_ONE_IN) && may_deny;
        plan.faults.push(PlannedFault {
            fault: if denies { Fault::ScriptsDenied } else { Fault::ScriptsRefused },
            at: Duration::from_millis(500 + random.next_u64() % within_ms),
            lasts: Duration::from_millis(50 + random.next_u64() % (ttl_ms * 3 / 2)),
            client: None,
            // The server decides by this number how it refuses.
            much: random.next_u64(),
            nodes: Nodes::FIRST,
        });
    }
    plan.faults.sort_by_key(|planned| planned.at);
}
