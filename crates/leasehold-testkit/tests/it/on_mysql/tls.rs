//! Encrypted connections.

use leasehold::host::SystemHost;
use leasehold::store::mysql::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{Authority, MysqlServer};

/// How many connections have been encrypted.
fn encrypted(server: &MysqlServer) -> u64 {
    let rows = server.sql("SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'");
    rows[0][1].parse().expect("a number")
}

#[tokio::test]
async fn a_connection_is_encrypted_and_checked_as_the_url_says() {
    let authority = Authority::new();
    let server = MysqlServer::start_with_tls(&authority.issue("server", &["127.0.0.1"]));
    server.sql("CREATE DATABASE a");
    let url = server.url("a");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    let ca = format!("ca={}", authority.ca().display());
    for (options, encrypts) in [
        ("", true),
        ("?sslmode=prefer", true),
        ("?sslmode=disable", false),
        ("?sslmode=require", true),
        (&*format!("?sslmode=verify-full&{ca}"), true),
    ] {
        let before = encrypted(&server);
        let client = Client::connect(&format!("{url}{options}")).await.expect(options);
        // Each client takes another lock, since the release of the client before may still be on
        // its way.
        assert!(client.mutex(format!("a{options}")).try_lock().await.expect("asked").is_some());
        assert_eq!(encrypted(&server) > before, encrypts, "{options}");
    }
    let other = Authority::new();
    let strange = format!("{url}?sslmode=verify-full&ca={}", other.ca().display());
    let error = Client::connect(&strange).await.expect_err("another authority");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_the_url_requires_it() {
    let server = MysqlServer::start_without_tls();
    for mode in ["require", "verify-full"] {
        let url = format!("{}?sslmode={mode}", server.url("mysql"));
        let error = Client::connect(&url).await.expect_err(mode);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("sslmode=disable"), "{error}");
    }
}

/// MySQL wants the password itself if it has no hash of it in memory, as after a restart.
#[tokio::test]
async fn a_password_is_shown_to_a_server_over_tls_or_a_socket_alone() {
    let authority = Authority::new();
    let server = MysqlServer::start_with_tls(&authority.issue("server", &["127.0.0.1"]));
    server.sql("CREATE DATABASE a");
    server.migrate("a");
    let tcp = format!("mysql://locked:secret@127.0.0.1:{}/a", server.port());
    let socket = format!("mysql://locked:secret@/a?socket={}", server.socket().display());
    let plain = format!("{tcp}?sslmode=disable");
    for (url, is_tcp) in [(&tcp, true), (&socket, false)] {
        server.sql("FLUSH PRIVILEGES");
        if !server.is_mariadb() {
            let error = Client::connect(&plain).await.expect_err("the password is not shown");
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.to_string().contains("sslmode=require"), "{error}");
        }
        let client = Client::connect(url).await.expect("the password is right");
        assert!(client.mutex(url).try_lock().await.expect("asked").is_some());
        if is_tcp {
            // The server knows the hash now. Over the socket, this is another user to the server.
            Client::connect(&plain).await.expect("the password is right");
        }
    }
}
