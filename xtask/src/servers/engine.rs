//! The kinds of servers: which tests use them, and how the tests find them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::{step, suite};

/// The file of ZooKeeper in its package.
pub(super) const ZOOKEEPER_JAR: &str = "usr/share/java/zookeeper.jar";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Redis and Valkey.
    Redis,
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    Etcd,
    Zookeeper,
}

/// The tests that use a server.
pub(super) struct Tests {
    pub(super) package: &'static str,
    /// The tests to run, by a part of their name; all if the list is empty.
    pub(super) chosen: &'static [&'static str],
    /// The tests to leave out, by a part of their name. They use no such server, or take long and
    /// are about the client, so that one kind of server is enough.
    pub(super) elsewhere: &'static [&'static str],
}

const ON_REDIS: [Tests; 3] = [
    Tests {
        package: "leasehold-testkit",
        chosen: &[],
        elsewhere: &[
            "conformance::memory",
            "conformance::own",
            suite::ON_ETCD,
            suite::ON_MYSQL,
            suite::ON_POSTGRES,
            suite::ON_ZOOKEEPER,
            "conformance::sqlite",
            "contention::",
            "fuzz::",
            "mixture::",
            "session::cancelling::a_dropped_guard_is_never",
            "session::coexisting::a_release_that_is_repeated",
            "session::driving::an_outage",
            "session::failing::a_release_that_is_not_answered",
            "session::soak",
            "session::waiting::those_far_back",
            "simulation::",
        ],
    },
    Tests { package: "leasehold-compat", chosen: &[], elsewhere: &[] },
    Tests { package: "leasehold-cli", chosen: &["redis::", "doctor::"], elsewhere: &[] },
];

/// The tests with such a part of their name.
const fn named(chosen: &'static [&'static str]) -> [Tests; 2] {
    [
        Tests { package: "leasehold-testkit", chosen, elsewhere: &[] },
        Tests { package: "leasehold-cli", chosen, elsewhere: &[] },
    ]
}

const ON_POSTGRES: [Tests; 2] = named(&[suite::ON_POSTGRES]);
const ON_MYSQL: [Tests; 2] = named(&[suite::ON_MYSQL]);
const ON_ETCD: [Tests; 2] = named(&[suite::ON_ETCD]);
const ON_ZOOKEEPER: [Tests; 2] = named(&[suite::ON_ZOOKEEPER]);

impl Engine {
    /// The tests that use it.
    pub(super) const fn tests(self) -> &'static [Tests] {
        match self {
            Self::Redis => &ON_REDIS,
            Self::Postgres => &ON_POSTGRES,
            Self::Mysql => &ON_MYSQL,
            Self::Etcd => &ON_ETCD,
            Self::Zookeeper => &ON_ZOOKEEPER,
        }
    }

    /// Whether the server at that path can be used.
    pub(super) fn runs(self, server: &Path) -> bool {
        match self {
            Self::Zookeeper => server.is_file(),
            _ => step::succeeds(Command::new(server).arg("--version")),
        }
    }

    /// The variables by which the tests find the server at that path. Most tests look for the
    /// programs in PATH, and the tests of the simulated server look there for Valkey.
    pub(super) fn environment(
        self,
        server: &Path,
    ) -> Result<Vec<(&'static str, OsString)>, String> {
        let folder = server.parent().expect("it lies in a folder");
        let path = ("PATH", in_front(folder)?);
        let it = |name| (name, server.into());
        Ok(match self {
            Self::Redis if server.ends_with("valkey-server") => {
                vec![path, it("LEASEHOLD_TEST_SERVER")]
            }
            Self::Redis => vec![it("LEASEHOLD_TEST_SERVER")],
            Self::Mysql if server.ends_with("mysqld") => vec![path, it("LEASEHOLD_TEST_MYSQLD")],
            Self::Zookeeper => {
                let jar = server.canonicalize().map_err(|error| format!("{server:?}: {error}"))?;
                let folder = jar.parent().expect("it lies in a folder");
                vec![("LEASEHOLD_TEST_ZOOKEEPER", folder.into())]
            }
            Self::Postgres | Self::Mysql | Self::Etcd => vec![path],
        })
    }
}

/// PATH with a folder in front.
fn in_front(folder: &Path) -> Result<OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).map_err(|error| format!("cannot add to PATH: {error}"))
}
