//! From a URL to a store.

use std::sync::Arc;

use super::{AnyStore, MemoryStore};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;

/// The schemes that this build understands.
const SCHEMES: &str =
    if cfg!(feature = "sqlite") { "`sqlite:` and `memory:`" } else { "`memory:`" };

/// Opens the store that `url` names, on the clock of `host`.
///
/// | URL | store |
/// |---|---|
/// | `sqlite:/path`, `sqlite:path` | a file shared by the processes of one user on one machine |
/// | `memory:` | one of its own in this process |
/// | `memory:NAME` | one that is shared inside this process |
///
/// # Errors
///
/// [`ErrorKind::Config`] for a URL that is not understood; whatever the store says when it is
/// opened.
pub async fn from_url(url: &str, host: Arc<dyn Host>) -> Result<AnyStore, Error> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(not_understood(url, "it has no scheme"));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(AnyStore::new(MemoryStore::new(host))),
        "memory" => Ok(AnyStore::new(MemoryStore::shared(rest))),
        #[cfg(feature = "sqlite")]
        "sqlite" if rest.is_empty() => Err(not_understood(url, "it names no file")),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            // `sqlite:///path` is how other tools write an absolute path.
            let path = rest.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(rest);
            Ok(AnyStore::new(super::sqlite::SqliteStore::open(path.as_ref(), host)?))
        }
        _ => Err(not_understood(url, "its scheme is not known to this build")),
    }
}

fn not_understood(url: &str, reason: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "the store URL `{}` is not understood: {reason}; nothing was asked, use one of \
             {SCHEMES}",
            redact_url(url)
        ),
    )
}

/// The URL with everything between the scheme and the last `@` left out, since a password may stand
/// there, and without control characters: fit for messages and logs.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let shown = match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        (_, None) => url.to_owned(),
    };
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SystemHost;

    #[test]
    fn a_password_in_a_url_is_never_shown() {
        let table = [
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
            ("redis://user:secret@host:1/0", "redis://…@host:1/0"),
            ("redis://:p@ss@w@host", "redis://…@host"),
            ("user:secret@host", "…@host"),
            ("redis:secret@host", "…@host"),
            ("a\nb", "a\\nb"),
        ];
        for (url, shown) in table {
            assert_eq!(redact_url(url), shown);
        }
    }

    #[tokio::test]
    async fn a_url_that_is_not_understood_says_what_would_be() {
        for url in ["", "nothing", "redis2://user:secret@host", "memory", "http://x"] {
            let error = from_url(url, SystemHost::shared()).await.expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = error.to_string();
            assert!(text.contains("memory:") && !text.contains("secret"), "{text}");
        }
    }
}
