//! Worlds whose clients have namespaces. The same name is a different lock in each namespace.

use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;

/// One world in this many has namespaces.
const ONE_IN: usize = 8;

/// The namespaces of clients. `None` is a client without a namespace.
const NAMESPACES: [Option<&str>; 3] = [Some("shop"), None, Some("{till}")];

/// Gives the clients of a world namespaces if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Namespaced, 0x004a_3e5b_ace5, ONE_IN) else { return };
    let first = random.below(2);
    for (number, client) in plan.clients.iter_mut().enumerate() {
        client.namespace = NAMESPACES[(first + number / 2) % NAMESPACES.len()];
    }
}
