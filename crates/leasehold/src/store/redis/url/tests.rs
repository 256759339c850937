use super::*;
use crate::store::redis::terms::{Strict, Terms};

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp(host.to_owned(), port)
}

fn unix(path: &str) -> Endpoint {
    Endpoint::Unix(path.into())
}

#[test]
fn each_form_of_a_url_names_its_server() {
    // URL, endpoint, user, password, database, label
    let table = [
        ("redis://h", tcp("h", 6379), None, None, 0, "redis://h:6379/0"),
        ("REDIS://h/", tcp("h", 6379), None, None, 0, "redis://h:6379/0"),
        ("redis://h:1/15", tcp("h", 1), None, None, 15, "redis://h:1/15"),
        (
            "redis://10.0.0.1:65535",
            tcp("10.0.0.1", 65535),
            None,
            None,
            0,
            "redis://10.0.0.1:65535/0",
        ),
        ("redis://[::1]", tcp("::1", 6379), None, None, 0, "redis://[::1]:6379/0"),
        (
            "redis://u:p@[2001:db8::0:1]:2/3",
            tcp("2001:db8::1", 2),
            Some("u"),
            Some("p"),
            3,
            "redis://[2001:db8::1]:2/3",
        ),
        ("redis://:p@h", tcp("h", 6379), None, Some("p"), 0, "redis://h:6379/0"),
        ("redis://u:@h", tcp("h", 6379), Some("u"), Some(""), 0, "redis://h:6379/0"),
        ("redis://:@h", tcp("h", 6379), None, None, 0, "redis://h:6379/0"),
        ("redis://u:p:q@h", tcp("h", 6379), Some("u"), Some("p:q"), 0, "redis://h:6379/0"),
        (
            "redis://%75:%25%40%2F%3a%3F%23%C3%A4+%5b@h",
            tcp("h", 6379),
            Some("u"),
            Some("%@/:?#ä+["),
            0,
            "redis://h:6379/0",
        ),
        (
            "redis+cluster://u:p@h:1,[::1]/",
            Endpoint::Cluster(vec![("h".to_owned(), 1), ("::1".to_owned(), 6379)]),
            Some("u"),
            Some("p"),
            0,
            "redis+cluster://h:1,[::1]:6379",
        ),
        (
            "redis+cluster://h/0?confirm=no",
            Endpoint::Cluster(vec![("h".to_owned(), 6379)]),
            None,
            None,
            0,
            "redis+cluster://h:6379",
        ),
        ("unix:/a/b.sock", unix("/a/b.sock"), None, None, 0, "unix:/a/b.sock"),
        ("unix:///a@b", unix("/a@b"), None, None, 0, "unix:/a@b"),
        ("unix:/a%20b%3F?db=2", unix("/a b?"), None, None, 2, "unix:/a b??db=2"),
        ("unix:/a%0ab", unix("/a\nb"), None, None, 0, "unix:/a\\nb"),
        ("unix://u:p%2F@/a?db=9", unix("/a"), Some("u"), Some("p/"), 9, "unix:/a?db=9"),
        ("unix://:p@/a", unix("/a"), None, Some("p"), 0, "unix:/a"),
    ];
    for (url, endpoint, user, password, db, label) in table {
        let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let (username, password) = (user.map(str::to_owned), password.map(str::to_owned));
        let access =
            Access { username, password, db, terms: Terms::AS_DATABASE, ..Access::default() };
        let expected = Address { endpoint, tls: None, access };
        assert!(address == expected, "{url} names {address:?}");
        assert_eq!(address.label(), label, "{url}");
        assert_eq!(format!("{address:?}"), label, "{url}");
    }
}

#[test]
fn the_terms_of_a_url_are_part_of_its_label() {
    let table = [
        ("redis://h?strict=yes", "redis://h:6379/0?strict=yes"),
        ("redis://u:p@h/2?strict=yes", "redis://h:6379/2?strict=yes"),
        ("redis://[::1]/?strict=yes", "redis://[::1]:6379/0?strict=yes"),
        ("unix:/a?strict=yes", "unix:/a?strict=yes"),
        ("unix:/a?strict=yes&db=2", "unix:/a?db=2&strict=yes"),
    ];
    for (url, label) in table {
        let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(address.access.terms.strict.strict(), Some(Strict::STANDARD), "{url}");
        assert_eq!(address.label(), label, "{url}");
    }
    for (url, terms, options) in [
        ("redis://h/0?strict=no", Terms::default(), Some("strict=no")),
        ("unix:/a?strict=no&db=0", Terms::default(), Some("strict=no")),
        ("redis://h/0", Terms::AS_DATABASE, None),
        ("redis://h/0?fsync=no", Terms::AS_DATABASE, None),
    ] {
        let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(address.access.terms, terms, "{url}");
        let label = address.label();
        assert_eq!(label.split_once('?').map(|(_, options)| options), options, "{url}");
    }
}

#[test]
fn tls_and_its_files_are_read_from_the_url() {
    let files = |ca: Option<&str>, identity: Option<(&str, &str)>| TlsOptions {
        verifies: true,
        ca: ca.map(Into::into),
        identity: identity.map(|(cert, key)| (cert.into(), key.into())),
        ..TlsOptions::default()
    };
    let table = [
        ("rediss://h", files(None, None), "rediss://h:6379/0"),
        ("rediss://:p@[::1]:7/2?ca=/a", files(Some("/a"), None), "rediss://[::1]:7/2"),
        (
            "RediSS://h?key=/a%20k&fsync=yes&cert=/a%26c",
            files(None, Some(("/a&c", "/a k"))),
            "rediss://h:6379/0?fsync=yes",
        ),
    ];
    for (url, expected, label) in table {
        let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(address.tls, Some(expected), "{url}");
        assert_eq!(address.label(), label, "{url}");
    }
}

/// URL, part of the message.
const WRONG: &[(&str, &str)] = &[
    ("", "`redis+cluster://` or `rediss+cluster://`"),
    ("secret", "`redis+cluster://` or `rediss+cluster://`"),
    ("http://secret", "`redis+cluster://` or `rediss+cluster://`"),
    ("redis://:secret@h?ca=/secret", "write `rediss://HOST:PORT/DB`"),
    ("rediss://:secret@h?ca=secret", "path of a file in full"),
    ("rediss://:secret@h?cert=/secret", "belong together"),
    ("rediss://:secret@h?key=/secret", "belong together"),
    ("rediss://:secret@h?key=%secret", "`%25`"),
    ("unix:/a?ca=/secret", "has no TLS"),
    ("redis+sentinel:h/m", "where NAME is what"),
    ("redis+sentinel://:secret@h", "where NAME is what"),
    ("redis+sentinel://:secret@h/", "where NAME is what"),
    ("redis+sentinel://:secret@/m", "no host"),
    ("redis+sentinel://:secret@a,,b/m", "no host"),
    ("redis+sentinel://a,b:x/m", "port is not a number"),
    ("redis+sentinel://a/m/x", "database is not a number"),
    ("redis+sentinel://a/m?db=1", "comes after the name"),
    ("redis+sentinel://a/m?ca=/secret", "write `rediss+sentinel://`"),
    ("redis+sentinel://a/m?sentinel_user=secret", "needs `sentinel_password`"),
    ("redis+sentinel://a/m?sentinel_tls=secret", "`yes` or `no`"),
    ("redis://a?sentinel_password=secret", "need `redis+sentinel://`"),
    ("unix:/a?sentinel_tls=no", "need `redis+sentinel://`"),
    ("redis+cluster:secret", "write `redis+cluster://HOST1:PORT1,HOST2:PORT2`"),
    ("redis+cluster://:secret@", "no host"),
    ("redis+cluster://:secret@a,", "no host"),
    ("redis+cluster://:secret@h/1", "only the database 0"),
    ("redis+cluster://:secret@h/x", "only the database 0"),
    ("redis+cluster://:secret@h?db=1", "only the database 0"),
    ("redis+cluster://:secret@h?strict=yes", "`strict` is not for a cluster"),
    ("redis+cluster://:secret@h?replicas=1", "`replicas` and `fsync` are not for a cluster"),
    ("rediss+cluster://:secret@h?fsync=yes", "`replicas` and `fsync` are not for a cluster"),
    ("redis+cluster://:secret@h?ca=/secret", "write `rediss+cluster://`"),
    ("redis+cluster://:secret@h?sentinel_tls=no", "need `redis+sentinel://`"),
    ("redis:h", "two slashes"),
    ("redis:/secret@h", "two slashes"),
    ("redis://", "no host"),
    ("redis://:secret@", "no host"),
    ("redis://:secret", "no host"),
    ("redis://u:secret", "port is not a number"),
    ("redis://:6379", "no host"),
    ("redis://h:", "port is not a number"),
    ("redis://h:0", "port is not a number"),
    ("redis://h:65536", "port is not a number"),
    ("redis://h:+1", "port is not a number"),
    ("redis://::1", "in brackets"),
    ("redis://[::1", "bracket `]` is missing"),
    ("redis://[secret]", "not an IPv6 address"),
    ("redis://[::1]secret", "follow the bracket"),
    ("redis://[::1]:x", "port is not a number"),
    ("redis://h,secret", "one host"),
    ("redis://h%20", "one host"),
    ("redis://h/secret", "database is not a number"),
    ("redis://h/-1", "database is not a number"),
    ("redis://h/1/secret", "database is not a number"),
    ("redis://h/4294967296", "database is not a number"),
    ("redis://h?db=secret", "no option `db`"),
    ("redis://h/0?password=secret", "understood: there is no such option"),
    ("redis://h/0?strict=yes&password=secret", "understood: option 2: there is no such option"),
    ("redis://h?", "write options after `?`"),
    ("redis://h?strict", "write options after `?`"),
    ("redis://h/0?strict=secret", "`strict` is `yes` or `no`"),
    ("redis://h/0?replicas=secret", "`replicas` must be a number from 0 to 255"),
    ("redis://h/0?strict=yes&strict=no", "twice"),
    ("redis://h#secret", "`%23`"),
    ("redis://u@h", "`USER:PASSWORD@`"),
    ("redis://:secret@secret@h", "`%40`"),
    ("redis://:sec/ret@h", "`%2F`"),
    ("redis://:sec?ret@h", "`%3F`"),
    ("redis://:sec#ret@h", "`%23`"),
    ("redis://:sec%ret@h", "`%25`"),
    ("redis://:secret%@h", "`%25`"),
    ("redis://:secret%f@h", "`%25`"),
    ("redis://:secret%ff@h", "not UTF-8"),
    ("redis://:secret%00@h", "`%00`"),
    ("redis://:sec ret@h", "`%20`"),
    ("redis://h\n", "`%20`"),
    ("unix:", "in full"),
    ("unix:secret", "in full"),
    ("unix:u:secret@/a", "in full"),
    ("unix://h/a", "a host where a path belongs"),
    ("unix://u@/a", "`USER:PASSWORD@`"),
    ("unix://:sec/ret@/a", "`%2F`"),
    ("unix://u:secret@h/a", "a host where a path belongs"),
    ("unix:/a#secret", "`%23`"),
    ("unix:/a?db=x", "database is not a number"),
    ("unix:/a?db=", "database is not a number"),
    ("unix:/a?pass=secret", "`db` for a socket"),
    ("unix:/a?db=1&pass=secret", "`db` for a socket"),
    ("unix:/a?db=1&strict=secret", "`strict` is `yes` or `no`"),
];

#[test]
fn a_wrong_url_is_refused_with_the_right_form_and_without_the_secret() {
    let long = format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
    for (url, says) in WRONG.iter().copied().chain([(long.as_str(), "at most 107 bytes")]) {
        let error = Address::parse(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains(says), "{url}: {text}");
        assert!(text.contains("no request was sent"), "{text}");
        for secret in ["secret", "sec", "ret@", "xxx"] {
            let is_shown = text.replace("`%", "").contains(secret);
            assert!(!is_shown, "{url}: {text}");
        }
    }
    assert!(Address::parse(&long[..long.len() - 1]).is_ok());
}
