//! The keys that are left on the servers of a world.

use std::time::Duration;

use super::world::World;
use crate::history::event::What;
use crate::servers::{RedisServer, Reply};

impl World {
    /// Logs the keys of the server.
    pub fn look_at_keys(&self) {
        self.servers.granting().into_iter().for_each(|server| self.look_at_keys_of(server));
    }

    fn look_at_keys_of(&self, server: &RedisServer) {
        for name in server.command(&["KEYS", "*"]).texts() {
            // Its slot may have moved meanwhile.
            let Ok(Reply::Int(left)) = server.try_command(&["PTTL", &name]) else { continue };
            let left = match u64::try_from(left) {
                Ok(left) => Some(Duration::from_millis(left)),
                Err(_) if left == -1 => None,
                // The key is gone meanwhile.
                Err(_) => continue,
            };
            self.journal.tell(What::Key { name: name.into(), left });
        }
    }
}
