//! The options of a mutex.

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

/// The default delay between two tries, in ms: at least this, plus less than the span.
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

    /// The terms of a call.
    pub(super) fn terms(&self, name: &str) -> Result<Terms, Error> {
        let config = |source| Error::Config { source };
        let key = Key::new(name).map_err(config)?;
        let named = |error: Cause| config(error.with_name(key.as_str()));
        let ttl = Ttl::new(self.expiry).map_err(named)?;
        let factors = [self.drift_factor, self.timeout_factor];
        if factors.iter().any(|factor| factor.is_nan() || *factor < 0.0) {
            let message = "a factor is zero or a positive number; no request was sent";
            return Err(named(Cause::new(ErrorKind::Config, message)));
        }
        let validity = self.expiry.saturating_sub(times(self.expiry, self.drift_factor));
        let timeout = times(self.expiry, self.timeout_factor);
        Ok(Terms { key, ttl, validity, timeout })
    }

    /// How long to wait before try number `tried`, counted from 0.
    pub(super) fn delay(&self, host: &dyn Host, tried: u32) -> Duration {
        if let Some(delay) = &self.delay {
            return delay(tried);
        }
        let mut byte = [DELAY_SPAN_MS];
        // Some of the 256 values are left over. Draw again instead of a remainder, which would
        // favour some delays.
        while byte[0] >= DELAY_SPAN_MS {
            host.random(&mut byte);
        }
        Duration::from_millis(DELAY_LEAST_MS + u64::from(byte[0]))
    }

    /// Makes the value of a new lock.
    pub(super) fn gen_value(&self, host: &dyn Host) -> Result<OwnerToken, Error> {
        let Some(gen_value) = &self.gen_value else { return Ok(base64_of_16_bytes(host)) };
        let value = gen_value().map_err(|source| Error::GenValue { source })?;
        token(&value)
    }
}

/// The terms of one call.
pub(super) struct Terms {
    pub(super) key: Key,
    pub(super) ttl: Ttl,
    /// How long a lock may be relied upon, counted from its request.
    pub(super) validity: Duration,
    /// How long one try may take for all nodes together.
    pub(super) timeout: Duration,
}

pub(super) fn token(value: &str) -> Result<OwnerToken, Error> {
    OwnerToken::new(value).map_err(|source| Error::Config { source })
}

/// Multiplies with a floating-point number of nanoseconds, like the original.
fn times(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos((span.as_nanos() as f64 * factor) as u64)
}

/// Options, each named like its original `WithExpiry` and so on. They apply from the next call.
impl<S: Store> Mutex<S> {
    /// Sets how long a lock lasts without an extension. Default: 8 s. The next call fails unless it
    /// is from 10 ms to 24 h.
    #[must_use]
    pub fn with_expiry(mut self, expiry: Duration) -> Self {
        self.options.expiry = expiry;
        self
    }

    /// Sets how often [`lock`](Self::lock) tries. Default: 32. With 0 it fails at once.
    #[must_use]
    pub fn with_tries(mut self, tries: u32) -> Self {
        self.options.tries = tries;
        self
    }

    /// Sets the delay between two tries. Default: 50 to 249 ms, random each time.
    #[must_use]
    pub fn with_retry_delay(self, delay: Duration) -> Self {
        self.with_retry_delay_func(move |_| delay)
    }

    /// Like [`with_retry_delay`](Self::with_retry_delay), with a delay per try. The function gets
    /// the number of the coming try, counted from 0. Try 0 has no delay.
    #[must_use]
    pub fn with_retry_delay_func(
        mut self,
        delay: impl Fn(u32) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.options.delay = Some(Arc::new(delay));
        self
    }

    /// Sets the part of the expiry that allows for clock drift. Default: 0.01. With 1 or more,
    /// nothing can be locked. With a negative number or NaN, the next call fails.
    #[must_use]
    pub fn with_drift_factor(mut self, factor: f64) -> Self {
        self.options.drift_factor = factor;
        self
    }

    /// Sets the part of the expiry that a try may take for the answers of all nodes. Its roll-back
    /// may take as much again. Default: 0.05. With 0, no node is asked. With a negative number or
    /// NaN, the next call fails. A store may give up sooner: Redis after a quarter of the expiry or
    /// 1 s.
    #[must_use]
    pub fn with_timeout_factor(mut self, factor: f64) -> Self {
        self.options.timeout_factor = factor;
        self
    }

    /// Sets the function that makes the value of each lock: 1 to 128 printable ASCII characters
    /// without spaces. Default: 16 random bytes in Base64, which are 24 characters.
    ///
    /// It must never return the same value twice. A client that has the value of a lock has that
    /// lock, and can lock it again at any time. (redsync refuses the second lock, but its roll-back
    /// ends the first.)
    #[must_use]
    pub fn with_gen_value_func<E: Into<Box<dyn StdError + Send + Sync>>>(
        mut self,
        gen_value: impl Fn() -> Result<String, E> + Send + Sync + 'static,
    ) -> Self {
        self.options.gen_value =
            Some(Arc::new(move || gen_value().map_err(|error| Arc::from(error.into()))));
        self
    }

    /// Sets the value of a lock that was acquired elsewhere, to unlock or extend it here. The next
    /// [`lock`](Self::lock) makes a new value. Default: none; an empty value also means none.
    #[must_use]
    pub fn with_value(self, value: impl Into<String>) -> Self {
        let value = value.into();
        self.held().value = Some(value).filter(|value| !value.is_empty());
        self
    }

    /// Sets whether a call ends as soon as a quorum of nodes agrees, yes or no, instead of waiting
    /// for all. The requests to the other nodes still take effect. Default: no.
    #[must_use]
    pub fn with_fail_fast(mut self, fail_fast: bool) -> Self {
        self.options.fail_fast = fail_fast;
        self
    }

    /// Sets whether nodes are asked in a random order, which is drawn now. Default: no, in the
    /// order of [`Redsync::new`](super::Redsync::new).
    #[must_use]
    pub fn with_shuffle_pools(mut self, shuffle: bool) -> Self {
        if shuffle {
            self.nodes.shuffle(&*self.host);
        }
        self
    }

    /// Makes [`extend`](Self::extend) also set the key where it is free, for nodes that forget it.
    /// Default: no.
    ///
    /// A lock that has ended is then acquired again without notice, even if another client held it
    /// in between.
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
