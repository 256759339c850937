//! The keys that are left on the servers of a world.

use super::shares;
use super::world::World;
use crate::history::event::What;

impl World {
    /// Logs the keys of the servers.
    pub fn look_at_keys(&self) {
        for (name, left) in self.servers.granting().into_iter().flat_map(|server| server.keys()) {
            self.journal.tell(What::Key { name: name.into(), left });
        }
    }

    /// The keys of shared locks that are on the servers, although no process may leave them behind.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let servers = self.servers.granting();
        let keys = servers.into_iter().flat_map(|server| server.keys()).map(|(name, _)| name);
        keys.filter(|name| shares::is_left_behind(name)).collect()
    }
}
