//! The deployments that fail over.

use std::time::Instant;

use leasehold_testkit::servers::{Cluster, RedisServer, Sentinels};

/// How a primary ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Kill,
    Command,
}

/// A new primary.
pub(super) struct Named {
    /// When it was first named.
    pub(super) at: Instant,
    pub(super) port: u16,
}

impl Named {
    fn now(primary: &RedisServer) -> Self {
        Self { at: Instant::now(), port: primary.port() }
    }
}

/// Servers of which one takes over when another fails.
pub(super) trait Deployment: Send + Sync + Sized + 'static {
    /// How it is called in the report.
    const NAME: &'static str;

    /// How many replicas a primary has, as a command has it.
    const REPLICAS: &'static str;

    fn start() -> Self;

    fn url(&self) -> String;

    /// The primary of a key.
    fn primary(&self, key: &str) -> &RedisServer;

    /// Begins a failover of the primary of a key, by a command.
    fn begin(&self, key: &str, lagging: bool);

    /// Waits until somebody names another primary for a key than `before`.
    fn until_named(&self, key: &str, before: &RedisServer) -> Named;

    /// Starts again what was killed, and waits until everything works.
    fn repair(&self);

    /// Fails over the primary of a key.
    fn fail_over(&self, key: &str, by: By, lagging: bool) -> Named {
        let before = self.primary(key);
        match by {
            By::Kill => before.kill(),
            By::Command => self.begin(key, lagging),
        }
        let named = self.until_named(key, before);
        if lagging && by == By::Command {
            before.let_replicas_in();
        }
        named
    }

    fn server(&self, port: u16) -> &RedisServer;
}

impl Deployment for Sentinels {
    const NAME: &'static str = "sentinels";

    const REPLICAS: &'static str = "2";

    fn start() -> Self {
        Self::builder().replicas(2).start()
    }

    fn url(&self) -> String {
        self.url()
    }

    fn primary(&self, _key: &str) -> &RedisServer {
        self.primary()
    }

    fn begin(&self, _key: &str, _lagging: bool) {
        self.ask_to_fail_over();
    }

    fn until_named(&self, _key: &str, before: &RedisServer) -> Named {
        Named::now(self.until_one_names_another(before))
    }

    fn repair(&self) {
        self.repair();
    }

    fn server(&self, port: u16) -> &RedisServer {
        of_port(self.servers(), port)
    }
}

impl Deployment for Cluster {
    const NAME: &'static str = "cluster";

    const REPLICAS: &'static str = "1";

    fn start() -> Self {
        Self::builder().start()
    }

    fn url(&self) -> String {
        self.url()
    }

    fn primary(&self, key: &str) -> &RedisServer {
        self.node_of(key)
    }

    fn begin(&self, key: &str, lagging: bool) {
        self.ask_to_fail_over(key, lagging);
    }

    fn until_named(&self, key: &str, before: &RedisServer) -> Named {
        Named::now(self.until_one_names_another(key, before))
    }

    fn repair(&self) {
        self.repair();
    }

    fn server(&self, port: u16) -> &RedisServer {
        of_port(self.nodes(), port)
    }
}

fn of_port(servers: &[RedisServer], port: u16) -> &RedisServer {
    servers.iter().find(|server| server.port() == port).expect("one of ours")
}
