use super::*;
use crate::host::SystemHost;

#[cfg(all(feature = "mysql", feature = "postgres"))]
#[test]
fn databases_and_schemas_of_one_server_are_one_node() {
    let table = [
        (["postgres://u@h/a", "postgres://u@h/b"], false),
        (["postgres://u@h/a?schema=x", "postgres://u@h:5432/a?schema=y"], false),
        (["mysql://u@h/a", "mysql://u:secret@h/b"], false),
        (["postgres://u@h/a", "postgres://u@h:5433/a"], true),
        (["mysql://u@h/a", "mysql://u@k/a"], true),
        (["mysql://u@h/a", "postgres://u@h/a"], true),
    ];
    for (urls, are_two) in table {
        let checked = check_databases(&Named::of_all(&urls).expect("URLs"));
        assert_eq!(checked.is_ok(), are_two, "{urls:?}");
        let error = checked.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_password_in_a_url_is_never_shown() {
    let table = [
        ("sqlite:/a/b.db", "sqlite:/a/b.db"),
        ("redis://user:secret@host:1/0", "redis://…@host:1/0"),
        ("redis://:p@ss@w@host", "redis://…@host"),
        ("user:secret@host", "…@host"),
        ("redis:secret@host", "…@host"),
        ("redis://:secret/0", "redis://…"),
        ("redis://redis://:secret/0", "redis://…"),
        ("redis://:secret:/0", "redis://…"),
        ("redis://[::1]:1/0", "redis://[::1]:1/0"),
        ("redis://host:1/0", "redis://host:1/0"),
        ("a\nb", "a\\nb"),
        ("redis://:p?ss@host/x", "redis://…@host/x?…"),
        ("redis://host/x?password=secret", "redis://host/x?…"),
        ("x.cache.example:6380,password=secret=,ssl=True", "x.cache.example:6380"),
        ("x:6380,ssl=True,Pwd=secret", "x:6380"),
        ("host=db user=u PASSWORD=secret", "host"),
        ("redis:mypwd=1@host", "…"),
        ("redis://:123pwd=x@host", "redis://…"),
        ("jdbc:postgresql://h/db?user=u&password=sec@ret", "jdbc:postgresql://h/db?…"),
        ("sqlite:/my files/a,b=c.db", "sqlite:/my files/a,b=c.db"),
        ("redis+sentinel://h/x?sentinel_password=se@cret", "redis+sentinel://h/x?…"),
        ("redis+sentinel://u:se@h/x?sentinel_password=c@ret", "redis+sentinel://…@h/x?…"),
    ];
    for (url, shown) in table {
        assert_eq!(redact_url(url), shown);
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn strict_and_other_servers_are_no_quorum() {
    // Nothing listens there, and no request is sent.
    let urls =
        ["redis://:secret@127.0.0.1:1/0?strict=yes", "redis://:secret@127.0.0.1:2/3?strict=no"];
    for urls in [urls, [urls[1], urls[0]]] {
        let error = quorum_from_urls(&urls, SystemHost::shared()).await.expect_err("mixed");
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains("127.0.0.1:1/0?strict=yes` is strict and"), "{text}");
        assert!(text.contains("127.0.0.1:2/3?strict=no` is not"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    // Only the answer of a database says whether it is strict.
    for same in [[urls[0]; 2], [urls[1]; 2], [urls[0], "redis://127.0.0.1:3"]] {
        let error = quorum_from_urls(&same, SystemHost::shared()).await.expect_err("down");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn two_databases_of_one_server_are_no_two_nodes() {
    for urls in [
        ["redis://h/1", "redis://:secret@h:6379/2", "redis://i"],
        ["unix:/s", "redis://h", "unix:/s?db=3"],
    ] {
        let error = quorum_from_urls(&urls, SystemHost::shared()).await.expect_err("one server");
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains("two votes") && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn a_url_of_several_that_is_not_understood_is_counted() {
    for (urls, says) in
        [(&["memory:", "sqlite:", "memory:"][..], "URL 2 of 3: "), (&["x"], "the store URL")]
    {
        let error = quorum_from_urls(urls, SystemHost::shared()).await.expect_err("a URL");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

#[tokio::test]
async fn a_url_that_is_not_understood_says_what_would_be() {
    let urls = ["", "nothing", "redis2://user:secret@host", "valkey://:secret@h", "http://x"];
    let files = ["sqlite:", "sqlite://user:secret@host/x", "sqlite::memory:", "sqlite:~/x.db"];
    let urls = urls.map(|url| (url, "`memory:`"));
    let files = files.map(|url| (url, "write `sqlite:PATH`"));
    let option = [("sqlite:x.db?mode=ro&key=secret", "write `sqlite:PATH`")];
    for (url, advice) in urls.into_iter().chain(files).chain(option) {
        let error = from_url(url, SystemHost::shared()).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains(advice) && !text.contains("secret"), "{text}");
    }
    let valkey = from_url("valkey://h", SystemHost::shared()).await.expect_err("a scheme");
    assert!(valkey.to_string().contains("write `redis://` for a Valkey server too"), "{valkey}");
}
