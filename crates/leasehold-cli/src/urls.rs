//! The URLs of stores, as people write them.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use crate::exit::Failure;

/// The schemes that tell a further URL from a path with a blank in it.
const SCHEMES: [&str; 16] = [
    "redis",
    "rediss",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
    "valkey",
    "unix",
    "etcd",
    "mysql",
    "mariadb",
    "postgres",
    "postgresql",
    "sqlite",
    "zookeeper",
    "memory",
];

/// The URLs in one text. White space separates them only if every piece is a URL, since a path may
/// contain a blank.
pub(crate) fn split(text: &str) -> Vec<String> {
    let is_url = |piece: &str| SCHEMES.iter().any(|scheme| after_scheme(piece, scheme).is_some());
    let pieces = || text.split_whitespace();
    if pieces().count() > 1 && pieces().all(is_url) {
        return pieces().map(str::to_owned).collect();
    }
    vec![text.to_owned()]
}

/// The default ports of servers, and the text around a host and such a port in a URL. Any other
/// port counts as a Redis server's.
const PORTS: [(u16, &str, &str); 4] = [
    (2181, "zookeeper://", ""),
    (2379, "etcd://", ""),
    (3306, "mysql://USER@", "/DATABASE"),
    (5432, "postgres://USER@", "/DATABASE"),
];

/// The URL for a host and a port alone, as in `localhost:6379`. `None` for everything else.
pub(crate) fn url_of_place(text: &str) -> Option<String> {
    let (host, port) = text.split_once(':')?;
    // A host may be called `redis` or `postgres`. But after `sqlite:` and `memory:`, a number is a
    // name.
    let has_numbers = ["sqlite", "memory"].iter().any(|it| after_scheme(text, it).is_some());
    let is_host = |c: char| c.is_ascii_alphanumeric() || ['-', '.', '_'].contains(&c);
    if has_numbers || host.is_empty() || !host.chars().all(is_host) {
        return None;
    }
    let port: u16 = port.parse().ok()?;
    let known = PORTS.into_iter().find(|(known, ..)| *known == port);
    let (_, before, after) = known.unwrap_or((port, "redis://", ""));
    Some(format!("{before}{text}{after}"))
}

/// The longest file of URLs that is read: far more than a quorum needs.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The content of a file of URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlFile {
    /// The URLs in it.
    pub(crate) urls: Vec<String>,
    /// A warning about its permissions.
    pub(crate) careless: Option<String>,
}

/// Reads a file with one URL in each line; blank lines and comments are skipped. `named` is the
/// flag or variable that named the file.
///
/// Only regular files of a limited size are read. A pipe might never end, and opening a device may
/// have an effect.
pub(crate) fn in_file(path: &Path, named: &str) -> Result<UrlFile, Failure> {
    let refused = |reason: &str| {
        let path = path.display();
        Failure::config(format!(
            "{named} {path}: {reason}; the store was not contacted; name a file that this user may \
             read, with a URL in each line"
        ))
    };
    let failed = |error: std::io::Error| refused(&error.to_string());
    let check = |metadata: &Metadata| {
        let refusal = "it is not a regular file";
        if metadata.is_file() { Ok(()) } else { Err(refused(refusal)) }
    };
    check(&fs::metadata(path).map_err(failed)?)?;
    // If a pipe has replaced the file meanwhile, opening it must not wait.
    let without_wait = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
    let opened = File::options().read(true).custom_flags(without_wait).open(path);
    let file = opened.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    check(&metadata)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(&format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let urls = lines(&text);
    if urls.is_empty() {
        return Err(refused("it holds no URL"));
    }
    let careless =
        careless(metadata.permissions().mode(), urls.iter().any(|url| has_password(url)));
    let careless = careless.map(|who| format!("{named} {}: {who}", path.display()));
    Ok(UrlFile { urls, careless })
}

/// The warning if other users have rights to the file that they should not have. A group may be
/// meant to share it.
fn careless(mode: u32, has_password: bool) -> Option<&'static str> {
    if mode & 0o002 != 0 {
        Some("everybody on this machine may change which store is used; `chmod o-w` helps")
    } else if mode & 0o004 != 0 && has_password {
        Some("everybody on this machine may read the password in it; `chmod 600` helps")
    } else {
        None
    }
}

fn lines(text: &str) -> Vec<String> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

pub(crate) fn has_password(url: &str) -> bool {
    if url.contains("sentinel_password=") {
        return true;
    }
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    authority.rsplit_once('@').is_some_and(|(user, _)| {
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
    })
}

/// The part after the scheme. The case of the scheme does not matter.
pub(crate) fn after_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (given, rest) = url.split_once(':')?;
    given.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// The file of an SQLite store, if the URL names one that is missing from a directory that exists.
/// The library refuses any other path, and says what is wrong with it.
pub(crate) fn missing_file(url: &str) -> Option<&Path> {
    let rest = after_scheme(url, "sqlite")?;
    let has_host = rest.starts_with("//") && !rest.starts_with("///");
    if rest.is_empty() || rest.starts_with([':', '~']) || rest.contains('?') || has_host {
        return None;
    }
    let path = Path::new(rest);
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let is_missing = fs::symlink_metadata(path).is_err_and(|it| it.kind() == ErrorKind::NotFound);
    (is_missing && directory.is_none_or(Path::is_dir)).then_some(path)
}

/// The URL of the same file from any directory. Only relative files change.
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
    fn a_place_without_a_scheme_is_answered_with_a_url() {
        for (text, url) in [
            ("localhost:6379", Some("redis://localhost:6379")),
            ("redis:6379", Some("redis://redis:6379")),
            ("db-1.internal:5432", Some("postgres://USER@db-1.internal:5432/DATABASE")),
            ("mysql:3306", Some("mysql://USER@mysql:3306/DATABASE")),
            ("10.0.0.1:7000", Some("redis://10.0.0.1:7000")),
            ("redis://localhost:6379", None),
            ("memory:7", None),
            ("sqlite:7", None),
            ("unix:/7", None),
            ("localhost", None),
            ("user:password@host", None),
            ("localhost:66000", None),
            (":6379", None),
        ] {
            assert_eq!(url_of_place(text).as_deref(), url, "{text}");
        }
    }

    #[test]
    fn a_file_of_urls_has_one_a_line_and_may_have_comments() {
        for (text, urls) in [
            ("redis://a\n", &["redis://a"][..]),
            ("\u{feff}redis://a\r\n", &["redis://a"]),
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
    fn the_rights_of_others_to_a_file_are_noticed() {
        for (mode, has_password, part) in [
            (0o100_600, true, None),
            (0o100_640, true, None),
            (0o100_644, false, None),
            (0o100_644, true, Some("may read the password")),
            (0o100_666, true, Some("may change which store")),
            (0o100_602, false, Some("may change which store")),
        ] {
            let said = careless(mode, has_password);
            assert_eq!(said.is_some(), part.is_some(), "{mode:o} {said:?}");
            assert!(said.unwrap_or_default().contains(part.unwrap_or_default()), "{mode:o}");
        }
    }

    #[test]
    fn one_password_among_several_urls_is_worth_a_warning() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("urls");
        for (text, warns) in
            [("redis://a\nredis://:secret@b\nredis://c\n", true), ("redis://a\nredis://b\n", false)]
        {
            fs::write(&path, text).expect("written");
            let mode = fs::Permissions::from_mode(0o644);
            fs::set_permissions(&path, mode).expect("its mode is set");
            let file = in_file(&path, "--url-file").expect("it is read");
            let says = file.careless.unwrap_or_default();
            assert_eq!(says.contains("read the password"), warns, "{text:?}: {says}");
        }
    }

    #[test]
    fn a_password_is_noticed() {
        for (url, password) in [
            ("redis://user:secret@host", true),
            ("redis://:secret@host", true),
            ("redis://user@host", false),
            ("redis+sentinel://host/name?sentinel_password=secret", true),
            ("redis+sentinel://host/name", false),
            ("redis://user:@host", false),
            ("redis://host:6379/0", false),
            ("sqlite:/a@b:c", false),
        ] {
            assert_eq!(has_password(url), password, "{url}");
        }
    }

    #[test]
    fn a_missing_file_is_noticed_only_where_a_store_could_be() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| format!("sqlite:{}", dir.path().join(name).display());
        fs::write(dir.path().join("there"), "").expect("a file");
        let missing = at("missing");
        assert_eq!(missing_file(&missing), Some(&*dir.path().join("missing")));
        assert_eq!(missing_file("sqlite:no-such-file"), Some(Path::new("no-such-file")));
        for url in [&*at("there"), &at("no/directory"), &at("a?b"), "sqlite:", "sqlite:~/x"] {
            assert_eq!(missing_file(url), None, "{url}");
        }
        for url in ["sqlite::memory:", "sqlite://host/x", "redis://h", "memory:a"] {
            assert_eq!(missing_file(url), None, "{url}");
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
