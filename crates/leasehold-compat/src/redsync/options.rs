//! How a mutex is to be.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::Store;
use leasehold::{Error as Cause, ErrorKind, Key, OwnerToken, Ttl};

use super::Mutex;
use super::error::Error;
use crate::value::base64_of_16_bytes;

/// Between two tries, in whole milliseconds: at least so many, and fewer than so many more.
const DELAY_LEAST_MS: u64 = 50;
const DELAY_SPAN_MS: u8 = 200;

type DelayFunc = Arc<dyn Fn(u32) -> Duration + Send + Sync>;
type GenValueFunc = Arc<dyn Fn() -> Result<String, Arc<dyn StdError + Send + Sync>> + Send + Sync>;

pub(super) struct Options {
    expiry: Duration,
    pub(super) tries: u32,
    delay: Option<DelayFunc>,
    drift_factor: f64,
    timeout_factor: f64,
    gen_value: Option<GenValueFunc>,
    pub(super) fail_fast: bool,
    pub(super) set_nx_on_extend: bool,
}

impl Options {
    pub(super) const DEFAULT: Self = Self {
        expiry: Duration::from_secs(8),
        tries: 32,
        delay: None,
        drift_factor: 0.01,
        timeout_factor: 0.05,
        gen_value: None,
        fail_fast: false,
        set_nx_on_extend: false,
    };

    /// What a call goes by.
    pub(super) fn terms(&self, name: &str) -> Result<Terms, Error> {
        let config = |source| Error::Config { source };
        let key = Key::new(name).map_err(config)?;
        let named = |error: Cause| config(error.with_name(key.as_str()));
        let ttl = Ttl::new(self.expiry).map_err(named)?;
        let factors = [self.drift_factor, self.timeout_factor];
        if factors.iter().any(|factor| factor.is_nan() || *factor < 0.0) {
            let message = "a factor is a number that is not negative; nothing was asked";
            return Err(named(Cause::new(ErrorKind::Config, message)));
        }
        let validity = self.expiry.saturating_sub(times(self.expiry, self.drift_factor));
        let timeout = times(self.expiry, self.timeout_factor);
        Ok(Terms { key, ttl, validity, timeout })
    }

    /// How long to wait before that try, counted from 0.
    pub(super) fn delay(&self, host: &dyn Host, tried: u32) -> Duration {
        if let Some(delay) = &self.delay {
            return delay(tried);
        }
        let mut byte = [DELAY_SPAN_MS];
        // What is left of the 256 values is drawn again: a remainder would favour some.
        while byte[0] >= DELAY_SPAN_MS {
            host.random(&mut byte);
        }
        Duration::from_millis(DELAY_LEAST_MS + u64::from(byte[0]))
    }

    /// The value of one more lock.
    pub(super) fn gen_value(&self, host: &dyn Host) -> Result<OwnerToken, Error> {
        let Some(gen_value) = &self.gen_value else { return Ok(base64_of_16_bytes(host)) };
        let value = gen_value().map_err(|source| Error::GenValue { source })?;
        token(&value)
    }
}

/// What one call goes by.
pub(super) struct Terms {
    pub(super) key: Key,
    pub(super) ttl: Ttl,
    /// For how long after it was asked for a lock is relied upon.
    pub(super) validity: Duration,
    /// How long all nodes together have for one try.
    pub(super) timeout: Duration,
}

pub(super) fn token(value: &str) -> Result<OwnerToken, Error> {
    OwnerToken::new(value).map_err(|source| Error::Config { source })
}

/// As there, by way of a floating-point number of nanoseconds.
fn times(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos((span.as_nanos() as f64 * factor) as u64)
}

/// Options, each as its namesake `WithExpiry` and so on. They apply from the next call on.
impl<S: Store> Mutex<S> {
    /// How long a lock lasts that is not extended. Default: 8 s; from 10 ms to 24 h, else the next
    /// call fails.
    #[must_use]
    pub fn with_expiry(mut self, expiry: Duration) -> Self {
        self.options.expiry = expiry;
        self
    }

    /// How often [`lock`](Self::lock) tries. Default: 32; 0 fails at once.
    #[must_use]
    pub fn with_tries(mut self, tries: u32) -> Self {
        self.options.tries = tries;
        self
    }

    /// How long to wait between two tries. Default: 50 to 249 ms, drawn anew each time.
    #[must_use]
    pub fn with_retry_delay(self, delay: Duration) -> Self {
        self.with_retry_delay_func(move |_| delay)
    }

    /// As [`with_retry_delay`](Self::with_retry_delay), decided before each try but the first,
    /// which would be number 0.
    #[must_use]
    pub fn with_retry_delay_func(
        mut self,
        delay: impl Fn(u32) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.options.delay = Some(Arc::new(delay));
        self
    }

    /// Which part of the expiry is left to clocks that do not agree on how long it lasts. Default:
    /// 0.01; from 1 on nothing can be locked, and one that is negative or no number fails the next
    /// call.
    #[must_use]
    pub fn with_drift_factor(mut self, factor: f64) -> Self {
        self.options.drift_factor = factor;
        self
    }

    /// Which part of the expiry a try has for the answers of all nodes, and its roll-back once
    /// more. Default: 0.05; 0 asks nobody, and one that is negative or no number fails the next
    /// call. A store may give up sooner, for Redis after a quarter of the expiry or 1 s.
    #[must_use]
    pub fn with_timeout_factor(mut self, factor: f64) -> Self {
        self.options.timeout_factor = factor;
        self
    }

    /// What makes the value of each lock: 1 to 128 printable ASCII characters without spaces.
    /// Default: 16 random bytes in Base64, which are 24 characters.
    ///
    /// It must never give the same one twice: whoever has the value of a lock has that lock, and
    /// may lock it as often as he likes. (There the second is refused, but his roll-back ends the
    /// lock of the first.)
    #[must_use]
    pub fn with_gen_value_func<E: Into<Box<dyn StdError + Send + Sync>>>(
        mut self,
        gen_value: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self {
        self.options.gen_value =
            Some(Arc::new(move || gen_value().map_err(|error| Arc::from(error.into()))));
        self
    }

    /// The value of a lock that was taken elsewhere, to unlock or extend it here. The next
    /// [`lock`](Self::lock) here makes a new one. Default: none, which an empty one is too.
    #[must_use]
    pub fn with_value(self, value: impl Into<String>) -> Self {
        let value = value.into();
        self.held().value = Some(value).filter(|value| !value.is_empty());
        self
    }

    /// Whether a call ends as soon as a quorum of nodes agrees, yes or no, instead of waiting for
    /// all of them. What the others were asked takes effect all the same. Default: no.
    #[must_use]
    pub fn with_fail_fast(mut self, fail_fast: bool) -> Self {
        self.options.fail_fast = fail_fast;
        self
    }

    /// Whether nodes are asked in an order that is drawn now. Default: no, in that of
    /// [`Redsync::new`](super::Redsync::new).
    #[must_use]
    pub fn with_shuffle_pools(mut self, shuffle: bool) -> Self {
        if shuffle {
            self.nodes.shuffle(&*self.host);
        }
        self
    }

    /// Lets [`extend`](Self::extend) also set the key where it is free, for nodes that forget it.
    /// Default: no.
    ///
    /// A lock that has ended is then taken anew without a word, also if another had it in between.
    #[must_use]
    pub fn with_set_nx_on_extend(mut self) -> Self {
        self.options.set_nx_on_extend = true;
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("expiry", &self.expiry)
            .field("tries", &self.tries)
            .field("drift_factor", &self.drift_factor)
            .field("timeout_factor", &self.timeout_factor)
            .field("fail_fast", &self.fail_fast)
            .field("set_nx_on_extend", &self.set_nx_on_extend)
            .finish_non_exhaustive()
    }
}
