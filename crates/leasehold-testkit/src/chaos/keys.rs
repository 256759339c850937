//! The keys that are left on the servers of a world.

use super::world::World;
use crate::history::event::What;

impl World {
    /// Logs the keys of the servers.
    pub fn look_at_keys(&self) {
        for (name, left) in self.servers.granting().into_iter().flat_map(|server| server.keys()) {
            self.journal.tell(What::Key { name: name.into(), left });
        }
    }
}
