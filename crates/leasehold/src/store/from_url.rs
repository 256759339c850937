//! Opens stores by URL.

use std::sync::Arc;

#[cfg(feature = "redis")]
use super::Store as _;
#[cfg(feature = "redis")]
use super::redis::Strictness;
use super::{AnyStore, BoxAnswer, MemoryStore, Quorum};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;

/// The schemes that this build understands.
const SCHEMES: &[&str] = &[
    #[cfg(feature = "redis")]
    "`redis://`",
    #[cfg(all(feature = "redis", feature = "tls"))]
    "`rediss://`",
    #[cfg(feature = "redis")]
    "`unix:`",
    #[cfg(feature = "redis")]
    "`redis+sentinel://`",
    #[cfg(all(feature = "redis", feature = "tls"))]
    "`rediss+sentinel://`",
    #[cfg(feature = "redis")]
    "`redis+cluster://`",
    #[cfg(all(feature = "redis", feature = "tls"))]
    "`rediss+cluster://`",
    #[cfg(feature = "etcd")]
    "`etcd://`",
    #[cfg(feature = "mysql")]
    "`mysql://`",
    #[cfg(feature = "postgres")]
    "`postgres://`",
    #[cfg(feature = "zookeeper")]
    "`zookeeper://`",
    #[cfg(feature = "sqlite")]
    "`sqlite:`",
    "`memory:`",
];

/// Opens the store that `url` names, on the clock of `host`.
///
/// | URL | store |
/// |---|---|
/// | `redis://[[user]:password@]host[:port][/db][?OPTIONS]` | a Redis or Valkey server |
/// | `rediss://…` | the same, over TLS |
/// | `unix:/path[?OPTIONS]` | the same, over a socket on this machine |
/// | `redis+sentinel://[[user]:password@]host,host/NAME[/db][?OPTIONS]` | the primary that these sentinels call NAME |
/// | `redis+cluster://[[user]:password@]host,host[?OPTIONS]` | a cluster of such servers |
/// | `rediss+sentinel://…`, `rediss+cluster://…` | the same, over TLS |
/// | `postgres://user[:password]@host[:port]/database[?OPTIONS]` | a schema of a PostgreSQL database |
/// | `mysql://user[:password]@host[:port]/database[?OPTIONS]` | a database of a MySQL or MariaDB server |
/// | `etcd://[user:password@]host,host[/PREFIX][?OPTIONS]` | keys of an etcd cluster |
/// | `zookeeper://[user:password@]host,host[/PATH][?OPTIONS]` | nodes of a ZooKeeper ensemble |
/// | `sqlite:/path`, `sqlite:path` | a file for the processes of one user on one machine |
/// | `memory:` | a new store in this process |
/// | `memory:NAME` | a store that this process shares under that name |
///
/// The default port is 6379 for Redis, 26379 for sentinels, 5432 for PostgreSQL, 3306 for MySQL,
/// 2379 for etcd, and 2181 for ZooKeeper. The default database of Redis is 0. OPTIONS are joined by
/// `&`. The page `docs/stores.md` in the repository lists them for each engine.
///
/// # Errors
///
/// [`ErrorKind::Config`] for a URL that cannot be understood, or the error of the store when it is
/// opened.
pub async fn from_url(url: &str, host: Arc<dyn Host>) -> Result<AnyStore, Error> {
    let Opened { store, reach, .. } = Opened::of(Named::of(url)?, host)?;
    reach.await?;
    Ok(store)
}

/// Opens the stores that `urls` name as a [`Quorum`]. A minority may be out of reach.
///
/// # Errors
///
/// Same as [`from_url`] and [`Quorum::connect`]. Also [`ErrorKind::Config`] if one URL says
/// `strict=yes` and another one `strict=no`.
pub async fn quorum_from_urls(
    urls: &[impl AsRef<str>],
    host: Arc<dyn Host>,
) -> Result<AnyStore, Error> {
    let open = |named| Opened::of(named, Arc::clone(&host));
    let named = Named::of_all(urls)?;
    #[cfg(feature = "_members")]
    check_members(&named)?;
    #[cfg(feature = "_sql")]
    check_databases(&named)?;
    let opened = named.into_iter().map(open).collect::<Result<Vec<_>, Error>>()?;
    #[cfg(feature = "redis")]
    {
        check_strictness(&opened)?;
        check_servers(&opened)?;
    }
    let stores = opened.into_iter().map(|opened| opened.store);
    Ok(AnyStore::new(Quorum::connect(stores, host).await?))
}

/// Refuses a cluster as a node, because it is a majority by itself, and nobody can raise its
/// fencing tokens.
#[cfg(feature = "_members")]
fn check_members(named: &[Named]) -> Result<(), Error> {
    for named in named {
        let (cluster, form) = match named {
            #[cfg(feature = "etcd")]
            Named::Etcd(_) => ("an etcd cluster", "etcd://H1,H2,H3"),
            #[cfg(feature = "zookeeper")]
            Named::Zookeeper(_) => ("a ZooKeeper ensemble", "zookeeper://H1,H2,H3"),
            _ => continue,
        };
        let message = format!(
            "{cluster} cannot be a node of a quorum, since its members are a quorum by themselves; \
             no request was sent; name all members in one URL, as in `{form}`"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

/// Refuses several databases or schemas at one address. One server would have several votes.
#[cfg(feature = "_sql")]
fn check_databases(named: &[Named]) -> Result<(), Error> {
    let address = |named: &Named| match named {
        #[cfg(feature = "mysql")]
        Named::Mysql(connector) => Some(Arc::clone(&connector.address)),
        #[cfg(feature = "postgres")]
        Named::Postgres(connector) => Some(Arc::clone(&connector.address)),
        _ => None,
    };
    let addresses: Vec<_> = named.iter().filter_map(address).collect();
    for (number, address) in addresses.iter().enumerate() {
        if let Some(other) = addresses[..number].iter().find(|other| other.place == address.place) {
            return Err(one_server(&other.label(), &address.label()));
        }
    }
    Ok(())
}

#[cfg(any(feature = "_sql", feature = "redis"))]
fn one_server(one: &str, other: &str) -> Error {
    let message = format!(
        "`{one}` and `{other}` are on one server, which would have two votes; no request was sent; \
         name independent servers"
    );
    Error::new(ErrorKind::Config, message)
}

/// Refuses several databases of one server. It would have several votes. The quorum itself
/// notices one server behind two addresses when it admits the nodes, if they name one database.
#[cfg(feature = "redis")]
fn check_servers(opened: &[Opened]) -> Result<(), Error> {
    let servers: Vec<_> =
        opened.iter().filter_map(|opened| Some((&opened.store, opened.redis.as_ref()?))).collect();
    for (number, (store, connector)) in servers.iter().enumerate() {
        let earlier = servers[..number].iter();
        let mut twice = earlier.filter(|(_, other)| connector.has_another_database_of(other));
        if let Some((other, _)) = twice.next() {
            return Err(one_server(&other.label(), &store.label()));
        }
    }
    Ok(())
}

/// Refuses URLs that contradict each other. Where a URL says nothing, the database decides, and the
/// quorum checks the node when it admits it.
#[cfg(feature = "redis")]
fn check_strictness(opened: &[Opened]) -> Result<(), Error> {
    let find = |is_meant: fn(Strictness) -> bool| {
        let strictness = |opened: &Opened| Some(opened.redis.as_ref()?.terms().strict);
        opened.iter().find(|opened| strictness(opened).is_some_and(is_meant))
    };
    let strict = find(|it| matches!(it, Strictness::Yes(_)));
    let other = find(|it| it == Strictness::No);
    let (Some(strict), Some(other)) = (strict, other) else { return Ok(()) };
    let message = format!(
        "`{}` is strict and `{}` is not, but a quorum needs one setting for all nodes; no request \
         was sent; write the same `strict` in all URLs or in none",
        strict.store.label(),
        other.store.label()
    );
    Err(Error::new(ErrorKind::Config, message))
}

/// A store that is open, or must still be reached.
struct Opened {
    store: AnyStore,
    reach: BoxAnswer<()>,
    #[cfg(feature = "redis")]
    redis: Option<super::redis::RedisConnector>,
}

impl Opened {
    fn of(named: Named, host: Arc<dyn Host>) -> Result<Self, Error> {
        /// A store that is reached over a network.
        #[allow(unused_macros, reason = "a build may have no such store")]
        macro_rules! far {
            ($store:ident, $connector:ident) => {{
                let store = super::$store::open($connector, host);
                let any = AnyStore::new(store.clone());
                (any, Box::pin(async move { store.reach().await }) as BoxAnswer<()>)
            }};
        }
        #[cfg(feature = "redis")]
        let redis = if let Named::Redis(it) = &named { Some(it.clone()) } else { None };
        let here = |store| (store, Box::pin(async { Ok(()) }) as BoxAnswer<()>);
        let (store, reach) = match named {
            Named::Memory(None) => here(AnyStore::new(MemoryStore::new(host))),
            Named::Memory(Some(name)) => here(AnyStore::new(MemoryStore::shared(&name, host))),
            #[cfg(feature = "sqlite")]
            Named::File(path) => here(AnyStore::new(super::SqliteStore::open(&path, host)?)),
            #[cfg(feature = "redis")]
            Named::Redis(connector) => far!(RedisStore, connector),
            #[cfg(feature = "etcd")]
            Named::Etcd(connector) => far!(EtcdStore, connector),
            #[cfg(feature = "mysql")]
            Named::Mysql(connector) => far!(MysqlStore, connector),
            #[cfg(feature = "postgres")]
            Named::Postgres(connector) => far!(PostgresStore, connector),
            #[cfg(feature = "zookeeper")]
            Named::Zookeeper(connector) => far!(ZookeeperStore, connector),
        };
        Ok(Self {
            store,
            reach,
            #[cfg(feature = "redis")]
            redis,
        })
    }
}

/// The store that a URL names. Nothing is opened yet.
pub(crate) enum Named {
    /// A store in this process, maybe one that is shared under a name.
    Memory(Option<String>),
    #[cfg(feature = "redis")]
    Redis(super::redis::RedisConnector),
    #[cfg(feature = "etcd")]
    Etcd(super::etcd::EtcdConnector),
    #[cfg(feature = "mysql")]
    Mysql(super::mysql::MysqlConnector),
    #[cfg(feature = "postgres")]
    Postgres(super::postgres::PostgresConnector),
    #[cfg(feature = "sqlite")]
    File(std::path::PathBuf),
    #[cfg(feature = "zookeeper")]
    Zookeeper(super::zookeeper::ZookeeperConnector),
}

impl Named {
    /// Reads some URLs. An error says which one it is about.
    pub(crate) fn of_all(urls: &[impl AsRef<str>]) -> Result<Vec<Self>, Error> {
        let all = urls.len();
        let read = |(number, url): (usize, &_)| {
            let read = Self::of(AsRef::as_ref(url));
            read.map_err(|error| match all {
                1 => error,
                _ => error.at(&format!("URL {} of {all}", number + 1)),
            })
        };
        urls.iter().enumerate().map(read).collect()
    }

    /// Reads a URL.
    pub(crate) fn of(url: &str) -> Result<Self, Error> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(no_scheme(url, "it has no scheme"));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "memory" if rest.is_empty() => Ok(Self::Memory(None)),
            "memory" => Ok(Self::Memory(Some(rest.to_owned()))),
            // `RedisConnector::new` refuses TLS if it is not there.
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "unix" | "redis+sentinel" | "rediss+sentinel"
            | "redis+cluster" | "rediss+cluster" => {
                Ok(Self::Redis(super::redis::RedisConnector::new(url)?))
            }
            #[cfg(feature = "etcd")]
            "etcd" => Ok(Self::Etcd(super::etcd::EtcdConnector::new(url)?)),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Ok(Self::Mysql(super::mysql::MysqlConnector::new(url)?)),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                Ok(Self::Postgres(super::postgres::PostgresConnector::new(url)?))
            }
            #[cfg(feature = "zookeeper")]
            "zookeeper" => Ok(Self::Zookeeper(super::zookeeper::ZookeeperConnector::new(url)?)),
            #[cfg(feature = "sqlite")]
            "sqlite" => {
                let path = sqlite_path(rest).map_err(|reason| {
                    not_understood(url, reason, "write `sqlite:PATH` with the path of a file")
                })?;
                Ok(Self::File(path.into()))
            }
            "valkey" => Err(no_scheme(url, "write `redis://` for a Valkey server too")),
            scheme => Err(not_built(url, scheme)),
        }
    }
}

/// The path after `sqlite:`. Refuses URLs that only mean something to other tools. They would
/// become files with strange names.
#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<&str, &'static str> {
    // Other tools write an absolute path as `sqlite:///path`.
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err("it has a host where a path belongs"),
        None => rest,
    };
    if path.is_empty() {
        Err("it names no file")
    } else if path.starts_with(':') {
        Err("write `memory:` for a store in memory")
    } else if path.starts_with('~') {
        Err("`~` is not expanded; write the path in full")
    } else if path.contains('?') {
        Err("it takes no options after `?`")
    } else {
        Ok(path)
    }
}

/// The error for a scheme that this build does not know.
fn not_built(url: &str, scheme: &str) -> Error {
    let needed = match scheme {
        "redis" | "unix" | "redis+sentinel" | "redis+cluster" => "the feature `redis`",
        "rediss" | "rediss+sentinel" | "rediss+cluster" => "the features `redis` and `tls`",
        "postgres" | "postgresql" => "the feature `postgres`",
        "mysql" | "mariadb" => "the feature `mysql`",
        "etcd" => "the feature `etcd`",
        "zookeeper" => "the feature `zookeeper`",
        "sqlite" => "the feature `sqlite`",
        _ => return no_scheme(url, "its scheme is not known"),
    };
    let what_to_do = format!("build the crate `leasehold` with {needed}");
    not_understood(url, "this build was made without that store", &what_to_do)
}

fn no_scheme(url: &str, reason: &str) -> Error {
    not_understood(url, reason, &format!("use one of {}", SCHEMES.join(", ")))
}

fn not_understood(url: &str, reason: &str, what_to_do: &str) -> Error {
    let shown = redact_url(url);
    Error::new(
        ErrorKind::Config,
        format!(
            "the store URL `{shown}` is not understood: {reason}; no request was sent; {what_to_do}"
        ),
    )
}

/// The URL without possible passwords: without the text between the scheme and the last `@`,
/// without the text after `?`, and without that after a word such as `password=`. Of a text that is
/// no URL, only the first word is shown. Control characters are escaped. For messages and logs.
#[must_use]
pub fn redact_url(url: &str) -> String {
    // A password may have any characters, so cut what follows these words.
    let lower = url.to_ascii_lowercase();
    let secret = ["password=", "passwd=", "pwd="].iter().filter_map(|word| lower.find(word)).min();
    let (url, rest) = url.split_at(secret.unwrap_or(url.len()));
    if rest.contains('@') && !url.contains('?') {
        // The word is part of a login.
        return url
            .split_once("://")
            .map_or_else(|| "…".to_owned(), |(scheme, _)| format!("{scheme}://…"));
    }
    let (base, options) = match url.split_once('?') {
        Some((base, _)) => (base, "?…"),
        None => (url, ""),
    };
    let shown = match (base.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{}", until_options(host)),
        (Some((scheme, rest)), None) if has_words_for_a_port(rest) => format!("{scheme}://…"),
        (None, Some((_, host))) => format!("…@{}", until_options(host)),
        (None, None) if !is_path(base) => {
            // The connection strings of other libraries are lists of words.
            base.split([',', ';', '=', ' ']).next().unwrap_or_default().to_owned()
        }
        (_, None) => base.to_owned(),
    };
    (shown + options).escape_debug().to_string()
}

/// Whether a text without `://` names a file, a socket or memory.
fn is_path(url: &str) -> bool {
    ["sqlite:", "unix:", "memory:"].iter().any(|scheme| url.starts_with(scheme))
}

/// Whether there may be a user and a password without an `@`: anything but digits where a port
/// could be.
fn has_words_for_a_port(rest: &str) -> bool {
    let is_digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit() || byte == b']');
    rest.split('/').any(|part| !part.split(':').skip(1).all(is_digits))
}

/// A password may contain `?`, so the host ends at the first `?` after the last `@`.
fn until_options(host: &str) -> &str {
    host.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
