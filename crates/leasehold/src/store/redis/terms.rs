//! What all clients of one server have to agree on, beside where it is: the options of its URL.
//!
//! | option | what it means |
//! |---|---|
//! | `strict=yes` | a server that may have forgotten what it granted grants nothing for a while |
//! | `replicas=2`, `replicas=majority` | a grant that so many replicas do not confirm is given back |
//! | `fsync=yes` | so is one that is not on disk |

use std::time::Duration;

use super::copies::{Copies, Replicas};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::ttl::Ttl;

/// What all clients of one server have to agree on: a client with other terms is outside of what
/// they promise one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terms {
    /// Whether the server is quarantined when it has forgotten what it granted. Default: no.
    pub strict: Option<Strict>,
    /// How many copies of a grant there have to be. Default: none.
    pub copies: Copies,
}

impl From<Strict> for Terms {
    fn from(strict: Strict) -> Self {
        Self { strict: Some(strict), ..Self::default() }
    }
}

impl From<Copies> for Terms {
    fn from(copies: Copies) -> Self {
        Self { copies, ..Self::default() }
    }
}

/// The strict mode: a server that restarted, forgot its data, or took another one's place grants
/// nothing new for as long as anything that was granted before may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strict {
    ttl_max: Duration,
    quarantine: Duration,
}

impl Strict {
    /// What `strict=yes` means: leases of at most 60 s, and a quarantine of 65 s. The 5 s more
    /// are for a clock of the server that is stepped forward meanwhile.
    pub const STANDARD: Self =
        Self { ttl_max: Duration::from_mins(1), quarantine: Duration::from_secs(65) };

    /// With other times, for tests that cannot wait for a minute. Clients with different ones do
    /// not exclude each other.
    ///
    /// # Panics
    ///
    /// If the quarantine is shorter than the longest ttl.
    #[doc(hidden)]
    #[must_use]
    pub fn of(ttl_max: Duration, quarantine: Duration) -> Self {
        assert!(ttl_max <= quarantine, "what was granted has to run out within the quarantine");
        Self { ttl_max, quarantine }
    }

    /// The longest ttl of a lease, lock delay included.
    #[must_use]
    pub const fn ttl_max(self) -> Duration {
        self.ttl_max
    }

    /// For how long nothing new is granted.
    #[must_use]
    pub const fn quarantine(self) -> Duration {
        self.quarantine
    }
}

impl Terms {
    /// Whether a release may grant the key to the next in line. It can see neither whether the
    /// server has forgotten, nor can it take the key back where there are not copies enough.
    pub(super) fn hand_over(&self) -> bool {
        self.strict.is_none() && !self.copies.is_any()
    }

    /// That a lease may last so long, lock delay included.
    pub(super) fn allow(&self, ttl: Ttl, key: &Key) -> Result<(), Error> {
        let Some(strict) = self.strict.filter(|strict| ttl.get() > strict.ttl_max) else {
            return Ok(());
        };
        let message = format!(
            "with `strict=yes` a lease, its lock delay included, lasts {:?} at most, and not {:?}: \
             a server that forgot it grants nothing for that long; nothing was asked, choose a \
             shorter ttl, it is renewed all the same",
            strict.ttl_max,
            ttl.get()
        );
        Err(Error::new(ErrorKind::Config, message).with_name(key.as_str()))
    }
}

/// What stands behind the `?` of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// A database.
    pub(super) db: Option<String>,
    pub(super) terms: Terms,
}

impl Options {
    /// Reads them. `None` if there is one that is not known, that comes twice, or whose value is
    /// none: what all clients have to agree on is not guessed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut options = Self::default();
        let mut seen = Vec::new();
        for option in text.split('&') {
            let (name, value) = option.split_once('=')?;
            if seen.contains(&name) {
                return None;
            }
            seen.push(name);
            match (name, value) {
                ("db", db) => options.db = Some(db.to_owned()),
                ("strict", "yes") => options.terms.strict = Some(Strict::STANDARD),
                ("strict", "no") => options.terms.strict = None,
                ("replicas", "majority") => options.terms.copies.replicas = Replicas::Majority,
                ("replicas", count) => {
                    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
                    let count = count.parse().ok().filter(|_| is_number)?;
                    options.terms.copies.replicas = Replicas::Count(count);
                }
                ("fsync", "yes") => options.terms.copies.fsync = true,
                ("fsync", "no") => options.terms.copies.fsync = false,
                _ => return None,
            }
        }
        Some(options)
    }
}

impl Terms {
    /// The terms as the options of a URL, with `&` between them.
    pub(super) fn label(&self) -> String {
        let Self { strict, copies: Copies { replicas, fsync } } = self;
        let mut options = Vec::new();
        if strict.is_some() {
            options.push("strict=yes".to_owned());
        }
        match replicas {
            Replicas::Count(0) => {}
            Replicas::Count(count) => options.push(format!("replicas={count}")),
            Replicas::Majority => options.push("replicas=majority".to_owned()),
        }
        if *fsync {
            options.push("fsync=yes".to_owned());
        }
        options.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_or_refused() {
        let read = |text| Options::parse(text).expect(text);
        assert_eq!(read("db=3"), Options { db: Some("3".into()), ..Options::default() });
        let strict = Terms::from(Strict::STANDARD);
        assert_eq!(read("strict=yes").terms, strict);
        assert_eq!(read("db=0&strict=yes").terms, strict);
        assert_eq!(read("strict=yes").terms.label(), "strict=yes");
        assert_eq!(read("strict=no").terms, Terms::default());
        assert_eq!(Terms::default().label(), "");
        let copies = |replicas, fsync| Terms::from(Copies::of(replicas, fsync));
        assert_eq!(read("replicas=2").terms, copies(Replicas::Count(2), false));
        assert_eq!(read("replicas=0&fsync=no").terms, Terms::default());
        assert_eq!(read("fsync=yes").terms, copies(Replicas::Count(0), true));
        let all = read("fsync=yes&replicas=majority&strict=yes").terms;
        let copies = copies(Replicas::Majority, true);
        assert_eq!(all, Terms { strict: Some(Strict::STANDARD), ..copies });
        assert_eq!(all.label(), "strict=yes&replicas=majority&fsync=yes");
        assert_eq!(read("replicas=255").terms.label(), "replicas=255");
        for text in ["replicas", "replicas=", "replicas=+1", "replicas=256", "replicas=all"] {
            assert_eq!(Options::parse(text), None, "{text}");
        }
        for text in ["replicas=1&replicas=1", "fsync=1", "fsync", "fsync=always"] {
            assert_eq!(Options::parse(text), None, "{text}");
        }
        for text in ["", "strict", "strict=", "strict=Yes", "strict=1", "strict=yes&strict=yes"] {
            assert_eq!(Options::parse(text), None, "{text}");
        }
        for text in ["Strict=yes", "strict=yes&", "other=1", "strict=yes&other=1", "db=1&db=1"] {
            assert_eq!(Options::parse(text), None, "{text}");
        }
    }

    /// The whole promise of the quarantine: nothing outlives it.
    #[test]
    fn no_lease_of_a_strict_server_outlives_its_quarantine() {
        let strict = Strict::STANDARD;
        assert!(strict.quarantine() >= strict.ttl_max() + Duration::from_secs(5));
        let terms = Terms::from(strict);
        let key = Key::new("a").expect("a name");
        let ttl = |ttl| Ttl::new(ttl).expect("within bounds");
        assert!(terms.allow(ttl(strict.ttl_max()), &key).is_ok());
        let longer = ttl(strict.ttl_max() + Duration::from_nanos(1));
        let error = terms.allow(longer, &key).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("60s at most"), "{error}");
        assert!(Terms::default().allow(longer, &key).is_ok());
    }
}
