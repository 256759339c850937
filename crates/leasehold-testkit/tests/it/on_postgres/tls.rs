//! Encrypted connections.

use std::path::Path;

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{Authority, Identity, PostgresServer};

/// Whether any connection of Leasehold is encrypted.
fn is_encrypted(server: &PostgresServer) -> bool {
    let rows = server.sql(
        "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'leasehold'",
    );
    rows.iter().any(|row| row[0] == "t")
}

#[tokio::test]
async fn a_connection_is_encrypted_and_checked_as_the_url_says() {
    let authority = Authority::new();
    let server = PostgresServer::start_with_tls(&authority.issue("server", &["127.0.0.1"]));
    let url = server.url("leasehold");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    let ca = format!("ca={}", authority.ca().display());
    for (options, encrypts) in [
        ("", true),
        ("&sslmode=prefer", true),
        ("&sslmode=disable", false),
        ("&sslmode=require", true),
        (&*format!("&sslmode=verify-full&{ca}"), true),
    ] {
        let client = Client::connect(&format!("{url}{options}")).await.expect(options);
        assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
        assert_eq!(is_encrypted(&server), encrypts, "{options}");
        drop(client);
        super::until("its connections end", async || {
            let open = "SELECT count(*) FROM pg_stat_activity
                WHERE application_name = 'leasehold'";
            server.sql(open)[0][0] == "0"
        })
        .await;
    }
    let other = Authority::new();
    let ca = format!("ca={}", other.ca().display());
    let strange = format!("{url}&sslmode=verify-full&{ca}");
    let error = Client::connect(&strange).await.expect_err("another authority");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_the_url_requires_it() {
    let url = PostgresServer::shared().url("leasehold");
    for mode in ["require", "verify-full"] {
        let error = Client::connect(&format!("{url}&sslmode={mode}")).await.expect_err(mode);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("the server has no TLS"), "{error}");
    }
}

/// As `openssl x509 -req` makes them. rustls cannot read such a certificate.
#[tokio::test]
async fn a_server_with_a_certificate_of_the_first_version_is_encrypted_to_if_nobody_checks_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/on_postgres");
    let identity = Identity { cert: folder.join("v1.crt"), key: folder.join("v1.key") };
    let server = PostgresServer::start_with_tls(&identity);
    let url = server.url("leasehold");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    for options in ["", "&sslmode=require"] {
        let client = Client::connect(&format!("{url}{options}")).await.expect(options);
        assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
        assert!(is_encrypted(&server), "{options}");
    }
}

/// With TLS 1.3, the server judges it after the handshake.
#[tokio::test]
async fn a_certificate_of_the_client_that_the_server_does_not_trust_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = PostgresServer::start_with_tls(&authority.issue("server", &["127.0.0.1"]));
    let data = &server.sql("SHOW data_directory")[0][0];
    let trusted = Path::new(data).join("clients.crt");
    std::fs::write(&trusted, std::fs::read(authority.ca()).expect("it is there")).expect("ours");
    server.sql(&format!("ALTER SYSTEM SET ssl_ca_file = '{}'", trusted.display()));
    server.stop();
    server.restart();
    let Identity { cert, key } = other.issue("client", &["client"]);
    let url = format!(
        "{}&sslmode=require&cert={}&key={}",
        server.url("leasehold"),
        cert.display(),
        key.display()
    );
    let error = Client::connect(&url).await.expect_err("another authority");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("correct `cert` and `key`"), "{error}");
}
