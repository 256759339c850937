//! The way in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::host::{Host, SystemHost};
use crate::identity::Identity;
use crate::lease::Lease;
use crate::mutex::Mutex;
use crate::session::{Session, User};
use crate::store::{
    AnyStore, Browse, Capabilities, Evicted, LISTING_KEYS_MAX, Snapshot, Stopped, Store, from_url,
    matches_pattern, quorum_from_urls,
};

/// A connection to a store, from which locks are made. Clones share it.
///
/// Guards keep what they need of it alive: the last client may go while locks are held.
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

/// What a [`shutdown`](Client::shutdown) achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How many releases the store confirmed meanwhile.
    pub released: usize,
    /// How many leases are left to their ttl: still held by a guard, or released without an answer.
    pub left_to_expire: usize,
}

/// The names that [`Client::list`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Listing {
    names: Vec<Key>,
    stopped: Option<Stopped>,
}

impl Listing {
    /// The names, in order.
    #[must_use]
    pub fn names(&self) -> &[Key] {
        &self.names
    }

    /// Why names may be missing; its text is for people. `None` if the list is whole.
    #[must_use]
    pub const fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }
}

impl IntoIterator for Listing {
    type Item = Key;
    type IntoIter = std::vec::IntoIter<Key>;

    fn into_iter(self) -> Self::IntoIter {
        self.names.into_iter()
    }
}

impl Client {
    /// Connects to the store that `url` names, with every option at its default. See [`from_url`]
    /// for the URLs.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for a URL that is not understood or a file that is not ours,
    /// [`Denied`](ErrorKind::Denied) for lack of rights, [`Unavailable`](ErrorKind::Unavailable) if
    /// the store could not be reached.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect().await
    }

    /// Options first, then [`connect`](ClientBuilder::connect).
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(Source::Url(url.to_owned()))
    }

    /// As [`builder`](Self::builder), for a [`Quorum`](crate::store::Quorum) of the stores that
    /// `urls` name, 1 to [`NODES_MAX`](crate::store::NODES_MAX) of them, which have to be
    /// independent of one another: then a minority may be out of reach. Every client names the same
    /// ones.
    ///
    /// To connect fails with [`Config`](ErrorKind::Config) for two URLs of one store, with
    /// [`Denied`](ErrorKind::Denied) if one of them refuses us, and with
    /// [`Unavailable`](ErrorKind::Unavailable) if no majority can be reached. The message names
    /// each node that cannot be used.
    pub fn quorum(urls: impl IntoIterator<Item = impl Into<String>>) -> ClientBuilder {
        ClientBuilder::new(Source::Quorum(urls.into_iter().map(Into::into).collect()))
    }

    /// As [`builder`](Self::builder), for a store that is there already: one of your own, or one
    /// that is decorated.
    pub fn with_store(store: impl Store) -> ClientBuilder {
        ClientBuilder::new(Source::Store(AnyStore::new(store)))
    }

    /// The lock of that name. Asks nobody: a bad name surfaces at the first call, see [`Key::new`].
    pub fn mutex(&self, name: impl Into<String>) -> Mutex {
        let name: Arc<str> = name.into().into();
        let key = self.key(&name);
        Mutex::new(Arc::clone(&self.user), name, key, self.ttl, self.lock_delay)
    }

    /// The lease of that name and token, which another process took and detached.
    pub fn lease(&self, name: impl Into<String>, token: OwnerToken) -> Lease {
        let name: Arc<str> = name.into().into();
        let key = self.key(&name);
        Lease::new(Arc::clone(self.user.session()), name, key, token, self.lock_delay)
    }

    /// What is known of a lock now: who holds it, who waits. For people and tools; never act on it.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for a bad name; whatever the store says if it could not be
    /// asked.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    pub async fn inspect(&self, name: &str) -> Result<Snapshot, Error> {
        let key = self.key(name)?;
        self.check_here().map_err(|error| error.about(name))?;
        self.user.session().store.inspect(key).await.map_err(|error| error.about(name))
    }

    /// The names that match `pattern` (`*` any run of characters, `?` any one) and that somebody
    /// holds or waits for, in order, without the namespace. At most
    /// [`LISTED_MAX`](Self::LISTED_MAX), and for a bounded time: [`Listing::stopped`] says whether
    /// names may be missing.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the store cannot list; whatever it says if it
    /// could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
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
                // The prefix may hold `*` or `?`, which then match more than themselves.
                let Some(name) = key.as_str().strip_prefix(&prefix) else { continue };
                if !matches_pattern(pattern, name) {
                    continue;
                }
                if names.len() == Self::LISTED_MAX {
                    stopped = Some(Stopped::Names(Self::LISTED_MAX));
                    return Ok(Listing { names, stopped });
                }
                // Somebody without the namespace may hold a name that is none in it.
                names.extend(Key::new(name));
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(Listing { names, stopped });
            }
        }
    }

    /// How many names one [`list`](Self::list) has at most.
    pub const LISTED_MAX: usize = LISTING_KEYS_MAX;

    /// Ends another's lease if its owner token is still the one that was `seen`, for instance in
    /// [`inspect`](Self::inspect). Its holder learns of it at its next renewal, and *may act until
    /// then*: use fencing tokens, or be sure that it is dead. `reason` goes to the log.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the store has no tools;
    /// [`Config`](ErrorKind::Config) for a bad name; whatever the store says if it could not be
    /// asked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer; the request may have taken effect.
    pub async fn evict(&self, name: &str, seen: &[u8], reason: &str) -> Result<Evicted, Error> {
        let key = self.key(name)?;
        self.check_here().map_err(|error| error.about(name))?;
        let browse = self.browse().map_err(|error| error.about(name))?;
        let answer = browse.evict(key, seen.to_vec(), reason.to_owned());
        answer.await.map_err(|error| error.about(name))
    }

    /// The public id of this client: the second half of its owner tokens, and what its place in a
    /// line is known by, see [`Waiter::id`](crate::store::Waiter::id).
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.user.session().id().clone()
    }

    /// Which store this is, without a password: for messages and logs.
    #[must_use]
    pub fn store_label(&self) -> String {
        self.user.session().store.label()
    }

    /// What the store promises.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.user.session().store.capabilities()
    }

    /// Closes this client and its clones, and drains it: nothing new is taken, who waits is told
    /// [`Closed`](ErrorKind::Closed). Then waits until every guard is released and every release is
    /// confirmed, for `grace` at most.
    ///
    /// Guards that are still there keep their leases, and keep them renewed: stopping the work
    /// under them is not for a client to do.
    ///
    /// # Cancel safety
    ///
    /// Dropped after its first poll, it has closed the client, and nobody hears what was left.
    pub async fn shutdown(self, grace: Duration) -> Shutdown {
        let (released, left_to_expire) = self.user.session().shut_down(grace).await;
        Shutdown { released, left_to_expire }
    }

    fn key(&self, name: &str) -> Result<Key, Error> {
        // The name by itself first: the error then speaks of what the user wrote.
        let key = Key::new(name)?;
        match &self.namespace {
            None => Ok(key),
            Some(namespace) => {
                Key::new(format!("{namespace}:{name}")).map_err(|error| error.about(name))
            }
        }
    }

    /// Refuses to use a copy that a fork made.
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

    /// Puts `namespace:` before every name, so that two applications on one store do not meet. Has
    /// no colon in it. Default: nothing.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The ttl of locks that say nothing else, from 10 ms to 24 h. Default: 10 s. See
    /// [`Mutex::ttl`].
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// What the store keeps a lease for beyond what its holder counts on: margin against short
    /// pauses and steps of the store's clock, paid only after a crash. Default: nothing. At most 24
    /// h.
    pub const fn lock_delay(mut self, lock_delay: Duration) -> Self {
        self.lock_delay = lock_delay;
        self
    }

    /// What the client says of itself. Default: [`Identity::process`].
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// Takes time, tasks and randomness from `host`, for simulation. Default: [`SystemHost`].
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = host;
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`]; [`Config`](ErrorKind::Config) also for a bad namespace, ttl or lock
    /// delay; [`Unavailable`](ErrorKind::Unavailable) also if the process may not start the thread
    /// that renews its locks.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind.
    pub async fn connect(self) -> Result<Client, Error> {
        let ttl = Ttl::new(self.ttl)?;
        if self.lock_delay > Ttl::MAX.get() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "a lock delay is 24 h at most, not {:?}; nothing was asked",
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
        // A quorum tries its nodes by locks of its own.
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
        // The URL is left out: there may be a password in it.
        f.debug_struct("ClientBuilder")
            .field("namespace", &self.namespace)
            .field("ttl", &self.ttl)
            .field("lock_delay", &self.lock_delay)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// A namespace ends at the first colon, or `a` with `b:c` would be the same lock as `a:b` with `c`.
fn check_namespace(namespace: &str) -> Result<(), Error> {
    let complaint = match Key::new(namespace) {
        Err(error) => error.to_string(),
        Ok(_) if namespace.contains(':') => "it has a colon in it".to_owned(),
        Ok(_) => return Ok(()),
    };
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "the namespace `{}` will not do: {complaint}; nothing was asked",
            namespace.escape_debug()
        ),
    ))
}
