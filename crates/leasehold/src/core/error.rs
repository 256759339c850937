//! Errors, sorted by what the caller should do about them.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use super::claim::Usage;

/// The longest name of a lock. A longer name is refused and not shown.
pub(super) const NAME_BYTES_MAX: usize = 512;

/// Why an operation failed, sorted by what the caller should do next.
///
/// A *taken* lock is not an error: [`Mutex::try_lock`](crate::Mutex::try_lock) returns `Ok(None)`.
///
/// | kind | exit code of the command | what to do |
/// |---|---|---|
/// | [`Config`](Self::Config) | 78 | fix the call, the URL or the file; a retry cannot help |
/// | [`Denied`](Self::Denied) | 77 | fix credentials, rights or file permissions |
/// | [`Unavailable`](Self::Unavailable) | 69 | retry later; no grant is left |
/// | [`Unknown`](Self::Unknown) | 69 | it may have taken effect; wait one ttl, or inspect |
/// | [`Lost`](Self::Lost) | 79 | stop the protected work now |
/// | [`Unsupported`](Self::Unsupported) | 78 | use a store that promises this |
/// | [`WaitElapsed`](Self::WaitElapsed) | 75 | taken all the time, or quarantine; wait longer |
/// | [`Closed`](Self::Closed) | 125 | the client was shut down; connect a new one |
///
/// # Examples
///
/// Kinds will be added, so a `match` needs a last arm:
///
/// ```
/// use leasehold::{Error, ErrorKind};
///
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::WaitElapsed => 409,
///         ErrorKind::Unavailable | ErrorKind::Unknown => 503,
///         _ => 500,
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let error = client.mutex("").lock().await.expect_err("a lock needs a name");
/// assert_eq!((error.kind(), status(&error)), (ErrorKind::Config, 500));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request contradicts itself or cannot be understood: a bad name, ttl or URL, or a key or
    /// file of another kind.
    Config,
    /// The store refused because credentials or rights are missing.
    Denied,
    /// The store could not be reached, refused, or undid the request. No grant is left. This is
    /// also the kind if the line is full, or if a caller that does not wait asks a store in
    /// quarantine.
    Unavailable,
    /// The request was sent and no answer came, so it may have taken effect. The client cleans up
    /// in the background.
    Unknown,
    /// The lease ended before this call could confirm it. Stop the protected work.
    Lost,
    /// The store does not offer what was requested, see
    /// [`Capabilities`](crate::store::Capabilities).
    Unsupported,
    /// The wait ended while another client held the lock, or while the store was in quarantine.
    WaitElapsed,
    /// The client was shut down.
    Closed,
}

impl ErrorKind {
    /// Every kind, for tables and documentation.
    pub const ALL: &'static [Self] = &[
        Self::Config,
        Self::Denied,
        Self::Unavailable,
        Self::Unknown,
        Self::Lost,
        Self::Unsupported,
        Self::WaitElapsed,
        Self::Closed,
    ];

    /// The exit code of the `leasehold` command for this kind. The values are those of sysexits(3),
    /// and 79 is the first value above them.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Unavailable | Self::Unknown => 69,
            Self::WaitElapsed => 75,
            Self::Denied => 77,
            Self::Config | Self::Unsupported => 78,
            Self::Lost => 79,
            Self::Closed => 125,
        }
    }

    /// Whether the same call may succeed later although nobody changes anything.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Unknown | Self::WaitElapsed)
    }

    /// One lower-case word for messages and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
            Self::Unsupported => "unsupported",
            Self::WaitElapsed => "wait-elapsed",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of every call that can fail.
///
/// Branch on [`kind`](Self::kind), show the message, and follow [`source`](StdError::source) to the
/// cause. The message says what happened, in what state the lock is, and what to do next.
///
/// `Debug` shows the message with its causes and its kind, since that is what people see if `main`
/// returns an error. `{:#?}` shows the fields.
///
/// # Examples
///
/// A handler that waits for at most two seconds, and tells its caller what to do:
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Client, ErrorKind};
///
/// async fn place(client: &Client) -> u16 {
///     match client.mutex("order:42").lock_timeout(Duration::from_secs(2)).await {
///         Ok(_guard) => 201,
///         // Another client has the lock: come back later.
///         Err(error) if error.kind() == ErrorKind::WaitElapsed => 409,
///         // The store is away for now.
///         Err(error) if error.is_retryable() => 503,
///         Err(error) => {
///             eprintln!("{error}");
///             500
///         }
///     }
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = Client::connect("memory:").await?;
/// assert_eq!(place(&client).await, 201);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    name: Option<String>,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The use of the key by others, if the request did not fit it.
    usage: Option<Usage>,
}

impl Error {
    /// Makes an error of `kind`. Write `message` in lower case, without a full stop and without
    /// secrets.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { inner: Arc::new(Inner { kind, name: None, message, source: None, usage: None }) }
    }

    /// Adds the name of the lock, unless one is set already.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.inner).name.get_or_insert_with(|| name.into());
        self
    }

    /// Sets the name of the lock to the user's name, which replaces the name that the store used.
    /// An empty name sets none.
    #[must_use]
    pub(crate) fn about(mut self, name: &str) -> Self {
        let is_shown = !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        Arc::make_mut(&mut self.inner).name = is_shown.then(|| name.to_owned());
        self
    }

    /// Removes the name, because the error is not about one lock.
    #[must_use]
    pub(crate) fn about_no_lock(mut self) -> Self {
        Arc::make_mut(&mut self.inner).name = None;
        self
    }

    /// Puts the name of the store in front of the message, unless it is there.
    #[must_use]
    pub(crate) fn at(mut self, store: &str) -> Self {
        let is_there =
            self.inner.message.strip_prefix(store).is_some_and(|it| it.starts_with(": "));
        if !is_there {
            let inner = Arc::make_mut(&mut self.inner);
            inner.message = format!("{store}: {}", inner.message);
        }
        self
    }

    /// Makes it the error of a call whose earlier request got no answer.
    #[must_use]
    pub(crate) fn in_doubt(mut self) -> Self {
        let inner = Arc::make_mut(&mut self.inner);
        inner.kind = ErrorKind::Unknown;
        inner.message += "; an earlier request got no answer; a late grant is released";
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Arc::make_mut(&mut self.inner).source = Some(Arc::from(source.into()));
        self
    }

    /// Notes the use of the key by others, which the request did not fit.
    #[must_use]
    pub(crate) fn with_usage(mut self, usage: Usage) -> Self {
        Arc::make_mut(&mut self.inner).usage = Some(usage);
        self
    }

    /// The use of the key by others, if the request did not fit it.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.inner.usage
    }

    /// The message, without the name of the lock.
    pub(crate) fn message(&self) -> &str {
        &self.inner.message
    }

    /// The kind, which tells what to do about the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The name of the lock as the caller gave it, without a namespace. `None` if the error is not
    /// about one lock, as when connecting or listing. Also `None` if the name was empty or too
    /// long.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.inner.name.as_deref()
    }

    /// Whether the same call may succeed later, see [`ErrorKind::is_retryable`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.inner.name {
            // Names are untrusted. A control character must not reach a terminal through an error
            // message.
            write!(f, "`{}`: ", name.escape_debug())?;
        }
        f.write_str(&self.inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            let Inner { kind, name, message, source, .. } = &*self.inner;
            let mut parts = f.debug_struct("Error");
            parts.field("kind", kind).field("name", name).field("message", message);
            return parts.field("source", source).finish();
        }
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(current) = cause {
            // Many errors repeat their cause in their own text.
            let said = current.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = current.source();
        }
        write!(f, "{text} ({})", self.kind())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_pinned_exit_code() {
        let table = [
            (ErrorKind::Config, 78, false),
            (ErrorKind::Denied, 77, false),
            (ErrorKind::Unavailable, 69, true),
            (ErrorKind::Unknown, 69, true),
            (ErrorKind::Lost, 79, false),
            (ErrorKind::Unsupported, 78, false),
            (ErrorKind::WaitElapsed, 75, true),
            (ErrorKind::Closed, 125, false),
        ];
        assert_eq!(table.map(|row| row.0), ErrorKind::ALL);
        for (kind, code, retryable) in table {
            assert_eq!(kind.exit_code(), code, "{kind}");
            assert_eq!(kind.is_retryable(), retryable, "{kind}");
        }
    }

    #[test]
    fn an_error_names_its_store_once() {
        let error = Error::new(ErrorKind::Unavailable, "no server").at("redis://a");
        assert_eq!(error.clone().at("redis://a").message(), "redis://a: no server");
        assert_eq!(error.at("redis://").message(), "redis://: redis://a: no server");
    }

    #[test]
    fn an_error_names_the_lock_and_keeps_its_cause() {
        let cause = std::io::Error::other("disk on fire");
        let error = Error::new(ErrorKind::Unavailable, "cannot ask")
            .with_name("a\u{1b}[31m")
            .with_source(cause);
        assert_eq!(error.to_string(), "`a\\u{1b}[31m`: cannot ask");
        assert_eq!(error.source().expect("a cause").to_string(), "disk on fire");
        let shown = "`a\\u{1b}[31m`: cannot ask: disk on fire (unavailable)";
        assert_eq!(format!("{error:?}"), shown, "as `main` shows what it returns");
        assert!(format!("{error:#?}").contains("kind: Unavailable"), "{error:#?}");
        assert_eq!(error.with_name("other").name(), Some("a\u{1b}[31m"));
    }

    #[test]
    fn an_error_names_the_lock_as_its_user_does_if_the_name_can_be_shown() {
        let error = Error::new(ErrorKind::Lost, "it is so").with_name("namespace:a");
        let longest = "x".repeat(NAME_BYTES_MAX);
        let too_long = "x".repeat(NAME_BYTES_MAX + 1);
        for (name, shown) in
            [("a", Some("a")), ("", None), (&*longest, Some(&*longest)), (&*too_long, None)]
        {
            assert_eq!(error.clone().about(name).name(), shown);
        }
        assert_eq!(error.about_no_lock().name(), None);
    }
}
