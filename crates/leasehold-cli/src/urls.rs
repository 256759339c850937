//! The URLs of stores, as people write them.

use std::fs;
use std::path::Path;

use crate::exit::Failure;

/// The schemes by which the next URL is told from a path with a blank in it.
const SCHEMES: [&str; 8] =
    ["redis", "rediss", "redis+sentinel", "redis+cluster", "valkey", "unix", "sqlite", "memory"];

/// The URLs in one text. White space stands between them, unless what it parts is not all URLs: a
/// path may have a blank in it.
pub(crate) fn split(text: &str) -> Vec<String> {
    let is_url = |piece: &str| SCHEMES.iter().any(|scheme| after_scheme(piece, scheme).is_some());
    let pieces = || text.split_whitespace();
    if pieces().count() > 1 && pieces().all(is_url) {
        return pieces().map(str::to_owned).collect();
    }
    vec![text.to_owned()]
}

/// The URLs in a file: one a line, blank lines and comments left out.
pub(crate) fn in_file(path: &Path) -> Result<Vec<String>, Failure> {
    let refused = |reason: &str| {
        Failure::config(format!(
            "--url-file {}: {reason}; the store was not contacted",
            path.display()
        ))
    };
    let text = fs::read_to_string(path).map_err(|error| refused(&error.to_string()))?;
    let urls = lines(&text);
    if urls.is_empty() { Err(refused("it holds no URL")) } else { Ok(urls) }
}

fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

pub(crate) fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    authority.rsplit_once('@').is_some_and(|(user, _)| {
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
    })
}

/// What follows the scheme, whose case does not matter.
pub(crate) fn after_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (given, rest) = url.split_once(':')?;
    given.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The same file from whatever directory; all but relative files as they are.
pub(crate) fn absolute(url: &str, here: Option<&Path>) -> String {
    let file = after_scheme(url, "sqlite").filter(|file| !file.starts_with('/'));
    let absolute = |file| Some(format!("sqlite:{}", here?.join(file).to_str()?));
    file.and_then(absolute).unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_stand_apart_by_white_space_unless_it_is_in_a_path() {
        for (text, urls) in [
            ("redis://a", &["redis://a"][..]),
            ("redis://a unix:/b\n\tSQLite:c ", &["redis://a", "unix:/b", "SQLite:c"]),
            ("redis://a redis://a", &["redis://a", "redis://a"]),
            ("sqlite:/my locks.db", &["sqlite:/my locks.db"]),
            ("sqlite:/my locks.db redis://a", &["sqlite:/my locks.db redis://a"]),
            ("redis://:pass word@a", &["redis://:pass word@a"]),
            (" sqlite:a", &[" sqlite:a"]),
            ("", &[""]),
        ] {
            assert_eq!(split(text), urls, "{text:?}");
        }
    }

    #[test]
    fn a_file_of_urls_has_one_a_line_and_may_have_comments() {
        for (text, urls) in [
            ("redis://a\n", &["redis://a"][..]),
            (
                "# ours\n\n  redis://a  \r\n#redis://old\nsqlite:/b c#d\n",
                &["redis://a", "sqlite:/b c#d"],
            ),
            ("\n # nothing\n", &[]),
        ] {
            assert_eq!(lines(text), urls, "{text:?}");
        }
    }

    #[test]
    fn a_password_is_noticed() {
        for (url, password) in [
            ("redis://user:secret@host", true),
            ("redis://:secret@host", true),
            ("redis://user@host", false),
            ("redis://user:@host", false),
            ("redis://host:6379/0", false),
            ("sqlite:/a@b:c", false),
        ] {
            assert_eq!(has_password(url), password, "{url}");
        }
    }

    #[test]
    fn a_relative_file_stays_the_same_file_after_a_change_of_directory() {
        let here = Some(Path::new("/srv"));
        assert_eq!(absolute("sqlite:a/b.db", here), "sqlite:/srv/a/b.db");
        assert_eq!(absolute("SQLite:b.db", here), "sqlite:/srv/b.db");
        assert_eq!(absolute("sqlite:/a/b.db", here), "sqlite:/a/b.db");
        assert_eq!(absolute("redis://host", here), "redis://host");
        assert_eq!(absolute("sqlite:a/b.db", None), "sqlite:a/b.db");
    }
}
