//! Worlds whose clients have namespaces: the same name is another lock in each.

use super::{Draw, Kind};
use crate::simulation::plan::Plan;

/// One world in so many.
const ONE_IN: usize = 8;

/// Some have none.
const NAMESPACES: [Option<&str>; 3] = [Some("shop"), None, Some("{till}")];

/// Makes a world one of namespaces, if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Namespaced, 0x004a_3e5b_ace5, ONE_IN) else { return };
    let first = random.below(2);
    for (number, client) in plan.clients.iter_mut().enumerate() {
        client.namespace = NAMESPACES[(first + number / 2) % NAMESPACES.len()];
    }
}
