//! The files of a URL with TLS: whether they have changed, and the settings that are made of them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, RootCertStore};

use super::config_error;
use super::unverified::AnyCertificate;
use crate::core::error::Error;
use crate::store::net::TlsOptions;

/// The longest file that is read, in bytes. All authorities of a system have about 250 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The properties of a file that change if it is written or replaced.
#[derive(PartialEq, Eq)]
pub(super) struct Version {
    device_and_inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Version {
    /// `None` if there is no such file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            device_and_inode: (found.dev(), found.ino()),
            size: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Reads all files, and makes the settings. The provider of cryptography is fixed here. So an
/// application needs no other setting, and its own choice does not matter.
pub(super) fn load(options: &TlsOptions, ahead: Duration) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(Later(ahead)))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for TLS 1.2 and 1.3");
    let config = match (&options.ca, options.verifies) {
        (_, false) => config
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(Arc::clone(&provider)))),
        (Some(ca), true) => config.with_root_certificates(roots_of(ca)?),
        (None, true) => config.with_root_certificates(system_roots()?),
    };
    let Some((cert, key)) = &options.identity else {
        return Ok(with_protocol(config.with_no_client_auth(), options));
    };
    let chain = certificates(cert, "cert")?;
    let key_der = PrivateKeyDer::from_pem_slice(&read(key, "key")?).map_err(|cause| {
        let what = format!(
            "the file `key` of the URL has no private key: {} ({})",
            shown(key),
            in_words(&cause)
        );
        config_error(&what, "name a file in PEM form that is not encrypted")
    })?;
    let config = config.with_client_auth_cert(chain, key_der).map_err(|cause| {
        let what = format!(
            "the certificate and the private key of the URL cannot be used together: {} and {}",
            shown(cert),
            shown(key)
        );
        let next = match cause {
            rustls::Error::InconsistentKeys(_) => "name the key that belongs to the certificate",
            rustls::Error::InvalidCertificate(_) => "use a certificate of X.509 version 3",
            _ => "use a key of RSA, ECDSA (P-256 or P-384) or Ed25519; the cause says more",
        };
        config_error(&what, next).with_source(cause)
    })?;
    Ok(with_protocol(config, options))
}

fn with_protocol(mut config: ClientConfig, options: &TlsOptions) -> Arc<ClientConfig> {
    config.alpn_protocols = options.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// The time of day at which certificates have to be valid: this much later than now.
#[derive(Debug)]
struct Later(Duration);

impl TimeProvider for Later {
    fn current_time(&self) -> Option<UnixTime> {
        let now = DefaultTimeProvider.current_time()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + self.0))
    }
}

fn roots_of(ca: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca, "ca")? {
        roots.add(certificate).map_err(|cause| {
            let what = format!("a certificate in the file `ca` is not valid: {}", shown(ca));
            config_error(&what, "name a file with the certificate of the authority")
                .with_source(cause)
        })?;
    }
    Ok(roots)
}

/// The authorities that this system trusts. `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
fn system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // A system may have odd certificates among many good ones.
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let error = config_error(
        "this system has no list of trusted authorities",
        "install the package `ca-certificates`, or add `?ca=PATH` with the authority",
    );
    Err(match found.errors.into_iter().next() {
        Some(cause) => error.with_source(cause),
        None => error,
    })
}

fn certificates(path: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = read(path, option)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read).collect();
    let why = match found {
        Ok(found) if !found.is_empty() => return Ok(found),
        Ok(_) => "no part of it is a certificate",
        Err(cause) => in_words(&cause),
    };
    let what =
        format!("the file `{option}` of the URL has no certificate: {} ({why})", shown(path));
    Err(config_error(&what, "name a file in PEM form"))
}

/// Says what is wrong with a file. The error itself must not be shown, because it quotes the file,
/// which may be a private key.
const fn in_words(cause: &pem::Error) -> &'static str {
    match cause {
        pem::Error::MissingSectionEnd { .. } => "a line `-----END …-----` is missing",
        pem::Error::IllegalSectionStart { .. } => "a line `-----BEGIN …-----` does not end",
        pem::Error::Base64Decode(_) => "what is between `BEGIN` and `END` is not Base64",
        pem::Error::NoItemsFound => "no part of it is of this kind",
        _ => "it is not in PEM form",
    }
}

/// Reads a regular file of bounded size. Anything else might block, or never end.
fn read(path: &Path, option: &str) -> Result<Vec<u8>, Error> {
    let read = || {
        // A pipe must not wait for a writer.
        let without_wait = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
        let file = File::options().read(true).custom_flags(without_wait).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        let is_too_long = bytes.len() as u64 > FILE_BYTES_MAX;
        if is_too_long { Err(io::Error::other("it is longer than 4 MiB")) } else { Ok(bytes) }
    };
    read().map_err(|cause| {
        let what =
            format!("the file `{option}` of the URL cannot be read: {} ({cause})", shown(path));
        config_error(&what, "correct the path, or the permissions of the file").with_source(cause)
    })
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.to_string_lossy().escape_debug())
}
