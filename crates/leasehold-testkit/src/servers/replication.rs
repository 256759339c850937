//! A primary whose replicas lag, because they get none of its writes.

use super::redis_server::RedisServer;

impl RedisServer {
    /// Cuts off its replicas. They lose their connections, and get no new ones. Its writes from
    /// now on are lost if one of them takes over.
    ///
    /// Stopping a replica is not enough. The data that was sent to it waits in its socket, and the
    /// replica reads this data when it goes on.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn cut_replicas_off(&self) {
        self.command(&["ACL", "SETUSER", "default", "-psync", "-sync"]);
        self.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Lets its replicas in again. They get all its writes. A server that was killed and started
    /// again lets them in, too.
    ///
    /// # Panics
    ///
    /// If the server refuses.
    pub fn let_replicas_in(&self) {
        self.command(&["ACL", "SETUSER", "default", "+psync", "+sync"]);
    }
}
