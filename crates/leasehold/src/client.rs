//! The client: connects to a store and makes locks.

mod revoking;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::election::Election;
use crate::host::{Host, SystemHost};
use crate::identity::Identity;
use crate::latch::Latch;
use crate::lease::Lease;
use crate::listing::Listing;
use crate::locking::Locking;
use crate::multi_lock::MultiLock;
use crate::mutex::Mutex;
use crate::once::Once;
use crate::rate_limit::RateLimit;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::{Session, User};
use crate::store::{
    AnyStore, Browse, Capabilities, LISTING_KEYS_MAX, Snapshot, Stopped, Store, from_url,
    matches_pattern, quorum_from_urls,
};

/// A connection to a store, which makes locks. Clones share it.
///
/// You may drop the last client while locks are held: guards keep alive what they need.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Client;
///
/// let client = Client::connect("memory:").await?;
/// let guard = client.mutex("order:42").lock().await?;
/// println!("mine, with fencing token {:?}", guard.fencing_token());
/// let _released = guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    user: Arc<User>,
    namespace: Option<Arc<str>>,
    ttl: Ttl,
    lock_delay: Duration,
}

/// The outcome of a [`shutdown`](Client::shutdown).
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.mutex("a").lock().await?;
/// // On a signal: stop the work, drop its guards, and wait until the store knows.
/// drop(guard);
/// let ended = client.shutdown(Duration::from_secs(5)).await;
/// assert_eq!(ended.not_released, 0, "all locks are free");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`not_released` tells whether leases are left"]
#[non_exhaustive]
pub struct Shutdown {
    /// How many releases the store confirmed during the shutdown.
    pub released: usize,
    /// How many leases were not released: a guard holds them, a call is still asking for them, or
    /// their release got no answer. Guards go on renewing their leases. Other leases end by their
    /// ttl.
    pub not_released: usize,
}

impl Client {
    /// Connects to the store that `url` names, with default options. See [`from_url`] for the URLs.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for a URL that cannot be understood or a file that is not a
    /// Leasehold store. [`Denied`](ErrorKind::Denied) if rights are missing.
    /// [`Unsupported`](ErrorKind::Unsupported) if the server lacks something that the URL demands.
    /// [`Unavailable`](ErrorKind::Unavailable) if the store could not be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind. A new `sqlite:` file stays, and a
    /// [quorum](Self::quorum) may leave a lease that it probed its nodes with, for 5 seconds.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Sets options before it connects. See [`connect`](ClientBuilder::connect).
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(Source::Url(url.to_owned()))
    }

    /// Like [`builder`](Self::builder), for a [`Quorum`](crate::store::Quorum) of 1 to
    /// [`NODES_MAX`](crate::store::NODES_MAX) stores. The stores must be independent of one
    /// another. Then a minority may be out of reach. Every client must name the same stores.
    ///
    /// Connecting fails with [`Config`](ErrorKind::Config) if two URLs name the same store. It
    /// fails with [`Denied`](ErrorKind::Denied) if a store refuses the client, and with
    /// [`Unavailable`](ErrorKind::Unavailable) if no majority can be reached. The message names
    /// each node that cannot be used.
    pub fn quorum(urls: impl IntoIterator<Item = impl Into<String>>) -> ClientBuilder {
        ClientBuilder::new(Source::Quorum(urls.into_iter().map(Into::into).collect()))
    }

    /// Like [`builder`](Self::builder), for a store value: your own store, or a wrapped one.
    pub fn with_store(store: impl Store) -> ClientBuilder {
        ClientBuilder::new(Source::Store(AnyStore::new(store)))
    }

    /// Makes the lock of that name, without a request. A bad name is reported by the first call,
    /// see [`Key::new`].
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        Mutex::new(self.locking(name.into()))
    }

    /// Makes the lock of that name for readers and writers, without a request. A bad name is
    /// reported by the first call.
    pub fn rwlock(&self, name: impl Into<String>) -> RwLock {
        RwLock::new(self.locking(name.into()))
    }

    /// Makes the semaphore of that name with `permits` permits in total, without a request. A bad
    /// name or number is reported by the first call.
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Semaphore {
        Semaphore::new(self.locking(name.into()), permits)
    }

    /// Makes a lock of several names, which are taken together or not at all. Sends no request. The
    /// first call reports a bad name, a name that is given twice, and no name at all.
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl Into<String>>) -> MultiLock {
        MultiLock::new(names.into_iter().map(|name| self.locking(name.into())).collect())
    }

    fn locking(&self, name: String) -> Locking {
        let name: Arc<str> = name.into();
        let key = self.key(&name);
        Locking::new(Arc::clone(&self.user), name, key, self.ttl, self.lock_delay)
    }

    /// Makes the election of that name, without a request. A bad name is reported by the first
    /// call.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.locking(name.into()), self.ttl)
    }

    /// Makes the work of that name, which is done once per period, without a request. A bad name or
    /// period is reported by the first call.
    pub fn once(&self, name: impl Into<String>, period: Duration) -> Once {
        Once::new(self.locking(name.into()), period)
    }

    /// Makes the limit of that name: at most `starts` starts in each period of length `per`. Sends
    /// no request. The first call reports a bad name or number.
    pub fn rate_limit(&self, name: impl Into<String>, starts: u32, per: Duration) -> RateLimit {
        RateLimit::new(self.locking(name.into()), starts, per)
    }

    /// Makes the latch of that name, which opens after `count` counts, without a request. The first
    /// call reports a bad name or count.
    pub fn latch(&self, name: impl Into<String>, count: u32) -> Latch {
        Latch::new(self.locking(name.into()), count)
    }

    /// Makes a handle for a lease that another process acquired and detached. Its release hands the
    /// lock to the next waiter, even if the lock was taken with
    /// [`Coexist::On`](crate::Coexist::On).
    pub fn lease(&self, name: impl Into<String>, token: OwnerToken) -> Lease {
        let name: Arc<str> = name.into().into();
        let key = self.key(&name);
        Lease::new(Arc::clone(self.user.session()), name, key, token, self.lock_delay)
    }

    /// Shows the holder and the waiters of a lock. Use it for people and tools, never for
    /// decisions.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for a bad name, or the error of the store if it gives no
    /// answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn inspect(&self, name: &str) -> Result<Snapshot, Error> {
        let key = self.key(name)?;
        self.check_here().map_err(|error| error.about(name))?;
        self.user.session().store.inspect(key).await.map_err(|error| error.about(name))
    }

    /// Lists the names that match `pattern` and have a holder or waiters. `*` matches any run of
    /// characters, `?` any single one. The names are sorted and come without the namespace.
    ///
    /// Returns at most [`LISTED_MAX`](Self::LISTED_MAX) names and takes a bounded time.
    /// [`Listing::stopped`] tells whether names may be missing.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the store cannot list, or the error of the store
    /// if it gives no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let _guard = client.mutex("job:7").lock().await?;
    /// for name in client.list("job:*").await? {
    ///     assert!(client.mutex(name).try_lock().await?.is_none(), "somebody has it");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn list(&self, pattern: &str) -> Result<Listing, Error> {
        self.check_here()?;
        let prefix =
            self.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}:"));
        let whole = format!("{prefix}{pattern}");
        let (mut names, mut stopped) = (Vec::new(), None);
        let mut cursor = None;
        loop {
            let page = self.browse()?.list(&whole, cursor).await;
            let page = page.map_err(Error::about_no_lock)?;
            stopped = stopped.or(page.stopped);
            for key in page.keys {
                // The prefix may contain `*` or `?`, which also match other characters.
                let Some(name) = key.as_str().strip_prefix(&prefix) else { continue };
                if !matches_pattern(pattern, name) {
                    continue;
                }
                if names.len() == Self::LISTED_MAX {
                    stopped = Some(Stopped::Names(Self::LISTED_MAX));
                    return Ok(Listing::new(names, stopped));
                }
                // A client without the namespace may hold a key that is not a valid name in the
                // namespace.
                names.extend(Key::new(name));
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Listing::new(names, stopped));
            }
        }
    }

    /// The highest number of names in one [`list`](Self::list).
    pub const LISTED_MAX: usize = LISTING_KEYS_MAX;

    /// The public id of this client. It is the second half of its owner tokens, and names its place
    /// in a line, see [`Waiter::id`](crate::store::Waiter::id).
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.user.session().id().clone()
    }

    /// The name of the store for messages and logs, without a password.
    #[must_use]
    pub fn store_label(&self) -> String {
        self.user.session().store.label()
    }

    /// The promises of the store.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.user.session().store.capabilities()
    }

    /// Closes this client and its clones. They acquire nothing new, and their waiters get
    /// [`Closed`](ErrorKind::Closed). Then it waits at most `grace` until every guard is released
    /// and every release is confirmed.
    ///
    /// Guards that remain keep their leases, and the library goes on renewing them, because a
    /// client does not stop the work of a holder.
    ///
    /// # Cancel safety
    ///
    /// The first poll closes the client. Dropping the future after that loses only the counts.
    pub async fn shutdown(self, grace: Duration) -> Shutdown {
        let (released, not_released) = self.user.session().shut_down(grace).await;
        Shutdown { released, not_released }
    }

    fn key(&self, name: &str) -> Result<Key, Error> {
        // The name is checked alone first, so that the error speaks of the user's text.
        let key = Key::new(name)?;
        match &self.namespace {
            None => Ok(key),
            Some(namespace) => Key::new(format!("{namespace}:{name}")).map_err(|error| {
                let message = format!("together with the namespace `{namespace}`: {error}");
                Error::new(error.kind(), message).about(name)
            }),
        }
    }

    /// Refuses to work in the child of a fork.
    fn check_here(&self) -> Result<(), Error> {
        self.user.session().check_here()
    }

    fn browse(&self) -> Result<&dyn Browse, Error> {
        self.user.session().store.browse().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "this store cannot list or end the leases of others; nothing was done",
            )
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.store_label())
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// The options of a [`Client`].
///
/// # Examples
///
/// A service that shares its server with others, and locks for 30 seconds at a time:
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::builder("memory:")
///     .namespace("billing")
///     .ttl(Duration::from_secs(30))
///     .connect()
///     .await?;
/// let guard = client.mutex("invoice:7").lock().await?;
/// assert_eq!(guard.name(), "invoice:7");
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    source: Source,
    namespace: Option<String>,
    ttl: Duration,
    lock_delay: Duration,
    identity: Identity,
    host: Arc<dyn Host>,
}

enum Source {
    Url(String),
    Quorum(Vec<String>),
    Store(AnyStore),
}

impl ClientBuilder {
    fn new(source: Source) -> Self {
        Self {
            source,
            namespace: None,
            ttl: Ttl::DEFAULT.get(),
            lock_delay: Duration::ZERO,
            identity: Identity::process(),
            host: SystemHost::shared(),
        }
    }

    /// Puts `namespace:` before every name, so that two applications can share one store. A
    /// namespace must not contain a colon. Default: none.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the ttl of locks that do not set their own, from 10 ms to 24 h. Default: 10 s. See
    /// [`Mutex::ttl`].
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Makes the store keep each lease longer than its holder relies on it. This margin covers
    /// short pauses and clock steps of the store. If a guard outlives its deadline, the key stays
    /// taken until the delay is over or the guard ends. So drop a lost guard before you lock again.
    /// The margin delays others after a crash. It also delays them after a lock that [stays
    /// taken](crate::Guard::keep_for) for only a little longer than its guard. Default: zero. Must
    /// be at most 24 h.
    pub const fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self
    }

    /// Sets how the client describes itself to others. Default: [`Identity::process`].
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Takes time, tasks and randomness from `host`. For simulation. Default: [`SystemHost`].
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = host;
        self
    }

    /// Connects to the store.
    ///
    /// # Errors
    ///
    /// Same as [`Client::connect`]. Also [`Config`](ErrorKind::Config) for a bad namespace, ttl or
    /// lock delay, and [`Unavailable`](ErrorKind::Unavailable) if the process cannot start the
    /// thread that renews locks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind. A new `sqlite:` file stays, and a
    /// [quorum](Client::quorum) may leave a lease that it probed its nodes with, for 5 seconds.
    pub async fn connect(self) -> Result<Client, Error> {
        let ttl = Ttl::new(self.ttl)?;
        if self.lock_delay > Ttl::MAX.get() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "a lock delay must be at most 24 h, not {:?}; no request was sent",
                    self.lock_delay
                ),
            ));
        }
        if let Some(namespace) = &self.namespace {
            check_namespace(namespace)?;
        }
        self.host.start()?;
        let store = match self.source {
            Source::Store(store) => Ok(store),
            Source::Url(url) => from_url(&url, Arc::clone(&self.host)).await,
            Source::Quorum(urls) => quorum_from_urls(&urls, Arc::clone(&self.host)).await,
        };
        // A quorum tests its nodes with locks that the caller did not name.
        let store = store.map_err(Error::about_no_lock)?;
        let mut random = [0; ClientId::CHARS];
        self.host.random(&mut random);
        let id = ClientId::from_random(random);
        let record = self.identity.record(&id);
        Ok(Client {
            user: User::new(Session::open(store, self.host, id, record)),
            namespace: self.namespace.map(Into::into),
            ttl,
            lock_delay: self.lock_delay,
        })
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leave the URL out, since it may contain a password.
        f.debug_struct("ClientBuilder")
            .field("namespace", &self.namespace)
            .field("ttl", &self.ttl)
            .field("lock_delay", &self.lock_delay)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Checks that a namespace has no colon. Otherwise `a` with `b:c` would be the same lock as `a:b`
/// with `c`.
fn check_namespace(namespace: &str) -> Result<(), Error> {
    let has_colon = || namespace.contains(':').then(|| "it has a colon in it".to_owned());
    let Some(complaint) = Key::complaint(namespace).or_else(has_colon) else { return Ok(()) };
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "the namespace `{}` cannot be used: {complaint}; no request was sent; choose another \
             one",
            namespace.escape_debug()
        ),
    ))
}
