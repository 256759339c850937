//! A primary whose replicas lag: they get nothing that it writes.

use super::redis_server::RedisServer;

impl RedisServer {
    /// Cuts off its replicas. They lose their connections, and get no new ones. Its writes from
    /// now on are lost if one of them takes over.
    ///
    /// A replica that only stops would not do: what was sent to it waits in its socket, and it
    /// reads that when it goes on.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn cut_replicas_off(&self) {
        self.command(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
        self.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Lets its replicas in again. They get all that it wrote. A server that was killed and started
    /// again lets them in, too.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn let_replicas_in(&self) {
        self.command(&["ACL", "SETUSER", "default", "+psync", "+sync"]);
    }
}
