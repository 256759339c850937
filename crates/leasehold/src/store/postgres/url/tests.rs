//! Tests of `url.rs`.

use std::time::Duration;

use super::*;
use crate::core::error::ErrorKind;
use crate::store::net::TlsOptions;
use crate::store::sql::url::{Place, TlsMode};

#[test]
fn a_url_names_a_server_a_login_a_database_and_a_schema() {
    let read = |url| parse(url).expect(url);
    let whole = read("postgresql://us%40er:p%3Ass@db.example:6000/app?schema=s&connect_timeout=5");
    assert_eq!(whole.place, Place::Tcp("db.example".to_owned(), 6000));
    assert_eq!((&*whole.user, whole.password.as_deref()), ("us@er", Some("p:ss")));
    assert_eq!((&*whole.database, schema(&whole)), ("app", "s"));
    assert_eq!(whole.connect_limit, Duration::from_secs(5));
    let short = read("postgres://anna@[::1]");
    assert_eq!(short.place, Place::Tcp("::1".to_owned(), 5432));
    assert_eq!((&*short.database, schema(&short)), ("anna", "leasehold"));
    let socket = read("postgres://anna@:6000/app?host=/run/postgresql");
    assert_eq!(socket.place, Place::Unix("/run/postgresql".into(), 6000));
}

#[test]
fn encryption_is_preferred_unless_the_url_says_more() {
    let mode = |options: &str| {
        let url = format!("postgres://anna@h/app{options}");
        parse(&url).expect("a URL").tls
    };
    let of = |verifies| TlsOptions { verifies, ..TlsOptions::default() };
    assert_eq!(mode(""), TlsMode::Prefer(of(false)));
    assert_eq!(mode("?sslmode=disable"), TlsMode::Disable);
    assert_eq!(mode("?sslmode=require"), TlsMode::Require(of(false)));
    assert_eq!(mode("?sslmode=verify-full"), TlsMode::Require(of(true)));
    let ca = TlsOptions { ca: Some("/ca.pem".into()), ..of(true) };
    assert_eq!(mode("?sslmode=verify-full&sslrootcert=/ca.pem"), TlsMode::Require(ca));
    let patient = TlsOptions { limit: Duration::from_secs(15), ..of(false) };
    assert_eq!(mode("?connect_timeout=20"), TlsMode::Prefer(patient));
}

#[test]
fn a_label_is_a_url_of_the_same_database_without_the_password() {
    for url in [
        "postgres://anna:secret@h/app",
        "postgres://anna:secret@[::1]:6000/app?schema=other",
        "postgres://anna:secret@/app?host=/run/postgresql",
    ] {
        let address = parse(url).expect(url);
        let label = address.label();
        assert!(!label.contains("secret"), "{label}");
        let again = parse(&label).expect("it reads back");
        assert_eq!(Address { password: None, ..address }, again, "{label}");
    }
}

#[test]
fn a_url_that_is_not_understood_says_why_without_the_password() {
    for (url, part) in [
        ("redis://anna:secret@h/app", "begin it with"),
        ("postgres:anna@h/app", "two slashes"),
        ("postgres://h/app", "names no user"),
        ("postgres://:secret@h/app", "names no user"),
        ("postgres://anna:secret@/app", "names no host"),
        ("postgres://anna:secret@h:port/app", "a port must be a number"),
        ("postgres://anna:secret@h:0/app", "a port must be a number"),
        ("postgres://anna:secret@h1,h2/app", "several hosts"),
        ("postgres://anna:secret@h/a/b", "more than a database"),
        ("postgres://anna:secret@%2Frun/app", "the option `host`"),
        ("postgres://anna:secret@h/app?host=/run", "leave one of them out"),
        ("postgres://anna:secret@/app?host=run", "the full path"),
        ("postgres://anna:secret@h/app?scheme=x", "no option `scheme`"),
        ("postgres://anna:secret@h/app?schema=a&schema=b", "given twice"),
        ("postgres://anna:secret@h/app?schema=", "1 to 63 bytes"),
        ("postgres://anna:secret@h/app?schema=a%24%24b", "has no `$`"),
        ("postgres://anna:secret@h/app?schema", "write options"),
        ("postgres://anna:secret@h/app?connect_timeout=0", "1 to 60"),
        ("postgres://anna:secret@h/app?sslmode=on", "`disable`"),
        ("postgres://anna:secret@h/app?sslmode=require&ca=/a", "`sslmode=verify-full`"),
        ("postgres://anna:secret@h/app?sslmode=verify-full&ca=a", "in full"),
        ("postgres://anna:secret@h/app?sslcert=/a", "write both"),
        ("postgres://anna:secret@h/app?sslmode=disable&cert=/a&key=/b", "encrypts"),
        ("postgres://anna:sec ret@h/app", "a space"),
        ("postgres://anna:sec%ret@h/app", "`%25`"),
    ] {
        let error = parse(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(text.contains(part) && text.contains("no request was sent"), "{text}");
        assert!(!text.contains("secret") && !text.contains("anna"), "{text}");
    }
}
