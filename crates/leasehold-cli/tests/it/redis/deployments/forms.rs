//! The forms of deployment, and what can happen to the server that has the lock `x`.

use leasehold_testkit::servers::{Authority, Cluster, RedisServer, Sentinels};

/// A deployment.
pub(super) trait Deployment {
    fn url(&self) -> String;

    /// The server that has the lock now.
    fn server(&self) -> &RedisServer;

    /// Waits until a failover would keep what was written so far.
    fn keep(&self);

    /// Makes a failover forget everything.
    fn forget(&self);

    /// Waits until another server has the lock, or `from` has it again, after `from` was killed or
    /// stopped.
    fn until_failed_over(&self, from: &RedisServer);
}

/// Waits until a replica has everything that was written to this server.
fn until_copied(server: &RedisServer) {
    // `WAIT` only counts writes of this connection.
    server.command(&["SET", "{x}:test", "", "PX", "1"]);
    assert!(server.command(&["WAIT", "1", "60000"]).int() >= 1, "no replica follows");
}

/// Makes the replica of a server forget everything. The link stays, so the server does not send the
/// data again.
fn forget_at(replicas: &[&RedisServer]) {
    for replica in replicas {
        replica.command(&["CONFIG", "SET", "replica-read-only", "no"]);
        replica.command(&["FLUSHALL"]);
    }
}

/// A server alone, which keeps its data on the disk.
pub(super) struct Alone {
    server: RedisServer,
    url: String,
    _authority: Option<Authority>,
}

impl Alone {
    fn builder() -> leasehold_testkit::servers::RedisServerBuilder {
        RedisServer::builder().config("appendonly", "yes").config("appendfsync", "always")
    }

    pub(super) fn with_a_socket() -> Self {
        let server = Self::builder().start();
        Self { url: server.unix_url(), server, _authority: None }
    }

    pub(super) fn with_tls() -> Self {
        let authority = Authority::new();
        let identity = authority.issue("server", &["127.0.0.1"]);
        let server = Self::builder().with_tls(&identity, &authority).start();
        let url = format!("{}?ca={}", server.tls_url(), authority.ca().display());
        Self { server, url, _authority: Some(authority) }
    }
}

impl Deployment for Alone {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn server(&self) -> &RedisServer {
        &self.server
    }

    fn keep(&self) {}

    fn forget(&self) {
        self.server.command(&["CONFIG", "SET", "appendonly", "no"]);
        // Before Redis 7.0, the log is a file.
        let _absent = std::fs::remove_file(self.server.path("appendonly.aof"));
        let _absent = std::fs::remove_dir_all(self.server.path("appendonlydir"));
    }

    fn until_failed_over(&self, from: &RedisServer) {
        from.restart();
    }
}

/// A primary with a replica and sentinels.
pub(super) struct Watched {
    pub(super) all: Sentinels,
    authority: Option<Authority>,
}

impl Watched {
    pub(super) fn start() -> Self {
        Self { all: Sentinels::builder().start(), authority: None }
    }

    pub(super) fn with_tls() -> Self {
        let authority = Authority::new();
        let identity = authority.issue("server", &["127.0.0.1"]);
        let all = Sentinels::builder().with_tls(&identity, &authority).start();
        Self { all, authority: Some(authority) }
    }
}

impl Deployment for Watched {
    fn url(&self) -> String {
        with_authority(self.all.url(), self.authority.as_ref())
    }

    fn server(&self) -> &RedisServer {
        self.all.primary()
    }

    fn keep(&self) {
        until_copied(self.server());
    }

    fn forget(&self) {
        let primary = self.server().port();
        let replicas = self.all.servers().iter().filter(|server| server.port() != primary);
        forget_at(&replicas.collect::<Vec<_>>());
    }

    fn until_failed_over(&self, from: &RedisServer) {
        self.all.until_switched(from.port());
    }
}

/// A cluster with replicas.
pub(super) struct Sharded {
    all: Cluster,
    authority: Option<Authority>,
}

impl Sharded {
    pub(super) fn start() -> Self {
        Self { all: Cluster::builder().start(), authority: None }
    }

    pub(super) fn with_tls() -> Self {
        let authority = Authority::new();
        let identity = authority.issue("node", &["127.0.0.1"]);
        let all = Cluster::builder().with_tls(&identity, &authority).start();
        Self { all, authority: Some(authority) }
    }
}

impl Deployment for Sharded {
    fn url(&self) -> String {
        with_authority(self.all.url(), self.authority.as_ref())
    }

    fn server(&self) -> &RedisServer {
        self.all.node_of("x")
    }

    fn keep(&self) {
        until_copied(self.server());
    }

    fn forget(&self) {
        // The replicas are last in the list.
        let (_, replicas) = self.all.nodes().split_at(self.all.nodes().len() / 2);
        forget_at(&replicas.iter().collect::<Vec<_>>());
    }

    fn until_failed_over(&self, from: &RedisServer) {
        self.all.until_taken_over(from, "x");
    }
}

/// A URL with TLS, if there is an authority to trust.
fn with_authority(url: String, authority: Option<&Authority>) -> String {
    match authority {
        None => url,
        Some(authority) => {
            format!("{}?ca={}", url.replacen("redis+", "rediss+", 1), authority.ca().display())
        }
    }
}
